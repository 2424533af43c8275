"""Calls that would end the process are refused before TensorFlow sees them."""

from __future__ import annotations

import json

from support.processes import run_program


def refused(*modes: str) -> list[str]:
    """The calls that were refused, if all were."""
    done = run_program("generated.support.ending_calls", *modes)
    outcomes = [json.loads(row) for row in done.stdout.splitlines()]
    assert done.returncode == 0, (outcomes[-1:], done.stderr[-2000:])
    made = [one for one in outcomes if one["refused"] not in (one["op"], None)]
    assert not made, "\n".join(f"{one['call']}: {one['message']}" for one in made)
    return [one["call"] for one in outcomes if one["refused"]]


def test_calls_that_end_the_process_are_refused() -> None:
    assert len(refused()) > 500


def test_checked_graphs_refuse_what_ends_the_process() -> None:
    """Graphs that learn shapes and values when they run, and take the examples' own."""
    assert len(refused("graphs")) > 60
