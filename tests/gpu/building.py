"""Builds what the tests of this folder load."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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


def make(folder: Path, target: str) -> str:
    """Builds a target of a folder that is configured; what the build said."""
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
    _configure()
    said = make(CUDA_BUILD, target)
    if "ptxas info" in said:
        (CUDA_BUILD / "ptxas.log").write_text(said)
