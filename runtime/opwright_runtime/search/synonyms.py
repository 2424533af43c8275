"""The field's words for the same thing, in which users search: `synonyms.txt`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

#: How much less each op of a row means it than the op before.
_NEXT: Final = 0.85


@dataclass(frozen=True)
class Row:
    """Expressions that mean the same, and the ops that do it, the most telling first.

    Without ops it means those that are called one of its expressions.
    """

    expressions: Sequence[str]
    ops: Sequence[str]


@cache
def rows() -> Sequence[Row]:
    return tuple(_read())


def of_name(written: str) -> Sequence[str]:
    """Other expressions for a name without spaces: for `matmul` `matrix product`."""
    return _by_name().get(written.lower(), ())


def of_op(name: str) -> Mapping[str, float]:
    """Expressions for what an op does or helps to do, and how much each means it."""
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
