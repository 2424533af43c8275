"""dtypes given as arguments, and left at their defaults."""

import numpy as np
import tensorflow as tf
from typing_extensions import assert_type

from opwright import (
    Output,
    Scope,
    TBool,
    TFloat16,
    TFloat32,
    TFloat64,
    TInt32,
    TInt64,
    TString,
)
from opwright.array import Placeholder, placeholder, shape, unique
from opwright.dtypes import Cast, cast
from opwright.math import ArgMax, arg_max
from opwright.random import RandomUniform, random_uniform


def a_class_is_followed() -> None:
    made = Cast.create(Scope.current(), [1, 2], TFloat32)
    assert_type(made, Cast[TFloat32])
    assert_type(cast([1, 2], TFloat32), Output[TFloat32])
    assert_type(cast([1, 2], TFloat64), Output[TFloat64])
    assert_type(Cast.create(Scope.current(), [0, 1], TBool).y, Output[TBool])
    assert_type(random_uniform([2], TFloat16, seed=3), Output[TFloat16])


def anything_else_is_not() -> None:
    assert_type(Cast.create(Scope.current(), [1, 2], "float64"), Cast)
    assert_type(cast([1, 2], "float64"), Output)
    assert_type(cast([1, 2], np.float64), Output)
    assert_type(cast([1, 2], np.dtype("float64")), Output)
    drawn = RandomUniform.create(Scope.current(), [2], "float32")
    assert_type(drawn, RandomUniform)
    assert_type(random_uniform([2], "float32"), Output)
    known: Output[TFloat32] = cast([1, 2], tf.float32)
    assert known.dtype == tf.float32


def a_default_is_followed() -> None:
    x = cast([1.0, 3.0, 2.0], TFloat32)
    assert_type(ArgMax.create(Scope.current(), x, 0), ArgMax[TInt64])
    assert_type(arg_max(x, 0), Output[TInt64])
    assert_type(ArgMax.create(Scope.current(), x, 0).output, Output[TInt64])
    assert_type(arg_max(x, 0, output_type=TInt64), Output[TInt64])
    assert_type(arg_max(x, 0, output_type=TInt32), Output[TInt32])
    assert_type(arg_max(x, 0, output_type="int32"), Output)
    assert_type(shape(x), Output[TInt32])
    assert_type(shape(x, out_type=TInt64), Output[TInt64])


def some_are_inferred_and_some_are_arguments() -> None:
    x = cast([1.0, 3.0, 3.0], TFloat32)
    assert_type(unique(x).y, Output[TFloat32])
    assert_type(unique(x).idx, Output[TInt32])
    assert_type(unique(x, out_idx=TInt64).idx, Output[TInt64])
    assert_type(unique(x, out_idx=np.int64).idx, Output)


def in_graphs() -> None:
    with tf.Graph().as_default():
        assert_type(placeholder(TString, shape=[None]), Output[TString])
        assert_type(placeholder(tf.TensorSpec([]).dtype), Output)
        fed = Placeholder.create(Scope.current(), tf.TensorSpec([]).dtype)
        assert_type(fed.OP_NAME, str)
