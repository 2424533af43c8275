"""Mistakes in opdefs and in sources of ops. They are collected and printed together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def one_line(text: str) -> str:
    """`text` as one line of a report. Characters that are not printable are escaped.

    Names of files may contain line breaks and control codes of terminals.
    """
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in text
    )


@dataclass(frozen=True, order=True)
class Problem:
    """A mistake, with its place."""

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

    `reasons`: the mistakes, each of which is printed on a line of its own.
    """

    def __init__(self, *reasons: str) -> None:
        self.reasons = reasons
        super().__init__("\n".join(map(one_line, reasons)))


@dataclass(frozen=True)
class Skipped:
    """An op for which no class can be generated, and the reason."""

    op: str
    why: str

    def __str__(self) -> str:
        return one_line(f"{self.why}; it is left out")
