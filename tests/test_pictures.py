"""Pictures of the documentation show what their programs really say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.places import ROOT


@pytest.mark.parametrize(
    "name",
    [pytest.param("wrong_call", marks=pytest.mark.typing), "mechanisms"],
)
def test_picture_is_up_to_date(name: str) -> None:
    program = ROOT / "docs" / "images" / f"{name}.py"
    done = subprocess.run([sys.executable, str(program), "--check"], check=False)
    assert done.returncode == 0, f"run {program.relative_to(ROOT)}"
