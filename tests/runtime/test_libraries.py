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


HERE = ".".join(tf.__version__.split(".")[:2])


@pytest.mark.parametrize(
    ("name", "libraries", "words"),
    [
        ("none", {}, "loads {package}/ops.so, which is not there; build it first"),
        (
            "others",
            {"10.2": b"\x7fELF", "9.9": b"\x7fELF", "9.10": b"\x7fELF"},
            f"has libraries for TensorFlow 9.9, 9.10, 10.2, this is TensorFlow "
            f"{tf.__version__}; install one of these",
        ),
        (
            "this",
            {HERE: b"\x7fELF", "9.9": b""},
            f"loads {{package}}/_lib/{HERE}/ops.so, which TensorFlow",
        ),
        (
            "before",
            {HERE: b"\x7fELF\0built for TensorFlow " + f"{HERE}.0-rc9\0".encode()},
            f"_lib/{HERE}/ops.so, which was built for TensorFlow {HERE}.0-rc9, this is "
            f"TensorFlow {tf.__version__}",
        ),
    ],
)
def test_package_of_several_libraries_loads_that_of_this_tensorflow(
    name: str,
    libraries: dict[str, bytes],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = tmp_path / f"{name}_several"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    for version, content in libraries.items():
        (package / "_lib" / version).mkdir(parents=True)
        (package / "_lib" / version / "ops.so").write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError) as caught:
        import_module(package.name)
    assert words.format(package=package) in str(caught.value)
    # A library beside the package, which `make build` writes, comes first.
    (package / "ops.so").write_bytes(b"text")
    with pytest.raises(ImportError, match=f"loads {package}/ops.so, which TensorFlow"):
        import_module(package.name)
