"""Builds what the tests of tests/gpu load."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from support.places import ROOT

BIN = Path(sys.executable).parent
# Of the CUDA backend, and of the native library, which `make test` builds first.
CUDA_BUILD, NATIVE_BUILD = ROOT / "build" / "cuda", ROOT / "build" / "native"
NVCC = shutil.which("nvcc")


def run(*command: object) -> str:
    ran = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert not ran.returncode, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Tests that run at the same time build in a folder one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make(folder: Path, target: str) -> str:
    """Builds a target of a folder that is configured; what the build said."""
    with alone(folder):
        return _make(folder, target)


def _make(folder: Path, target: str) -> str:
    return run(
        *(BIN / "cmake", "--build", folder, "--parallel", "2", "--target", target)
    )


@cache
def _configure() -> None:
    options = ["-DOPWRIGHT_TENSORFLOW=OFF"]
    if NVCC:
        options = ["-DOPWRIGHT_CUDA=ON", "-DOPWRIGHT_TENSORFLOW=ON"]
        options += [f"-DPython3_EXECUTABLE={sys.executable}"]
    run(
        BIN / "cmake",
        *("-S", ROOT, "-B", CUDA_BUILD, "-G", "Ninja", *options),
        *(f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}", "-DCMAKE_CXX_FLAGS=-Werror"),
        f"-DOPWRIGHT_LIBRARY_DIR={CUDA_BUILD}",
        "-DCMAKE_CUDA_FLAGS=-Werror=all-warnings",
    )


def build(target: str) -> None:
    """Of the CUDA backend; what ptxas says of kernels that have changed is kept."""
    with alone(CUDA_BUILD):
        _configure()
        said = _make(CUDA_BUILD, target)
        if "ptxas info" in said:
            (CUDA_BUILD / "ptxas.log").write_text(said)
