"""Says why a condition of `requires` does not hold: what came, and what is allowed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

from opwright_notation.conditions import (
    EAGER,
    HOLDS,
    MEMORY,
    RUNS,
    TABLE,
    THREADS,
    Condition,
    input_named,
)
from opwright_notation.sizes import MisfitError, count
from opwright_notation.syntax import named_parts, names_in


@dataclass(frozen=True)
class Refusal:
    """Why a condition does not hold.

    Attributes:
        argument: the input or attr at fault; "" if there is no memory for the result.
        label: the argument's name as callers know it, with the position in a list.
        given: what came.
        has: what came, as text: "input has 2 dimensions".
        must: what is allowed, as text: "it must have 4".
    """

    argument: str
    label: str
    given: object
    has: str
    must: str

    def __str__(self) -> str:
        return f"{self.has}; {self.must}" if self.must else self.has


_BOUNDS: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Eq: "",
    ast.NotEq: "other than ",
    ast.Lt: "less than ",
    ast.LtE: "at most ",
    ast.Gt: "more than ",
    ast.GtE: "at least ",
    ast.In: "one of ",
    ast.NotIn: "none of ",
}
#: The operators with their sides exchanged.
_FLIPPED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
#: The sizes that are allowed in texts that describe tensors.
_SIZES: Final = (
    "sizes must be at least 0, fewer than 255, and their product less than 2**63"
)
#: What came and what is allowed, for properties that hold or do not.
_PREDICATES: Final = {
    "finite": ("has inf or nan", "it must be finite"),
    TABLE: ("has keys or values of other dtypes", "they must be {1} and {2}"),
    "pairs": (
        "and {1} do not go together",
        "the data set must have pairs of a key and a value of the table's dtypes",
    ),
    "single": (
        "does not state that its elements have one value each",
        "each must be a scalar, as map(lambda x: tf.reshape(x, [])) states",
    ),
    "importable": (
        "is a dense table, which does not take these keys",
        "they must be a matrix of one row or more, with a column for each number of a "
        "key",
    ),
    "joins": (
        "has more values than the shape has room for",
        "it must have as many, with zeros for the rows of variants that hold nothing",
    ),
    "filled": (
        "is too short for the indices",
        "each element behind it must get a value",
    ),
    "divides": (
        "has the lowest integer where the divisor is -1",
        "the quotient must be an integer of its dtype",
    ),
    "nan_free": ("has nan", "no element may be nan"),
    "named": ("has an empty name", "each name must have a character"),
    "invertible": (
        "has a singular matrix, or one with inf or nan",
        "none of more than two rows may be singular, nearly so, or have inf or nan",
    ),
    "nested": (
        "has row splits that end beyond the next ones",
        "each must end at a row of the next",
    ),
    "removable": ("is the handle of an accumulator", "it must be another resource"),
    "slices": (
        "describes a slice of a tensor that cannot be",
        _SIZES,
    ),
    "stackable": (
        "has a serialized sparse tensor that cannot be",
        _SIZES,
    ),
    "convolves": (
        "does not fit the filter, the padding and the axes",
        "it must have each axis, a size of 0 or more with the padding, and a filter of "
        "size 1 or more",
    ),
    "subscripts": (
        "is {0}",
        'each term must have at most one "...", and the result at most 254 letters, '
        "each of which an input has",
    ),
    "writable": (
        "is {0}",
        "it must name a file that can be written, in a folder that is there or that "
        "the op makes, on a file system that TensorFlow has",
    ),
    "contracts": (
        "and {1} do not have the dimensions of the product",
        "each must have those that dimension_numbers names",
    ),
    "precise": ("is {0}", "XLA must have the precisions that it names"),
    "labels": (
        "or {1} has fewer axes than labels",
        "each must have an axis for each label of the equation",
    ),
    "drawable": (
        "has an animated WebP image without an alpha channel",
        "an animation must have an alpha channel",
    ),
    "uncut": (
        "ends with the first byte of a marker",
        "a JPEG image may not be cut there",
    ),
    "spans": (
        "has a start or end out of range",
        "each row must end with a start, and an end that is not before it",
    ),
    "batched": (
        "has an index outside its batch",
        "an index of batch n is from n * size to (n + 1) * size - 1",
    ),
    "distinct": (
        "has too few different rows",
        "it must have as many as are requested",
    ),
    "rising": ("decreases", "each element must be at least the one before it"),
    "permutation": (
        "is no permutation",
        "it must have each number from 0 to its length - 1 once",
    ),
}


#: The longest text of a caller that a refusal repeats.
_LONGEST: Final = 60


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _is_eager(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == EAGER


def refusal(node: ast.expr, condition: Condition, labels: Mapping[str, str]) -> Refusal:
    """Why `node` does not hold.

    Args:
        node: a condition that does not hold.
        condition: its evaluation.
        labels: the names of inputs and attrs as callers know them.
    """
    return _Words(condition, labels).why(node)


@dataclass(frozen=True)
class _Words:
    condition: Condition
    labels: Mapping[str, str]

    def why(self, node: ast.expr) -> Refusal:
        match node:
            case ast.BoolOp(op=ast.And()):
                return self.why(next(n for n in node.values if self.fails(n)))
            case ast.BoolOp():
                *others, last = node.values
                found = self.why(last)
                if not found.must:
                    # There is no memory for the result.
                    return found
                if _is_eager(others[0]):
                    return replace(found, must=f"{found.must} in a graph")
                unless = " or ".join(map(self.text, others))
                return replace(found, must=f"{found.must}, unless {unless}")
            case ast.IfExp():
                taken = node.body if self.condition.value(node.test) else node.orelse
                return self.why(taken)
            case ast.Compare():
                return self.compared(node)
            case ast.Call(func=ast.Name(id=name)) if name == MEMORY:
                has = self.condition.memory(node) or ""
                return Refusal("", "", None, has, "")
            case ast.Call(func=ast.Name(id=name)) if name == THREADS:
                argument, number = self.first(node), self.known(node.args[0])
                has = f"{self.label(argument)} requests {count(number, 'thread')}"
                must = "the process must be able to start as many"
                return Refusal(argument, self.label(argument), number, has, must)
            case ast.Call(func=ast.Name(id=name)) if name in (HOLDS, *_PREDICATES):
                return self.predicate(node, name)
            case ast.Name() if _is_eager(node):
                has = "cannot be added to a graph"
                return Refusal(EAGER, "", None, has, "its kernel ends the process")
            case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)) if name == RUNS:
                has = "cannot run"
                must = "its kernel, or what it makes, ends the process"
                return Refusal(RUNS, "", None, has, must)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                has, must = f"{self.text(operand)} holds", "it must not"
            case _:
                has, must = f"{self.text(node)} does not hold", "it must"
        argument = next(iter(names_in(node)), "")
        return Refusal(argument, self.label(argument), None, has, must)

    def fails(self, node: ast.expr) -> bool:
        try:
            found = self.condition.holds(node)
        except MisfitError:
            return True
        return found is False

    def predicate(self, node: ast.Call, name: str) -> Refusal:
        argument, at = input_named(node.args[0])
        label = self.label(argument, at)
        if name == HOLDS:
            held = self.condition.property(HOLDS, node.args[0])
            wanted = self.condition.value(node.args[1])
            has, must = f"holds {held}", f"it must hold {wanted}"
            if isinstance(node.args[1], ast.Name):
                must += f" ({self.text(node.args[1])})"
            return Refusal(argument, label, held, f"{label} {has}", must)
        has, must = _PREDICATES[name]
        is_text = name in ("precise", "subscripts", "writable")
        given = self.known(node.args[0]) if is_text else None
        if name in ("contracts", "labels", "pairs"):
            has = has.format(*map(self.text, node.args))
        if is_text:
            has = has.format(_cut(repr(given)))
            for other in node.args[1:]:
                text = _cut(repr(self.known(other)))
                has += f" and {self.label(input_named(other)[0])} is {text}"
        if name == TABLE:
            must = must.format(*map(self.format_value, node.args))
        return Refusal(argument, label, given, f"{label} {has}", must)

    def compared(self, node: ast.Compare) -> Refusal:
        """The first link of a chain of comparisons that fails."""
        sides = [node.left, *node.comparators]
        links = list(zip(sides[:-1], node.ops, sides[1:], strict=True))
        failing = (
            (left, op, right)
            for left, op, right in links
            if self.fails(ast.Compare(left, [op], [right]))
        )
        left, op, right = next(failing, links[-1])
        kind = type(op)
        if not names_in(left) and kind in (*_FLIPPED, ast.Eq, ast.NotEq):
            left, right = right, left
            kind = _FLIPPED.get(kind, kind)
        argument, has, must = self.subject(left)
        bound = f"{_BOUNDS[kind]}{self.bound(right)}"
        given = self.known(left)
        parts = map(input_named, ast.walk(left))
        at = next((at for name, at in parts if name == argument), None)
        label = self.label(argument, at)
        return Refusal(argument, label, given, has, f"{must} {bound}")

    def bound(self, node: ast.expr) -> str:
        if not names_in(node):
            found = self.known(node)
            if isinstance(found, tuple):
                return ", ".join(map(str, found))
            return str(found)
        return f"{self.format_value(node)} ({self.text(node)})"

    def subject(self, node: ast.expr) -> tuple[str, str, str]:
        """The argument that an expression is about, what it has, and "it must"."""
        found = self.known(node)
        argument, position = "", None
        if isinstance(node, ast.Call) and len(node.args) == 1:
            argument, position = input_named(node.args[0])
        match node:
            case ast.Call(func=ast.Name(id=name)) if argument:
                label = self.label(argument, position)
                number = found if isinstance(found, int) else None
                if name == "rank":
                    has = f"{label} has {count(number, 'dimension')}"
                    return argument, has, "it must have"
                if name in ("elements", "handles", "len"):
                    has = f"{label} has {count(number, 'element')}"
                    return argument, has, "it must have"
                if name == "shape":
                    has = f"{label} has the shape {self.format_value(node)}"
                    return argument, has, "it must have"
                if name in ("least", "most"):
                    has = f"{label} contains {found}"
                    return argument, has, "each element must be"
                if name == "held":
                    has = f"{label} holds a variable of shape {self.format_value(node)}"
                    return argument, has, "it must have"
                if name == "last":
                    has = f"{label} ends with {found}"
                    return argument, has, "its last element must be"
                if name == "value":
                    return argument, f"{label} is {found}", "it must be"
            case ast.Call(func=ast.Name(id="extent"), args=[row]):
                argument = self.first(node)
                has = f"the product of the sizes of {self.text(row)} that are not 0"
                return argument, f"{has} is {found}", "it must be"
            case ast.Subscript(value=ast.Call(args=[ast.Name(id=argument)])):
                if self.is_shape(node.value) and not isinstance(node.slice, ast.Slice):
                    at = self.known(node.slice)
                    has = f"{self.label(argument)} has size {found} at axis {at}"
                    return argument, has, "it must be"
        argument = self.first(node)
        return argument, f"{self.text(node)} is {self.format_value(node)}", "it must be"

    def first(self, node: ast.expr) -> str:
        """The first input in an expression, or else the first attr; "" without one."""
        names = [*names_in(node)]
        inputs = (name for name in names if name in self.condition.lengths)
        return next(inputs, names[0] if names else "")

    def is_shape(self, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "shape"
        )

    def known(self, node: ast.expr) -> Any:
        try:
            return self.condition.value(node)
        except MisfitError:
            return None

    def format_value(self, node: ast.expr) -> str:
        found = self.known(node)
        if isinstance(found, tuple):
            return f"[{', '.join('?' if n is None else str(n) for n in found)}]"
        return "missing" if found is None else _cut(repr(found))

    def label(self, argument: str, at: int | None = None) -> str:
        label = self.labels.get(argument, argument)
        is_list = self.condition.lengths.get(argument) is not None
        if is_list and at is None:
            at = self.condition.index
        return label if at is None else f"{label}[{at}]"

    def text(self, node: ast.expr) -> str:
        """The text of an expression, with the names that callers know."""
        renamed = deepcopy(node)
        for each in named_parts(renamed):
            each.id = self.labels.get(each.id, each.id)
        return ast.unparse(renamed)
