"""`opwright build-native` compiles a recipe, and says what is missing.

tests/packaging builds the real library, which takes minutes.
"""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from opwright_runtime import _build_native, _native_library, cli, native
from support.places import environment

HERE = _native_library.minor(tf.__version__)
FLAGS = ["-I{root}/headers", "-isystem", "{include}", "-std=c++17", "-fPIC"]
HEADER = "#pragma once\nconstexpr int kNumber = 3;\n"
ONE = '#include "number.h"\nint One() { return kNumber; }\n'
TWO = '#include "absl/base/config.h"\nint Two() { return 2; }\n'
WRONG = "int Wrong() { return nowhere; }\n"


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small recipe, in the place of the wheel's; the library goes to tmp_path."""
    folder = tmp_path / "_native"
    (folder / "headers").mkdir(parents=True)
    (folder / "headers" / "number.h").write_text(HEADER)
    for name, text in (("one", ONE), ("two", TWO), ("wrong", WRONG)):
        (folder / f"{name}.cc").write_text(text)
    monkeypatch.setattr(_native_library, "SOURCES", folder)
    monkeypatch.setattr(_native_library, "RECIPE", folder / "build.json")
    monkeypatch.setenv("OPWRIGHT_DATA_DIR", str(tmp_path / "data"))
    # Where the compiler keeps its output after an error.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    write_recipe(["one.cc", "two.cc"])
    return folder


def write_recipe(*units: list[str], **changes: object) -> None:
    recipe = {
        "digest": "0123456789ab",
        "machine": platform.machine(),
        "units": [{"sources": names, "flags": FLAGS} for names in units],
        "link": ["-shared", "-L{library}", "-l:libtensorflow_framework.so.2"],
    }
    _native_library.RECIPE.write_text(json.dumps(recipe | changes))


def nothing(*_: object) -> None:
    """A progress that shows nothing."""


def files(folder: Path) -> list[str]:
    """The files of a folder, but the output that is kept after an error."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_build_compiles_sources_of_the_recipe_and_loads_them(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[list[str]] = []

    def load(library: Path) -> None:
        names = subprocess.run(["nm", "-D", library], capture_output=True, text=True)
        loaded.append([name for name in ("One", "Two") if name in names.stdout])

    # The small library has none of the functions that the loader calls.
    monkeypatch.setattr(_build_native, "_check_that_it_loads", load)
    said: list[tuple[object, ...]] = []
    built = _build_native.build(lambda *one: said.append(one), jobs=2)
    assert built == tmp_path / "data" / "native-0123456789ab" / HERE / "libopwright.so"
    assert loaded == [["One", "Two"]]
    assert said == [("compiling", 0, 1), ("one.cc and 1 more", 1, 1)]
    assert _native_library.stamp(built).misfit() is None
    assert _native_library.find() == built
    assert files(tmp_path / "data") == ["libopwright.json", "libopwright.so"]


@pytest.mark.rotating
def test_build_of_library_that_does_not_load_is_refused(
    sources: Path, tmp_path: Path
) -> None:
    """It is no op library: TensorFlow loads it, and the loader lacks its functions."""
    with pytest.raises(_build_native.BuildError, match="was built and does not load"):
        _build_native.build(nothing)
    assert files(tmp_path / "data") == []


def test_build_of_source_with_error_names_file_and_error(
    sources: Path, tmp_path: Path
) -> None:
    write_recipe(["one.cc"], ["wrong.cc"])
    words = rf"wrong.cc does not compile with TensorFlow {HERE}: .*'nowhere' was not"
    with pytest.raises(_build_native.BuildError, match=words) as raised:
        _build_native.build(nothing, jobs=1)
    log = Path(str(raised.value).rsplit(" is in ", 1)[1])
    assert "nowhere" in log.read_text()
    assert files(tmp_path / "data") == []


def write_program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def no_compiler(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.delenv("CXX", raising=False)
    patch.setenv("PATH", str(folder))


def absent(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setenv("CXX", "/nowhere/g++ -m64")


def old(patch: pytest.MonkeyPatch, folder: Path) -> None:
    said = "echo 'probe.cc:4:2: error: it does not compile C++17' >&2; exit 1"
    patch.setenv("CXX", write_program(folder / "old-g++", said))


def older_standard(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """A real compiler, whose last option wins."""
    compiler = _build_native.compiler()[0]
    program = write_program(folder / "g++-98", f'exec {compiler} "$@" -std=c++14')
    patch.setenv("CXX", program)


def other_machine(patch: pytest.MonkeyPatch, folder: Path) -> None:
    write_recipe(["one.cc"], machine="s390x")


def no_headers(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr(tf.sysconfig, "get_include", lambda: str(folder))


def no_sources(patch: pytest.MonkeyPatch, folder: Path) -> None:
    _native_library.RECIPE.unlink()


def no_folder(patch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "data").write_text("a file")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_compiler, "there is no C\\+\\+ compiler: install one, such as .*g\\+\\+"),
        (absent, "CXX names /nowhere/g\\+\\+, and there is no such program"),
        (old, "old-g\\+\\+ cannot build the kernels: .*does not compile C\\+\\+17"),
        (older_standard, "g\\+\\+-98 cannot build the kernels: .*#error.*C\\+\\+17"),
        (other_machine, "the kernels are for s390x, and this machine is"),
        (no_headers, "this TensorFlow has no headers: .*op_kernel.h does not exist"),
        (no_sources, "installed without the sources of its kernels"),
        (no_folder, "cannot be written: .*; OPWRIGHT_DATA_DIR names another folder"),
    ],
)
def test_build_without_what_it_needs_says_what_is_missing(
    change: Callable[[pytest.MonkeyPatch, Path], None],
    words: str,
    sources: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change(monkeypatch, tmp_path)
    with pytest.raises(_build_native.BuildError, match=words):
        _build_native.build(nothing)


INTERRUPTED = """
import sys
from pathlib import Path
from opwright_notation.tensorflow_log import hidden_log
with hidden_log():
    from opwright_runtime import _native_library
_native_library.SOURCES = Path(sys.argv[1])
_native_library.RECIPE = _native_library.SOURCES / "build.json"
from opwright_runtime import cli
sys.exit(cli.main(["build-native", "--force"]))
"""


@pytest.mark.rotating
def test_build_native_interrupted_after_progress_ends_compilers_and_leaves_nothing(
    sources: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    text = (
        f'case "$*" in *probe.cc*) exec {_build_native.compiler()[0]} "$@";; esac\n'
        f"echo $$ > {begun}\nsleep 600 & wait"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(sources)],
        env=environment(CXX=write_program(tmp_path / "slow-g++", text)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A program in the background of a script ignores interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 300
    while not (begun.exists() and begun.read_text().strip()):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    assert run.stderr is not None
    assert select.select([run.stderr], [], [], 60)[0], "no progress is shown"
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 130, said
    assert said == "[0/1] compiling\nopwright: interrupted; nothing was built\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    assert files(tmp_path / "data") == []


def test_build_native_with_kernels_does_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["build-native"]) == 0
    said = capsys.readouterr().out
    assert said == f"there are kernels for this TensorFlow: {native.LIBRARY}\n"


def test_build_native_that_fails_prints_why(
    sources: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert cli.main(["build-native", "--force"]) == 1
    assert capsys.readouterr().err.startswith("opwright: CXX names /nowhere/g++")
