"""The functions and operators of the notation of shapes, each in one row of a table.

A row has the kinds of a function's parameters and of its result, and its meaning for
sizes. It also says when the result is unknown, and has its spelling in C++, which uses
the functions of `shapes.h`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from opwright_notation.rows import axes_of, axis_of, extent, reduce, remove
from opwright_notation.sizes import MisfitError, Size, Sizes, count, is_known


class Kind(Enum):
    """The kind of a part of the notation."""

    #: One size, or any integer.
    SIZE = "a size"
    #: A row of sizes.
    ROW = "a row of sizes"
    #: A value that only conditions use: true, false, a text, the value of an attr.
    FLAG = "a value for conditions"
    #: An attr that is a list of rows.
    ROWS = "a list of rows"


def _is_row(found: object) -> bool:
    return found is not None


class Parameter(Enum):
    """How a parameter of a function is evaluated, and whether it has to be known.

    The integers of `KNOWN`, `INTEGER`, `INTEGERS` and `VALUE` may be negative, such as
    axes. For the other parameters, a negative size in an attr or a value is an unknown
    size. Any other negative size is an error.
    """

    #: Integers. KNOWN has to be known.
    KNOWN = Kind.SIZE, "size", is_known
    INTEGER = Kind.SIZE, "size", None
    SIZE = Kind.SIZE, "dimension", None
    #: Rows. All sizes of KNOWN_ROW have to be known. Of ROW, their number has to be
    #: known. Of OPEN_ROW, nothing has to be known.
    KNOWN_ROW = Kind.ROW, "row", is_known
    ROW = Kind.ROW, "row", _is_row
    OPEN_ROW = Kind.ROW, "row", None
    INTEGERS = Kind.ROW, "value", None
    VALUE = Kind.FLAG, "value", None

    def __init__(
        self, kind: Kind, evaluated: str, suffices: Callable[[object], bool] | None
    ) -> None:
        self.kind = kind
        #: The method of `evaluation.Evaluation` that evaluates the argument.
        self.evaluated = evaluated
        #: Whether the argument is known well enough. If not, the result is unknown.
        self.suffices = suffices or (lambda _: True)


@dataclass(frozen=True)
class Function:
    """A function of the notation.

    Attributes:
        meaning: a Python function that computes the result from the arguments.
        cxx: the format of a call in C++. If a call may have more arguments than the
            format, the format nests: f(f(a, b), c). None: the function has no form in
            C++.
        optional: how many of the last arguments may be left out.
    """

    meaning: Callable[..., Size | Sizes]
    takes: tuple[Parameter, ...]
    gives: Kind
    cxx: str | None = None
    optional: int = 0

    def __call__(self, *arguments: object) -> Size | Sizes:
        """The result; None if it is unknown.

        Raises:
            MisfitError: the arguments contradict each other.
        """
        pairs = zip(self.takes, arguments, strict=False)
        if all(parameter.suffices(argument) for parameter, argument in pairs):
            return self.meaning(*arguments)
        return None


@dataclass(frozen=True)
class Operator:
    """An operator. `cxx` is the function or operator for it in C++, or None."""

    meaning: Callable[[Any, Any], Any]
    cxx: str | None


# The functions that return one size.


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
    """How many windows fit: the output size of convolutions and pooling."""
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


# The functions that return a row of sizes.


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


def _insert(row: tuple[Size, ...], axis: Size, size: Size) -> Sizes:
    if axis is None:
        return (None,) * (len(row) + 1)
    at = axis_of(axis, len(row) + 1)
    return (*row[:at], size, *row[at:])


def _replace(row: tuple[Size, ...], axis: Size, size: Size) -> Sizes:
    if axis is None:
        return (None,) * len(row)
    at = axis_of(axis, len(row))
    return (*row[:at], size, *row[at + 1 :])


def _squeeze(row: tuple[Size, ...], axes: object) -> Sizes:
    several = axes_of(axes, len(row))
    if several is None:
        return None
    if not several:
        return None if None in row else tuple(size for size in row if size != 1)
    for at in several:
        if row[at] not in (1, None):
            raise MisfitError(f"size {row[at]} at axis {at} is not 1")
    return reduce(row, several, False)


def _permute(row: tuple[Size, ...], order: object) -> Sizes:
    axes = axes_of(order, len(row)) if isinstance(order, tuple) else None
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
    """A value for each size in a row. Unknown values are None."""
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


_KNOWN, _INTEGER, _SIZE = Parameter.KNOWN, Parameter.INTEGER, Parameter.SIZE
_KNOWN_ROW, _ROW, _OPEN_ROW = Parameter.KNOWN_ROW, Parameter.ROW, Parameter.OPEN_ROW
_INTEGERS, _VALUE = Parameter.INTEGERS, Parameter.VALUE
_WINDOW = (_INTEGER, _INTEGER, _INTEGER, _VALUE, _INTEGER)

FUNCTIONS: Final[Mapping[str, Function]] = {
    "len": Function(len, (_ROW,), Kind.SIZE, "{}.length()"),
    "sum": Function(sum, (_KNOWN_ROW,), Kind.SIZE, "opdef::Sum({})"),
    "prod": Function(math.prod, (_KNOWN_ROW,), Kind.SIZE, "opdef::Product({})"),
    "extent": Function(extent, (_KNOWN_ROW,), Kind.SIZE),
    "min": Function(min, (_KNOWN, _KNOWN), Kind.SIZE, "opdef::Least({}, {})"),
    "max": Function(max, (_KNOWN, _KNOWN), Kind.SIZE, "opdef::Most({}, {})"),
    "ceildiv": Function(
        _ceildiv, (_KNOWN, _KNOWN), Kind.SIZE, "opdef::DivideUp({}, {})"
    ),
    "window": Function(_window, _WINDOW, Kind.SIZE, optional=1),
    "broadcast": Function(
        _broadcast, (_ROW,) * 4, Kind.ROW, "opdef::Broadcast({}, {})", optional=2
    ),
    "dims": Function(_dims, (_KNOWN,), Kind.ROW),
    "insert": Function(_insert, (_ROW, _INTEGER, _SIZE), Kind.ROW),
    "replace": Function(_replace, (_ROW, _INTEGER, _SIZE), Kind.ROW),
    "remove": Function(remove, (_ROW, _VALUE), Kind.ROW),
    "reduce": Function(reduce, (_ROW, _VALUE, _VALUE), Kind.ROW),
    "squeeze": Function(_squeeze, (_ROW, _INTEGERS), Kind.ROW),
    "permute": Function(_permute, (_ROW, _INTEGERS), Kind.ROW),
    "pad": Function(_pad, (_ROW, _VALUE), Kind.ROW),
    "tile": Function(_tile, (_ROW, _INTEGERS), Kind.ROW),
    "reshape": Function(_reshape, (_OPEN_ROW, _OPEN_ROW), Kind.ROW),
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
