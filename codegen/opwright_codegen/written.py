"""Finds what is still to be written by hand in an opdef."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.problems import Problem

#: The author of a library need not know the notation of shapes.
_SHAPE_HINT: Final = (
    "(shape: n m for a matrix, shape: '*x' for an output and an input of one shape,"
    " shape: '...' if it is unknown; see docs/how-to/libraries.md)"
)


def missing(op: Op, *, in_full: bool) -> Iterator[Problem]:
    """The keys that are still to be written by hand, as one problem.

    Args:
      op: the op.
      in_full: whether to include keys that only opwright's own opdefs must have.
    """
    keys = [] if op.summary else ["summary"]
    documented: tuple[Arg | Attr, ...] = (*op.args(), *op.given)
    keys += _of("doc", [one.name for one in documented if not one.doc])
    if in_full:
        keys += [] if op.description else ["description"]
        keys += [] if op.example else ["example"]
        keys += _of("shape", [arg.name for arg in op.args() if not arg.shape])
    elif open_ := _of("shape", [arg.name for arg in op.outputs if not arg.shape]):
        keys.append(f"{open_[0]} {_SHAPE_HINT}")
    if keys:
        how = "; opdefs/WRITING.md says how" if in_full else ""
        what = f"lacks what is written by hand: {', '.join(keys)}{how}"
        yield Problem(op.source, 1, 1, op.name, what)


def _of(key: str, names: list[str]) -> list[str]:
    return [f"{key} of {', '.join(names)}"] if names else []
