"""Small programs, one a function, as users write them."""

import numpy as np
import tensorflow as tf
from typing_extensions import TypeVar, assert_type

from opwright import (
    Operand,
    Output,
    Scope,
    TBool,
    TFloat32,
    TFloat64,
    TFloating,
    TInt32,
    TInt64,
    TString,
    typed,
)
from opwright.array import concat_v2, expand_dims, gather_v2, pack, split, unique
from opwright.dtypes import cast
from opwright.linalg import MatMul, mat_mul
from opwright.math import AddV2, add_n, add_v2, less, mean, mul, square, sub
from opwright.nn import bias_add, relu, softmax, top_k_v2
from opwright.strings import string_join, string_to_number

F = TypeVar("F", bound=TFloating)


def x() -> Output[TFloat32]:
    return cast([[1.0, 2.0], [3.0, 4.0]], TFloat32)


def a_constant_is_typed() -> None:
    assert_type(typed(tf.constant([1.0]), TFloat32), Output[TFloat32])


def a_variable_is_typed() -> None:
    assert_type(typed(tf.Variable(tf.constant(1, tf.int64)), TInt64), Output[TInt64])


def an_array_is_typed() -> None:
    assert_type(typed(np.ones(2), TFloat64), Output[TFloat64])


def an_op_is_typed() -> None:
    op = AddV2.create(Scope.current(), x(), 1.0)
    assert_type(typed(op, TFloat32), Output[TFloat32])


def what_keras_returns_is_typed() -> None:
    found = typed(tf.nn.softmax(x()), TFloat32)
    assert_type(mat_mul(found, x()), Output[TFloat32])


def a_layer() -> None:
    assert_type(relu(bias_add(mat_mul(x(), x()), [1.0, 1.0])), Output[TFloat32])


def a_loss() -> None:
    error = sub(x(), [[1.0, 2.0], [3.0, 5.0]])
    assert_type(mean(square(error), [0, 1]), Output[TFloat32])


def a_gradient() -> None:
    start = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        tape.watch(start)
        product = mat_mul(start, start)
    assert tape.gradient(product, start) is not None


def a_comparison() -> None:
    assert_type(less(x(), 3.0), Output[TBool])


def a_condition() -> None:
    assert_type(bool(tf.reduce_all(less(x(), 5.0))), bool)


def outputs_by_name() -> None:
    best = top_k_v2(x(), 1)
    assert_type(best.values, Output[TFloat32])
    assert_type(best.indices, Output[TInt32])


def outputs_in_turn() -> None:
    values, indices = top_k_v2(x(), 1)
    assert_type(values, Output[TFloat32])
    assert_type(indices, Output[TInt32])


def outputs_of_a_dtype_that_is_given() -> None:
    assert_type(unique([1, 1, 2], out_idx=TInt64).idx, Output[TInt64])


def a_list() -> None:
    left, right = split(1, x(), 2)
    assert_type(concat_v2([right, left], 1), Output[TFloat32])


def a_list_of_sums() -> None:
    assert_type(add_n([one + 1.0 for one in split(0, x(), 2)]), Output[TFloat32])


def a_nested_list() -> None:
    first = x()[0, 0]
    assert_type(add_v2(x(), [[first, 2.0], [1.0, 2.0]]), Output[TFloat32])


def a_deep_list() -> None:
    assert_type(add_v2([[[[[1.0, 2.0]]]]], x()), Output[TFloat32])


def a_declared_list() -> None:
    rows: list[list[float]] = [[1.0, 2.0], [3.0, 4.0]]
    assert_type(mat_mul(rows, x()), Output[TFloat32])


def a_declared_list_of_outputs() -> None:
    parts: list[Output[TFloat32]] = [x(), x()]
    assert_type(pack(parts), Output[TFloat32])
    assert_type(add_v2(parts, parts), Output[TFloat32])


def a_range() -> None:
    assert_type(gather_v2(x(), range(2), 0), Output[TFloat32])


def an_array() -> None:
    assert_type(mat_mul(np.eye(2, dtype=np.float32), x()), Output[TFloat32])


def a_scalar_of_numpy() -> None:
    assert_type(mul(x(), np.float32(2)), Output[TFloat32])


def texts() -> None:
    assert_type(string_join(["a", b"b"]), Output[TString])


def texts_to_numbers() -> None:
    assert_type(string_to_number(["1", "2"], out_type=TFloat64), Output[TFloat64])


def over_dtypes() -> None:
    def normed(value: Output[F]) -> Output[F]:
        return softmax(sub(value, mean(value, [0])))

    assert_type(normed(x()), Output[TFloat32])
    assert_type(normed(cast(x(), TFloat64)), Output[TFloat64])


def over_operands() -> None:
    def shifted(value: Operand[TFloat32], by: Operand[TFloat32]) -> Output[TFloat32]:
        return add_v2(value, by)

    assert_type(shifted([1.0], 2.0), Output[TFloat32])
    assert_type(shifted(x(), AddV2.create(Scope.current(), x(), 1)), Output[TFloat32])


def an_op_and_its_tensor() -> None:
    op = MatMul.create(Scope.current(), x(), x(), MatMul.Options(transpose_b=True))
    assert_type(op, MatMul[TFloat32])
    assert_type(op.product, Output[TFloat32])
    assert_type(op * 2.0, Output[TFloat32])


def of_tensorflow() -> None:
    tf.abs(add_v2(x(), x()))
    tf.reduce_sum(MatMul.create(Scope.current(), x(), x()))


def of_numpy() -> None:
    assert np.asarray(add_v2(x(), x())).shape == (2, 2)


def in_a_graph() -> None:
    with tf.Graph().as_default():
        assert_type(expand_dims(x(), 0), Output[TFloat32])


def in_a_tf_function() -> None:
    def step(value: tf.Tensor) -> tf.Tensor:
        return add_v2(typed(value, TFloat32), 1.0)

    assert tf.function(step)(tf.constant(1.0)) == 2.0
