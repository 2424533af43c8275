"""Mistakes in opdefs, as data: collected, then printed together; and in sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def one_line(text: str) -> str:
    """`text` as one line of a report: what does not print is escaped.

    Names of files may hold line breaks, and codes that a terminal obeys.
    """
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in text
    )


@dataclass(frozen=True, order=True)
class Problem:
    """A mistake, with where it is."""

    path: str
    line: int
    column: int
    op: str
    message: str

    def __str__(self) -> str:
        op = f" {self.op}:" if self.op else ""
        return one_line(f"{self.path}:{self.line}:{self.column}:{op} {self.message}")


class OpdefError(Exception):
    """Opdefs have mistakes; `problems` lists all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))


class SourceError(Exception):
    """A registry, library or file whose OpDefs cannot be read or written as YAML.

    `reasons`: each of what is wrong, for a line of its own.
    """

    def __init__(self, *reasons: str) -> None:
        self.reasons = reasons
        super().__init__("\n".join(map(one_line, reasons)))


@dataclass(frozen=True)
class Skipped:
    """An op that no class can be made for, and why; all others can."""

    op: str
    why: str

    def __str__(self) -> str:
        return one_line(f"{self.why}; it is left out")
