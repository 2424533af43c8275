"""Runs an op, or adds it to a graph, if the fast path did not run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._binding import attrs as attr_values
from opwright_runtime._binding import convert, gradients
from opwright_runtime._binding.op_info import (
    ArgInfo,
    OpInfo,
    grouped,
    length_in,
    refused_attr,
)
from opwright_runtime._binding.scope import CHECKING, check_name
from opwright_runtime._internals import (
    context,
    core,
    eager_execute,
    execute,
    op_callbacks,
    ops,
)

if TYPE_CHECKING:
    from opwright_runtime._binding.scope import Scope

_NOTHING = nullcontext()
# After these errors the op has not run, because an input or attr must be converted
# first. The call is tried again.
_RETRIED = (core._FallbackException, TypeError)


Made: TypeAlias = "tuple[tf.Operation | None, Sequence[Any]]"
"""An op's operation, which is None in eager mode, and its outputs by argument."""


def make(
    info: OpInfo,
    scope: Scope,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    fast_path_error: Exception | None,
) -> Made:
    """Runs an op or adds it to a graph, if the fast path did not run it.

    Args:
        info: the op.
        scope: where the op goes.
        inputs: its inputs in order; a list input is a sequence.
        attrs: its attrs by name, without those that TensorFlow infers from inputs.
        fast_path_error: the exception of the fast path; None if it did not run.

    Raises:
        OpError: TensorFlow refuses the op, or an argument is wrong.
    """
    if fast_path_error is not None:
        # The caller's frame refers to the error, and the error's traceback refers to
        # the frame. Without this, the cycle would keep the inputs alive.
        fast_path_error.__traceback__ = None
    if info.absent:
        # The fast path always fails for an op with attrs that this TensorFlow lacks.
        attrs, fast_path_error = _present(info, attrs), None
    is_eager = scope.graph is None and context.executing_eagerly()
    graph = None if is_eager else scope.target(info.name)
    try:
        if fast_path_error is not None and not isinstance(fast_path_error, _RETRIED):
            raise fast_path_error
        if graph is None:
            return None, _run(info, scope, inputs, attrs)
        return _add(info, scope, graph, inputs, attrs)
    except errors.OpError:
        raise
    except RecursionError:
        from opwright_runtime._binding import nesting

        refused = nesting.refused(info, inputs, attrs)
        if refused is None:
            raise
        raise refused from None
    except Exception as error:
        # Ctrl-C interrupted TensorFlow while it created an exception of its own.
        if isinstance(error, RuntimeError) and "REPLACED BY KeyboardInterrupt" in str(
            error
        ):
            raise KeyboardInterrupt from None
        # It is imported here because only failing calls need it.
        from opwright_runtime._binding import diagnosis

        explanation = diagnosis.explain(error, info, inputs, attrs, graph)
        if explanation is error:
            raise
        raise explanation from explanation.__cause__


def _present(info: OpInfo, attrs: Mapping[str, object]) -> dict[str, object]:
    """The attrs that this TensorFlow has; the others must be at their defaults."""
    present = {}
    for name, value in attrs.items():
        attr = info.absent.get(name)
        if attr is None:
            present[name] = value
            continue
        try:
            attr.left(value)
        except attr_values.BadValueError as refused:
            raise errors.bad_argument(
                errors.OpOptionError,
                info.name,
                attr.python_name,
                value,
                refused.allowed,
            ) from None
    return present


def outputs_of(info: OpInfo, operation: tf.Operation) -> Sequence[Any]:
    """The outputs of an operation by argument: a tensor each, or a list of them."""
    return _by_argument(info, operation.outputs, partial(length_in, operation))


def _by_argument(
    info: OpInfo, flat: Sequence[tf.Tensor], length: Callable[[ArgInfo], int]
) -> Sequence[Any]:
    return [*grouped(info.outputs, flat, length)] if info.has_list_output else flat


