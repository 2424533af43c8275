"""Builds what the tests of tests/gpu load, in the native library's build folder."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.places import ROOT

BIN = Path(sys.executable).parent
# What `make native` has compiled is not compiled again.
BUILD = ROOT / "build" / "native"
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


def build(*targets: str) -> None:
    """What ptxas says of kernels that have changed is kept."""
    if not (BUILD / "CMakeCache.txt").exists():
        raise pytest.UsageError("tests/gpu need the native library: run `make native`")
    with alone(BUILD):
        if "OPWRIGHT_CUDA_TESTS:BOOL=ON" not in (BUILD / "CMakeCache.txt").read_text():
            run(BIN / "cmake", "-DOPWRIGHT_CUDA_TESTS=ON", BUILD)
        jobs = ("--parallel", "2")
        said = run(BIN / "cmake", "--build", BUILD, *jobs, "--target", *targets)
        if "ptxas info" in said:
            (BUILD / "ptxas.log").write_text(said)
