"""Pictures of the documentation show what their programs really say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.places import ROOT


@pytest.mark.slow
def test_picture_of_a_wrong_call_is_up_to_date() -> None:
    program = ROOT / "docs" / "images" / "wrong_call.py"
    done = subprocess.run([sys.executable, str(program), "--check"], check=False)
    assert done.returncode == 0, f"run {program.relative_to(ROOT)}"
