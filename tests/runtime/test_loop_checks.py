"""Conditions on numbers, texts and messages on which loops of kernels depend."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import linalg, raw_ops, strings, xla
from opwright_runtime._binding import graph_properties, numerics, resources, texts
from opwright_runtime.errors import OpError, OpInputError

GROWTH = np.random.default_rng(5)


def refused(call: Callable[..., Any], *inputs: Any, match: str) -> None:
    """A checked function refuses inputs whose shapes it learns when it runs."""
    specs = [tf.TensorSpec(None, one.dtype) for one in inputs]
    with opwright.checked():
        traced = tf.function(call, input_signature=specs, autograph=False)
        function = traced.get_concrete_function()
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        function(*inputs)


def terms(order: float, q: float) -> float:
    """How often 1 is added to a number until it is positive."""
    is_whole = order == math.inf or order % 1 == 0
    if not (order >= 1 and is_whole and q < 0 and q % 1):
        return 0.0
    return -q


@pytest.mark.parametrize("shapes", [((), (5,)), ((4, 1), (1, 3)), ((7,), (7,))])
def test_terms_are_those_of_each_element(shapes: Any) -> None:
    one, other = shapes
    for dtype in (np.float32, np.float64):
        orders = GROWTH.choice([0.5, 1, 2, 3.5, 7, np.inf, np.nan], one).astype(dtype)
        numbers = GROWTH.choice([-1e6, -3.5, -0.5, 2, 0.5, np.nan], other)
        given = tf.constant(orders), tf.constant(numbers.astype(dtype))
        pairs = np.broadcast(*(each.numpy() for each in given))
        expected = sum(terms(float(a), float(b)) for a, b in pairs)
        assert numerics.terms_of(*given) == pytest.approx(expected)
        assert graph_properties._terms(*given).numpy() == pytest.approx(expected)


def test_long_series_are_refused() -> None:
    q = tf.constant([-1e15 - 0.5], tf.float64)
    with pytest.raises(OpInputError, match="terms"):
        raw_ops.Zeta(x=np.float64([3]), q=q)
    refused(
        lambda x, y: raw_ops.Polygamma(a=x, x=y),
        tf.constant([2.0], tf.float64),
        q,
        match="terms",
    )
    for fine in (-1e15, -1000.5):
        raw_ops.Zeta(x=np.float64([3]), q=np.float64([fine]))


@pytest.mark.parametrize(
    ("splits", "is_nested"),
    [
        ([[0, 1], [0, 1]], True),
        ([[0, 2], [0, 1]], False),
        ([[0, 2], [0, 1, 1], [0, 1]], True),
        ([[0, 2], [0, 1, 2], [0, 1]], False),
        ([[0, 9]], True),
    ],
)
def test_nested_splits_end_at_rows(splits: Any, is_nested: bool) -> None:
    given = [tf.constant(one) for one in splits]
    assert numerics.are_nested(given) is is_nested
    assert bool(graph_properties.nested_in_graph(given)) is is_nested


def gather(outer: Any, inner: Any) -> Any:
    return raw_ops.RaggedGather(
        params_nested_splits=[outer, inner],
        params_dense_values=[1.0],
        indices=[0],
        OUTPUT_RAGGED_RANK=2,
    )


def test_gather_refuses_splits_that_are_not_nested() -> None:
    inner = tf.constant([0, 1])
    assert gather(tf.constant([0, 1]), inner).output_dense_values.shape == 1
    with pytest.raises(OpInputError, match="row splits that end beyond"):
        gather(tf.constant([0, 2]), inner)
    call = lambda one, other: gather(one, other).output_dense_values  # noqa: E731
    refused(call, tf.constant([0, 2]), inner, match="nested")


NILPOTENT = np.eye(3, k=1)
WIDE = np.diag([1e-60, 1e-60, 1e-60]) + 1e100 * NILPOTENT


@pytest.mark.parametrize(
    ("matrices", "is_invertible"),
    [
        (np.zeros([3, 3]), False),
        (np.ones([4, 4]), False),
        (NILPOTENT, False),
        (WIDE, False),
        (np.diag([1.0, 0, 2]), False),
        ([np.eye(3), NILPOTENT], False),
        (np.zeros([2, 2]), True),
        (np.zeros([0, 3, 3]), True),
        (np.full([3, 3], np.nan), False),
        (np.diag([1, np.inf, 2]), False),
        (np.diag([1e-6, 1, 1e6]), True),
        (GROWTH.normal(size=[6, 5, 5]), True),
    ],
)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_logarithm_takes_matrices_that_are_not_singular(
    matrices: Any, is_invertible: bool, dtype: str
) -> None:
    given = tf.constant(np.asarray(matrices, dtype))
    if is_invertible:
        assert linalg.matrix_logarithm(given).shape == given.shape
        return
    with pytest.raises(OpInputError, match="singular"):
        linalg.matrix_logarithm(given)
    refused(linalg.matrix_logarithm, given, match="invertible")


def scatter(indices: Any) -> Any:
    made = raw_ops.TensorListReserve(
        element_shape=np.int32([]), num_elements=2, element_dtype=tf.int32
    )
    return raw_ops.TensorListScatterIntoExistingList(
        input_handle=made, tensor=tf.cast(indices, tf.int32), indices=indices
    )


def test_lists_of_tensors_get_no_gaps() -> None:
    for indices in ([0, 1], [3, 2], [2, 4, 3, 2], []):
        made = scatter(tf.constant(indices, tf.int32))
        length = raw_ops.TensorListLength(input_handle=made)
        assert length.numpy() == max([1, *indices]) + 1
    for indices in ([3], [0, 4, 2], [5, 5, 5, 2]):
        with pytest.raises(OpInputError, match="too short for the indices"):
            scatter(tf.constant(indices))
    refused(scatter, tf.constant([0, 3]), match="filled")


def sparse(*shape: int, values: int = 0) -> tf.Tensor:
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=np.zeros([values, len(shape)], np.int64),
        values=tf.ones([values]),
        dense_shape=np.int64(shape),
    )


@pytest.mark.parametrize("shape", [(2, 3), (4, 0, 2), (1, 2**40)])
def test_matrix_of_variant_is_its_shape(shape: tuple[int, ...]) -> None:
    assert resources.matrix_of(sparse(*shape)) == shape
    assert graph_properties._matrix(sparse(*shape)).numpy().tolist() == [*shape]


def test_other_variants_have_no_matrix() -> None:
    other = tf.raw_ops.EmptyTensorMap()
    with pytest.raises(TypeError):
        resources.matrix_of(other)
    assert graph_properties._matrix(other).numpy().tolist() == [1, 1]


def test_products_of_sparse_matrices_without_rows_are_refused() -> None:
    made = raw_ops.SparseMatrixMatMul(a=sparse(2, 3, values=1), b=np.ones([3, 2], "f"))
    np.testing.assert_array_equal(made, [[1, 1], [0, 0]])
    with pytest.raises(OpInputError, match="must be more than 0"):
        raw_ops.SparseMatrixMatMul(a=sparse(2, 0, 2), b=np.ones([2, 2, 2], "f"))

    def multiply(shape: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        made = tf.raw_ops.SparseTensorToCSRSparseMatrix(
            indices=np.zeros([0, 3], np.int64), values=tf.ones([0]), dense_shape=shape
        )
        return raw_ops.SparseMatrixMatMul(a=made, b=other)

    refused(
        multiply, tf.constant([2, 0, 2], tf.int64), tf.ones([2, 2, 2]), match="matr"
    )


HEADER = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0"


@pytest.mark.parametrize(
    ("images", "is_drawable"),
    [
        ([HEADER + b"\x02"], False),
        ([b"", HEADER + b"\x2e"], False),
        ([HEADER + b"\x12"], True),
        ([HEADER + b"\x10", HEADER, b"RIFF"], True),
        ([b"\xff\xd8\xff\xe0" * 9], True),
    ],
)
def test_animations_need_alpha(images: list[bytes], is_drawable: bool) -> None:
    given = tf.constant(images)
    assert texts.are_drawable(given) is is_drawable
    assert bool(texts.are_drawable_in_graph(given)) is is_drawable


@pytest.mark.parametrize(
    ("images", "are_uncut"),
    [([b"\xff\xd8\xff"], False), ([b"a", b"\xff"], False), ([b"\xff\xd8", b""], True)],
)
def test_cut_images_end_with_half_a_marker(
    images: list[bytes], are_uncut: bool
) -> None:
    given = tf.constant(images)
    assert texts.are_uncut(given) is are_uncut
    assert bool(texts.are_uncut_in_graph(given)) is are_uncut


def test_image_is_refused_in_a_graph() -> None:
    refused(
        lambda x: raw_ops.DecodeJpeg(contents=x, try_recover_truncated=True),
        tf.constant(b"\xff\xd8\xff"),
        match="uncut",
    )


def dot(numbers: bytes, precision: bytes = b"") -> Any:
    return xla.xla_dot(tf.ones([2, 3]), tf.ones([3, 2]), numbers, precision)


def test_products_of_xla_have_their_dimensions() -> None:
    numbers = b"\x0a\x01\x01\x12\x01\x00"
    assert dot(numbers, b"\x0a\x02\x02\x01").shape == [2, 2]
    with pytest.raises(OpInputError, match="lhs and rhs do not have the dimensions"):
        dot(numbers.replace(b"\x01\x01", b"\x01\x02"))
    with pytest.raises(OpError, match=r"precision_config is .* XLA must have"):
        dot(numbers, b"\x0a\x01\x03")
    assert xla.xla_einsum(tf.ones([2, 3]), tf.ones([3, 2]), "ab,bc->ac").shape == [2, 2]
    with pytest.raises(OpInputError, match="a or b has fewer axes than labels"):
        xla.xla_einsum(tf.ones([2, 3]), tf.ones([3, 2]), "abc,cd->ad")


def ngrams(width: int, pad: str | bytes) -> Any:
    splits = tf.constant([0, 2], tf.int64)
    return strings.string_n_grams(["a", "b"], splits, " ", [width], pad, "p", -1, True)


def test_length_of_text_counts() -> None:
    assert ngrams(2, "p").ngrams.numpy().tolist() == [b"p a", b"a b", b"b p"]
    assert ngrams(2, b"\xff").ngrams.shape == 3
    with pytest.raises(OpError, match=r"len\(left_pad\)"):
        ngrams(2**16, "p" * 2**17)
