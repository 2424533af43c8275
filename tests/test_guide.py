"""docs/guide.md and docs/raw_ops.md: every block runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.places import ROOT
from support.processes import run_code

BLOCKS = [
    block
    for page in ("guide", "raw_ops")
    for block in re.findall(
        r"```python\n(.*?)```", (ROOT / f"docs/{page}.md").read_text("utf-8"), re.DOTALL
    )
]

pytestmark = pytest.mark.slow  # Each in a process of its own.


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_guide_code_block_runs(number: int, tmp_path: Path) -> None:
    # A file: AutoGraph reads the source.
    program = tmp_path / "program.py"
    program.write_text(BLOCKS[number])
    done = run_code(f"import runpy; runpy.run_path({str(program)!r})")
    assert done.returncode == 0, done.stderr
