"""Arguments for any op, made from its OpDef: enough to add the op to a graph.

Inputs are placeholders of unknown shape. What an op's shape function needs beyond the
OpDef stands in `hints`.
"""

from functools import cache
from typing import Any

import tensorflow as tf

from support.equivalence.hints import HINTS, NEEDED
from support.equivalence.registry import AttrDef, OpDef, given, has_default


def arguments(op: OpDef, *, options: bool) -> dict[str, Any]:
    """Inputs and attrs for `op` by name, to be used in the current graph.

    Args:
        options: whether to give optional attrs, at other values than their defaults
            where the op allows that, and to choose other values for the rest too.
    """
    hints = HINTS.get(op.name, {})
    attrs = {
        attr.name: hints[attr.name] if attr.name in hints else _value(attr, options)
        for attr in op.attr
    }
    inputs = {
        arg.name: hints[arg.name]() if arg.name in hints else _input(arg, attrs)
        for arg in op.input_arg
    }
    wanted = [
        attr
        for attr in given(op)
        if options or not has_default(attr) or attr.name in NEEDED.get(op.name, ())
    ]
    return {**inputs, **{attr.name: attrs[attr.name] for attr in wanted}}


def _input(arg: OpDef.ArgDef, attrs: dict[str, Any]) -> Any:
    if arg.type_list_attr:
        return [_tensor(dtype, arg.is_ref) for dtype in attrs[arg.type_list_attr]]
    dtype = attrs[arg.type_attr] if arg.type_attr else tf.as_dtype(arg.type)
    if arg.number_attr:
        return [_tensor(dtype, arg.is_ref) for _ in range(attrs[arg.number_attr])]
    return _tensor(dtype, arg.is_ref)


def _tensor(dtype: tf.DType, is_ref: bool) -> tf.Tensor:
    dtype = dtype.base_dtype
    if not is_ref:
        return tf.compat.v1.placeholder(dtype)
    # A handle is a container's name and the thing's.
    shape = [2] if dtype == tf.string else None
    return tf.raw_ops.VariableV2(shape=shape, dtype=dtype)


def _value(attr: AttrDef, other: bool) -> Any:
    """A value for the attr that is not its default."""
    kind = attr.type.removeprefix("list(").removesuffix(")")
    values = _allowed(attr, kind) or _values(attr, kind)
    if kind != attr.type:
        count = max(attr.minimum, 2)
        return [values[(index + other) % len(values)] for index in range(count)]
    if has_default(attr):
        default = _default(attr)
        values = [value for value in values if value != default] or [default]
    return values[-1 if other else 0]


def _allowed(attr: AttrDef, kind: str) -> list[Any]:
    allowed = attr.allowed_values.list
    if kind == "type":
        # The float first: every shape function knows it.
        dtypes = [tf.as_dtype(each) for each in allowed.type]
        return sorted(dtypes, key=lambda dtype: dtype != tf.float32)
    return [each.decode() for each in allowed.s]


def _values(attr: AttrDef, kind: str) -> list[Any]:
    low = attr.minimum if attr.has_minimum else 1
    return {
        "int": [low + 1, low + 2],
        "float": [0.5, 0.25],
        "bool": [True, False],
        "string": ["text", "more text"],
        "type": [tf.float32, tf.int32],
        "shape": [tf.TensorShape([2, None]), tf.TensorShape(None)],
        "tensor": [tf.make_tensor_proto([0.5]), tf.make_tensor_proto([1.5, 2.5])],
        "func": [_function()],
    }[kind]


def _default(attr: AttrDef) -> Any:
    value = attr.default_value
    kind = value.WhichOneof("value")
    if kind == "s":
        return value.s.decode()
    if kind == "type":
        return tf.as_dtype(value.type)
    if kind == "shape":
        return tf.TensorShape(value.shape)
    return getattr(value, kind)


@cache
def _function() -> Any:
    with tf.init_scope():
        identity = tf.function(lambda x: x, autograph=False)
        return identity.get_concrete_function(tf.TensorSpec([], tf.float32))
