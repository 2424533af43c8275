"""`make test` runs each rotating test in one of ten runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from support import tiers


@dataclass(frozen=True)
class Collected:
    """A test as pytest collects it."""

    nodeid: str
    mark: pytest.Mark | None
    path: Path = Path("tests/test_any.py")

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark if name == "rotating" else None


def collected(count: int, name: str = "test", **given: Any) -> list[Collected]:
    mark = pytest.mark.rotating(**given).mark
    return [Collected(f"{name}[{number}]", mark) for number in range(count)]


def kept(
    items: list[Collected], part: int, monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """The tests that a run has."""
    monkeypatch.setenv("OPWRIGHT_PART", str(part))
    tiers.part.cache_clear()
    others = tiers.of_other_parts(cast("list[pytest.Item]", items))
    tiers.part.cache_clear()
    return {item.nodeid for item in items} - {item.nodeid for item in others}


def test_of_other_parts_of_all_tenths_has_each_rotating_test_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = collected(34)
    runs = [kept(items, part, monkeypatch) for part in range(tiers.PARTS)]
    assert sorted(name for run in runs for name in run) == sorted(
        item.nodeid for item in items
    )
    assert {len(run) for run in runs} == {3, 4}


def test_of_other_parts_leaves_tests_without_the_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = [Collected("test_plain", None)]
    for part in range(tiers.PARTS):
        assert kept(items, part, monkeypatch) == {"test_plain"}


def test_of_other_parts_keeps_tests_together_and_in_their_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = collected(15)
    items = [
        *alone[:7],
        *collected(3, "shared", together="library"),
        *collected(2, "long", part=4),
        *alone[7:],
    ]
    runs = [kept(items, part, monkeypatch) for part in range(tiers.PARTS)]
    shared = {f"shared[{number}]" for number in range(3)}
    assert [len(shared & run) for run in runs if shared & run] == [3]
    assert {"long[0]", "long[1]"} <= runs[4]
