"""Numbers that do not fit the dtype of an input are refused, and never cut."""

from __future__ import annotations

import array
import enum
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpAttrError, OpError, OpInputError, OpOptionError, Scope
from opwright.array import (
    ConcatV2,
    Pack,
    Split,
    concat_v2,
    dynamic_stitch,
    pack,
    placeholder,
    roll,
    split,
)
from opwright.data import DatasetToGraphV2, dataset_to_graph_v2
from opwright.linalg import matrix_band_part
from opwright.math import AddV2, add_v2, arg_max, logical_and
from opwright.math import range as range_op
from opwright.math import sum as sum_op
from opwright.nn import LeakyRelu, conv2d, leaky_relu, top_k_v2
from opwright_runtime._binding import narrowing

INT32 = tf.constant([1])


class Index:
    def __index__(self) -> int:
        return 2**40


class Large(enum.IntEnum):
    ONE = 2**40


def eagerly(call: Callable[[], Any]) -> Any:
    return call()


def in_function(call: Callable[[], Any]) -> Any:
    return tf.function(call, autograph=False)()


def in_graph(call: Callable[[], Any]) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(call())


WAYS = pytest.mark.parametrize("way", [eagerly, in_function, in_graph])


def tensor(dtype: tf.DType) -> Any:
    return tf.constant([1], dtype)


@WAYS
@pytest.mark.parametrize(
    ("dtype", "value", "number"),
    [
        (tf.int32, 2**32 + 5, "4294967301"),
        (tf.int32, 2**31, "2147483648"),
        (tf.int32, -(2**31) - 1, "-2147483649"),
        (tf.int8, 300, "300"),
        (tf.int8, 128, "128"),
        (tf.uint8, -1, "-1"),
        (tf.uint8, 256, "256"),
        (tf.int16, 2**15, "32768"),
        (tf.uint32, -1, "-1"),
        (tf.int64, 2**63, "9223372036854775808"),
        (tf.uint64, -1, "-1"),
        (tf.uint64, 2**64, "18446744073709551616"),
        (tf.int32, [1, 2**40], "1099511627776"),
        (tf.int32, [[1], [2**40]], "1099511627776"),
        (tf.int32, (0, True, 2**40), "1099511627776"),
        (tf.int32, np.int64(2**40), "1099511627776"),
        (tf.int32, [np.int64(2**40)], "1099511627776"),
        (tf.int32, np.array([2**40]), "1099511627776"),
        (tf.int32, np.array(2**40), "1099511627776"),
        (tf.int32, np.arange(100) + 2**31 - 50, "2147483697"),
        (tf.int64, np.array([2**63], np.uint64), "9223372036854775808"),
        (tf.uint64, np.array([-1]), "-1"),
        (tf.int8, np.array([300], object), "300"),
        (tf.int32, np.array([1.5]), "1.5"),
        (tf.int32, np.array([1.5], object), "1.5"),
        (tf.int32, np.float64(1.5), "1.5"),
        (tf.int32, np.array([1e300]), "1e+300"),
        (tf.int32, np.array([np.nan]), "nan"),
        (tf.int64, np.array([2.0**63]), "9.223372036854775808e18"),
        (tf.int32, np.array([1j]), "1j"),
        (tf.int32, np.array([2**40], "datetime64[ns]"), "1099511627776"),
        (tf.int32, Large.ONE, "1099511627776"),
        (tf.int32, array.array("q", [2**40]), "1099511627776"),
        (tf.float32, np.array([1j]), "1j"),
        (tf.float16, np.complex64(1 + 2j), "1+2j"),
    ],
)
def test_input_number_out_of_range_is_refused(
    dtype: tf.DType, value: Any, number: str, way: Callable[..., Any]
) -> None:
    said = f"AddV2: y must be {dtype.name}; "
    for call in (
        lambda: add_v2(tensor(dtype), value),
        lambda: AddV2.create(Scope.current(), tensor(dtype), value).z,
    ):
        with pytest.raises(OpInputError) as caught:
            way(call)
        assert str(caught.value).startswith(said)
        assert str(caught.value).endswith(" does not fit")
        assert caught.value.argument == "y"
        assert caught.value.allowed == (dtype,)
        assert complex(caught.value.given) == complex(number) or number == "nan"


