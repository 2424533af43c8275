"""Which ops the checks of the reference hold: those of groups that have landed.

An op with an example has landed by itself, wherever it lies.
"""

from __future__ import annotations

from functools import cache

from opwright_codegen import load
from opwright_codegen.model import Op
from opwright_codegen.problems import OpdefError
from support.places import OPDEFS

#: Groups that are still to come. Whoever lands one takes its line out; the lines
#: between keep apart what several people take out.
TO_COME = frozenset(
    {
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
        # -
    }
)


@cache
def every_op() -> dict[str, Op]:
    """Every op of this tree, by name."""
    ops, problems = load.load_all(OPDEFS)
    if problems:
        raise OpdefError(problems)
    return {op.name: op for op in ops}


@cache
def landed() -> dict[str, Op]:
    return {name: op for name, op in every_op().items() if has_landed(op)}


def has_landed(op: Op) -> bool:
    return op.group not in TO_COME or op.example is not None
