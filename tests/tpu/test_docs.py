"""The pages of the TPU check: their code runs, and their tables match compilation."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from rich.console import Console

from opwright_runtime import native
from opwright_runtime.tpu_check import DEFAULT_TIMEOUT, Compilation, Report
from opwright_runtime.tpu_check.findings import Argument, Blocker, Output
from opwright_runtime.tpu_check.remedies import remedy_for
from support import pages
from support.places import ROOT

HOW_TO = ROOT / "docs" / "how-to" / "tpu.md"
VALUES = ROOT / "docs" / "how-to" / "tpu_values.md"
PAGE = HOW_TO.read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "tpu_check.md").read_text("utf-8")

# Sizes and estimates are those of one version of libtpu.
SAME_VERSION = f"libtpu {version('libtpu')}." in REFERENCE

REASON = "XLA has no kernel for it"

SCRIPT = runpy.run_path(str(ROOT / "examples" / "tpu_check.py"))


def test_tpu_page_example_prints_the_shown_report() -> None:
    shown, *_ = texts()
    printed = str(run(0)["report"])
    if not SAME_VERSION:
        shown, printed = shown.partition("chip")[0], printed.partition("chip")[0]
    assert _untimed(printed) == _untimed(shown)


def test_tpu_page_script_compiles_for_its_chip() -> None:
    assert [each.chip for each in run(1)["report"].compilations] == ["v5e"]


def test_tpu_page_model_is_inference_and_training() -> None:
    assert run(2)["training"].training is True


def test_tpu_page_op_example_prints_the_shown_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, shown, _ = texts()
    run(3)
    printed = capsys.readouterr().out
    if not SAME_VERSION:
        shown, printed = (text.partition("\n")[2] for text in (shown, printed))
    assert printed.strip() == shown
    assert len(pages.programs(HOW_TO)) == 4


def test_values_page_example_finds_what_xla_does_not_refuse() -> None:
    names: dict[str, Any] = {}
    (code,) = pages.programs(VALUES)
    exec(compile(code, str(VALUES), "exec"), names)
    assert names["comparison"].errors["graph"] is not None


def test_tpu_page_blocked_report_is_the_shown_one() -> None:
    *_, shown = texts()
    blockers = [
        Blocker(
            op, op, REASON, "model.py:12", remedy=remedy_for(REASON, "", ["string"])
        )
        for op in ("AsString", "StringLength")
    ]
    argument = Argument("x", "argument", "float32", (8, 4), 128)
    chips = ("v5e", "v5p", "v6e")
    report = Report("spell", (argument,), tuple(blockers), chips=chips)
    assert str(report) == shown


def test_tpu_page_timeout_is_the_default() -> None:
    assert f"to {DEFAULT_TIMEOUT:g} seconds by default" in PAGE


def test_tpu_reference_page_lists_every_field() -> None:
    report = Report(
        "f",
        (Argument("x", "argument", "float32", (), 4),),
        (Blocker("", "", ""),),
        (Compilation("v5e", 1.0),),
        (Output("0", "int64", (8, 1)),),
    ).as_dict()
    parts = ("arguments", "blockers", "compilations", "padded_outputs")
    fields = {"": set(report)} | {part: set(report[part][0]) for part in parts}
    sections = REFERENCE.partition("## Examples")[0].split("| field of ")[1:]
    listed = [
        {
            name
            for line in section.splitlines()[2:]
            if line.startswith("|")
            for name in re.findall(r"`(\w+)`", line.split("|")[1])
        }
        for section in sections
    ]
    assert listed == [*fields.values()]


def texts() -> list[str]:
    """The text blocks of the page."""
    return re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)


def run(number: int) -> dict[str, Any]:
    """The names of a program of the page, after a run."""
    names: dict[str, Any] = {}
    code = pages.programs(HOW_TO)[number]
    exec(compile(code, "docs/how-to/tpu.md", "exec"), names)
    return names


def _untimed(text: str) -> str:
    return re.sub(r" +(took|[\d.]+ s)$|─+$", "", text, flags=re.MULTILINE)


def shown(begin: str, end: str) -> list[str]:
    """The rows of a table of the page, without its header and the line below."""
    lines = REFERENCE.partition(begin)[2].partition(end)[0].splitlines()
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
