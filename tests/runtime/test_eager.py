"""Ops that run at once give what tf.raw_ops gives, whatever their inputs are."""

import gc

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from opwright import OpModeError, Scope, TFloat32, TInt64, op_class
from opwright.dtypes import Cast
from opwright.linalg import MatMul, mat_mul
from opwright.math import AddV2, add_v2

X = tf.constant([[1.0, 2.0], [3.0, 4.0]])
VALUES = tf.constant([1.0, 2.0, 3.0])
SCOPE = Scope.current()


class Convertible:
    """What TensorFlow converts by its tensor protocol."""

    def __tf_tensor__(self, dtype=None, name=None):
        return tf.constant([[5.0, 6.0], [7.0, 8.0]])


def same(actual, expected):
    assert type(actual) is type(expected)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X, X),
        (X, 1),
        (X, [1, 2]),
        (X, np.array([[1.0]])),
        (X, tf.Variable(2.0)),
        (tf.Variable(2.0), 1),
        (1, 2),
        (1.5, 2),
        ([1, 2], [3, 4]),
        (np.float64(1), np.float64(2)),
        (Convertible(), 1),
        (X, Convertible()),
    ],
)
def test_create_eager_inputs_equal_raw_ops(x, y):
    same(AddV2.create(SCOPE, x, y).z, tf.raw_ops.AddV2(x=x, y=y))


@pytest.mark.parametrize("first", [1, [1, 2], np.int64(3), [[1, 2], [3, 4]]])
def test_create_plain_value_takes_dtype_of_later_tensor(first):
    same(AddV2.create(SCOPE, first, X).z, tf.constant(first, tf.float32) + X)


def test_op_with_one_output_is_taken_as_tensor():
    op = AddV2.create(SCOPE, X, 1)
    same(tf.abs(op), X + 1)
    same(X + op, X + X + 1)
    same(tf.stack([op, op]), tf.stack([X + 1, X + 1]))
    same(tf.cast(op, tf.int32), tf.cast(X + 1, tf.int32))
    same(MatMul.create(SCOPE, op, op).product, tf.matmul(X + 1, X + 1))
    variable = tf.Variable(X)
    variable.assign(op)
    same(variable.value(), X + 1)
    assert op.as_output() is op.z


def test_op_with_several_outputs_is_refused_as_tensor():
    top = op_class("TopKV2").create(SCOPE, X, 1)
    with pytest.raises(ValueError, match=r"2 outputs: take one of values, indices"):
        tf.convert_to_tensor(top)


def test_outputs_have_the_op_def_s_names_and_lists():
    top = op_class("TopKV2").create(SCOPE, X, 1)
    values, indices = tf.raw_ops.TopKV2(input=X, k=1)
    same(top.values, values)
    same(top.indices, indices)

    parts = op_class("Split").create(SCOPE, 1, X, 2).output
    assert isinstance(parts, list)
    for part, expected in zip(parts, tf.split(X, 2, axis=1), strict=True):
        same(part, expected)


# Tensors go the fast way, values the slow one.
@pytest.mark.parametrize("splits", [tf.constant([0, 2, 3], tf.int64), [0, 2, 3]])
def test_op_list_output_next_to_other_is_split(splits):
    op = op_class("RaggedGather").create(SCOPE, [splits], VALUES, [0], 1)
    expected = tf.raw_ops.RaggedGather(
        params_nested_splits=[splits],
        params_dense_values=VALUES,
        indices=[0],
        OUTPUT_RAGGED_RANK=1,
    )
    assert len(op.output_nested_splits) == 1
    same(op.output_nested_splits[0], expected.output_nested_splits[0])
    same(op.output_dense_values, expected.output_dense_values)


def test_create_list_inputs_equal_raw_ops():
    concat = op_class("ConcatV2")
    same(concat.create(SCOPE, [X, X], 0).output, tf.concat([X, X], 0))
    same(concat.create(SCOPE, (X, [[1, 2]]), 0).output, tf.concat([X, [[1.0, 2]]], 0))
    same(concat.create(SCOPE, [[1], [2]], 0).output, tf.constant([1, 2]))
    many = op_class("IdentityN").create(SCOPE, [X, 1, "a"]).output
    for one, expected in zip(many, tf.identity_n([X, 1, "a"]), strict=True):
        assert one.dtype == expected.dtype
        assert np.array_equal(one, expected)


