"""What is written by hand is in the project's style."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.places import NATIVE, ROOT

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
        "tools",
    ],
}


@pytest.mark.slow  # It is `make lint`.
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


@pytest.mark.slow
def test_style_of_cc() -> None:
    tool = Path(sys.executable).with_name("clang-format")
    files = [
        path
        for folder in (NATIVE, ROOT / "tests")
        for path in folder.rglob("*")
        if path.suffix in {".h", ".cc", ".cu"}
    ]
    assert len(files) > 100
    checked = subprocess.run(
        [tool, "--dry-run", "-Werror", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not checked.returncode, checked.stderr[-4000:]
