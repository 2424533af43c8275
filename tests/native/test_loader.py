"""The loader picks the library of the installed TensorFlow, or says what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from opwright_runtime import _native_library, native
from support.processes import run_code
from support.versions import IS_RELEASE

HERE = _native_library.minor(tf.__version__)
#: A candidate of a release counts as the same as itself only.
released = pytest.mark.skipif(not IS_RELEASE, reason="TensorFlow is a candidate")


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


def write_library(place: Path, tensorflow: str, /, **facts: object) -> Path:
    """A file that stands for a library for this TensorFlow, and its stamp."""
    library = place / _native_library.minor(tensorflow) / "libopwright.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(b"")
    library.with_suffix(".json").write_text(
        json.dumps({"tensorflow": tensorflow, **facts})
    )
    return library


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package's libraries, which is empty."""
    folder = tmp_path / "_lib"
    monkeypatch.setattr(_native_library, "PACKAGED", folder)
    return folder


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the libraries that the machine has built, which is empty."""
    recipe = tmp_path / "build.json"
    recipe.write_text('{"digest": "0123456789ab"}')
    monkeypatch.setattr(_native_library, "RECIPE", recipe)
    monkeypatch.setenv("OPWRIGHT_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data" / "native-0123456789ab"


VERSIONS = ("2.9.0", "2.20.0", tf.__version__, "2.99.1")


def test_find_with_several_libraries_picks_that_of_this_tensorflow(
    packaged: Path,
) -> None:
    libraries = {version: write_library(packaged, version) for version in VERSIONS}
    assert _native_library.find() == libraries[tf.__version__]
    assert _native_library.versions() == ["2.9", "2.20", HERE, "2.99"]


def test_find_without_library_of_this_tensorflow_names_its_place(
    packaged: Path,
) -> None:
    write_library(packaged, "2.99.1")
    assert _native_library.find() == packaged / HERE / "libopwright.so"
    assert "this opwright has kernels for TensorFlow 2.99; " in (
        _native_library.advice()
    )


def test_find_with_library_built_on_this_machine_picks_it(
    packaged: Path, built: Path
) -> None:
    ours = write_library(packaged, tf.__version__)
    assert _native_library.find() == ours
    theirs = write_library(built, tf.__version__)
    assert _native_library.find() == theirs


def test_find_with_built_library_of_a_prerelease_picks_the_packaged_one(
    packaged: Path, built: Path
) -> None:
    ours = write_library(packaged, tf.__version__)
    write_library(built, f"{HERE}.0-rc9")
    assert _native_library.find() == ours


def test_find_with_data_folder_that_cannot_be_read_picks_the_packaged_one(
    packaged: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the home folder of another user, also where the name is too long."""
    ours = write_library(packaged, tf.__version__)
    monkeypatch.setenv("OPWRIGHT_DATA_DIR", f"/{'x' * 5000}")
    assert _native_library.find() == ours


def test_find_with_unreadable_stamp_returns_the_library(packaged: Path) -> None:
    """So that loading it says what is wrong."""
    library = write_library(packaged, tf.__version__)
    library.with_suffix(".json").unlink()
    assert _native_library.find() == library


def test_advice_with_sources_names_the_command(built: Path) -> None:
    assert "`python -m opwright build-native`" in _native_library.advice()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"tensorflow": tf.__version__}, None),
        pytest.param({"tensorflow": f"{HERE}.99"}, None, marks=released),
        ({"tensorflow": f"{HERE}.0-rc9"}, f"was built for TensorFlow {HERE}.0-rc9"),
        ({"tensorflow": "2.99.0"}, "was built for TensorFlow 2.99.0"),
        ({"cxx11_abi": 0}, "_GLIBCXX_USE_CXX11_ABI=0"),
        ({"cxx11_abi": 1, "cuda": "12.4"}, None),
    ],
)
def test_misfit_compares_version_and_abi(
    facts: dict[str, object], words: str | None, tmp_path: Path
) -> None:
    path = write_library(tmp_path, tf.__version__, **facts)
    said = _native_library.stamp(path).misfit()
    assert said is None if words is None else said is not None and words in said


UNKNOWN = """
import warnings
import tensorflow as tf
tf.__version__ = "2.97.0"
with warnings.catch_warnings():
    warnings.simplefilter("error")
    import opwright
from opwright.linalg import mat_mul
from opwright.nn import cudnn_rnn_v3
assert mat_mul(tf.ones([2, 3]), tf.ones([3, 2])).numpy().tolist() == [[3.0] * 2] * 2
x, h = tf.ones([2, 1, 3]), tf.zeros([1, 1, 4])
for call in (
    opwright.native.load,
    lambda: cudnn_rnn_v3(x, h, h, tf.ones([144]), [2], is_training=False),
):
    try:
        call()
    except (opwright.native.NativeLibraryError, opwright.OpKernelError) as error:
        print(type(error).__name__, error)
"""


def test_unknown_tensorflow_runs_classes_and_kernels_say_which_versions_have_them() -> (
    None
):
    done = run_code(UNKNOWN)
    assert done.returncode == 0, done.stderr
    missing, call = done.stdout.splitlines()
    assert missing.startswith("NativeLibraryError no library of native kernels")
    assert call.startswith("OpKernelError CudnnRNNV3: no kernel can run it here")
    words = f"this opwright has kernels for TensorFlow {HERE}; "
    for said in (missing, call):
        assert words in said
        assert "with TensorFlow 2.97" in said


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
