"""Calls of every op through opwright do not end the process."""

from __future__ import annotations

from .ops import parse, run

# Of each op: about a minute on two cores.
CALLS = 12


def test_calls_of_every_op_leave_the_process_alive() -> None:
    made = run(parse(["--calls", str(CALLS), "--jobs", "2"]))
    assert made.outcomes["ran"] > 0
    assert made.outcomes["refused"] > 0
    ended = [
        f"{one.op}: {one.kind} {one.message}, {one.code}"
        for one in made.found
        if one.group == "crash"
    ]
    assert not ended, "\n".join(ended)
