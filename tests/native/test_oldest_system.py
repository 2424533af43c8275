"""The native library loads on the oldest Linux that TensorFlow's wheels support."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from opwright_runtime import native

#: The newest versions of symbols that the tag manylinux_2_27 permits.
NEWEST = {"GLIBC": (2, 27), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}


@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils are missing")
def test_library_needs_no_symbols_newer_than_manylinux_2_27() -> None:
    symbols = subprocess.run(
        ["objdump", "--dynamic-syms", str(native.library_path())],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    needed = re.findall(r"\((GLIBC|GLIBCXX|CXXABI)_([0-9.]+)\)\s+(\S+)", symbols)
    assert len(needed) > 100
    too_new = [
        f"{symbol} of {family} {version}"
        for family, version, symbol in needed
        if tuple(map(int, version.split("."))) > NEWEST[family]
    ]
    assert not too_new, f"{too_new}; see runtime/native/oldest_system.cc"
