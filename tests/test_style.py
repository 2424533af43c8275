"""tools/style.py, which `make lint` runs, finds what it is for."""

from __future__ import annotations

import pytest
import style


@pytest.mark.parametrize(
    "line",
    [
        "def test_the_cache(): pass",
        "def test_a_cache_is_bounded(): pass",
        "run(*('-m', 'pytest'), folder)",
        "names = [*['a', 'b'], 'c']",
        "names = {*{'a'}, 'b'}",
    ],
)
def test_findings_of_bad_line_name_its_line(line: str) -> None:
    assert [number for number, _ in style.findings(f"\n{line}\n")] == [2]


@pytest.mark.parametrize(
    "line",
    [
        "def test_cache_of_many_ops_is_bounded(): pass",
        "def the_cache(): pass",
        "run('-m', *arguments)",
        "names = [*(name for name in given), *sorted(more), *text.split()]",
    ],
)
def test_findings_of_good_line_are_empty(line: str) -> None:
    assert [*style.findings(line)] == []
