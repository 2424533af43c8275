"""From an op's arguments to its outputs: eager execution and graph building."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context as context
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager.core import _FallbackException
from tensorflow.python.framework import op_callbacks, ops
from tensorflow.python.framework.ops import SymbolicTensor

from opwright_runtime import attrs as attr_values
from opwright_runtime import convert, errors
from opwright_runtime.opdef import ArgInfo, OpInfo, grouped, length_in
from opwright_runtime.scope import Scope
from opwright_runtime.scope import graphs as graphs

if TYPE_CHECKING:
    import tensorflow as tf

    from opwright_runtime.op import Op

execute = pywrap_tfe.TFE_Py_FastPathExecute
"""Runs an op at once. It raises where it needs the inputs to be tensors first."""


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
        OpError: TensorFlow refused the op.
    """
    info = type(op)._info()
    try:
        if refusal is not None and not isinstance(refusal, _FallbackException):
            raise refusal
        if scope.graph is None and context.executing_eagerly():
            _run(op, info, scope, inputs, attrs, refusal)
        else:
            _add(op, info, scope, inputs, attrs)
    except errors.OpError:
        raise
    except Exception as error:
        # Here and not above: a program without errors never imports it.
        from opwright_runtime import diagnosis

        raise diagnosis.explained(error, info, inputs, attrs) from error


