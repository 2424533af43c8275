"""Libraries that TensorFlow cannot load: the error says what to do."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import tensorflow as tf

PACKAGE = """\
from opwright_runtime.libraries import load_library

load_library(__name__, "ops.so")
"""


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty", b"", "the file is damaged or no library; build or install it again"),
        ("text", b"text", "the file is damaged or no library"),
        ("other", b"\x7fELF", "; build it against this TensorFlow"),
        (
            "older",
            b"\x7fELF\0built for TensorFlow 1.9.1\0",
            "it was built for TensorFlow 1.9.1; install that, or build the library",
        ),
        (
            "same",
            b"\x7fELF\0built for TensorFlow " + tf.__version__.encode() + b"\0",
            "; build it against this TensorFlow",
        ),
    ],
)
def test_package_of_a_library_that_does_not_load_says_what_to_do(
    name: str,
    content: bytes,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / f"{name}_ops"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "ops.so").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError) as caught:
        import_module(package.name)
    assert words in str(caught.value)
