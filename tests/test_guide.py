"""Every program on the pages of docs/ that have no test of their own runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import pages
from support.processes import run_code

#: Where `tests/embedding/`, `rnn/`, `gpu/` and `tpu/` run the programs; and pages that
#: show a part of a file, or call what the reader has built.
ELSEWHERE = (
    "embedding",
    "rnn",
    "gpu",
    "tpu",
    "architecture",
    "leaving_cudnn",
    "libraries",
    "own_ops",
)
PROGRAMS = [
    pytest.param(program, id=f"{page.stem}_{number}")
    for page in pages.PAGES
    if not page.stem.startswith(ELSEWHERE)
    for number, program in enumerate(pages.programs(page), 1)
]

pytestmark = pytest.mark.slow  # Each in a process of its own.


@pytest.mark.rotating
@pytest.mark.parametrize("code", PROGRAMS)
def test_page_code_block_runs(code: str, tmp_path: Path) -> None:
    # A file: AutoGraph reads the source.
    program = tmp_path / "program.py"
    program.write_text(code, "utf-8")
    done = run_code(f"import runpy; runpy.run_path({str(program)!r})")
    assert done.returncode == 0, done.stderr