@WAYS
@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (tf.int8, 126, 127),
        (tf.int8, -128, -127),
        (tf.uint8, 254, 255),
        (tf.int32, 2**31 - 2, 2**31 - 1),
        (tf.int64, -(2**63), -(2**63) + 1),
        (tf.uint64, 2**64 - 2, 2**64 - 1),
        (tf.int32, np.array([5]), 6),
        (tf.int32, np.array([5.0]), 6),
        (tf.int32, np.uint64(5), 6),
        (tf.int32, [[np.int64(5)]], [6]),
        (tf.int32, np.zeros([0, 1]), np.zeros([0, 1])),
        (tf.float32, 2**70, 2.0**70),
        (tf.float32, np.array([1e30]), np.float32(1e30)),
        (tf.complex64, np.array([1j]), 1 + 1j),
    ],
)
def test_input_number_in_range_is_exact(
    dtype: tf.DType, value: Any, expected: Any, way: Callable[..., Any]
) -> None:
    found = np.asarray(way(lambda: add_v2(tensor(dtype), value)))
    assert found.dtype == dtype.as_numpy_dtype
    np.testing.assert_array_equal(found, np.asarray(expected) + np.zeros_like(found))


@WAYS
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
@pytest.mark.parametrize("value", [1e39, np.array([1e39])])
def test_input_float_overflow_is_infinite(
    dtype: tf.DType, value: Any, way: Callable[..., Any]
) -> None:
    with np.errstate(over="ignore"):
        expected = tf.constant(value, dtype).numpy()
        assert np.isinf(expected)
        found = np.asarray(way(lambda: add_v2(tensor(dtype), value)))
    assert np.isinf(found).all()


@WAYS
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: split(2**32, tf.constant([1.0, 2.0]), 2),
            "Split: split_dim must be int32; 4294967296 does not fit",
        ),
        (
            lambda: Split.create(Scope.current(), 2**32, [1.0], 1).output,
            "Split: split_dim must be int32; 4294967296 does not fit",
        ),
        (
            lambda: concat_v2([tensor(tf.int8), [300]], 0),
            "ConcatV2: values[1] must be int8; 300 does not fit",
        ),
        (
            lambda: concat_v2([[300], tensor(tf.int8)], 0),
            "ConcatV2: values[0] must be int8; 300 does not fit",
        ),
        (
            lambda: ConcatV2.create(
                Scope.current(), [tensor(tf.int8), np.array([300])], 0
            ).output,
            "ConcatV2: values[1] must be int8; 300 does not fit",
        ),
        (
            lambda: dynamic_stitch([[0], [2**32]], [[1], [2]]),
            "DynamicStitch: indices[1] must be int32; 4294967296 does not fit",
        ),
        (
            lambda: range_op(0, 2**40, 1),
            "Range: limit must be int32; 1099511627776 does not fit",
        ),
        (
            lambda: add_v2(1, 2**40),
            "AddV2: y must be int32; 1099511627776 does not fit",
        ),
        (
            lambda: add_v2(np.array([1], np.int8), 300),
            "AddV2: y must be int8; 300 does not fit",
        ),
        (
            lambda: logical_and(True, np.array([2])),
            "LogicalAnd: y must be bool; 2 does not fit",
        ),
    ],
)
def test_every_kind_of_input_is_checked(
    call: Callable[[], Any], said: str, way: Callable[..., Any]
) -> None:
    with pytest.raises(OpInputError) as caught:
        way(call)
    assert str(caught.value) == said