def _normalised(info: OpInfo, attrs: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for name, value in attrs.items():
        attr = info.attr[name]
        try:
            values[name] = attr_values.whole(attr, value)
        except attr_values.BadValueError as refused:
            if value is errors.MISSING:
                # The diagnosis names what is missing in the order of the arguments.
                raise ValueError(f"{name} is missing") from None
            raise refused_attr(info, attr, value, refused) from None
    return values


def _run(
    info: OpInfo,
    scope: Scope,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
) -> Sequence[Any]:
    if info.has_ref:
        from opwright_runtime._binding import diagnosis

        raise diagnosis.graph_only(info)
    values = _normalised(info, attrs)
    with scope.entered(None) if scope._devices else _NOTHING:
        # The fast path would truncate numbers that do not fit their dtypes, so all
        # inputs are converted first.
        tensors = convert.tensors(info, inputs, eager=True)
        if info.requires:
            _check(info, tensors, values, eager=True)
        done = _run_fast(info, tensors, values)
        return _run_slowly(info, tensors, values) if done is None else done


def _check(
    info: OpInfo,
    tensors: Sequence[Any],
    attrs: Mapping[str, Any],
    *,
    eager: bool,
    checked: bool = False,
) -> None:
    """Refuses arguments that can end the process."""
    # It is imported here because few calls need it.
    from opwright_runtime._binding import requirements

    requirements.check(info, tensors, attrs, eager=eager, checked=checked)


def _run_fast(
    info: OpInfo, inputs: Sequence[Any], values: Mapping[str, Any]
) -> Sequence[Any] | None:
    """The outputs; None if the fast path cannot run the call."""
    sent = [item for pair in values.items() for item in pair]
    try:
        result = execute(context.context(), info.name, None, *inputs, *sent)
    except core._FallbackException:
        return None
    return (result,) if len(info.outputs) == 1 else result or ()


def _run_slowly(
    info: OpInfo, tensors: Sequence[Any], values: Mapping[str, Any]
) -> Sequence[Any]:
    """Runs a call with a tensor-valued attr or a symbolic input.

    The fast path cannot run such a call.
    """
    flat, inferred = convert.flattened(info, tensors)
    inferred.update(convert.dtypes(info, tensors))
    inferred.update(values)
    sent: list[Any] = []
    for attr in info.attrs:
        value = inferred.get(attr.name, attr.default)
        # Eager execution refuses tensor-valued attrs. A default need not be sent.
        if attr.kind != "tensor" or not attr_values.same_tensor(value, attr.default):
            sent += attr.name, attr_values.eager(attr.kind, value)
    length = partial(_length_of, inferred)
    count = sum(length(arg) if arg.is_list else 1 for arg in info.outputs)
    outputs = eager_execute.execute(
        info.name, count, flat, tuple(sent), context.context()
    )
    if count and eager_execute.must_record_gradient():
        eager_execute.record_gradient(info.name, flat, tuple(sent), outputs)
    return _by_argument(info, outputs if count else [], length)


def _length_of(inferred: Mapping[str, Any], arg: ArgInfo) -> int:
    if arg.count is not None:
        return int(inferred[arg.count])
    return len(inferred[arg.type_list_attr or ""])


def _add(
    info: OpInfo,
    scope: Scope,
    graph: Any,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
) -> Made:
    name = scope.op_name or info.name
    if scope.op_name is not None:
        check_name(scope, info.name, graph)
    flat, inferred = _symbolic(info, graph, inputs)
    is_current = scope.graph is None or graph is ops.get_default_graph()
    checked = bool(info.requires) and (scope.checked or CHECKING.get())
    is_plain = scope.plain and is_current and not checked
    if flat is not None and is_plain and not info.has_ref:
        if info.requires:
            _check(info, inputs, attrs, eager=False)
        operation = _create(info, graph, name, flat, inferred, attrs)
    else:
        operation = _create_within(info, scope, graph, name, inputs, attrs, checked)
    outputs = operation.outputs
    if op_callbacks.should_invoke_op_callbacks():
        outputs = _called_back(operation, outputs)
    if outputs and eager_execute.must_record_gradient():
        attrs_of = ((attr.name, operation.get_attr(attr.name)) for attr in info.attrs)
        recorded = tuple(item for pair in attrs_of for item in pair)
        eager_execute.record_gradient(info.name, operation.inputs, recorded, outputs)
    return operation, _by_argument(info, outputs, partial(length_in, operation))


def _symbolic(
    info: OpInfo, graph: Any, inputs: Sequence[Any]
) -> tuple[list[tf.Tensor] | None, dict[str, Any]]:
    """The inputs in a flat list if all are tensors of `graph`, and the lists' lengths.

    Such inputs need no conversion or capture, which would add nodes under the op's
    name.
    """
    inferred: dict[str, Any] = {}
    if graph._control_flow_context is not None:
        return None, inferred
    flat: list[Any] = []
    if info.has_list_input:
        for arg, value in zip(info.inputs, inputs, strict=True):
            if not arg.is_list:
                flat.append(value)
            elif isinstance(value, (list, tuple)):
                flat += value
            else:
                return None, inferred
    else:
        flat += inputs
    symbolic = ops.SymbolicTensor
    for tensor in flat:
        if type(tensor) is not symbolic or tensor.graph is not graph:
            return None, inferred
    if info.has_list_input:
        _, inferred = convert.flattened(info, inputs)
    return flat, inferred


def _create_within(
    info: OpInfo,
    scope: Scope,
    graph: Any,
    name: str,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    checked: bool,
) -> Any:
    """Adds an op to a graph like `_create`, for inputs that have to be converted.

    It also enters the context of the scope. If `checked`, it adds the op's conditions,
    on which the op depends.
    """
    if not graph.building_function:
        # As in TensorFlow, the op goes to the graph of its inputs. A bound scope must
        # be bound to the same graph.
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
        # Conversion adds constants and captures, whose names begin with the op's name.
        name = stack.enter_context(graph.name_scope(name))
        tensors = convert.tensors(info, inputs, eager=False)
        if info.requires:
            _check(info, tensors, attrs, eager=False, checked=checked)
        if checked:
            # It is imported here because few programs need it.
            from opwright_runtime._binding import assertions

            added = assertions.add(info, tensors, attrs)
            stack.enter_context(graph.control_dependencies(added))
        flat, inferred = convert.flattened(info, tensors)
        # The flat list may be longer than the list of arguments. TensorFlow's own
        # builder pairs the two in the same way.
        for arg, tensor in zip(info.inputs, flat, strict=False):
            if arg.is_ref:
                stack.enter_context(ops.colocate_with(tensor))
        return _create(info, graph, name, flat, inferred, attrs)


def _create(
    info: OpInfo,
    graph: Any,
    name: str,
    flat: Sequence[tf.Tensor],
    inferred: Mapping[str, Any],
    attrs: Mapping[str, Any],
) -> Any:
    if info.deprecated is not None:
        producer = graph.graph_def_versions.producer
        if producer >= info.deprecated.version:
            from opwright_runtime._binding import diagnosis

            raise diagnosis.removed(info.name, info.deprecated, producer)
    # Only other attrs are sent: TensorFlow's C++ code fills in defaults and the dtypes
    # that follow from inputs.
    protos = {}
    for attr_name, value in inferred.items():
        protos[attr_name] = attr_values.proto(info.attr[attr_name].kind, value)
    # The values of most attrs are the default object itself. Comparing with `is` is
    # faster than normalising them.
    changed = {
        attr_name: value
        for attr_name, value in attrs.items()
        if value is None or value is not info.attr[attr_name].default
    }
    for attr_name, value in _normalised(info, changed).items():
        attr = info.attr[attr_name]
        if not attr_values.is_default(attr, value):
            protos[attr_name] = attr_values.proto(attr.kind, value)
    operation = graph._create_op_internal(
        info.name, flat, name=name, attrs=protos, op_def=info.proto
    )
    gradients.explain_in_graph(operation)
    return operation


def _called_back(operation: Any, outputs: Any) -> Any:
    """The outputs that TensorFlow's debugger or `enable_check_numerics` returns."""
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
