"""Since which version of TensorFlow there is what: several versions' ops compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from opwright_codegen.model import Attr, Op

#: Versions, the oldest first, each with the ops that it has by name.
History: TypeAlias = Sequence[tuple[str, Mapping[str, Op]]]


def dated(op: Op, history: History) -> Op:
    """`op`, which says what of it is newer than the oldest version of `history`.

    What the oldest version has already, or no version has, `history` cannot date: there
    the date that `op` has stays, unless a version has it before that date.
    """
    since = _first(history, lambda found: True, op.name)
    return dataclasses.replace(
        op,
        since=_date(since, op.since, history),
        attrs=tuple(_attr(attr, op, since, history) for attr in op.attrs),
    )


def undatable(op: Op, history: History) -> int:
    """How many dates of a dated `op` are none that `history` tells."""
    known = {version for version, _ in history[1:]}
    return sum(date not in known for date in _dates(op))


def in_order(versions: Sequence[str]) -> bool:
    """Whether these are different versions, the oldest first."""
    numbers = [_number(version) for version in versions]
    return all(one < later for one, later in pairwise(numbers))


def _attr(attr: Attr, op: Op, op_since: str | None, history: History) -> Attr:
    def has(value: str | None) -> Callable[[Op], bool]:
        def found(older: Op) -> bool:
            same = next((one for one in older.attrs if one.name == attr.name), None)
            if same is None or value is None:
                return same is not None
            return same.allowed is None or value in same.allowed

        return found

    since = _first(history, has(None), op.name)
    written = dict(attr.allowed_since)
    dates = {}
    for value in attr.allowed or ():
        first = _first(history, has(value), op.name)
        # A value as old as its attr has no date of its own.
        as_old = first is not None and first == since != history[0][0]
        dates[value] = None if as_old else _date(first, written.get(value), history)
    as_old = since is not None and since == op_since != history[0][0]
    return dataclasses.replace(
        attr,
        since=None if as_old else _date(since, attr.since, history),
        allowed_since=tuple((value, date) for value, date in dates.items() if date),
    )


def _first(history: History, has: Callable[[Op], bool], name: str) -> str | None:
    """The first version in which the op is, and is so."""
    return next(
        (version for version, ops in history if name in ops and has(ops[name])), None
    )


def _date(first: str | None, written: str | None, history: History) -> str | None:
    """Since when there is what `first` has first, and `written` was said of."""
    oldest = history[0][0]
    if first is None:
        return written
    if first != oldest:
        return first
    is_older = written is not None and _number(written) <= _number(oldest)
    return written if is_older else None


def _dates(op: Op) -> Iterator[str]:
    if op.since is not None:
        yield op.since
    for attr in op.attrs:
        if attr.since is not None:
            yield attr.since
        yield from (version for _, version in attr.allowed_since)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
