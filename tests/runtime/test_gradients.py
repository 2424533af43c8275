"""Gradients are those of tf.raw_ops: eager, in functions and graphs, the slow way."""

import numpy as np
import pytest
import tensorflow as tf

from opwright import Scope, op_class

X = tf.constant([[1.0, 2.0], [3.0, 4.0]])
# Arrays, which graphs take too.
W = np.array([[5, 6], [7, 8]], np.float32)
KERNEL = np.arange(4, dtype=np.float32).reshape(2, 2, 1, 1)
SCOPE = Scope.current()


def create(name, *arguments, **options):
    cls = op_class(name)
    given = [cls.Options(**options)] if options else []
    return cls.create(SCOPE, *arguments, *given)


# Each as opwright makes it and as tf.raw_ops does, of one input that is watched.
CASES = {
    "AddV2": (
        lambda x: create("AddV2", x, 1).z,
        lambda x: tf.raw_ops.AddV2(x=x, y=1.0),
    ),
    "MatMul": (
        lambda x: create("MatMul", x, W, transpose_a=True).product,
        lambda x: tf.raw_ops.MatMul(a=x, b=W, transpose_a=True),
    ),
    "MatMul of a value": (
        lambda x: create("MatMul", [[5, 6], [7, 8]], x, transpose_b=True).product,
        lambda x: tf.raw_ops.MatMul(a=W, b=x, transpose_b=True),
    ),
    "ConcatV2": (
        lambda x: create("ConcatV2", [x, [[5, 6]], x], 0).output,
        lambda x: tf.raw_ops.ConcatV2(values=[x, [[5.0, 6.0]], x], axis=0),
    ),
    "Split": (
        lambda x: create("Split", 0, x, 2).output[1],
        lambda x: tf.raw_ops.Split(axis=0, value=x, num_split=2)[1],
    ),
    "Cast": (
        lambda x: create("Cast", x, tf.float64).y,
        lambda x: tf.raw_ops.Cast(x=x, DstT=tf.float64),
    ),
    "Conv2D": (
        lambda x: create(
            "Conv2D",
            create("Reshape", x, [1, 2, 2, 1]),
            KERNEL,
            [1, 2, 1, 1],
            "EXPLICIT",
            explicit_paddings=[0, 0, 1, 2, 1, 0, 0, 0],
        ).output,
        lambda x: tf.raw_ops.Conv2D(
            input=tf.reshape(x, [1, 2, 2, 1]),
            filter=KERNEL,
            strides=[1, 2, 1, 1],
            padding="EXPLICIT",
            explicit_paddings=[0, 0, 1, 2, 1, 0, 0, 0],
        ),
    ),
    "FusedBatchNormV3": (
        lambda x: create(
            "FusedBatchNormV3",
            create("Reshape", x, [1, 2, 2, 1]),
            [1.0],
            [2.0],
            [],
            [],
        ).y,
        lambda x: tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(x, [1, 2, 2, 1]),
            scale=[1.0],
            offset=[2.0],
            mean=[],
            variance=[],
        ).y,
    ),
    "StridedSlice": (
        lambda x: create("StridedSlice", x, [0], [1], [1], shrink_axis_mask=1).output,
        lambda x: tf.raw_ops.StridedSlice(
            input=x, begin=[0], end=[1], strides=[1], shrink_axis_mask=1
        ),
    ),
    "EnsureShape": (
        lambda x: create("EnsureShape", x, [None, 2]).output,
        lambda x: tf.raw_ops.EnsureShape(input=x, shape=[None, 2]),
    ),
    "IdentityN": (
        lambda x: create("IdentityN", [x, "text", x]).output[2],
        lambda x: tf.raw_ops.IdentityN(input=[x, "text", x])[2],
    ),
    "TopKV2": (
        lambda x: create("TopKV2", x, 1, sorted=False).values,
        lambda x: tf.raw_ops.TopKV2(input=x, k=1, sorted=False).values,
    ),
}
CASE = pytest.mark.parametrize(("ours", "theirs"), CASES.values(), ids=CASES)


def tape_gradient(make, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = make(x)
        loss = tf.reduce_sum(tf.cast(y, tf.float32) ** 2)
    return tape.gradient(loss, x)


@CASE
def test_gradient_eager_equals_raw_ops(ours, theirs):
    expected = tape_gradient(theirs, X)
    assert expected is not None
    np.testing.assert_array_equal(tape_gradient(ours, X), expected)


@pytest.mark.rotating
@CASE
def test_gradient_tape_in_function_equals_raw_ops(ours, theirs):
    compute = tf.function(tape_gradient)
    np.testing.assert_array_equal(compute(ours, X), compute(theirs, X))


@pytest.mark.rotating
@CASE
def test_gradient_tape_around_function_equals_raw_ops(ours, theirs):
    expected = tape_gradient(tf.function(theirs), X)
    np.testing.assert_array_equal(tape_gradient(tf.function(ours), X), expected)


@pytest.mark.rotating
@CASE
def test_gradient_in_graph_equals_raw_ops(ours, theirs):
    def gradient(make):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.compat.v1.placeholder(tf.float32, [2, 2])
            (found,) = tf.gradients(tf.cast(make(x), tf.float32) ** 2, x)
            return session.run(found, {x: X.numpy()})

    np.testing.assert_array_equal(gradient(ours), gradient(theirs))


def test_gradient_op_takes_attrs_of_forward_op():
    """As a graph's gradient shows: no kernel is needed for that."""
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [3, 1, 2])
        state = tf.zeros([1, 1, 2])
        cls = op_class("CudnnRNNV3")
        options = cls.Options(rnn_mode="gru", dropout=0.25, seed=7, time_major=False)
        rnn = cls.create(
            Scope.current(), x, state, state, tf.zeros([24]), [3, 3, 3], options
        )
        (gradient,) = tf.gradients(rnn.output, x)
        found = op_class("CudnnRNNBackpropV3").from_operation(gradient.op).inputs
    assert found.rnn_mode == "gru"
    assert found.dropout == 0.25
    assert found.seed == 7
    assert found.time_major is False
    assert found.output is rnn.output
    assert found.reserve_space is rnn.reserve_space


def test_gradient_tape_watches_variable():
    variable = tf.Variable(X)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(create("Square", variable).y)
    np.testing.assert_array_equal(tape.gradient(loss, variable), 2 * X)


def test_gradient_of_gradient_equals_formula():
    with tf.GradientTape() as outer:
        outer.watch(X)
        with tf.GradientTape() as inner:
            inner.watch(X)
            y = create("Mul", create("Square", X), X).z
        first = inner.gradient(y, X)
    np.testing.assert_allclose(outer.gradient(first, X), 6 * X)
