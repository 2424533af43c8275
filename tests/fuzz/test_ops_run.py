"""Calls of every op through opwright end the process only where that is known."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from support.grouped import ops
from support.places import OPDEFS

from .ops import parse, run
from .ops_findings import known

KNOWN = Path(__file__).parent / "known_process_ends.yaml"
# Of each op: about a minute on two cores.
CALLS = 12


def test_calls_of_every_op_end_the_process_only_where_known() -> None:
    made = run(parse(["--calls", str(CALLS), "--jobs", "2"]))
    assert made.outcomes["ran"] > 0
    assert made.outcomes["refused"] > 0
    ended = {
        one.op: f"{one.kind} {one.message}, {one.code}"
        for one in made.found
        if one.group == "crash"
    }
    fresh = ended.keys() - known(KNOWN).keys()
    assert not fresh, "\n".join(f"{op}: {ended[op]}" for op in sorted(fresh))


def test_known_process_ends_name_ops_that_there_are() -> None:
    names = {name for group in ops().values() for name in group}
    assert known(KNOWN).keys() <= names


def test_known_process_ends_are_in_the_documentation_of_ops() -> None:
    unsaid = []
    for name in known(KNOWN):
        (path,) = OPDEFS.glob(f"*/{name}.yaml")
        text = " ".join(yaml.safe_load(path.read_text("utf-8"))["description"].split())
        if not re.search(r"(ends?|can end) the process", text):
            unsaid.append(name)
    assert not unsaid, unsaid
