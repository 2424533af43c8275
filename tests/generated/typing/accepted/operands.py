"""What an op takes as an input, and what follows for its outputs."""

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
)
from opwright.array import concat_v2, gather_v2, identity_n, one_hot, split
from opwright.dtypes import cast
from opwright.linalg import MatMul, mat_mul
from opwright.math import AddV2, add_n, add_v2

F = TypeVar("F", bound=TFloating)


def floats() -> Output[TFloat32]:
    return cast([[1.0, 2.0], [3.0, 4.0]], TFloat32)


def ints() -> Output[TInt32]:
    return cast([0, 1], TInt32)


def an_output_settles_the_dtype() -> None:
    x = floats()
    assert_type(AddV2.create(Scope.current(), x, x), AddV2[TFloat32])
    assert_type(add_v2(x, x), Output[TFloat32])
    assert_type(mat_mul(x, x, transpose_b=True), Output[TFloat32])
    assert_type(add_v2(ints(), ints()), Output[TInt32])


def values_go_with_it() -> None:
    x = floats()
    assert_type(add_v2(x, 1.0), Output[TFloat32])
    assert_type(add_v2(1, x), Output[TFloat32])
    assert_type(add_v2(x, [1.0, 2.0]), Output[TFloat32])
    assert_type(add_v2(((1, 2), (3, 4)), x), Output[TFloat32])
    assert_type(add_v2(x, np.ones((2, 2), np.float32)), Output[TFloat32])
    assert_type(add_v2(np.float32(1), x), Output[TFloat32])
    assert_type(add_v2([x[0], x[1]], x), Output[TFloat32])
    assert_type(add_v2([x, x], x), Output[TFloat32])


def plain_tensors_go_with_it() -> None:
    x = floats()
    plain: tf.Tensor = tf.constant(1.0)
    variable = tf.Variable(plain)
    sums: list[Output[TFloat32]] = [
        add_v2(x, plain),
        add_v2(plain, x),
        add_v2(variable, x),
        add_v2(x + 1.0, x),
        add_v2(plain, plain),
    ]
    assert len(sums) == 5


def ops_with_one_output_are_operands() -> None:
    x = floats()
    assert_type(add_v2(add_v2(x, x), x), Output[TFloat32])
    assert_type(mat_mul(x, cast([[1], [2]], TFloat32)), Output[TFloat32])
    scope = Scope.current()
    op = AddV2.create(scope, x, x)
    assert_type(add_v2(op, op), Output[TFloat32])
    assert_type(add_v2([op, op], x), Output[TFloat32])
    assert_type(op + x, Output[TFloat32])
    assert_type(AddV2.create(scope, op, 2.0).as_output(), Output[TFloat32])


def nothing_but_values_leaves_it_open() -> None:
    total = AddV2.create(Scope.current(), 1.0, 2.0)
    assert_type(total, AddV2)
    assert_type(add_v2(1.0, 2.0), Output)
    anything = total.z
    fits_all: list[Output[TFloat32]] = [anything, add_v2(anything, floats())]
    assert len(fits_all) == 2


def lists() -> None:
    x = floats()
    assert_type(add_n([x, x, [[1.0, 2.0], [3.0, 4.0]]]), Output[TFloat32])
    assert_type(add_n([x, add_v2(x, x)]), Output[TFloat32])
    assert_type(concat_v2([x, x], 0), Output[TFloat32])
    parts = split(0, x, 2)
    assert_type(parts, list[Output[TFloat32]])
    assert_type(add_n(parts), Output[TFloat32])
    sums = [add_v2(x, x), add_v2(x, 1.0)]
    assert_type(add_n(sums), Output[TFloat32])
    scope = Scope.current()
    ops = [AddV2.create(scope, x, x), AddV2.create(scope, x, 1.0)]
    assert_type(add_n(ops), Output[TFloat32])


def lists_of_many_dtypes() -> None:
    outputs = identity_n([floats(), ints(), "text", tf.constant(1), 2])
    assert_type(outputs[0], Output)
    first: Output[TFloat32] = outputs[0]
    second: Output[TInt32] = outputs[1]
    assert (first.dtype, second.dtype) == (tf.float32, tf.int32)


def type_variables_of_their_own() -> None:
    x = floats()
    assert_type(gather_v2(x, ints(), 0), Output[TFloat32])
    assert_type(gather_v2(x, [0, 1], ints()[0]), Output[TFloat32])
    assert_type(one_hot(ints(), 2, x[0, 0], 0.0), Output[TFloat32])
    assert_type(one_hot(ints(), 2, 1.0, cast(0, TFloat64)), Output[TFloat64])


def outputs_are_tensors() -> None:
    def plain(tensor: tf.Tensor) -> tf.Tensor:
        return tensor

    x = floats()
    plain(x)
    plain(add_v2(x, x))
    tf.abs(x)
    tf.reduce_sum([x, x])
    shape: tf.TensorShape = x.shape
    dtype: tf.DType = x.dtype
    assert shape.rank == 2 and dtype == tf.float32
    for row in x:
        plain(row)
    plain(abs(x))
    assert len(x) == 2 and int(x[0, 0]) == 1 and float(x[1, 1]) == 4.0


def operators_keep_the_dtype() -> None:
    x, i = floats(), ints()
    assert_type(x[0], Output[TFloat32])
    assert_type(x + 1.0, Output[TFloat32])
    assert_type(1 - x * x[0] ** 2 @ -x, Output[TFloat32])
    assert_type(x / 2, Output[TFloat32])
    assert_type(2 / x, Output[TFloat32])
    assert_type(i // 2 % [3, 4], Output[TInt32])
    assert_type(i & ~i, Output[TInt32])
    assert_type(x < 1.0, Output[TBool])
    assert_type((x >= x) | True, Output[TBool])
    assert_type(add_v2(x, x) + x, Output[TFloat32])
    quotient: tf.Tensor = i / 2
    assert quotient.dtype == tf.float64
    for row in x:
        assert_type(row, Output[TFloat32])


def functions_over_dtypes() -> None:
    def twice(x: Output[F]) -> Output[F]:
        return add_v2(x, x)

    def applied(x: Operand[TFloat32]) -> MatMul[TFloat32]:
        return MatMul.create(Scope.current(), x, [[1.0], [2.0]])

    assert_type(twice(floats()), Output[TFloat32])
    assert_type(applied(twice(floats())).product, Output[TFloat32])
    applied(np.ones((2, 2), np.float32))
    applied(add_v2(floats(), 1.0))


def bare_classes() -> None:
    def name(op: MatMul) -> str:
        return op.OP_NAME

    assert name(MatMul.create(Scope.current(), floats(), floats())) == "MatMul"
