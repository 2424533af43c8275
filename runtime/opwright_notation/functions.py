"""The functions and operators of the notation of shapes, each in one row of a table.

A row says what a function takes and gives, what it means on sizes, when its result is
unknown, and how it is spelled in C++, with the functions of `shapes.h`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from opwright_notation.sizes import MisfitError, Size, Sizes, count, is_known


class Kind(Enum):
    """What a part of the notation is."""

    #: One size, or any integer.
    SIZE = "a size"
    #: A row of sizes.
    ROW = "a row of sizes"
    #: True, false, a text, an attr's value: for conditions.
    FLAG = "a value for conditions"
    #: An attr that is a list of rows.
    ROWS = "a list of rows"


class Parameter(Enum):
    """How a function takes an argument, and which kind it must be.

    The integers of `INTEGER`, `INTEGERS` and `VALUE` may be negative, as axes are. A
    negative size is unknown if it is an attr or a value, and else a contradiction.
    """

    INTEGER = Kind.SIZE, "size"
    SIZE = Kind.SIZE, "dimension"
    ROW = Kind.ROW, "row"
    INTEGERS = Kind.ROW, "value"
    VALUE = Kind.FLAG, "value"

    def __init__(self, kind: Kind, evaluated: str) -> None:
        self.kind = kind
        #: The method of `evaluation.Evaluation` that evaluates the argument.
        self.evaluated = evaluated


class Needs(Enum):
    """What must be known of the arguments; else the result is unknown."""

    NOTHING = "nothing"
    RANKS = "the number of sizes in each row"
    ALL = "every argument, with all sizes"


@dataclass(frozen=True)
class Function:
    """A function of the notation.

    Attributes:
        meaning: the result for values of the arguments.
        optional: how many of the last arguments may be left out.
        cxx: a format of its arguments in C++, which more arguments repeat; None: it
            has no form in C++.
    """

    takes: tuple[Parameter, ...]
    gives: Kind
    meaning: Callable[..., Size | Sizes]
    needs: Needs
    optional: int = 0
    cxx: str | None = None

    def __call__(self, *arguments: object) -> Size | Sizes:
        """The result; None if it is unknown.

        Raises:
            MisfitError: the arguments contradict each other.
        """
        for parameter, argument in zip(self.takes, arguments, strict=False):
            is_row = parameter is Parameter.ROW
            if self.needs is Needs.RANKS and is_row and argument is None:
                return None
            if self.needs is Needs.ALL and not is_known(argument):
                return None
        return self.meaning(*arguments)


@dataclass(frozen=True)
class Operator:
    """An operator; `cxx` is a function or an operator of C++, or None."""

    meaning: Callable[[Any, Any], Any]
    cxx: str | None


# One size.


def _ceildiv(one: int, other: int) -> int:
    return -_divide(-one, other)


def _divide(one: int, other: int) -> int:
    return one // _divisor(other)


def _remainder(one: int, other: int) -> int:
    return one % _divisor(other)


def _divisor(size: int) -> int:
    if size == 0:
        raise MisfitError("a division by 0")
    return size


def _window(
    size: Size, window: Size, stride: Size, padding: object, dilation: Size = 1
) -> Size:
    """How often a window fits: output sizes of convolutions and pooling."""
    if size is None or stride is None or stride < 1:
        return None
    if padding == "SAME":
        return -(-size // stride)
    if padding != "VALID" or window is None or dilation is None:
        return None
    span = (window - 1) * dilation + 1
    if size < span:
        raise MisfitError(f"a window of {span} is more than {size}")
    return -(-(size - span + 1) // stride)


# A row of them.


def _broadcast(*rows: tuple[Size, ...]) -> Sizes:
    rank = max(map(len, rows))
    result: list[Size] = []
    for sizes in zip(*((1,) * (rank - len(row)) + row for row in rows), strict=True):
        known = {size for size in sizes if isinstance(size, int) and size != 1}
        if len(known) > 1:
            raise MisfitError(f"{' and '.join(map(str, rows))} do not broadcast")
        result.append(known.pop() if known else (None if None in sizes else 1))
    return tuple(result)


def _dims(rank: int) -> Sizes:
    if rank < 0:
        raise MisfitError(f"{rank} dimensions")
    return (None,) * rank


def _axis(at: int, rank: int) -> int:
    """An axis, counted from the first one."""
    if not -rank <= at < rank:
        raise MisfitError(f"axis {at} of {count(rank, 'dimension')}")
    return at % rank


def _axes(found: object, rank: int) -> tuple[int, ...] | None:
    """Different axes, counted from the first one; None if they are unknown."""
    several = found if isinstance(found, tuple) else (found,)
    if not all(type(at) is int for at in several):
        return None
    axes = tuple(_axis(at, rank) for at in several)
    if len(set(axes)) < len(axes):
        raise MisfitError(f"an axis is twice in {found}")
    return axes


def _insert(row: tuple[Size, ...], axis: Size, size: Size) -> Sizes:
    if axis is None:
        return (None,) * (len(row) + 1)
    at = _axis(axis, len(row) + 1)
    return (*row[:at], size, *row[at:])


def _replace(row: tuple[Size, ...], axis: Size, size: Size) -> Sizes:
    if axis is None:
        return (None,) * len(row)
    at = _axis(axis, len(row))
    return (*row[:at], size, *row[at + 1 :])


def _remove(row: tuple[Size, ...], axes: object) -> Sizes:
    return _reduce(row, axes, False)


def _reduce(row: tuple[Size, ...], axes: object, keep: object) -> Sizes:
    several = _axes(axes, len(row))
    if several is None:
        return (None,) * len(row) if keep else None
    if keep is None:
        return None
    if keep:
        return tuple(1 if at in several else size for at, size in enumerate(row))
    return tuple(size for at, size in enumerate(row) if at not in several)


def _squeeze(row: tuple[Size, ...], axes: object) -> Sizes:
    several = _axes(axes, len(row))
    if several is None:
        return None
    if not several:
        return None if None in row else tuple(size for size in row if size != 1)
    for at in several:
        if row[at] not in (1, None):
            raise MisfitError(f"size {row[at]} at axis {at} is not 1")
    return _reduce(row, several, False)


def _permute(row: tuple[Size, ...], order: object) -> Sizes:
    axes = _axes(order, len(row)) if isinstance(order, tuple) else None
    if axes is None:
        return (None,) * len(row)
    if len(axes) != len(row):
        raise MisfitError(f"{order} is no order of {len(row)} axes")
    return tuple(row[at] for at in axes)


def _pad(row: tuple[Size, ...], paddings: object) -> Sizes:
    added = _one_for_each(row, paddings)
    return tuple(
        size + sum(pair) if size is not None and isinstance(pair, tuple) else None
        for size, pair in zip(row, added, strict=True)
    )


def _tile(row: tuple[Size, ...], times: object) -> Sizes:
    factors = _one_for_each(row, times)
    return tuple(
        size * factor if size is not None and isinstance(factor, int) else None
        for size, factor in zip(row, factors, strict=True)
    )


def _one_for_each(row: tuple[Size, ...], values: object) -> tuple[object, ...]:
    """A value for each size in a row; None where it is unknown."""
    if not isinstance(values, tuple) or not is_known(values):
        return (None,) * len(row)
    if len(values) != len(row):
        raise MisfitError(f"{len(values)} values, not {count(len(row), 'dimension')}")
    return values


def _reshape(row: Sizes, sizes: Sizes) -> Sizes:
    if row is None or sizes is None or None in row:
        return sizes
    total = math.prod(size for size in row if size is not None)
    known = math.prod(size for size in sizes if size is not None)
    inferred = sizes.count(None)
    if inferred > 1 or (inferred and not known):
        return sizes
    if total % known if inferred else total != known:
        raise MisfitError(f"{total} elements do not fit into {sizes}")
    return tuple(total // known if size is None else size for size in sizes)


_INTEGER, _SIZE, _ROW = Parameter.INTEGER, Parameter.SIZE, Parameter.ROW
_INTEGERS, _VALUE = Parameter.INTEGERS, Parameter.VALUE

FUNCTIONS: Final[Mapping[str, Function]] = {
    "len": Function((_ROW,), Kind.SIZE, len, Needs.RANKS, cxx="{}.length()"),
    "sum": Function((_ROW,), Kind.SIZE, sum, Needs.ALL, cxx="opdef::Sum({})"),
    "prod": Function(
        (_ROW,), Kind.SIZE, math.prod, Needs.ALL, cxx="opdef::Product({})"
    ),
    "min": Function(
        (_INTEGER, _INTEGER), Kind.SIZE, min, Needs.ALL, cxx="opdef::Least({}, {})"
    ),
    "max": Function(
        (_INTEGER, _INTEGER), Kind.SIZE, max, Needs.ALL, cxx="opdef::Most({}, {})"
    ),
    "ceildiv": Function(
        (_INTEGER, _INTEGER),
        Kind.SIZE,
        _ceildiv,
        Needs.ALL,
        cxx="opdef::DivideUp({}, {})",
    ),
    "window": Function(
        (_INTEGER, _INTEGER, _INTEGER, _VALUE, _INTEGER),
        Kind.SIZE,
        _window,
        Needs.NOTHING,
        optional=1,
    ),
    "broadcast": Function(
        (_ROW, _ROW, _ROW, _ROW),
        Kind.ROW,
        _broadcast,
        Needs.RANKS,
        optional=2,
        cxx="opdef::Broadcast({}, {})",
    ),
    "dims": Function((_INTEGER,), Kind.ROW, _dims, Needs.ALL),
    "insert": Function((_ROW, _INTEGER, _SIZE), Kind.ROW, _insert, Needs.RANKS),
    "replace": Function((_ROW, _INTEGER, _SIZE), Kind.ROW, _replace, Needs.RANKS),
    "remove": Function((_ROW, _VALUE), Kind.ROW, _remove, Needs.RANKS),
    "reduce": Function((_ROW, _VALUE, _VALUE), Kind.ROW, _reduce, Needs.RANKS),
    "squeeze": Function((_ROW, _INTEGERS), Kind.ROW, _squeeze, Needs.RANKS),
    "permute": Function((_ROW, _INTEGERS), Kind.ROW, _permute, Needs.RANKS),
    "pad": Function((_ROW, _VALUE), Kind.ROW, _pad, Needs.RANKS),
    "tile": Function((_ROW, _INTEGERS), Kind.ROW, _tile, Needs.RANKS),
    "reshape": Function((_ROW, _ROW), Kind.ROW, _reshape, Needs.NOTHING),
}

OPERATORS: Final[Mapping[type[ast.operator], Operator]] = {
    ast.Add: Operator(operator.add, "Add"),
    ast.Sub: Operator(operator.sub, "Subtract"),
    ast.Mult: Operator(operator.mul, "Multiply"),
    ast.FloorDiv: Operator(_divide, "Divide"),
    ast.Mod: Operator(_remainder, "Remainder"),
}

COMPARISONS: Final[Mapping[type[ast.cmpop], Operator]] = {
    ast.Eq: Operator(operator.eq, "=="),
    ast.NotEq: Operator(operator.ne, "!="),
    ast.Lt: Operator(operator.lt, "<"),
    ast.LtE: Operator(operator.le, "<="),
    ast.Gt: Operator(operator.gt, ">"),
    ast.GtE: Operator(operator.ge, ">="),
    ast.In: Operator(lambda one, several: one in several, None),
    ast.NotIn: Operator(lambda one, several: one not in several, None),
}
