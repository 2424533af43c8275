"""typed: a tensor given a static dtype, which is checked when the program runs."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpInputError, Scope, TFloat32, TInt32, TString, typed
from opwright.math import AddV2


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(tf.Variable([1.0, 2.0]), id="variable"),
        pytest.param(np.array([1.0, 2.0], np.float32), id="array"),
        pytest.param(AddV2.create(Scope.current(), [0.0, 1.0], 1.0), id="op"),
    ],
)
def test_typed_value_with_dtype_gives_tensor(value: Any) -> None:
    found = typed(value, TFloat32)
    assert type(found) is type(tf.constant(1.0))
    assert found.dtype == tf.float32
    assert np.array_equal(found, [1.0, 2.0])


def test_typed_tensor_is_returned_as_is() -> None:
    x = tf.constant(["text"])
    assert typed(x, TString) is x
    with tf.Graph().as_default():
        fed = tf.compat.v1.placeholder(tf.float32)
        assert typed(fed, TFloat32) is fed


def test_typed_in_tf_function_checks_when_traced() -> None:
    def doubled(x: tf.Tensor) -> tf.Tensor:
        return typed(x, TFloat32) * 2.0

    twice = tf.function(doubled)
    assert twice(tf.constant(1.5)).numpy() == 3.0
    with pytest.raises(OpInputError, match="must be a tensor of float32, not int32"):
        twice(tf.constant(1))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (tf.ones([2, 3], tf.float64), r"tensor of float32, not float64\[2,3\]"),
        (np.ones([2]), r"a tensor of float32, not float64\[2\]"),
        (1.0, r"of float32, not 1\.0: write tf\.constant\(\.\.\., tf\.float32"),
        ([1.0], r"a tensor of float32, not \[1\.0\]"),
        (None, "a tensor of float32, not None"),
        (tf.TensorSpec([], tf.float32), "a tensor of float32, not TensorSpec"),
        (TInt32, "a tensor of float32, not TInt32"),
    ],
)
def test_typed_other_dtype_is_refused(value: Any, said: str) -> None:
    with pytest.raises(OpInputError, match=said) as caught:
        typed(value, TFloat32)
    assert caught.value.argument == "tensor"


def test_typed_dtype_that_is_no_class_is_refused() -> None:
    wrong: Any = tf.float32
    with pytest.raises(OpInputError, match="dtype must be the class of a dtype"):
        typed(tf.constant(1.0), wrong)
