"""From an op's arguments to its outputs: eager execution and graph building."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from opwright_runtime import attrs as attr_values
from opwright_runtime import convert, errors, internals
from opwright_runtime.internals import core, eager_execute, op_callbacks, ops
from opwright_runtime.opdef import ArgInfo, OpInfo, grouped, length_in
from opwright_runtime.scope import graphs as graphs

if TYPE_CHECKING:
    from opwright_runtime.op import Op
    from opwright_runtime.scope import Scope

context = internals.context
"""TensorFlow's module of the eager context."""

execute = internals.fast_path_execute
"""Runs an op at once. It raises where it needs the inputs to be tensors first."""

_NOTHING = nullcontext()


def build(
    op: Op,
    scope: Scope,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    refusal: Exception | None,
) -> None:
    """Makes an op where the bare fast path did not, and fills its outputs.

    Args:
        op: the op, hollow yet.
        scope: where it goes.
        inputs: its inputs in order, a sequence for each that is a list.
        attrs: its attrs by name, but for those that the inputs settle.
        refusal: what the fast path said, if it was tried.

    Raises:
        OpError: the op was refused.
    """
    if refusal is not None:
        # The caller's frame holds it, and it would hold that: a cycle for each call.
        refusal.__traceback__ = None
    info = type(op)._info()
    is_eager = scope.graph is None and context.executing_eagerly()
    graph = None if is_eager else scope.target(info.name)
    try:
        if refusal is not None and not isinstance(refusal, core._FallbackException):
            raise refusal
        if graph is None:
            _run(op, info, scope, inputs, attrs, refusal)
        else:
            _add(op, info, scope, graph, inputs, attrs)
    except errors.OpError:
        raise
    except Exception as error:
        # A program without errors never imports it.
        from opwright_runtime import diagnosis

        explained = diagnosis.explained(error, info, inputs, attrs, graph)
        if explained is error:
            raise
        raise explained from explained.__cause__


def fill(
    op: Op, info: OpInfo, flat: Sequence[tf.Tensor], length: Callable[[ArgInfo], int]
) -> None:
    """Puts outputs into the op's slots, which have their order."""
    values: Iterable[object] = flat
    if info.has_list_output:
        values = grouped(info.outputs, flat, length)
    for slot, output in zip(type(op).__slots__, values, strict=True):
        setattr(op, slot, output)


