"""Calls that would end the process are refused before TensorFlow sees them."""

from __future__ import annotations

import json
import re
import runpy
from functools import cache
from typing import Any

import pytest

from generated.support import ending_calls, ending_record
from support.places import ROOT
from support.processes import run_program
from support.tiers import FULL, part_of

PAGE = runpy.run_path(str(ROOT / "docs/process_ends.py"))
#: How a process of a call in the table ends.
ENDS = re.compile(r"SIG(ABRT|SEGV|FPE)|takes more than \d GiB|runs for more than \d+ s")


@cache
def outcomes(*modes: str) -> list[dict[str, Any]]:
    """What became of each call."""
    done = run_program(
        "generated.support.ending_calls", *modes, **ending_calls.ENVIRONMENT
    )
    found = [json.loads(row) for row in done.stdout.splitlines()]
    assert done.returncode == 0, (found[-1:], done.stderr[-2000:])
    return found


def refused(*modes: str) -> list[str]:
    """The calls that were refused, if all were."""
    found = outcomes(*modes)
    made = [one for one in found if one["refused"] not in (one["op"], None)]
    assert not made, "\n".join(
        f"{one['op']} {one['call']}: {one['message']}" for one in made
    )
    return [one["call"] for one in found if one["refused"]]


@pytest.mark.partial
def test_calls_that_end_the_process_are_refused() -> None:
    assert len(refused()) > (500 if FULL else 150)


def test_checked_graphs_refuse_what_ends_the_process() -> None:
    """Graphs that learn shapes and values when they run, and take the examples' own."""
    assert len(refused("graphs")) > 60


def test_page_of_process_ends_is_what_the_table_says() -> None:
    text = PAGE["PAGE"].read_text("utf-8")
    assert text == PAGE["page"](outcomes()), "run `make docs`"


def test_table_of_process_ends_has_only_calls_that_end_it() -> None:
    kept = [row for row in ending_calls.rows() if not ENDS.match(row["tensorflow"])]
    assert not kept, kept


@pytest.mark.process_ends
def test_calls_of_the_table_end_the_process_of_tensorflow() -> None:
    """Of those that a signal ends; the others take long, or much memory."""
    slow = {row["op"] for row in ending_calls.rows() if row["tensorflow"][:3] != "SIG"}
    ops = sorted({row["op"] for row in ending_calls.rows()} - slow)
    done = run_program(
        "generated.support.ending_record",
        ending_record.KEEP,
        *part_of(ops),
        afresh=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(row) for row in done.stdout.splitlines()]
    assert len(found) >= len(part_of(ops))
    lived = [row for row in found if not ENDS.match(row["tensorflow"])]
    assert not lived, lived
