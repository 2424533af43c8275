"""What tools/native_files.py takes as the sources of a wheel's native library."""

from __future__ import annotations

from pathlib import Path

import native_files
import pytest

from support.places import NATIVE, ROOT


def test_sources_of_a_unity_file_are_those_of_the_tree(tmp_path: Path) -> None:
    unity = tmp_path / "unity_0_cxx.cxx"
    source = next(NATIVE.glob("*/*.cc"))
    unity.write_text(f'#include "{source}"\n')
    assert native_files.sources_of(unity) == [source.relative_to(ROOT).as_posix()]
    # A build writes it, so that no wheel would have it.
    unity.write_text(f'#include "{source}"\n#include "{ROOT}/build/made.cc"\n')
    with pytest.raises(ValueError, match=r"build/made\.cc: not in runtime/native"):
        native_files.sources_of(unity)
