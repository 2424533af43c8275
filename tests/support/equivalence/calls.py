"""Calling one op by its OpDef's names, through TensorFlow's own wrappers or opwright.

A call takes the inputs and attrs by their names in the OpDef. It gives the operation,
or None where that ran at once, and one value per output of the OpDef: a tensor, or a
list of tensors for a list.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow.compiler.jit.ops import xla_ops
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.distribute.experimental.rpc.kernels import gen_rpc_ops
from tensorflow.lite.experimental.microfrontend.ops import gen_audio_microfrontend_op
from tensorflow.python.eager import execute
from tensorflow.python.framework import op_def_library

import opwright
from support.equivalence.registry import given, has_default, op_def

Arguments = Mapping[str, Any]

# Where TensorFlow keeps the wrappers it generates for itself; most are in raw_ops.
MODULES = (
    tf.raw_ops,
    gen_xla_ops,
    xla_ops,
    gen_rpc_ops,
    gen_audio_microfrontend_op,
)

# raw_ops renames these arguments.
REDUCTIONS = "All Any EuclideanNorm Max Mean Min Prod Sum"
RENAMED = {
    **{op: {"reduction_indices": "axis"} for op in REDUCTIONS.split()},
    "ExpandDims": {"dim": "axis"},
    "Select": {"t": "x", "e": "y"},
    "Split": {"split_dim": "axis"},
    "SplitV": {"split_dim": "axis"},
    "Squeeze": {"squeeze_dims": "axis"},
    "Where": {"input": "condition"},
}


@dataclass(frozen=True)
class Called:
    """What one call of an op gave."""

    operation: tf.Operation | None
    outputs: list[Any]


Call = Callable[[str, Arguments], Called]


def call_tensorflow(name: str, arguments: Arguments) -> Called:
    """Calls an op through `tf.raw_ops`, or as near to it as TensorFlow has."""
    renamed = RENAMED.get(name, {})
    for module in MODULES:
        if wrapper := getattr(module, name, None):
            result = wrapper(**{renamed.get(k, k): v for k, v in arguments.items()})
            return _unpacked(name, result)
    if not tf.executing_eagerly():
        called = build(name, arguments)
        _record(called.operation)
        return called
    run = tf.function(lambda: build(name, arguments).outputs, autograph=False)
    return Called(None, run())


def build(name: str, arguments: Arguments, node_name: str | None = None) -> Called:
    """Adds an op to the graph with TensorFlow's own builder."""
    defaults = {attr.name: None for attr in given(op_def(name)) if has_default(attr)}
    *_, operation, _ = op_def_library._apply_op_helper(
        name, name=node_name, **{**defaults, **arguments}
    )
    return Called(operation, grouped(operation))


def grouped(operation: tf.Operation) -> list[Any]:
    """The outputs of a graph's operation, one value per output of its OpDef."""
    tensors = iter(operation.outputs)
    values: list[Any] = []
    for arg in op_def(operation.type).output_arg:
        if arg.number_attr:
            count = operation.get_attr(arg.number_attr)
        elif arg.type_list_attr:
            count = len(operation.get_attr(arg.type_list_attr))
        else:
            values.append(next(tensors))
            continue
        values.append([next(tensors) for _ in range(count)])
    return values


def _record(operation: tf.Operation) -> None:
    """Tells the tapes of an operation, as wrappers do and the builder does not."""
    if execute.must_record_gradient():
        names = [attr.name for attr in op_def(operation.type).attr]
        attrs = [part for name in names for part in (name, operation.get_attr(name))]
        execute.record_gradient(
            operation.type, operation.inputs, attrs, operation.outputs
        )


def _unpacked(name: str, result: Any) -> Called:
    """What a wrapper of TensorFlow's gave, which depends on the number of outputs."""
    args = op_def(name).output_arg
    if isinstance(result, tf.Operation):  # nothing came out: no output, or empty lists
        return Called(result, [[] for _ in args])
    outputs = [result][: len(args)] if len(args) < 2 else list(result)
    if tf.executing_eagerly():
        return Called(None, outputs)
    tensors = tf.nest.flatten(outputs)
    made = tf.compat.v1.get_default_graph().get_operations()[-1]
    return Called(tensors[0].op if tensors else made, outputs)


def call_opwright(
    name: str, arguments: Arguments, node_name: str | None = None
) -> Called:
    """Calls an op through the `create` of its class."""
    op_class = opwright.op_class(name)
    inputs, required, dtypes, options = _sorted_out(op_class, arguments)
    given = [op_class.Options(**options)] if options else []
    scope = opwright.Scope.current(node_name)
    op = op_class.create(scope, *inputs.values(), *required.values(), *given, **dtypes)
    return _made(op)


def call_opwright_function(
    name: str, arguments: Arguments, node_name: str | None = None
) -> Called:
    """Calls an op through the function that goes with its class."""
    op_class = opwright.op_class(name)
    module = sys.modules[op_class.__module__]
    *_, function = module.__all__
    inputs, *attrs = _sorted_out(op_class, arguments)
    keywords = {k: v for each in attrs for k, v in each.items()}
    result = getattr(module, function)(*inputs.values(), **keywords, name=node_name)
    return _unpacked(name, result)


def _sorted_out(op_class: Any, arguments: Arguments) -> list[dict[str, Any]]:
    """Inputs, required attrs, dtypes with a default, and options, by Python names."""
    python_names = op_class.PYTHON_NAMES
    return [
        {
            python_names.get(name, name): arguments[name]
            for name in group
            if name in arguments
        }
        for group in _groups(op_class.OP_NAME)
    ]


@cache
def _groups(name: str) -> list[list[str]]:
    """The names of an op's inputs and attrs, as `_sorted_out` returns them."""
    definition = op_def(name)
    attrs = given(definition)
    return [
        [arg.name for arg in definition.input_arg],
        [attr.name for attr in attrs if not has_default(attr)],
        [attr.name for attr in attrs if has_default(attr) and attr.type == "type"],
        [attr.name for attr in attrs if has_default(attr) and attr.type != "type"],
    ]


def _made(op: Any) -> Called:
    names = [arg.name for arg in op_def(op.OP_NAME).output_arg]
    outputs = [getattr(op, op.PYTHON_NAMES.get(name, name)) for name in names]
    return Called(None if tf.executing_eagerly() else op.op, outputs)