def _normalised(info: OpInfo, attrs: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for name, value in attrs.items():
        attr = info.attr[name]
        try:
            values[name] = attr_values.normalised(attr.kind, value)
        except attr_values.Refused as refused:
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
        raise errors.make(
            errors.OpModeError,
            info.name,
            f"{info.name}: its ref inputs or outputs exist in graphs only; make it in "
            "a tf.Graph",
        )
    if scope._devices:
        with scope.entered(None):
            _run_here(op, info, inputs, attrs, refusal)
    else:
        _run_here(op, info, inputs, attrs, refusal)


def _run_here(
    op: Op,
    info: OpInfo,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    refusal: Exception | None,
) -> None:
    values = _normalised(info, attrs)
    if refusal is None and _run_fast(op, info, inputs, values):
        return
    flat, settled = convert.inferred(info, inputs, eager=True)
    settled.update(values)
    sent: list[Any] = []
    for attr in info.attrs:
        value = settled.get(attr.name, attr.default)
        # Eager execution knows no tensor-valued attrs; a default need not be sent.
        if attr.kind != "tensor" or not attr_values.same_tensor(value, attr.default):
            sent += attr.name, attr_values.eager(attr.kind, value)
    length = partial(_length_of, settled)
    count = sum(length(arg) if arg.is_list else 1 for arg in info.outputs)
    outputs = _execute.execute(info.name, count, flat, tuple(sent), context.context())
    if count and _execute.must_record_gradient():
        _execute.record_gradient(info.name, flat, tuple(sent), outputs)
    fill(op, info, outputs if count else [], length)


def _run_fast(
    op: Op, info: OpInfo, inputs: Sequence[Any], values: Mapping[str, Any]
) -> bool:
    sent = [item for pair in values.items() for item in pair]
    try:
        result = execute(context.context(), info.name, None, *inputs, *sent)
    except _FallbackException:
        return False
    results = [result] if len(info.outputs) == 1 else result or []
    for slot, output in zip(type(op).__slots__, results):
        setattr(op, slot, output)
    return True


def _length_of(settled: Mapping[str, Any], arg: ArgInfo) -> int:
    if arg.count is not None:
        return int(settled[arg.count])
    return len(settled[arg.type_list_attr or ""])


def fill(
    op: Op, info: OpInfo, flat: Sequence[tf.Tensor], length: Callable[[ArgInfo], int]
) -> None:
    """Puts outputs into the op's slots, which have their order."""
    for slot, output in zip(type(op).__slots__, grouped(info.outputs, flat, length)):
        setattr(op, slot, output)


def _add(
    op: Op,
    info: OpInfo,
    scope: Scope,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
) -> None:
    graph = scope.target(info.name)
    flat, settled = _symbolic(info, graph, inputs)
    if flat is None and not graph.building_function:
        values = [
            v for i in inputs for v in (i if isinstance(i, (list, tuple)) else [i])
        ]
        graph = ops._get_graph_from_inputs(values, scope.graph)
    with ExitStack() as stack:
        if graph is not ops.get_default_graph():
            stack.enter_context(graph.as_default())
        if not scope.plain:
            stack.enter_context(scope.entered(graph))
        if info.deprecated is not None:
            _refuse_removed(info, graph)
        name = scope._name or info.name
        if flat is None:
            # Constants and captures that conversion makes go by the op's name.
            name = stack.enter_context(graph.name_scope(name))
            flat, settled = convert.inferred(info, inputs, eager=False)
        protos = _protos(info, settled, attrs)
        if info.has_ref:
            # As TensorFlow's own builder pairs them, lists or not.
            for arg, tensor in zip(info.inputs, flat):
                if arg.is_ref:
                    stack.enter_context(ops.colocate_with(tensor))
        operation = graph._create_op_internal(
            info.name, flat, name=name, attrs=protos, op_def=info.proto
        )
    op._operation = operation
    outputs = operation.outputs
    if op_callbacks.should_invoke_op_callbacks():
        outputs = _called_back(graph, operation, outputs)
    if outputs and _execute.must_record_gradient():
        _execute.record_gradient(
            info.name, operation.inputs, _recorded(info, operation), outputs
        )
    fill(op, info, outputs, partial(length_in, operation))


def _symbolic(
    info: OpInfo, graph: Any, inputs: Sequence[Any]
) -> tuple[list[tf.Tensor] | None, dict[str, Any]]:
    """The inputs in one flat list if all are tensors of `graph`, else None.

    Nothing else needs a conversion or makes further nodes under the op's name.
    """
    settled: dict[str, Any] = {}
    if graph._control_flow_context is not None:
        return None, settled
    flat: list[Any] = []
    if info.has_list:
        for arg, value in zip(info.inputs, inputs):
            if not arg.is_list:
                flat.append(value)
                continue
            if type(value) is not list and type(value) is not tuple:
                return None, settled
            flat += value
            if arg.count is None:
                types = [getattr(one, "dtype", None) for one in value]
                settled[arg.type_list_attr or ""] = tuple(
                    dtype and dtype.base_dtype for dtype in types
                )
            elif settled.setdefault(arg.count, len(value)) != len(value):
                return None, settled
    else:
        flat += inputs
    for tensor in flat:
        if type(tensor) is not SymbolicTensor or tensor.graph is not graph:
            return None, settled
    return flat, settled


def _protos(
    info: OpInfo, settled: Mapping[str, Any], attrs: Mapping[str, Any]
) -> dict[str, Any]:
    """The attrs to send: TensorFlow's C++ fills in defaults and inferred dtypes."""
    protos = {}
    for name, value in settled.items():
        kind = info.attr[name].kind
        if kind != "type":
            protos[name] = attr_values.proto(kind, value)
    for name, value in _normalised(info, attrs).items():
        attr = info.attr[name]
        if not attr_values.is_default(attr, value):
            protos[name] = attr_values.proto(attr.kind, value)
    return protos


def _refuse_removed(info: OpInfo, graph: Any) -> None:
    assert info.deprecated is not None
    producer = graph.graph_def_versions.producer
    if producer >= info.deprecated.version:
        raise errors.removed(info.name, info.deprecated, producer)


def _called_back(graph: Any, operation: Any, outputs: Any) -> Any:
    node_def = operation.node_def
    changed = op_callbacks.invoke_op_callbacks(
        node_def.op,
        tuple(operation.inputs),
        dict(node_def.attr),
        tuple(outputs),
        op_name=operation.name,
        graph=graph,
    )
    return outputs if changed is None else changed


def _recorded(info: OpInfo, operation: Any) -> tuple[Any, ...]:
    """The attrs of a graph's operation as the tape takes them."""
    pairs = ((attr.name, operation.get_attr(attr.name)) for attr in info.attrs)
    return tuple(item for pair in pairs for item in pair)
