"""The opdefs of this tree, which a process of the tests reads once."""

from __future__ import annotations

from functools import cache

from opwright_codegen import load
from opwright_codegen.model import Op
from opwright_codegen.problems import OpdefError
from support.places import OPDEFS


@cache
def every_op() -> dict[str, Op]:
    """Every op of this tree, by name."""
    ops, problems = load.load_all(OPDEFS)
    if problems:
        raise OpdefError(problems)
    return {op.name: op for op in ops}
