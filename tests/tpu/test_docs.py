"""docs/tpu.md: its code prints what it shows, its table is what is compiled today."""

from __future__ import annotations

import re
import runpy
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tpu.md").read_text("utf-8")

# Sizes and estimates are those of one version of libtpu.
SAME_VERSION = f"libtpu {version('libtpu')}." in PAGE


def test_example_prints_what_is_shown() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown, _ = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/tpu.md", "exec"), names)

    printed = str(names["report"])
    if not SAME_VERSION:
        shown, printed = shown.partition("chip")[0], printed.partition("chip")[0]
    assert _untimed(printed) == _untimed(shown)


def _untimed(text: str) -> str:
    return re.sub(r" +(took|[\d.]+ s)$|─+$", "", text, flags=re.MULTILINE)


def test_table_is_what_is_compiled() -> None:
    script = runpy.run_path(str(ROOT / "examples" / "tpu_check.py"))
    shown = PAGE.partition(script["BEGIN"])[2].partition(script["END"])[0]
    made = [line for line in shown.splitlines() if line.startswith("| ")][1:]
    fresh = [row.rstrip("\n") for row in script["rows"](Console(stderr=True))]
    if not SAME_VERSION:
        made, fresh = ([row.split("|")[:4] for row in rows] for rows in (made, fresh))
    assert fresh == made
