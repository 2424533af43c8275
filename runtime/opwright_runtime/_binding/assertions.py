"""Adds an op's conditions to a graph, if their values are known only when it runs.

A condition becomes an `Assert`, on which the op depends. Its parts become ops. Integers
are int64 and other numbers float64. A part whose value the graph knows stays a value.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_notation.conditions import (
    HOLDS,
    JOINT,
    MEMORY,
    OF_LISTS,
    PROPERTIES,
    TABLE,
    conjuncts,
    input_named,
    inputs_in,
    parsed,
    whole_inputs_in,
)
from opwright_notation.functions import COMPARISONS, OPERATORS
from opwright_runtime._binding import (
    equations,
    files,
    graph_equations,
    memory,
    properties,
    requirements,
    resources,
    texts,
)
from opwright_runtime._binding.op_info import OpInfo
from opwright_runtime._binding.reads import Reads
from opwright_runtime._internals import handle_data

# A tensor of a graph, or a value that is known when the graph is built.
Value: TypeAlias = Any


class _UnknownError(Exception):
    """A part of a condition that has no form in a graph."""


#: An op whose conditions are on an accumulator.
_OF_ACCUMULATORS = frozenset({"ResourceAccumulatorApplyGradient"})

#: How many sizes, and values of an input, a failed check prints.
_MOST_PRINTED = 8


@dataclass(frozen=True)
class Checker:
    """A function that asserts the conditions of a call.

    Attributes:
        function: takes the inputs in `names`, the tensors of lists one by one.
        names: the inputs that it needs.
    """

    function: Any
    names: tuple[str, ...]


def add(
    info: OpInfo, tensors: Sequence[Value], attrs: Mapping[str, Value]
) -> list[tf.Operation]:
    """Adds to the default graph the checks that a call needs when it runs.

    Args:
        info: the op.
        tensors: its inputs by argument; a list input is a list of tensors.
        attrs: its attrs by name, without those that follow from inputs.

    Returns:
        The operations on which the op has to depend.
    """
    specs = [
        [*map(_spec, one)] if arg.is_list else _spec(one)
        for arg, one in zip(info.inputs, tensors, strict=True)
    ]
    # That they have the right dtypes was checked when the op was added.
    settled = {
        arg.name
        for arg, one in zip(info.inputs, tensors, strict=True)
        if arg.dtype == tf.resource
        and not arg.is_list
        and resources.held_in(handle_data(one)) is not None
    }
    found = checker(info, specs, attrs, settled)
    if found is None:
        return []
    given: list[Value] = []
    for arg, one in zip(info.inputs, tensors, strict=True):
        if arg.name in found.names:
            given += one if arg.is_list else [one]
    return [found.function(*given).op]


def _spec(tensor: Value) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def checker(
    info: OpInfo,
    specs: Sequence[Value],
    attrs: Mapping[str, Value],
    settled: Collection[str] = (),
    *,
    compiled: bool = False,
) -> Checker | None:
    """The checker of calls of an op; None if they need none.

    Args:
        info: the op.
        specs: a spec for each input, or a list of them.
        attrs: the attrs by name, without those that follow from inputs.
        settled: the handles that state the dtype that their variable has.
        compiled: whether XLA may compile the checker.
    """
    conditions = [part for text in info.requires for part in conjuncts(parsed(text))]
    dtypes = {
        arg.name: one
        for arg, one in zip(info.inputs, specs, strict=True)
        if arg.is_list or not (arg.is_ref or one.dtype == tf.variant)
    }
    used = {name for part in conditions for name in inputs_in(part, dtypes)}
    signature: list[tf.TensorSpec] = []
    for arg, one in zip(info.inputs, specs, strict=True):
        if arg.name in used:
            signature += one if arg.is_list else [one]
    known = requirements.facts(info, specs, attrs)
    lengths = {
        arg.name: len(one)
        for arg, one in zip(info.inputs, specs, strict=True)
        if arg.is_list
    }
    added: list[tf.Operation] = []
    # Operations that fail if a variable or an accumulator has another dtype.
    reads = Reads(added, info.name in _OF_ACCUMULATORS, compiled)

    def check(*flat: Value) -> Value:
        rest = list(flat)
        given: dict[str, Value] = {}
        for arg, one in zip(info.inputs, specs, strict=True):
            if arg.name in used:
                count = len(one) if arg.is_list else 1
                taken, rest = rest[:count], rest[count:]
                given[arg.name] = taken if arg.is_list else taken[0]
        asserted: list[tuple[ast.expr, Value]] = []
        for part in conditions:
            for index in _positions(part, given, lengths):
                graph = _Graph(given, lengths, known, index, settled, reads)
                found = graph.condition(part)
                if found is not None and (_is_tensor(found) or not found):
                    asserted.append((part, found))
        # TensorFlow may leave out a read that no assertion waits for.
        with tf.control_dependencies(added):
            added.extend(_assert(info, part, given, one) for part, one in asserted)
        with tf.control_dependencies(added):
            return tf.identity(True)

    # TensorFlow infers from the op that its inputs have fitting shapes, and would
    # remove checks of shapes as superfluous. It cannot do so in a separate function
    # that is not inlined.
    traced = tf.function(
        check,
        input_signature=signature,
        autograph=False,
        experimental_attributes={"_noinline": True},
    )
    function = traced.get_concrete_function()
    names = tuple(arg.name for arg in info.inputs if arg.name in used)
    return Checker(function, names) if added else None


def _positions(
    node: ast.expr, given: Mapping[str, Value], lengths: Mapping[str, int]
) -> Sequence[int | None]:
    used = [name for name in whole_inputs_in(node, given) if name in lengths]
    return range(min(lengths[name] for name in used)) if used else (None,)


def _assert(
    info: OpInfo, node: ast.expr, given: Mapping[str, Value], condition: Value
) -> tf.Operation:
    labels = {arg.name: arg.python_name for arg in info.inputs}
    text = ast.unparse(node)
    data: list[Value] = [f"{info.name}: {text} must hold"]
    for name in inputs_in(node, given):
        if f"held({name})" in text:
            data += [f"{labels[name]} holds the shape", _held(given[name])]
        elif isinstance(given[name], tf.Tensor):
            data += [f"{labels[name]} has the shape", tf.shape(given[name], tf.int64)]
            if _is_read(node, name, given[name].dtype):
                # One more than are printed: TensorFlow then writes "..." behind them.
                values = _flat(given[name])[: _MOST_PRINTED + 1]
                data += [f"{labels[name]} contains", values]
    operation: tf.Operation = tf.raw_ops.Assert(
        condition=condition, data=data, summarize=_MOST_PRINTED
    )
    return operation


def _held(handle: Value) -> tf.Tensor:
    return tf.raw_ops.VariableShape(input=handle, out_type=tf.int64)


def _is_read(node: ast.expr, name: str, dtype: tf.DType) -> bool:
    """Whether a condition depends on the values of an input, which are numbers."""
    if not (dtype.is_integer or dtype.is_floating):
        return False
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            # The functions of several inputs read those of integers.
            known = PROPERTIES.get(call.func.id)
            reads = known is not None and known.of_values
            reads |= call.func.id in JOINT and dtype.is_integer
            if reads and name in {input_named(each)[0] for each in call.args}:
                return True
    return False


@dataclass
class _Graph:
    """Writes a condition as ops.

    Args:
        given: the inputs by name, a list input as a list.
        lengths: the number of tensors of each list input.
        known: the attrs, as conditions use them.
        index: the position in lists of tensors.
        settled: the handles that state the dtype that their variable has.
        reads: adds operations that fail if a handle holds another dtype.
    """

    given: Mapping[str, Value]
    lengths: Mapping[str, int]
    known: Mapping[str, object]
    index: int | None
    settled: Collection[str]
    reads: Reads

    def condition(self, node: ast.expr) -> Value:
        """A tensor; a bool if the graph knows the result; None if it is unknown."""
        try:
            return self.value(node)
        except _UnknownError:
            return None

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                found = self.known.get(node.id)
                if found is None or (isinstance(found, tuple) and None in found):
                    raise _UnknownError
                return found
            case ast.Tuple():
                return tuple(map(self.value, node.elts))
            case ast.BoolOp():
                return self.both(node)
            case ast.Compare():
                return self.compared(node)
            case ast.UnaryOp(op=ast.Not()):
                found = self.value(node.operand)
                return tf.logical_not(found) if _is_tensor(found) else not found
            case ast.UnaryOp():
                return -self.value(node.operand)
            case ast.BinOp():
                return self.computed(node)
            case ast.IfExp():
                return self.chosen(node)
            case ast.Subscript():
                return self.part(node)
            case ast.Call():
                return self.called(node)
        raise _UnknownError

    def both(self, node: ast.BoolOp) -> Value:
        decides = isinstance(node.op, ast.Or)
        join = tf.logical_or if decides else tf.logical_and
        found: Value = not decides
        for each in node.values:
            one = self.value(each)
            if not _is_tensor(one):
                if bool(one) is decides:
                    return decides
                continue
            found = join(found, one) if _is_tensor(found) else one
        return found

    def compared(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        found: Value = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            one = _compared(op, left, right)
            if not _is_tensor(one):
                if not one:
                    return False
            else:
                found = tf.logical_and(found, one) if _is_tensor(found) else one
            left = right
        return found

    def computed(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if not _is_tensor(left) and not _is_tensor(right):
            return OPERATORS[type(node.op)].meaning(left, right)
        left, right = _numbers(left, right)
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            return _divided(node.op, left, right)
        if isinstance(node.op, ast.Mult):
            return _product(tf.stack([left, right]))
        return OPERATORS[type(node.op)].meaning(left, right)

    def chosen(self, node: ast.IfExp) -> Value:
        test = self.value(node.test)
        if not _is_tensor(test):
            return self.value(node.body if test else node.orelse)
        body, orelse = self.value(node.body), self.value(node.orelse)
        if isinstance(body, bool) or (_is_tensor(body) and body.dtype == tf.bool):
            return tf.where(test, body, orelse)
        return tf.where(test, *_numbers(body, orelse))

    def part(self, node: ast.Subscript) -> Value:
        whole = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            parts = [None if part is None else self.value(part) for part in bounds]
            if not _is_tensor(whole) and not any(map(_is_tensor, parts)):
                return whole[slice(*parts)]
            return _row(whole)[slice(*parts)]
        at = self.value(node.slice)
        if not _is_tensor(whole) and not _is_tensor(at):
            return whole[at]
        # A part that is missing is 0. Another condition says that it must be there.
        row = _row(whole)
        length = tf.size(row, tf.int64)
        place = tf.cast(at, tf.int64)
        place = tf.where(place < 0, place + length, place)
        is_there = tf.logical_and(place >= 0, place < length)
        return tf.pad(row, [[0, 1]])[tf.where(is_there, place, length)]

    def called(self, node: ast.Call) -> Value:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name in ("pairs", "removable", "single"):
            raise _UnknownError
        if name == TABLE:
            handle, keys, values = node.args
            dtypes = self.value(keys), self.value(values)
            self.reads.look_up(self.tensor(handle), *dtypes)
            return True
        if name == HOLDS:
            if input_named(node.args[0])[0] in self.settled:
                return True
            self.reads.add(self.tensor(node.args[0]), self.value(node.args[1]))
            return True
        if name == "divides":
            return self.divides(*map(self.tensor, node.args))
        if name == "held":
            return _held(self.tensor(node.args[0]))
        if name == MEMORY:
            return self.memory(node)
        first = node.args[0]
        if name in OF_LISTS:
            return self.of_list(name, input_named(first)[0], node.args[1])
        if name in JOINT:
            number = JOINT[name][0]
            tensors = [*map(self.tensor, node.args[:number])]
            return _JOINT[name](*tensors, *map(self.value, node.args[number:]))
        named, _ = input_named(first)
        if name == "len" and named in self.lengths:
            return self.lengths[named]
        if name in PROPERTIES and named in self.given:
            more = [self.value(each) for each in node.args[1:]]
            return self.property(name, self.tensor(first), more)
        found = [self.value(each) for each in node.args]
        if not any(map(_is_tensor, found)):
            return _known(name, found)
        if name in _OF_ROWS:
            return _OF_ROWS[name](*found)
        raise _UnknownError

    def divides(
        self, resource: tf.Tensor, indices: tf.Tensor, divisors: tf.Tensor
    ) -> Value:
        if divisors.dtype not in resources.DIVIDED:
            return True
        variable = self.reads.add(resource, divisors.dtype.name)
        is_lowest = tf.equal(tf.gather(variable, indices), divisors.dtype.min)
        return tf.logical_not(tf.reduce_any(is_lowest & tf.equal(divisors, -1)))

    def tensor(self, node: ast.expr) -> Value:
        named, at = input_named(node)
        if named not in self.given:
            raise _UnknownError
        found = self.given[named]
        if named not in self.lengths:
            return found
        at = self.index or 0 if at is None else at
        if not -len(found) <= at < len(found):
            raise _UnknownError
        return found[at]

    def of_list(self, name: str, argument: str, text: ast.expr) -> Value:
        if argument not in self.given:
            raise _UnknownError
        arguments = self.given[argument], self.value(text)
        found = requirements.of_list(name, *arguments)
        if found is None or (isinstance(found, tuple) and None in found):
            return graph_equations.FUNCTIONS[name](*arguments)
        return found

    def property(self, name: str, tensor: Value, more: Sequence[Value]) -> Value:
        static = requirements.static(name, tensor, tuple(more))
        if static is not None and not (isinstance(static, tuple) and None in static):
            return static
        if name not in _PROPERTIES:
            raise _UnknownError
        return _PROPERTIES[name](tensor, *more)

    def memory(self, node: ast.Call) -> Value:
        dtype, *parts = map(self.value, node.args)
        total: Value = tf.constant(float(properties.bytes_of(dtype, ())), tf.float64)
        for part in parts:
            total *= tf.reduce_prod(_as(part, tf.float64))
        limit = memory.limit()
        return True if math.isinf(limit) else total <= limit


def _is_tensor(found: object) -> bool:
    return isinstance(found, tf.Tensor)


def _numbers(*found: Value) -> Iterator[Value]:
    """Numbers as tensors of one dtype: int64 if all are integers that it holds."""
    floats = any(
        (
            one.dtype.is_floating
            if _is_tensor(one)
            else isinstance(one, float) or not tf.int64.min <= one <= tf.int64.max
        )
        for one in found
    )
    dtype = tf.float64 if floats else tf.int64
    return (_as(one, dtype) for one in found)


def _as(found: Value, dtype: tf.DType) -> Value:
    """A value or tensor as a tensor of a dtype."""
    if _is_tensor(found):
        return tf.cast(found, dtype)
    # tf.cast would convert it to float32 or int32 first.
    return tf.constant(found, dtype)


def _row(found: Value) -> Value:
    return tf.reshape(_as(found, tf.int64), [-1])


def _compared(op: ast.cmpop, left: Value, right: Value) -> Value:
    meaning = COMPARISONS[type(op)].meaning
    if not _is_tensor(left) and not (
        any(map(_is_tensor, right)) if isinstance(right, tuple) else _is_tensor(right)
    ):
        return meaning(left, right)
    if isinstance(op, (ast.In, ast.NotIn)):
        among = tf.reduce_any([_compared(ast.Eq(), left, one) for one in right])
        return among if isinstance(op, ast.In) else tf.logical_not(among)
    is_row = any(
        isinstance(one, tuple) or one.shape.rank == 1
        for one in (left, right)
        if isinstance(one, tuple) or _is_tensor(one)
    )
    if is_row:
        left, right = _row(left), _row(right)
        shared = tf.minimum(tf.size(left), tf.size(right))
        equal = tf.logical_and(
            tf.equal(tf.size(left), tf.size(right)),
            tf.reduce_all(tf.equal(left[:shared], right[:shared])),
        )
        return tf.logical_not(equal) if isinstance(op, ast.NotEq) else equal
    if isinstance(left, str) or isinstance(right, str):
        return meaning(left, right)
    left, right = _numbers(left, right)
    if isinstance(op, ast.Eq):
        return tf.equal(left, right)
    return (
        tf.not_equal(left, right) if isinstance(op, ast.NotEq) else meaning(left, right)
    )


def _product(row: Value) -> Value:
    """The product of a row: of integers, at most what an int64 holds."""
    product = tf.reduce_prod(row)
    if row.dtype.is_floating:
        return product
    about = tf.reduce_prod(tf.cast(row, tf.float64))
    limit = tf.where(about < 0, tf.int64.min, tf.int64.max)
    return tf.where(tf.abs(about) < 2.0**63, product, limit)


def _divided(op: ast.operator, left: Value, right: Value) -> Value:
    """A division, which is 0 by 0: an op for integers would end the run."""
    safe = tf.where(tf.equal(right, 0), tf.ones_like(right), right)
    found = left // safe if isinstance(op, ast.FloorDiv) else left % safe
    return tf.where(tf.equal(right, 0), tf.zeros_like(right), found)


def _known(name: str, found: Sequence[Value]) -> Value:
    of_attr = PROPERTIES[name].of_attr if name in PROPERTIES else None
    if of_attr is not None:
        return of_attr(*found)
    functions: dict[str, Callable[..., Value]] = {
        "len": len,
        "sum": sum,
        "prod": math.prod,
        "extent": properties.extent_of,
        "min": min,
        "max": max,
        "remove": properties.removed,
        "broadcast": properties.broadcast_of,
    }
    if name not in functions:
        raise _UnknownError
    return functions[name](*found)


def _flat(tensor: Value) -> Value:
    """All numbers of a tensor in a row, as int64 or float64."""
    is_integer = tensor.dtype.is_integer or tensor.dtype.is_bool
    if not is_integer and not tensor.dtype.is_floating:
        raise _UnknownError
    return tf.reshape(tf.cast(tensor, tf.int64 if is_integer else tf.float64), [-1])


def _extreme(reduce: Callable[[Value], Value]) -> Callable[[Value], Value]:
    def of(tensor: Value) -> Value:
        flat = _flat(tensor)
        found = reduce(flat)
        if flat.dtype.is_floating:
            has_nan = tf.reduce_any(tf.math.is_nan(flat))
            found = tf.where(has_nan, tf.constant(math.nan, flat.dtype), found)
        return found

    return of


def _spans(tensor: Value, size: Value) -> Value:
    flat = _flat(tensor)
    # A row has two numbers at least. Another condition says that.
    width = tf.maximum(tf.pad(tf.shape(tensor, tf.int64), [[1, 0]])[-1], 2)
    count = tf.size(flat, tf.int64) // width
    rows = tf.reshape(flat[: count * width], [count, width])
    starts, ends = rows[:, -2], rows[:, -1]
    size = _as(size, rows.dtype)
    return tf.reduce_all((starts >= 0) & (starts <= ends) & (ends <= size))


def _batched(tensor: Value, size: Value) -> Value:
    count = tf.maximum(tf.shape(tensor, tf.int64)[0], 1)
    rows = tf.reshape(_flat(tensor), [count, -1])
    size = _as(size, rows.dtype)
    starts = tf.range(tf.cast(count, rows.dtype))[:, tf.newaxis] * size
    return tf.reduce_all((rows >= starts) & (rows < starts + size))


def _distinct(tensor: Value, least: Value) -> Value:
    # Rows without elements are equal, and may be too many for the kernel.
    count = tf.minimum(
        tf.pad(tf.shape(tensor, tf.int64), [[0, 1]])[0], tf.size(tensor, tf.int64)
    )
    rows = tf.reshape(_flat(tensor), [tf.maximum(count, 1), -1])
    different = tf.raw_ops.UniqueV2(x=rows, axis=[0]).y
    return tf.shape(different, tf.int64)[0] >= _as(least, tf.int64)


def _permutation(tensor: Value) -> Value:
    flat = _flat(tensor)
    numbers = tf.range(tf.size(flat, flat.dtype))
    return tf.reduce_all(tf.equal(tf.sort(flat), numbers))


def _steps(start: Value, limit: Value, delta: Value) -> Value:
    first, end, step = (tf.cast(one, tf.float64) for one in (start, limit, delta))
    counts = tf.math.ceil(tf.math.divide_no_nan(end - first, step))
    return tf.reduce_sum(tf.clip_by_value(counts, 0.0, 2.0**62))


def _padded(tensor: Value, paddings: Value) -> Value:
    return tf.shape(tensor, tf.int64) + tf.reduce_sum(tf.cast(paddings, tf.int64), -1)


def _banded(diagonal: Value, k: Value, num_rows: Value, num_cols: Value) -> Value:
    # Parts that are missing are 0. Other conditions say that they must be there.
    sizes = tf.shape(diagonal, tf.int64)
    longest = tf.pad(sizes, [[1, 0]])[-1]
    lowest, highest = tf.pad(_flat(k), [[0, 1]])[0], tf.pad(_flat(k), [[1, 0]])[-1]
    rows, columns = (tf.pad(_flat(one), [[0, 1]])[0] for one in (num_rows, num_cols))
    needed_rows = longest - tf.minimum(highest, 0)
    needed_columns = longest + tf.maximum(lowest, 0)
    is_square = tf.cast((rows < 0) & (columns < 0), tf.int64)
    square = is_square * tf.maximum(needed_rows, needed_columns)
    row_of_each = tf.where(tf.equal(lowest, highest), 1, 2)
    return tf.concat(
        [
            sizes[: tf.size(sizes) - row_of_each],
            [tf.maximum(tf.maximum(rows, needed_rows), square)],
            [tf.maximum(tf.maximum(columns, needed_columns), square)],
        ],
        0,
    )


def _convolves(
    value: tf.Tensor,
    window: tf.Tensor,
    padding: tf.Tensor,
    dilations: tf.Tensor,
    numbers: str | bytes,
) -> object:
    axes, windows, least, most = properties.axes_of(numbers)
    if least < 0 or most >= properties.MOST_AXES:
        return False
    # Axes that are missing have the size 0. XLA takes dilations that are left out as
    # ones, and padding as zeros. Other conditions refuse other numbers of them.
    sizes, lengths = (
        tf.pad(tf.shape(one, tf.int64), [[0, most + 1]]) for one in (value, window)
    )
    count = len(axes)
    rates = tf.pad(_flat(dilations), [[0, count]], constant_values=1)[:count]
    added = tf.pad(_flat(padding), [[0, 2 * count]])[: 2 * count]
    picked = tf.gather(sizes, tf.constant(axes, tf.int64))
    dilated = tf.maximum((picked - 1) * rates + 1, 0)
    padded = dilated + tf.reduce_sum(tf.reshape(added, [count, 2]), -1)
    held = tf.gather(lengths, tf.constant(windows, tf.int64))
    rank = tf.rank(value)
    fits = tf.logical_and(most < rank, tf.equal(tf.rank(window), rank))
    filled = tf.logical_and(tf.reduce_all(padded >= 0), tf.reduce_all(held >= 1))
    return tf.logical_and(fits, filled)


_JOINT: Mapping[str, Callable[..., Value]] = {
    "steps": _steps,
    "padded": _padded,
    "banded": _banded,
    "convolves": _convolves,
    "subscripts": equations.are_subscripts,
    "writable": files.is_writable,
}
_OF_ROWS: Mapping[str, Callable[..., Value]] = {
    "len": lambda row: tf.size(row, tf.int64),
    "sum": lambda row: tf.reduce_sum(_row(row)),
    "prod": lambda row: _product(_row(row)),
    # It may be more than an int64 holds.
    "extent": lambda row: tf.reduce_prod(tf.maximum(_as(row, tf.float64), 1.0)),
    "min": lambda one, other: tf.minimum(*_numbers(one, other)),
    "max": lambda one, other: tf.maximum(*_numbers(one, other)),
    "broadcast": lambda *rows: graph_equations.broadcast(*map(_row, rows)),
    "least": lambda row: tf.reduce_min(_row(row)),
    "most": lambda row: tf.reduce_max(_row(row)),
}
_PROPERTIES: Mapping[str, Callable[..., Value]] = {
    "rank": lambda x: tf.cast(tf.rank(x), tf.int64),
    "elements": lambda x: tf.size(x, tf.int64),
    "shape": lambda x: tf.shape(x, tf.int64),
    "handles": lambda x: tf.size(x, tf.int64),
    # A part that is missing is 0.
    "value": lambda x: tf.pad(_flat(x), [[0, 1]])[0],
    "contents": _flat,
    "last": lambda x: tf.pad(_flat(x), [[1, 0]], constant_values=-1)[-1],
    "least": _extreme(tf.reduce_min),
    "most": _extreme(tf.reduce_max),
    "finite": lambda x: tf.reduce_all(tf.math.is_finite(tf.cast(x, tf.float64))),
    "nan_free": lambda x: tf.logical_not(
        tf.reduce_any(tf.math.is_nan(tf.cast(x, tf.float64)))
    ),
    "named": texts.are_named_in_graph,
    "slices": texts.are_slices_in_graph,
    "rising": lambda x: tf.reduce_all(_flat(x)[1:] >= _flat(x)[:-1]),
    "permutation": _permutation,
    "batched": _batched,
    "distinct": _distinct,
    "spans": _spans,
}
