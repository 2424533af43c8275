"""The native library loads on the oldest Linux that TensorFlow's wheels support."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from opwright_runtime import native

#: The newest versions of symbols that the tag manylinux_2_27 permits.
NEWEST = {"GLIBC": (2, 27), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}


EXTENSION = native.library_path().parents[1] / "fast_path.abi3.so"
HEADERS = Path(sysconfig.get_path("include"), "Python.h")

needs_headers = pytest.mark.skipif(
    not HEADERS.exists(), reason="the headers of Python are missing"
)


def symbols(library: Path) -> list[str]:
    listed = subprocess.run(
        ["objdump", "--dynamic-syms", str(library)],
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.splitlines()


@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils are missing")
@pytest.mark.parametrize(
    ("library", "at_least"),
    [(native.library_path(), 100), pytest.param(EXTENSION, 1, marks=needs_headers)],
)
def test_library_needs_no_symbols_newer_than_manylinux_2_27(
    library: Path, at_least: int
) -> None:
    pattern = r"\((GLIBC|GLIBCXX|CXXABI)_([0-9.]+)\)\s+(\S+)"
    needed = re.findall(pattern, "\n".join(symbols(library)))
    assert len(needed) > at_least
    too_new = [
        f"{symbol} of {family} {version}"
        for family, version, symbol in needed
        if tuple(map(int, version.split("."))) > NEWEST[family]
    ]
    assert not too_new, f"{too_new}; see runtime/native/oldest_system.cc"


@needs_headers
@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils are missing")
def test_extension_uses_the_stable_abi_of_python() -> None:
    undefined = [line.split()[-1] for line in symbols(EXTENSION) if "*UND*" in line]
    assert any(name.startswith("PyTuple_") for name in undefined)
    private = {name for name in undefined if name.startswith("_Py")}
    # These are in the stable ABI.
    assert private <= {"_Py_Dealloc", "_Py_NoneStruct", "_Py_TrueStruct"}