@pytest.mark.parametrize("axis", [2**32, np.array([2**32]), [2**32], np.int64(2**32)])
def test_input_index_beyond_int32_becomes_int64(axis: Any) -> None:
    """As an int32, which it is by default, it would be 0."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="4294967296"):
        sum_op(tf.ones([2]), axis)


def test_elements_of_a_list_that_are_tensors_are_checked() -> None:
    with pytest.raises(OpInputError, match="y must be int32; 1099511627776 does not"):
        add_v2(INT32, [tf.constant(2**40)])
    with pytest.raises(OpInputError, match="y must be int32; 1099511627776 does not"):
        add_v2(INT32, [tf.constant(1), 2**40])


def test_devices_and_init_scopes_are_no_way_around() -> None:
    scope = Scope.current().with_device("CPU:0")
    with pytest.raises(OpInputError, match="300 does not fit"):
        AddV2.create(scope, tensor(tf.int8), 300)

    @tf.function(autograph=False)
    def body() -> tf.Tensor:
        with tf.init_scope():
            return add_v2(tf.constant([1], tf.int8), 300)

    with pytest.raises(OpInputError, match="300 does not fit"):
        body()


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2.5, np.float64(2.5)])
@WAYS
def test_attr_out_of_range_is_refused(value: Any, way: Callable[..., Any]) -> None:
    with pytest.raises(OpAttrError, match="Split: num_split must be an int"):
        way(lambda: split(0, [1.0, 2.0], value))
    with pytest.raises(OpOptionError, match="keep_dims must be a bool"):
        way(lambda: sum_op([1], 0, keep_dims=value))


TRUNCATED = [
    ("TopKV2", "k", lambda k: top_k_v2([[1.0, 2.0]], k)),
    ("ConcatV2", "axis", lambda axis: concat_v2([[1], [2]], axis)),
    ("Roll", "shift", lambda shift: roll([1, 2, 3], shift, 0)),
    ("Roll", "axis", lambda axis: roll([1, 2, 3], [1], axis)),
    ("ArgMax", "dimension", lambda axis: arg_max([1.0, 2.0], axis)),
    ("MatrixBandPart", "num_lower", lambda n: matrix_band_part([[1]], n, 0)),
    ("MatrixBandPart", "num_upper", lambda n: matrix_band_part([[1]], 0, n)),
]


@pytest.mark.parametrize("value", [2**32, 2**31, -(2**32), -(2**31) - 1])
@pytest.mark.parametrize(("op", "argument", "call"), TRUNCATED)
@WAYS
def test_input_integer_truncated_by_kernel_is_refused(
    way: Callable[..., Any], op: str, argument: str, call: Any, value: int
) -> None:
    said = rf"^{op}: {argument} must be int32; {value} does not fit$"
    for given in (value, np.int64(value), np.array(value), np.array([value]), [value]):
        with pytest.raises(OpInputError, match=said):
            way(partial(call, given))


@WAYS
def test_input_integer_kept_by_kernel_is_taken(
    way: Callable[..., Any],
) -> None:
    for one in (2, np.int64(2), np.int16(2), np.array(2)):
        found = way(partial(top_k_v2, [[1.0, 2.0]], one))
        assert found.values.shape == (1, 2)
    for one in (1, np.int64(1), np.array(1)):
        assert way(partial(roll, [1, 2, 3], one, 0)).shape == (3,)


def test_input_tensor_truncated_by_kernel_is_not_checked() -> None:
    k = tf.constant(2**32 + 1, tf.int64)
    assert top_k_v2([[1.0, 2.0]], k).values.shape == (1, 1)


def test_attr_truncated_by_kernel_is_refused() -> None:
    variant = tf.data.Dataset.range(3)._variant_tensor

    def by_class(value: Any) -> Any:
        options = DatasetToGraphV2.Options(external_state_policy=value)
        return DatasetToGraphV2.create(Scope.current(), variant, options)

    def by_function(value: Any) -> Any:
        return dataset_to_graph_v2(variant, external_state_policy=value)

    for call in (by_class, by_function):
        for way in (eagerly, in_function):
            for value in (2**32 + 2, 2**31, -(2**31) - 1, np.int64(2**32)):
                with pytest.raises(OpOptionError, match="policy must be an int of 32"):
                    way(partial(call, value))
            way(partial(call, np.int64(1)))


def test_python_and_numpy_find_the_same_extremes() -> None:
    draw = np.random.default_rng(3)
    for size in (1, 5, 32, 33, 200):
        numbers = draw.integers(-(2**40), 2**40, size)
        for dtype in (tf.int8, tf.int32, tf.int64):
            found = narrowing.unrepresentable(numbers, dtype)
            fit = ((numbers >= dtype.min) & (numbers <= dtype.max)).all()
            assert (found is None) == fit
            assert (narrowing.unrepresentable(numbers.tolist(), dtype) is None) == fit


HUGE = 2**70


@WAYS
@pytest.mark.parametrize("form", ["function", "class"])
@pytest.mark.parametrize(
    ("x", "said"),
    [
        (HUGE, f"not {HUGE}; no dtype of integers holds it, give a float"),
        (-HUGE, f"not -{HUGE}; no dtype of integers holds it, give a float"),
        ([1, HUGE], f"{HUGE}]; no dtype of integers holds {HUGE}, give a float"),
        (
            np.array([1, HUGE], object),
            f"object[2]; no dtype of integers holds {HUGE}, give a float",
        ),
        (2**20000, "not an int of 20001 bits; no dtype holds it"),
    ],
    ids=["scalar", "negative", "list", "objects", "digits"],
)
def test_number_beyond_64_bits_that_decides_the_dtype_is_named(
    x: Any, said: str, way: Callable[..., Any], form: str
) -> None:
    def call() -> Any:
        if form == "class":
            return AddV2.create(Scope.current(), x, 1)
        return add_v2(x, 1)

    with pytest.raises(OpInputError) as caught:
        way(call)
    assert str(caught.value).startswith("AddV2: x must be a tensor, or a value that")
    assert said in str(caught.value)


@WAYS
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: add_v2(tf.constant(1), HUGE),
            f"AddV2: y must be int32; {HUGE} does not fit",
        ),
        (
            lambda: add_v2(tf.constant(1), 2**20000),
            "AddV2: y must be int32; an int of 20001 bits does not fit",
        ),
        (
            lambda: pack([[1.0]], axis=2**20000),
            "Pack: axis must be an int of 64 bits, not an int of 20001 bits",
        ),
        (
            lambda: Pack.Options(axis=2**20000),
            "Pack: axis must be an int of 64 bits, not an int of 20001 bits",
        ),
        (
            lambda: conv2d([[[[1.0]]]], [[[[1.0]]]], [1, HUGE, 1, 1], "SAME"),
            "Conv2D: strides must be a sequence, each element an int of 64 bits, "
            f"not [1, {HUGE}, 1, 1]",
        ),
        (
            lambda: leaky_relu([1.0], alpha=2**20000),
            "LeakyRelu: alpha must be a float of 64 bits, not an int of 20001 bits",
        ),
        (
            lambda: LeakyRelu.Options(alpha=2**20000),
            "LeakyRelu: alpha must be a float of 64 bits, not an int of 20001 bits",
        ),
        (
            lambda: placeholder(tf.float32, shape=[HUGE]),
            "Placeholder: shape must be a shape: dimensions of 64 bits or None, "
            f"not [{HUGE}]",
        ),
    ],
    ids=["input", "digits", "attr", "option", "list", "float", "options", "shape"],
)
def test_number_beyond_64_bits_names_argument_and_what_is_allowed(
    call: Callable[[], object], said: str, way: Callable[..., Any]
) -> None:
    with pytest.raises(OpError) as caught:
        way(call)
    assert str(caught.value) == said


def test_number_that_uint64_alone_holds_says_how_to_write_it() -> None:
    said = "int64 does not hold 9223372036854775808, give tf.constant(..., tf.uint64)"
    with pytest.raises(OpInputError) as caught:
        add_v2([1, 2**63], 1)
    assert said in str(caught.value)
    assert add_v2(tf.constant(2**63, tf.uint64), 1).numpy() == 2**63 + 1
