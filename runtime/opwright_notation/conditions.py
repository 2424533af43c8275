"""Reads and evaluates the conditions of a call: `requires` in an opdef.

A condition is a Python expression over attrs and properties of inputs:

    rank(input, filter) == 4
    padding != "EXPLICIT" or len(explicit_paddings) == 8
    holds(var, accum, T)

With several inputs, a property stands for the condition on each of them. A condition
with a list of tensors stands for the condition on each tensor of the list; `x[-1]` is
one tensor of it. None stands for an unknown value, as in shapes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Final

from opwright_notation.evaluation import Evaluation
from opwright_notation.functions import FUNCTIONS, OPERATORS, Kind
from opwright_notation.rows import broadcast, known_extent, known_product
from opwright_notation.sizes import MisfitError, Sizes, count
from opwright_notation.syntax import ShapeError, is_call


@dataclass(frozen=True)
class Property:
    """A property of an input, or of the values of an attr.

    Attributes:
        gives: the kind of its result.
        of_attr: its meaning for the value of an attr; None: it is of inputs only.
        more: how many sizes follow the inputs as arguments.
        of_values: whether it depends on the values of an input, besides its shape.
    """

    gives: Kind
    of_attr: Callable[[Any], object] | None = None
    more: int = 0
    of_values: bool = False


def _finite(found: Any) -> bool:
    return all(map(math.isfinite, _row(found)))


def _row(found: Any) -> Iterable[Any]:
    return found if isinstance(found, tuple) else (found,)


def _ranks(found: Any) -> object:
    return tuple(None if row is None else len(row) for row in found)


def _products(rows: Iterable[tuple[int | None, ...] | None]) -> object:
    return tuple(None if row is None else known_product(row) for row in rows)


def _extents(rows: Iterable[tuple[int | None, ...] | None]) -> object:
    return tuple(None if row is None else known_extent(row) for row in rows)


#: The properties by name. The runtime has a function for each, which has its meaning
#: for tensors.
PROPERTIES: Final = {
    "rank": Property(Kind.SIZE),
    "elements": Property(Kind.SIZE),
    "shape": Property(Kind.ROW),
    # TensorFlow's shape inference of some ops says 2 where they make one handle.
    "handles": Property(Kind.SIZE, of_values=True),
    "value": Property(Kind.SIZE, of_values=True),
    "contents": Property(Kind.ROW, of_values=True),
    "last": Property(Kind.SIZE, of_values=True),
    "least": Property(
        Kind.SIZE, lambda row: min(row, default=math.inf), of_values=True
    ),
    "most": Property(
        Kind.SIZE, lambda row: max(row, default=-math.inf), of_values=True
    ),
    "finite": Property(Kind.FLAG, _finite, of_values=True),
    "rising": Property(Kind.FLAG, of_values=True),
    "permutation": Property(Kind.FLAG, of_values=True),
    "nan_free": Property(Kind.FLAG, of_values=True),
    "named": Property(Kind.FLAG, of_values=True),
    "slices": Property(Kind.FLAG, of_values=True),
    "drawable": Property(Kind.FLAG, of_values=True),
    "uncut": Property(Kind.FLAG, of_values=True),
    "stackable": Property(Kind.FLAG, of_values=True),
    "batched": Property(Kind.FLAG, more=1, of_values=True),
    "distinct": Property(Kind.FLAG, more=1, of_values=True),
    "spans": Property(Kind.FLAG, more=1, of_values=True),
    "invertible": Property(Kind.FLAG, of_values=True),
    "removable": Property(Kind.FLAG),
    "dtype": Property(Kind.FLAG),
    "held": Property(Kind.ROW),
    "matrix": Property(Kind.ROW),
    "shards": Property(Kind.SIZE),
    "ranks": Property(Kind.ROW, _ranks),
    "products": Property(Kind.ROW, _products),
    "extents": Property(Kind.ROW, _extents),
    "positives": Property(Kind.SIZE, lambda row: sum(n > 0 for n in row)),
    # A function is given by the numbers of its results and of its parameters.
    "results": Property(Kind.SIZE, lambda counts: counts[0]),
    "parameters": Property(Kind.SIZE, lambda counts: counts[1]),
}
#: `holds(x, T)`: the variable, or accumulator, of the handle `x` has the dtype `T`. It
#: holds if the handle does not say which dtype that is.
HOLDS: Final = "holds"
#: `table(x, K, V)`: the table of the handle `x` has keys and values of these dtypes.
TABLE: Final = "table"
#: `memory(T, n, row)`: there is memory for a tensor of the dtype `T` with these sizes.
MEMORY: Final = "memory"
#: `threads(n)`: the process can start `n` threads.
THREADS: Final = "threads"
#: `eager`: the op runs at once. `eager or ...` is a condition of graphs only.
EAGER: Final = "eager"
#: `not runs`: the op can be part of a graph that does not run.
RUNS: Final = "runs"
#: Functions of inputs together: how many, and the kind of the result. Those of
#: `OF_TEXT` also take an attr that is text, or several.
#: `steps(start, limit, delta)`: the total length of the ranges.
#: `padded(x, paddings)`: the shape of `x` with paddings.
#: `banded(diagonal, k, num_rows, num_cols)`: the shape of matrices of these diagonals.
#: `terms(order, q)`: how many terms the series of Zeta, or of Polygamma, adds.
#: `nested(splits)`: in a list of row splits, each ends at a row of the next.
#: `pairs(table, dataset)`: the elements of the data set are keys and values of the
#: dtypes of the table.
#: `single(dataset)`: the data set states that each of its elements has one value.
#: `importable(table, keys, values)`: the table can be filled with keys and values of
#: these shapes. A dense table takes a matrix of keys only.
#: `joins(variants, row_splits, shape)`: a tensor of the shape has room for the values
#: of the ragged variants, with zeros for the rows of those that hold nothing.
#: `filled(list, indices)`: elements with these indices leave no gap behind the list of
#: the variant.
#: `divides(x, indices, y)`: no integer of these rows of the variable of the handle `x`
#: is the lowest one where `y` has -1.
#: `convolves(x, filter, padding, dilations, numbers)`: `x` has the axes that `numbers`
#: names, none of its spatial axes gets a negative size from the dilations and the
#: padding, and none of those of `filter` is empty.
#: `contracts(lhs, rhs, numbers)`: the dimensions that `numbers` names are those of the
#: operands of a product.
#: `precise(config)`: XLA has the precisions that the message names.
#: `labels(a, b, equation)`: no operand has more labels than axes.
#: `subscripts(equation)`: the kernel of Einsum survives the equation.
#: `writable(file)`, `writable(folder, file)`: the file can be written. The op makes the
#: folder if it is missing.
#: `einsum(inputs, equation)`: the shape of the result.
#: `batches(inputs, equation)`: how many matrices an input or the result has at most.
#: `indexed(inputs, equation)`: how many pairs of matrices the kernel keeps the indices
#: of, which it does if they broadcast.
#: `reduced(inputs, equation)`: how many zeros the kernel makes of an input without
#: elements, when it sums the input over an axis of size 0.
#: `crosses(indices, dense_inputs, row_splits)`: how many crosses of values there are in
#: all rows of sparse tensors with these indices, dense and ragged ones.
JOINT: Final = {
    "steps": (3, Kind.SIZE),
    "padded": (2, Kind.ROW),
    "banded": (4, Kind.ROW),
    "terms": (2, Kind.SIZE),
    "nested": (1, Kind.FLAG),
    "pairs": (2, Kind.FLAG),
    "single": (1, Kind.FLAG),
    "importable": (3, Kind.FLAG),
    "joins": (3, Kind.FLAG),
    "filled": (2, Kind.FLAG),
    "divides": (3, Kind.FLAG),
    "convolves": (4, Kind.FLAG),
    "subscripts": (0, Kind.FLAG),
    "contracts": (2, Kind.FLAG),
    "precise": (0, Kind.FLAG),
    "labels": (2, Kind.FLAG),
    "writable": (0, Kind.FLAG),
    "einsum": (1, Kind.ROW),
    "batches": (1, Kind.SIZE),
    "indexed": (1, Kind.SIZE),
    "reduced": (1, Kind.SIZE),
    "crosses": (3, Kind.SIZE),
}
#: The function of lists that reads contents. The last of its lists may be missing.
CROSSES: Final = "crosses"
#: Those that take a list of tensors as a whole, and an equation.
OF_EQUATIONS: Final = frozenset({"einsum", "batches", "indexed", "reduced"})
#: Those that take a list of tensors as a whole.
OF_LISTS: Final = OF_EQUATIONS | {CROSSES, "nested"}
#: Those of handles: how many of their first inputs are handles.
OF_HANDLES: Final = {
    "pairs": 2,
    "single": 1,
    "importable": 1,
    "joins": 1,
    "filled": 1,
    "divides": 1,
}
#: Those of messages and equations of XLA.
OF_XLA: Final = frozenset({"contracts", "labels", "precise"})
OF_TEXT: Final = OF_EQUATIONS | {"convolves", "subscripts", "writable"} | OF_XLA
#: Those that take several attrs that are text: how many at most.
MOST_TEXTS: Final = {"writable": 2}
#: The functions of shapes that conditions may use.
SHARED: Final = (
    "len",
    "sum",
    "prod",
    "extent",
    "min",
    "max",
    "remove",
    "broadcast",
)


def read(text: str) -> ast.expr:
    """The expression of a condition; `col_offset` of its parts is an offset in `text`.

    Raises:
        ShapeError: `text` is no expression.
    """
    flat = text.replace("\n", " ")
    try:
        node = ast.parse(flat, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = max((getattr(error, "offset", None) or 1) - 1, 0)
        why = getattr(error, "msg", None) or "it is nested too deeply"
        raise ShapeError(at, f"{text!r} is no expression: {why}") from None
    return node


@cache
def parsed(text: str) -> ast.expr:
    """The condition in `text`, which has no mistakes, with one input per property."""
    return expanded(read(text))


def expanded(node: ast.expr) -> ast.expr:
    """A condition in which each property has one input, and powers are numbers."""
    changed: ast.expr = _Powers().visit(deepcopy(node))
    parts = [one for part in conjuncts(changed) for one in _for_each_input(part)]
    return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)


class _Powers(ast.NodeTransformer):
    """Replaces powers of integers, such as `2**31`, by their values."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Pow):
            return node
        match node.left, node.right:
            case ast.Constant(int() as base), ast.Constant(int() as power):
                if 0 <= power <= 64 and 0 <= base <= 64:
                    return ast.copy_location(ast.Constant(base**power), node)
        return node


