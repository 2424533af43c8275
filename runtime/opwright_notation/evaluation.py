"""Evaluates shapes for the facts of a call.

Names in an expression are attrs, values of inputs, or sizes that shapes define. None
stands for an unknown value: an unknown size, a row with an unknown number of sizes, or
an unknown condition.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import EllipsisType

from opwright_notation.functions import COMPARISONS, FUNCTIONS, OPERATORS
from opwright_notation.sizes import MisfitError, Row, Size, Sizes, count, is_known
from opwright_notation.syntax import is_call, names_in, names_itself, parsed


@dataclass(frozen=True)
class Tensor:
    """The tensor of an argument, or the `index`th tensor of a list."""

    arg: str
    label: str
    sizes: tuple[int | None, ...]
    index: int | None = None

    def words(self, axis: int | None) -> str:
        """The tensor's size at `axis`, or its number of dimensions, as text."""
        if axis is None:
            rank = len(self.sizes)
            return "no dimensions" if not rank else count(rank, "dimension")
        size = self.sizes[axis]
        if len(self.sizes) == 1:
            return count(size, "element")
        if len(self.sizes) == 2:
            return count(size, ("row", "column")[axis])
        return f"size {size} at axis {axis}"


@dataclass
class Facts:
    """The known facts of a call.

    Args:
        attrs: values of attrs: integers, texts, tuples; a shape is a tuple of sizes, or
            None if its rank is unknown.
        values: known values of integer inputs: an integer or nested tuples of
            integers.
        sizes: values of sizes and rows. If each tensor of a list has its own value,
            they are in a dict by the tensor's position.
        labels: the names of attrs and values in messages, if they have other names.
    """

    attrs: Mapping[str, object] = field(default_factory=dict)
    values: Mapping[str, object] = field(default_factory=dict)
    sizes: dict[str, object] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    #: The tensor and the first axis from which a size or row was read. The key is the
    #: name, and the position if each tensor of a list has its own value.
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


def values_used(expected: Mapping[str, str], inputs: Iterable[str]) -> frozenset[str]:
    """The inputs whose values the shapes `expected` depend on."""
    nodes = {arg: parsed(text) for arg, text in expected.items()}
    used = {name for node in nodes.values() for name in names_in(node)}
    return frozenset(
        name
        for name in inputs
        if name in used and not names_itself(name, nodes.get(name))
    )


