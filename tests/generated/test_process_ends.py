"""Calls that would end the process are refused before TensorFlow sees them."""

from __future__ import annotations

import json

from support.processes import run_program


def test_calls_that_end_the_process_are_refused() -> None:
    done = run_program("generated.support.ending_calls")
    outcomes = [json.loads(row) for row in done.stdout.splitlines()]
    assert done.returncode == 0, (outcomes[-1:], done.stderr[-2000:])
    made = [one for one in outcomes if one["refused"] not in (one["op"], None)]
    assert not made, "\n".join(f"{one['call']}: {one['message']}" for one in made)
    refused = [one for one in outcomes if one["refused"]]
    assert len(refused) > 500