def bounded(node: ast.expr) -> tuple[list[str], int] | None:
    """The inputs and the bound of `extent(broadcast(shape(x), shape(y))) < bound`.

    If no size is 0, the product of their numbers of elements is no less than the
    extent, and takes less time.
    """
    match node:
        case ast.Compare(
            left=ast.Call(
                func=ast.Name(id="extent"),
                args=[ast.Call(func=ast.Name(id="broadcast"), args=rows)],
            ),
            ops=[ast.Lt()],
            comparators=[ast.Constant(value=int() as bound)],
        ):
            found = [
                row.args[0].id
                for row in rows
                if is_call(row, "shape") and isinstance(row.args[0], ast.Name)
            ]
            return (found, bound) if len(found) == len(rows) else None
    return None


def conjuncts(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of a condition that all have to hold."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for each in node.values:
            yield from conjuncts(each)
    else:
        yield node


def _for_each_input(node: ast.expr) -> Iterator[ast.expr]:
    """A condition for each of the inputs that one of its properties names."""
    several = next((call for call in _calls(node) if _inputs_of(call) > 1), None)
    if several is None:
        yield node
        return
    text = ast.dump(several)
    for index in range(_inputs_of(several)):
        one = deepcopy(node)
        for call in _calls(one):
            if ast.dump(call) == text:
                call.args = [call.args[index], *call.args[_inputs_of(call) :]]
        yield from _for_each_input(one)


def _calls(node: ast.expr) -> Iterator[ast.Call]:
    yield from (each for each in ast.walk(node) if isinstance(each, ast.Call))


def _inputs_of(call: ast.Call) -> int:
    """How many arguments of a call are inputs for which it stands in turn."""
    if is_call(call, HOLDS):
        return len(call.args) - 1
    name = _name(call)
    return len(call.args) - PROPERTIES[name].more if name in PROPERTIES else 0


def _name(call: ast.Call) -> str:
    """The function that is called."""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _inputs_named(call: ast.Call) -> int:
    """How many arguments of a call are inputs."""
    name = _name(call)
    if name == TABLE:
        return 1
    if name == CROSSES:
        return len(call.args)
    return JOINT[name][0] if name in JOINT else _inputs_of(call)


def inputs_in(node: ast.expr, inputs: Collection[str]) -> list[str]:
    """The inputs of which a condition names a property, in the order of `inputs`."""
    found = {name for name, _ in _named(node)}
    return [name for name in inputs if name in found]


def whole_inputs_in(node: ast.expr, inputs: Collection[str]) -> list[str]:
    """The inputs of which a condition names a property of each tensor."""
    found = _whole_in(node)
    return [name for name in inputs if name in found]


# Each call of an op in a graph asks it again. Nodes are compared by identity.
@lru_cache(maxsize=4096)
def _whole_in(node: ast.expr) -> frozenset[str]:
    """The names in arguments of which `whole_inputs_in` looks for the inputs."""
    return frozenset(name for name, at in _named(node, OF_LISTS) if at is None)


def _named(
    node: ast.expr, without: Collection[str] = ()
) -> Iterator[tuple[str, int | None]]:
    """The inputs in calls of functions, `without` some functions."""
    for call in _calls(node):
        if _name(call) not in without:
            yield from map(input_named, call.args[: _inputs_named(call)])


def input_named(argument: ast.AST) -> tuple[str, int | None]:
    """The name in an argument, and the position of `x[-1]` in a list.

    The name is "" for an expression of another form.
    """
    match argument:
        case ast.Name(id=name):
            return name, None
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(int() as at)):
            return name, at
        case ast.Subscript(
            value=ast.Name(id=name),
            slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(int() as at)),
        ):
            return name, -at
    return "", None


