"""Adds an op's conditions to a graph, if their values are known only when it runs.

A condition becomes an `Assert`, on which the op depends. Its parts become ops. Integers
are int64 and other numbers float64. A part whose value the graph knows stays a value.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from opwright_notation.conditions import (
    CROSSES,
    EAGER,
    HOLDS,
    JOINT,
    MEMORY,
    OF_EQUATIONS,
    PROPERTIES,
    RUNS,
    TABLE,
    THREADS,
    conjuncts,
    input_named,
    inputs_in,
    parsed,
    whole_inputs_in,
)
from opwright_notation.functions import COMPARISONS, OPERATORS
from opwright_notation.syntax import is_call
from opwright_runtime._binding import (
    eager_checks,
    graph_equations,
    handles,
    memory,
    properties,
    requirements,
    resources,
    threads,
)
from opwright_runtime._binding.crossing import crosses_in_graph
from opwright_runtime._binding.graph_properties import (
    JOINT_IN_GRAPH,
    OF_ROWS,
    PROPERTIES_IN_GRAPH,
    UnknownError,
    Value,
    cast,
    fits_dense_table,
    flat_of,
    is_tensor,
    nested_in_graph,
    numbers_of,
    product_of,
    row_of,
)
from opwright_runtime._binding.op_info import ArgInfo, OpInfo
from opwright_runtime._binding.reads import Reads
from opwright_runtime._internals import handle_data

#: An op whose first input may be a dense table that a graph makes.
_IMPORT = "LookupTableImportV2"
#: An op whose conditions are on an accumulator.
_OF_ACCUMULATORS = frozenset(
    {"ResourceAccumulatorApplyGradient", "ResourceAccumulatorTakeGradient"}
)

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
    # Python cannot look up a table of a session.
    key = handles.shape_of_dense_key(tensors[0]) if info.name == _IMPORT else None
    found = checker(info, specs, attrs, settled, has_key=key is not None)
    if found is None:
        return []
    given: list[Value] = []
    for arg, one in zip(info.inputs, tensors, strict=True):
        if arg.name in found.names:
            # A function takes the value of a reference.
            given += one if arg.is_list else [tf.identity(one) if arg.is_ref else one]
    return [found.function(*given, *([] if key is None else [key])).op]


def _spec(tensor: Value) -> tf.TensorSpec:
    return tf.TensorSpec(tensor.shape, tensor.dtype.base_dtype)


def checker(
    info: OpInfo,
    specs: Sequence[Value],
    attrs: Mapping[str, Value],
    settled: Collection[str] = (),
    *,
    has_key: bool = False,
    compiled: bool = False,
) -> Checker | None:
    """The checker of calls of an op; None if they need none.

    Args:
        info: the op.
        specs: a spec for each input, or a list of them.
        attrs: the attrs by name, without those that follow from inputs.
        settled: the handles that state the dtype that their variable has.
        has_key: whether the function also takes the shape of a key of a dense table.
        compiled: whether XLA may compile the checker.
    """
    conditions = [part for text in info.requires for part in conjuncts(parsed(text))]
    plain = {
        arg.name
        for arg, one in zip(info.inputs, specs, strict=True)
        if arg.is_list or not _is_opaque(arg, one)
    }
    names_of_all = [arg.name for arg in info.inputs]
    used = {
        name
        for part in conditions
        for name in inputs_in(part, names_of_all if _reads_handles(part) else plain)
    }
    signature: list[tf.TensorSpec] = []
    for arg, one in zip(info.inputs, specs, strict=True):
        if arg.name in used:
            signature += one if arg.is_list else [one]
    if has_key:
        signature.append(tf.TensorSpec([None], tf.int64))
    known = requirements.facts(info, specs, attrs) | {EAGER: False, RUNS: True}
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
        key = rest[0] if has_key else None
        for part in conditions:
            for index in _positions(part, given, lengths):
                graph = _Graph(given, lengths, known, index, settled, reads, key)
                # In their order: what one refuses, the next may not survive.
                with tf.control_dependencies(added):
                    found = graph.condition(part)
                if found is not None and (is_tensor(found) or not found):
                    with tf.control_dependencies(added):
                        added.append(_assert(info, part, given, found))
        # TensorFlow may leave out a read that nothing waits for.
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


def _is_opaque(arg: ArgInfo, given: Value) -> bool:
    """Whether the elements of an input say nothing of what it stands for."""
    return given.dtype == tf.variant or (arg.is_ref and given.dtype == tf.string)


def _reads_handles(node: ast.expr) -> bool:
    """Whether a condition depends on what variants or references stand for."""
    names = eager_checks.NAMES | {"divides", "matrix"}
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(is_call(call, name) for call in calls for name in names)


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
                values = flat_of(given[name])[: _MOST_PRINTED + 1]
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
        key: the shape of a key of a dense table that the graph makes, or None.
    """

    given: Mapping[str, Value]
    lengths: Mapping[str, int]
    known: Mapping[str, object]
    index: int | None
    settled: Collection[str]
    reads: Reads
    key: tf.Tensor | None

    def condition(self, node: ast.expr) -> Value:
        """A tensor; a bool if the graph knows the result; None if it is unknown."""
        try:
            return self.value(node)
        except UnknownError:
            return None

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                found = self.known.get(node.id)
                if found is None or (isinstance(found, tuple) and None in found):
                    raise UnknownError
                return found
            case ast.Tuple():
                return tuple(map(self.value, node.elts))
            case ast.BoolOp():
                return self.both(node)
            case ast.Compare():
                return self.compared(node)
            case ast.UnaryOp(op=ast.Not()):
                found = self.value(node.operand)
                return tf.logical_not(found) if is_tensor(found) else not found
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
        raise UnknownError

    def both(self, node: ast.BoolOp) -> Value:
        decides = isinstance(node.op, ast.Or)
        join = tf.logical_or if decides else tf.logical_and
        found: Value = not decides
        for each in node.values:
            one = self.value(each)
            if not is_tensor(one):
                if bool(one) is decides:
                    return decides
                continue
            found = join(found, one) if is_tensor(found) else one
        return found

    def compared(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        found: Value = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            one = _compared(op, left, right)
            if not is_tensor(one):
                if not one:
                    return False
            else:
                found = tf.logical_and(found, one) if is_tensor(found) else one
            left = right
        return found

    def computed(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if not is_tensor(left) and not is_tensor(right):
            return OPERATORS[type(node.op)].meaning(left, right)
        left, right = numbers_of(left, right)
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            return _divided(node.op, left, right)
        if isinstance(node.op, ast.Mult):
            return product_of(tf.stack([left, right]))
        return OPERATORS[type(node.op)].meaning(left, right)

    def chosen(self, node: ast.IfExp) -> Value:
        test = self.value(node.test)
        if not is_tensor(test):
            return self.value(node.body if test else node.orelse)
        body, orelse = self.value(node.body), self.value(node.orelse)
        if isinstance(body, bool) or (is_tensor(body) and body.dtype == tf.bool):
            return tf.where(test, body, orelse)
        return tf.where(test, *numbers_of(body, orelse))

    def part(self, node: ast.Subscript) -> Value:
        whole = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            parts = [None if part is None else self.value(part) for part in bounds]
            if not is_tensor(whole) and not any(map(is_tensor, parts)):
                return whole[slice(*parts)]
            return row_of(whole)[slice(*parts)]
        at = self.value(node.slice)
        if not is_tensor(whole) and not is_tensor(at):
            return whole[at]
        # A part that is missing is 0. Another condition says that it must be there.
        row = row_of(whole)
        length = tf.size(row, tf.int64)
        place = tf.cast(at, tf.int64)
        place = tf.where(place < 0, place + length, place)
        is_there = tf.logical_and(place >= 0, place < length)
        return tf.pad(row, [[0, 1]])[tf.where(is_there, place, length)]

    def called(self, node: ast.Call) -> Value:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == THREADS:
            return threads.can_start(self.value(node.args[0]))
        if name == TABLE:
            handle = self.tensor(node.args[0])
            dtypes = [*map(self.value, node.args[1:])]
            if handle.dtype != tf.resource:
                raise UnknownError
            if not resources.have_zeros(*dtypes):
                return self.in_python(name, [handle], *dtypes)
            self.reads.look_up(handle, *dtypes)
            return True
        if name == HOLDS:
            if input_named(node.args[0])[0] in self.settled:
                return True
            handle, dtype = self.tensor(node.args[0]), self.value(node.args[1])
            if handle.dtype == tf.variant:
                return self.in_python(name, [handle], dtype)
            self.reads.add(handle, dtype)
            return True
        if name == "importable" and self.key is not None:
            return fits_dense_table(self.key, self.tensor(node.args[1]))
        if name in eager_checks.NAMES:
            return self.in_python(name, [*map(self.tensor, node.args)])
        if name == "divides":
            return self.divides(*map(self.tensor, node.args))
        if name == "held":
            return _held(self.tensor(node.args[0]))
        if name == MEMORY:
            return self.memory(node)
        first = node.args[0]
        if name == CROSSES:
            lists = [self.given.get(input_named(each)[0], []) for each in node.args]
            return crosses_in_graph(*lists)
        if name == "nested":
            return nested_in_graph(self.given.get(input_named(first)[0], []))
        if name in OF_EQUATIONS:
            return self.of_list(name, input_named(first)[0], node.args[1])
        if name in JOINT:
            number = JOINT[name][0]
            tensors = [*map(self.tensor, node.args[:number])]
            return JOINT_IN_GRAPH[name](*tensors, *map(self.value, node.args[number:]))
        named, _ = input_named(first)
        if name == "len" and named in self.lengths:
            return self.lengths[named]
        if name in PROPERTIES and named in self.given:
            more = [self.value(each) for each in node.args[1:]]
            return self.property(name, self.tensor(first), more)
        found = [self.value(each) for each in node.args]
        if not any(map(is_tensor, found)):
            return _known(name, found)
        if name in OF_ROWS:
            return OF_ROWS[name](*found)
        raise UnknownError

    def in_python(self, name: str, tensors: Sequence[Value], *rest: Value) -> Value:
        if self.reads.compiled:
            raise UnknownError
        return eager_checks.holds(name, tensors, *rest)

    def divides(
        self, resource: tf.Tensor, indices: tf.Tensor, divisors: tf.Tensor
    ) -> Value:
        if divisors.dtype not in resources.DIVIDED:
            return True
        is_handle = resource.dtype == tf.resource
        variable = (
            self.reads.add(resource, divisors.dtype.name) if is_handle else resource
        )
        is_lowest = tf.equal(tf.gather(variable, indices), divisors.dtype.min)
        return tf.logical_not(tf.reduce_any(is_lowest & tf.equal(divisors, -1)))

    def tensor(self, node: ast.expr) -> Value:
        named, at = input_named(node)
        if named not in self.given:
            raise UnknownError
        found = self.given[named]
        if named not in self.lengths:
            return found
        at = self.index or 0 if at is None else at
        if not -len(found) <= at < len(found):
            raise UnknownError
        return found[at]

    def of_list(self, name: str, argument: str, text: ast.expr) -> Value:
        if argument not in self.given:
            raise UnknownError
        arguments = self.given[argument], self.value(text)
        found = requirements.of_list(name, *arguments)
        if found is None or (isinstance(found, tuple) and None in found):
            return graph_equations.FUNCTIONS[name](*arguments)
        return found

    def property(self, name: str, tensor: Value, more: Sequence[Value]) -> Value:
        static = requirements.static(name, tensor, tuple(more))
        if static is not None and not (isinstance(static, tuple) and None in static):
            return static
        if name not in PROPERTIES_IN_GRAPH:
            raise UnknownError
        return PROPERTIES_IN_GRAPH[name](tensor, *more)

    def memory(self, node: ast.Call) -> Value:
        dtype, *parts = map(self.value, node.args)
        total: Value = tf.constant(float(properties.bytes_of(dtype, ())), tf.float64)
        for part in parts:
            total *= tf.reduce_prod(cast(part, tf.float64))
        limit = memory.limit()
        return True if math.isinf(limit) else total <= limit


def _compared(op: ast.cmpop, left: Value, right: Value) -> Value:
    meaning = COMPARISONS[type(op)].meaning
    if not is_tensor(left) and not (
        any(map(is_tensor, right)) if isinstance(right, tuple) else is_tensor(right)
    ):
        return meaning(left, right)
    if isinstance(op, (ast.In, ast.NotIn)):
        among = tf.reduce_any([_compared(ast.Eq(), left, one) for one in right])
        return among if isinstance(op, ast.In) else tf.logical_not(among)
    is_row = any(
        isinstance(one, tuple) or one.shape.rank == 1
        for one in (left, right)
        if isinstance(one, tuple) or is_tensor(one)
    )
    if is_row:
        left, right = row_of(left), row_of(right)
        shared = tf.minimum(tf.size(left), tf.size(right))
        equal = tf.logical_and(
            tf.equal(tf.size(left), tf.size(right)),
            tf.reduce_all(tf.equal(left[:shared], right[:shared])),
        )
        return tf.logical_not(equal) if isinstance(op, ast.NotEq) else equal
    if isinstance(left, str) or isinstance(right, str):
        return meaning(left, right)
    left, right = numbers_of(left, right)
    if isinstance(op, ast.Eq):
        return tf.equal(left, right)
    return (
        tf.not_equal(left, right) if isinstance(op, ast.NotEq) else meaning(left, right)
    )


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
        raise UnknownError
    return functions[name](*found)
