"""native.load reports a missing library, and one of another TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from opwright_runtime import native
from support.processes import run_code


@pytest.fixture
def library_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    library = tmp_path / "libopwright.so"
    monkeypatch.setattr(native, "LIBRARY", library)
    monkeypatch.setattr(native, "_loaded", False)
    return library


def test_load_missing_library_raises(library_path: Path) -> None:
    native.load_if_present()
    with pytest.raises(native.NativeLibraryError, match=r"no library.*make native"):
        native.load()


def test_load_library_of_other_tensorflow_raises(library_path: Path) -> None:
    library_path.write_bytes(b"never looked at")
    library_path.with_suffix(".json").write_text(json.dumps({"tensorflow": "2.20.0"}))
    words = rf"2\.20\.0.*{tf.__version__}.*make native"
    with pytest.raises(native.NativeLibraryError, match=words):
        native.load()
    with pytest.warns(UserWarning, match="runs without it"):
        native.load_if_present()


@pytest.mark.parametrize("stamp", [None, "", "[]", "{}"])
def test_load_library_without_stamp_raises(
    library_path: Path, stamp: str | None
) -> None:
    library_path.write_bytes(b"")
    if stamp is not None:
        library_path.with_suffix(".json").write_text(stamp)
    with pytest.raises(native.NativeLibraryError, match="does not say"):
        native.load()


def test_load_text_file_raises(library_path: Path) -> None:
    library_path.write_bytes(b"text")
    library_path.with_suffix(".json").write_text(
        json.dumps({"tensorflow": tf.__version__})
    )
    with pytest.raises(native.NativeLibraryError, match="does not load"):
        native.load()


def test_use_isa_chooses_instruction_set() -> None:
    assert native.isa() in ("avx512", "avx2", "portable")
    native.use_isa("portable")
    assert native.isa() == "portable"
    native.use_isa("")
    with pytest.raises(ValueError, match="mmx"):
        native.use_isa("mmx")


def test_opwright_library_variable_chooses_the_library(tmp_path: Path) -> None:
    library = tmp_path / "libopwright.so"
    library.write_bytes(b"")
    library.with_suffix(".json").write_text('{"tensorflow": "1.0"}')
    script = (
        "import opwright_runtime.native as n; print(n.LIBRARY)\n"
        "try: n.load()\nexcept n.NativeLibraryError as error: print(error)"
    )
    done = run_code(script, OPWRIGHT_LIBRARY=str(library))
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert said.startswith(f"{library}\n{library} was built for TensorFlow 1.0")


def test_cuda_matches_the_stamp() -> None:
    stamp = json.loads(native.LIBRARY.with_suffix(".json").read_text())
    assert native.cuda() == stamp["cuda"]
