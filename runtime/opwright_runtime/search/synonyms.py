"""Reads `synonyms.txt`: different words of the field for the same thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

#: The score of each op of a row is that of the op before it, multiplied by this.
_NEXT: Final = 0.85


@dataclass(frozen=True)
class Row:
    """Expressions with the same meaning, and the ops that do it, the best one first.

    A row without ops stands for the ops that have one of its expressions as their name.
    """

    expressions: Sequence[str]
    ops: Sequence[str]


@cache
def rows() -> Sequence[Row]:
    return tuple(_read())


def of_name(written: str) -> Sequence[str]:
    """Synonyms of a name without spaces: `matrix product` for `matmul`."""
    return _by_name().get(written.lower(), ())


def of_op(name: str) -> Mapping[str, float]:
    """Expressions for what an op does or helps to do, each with its score."""
    return _by_op().get(name, {})


def _read() -> Iterator[Row]:
    for line in Path(__file__).with_suffix(".txt").read_text("utf-8").split("\n"):
        if line and not line.startswith("#"):
            expressions, _, ops = line.partition(": ")
            yield Row(expressions.split(", "), ops.split())


@cache
def _by_name() -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for row in rows():
        for one in row.expressions if not row.ops else ():
            others = found.setdefault(one.replace(" ", ""), [])
            others += [other for other in row.expressions if other != one]
    return found


@cache
def _by_op() -> Mapping[str, Mapping[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in rows():
        for position, op in enumerate(row.ops):
            found.setdefault(op, {}).update(
                dict.fromkeys(row.expressions, _NEXT**position)
            )
    return found
