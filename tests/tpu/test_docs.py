"""docs/how-to/tpu.md: its code prints the report, its table matches compilation."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from rich.console import Console

from opwright_runtime import native
from support.places import ROOT

PAGE = (ROOT / "docs" / "how-to" / "tpu.md").read_text("utf-8")

# Sizes and estimates are those of one version of libtpu.
SAME_VERSION = f"libtpu {version('libtpu')}." in PAGE

SCRIPT = runpy.run_path(str(ROOT / "examples" / "tpu_check.py"))


def test_tpu_page_example_prints_the_shown_report() -> None:
    code, script = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown, _ = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/how-to/tpu.md", "exec"), names)

    printed = str(names["report"])
    if not SAME_VERSION:
        shown, printed = shown.partition("chip")[0], printed.partition("chip")[0]
    assert _untimed(printed) == _untimed(shown)
    exec(compile(script, "docs/how-to/tpu.md", "exec"), names)
    assert [each.chip for each in names["report"].compilations] == ["v5e"]


def _untimed(text: str) -> str:
    return re.sub(r" +(took|[\d.]+ s)$|─+$", "", text, flags=re.MULTILINE)


def shown(begin: str, end: str) -> list[str]:
    """The rows of a table of the page, without its header and the line below."""
    lines = PAGE.partition(begin)[2].partition(end)[0].splitlines()
    return [line for line in lines if line.startswith("| ")][2:]


def test_tpu_page_table_matches_compilation() -> None:
    made = shown(SCRIPT["BEGIN"], SCRIPT["END"])
    fresh = [row.rstrip("\n") for row in SCRIPT["rows"](Console(stderr=True))]
    if not SAME_VERSION:
        made, fresh = ([row.split("|")[:4] for row in rows] for rows in (made, fresh))
    assert fresh == made


def test_tpu_page_rnn_table_has_every_mode() -> None:
    rows = shown(SCRIPT["RNN_BEGIN"], SCRIPT["RNN_END"])
    titles = [row.split("|")[1].strip() for row in rows]
    assert titles == [mode.title for mode in SCRIPT["MODES"]]


@pytest.mark.parametrize("mode", SCRIPT["MODES"], ids=lambda mode: str(mode.title))
def test_cudnn_rnn_for_tpu_compiles_forward_and_backward(
    mode: Any, record_property: Callable[[str, object], None]
) -> None:
    assert native.LIBRARY.exists(), "run `make native`"
    fresh = mode.row().rstrip("\n")
    record_property("tpu table", fresh)
    assert [cell.strip()[:4] for cell in fresh.split("|")[2:-1]] == ["yes:"] * 3
    rows = shown(SCRIPT["RNN_BEGIN"], SCRIPT["RNN_END"])
    (said,) = [row for row in rows if row.split("|")[1] == fresh.split("|")[1]]
    if SAME_VERSION:
        assert fresh == said
