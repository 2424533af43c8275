"""Calls of raw ops: keywords of `tf.raw_ops`, with dtypes that results follow."""

import numpy as np
import tensorflow as tf
from typing_extensions import assert_type

from opwright import Output, TFloat32, TInt32, TInt64, raw_ops


def dtypes_follow_inputs_and_arguments() -> None:
    x = raw_ops.Cast(x=np.ones([2, 2]), DstT=TFloat32)
    assert_type(x, Output[TFloat32])
    assert_type(raw_ops.MatMul(a=x, b=[[1.0], [2.0]]), Output[TFloat32])
    assert_type(raw_ops.Sum(input=x, axis=[0], keep_dims=True), Output[TFloat32])
    assert_type(raw_ops.Bitcast(input=x, type=TInt32), Output[TInt32])
    raw_ops.MatMul(a=tf.ones([2, 2]), b=x, transpose_a=True, name="product")


def several_outputs_are_named_tuples() -> None:
    x = raw_ops.Cast(x=[3, 1], DstT=TFloat32)
    found = raw_ops.TopKV2(input=x, k=1, sorted=False)
    assert_type(found.values, Output[TFloat32])
    values, indices = found
    assert_type(values, Output[TFloat32])
    assert_type(indices, Output[TInt32])
    assert_type(raw_ops.UniqueWithCounts(x=x, out_idx=TInt64).count, Output[TInt64])


def lists_and_nothing() -> None:
    x = raw_ops.Cast(x=[3, 1], DstT=TFloat32)
    assert_type(raw_ops.Split(axis=0, value=x, num_split=2), list[Output[TFloat32]])
    assert raw_ops.NoOp() is None


def strings_are_literals() -> None:
    x = raw_ops.Cast(x=np.ones([1, 4, 4, 1]), DstT=TFloat32)
    sizes = [1, 2, 2, 1]
    pooled = raw_ops.MaxPool(input=x, ksize=sizes, strides=sizes, padding="VALID")
    assert_type(pooled, Output[TFloat32])