def test_create_empty_list_takes_default_dtype():
    found = op_class("Sum").create(SCOPE, X, [])
    same(found.output, tf.raw_ops.Sum(input=X, axis=[]))


@pytest.mark.parametrize(
    "dtype", [TInt64, tf.int64, "int64", np.int64, np.dtype("int64")]
)
def test_create_dtype_argument_takes_every_form(dtype):
    same(Cast.create(SCOPE, X, dtype).y, tf.cast(X, tf.int64))
    same(Cast.create(SCOPE, [1.5], dtype).y, tf.constant([1], tf.int64))


def test_options_and_keywords_are_sent():
    expected = tf.matmul(X, X, transpose_a=True)
    options = MatMul.Options(transpose_a=True)
    same(MatMul.create(SCOPE, X, X, options).product, expected)
    same(MatMul.create(SCOPE, X, [[1, 2], [3, 4]], options).product, expected)
    same(mat_mul(X, X, transpose_a=True), expected)
    same(add_v2(X, 1, name="ignored"), X + 1)


def test_op_without_outputs_runs_and_equals_itself():
    variable = tf.Variable(1.0)
    assign = op_class("AssignVariableOp")
    op = assign.create(SCOPE, variable.handle, tf.constant(2.0))
    assert variable.numpy() == 2.0
    assign.create(SCOPE, variable.handle, 3.0)
    assert variable.numpy() == 3.0
    assert op == op
    assert op != assign.create(SCOPE, variable.handle, tf.constant(2.0))


def test_shape_and_function_attrs():
    ensure = op_class("EnsureShape")
    for shape in ([2, 2], (2, None), tf.TensorShape(None), None):
        same(ensure.create(SCOPE, X, shape).output, X)
    with pytest.raises(tf.errors.InvalidArgumentError):
        ensure.create(SCOPE, X, [3, 3])

    double = tf.function(lambda x: 2 * x).get_concrete_function(tf.TensorSpec([2, 2]))
    call = op_class("StatefulPartitionedCall")
    same(call.create(SCOPE, [X], [TFloat32], double).output[0], 2 * X)


def test_op_eager_has_no_operation():
    op = AddV2.create(SCOPE, X, 1)
    with pytest.raises(OpModeError, match="AddV2: ran eagerly"):
        _ = op.op
    with pytest.raises(OpModeError):
        _ = op.inputs
    assert op.env() is context.context()


def test_ops_of_several_outputs_are_equal_if_they_hold_the_same_tensors():
    top = op_class("TopKV2")
    one, other = top.create(SCOPE, X, 1), top.create(SCOPE, X, 1)
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2


def test_op_uninitialised_output_raises():
    with pytest.raises(AttributeError, match="this AddV2 has no output yet"):
        _ = object.__new__(AddV2).z
    with pytest.raises(AttributeError, match="object has no attribute 'foo'"):
        _ = AddV2.create(SCOPE, X, X).foo


def test_init_scope_within_a_function_is_eager():
    found = []

    @tf.function
    def traced(x):
        with tf.init_scope():
            found.append(AddV2.create(SCOPE, X, 1).z)
            found.append(AddV2.create(Scope.current(), [[1.0]], 1).z)
        return x

    traced(X)
    same(found[0], X + 1)
    same(found[1], tf.constant([[2.0]]))


def test_create_conversion_leaves_no_garbage():
    """The fast path's refusal would hold the frame of the call that holds it."""
    AddV2.create(SCOPE, X, [1, 2])
    gc.collect()
    gc.disable()
    try:
        AddV2.create(SCOPE, X, [1, 2])
        left = [one for one in gc.get_objects() if issubclass(type(one), Exception)]
        assert not [one for one in left if "EagerTensors" in str(one)]
    finally:
        gc.enable()


def test_create_tensor_attr_keeps_default():
    # With NaNs, since bad_color is what they are drawn in. tf.raw_ops has none of it.
    images = np.full([1, 2, 2, 3], np.nan, np.float32)
    found = op_class("ImageSummary").create(SCOPE, "tag", images)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        expected = session.run(tf.raw_ops.ImageSummary(tag="tag", tensor=images))
    assert found.summary.numpy() == expected