def _normalised(info: OpInfo, attrs: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for name, value in attrs.items():
        attr = info.attr[name]
        try:
            values[name] = attr_values.normalised(attr.kind, value, attr.message)
        except attr_values.RefusedError as refused:
            # Options were checked when they were made: this is an argument.
            raise errors.refused(
                errors.OpAttrError, info.name, attr.python_name, value, refused.allowed
            ) from None
    return values


def _run(
    op: Op,
    info: OpInfo,
    scope: Scope,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    refusal: Exception | None,
) -> None:
    if info.has_ref:
        from opwright_runtime import diagnosis

        raise diagnosis.graph_only(info)
    values = _normalised(info, attrs)
    with scope.entered(None) if scope._devices else _NOTHING:
        if refusal is None and _run_fast(op, info, inputs, values):
            return
        tensors = convert.tensors(info, inputs, eager=True)
        if not _run_fast(op, info, tensors, values):
            _run_slowly(op, info, tensors, values)


def _run_fast(
    op: Op, info: OpInfo, inputs: Sequence[Any], values: Mapping[str, Any]
) -> bool:
    """Whether the fast path took the call."""
    sent = [item for pair in values.items() for item in pair]
    try:
        result = execute(context.context(), info.name, None, *inputs, *sent)
    except core._FallbackException:
        return False
    slots = type(op).__slots__
    if len(slots) == 1:
        setattr(op, slots[0], result)
    else:
        for slot, output in zip(slots, result or (), strict=True):
            setattr(op, slot, output)
    return True


def _run_slowly(
    op: Op, info: OpInfo, tensors: Sequence[Any], values: Mapping[str, Any]
) -> None:
    """For what the fast path cannot carry: a tensor-valued attr, a symbolic input."""
    flat, settled = convert.flattened(info, tensors)
    settled.update(values)
    sent: list[Any] = []
    for attr in info.attrs:
        value = settled.get(attr.name, attr.default)
        # Eager execution knows no tensor-valued attrs; a default need not be sent.
        if attr.kind != "tensor" or not attr_values.same_tensor(value, attr.default):
            sent += attr.name, attr_values.eager(attr.kind, value)
    length = partial(_length_of, settled)
    count = sum(length(arg) if arg.is_list else 1 for arg in info.outputs)
    outputs = eager_execute.execute(
        info.name, count, flat, tuple(sent), context.context()
    )
    if count and eager_execute.must_record_gradient():
        eager_execute.record_gradient(info.name, flat, tuple(sent), outputs)
    fill(op, info, outputs if count else [], length)


def _length_of(settled: Mapping[str, Any], arg: ArgInfo) -> int:
    if arg.count is not None:
        return int(settled[arg.count])
    return len(settled[arg.type_list_attr or ""])


def _add(
    op: Op,
    info: OpInfo,
    scope: Scope,
    graph: Any,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
) -> None:
    name = scope.op_name or info.name
    flat, settled = _symbolic(info, graph, inputs)
    if (
        flat is None
        or not scope.plain
        or info.has_ref
        or graph is not ops.get_default_graph()
    ):
        operation = _create_within(info, scope, graph, name, inputs, attrs)
    else:
        operation = _create(info, graph, name, flat, settled, attrs)
    op._operation = operation
    outputs = operation.outputs
    if op_callbacks.should_invoke_op_callbacks():
        outputs = _called_back(operation, outputs)
    if outputs and eager_execute.must_record_gradient():
        attrs_of = ((attr.name, operation.get_attr(attr.name)) for attr in info.attrs)
        recorded = tuple(item for pair in attrs_of for item in pair)
        eager_execute.record_gradient(info.name, operation.inputs, recorded, outputs)
    fill(op, info, outputs, partial(length_in, operation))


def _symbolic(
    info: OpInfo, graph: Any, inputs: Sequence[Any]
) -> tuple[list[tf.Tensor] | None, dict[str, Any]]:
    """The inputs in one flat list if all are tensors of `graph`, and their lengths.

    Then nothing is left to convert or capture, which would make more nodes under the
    op's name.
    """
    settled: dict[str, Any] = {}
    if graph._control_flow_context is not None:
        return None, settled
    flat: list[Any] = []
    if info.has_list_input:
        for arg, value in zip(info.inputs, inputs, strict=True):
            if not arg.is_list:
                flat.append(value)
            elif isinstance(value, (list, tuple)):
                flat += value
            else:
                return None, settled
    else:
        flat += inputs
    symbolic = ops.SymbolicTensor
    for tensor in flat:
        if type(tensor) is not symbolic or tensor.graph is not graph:
            return None, settled
    if info.has_list_input:
        _, settled = convert.flattened(info, inputs)
    return flat, settled


def _create_within(
    info: OpInfo,
    scope: Scope,
    graph: Any,
    name: str,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
) -> Any:
    """`_create` with all that the scope and the conversion of inputs set up."""
    if not graph.building_function:
        # As TensorFlow does, go where the inputs are; a bound scope must agree.
        values = [
            one
            for value in inputs
            for one in (value if isinstance(value, (list, tuple)) else [value])
        ]
        graph = ops._get_graph_from_inputs(values, scope.graph)
    with ExitStack() as stack:
        if graph is not ops.get_default_graph():
            stack.enter_context(graph.as_default())
        stack.enter_context(scope.entered(graph))
        # Constants and captures that conversion makes go by the op's name.
        name = stack.enter_context(graph.name_scope(name))
        tensors = convert.tensors(info, inputs, eager=False)
        flat, settled = convert.flattened(info, tensors)
        # Pairs a flat list with arguments as TensorFlow's own builder does.
        for arg, tensor in zip(info.inputs, flat, strict=False):
            if arg.is_ref:
                stack.enter_context(ops.colocate_with(tensor))
        return _create(info, graph, name, flat, settled, attrs)


def _create(
    info: OpInfo,
    graph: Any,
    name: str,
    flat: Sequence[tf.Tensor],
    settled: Mapping[str, Any],
    attrs: Mapping[str, Any],
) -> Any:
    if info.deprecated is not None:
        producer = graph.graph_def_versions.producer
        if producer >= info.deprecated.version:
            raise errors.removed(info.name, info.deprecated, producer)
    # TensorFlow's C++ fills in defaults and the dtypes that inputs settle.
    protos = {}
    for attr_name, value in settled.items():
        kind = info.attr[attr_name].kind
        if kind != "type":
            protos[attr_name] = attr_values.proto(kind, value)
    for attr_name, value in _normalised(info, attrs).items():
        attr = info.attr[attr_name]
        if not attr_values.is_default(attr, value):
            protos[attr_name] = attr_values.proto(attr.kind, value)
    return graph._create_op_internal(
        info.name, flat, name=name, attrs=protos, op_def=info.proto
    )


def _called_back(operation: Any, outputs: Any) -> Any:
    """Outputs as TensorFlow's debugger and `enable_check_numerics` replace them."""
    node_def = operation.node_def
    changed = op_callbacks.invoke_op_callbacks(
        node_def.op,
        tuple(operation.inputs),
        dict(node_def.attr),
        tuple(outputs),
        op_name=operation.name,
        graph=operation.graph,
    )
    return outputs if changed is None else changed