@dataclass
class Evaluation:
    """Evaluates expressions. None stands for an unknown value."""

    facts: Facts
    index: int | None

    # These methods evaluate shapes.

    def options(self, node: ast.expr) -> Iterator[ast.Tuple]:
        """The rows that a shape may be."""
        if is_call(node, "where") or is_call(node, "of"):
            yield from self.options(node.args[0])
        elif is_call(node, "either"):
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
        if is_call(node, "where"):
            found = self.value(node.args[1])
            if found is not None and not found:
                raise MisfitError(f"{ast.unparse(node.args[1])} does not hold")

    def tuple_row(self, node: ast.Tuple) -> Row:
        row: list[int | EllipsisType | None] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                sizes = self.row(element.value)
                row += (...,) if sizes is None else sizes
            elif isinstance(element, ast.Constant) and element.value is ...:
                row.append(...)
            else:
                row.append(self.dimension(element))
        return tuple(row)

    # These methods evaluate a part of a shape as a size, a dimension or a row.

    def size(self, node: ast.expr) -> Size:
        """The value of an expression as an integer, which may be negative."""
        found = self.value(node)
        if isinstance(found, tuple) and len(found) == 1:
            (found,) = found
        return found if isinstance(found, int) else None

    def dimension(self, node: ast.expr) -> Size:
        """The value of an expression as a size of a tensor, which is at least 0."""
        size = self.size(node)
        if size is None or size >= 0:
            return size
        if size == -1 and isinstance(node, (ast.Name, ast.Subscript)):
            # In attrs and values, -1 stands for an unknown size.
            return None
        raise MisfitError(f"{ast.unparse(node)} is {size}")

    def row(self, node: ast.expr) -> Sizes:
        """The value of an expression as a row of sizes; None for an unknown number."""
        found = self.value(node)
        if isinstance(found, int):
            found = (found,)
        if not isinstance(found, tuple):
            return None
        return tuple(
            size if isinstance(size, int) and size >= 0 else None for size in found
        )

    # These methods evaluate expressions of any kind.

    def value(self, node: ast.expr) -> object:
        """The value of an expression; None if it is not known."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                found = self.named(node.id)
                if isinstance(found, dict):
                    return tuple(found[index] for index in sorted(found))
                return found
            case ast.Tuple():
                return tuple(map(self.value, node.elts))
            case ast.IfExp():
                known = self.value(node.test)
                if known is None:
                    return None
                return self.value(node.body if known else node.orelse)
            case ast.BoolOp():
                return self.both(node)
            case ast.Compare():
                return self.compared(node)
            case ast.UnaryOp(op=ast.Not()):
                known = self.value(node.operand)
                return None if known is None else not known
            case ast.UnaryOp():
                size = self.size(node.operand)
                return None if size is None else -size
            case ast.BinOp():
                return self.computed(node)
            case ast.Subscript(slice=ast.Slice() as bounds):
                return self.sliced(node, bounds)
            case ast.Subscript():
                return self.part(node)
        assert isinstance(node, ast.Call)
        return self.called(node)

    def named(self, name: str) -> object:
        if name == "i":
            return self.index
        for known in (self.facts.attrs, self.facts.values, self.facts.sizes):
            if name in known:
                return known[name]
        return None

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
            if not is_known(left) or not is_known(right):
                return None
            try:
                if not COMPARISONS[type(op)].meaning(left, right):
                    return False
            except TypeError:
                # A text and a number cannot be ordered, and a text has no elements.
                return None
            left = right
        return True

    def computed(self, node: ast.BinOp) -> Size:
        left, right = self.size(node.left), self.size(node.right)
        if isinstance(node.op, ast.Mult) and 0 in (left, right):
            return 0
        if left is None or right is None:
            return None
        return int(OPERATORS[type(node.op)].meaning(left, right))

    def called(self, node: ast.Call) -> object:
        assert isinstance(node.func, ast.Name)
        function = FUNCTIONS[node.func.id]
        arguments = [
            getattr(self, parameter.evaluated)(each)
            for parameter, each in zip(function.takes, node.args, strict=False)
        ]
        try:
            return function(*arguments)
        except MisfitError as error:
            raise MisfitError(f"{ast.unparse(node)}: {error}") from None

    def part(self, node: ast.Subscript) -> object:
        """An element of a list."""
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        several, at = self.named(name), self.size(node.slice)
        if isinstance(several, dict):
            return several.get(at)
        whole = self.value(node.value)
        if at is None or not isinstance(whole, tuple):
            return None
        if not -len(whole) <= at < len(whole):
            raise MisfitError(
                f"{ast.unparse(node)}: {ast.unparse(node.value)} has "
                f"{count(len(whole), 'part')}"
            )
        return whole[at]

    def sliced(self, node: ast.Subscript, bounds: ast.Slice) -> object:
        whole = self.value(node.value)
        nodes = (bounds.lower, bounds.upper, bounds.step)
        parts = [None if part is None else self.size(part) for part in nodes]
        if not isinstance(whole, tuple) or any(
            part is None and bound is not None
            for part, bound in zip(parts, nodes, strict=True)
        ):
            return None
        for part in parts[:2]:
            if part is not None and not -len(whole) <= part <= len(whole):
                words = count(len(whole), "part")
                raise MisfitError(f"{ast.unparse(node)}: there are {words}")
        return whole[slice(*parts)]
