"""What a graph knows of accumulators and tables."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright_runtime import errors

HANDLE = tf.TensorSpec([], tf.resource)
NUMBERS = count()


def accumulator() -> tf.Tensor:
    # Without a name, calls with the same attrs return the same accumulator.
    make = opwright.train.resource_conditional_accumulator
    return make(tf.float32, [2], shared_name=f"test_handles_{next(NUMBERS)}")


def table() -> tf.Tensor:
    return opwright.lookup.anonymous_mutable_hash_table(tf.string, tf.int64)


def apply(handle: tf.Tensor, dtype: tf.DType) -> None:
    gradient = tf.ones([2], dtype)
    opwright.train.resource_accumulator_apply_gradient(handle, np.int64(0), gradient)


def export(handle: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
    return [*opwright.lookup.lookup_table_export_v2(handle, tf.string, dtype)]


def test_apply_gradient_in_function_of_captured_accumulator_compares_dtypes() -> None:
    sums = accumulator()
    with pytest.raises(errors.OpInputError, match=r"handle holds float32.*float64"):
        tf.function(lambda: apply(tf.identity(sums), tf.float64))()
    tf.function(lambda: apply(tf.identity(sums), tf.float32))()
    applied = opwright.train.resource_accumulator_num_accumulated(sums)
    assert int(applied.numpy()) == 1


def test_apply_gradient_in_nested_functions_compares_dtypes() -> None:
    sums = accumulator()

    @tf.function
    def inner() -> None:
        apply(sums, tf.float64)

    with pytest.raises(errors.OpInputError, match="handle holds float32"):
        tf.function(lambda: inner())()


@pytest.mark.parametrize("is_ref", [False, True])
def test_apply_gradient_in_session_compares_dtypes(is_ref: bool) -> None:
    train = opwright.train
    make: Any = train.resource_conditional_accumulator
    apply_gradient: Any = train.resource_accumulator_apply_gradient
    if is_ref:
        make, apply_gradient = (
            train.conditional_accumulator,
            train.accumulator_apply_gradient,
        )
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        sums = make(tf.float32, [2])
        with pytest.raises(errors.OpInputError, match="handle holds float32"):
            apply_gradient(sums, np.int64(0), tf.ones([2], tf.float64))
        session.run(apply_gradient(sums, np.int64(0), tf.ones([2])))


def test_export_in_function_of_captured_table_compares_dtypes() -> None:
    words = table()
    opwright.lookup.lookup_table_insert_v2(words, ["a"], np.int64([3]))
    with pytest.raises(errors.OpInputError, match=r"table_handle has keys or values"):
        tf.function(lambda: export(words, tf.float32))()
    keys, values = tf.function(lambda: export(words, tf.int64))()
    assert keys.numpy().tolist() == [b"a"]
    assert values.numpy().tolist() == [3]


@pytest.mark.parametrize("is_ref", [False, True])
def test_export_in_session_compares_dtypes(is_ref: bool) -> None:
    lookup = opwright.lookup
    make: Any = lookup.mutable_hash_table_v2
    read: Any = lookup.lookup_table_export_v2
    if is_ref:
        make, read = lookup.mutable_hash_table, lookup.lookup_table_export
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        words = make(tf.string, tf.int64)
        with pytest.raises(errors.OpInputError, match="table_handle has keys"):
            read(words, tf.int64, tf.int64)
        keys, _ = read(words, tf.string, tf.int64)
        assert session.run(keys).tolist() == []


def test_export_in_checked_function_of_passed_table_compares_dtypes() -> None:
    def checked(dtype: tf.DType) -> Callable[..., Any]:
        def traced(handle: tf.Tensor) -> list[tf.Tensor]:
            with opwright.checked():
                return export(handle, dtype)

        return tf.function(traced, input_signature=[HANDLE])

    words = table()
    opwright.lookup.lookup_table_insert_v2(words, ["a"], np.int64([3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Signature mismatch"):
        checked(tf.float32)(words)
    assert checked(tf.int64)(words)[1].numpy().tolist() == [3]


def test_initialize_table_in_function_of_captured_data_compares_dtypes() -> None:
    words = opwright.lookup.anonymous_hash_table(tf.string, tf.int64)
    pairs = tf.data.Dataset.from_tensor_slices((["a"], np.int32([3])))

    def fill(dataset: tf.data.Dataset) -> None:
        opwright.lookup.initialize_table_from_dataset(words, dataset._variant_tensor)

    with pytest.raises(errors.OpInputError, match="do not go together"):
        tf.function(lambda: fill(pairs))()
    right = pairs.map(lambda key, value: (key, tf.cast(value, tf.int64)))
    tf.function(lambda: fill(right))()
    found = opwright.lookup.lookup_table_find_v2(words, ["a"], np.int64(-1))
    assert found.numpy().tolist() == [3]


def test_destroy_of_accumulator_is_refused() -> None:
    sums = accumulator()
    with pytest.raises(errors.OpInputError, match="is the handle of an accumulator"):
        opwright.variables.destroy_resource_op(sums)
    with tf.Graph().as_default():
        made = opwright.train.resource_conditional_accumulator(tf.float32, [2])
        with pytest.raises(errors.OpInputError, match="is the handle of an"):
            opwright.variables.destroy_resource_op(made)


def test_checked_gradient_of_passed_accumulator_compares_dtypes() -> None:
    sums = accumulator()

    def checked(dtype: tf.DType) -> Callable[[tf.Tensor], None]:
        def applied(handle: tf.Tensor) -> None:
            with opwright.checked():
                apply(handle, dtype)

        return tf.function(applied, input_signature=[HANDLE])

    with pytest.raises(tf.errors.InvalidArgumentError, match="expected"):
        checked(tf.float64)(sums)
    checked(tf.float32)(sums)
    applied = opwright.train.resource_accumulator_num_accumulated(sums)
    assert int(applied.numpy()) == 1  # The check itself adds no gradient.


LOWEST = -(2**31)
# Rows, indices, divisors; whether the quotients are integers of 32 bits.
DIVISIONS: list[tuple[list[int], list[int], int | list[int], bool]] = [
    ([LOWEST, 5], [0], [-1], False),
    ([LOWEST, 5], [1], [-1], True),
    ([LOWEST, 5], [1, 0], [-1, 2], True),
    ([LOWEST, 5], [1, 0], [2, -1], False),
    ([LOWEST, 5], [1, 0], -1, False),
    ([LOWEST, 5], [], -1, True),
]


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize(("rows", "indices", "divisors", "fits"), DIVISIONS)
def test_division_of_lowest_integer_is_refused(
    mode: str, rows: list[int], indices: list[int], divisors: Any, fits: bool
) -> None:
    variable = tf.Variable(tf.constant(rows, tf.int32))

    def divide(handle: tf.Tensor, indices: tf.Tensor, divisors: tf.Tensor) -> None:
        with opwright.checked():
            opwright.variables.resource_scatter_div(handle, indices, divisors)

    call = divide if mode == "eager" else tf.function(divide)
    arguments = tf.constant(indices, tf.int32), tf.constant(divisors, tf.int32)
    if not fits:
        with pytest.raises(tf.errors.InvalidArgumentError, match="divi"):
            call(variable.handle, *arguments)
        assert variable.numpy().tolist() == rows
        return
    call(variable.handle, *arguments)
    expected = list(rows)
    for at, by in zip(indices, np.broadcast_to(divisors, len(indices)), strict=True):
        expected[at] = int(expected[at] / by)
    assert variable.numpy().tolist() == expected


def test_division_of_other_dtypes_reads_no_variable() -> None:
    floats = tf.Variable([1.0, -4.0])
    opwright.variables.resource_scatter_div(floats.handle, [0, 1], [-1.0, 2.0])
    assert floats.numpy().tolist() == [-1.0, -2.0]
