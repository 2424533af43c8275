"""What is written by hand is in the project's style."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHECKS = {
    "ruff": ["ruff", "check", "."],
    "black": [
        "black",
        "--check",
        "--diff",
        "--quiet",
        "benchmarks",
        "codegen",
        "examples",
        "runtime",
        "tests",
    ],
}


@pytest.mark.parametrize("tool", CHECKS)
def test_style(tool: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", *CHECKS[tool]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not checked.returncode, checked.stdout + checked.stderr