#: Returns a property of an input: its name, the input's, the position in a list, and
#: further arguments. None stands for an unknown value.
PropertyOf = Callable[[str, str, "int | None", "tuple[object, ...]"], object]


#: Returns why there is no memory for a tensor of a dtype and sizes; None if there is.
Shortage = Callable[[object, "tuple[int, ...]"], "str | None"]


@dataclass
class Condition(Evaluation):
    """Evaluates conditions for the facts of a call.

    Args:
        facts: the attrs of the call.
        index: the position of the tensors in lists of tensors.
        lengths: the inputs; the length of each that is a list, None for others.
        property_of: returns properties of inputs.
        shortage: says why there is no memory for a tensor.
    """

    lengths: Mapping[str, int | None]
    property_of: PropertyOf
    shortage: Shortage

    def at(self, index: int | None) -> Condition:
        """The same, for the tensors at `index` of lists."""
        return self if index == self.index else replace(self, index=index)

    def positions(self, node: ast.expr) -> Iterable[int | None]:
        """The positions in lists at which a condition has to hold; None without one."""
        if all(length is None for length in self.lengths.values()):
            return (None,)
        used = whole_inputs_in(node, self.lengths)
        lengths = [self.lengths[name] for name in used]
        known = [length for length in lengths if length is not None]
        return range(min(known)) if known else (None,)

    def holds(self, node: ast.expr) -> bool | None:
        """Whether a condition holds; None if that is unknown.

        Raises:
            MisfitError: a part of it has no value, such as an axis that is missing.
        """
        found = self.value(node)
        return None if found is None else bool(found)

    def both(self, node: ast.BoolOp) -> bool | None:
        """As in Python, a part that decides keeps the parts behind it from running."""
        decides = isinstance(node.op, ast.Or)
        known = True
        for each in node.values:
            found = self.value(each)
            if found is not None and bool(found) is decides:
                return decides
            known = known and found is not None
        return (not decides) if known else None

    def size(self, node: ast.expr) -> Any:
        """The value of an expression as a number."""
        found = self.value(node)
        if isinstance(found, tuple) and len(found) == 1:
            (found,) = found
        return found if isinstance(found, (int, float)) else None

    def computed(self, node: ast.BinOp) -> Any:
        left, right = self.size(node.left), self.size(node.right)
        if left is None or right is None:
            return None
        return OPERATORS[type(node.op)].meaning(left, right)

    def row(self, node: ast.expr) -> Sizes:
        """A row of integers, which may be negative."""
        found = self.value(node)
        if not isinstance(found, tuple):
            return None
        return tuple(size if isinstance(size, int) else None for size in found)

    def sliced(self, node: ast.Subscript, bounds: ast.Slice) -> object:
        """As in Python, a slice may have bounds beyond the ends."""
        whole = self.value(node.value)
        nodes = (bounds.lower, bounds.upper, bounds.step)
        parts = [None if part is None else self.size(part) for part in nodes]
        known = [
            part is None or found is not None
            for part, found in zip(nodes, parts, strict=True)
        ]
        if not isinstance(whole, tuple) or not all(known):
            return None
        return whole[slice(*parts)]

    def called(self, node: ast.Call) -> object:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == HOLDS:
            held = self.property("holds", node.args[0])
            wanted = self.value(node.args[1])
            return None if held is None or wanted is None else held == wanted
        if name == TABLE:
            assert isinstance(node.args[0], ast.Name)
            dtypes = tuple(map(self.value, node.args[1:]))
            return self.property_of(TABLE, node.args[0].id, None, dtypes)
        if name == MEMORY:
            return self.memory(node) is None
        if name == THREADS:
            number = self.value(node.args[0])
            return (
                None if number is None else self.property_of(name, "", None, (number,))
            )
        if name in JOINT:
            names = [each.id for each in node.args if isinstance(each, ast.Name)]
            return self.property_of(name, names[0], None, tuple(names[1:]))
        if name in PROPERTIES:
            return self.property(name, *node.args)
        if name == "broadcast":
            rows = [self.value(each) for each in node.args]
            known = [row for row in rows if isinstance(row, tuple)]
            return broadcast(*known) if len(known) == len(rows) else None
        if name in FUNCTIONS:
            if name == "len" and isinstance(node.args[0], ast.Name):
                length = self.lengths.get(node.args[0].id)
                if length is not None:
                    return length
                text = self.named(node.args[0].id)
                if isinstance(text, (str, bytes)):
                    return len(text)
            return super().called(node)
        raise MisfitError(f"{ast.unparse(node)} is unknown")

    def property(self, name: str, argument: ast.expr, *more: ast.expr) -> object:
        named, at = input_named(argument)
        if named in self.lengths:
            length = self.lengths[named]
            others = tuple(map(self.value, more))
            if None in others:
                return None
            if at is not None and not -(length or 0) <= at < (length or 0):
                raise MisfitError(f"{named} has {count(length, 'element')}")
            at = self.index if at is None and length is not None else at
            return self.property_of(name, named, at, others)
        of_attr = PROPERTIES[name].of_attr
        found = self.value(argument)
        if of_attr is None or found is None:
            return None
        try:
            return of_attr(found)
        except TypeError:
            # A part of it is unknown.
            return None

    def memory(self, node: ast.Call) -> str | None:
        """Why there is no memory for a tensor; None if there is."""
        try:
            dtype, *parts = map(self.value, node.args)
        except MisfitError:
            # TensorFlow refuses sizes that contradict each other.
            return None
        sizes: list[int] = []
        for part in parts:
            for size in _row(part):
                if not isinstance(size, int):
                    return None
                sizes.append(size)
        return self.shortage(dtype, tuple(sizes))
