"""Evaluates the shapes of an op for a call.

The generator writes the shape of each argument as an expression in Python, `(m, k) if
not transpose_a else (k, m)`. Names are attrs, values of inputs, or sizes that the
shapes define. Nothing here runs for a call that succeeds.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import EllipsisType
from typing import TypeAlias, TypeGuard

#: None: an unknown size.
Size: TypeAlias = "int | None"
#: An ellipsis stands for any number of unknown sizes.
Row: TypeAlias = "tuple[int | EllipsisType | None, ...]"

ANY: Row = (...,)


class MisfitError(Exception):
    """Sizes contradict each other."""


@dataclass(frozen=True)
class Tensor:
    """The tensor of an argument, or the `index`th tensor of a list."""

    arg: str
    label: str
    sizes: tuple[int | None, ...]
    index: int | None = None

    def words(self, axis: int | None) -> str:
        """Its size at `axis`, or its number of dimensions, as text."""
        if axis is None:
            rank = len(self.sizes)
            return "no dimensions" if not rank else _count(rank, "dimension")
        size = self.sizes[axis]
        if len(self.sizes) == 1:
            return _count(size, "element")
        if len(self.sizes) == 2:
            return _count(size, ("row", "column")[axis])
        return f"size {size} at axis {axis}"


@dataclass
class Facts:
    """The known facts of a call.

    Args:
        attrs: values of attrs: integers, texts, tuples; a shape is a tuple of sizes, or
            None if its rank is unknown.
        values: known values of integer inputs: an integer or nested tuples of
            integers.
        sizes: values of sizes and rows; by position if each tensor of a list has its
            own.
        labels: names of attrs and values in messages, if they differ.
    """

    attrs: Mapping[str, object] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)
    sizes: dict[str, object] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    #: The tensor and first axis that a size or row was read from. By name, and by
    #: position if each tensor of a list has its own.
    origins: dict[tuple[str, int | None], tuple[Tensor, int]] = field(
        default_factory=dict
    )

    def copy(self) -> Facts:
        """A copy; binding its sizes does not change the original."""
        sizes = {
            name: dict(found) if isinstance(found, dict) else found
            for name, found in self.sizes.items()
        }
        return replace(self, sizes=sizes, origins=dict(self.origins))


def shapes(text: str, facts: Facts, index: int | None = None) -> list[Row]:
    """The value of the expression `text`: one row, or all possible rows.

    Raises:
        MisfitError: known sizes contradict each other.
    """
    evaluation = Evaluation(facts, index)
    found: list[Row] = []
    refused: MisfitError | None = None
    for option in evaluation.options(parsed(text)):
        try:
            found.append(evaluation.tuple_row(option))
        except MisfitError as error:
            refused = error
    if refused is not None and not found:
        raise refused
    evaluation.hold(parsed(text))
    return found


def held(text: str, facts: Facts, index: int | None = None) -> list[Row] | None:
    """The same for the tensor behind the handle `text`; None if it is not stated."""
    node = parsed(text)
    node = node.args[0] if _called(node, "where") else node
    if not _called(node, "of"):
        return None
    evaluation = Evaluation(facts, index)
    return [evaluation.tuple_row(one) for one in evaluation.options(node.args[1])]


def values_used(expected: Mapping[str, str], inputs: Iterable[str]) -> frozenset[str]:
    """The inputs whose values `expected` depends on.

    An input's name stands for its values, unless its own shape has that name: then it
    stands for a size or row.
    """
    used = {name for text in expected.values() for name in names_in(parsed(text))}
    return frozenset(
        name for name in inputs if name in used and not _names_itself(name, expected)
    )


def _names_itself(name: str, expected: Mapping[str, str]) -> bool:
    if name not in expected:
        return False
    rows = _rows_in(parsed(expected[name]))
    return any(name in names_in(row) for row in rows)


def _rows_in(node: ast.expr) -> Iterator[ast.expr]:
    """The rows of a shape under all conditions."""
    if _called(node, "where"):
        yield from _rows_in(node.args[0])
    elif _called(node, "of") or _called(node, "either"):
        for each in node.args:
            yield from _rows_in(each)
    elif isinstance(node, ast.IfExp):
        yield from _rows_in(node.body)
        yield from _rows_in(node.orelse)
    else:
        yield node


def names_in(node: ast.expr) -> list[str]:
    """The names in an expression, except those of functions."""
    parts = list(ast.walk(node))
    called = {id(each.func) for each in parts if isinstance(each, ast.Call)}
    names = [
        each.id
        for each in parts
        if isinstance(each, ast.Name) and id(each) not in called
    ]
    return list(dict.fromkeys(names))


def fits(actual: Row, row: Row) -> bool:
    """Whether a row may be `actual`: the known sizes of both agree."""
    if ... in row or ... in actual:
        # Only sizes before the first ellipsis and after the last can be compared.
        for one, other in (
            (actual, row),
            (actual[::-1], row[::-1]),
        ):
            for size, wanted in zip(one, other, strict=False):
                if size is ... or wanted is ...:
                    break
                if None not in (size, wanted) and size != wanted:
                    return False
        least = [len([s for s in r if s is not ...]) for r in (actual, row)]
        if ... not in actual:
            return least[0] >= least[1]
        if ... not in row:
            return least[1] >= least[0]
        return True
    return len(actual) == len(row) and all(
        size is None or wanted is None or size == wanted
        for size, wanted in zip(actual, row, strict=True)
    )


@cache
def parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _called(node: ast.expr, name: str) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == name
    )


def _count(number: int | None, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@dataclass
class Evaluation:
    """Evaluates expressions; None is an unknown value."""

    facts: Facts
    index: int | None

    # Shapes.

    def options(self, node: ast.expr) -> Iterator[ast.Tuple]:
        """The rows that a shape may be."""
        if _called(node, "where") or _called(node, "of"):
            yield from self.options(node.args[0])
        elif _called(node, "either"):
            for option in node.args:
                yield from self.options(option)
        elif isinstance(node, ast.IfExp):
            known = self.value(node.test)
            if known is None or known:
                yield from self.options(node.body)
            if not known:
                yield from self.options(node.orelse)
        else:
            assert isinstance(node, ast.Tuple)
            yield node

    def hold(self, node: ast.expr) -> None:
        """Raises MisfitError if a condition is known not to hold."""
        if _called(node, "where"):
            found = self.value(node.args[1])
            if found is not None and not found:
                raise MisfitError(f"{ast.unparse(node.args[1])} does not hold")

    def tuple_row(self, node: ast.Tuple) -> Row:
        row: list[int | EllipsisType | None] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                row += self.row(element.value)
            elif isinstance(element, ast.Constant) and element.value is ...:
                row.append(...)
            else:
                row.append(self.dimension(element))
        return tuple(row)

    def dimension(self, node: ast.expr) -> Size:
        size = self.size(node)
        if size is None or size >= 0:
            return size
        if size == -1 and isinstance(node, (ast.Name, ast.Subscript)):
            # In attrs and values, -1 is an unknown size.
            return None
        raise MisfitError(f"{ast.unparse(node)} is {size}")

    # Values of any kind.

    def value(self, node: ast.expr) -> object:
        """A value for conditions; None if it is not known."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.named(node.id)
        if isinstance(node, ast.Tuple):
            return tuple(map(self.value, node.elts))
        if isinstance(node, ast.BoolOp):
            return self.both(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            known = self.value(node.operand)
            return None if known is None else not known
        if isinstance(node, ast.Compare):
            return self.compared(node)
        if isinstance(node, ast.IfExp):
            chosen = self.chosen(node)
            return None if chosen is None else self.value(chosen)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return _known(self.row(node))
        if any(_called(node, name) for name in _ROWS):
            return _known(self.row(node))
        if isinstance(node, ast.Subscript):
            return self.part(node)
        return self.size(node)

    def both(self, node: ast.BoolOp) -> bool | None:
        decides = isinstance(node.op, ast.Or)
        found = [self.value(each) for each in node.values]
        if any(one is not None and bool(one) is decides for one in found):
            return decides
        return None if None in found else not decides

    def compared(self, node: ast.Compare) -> bool | None:
        left = self.value(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            if left is None or right is None:
                return None
            if not _COMPARED[type(op)](left, right):
                return False
            left = right
        return True

    def chosen(self, node: ast.IfExp) -> ast.expr | None:
        """The branch that a condition chooses; None if it is not known."""
        known = self.value(node.test)
        return None if known is None else node.body if known else node.orelse

    def named(self, name: str) -> object:
        if name == "i":
            return self.index
        if name in self.facts.attrs:
            return self.facts.attrs[name]
        if name in self.facts.values:
            return self.facts.values[name]
        return self.facts.sizes.get(name)

    def part(self, node: ast.Subscript) -> object:
        """An element of a list."""
        if isinstance(node.value, ast.Name):
            whole = self.named(node.value.id)
            if isinstance(whole, dict):
                return whole.get(self.size(node.slice))
        else:
            whole = self.value(node.value)
        at = self.size(node.slice)
        if whole is None or at is None:
            return None
        if not isinstance(whole, tuple):
            return None
        if ... in whole:
            before = whole[: at + 1] if at >= 0 else whole[at:]
            return None if ... in before else whole[at]
        if not -len(whole) <= at < len(whole):
            raise MisfitError(
                f"{ast.unparse(node)}: {ast.unparse(node.value)} has "
                f"{_count(len(whole), 'part')}"
            )
        return whole[at]

    # Sizes.

    def size(self, node: ast.expr) -> Size:
        if isinstance(node, ast.Constant):
            return _integer(node.value)
        if isinstance(node, ast.Name):
            found = self.named(node.id) if node.id != "_" else None
            return _integer(found)
        if isinstance(node, ast.Subscript):
            return _integer(self.part(node))
        if isinstance(node, ast.UnaryOp):
            size = self.size(node.operand)
            return None if size is None else -size
        if isinstance(node, ast.BinOp):
            left, right = self.size(node.left), self.size(node.right)
            if isinstance(node.op, ast.Mult) and 0 in (left, right):
                return 0
            if left is None or right is None:
                return None
            if right == 0 and not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
                raise MisfitError(f"{ast.unparse(node.right)} is 0")
            return int(_ARITHMETIC[type(node.op)](left, right))
        if isinstance(node, ast.IfExp):
            chosen = self.chosen(node)
            return None if chosen is None else self.size(chosen)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.called(node.func.id, node.args)
        return None

    def called(self, name: str, arguments: list[ast.expr]) -> Size:
        """The result of a function that returns one size."""
        if name == "window":
            return self.window(*arguments)
        if name in _OF_ROWS:
            row = self.row(arguments[0])
            if name == "len":
                return None if ... in row else len(row)
            known = _known(row)
            return None if known is None else _OF_ROWS[name](known)
        left, right = map(self.size, arguments)
        if left is None or right is None:
            return None
        if name == "ceildiv" and right == 0:
            raise MisfitError(f"{ast.unparse(arguments[1])} is 0")
        return _OF_SIZES[name](left, right)

    def window(
        self,
        size_: ast.expr,
        window_: ast.expr,
        stride_: ast.expr,
        padding_: ast.expr,
        dilation_: ast.expr | None = None,
    ) -> Size:
        """How often a window fits: output sizes of convolutions and pooling."""
        size, stride = self.size(size_), self.size(stride_)
        padding = self.value(padding_)
        if size is None or stride is None or stride < 1:
            return None
        if padding == "SAME":
            return -(-size // stride)
        window = self.size(window_)
        dilation = 1 if dilation_ is None else self.size(dilation_)
        if padding != "VALID" or window is None or dilation is None:
            return None
        span = (window - 1) * dilation + 1
        if size < span:
            words = f"{ast.unparse(window_)}, {span}, is more than {size}"
            raise MisfitError(f"the window {words}, {ast.unparse(size_)}")
        return -(-(size - span + 1) // stride)

    # Rows of them.

    def row(self, node: ast.expr) -> Row:
        if isinstance(node, ast.Name):
            return self.as_row(self.named(node.id))
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            whole = self.row(node.value)
            parts = (node.slice.lower, node.slice.upper, node.slice.step)
            bounds = [None if part is None else self.size(part) for part in parts]
            lost = [
                b is None and p is not None for b, p in zip(bounds, parts, strict=True)
            ]
            if ... in whole or any(lost):
                return ANY
            for bound in bounds[:2]:
                if bound is not None and not -len(whole) <= bound <= len(whole):
                    words = _count(len(whole), "part")
                    raise MisfitError(f"{ast.unparse(node)}: there are {words}")
            return whole[slice(*bounds)]
        if isinstance(node, ast.Subscript):
            return self.as_row(self.part(node))
        if isinstance(node, ast.IfExp):
            chosen = self.chosen(node)
            return ANY if chosen is None else self.row(chosen)
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return _ROWS[node.func.id](self, *node.args)

    def as_row(self, found: object) -> Row:
        if isinstance(found, dict):
            ordered = [found[key] for key in sorted(found)]
            return tuple(ordered)
        if isinstance(found, int):
            return (found if found >= 0 else None,)
        if not isinstance(found, tuple):
            return ANY
        return tuple(
            size if size is ... or not isinstance(size, int) or size >= 0 else None
            for size in found
        )

    def broadcast(self, *nodes: ast.expr) -> Row:
        rows = [self.row(node) for node in nodes]
        if any(... in row for row in rows):
            return ANY
        rank = max(map(len, rows))
        result: list[Size] = []
        for sizes in zip(
            *((1,) * (rank - len(row)) + row for row in rows), strict=True
        ):
            known = {size for size in sizes if isinstance(size, int) and size != 1}
            if len(known) > 1:
                words = " and ".join(str(row) for row in rows)
                raise MisfitError(f"{words} do not broadcast")
            result.append(known.pop() if known else (None if None in sizes else 1))
        return tuple(result)

    def dims(self, count: ast.expr) -> Row:
        rank = self.size(count)
        if rank is not None and rank < 0:
            raise MisfitError(f"{ast.unparse(count)} is {rank}")
        return ANY if rank is None else (None,) * rank

    def axis(self, node: ast.expr, rank: int) -> int | None:
        at = self.size(node)
        if at is None:
            return None
        if not -rank <= at < rank:
            words = f"{ast.unparse(node)} is {at}, of {_count(rank, 'dimension')}"
            raise MisfitError(words)
        return at % rank

    def axes(self, node: ast.expr, rank: int) -> set[int] | None:
        found = self.value(node)
        if isinstance(found, bool) or found is None:
            return None
        several = found if isinstance(found, tuple) else (found,)
        axes = set()
        for at in several:
            if not isinstance(at, int):
                return None
            if not -rank <= at < rank:
                words = f"{ast.unparse(node)} has {at}, of {_count(rank, 'dimension')}"
                raise MisfitError(words)
            axes.add(at % rank)
        if len(axes) < len(several):
            raise MisfitError(f"{ast.unparse(node)} has an axis twice")
        return axes

    def insert(self, row_: ast.expr, axis_: ast.expr, size_: ast.expr) -> Row:
        row = self.row(row_)
        if ... in row:
            return ANY
        at = self.axis(axis_, len(row) + 1)
        if at is None:
            return (None,) * (len(row) + 1)
        return (*row[:at], self.dimension(size_), *row[at:])

    def replace(self, row_: ast.expr, axis_: ast.expr, size_: ast.expr) -> Row:
        row = self.row(row_)
        if ... in row:
            return ANY
        at = self.axis(axis_, len(row))
        if at is None:
            return (None,) * len(row)
        return (*row[:at], self.dimension(size_), *row[at + 1 :])

    def remove(self, row_: ast.expr, axes_: ast.expr) -> Row:
        row = self.row(row_)
        if ... in row:
            return ANY
        axes = self.axes(axes_, len(row))
        if axes is None:
            return ANY
        return tuple(size for at, size in enumerate(row) if at not in axes)

    def reduce(self, row_: ast.expr, axes_: ast.expr, keep_: ast.expr) -> Row:
        row, keep = self.row(row_), self.value(keep_)
        if ... in row:
            return ANY
        axes = self.axes(axes_, len(row))
        if axes is None:
            return (None,) * len(row) if keep else ANY
        if keep is None:
            return ANY
        if keep:
            return tuple(1 if at in axes else size for at, size in enumerate(row))
        return tuple(size for at, size in enumerate(row) if at not in axes)

    def squeeze(self, row_: ast.expr, axes_: ast.expr) -> Row:
        row = self.row(row_)
        if ... in row:
            return ANY
        axes = self.axes(axes_, len(row))
        if not axes:
            return ANY if None in row else tuple(size for size in row if size != 1)
        for at in axes:
            if row[at] not in (1, None):
                raise MisfitError(f"size {row[at]} at axis {at} is not 1")
        return tuple(size for at, size in enumerate(row) if at not in axes)

    def permute(self, row_: ast.expr, order_: ast.expr) -> Row:
        row, order = self.row(row_), self.value(order_)
        if ... in row:
            return ANY
        if not isinstance(order, tuple):
            return (None,) * len(row)
        if sorted(at % max(len(row), 1) for at in order) != list(range(len(row))):
            raise MisfitError(f"{ast.unparse(order_)} is no order of {len(row)} axes")
        return tuple(row[at] for at in order)

    def pad(self, row_: ast.expr, paddings_: ast.expr) -> Row:
        row, paddings = self.row(row_), self.value(paddings_)
        if ... in row:
            return ANY
        if not isinstance(paddings, tuple):
            return (None,) * len(row)
        if len(paddings) != len(row):
            words = _count(len(row), "dimension")
            raise MisfitError(
                f"{ast.unparse(paddings_)} has {len(paddings)}, not {words}"
            )
        return tuple(
            size + sum(pair) if isinstance(size, int) else size
            for size, pair in zip(row, paddings, strict=True)
        )

    def tile(self, row_: ast.expr, times_: ast.expr) -> Row:
        row, times = self.row(row_), self.value(times_)
        if ... in row:
            return ANY
        if not isinstance(times, tuple):
            return (None,) * len(row)
        if len(times) != len(row):
            words = _count(len(row), "dimension")
            raise MisfitError(f"{ast.unparse(times_)} has {len(times)}, not {words}")
        return tuple(
            size * count if isinstance(size, int) else size
            for size, count in zip(row, times, strict=True)
        )

    def reshape(self, row_: ast.expr, sizes_: ast.expr) -> Row:
        row = self.row(row_)
        sizes = self.value(sizes_)
        if not isinstance(sizes, tuple):
            return self.row(sizes_)
        if ... in row or None in row:
            return self.as_row(sizes)
        total = math.prod(size for size in row if isinstance(size, int))
        known = math.prod(size for size in sizes if size >= 0)
        if sizes.count(-1) == 1 and known:
            if total % known:
                raise MisfitError(f"{total} elements do not fit into {sizes}")
            return tuple(total // known if size == -1 else size for size in sizes)
        if -1 not in sizes and known != total:
            raise MisfitError(f"{total} elements do not fit into {sizes}")
        return self.as_row(sizes)


def _integer(found: object) -> int | None:
    if isinstance(found, tuple) and len(found) == 1:
        (found,) = found
    return found if isinstance(found, int) else None


def _number(found: object) -> float:
    assert isinstance(found, (int, float))
    return found


def _known(row: Row) -> tuple[int, ...] | None:
    """The sizes of a row if all are known, else None."""
    sizes = tuple(size for size in row if isinstance(size, int))
    return sizes if len(sizes) == len(row) else None


_ARITHMETIC: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_OF_ROWS: Mapping[str, Callable[[Sequence[int]], int]] = {
    "len": len,
    "sum": sum,
    "prod": math.prod,
}
_OF_SIZES: Mapping[str, Callable[[int, int], int]] = {
    "min": min,
    "max": max,
    "ceildiv": lambda one, other: -(-one // other),
}
_COMPARED: Mapping[type, Callable[[object, object], bool]] = {
    ast.Eq: lambda one, other: one == other,
    ast.NotEq: lambda one, other: one != other,
    ast.Lt: lambda one, other: _number(one) < _number(other),
    ast.LtE: lambda one, other: _number(one) <= _number(other),
    ast.Gt: lambda one, other: _number(one) > _number(other),
    ast.GtE: lambda one, other: _number(one) >= _number(other),
    ast.In: lambda one, several: isinstance(several, tuple) and one in several,
    ast.NotIn: lambda one, several: isinstance(several, tuple) and one not in several,
}
_ROWS: Mapping[str, Callable[..., Row]] = {
    name: getattr(Evaluation, name)
    for name in (
        "broadcast",
        "dims",
        "insert",
        "replace",
        "remove",
        "reduce",
        "squeeze",
        "permute",
        "pad",
        "tile",
        "reshape",
    )
}
