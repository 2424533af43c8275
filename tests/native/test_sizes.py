"""Ops refuse huge sizes, and neither write nor take memory for them."""

from __future__ import annotations

import pytest

from native.support.size_attacks import ATTACKS
from support.processes import run_program


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """The outcome of each attack; a process that dies is started again."""
    found: dict[str, str] = {}
    while len(found) < len(ATTACKS):
        names = [name for name in ATTACKS if name not in found]
        done = run_program("native.support.size_attacks", *names, timeout=600)
        name = ""
        for line in done.stdout.splitlines():
            if line.startswith("> "):
                name = line[2:]
                found[name] = f"ended with {done.returncode}: {done.stderr[-2000:]}"
            elif name and found[name].startswith("ended with"):
                found[name] = line
        assert name, done.stderr[-2000:]  # At least one attack began.
    return found


@pytest.mark.rotating(together="attacks")
@pytest.mark.parametrize("name", ATTACKS)
def test_op_with_huge_size_is_refused(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == "refused"
