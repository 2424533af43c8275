"""Finds the TensorFlow versions that added and dropped an op, an attr or a value.

It compares the ops of several versions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from opwright_codegen.model import Attr, Op, is_later, version_number

#: Versions, the oldest first, each with its ops by name.
History: TypeAlias = Sequence[tuple[str, Mapping[str, Op]]]


def dated(op: Op, history: History) -> Op:
    """`op` with the versions that added and dropped it, its attrs and allowed values.

    `history` does not date a part that its oldest version has already, or that no
    version has. The part then keeps the version that `op` states, unless an earlier
    version in `history` has the part. The same is true of a part that the newest
    version of `history` has: it keeps a version that is newer still.
    """
    since = _first(history, lambda found: True, op.name)
    return dataclasses.replace(
        op,
        since=_date(since, op.since, history),
        dropped_in=_end(op.dropped_in, [op.name in ops for _, ops in history], history),
        attrs=tuple(_attr(attr, op, since, history) for attr in op.attrs),
    )


def undatable(op: Op, history: History) -> int:
    """How many versions that `op` states do not follow from `history`."""
    known = {version for version, _ in history[1:]}
    return sum(date not in known for date in _dates(op))


def in_order(versions: Sequence[str]) -> bool:
    """Whether the versions are distinct and sorted, the oldest first."""
    numbers = [version_number(version) for version in versions]
    return all(one < later for one, later in pairwise(numbers))


def gap(versions: Sequence[str]) -> tuple[str, str] | None:
    """Two neighbours in `versions` that have a version between them; None for none."""
    for one, later in pairwise(versions):
        major, minor = version_number(one)
        if version_number(later) not in ((major, minor + 1), (major + 1, 0)):
            return one, later
    return None


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
        # The opdef does not repeat the version for a value that is as old as its attr.
        as_old = first is not None and first == since != history[0][0]
        dates[value] = None if as_old else _date(first, written.get(value), history)
    as_old = since is not None and since == op_since != history[0][0]
    # The versions that lack the op do not say which of its attrs were dropped before.
    of_op = [(version, ops) for version, ops in history if op.name in ops]
    had = [has(None)(ops[op.name]) for _, ops in of_op]
    return dataclasses.replace(
        attr,
        since=None if as_old else _date(since, attr.since, history),
        dropped_in=_end(attr.dropped_in, had, of_op),
        allowed_since=tuple((value, date) for value, date in dates.items() if date),
    )


def _first(history: History, has: Callable[[Op], bool], name: str) -> str | None:
    """The first version that has the op `name` and in which `has` is true of it."""
    return next(
        (version for version, ops in history if name in ops and has(ops[name])), None
    )


def _date(first: str | None, written: str | None, history: History) -> str | None:
    """The version that added a part, as the opdef should state it; None for none.

    `first` is the first version in `history` that has the part, `written` the version
    that the opdef states. The oldest version of `history` may not be the one that added
    the part. In that case the result is `written`, if it is no later version.
    """
    oldest = history[0][0]
    if first is None:
        return written
    if first != oldest:
        return first
    return None if is_later(written, oldest) else written


def _end(written: str | None, had: Sequence[bool], history: History) -> str | None:
    """The version that dropped a part, as the opdef should state it; None for none.

    `had` says for each version of `history` whether it has the part, `written` is the
    version that the opdef states.
    """
    if not any(had):
        return written
    last = max(index for index, has in enumerate(had) if has)
    if last + 1 < len(history):
        return history[last + 1][0]
    return written if is_later(written, history[last][0]) else None


def _dates(op: Op) -> Iterator[str]:
    parts: tuple[Op | Attr, ...] = (op, *op.attrs)
    for part in parts:
        yield from filter(None, (part.since, part.dropped_in))
    for attr in op.attrs:
        yield from (version for _, version in attr.allowed_since)
