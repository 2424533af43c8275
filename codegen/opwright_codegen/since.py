"""Since which version of TensorFlow there is what: several versions' ops compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from opwright_codegen.model import Attr, Op

#: Versions, the oldest first, each with the ops that it has by name.
History: TypeAlias = Sequence[tuple[str, Mapping[str, Op]]]


def dated(op: Op, history: History) -> Op:
    """`op`, which says what of it is newer than the oldest version of `history`.

    That of which no version knows is taken for older.
    """
    since = _first(history, lambda found: True, op.name)
    return dataclasses.replace(
        op,
        since=_newer(since, history[0][0]),
        attrs=tuple(_attr(attr, op, since, history) for attr in op.attrs),
    )


def _attr(attr: Attr, op: Op, op_since: str | None, history: History) -> Attr:
    def has(value: str | None) -> Callable[[Op], bool]:
        def found(older: Op) -> bool:
            same = next((one for one in older.attrs if one.name == attr.name), None)
            if same is None or value is None:
                return same is not None
            return same.allowed is None or value in same.allowed

        return found

    since = _first(history, has(None), op.name)
    values = (
        (value, _first(history, has(value), op.name)) for value in attr.allowed or ()
    )
    return dataclasses.replace(
        attr,
        since=_newer(since, op_since),
        allowed_since=tuple(
            (value, version)
            for value, version in values
            if version is not None and version != since
        ),
    )


def _first(history: History, has: Callable[[Op], bool], name: str) -> str | None:
    """The first version in which the op is, and is so."""
    return next(
        (version for version, ops in history if name in ops and has(ops[name])), None
    )


def _newer(since: str | None, than: str | None) -> str | None:
    return None if since == than else since
