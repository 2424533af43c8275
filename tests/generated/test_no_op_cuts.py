"""No op takes a number that its input's dtype cannot hold, eagerly or in a function.

The calls are refused before anything runs: so inputs are zeros, whatever ops want.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import OpError
from support.equivalence import calls, synthesis
from support.equivalence.registry import OpDef, op_def
from support.grouped import check_each, every_op_by_group
from support.tiers import part_of
from support.versions import later

DTYPES = (tf.int8, tf.uint8, tf.int32, tf.int64, tf.uint64)


def too_large(dtype: tf.DType) -> list[Any]:
    """What an input of `dtype` cannot hold, as Python and NumPy have it."""
    if dtype == tf.uint64:
        return [-1, [-1], np.array([-1]), np.array([0.5])]
    if dtype == tf.int64:
        return [2**63, [2**63], np.array([2**63], np.uint64), np.array([0.5])]
    one = dtype.max + 1
    return [one, -one - 1, [0, one], np.array([one]), np.int64(one), np.array([0.5])]


@cache
def zero(dtype: tf.DType) -> Any:
    """A tensor; one that no op can do harm with."""
    if dtype == tf.resource:
        return tf.raw_ops.AnonymousIterator(output_types=[tf.int32], output_shapes=[[]])
    if dtype == tf.variant:
        return tf.raw_ops.EmptyTensorList(
            element_shape=-1, max_num_elements=0, element_dtype=tf.int32
        )
    if dtype.is_quantized:
        return tf.bitcast(tf.zeros([1], f"{dtype.name[1:]}"), dtype)
    return tf.zeros([1], dtype)


def shared(op: OpDef, arg: Any) -> bool:
    """Whether other tensors decide on the dtype of a plain value for `arg`."""
    same = [one for one in op.input_arg if one.type_attr == arg.type_attr]
    return len(same) > 1 or bool(arg.number_attr)


def dtypes_of(op: OpDef, arg: Any) -> list[tf.DType]:
    """The integer dtypes that an input may be made to have."""
    if arg.type_list_attr or arg.is_ref:
        return []
    truncated = opwright.op_class(op.name).TRUNCATED.get(arg.name)
    if truncated is not None:
        return [tf.as_dtype(truncated)]
    if not arg.type_attr:
        dtype = tf.as_dtype(arg.type)
        return [dtype] if dtype.is_integer else []
    if not shared(op, arg):
        return []
    (attr,) = (attr for attr in op.attr if attr.name == arg.type_attr)
    allowed = [tf.as_dtype(one) for one in attr.allowed_values.list.type]
    found = [one for one in DTYPES if not allowed or one in allowed]
    if any(one.is_ref for one in op.input_arg) and not later("2.22"):
        # TensorFlow 2.22.0rc0 ends the process for -1. opwright looks at the numbers of
        # all ops before, but not at those of ops with refs, which exist in graphs only.
        found = [one for one in found if one != tf.uint64]
    return found


def bad_calls(op: OpDef) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Which input is too large, and the arguments, made for each of its dtypes."""
    with tf.Graph().as_default():
        given = synthesis.arguments(op, options=False)
    inputs = {arg.name for arg in op.input_arg}
    attrs = {name: value for name, value in given.items() if name not in inputs}
    for arg in op.input_arg:
        for dtype in dtypes_of(op, arg):
            tensors = {
                other.name: _tensors(
                    given[other.name],
                    (
                        dtype
                        if arg.type_attr and other.type_attr == arg.type_attr
                        else None
                    ),
                )
                for other in op.input_arg
            }
            for value in too_large(dtype):
                bad: Any = value
                if arg.number_attr:
                    bad = [zero(dtype)] * (len(given[arg.name]) - 1) + [value]
                    if arg.type_attr and len(bad) == 1:
                        continue
                yield arg.name, value, {**tensors, arg.name: bad, **attrs}


def _tensors(placeholder: Any, dtype: tf.DType | None) -> Any:
    if isinstance(placeholder, list):
        return [_tensors(one, dtype) for one in placeholder]
    return zero(dtype or placeholder.dtype.base_dtype)


def refused(name: str, arguments: calls.Arguments) -> str:
    """What is said of a call, by the class and by the function."""
    said = set()
    for call in (calls.call_opwright, calls.call_opwright_function):
        try:
            call(name, arguments)
        except OpError as error:
            said.add(str(error))
        else:
            return "nothing: it is taken"
    return " / ".join(sorted(said))


def in_function(name: str, arguments: calls.Arguments) -> str:
    found = []
    traced = tf.function(
        lambda: found.append(refused(name, arguments)), autograph=False
    )
    traced.get_concrete_function()
    return found[0]


@pytest.mark.partial
@every_op_by_group()
def test_op_input_that_does_not_fit_is_refused(names: list[str]) -> None:
    def check(name: str) -> None:
        op = op_def(name)
        is_odd = any(arg.is_ref for arg in (*op.input_arg, *op.output_arg))
        is_odd |= op.deprecation.version > 0
        for argument, value, arguments in bad_calls(op):
            for said in (refused(name, arguments), in_function(name, arguments)):
                assert said != "nothing: it is taken", (argument, value)
                assert is_odd or "does not fit" in said, (argument, value, said)

    check_each(part_of(names), check)
