"""Gradients, wrong calls and wrong values of ops that opwright compiles with XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright  # noqa: F401
from xla_ops.support.calls import split

IDS = [0, 0, 2, 2, 2]
MATRIX = tf.SparseTensor([[0, 1], [1, 0], [1, 2]], [1.0, 2.0, 3.0], [2, 3])
ROWS = np.arange(10, dtype=np.float32).reshape(5, 2) - 3
IMAGES = np.sin(np.arange(80, dtype=np.float32)).reshape(2, 5, 4, 2)
BOXES = np.array([[0.1, 0.0, 0.8, 0.9], [0.7, 0.2, 1.1, 0.4]], np.float32)
FILTER = np.cos(np.arange(12, dtype=np.float32)).reshape(3, 2, 2)


def _filled(values: Any, filler: Any) -> tf.Tensor:
    """Rows 0, 2 and 4 are empty. The sum knows each entry from the others."""
    sparse = tf.SparseTensor([[3, 1], [1, 0], [3, 0]], values, [5, 2])
    filled, _ = tf.sparse.fill_empty_rows(sparse, filler)
    return filled.values * tf.cast(filled.indices[:, 0] + 1, tf.float32)


def _dilated(images: Any, filter: Any) -> tf.Tensor:
    ones = (1, 1, 1, 1)
    return tf.nn.dilation2d(images, filter, ones, "SAME", "NHWC", (1, 1, 2, 1))


GRADIENTS: dict[str, tuple[Callable[..., Any], Any]] = {
    "segment_sum": (lambda x: tf.math.segment_sum(x, IDS), ROWS),
    "segment_mean": (lambda x: tf.math.segment_mean(x, IDS), ROWS),
    "segment_max": (lambda x: tf.math.segment_max(x, IDS), ROWS),
    "segment_min": (lambda x: tf.math.segment_min(x, IDS), ROWS),
    "sparse_segment_sum": (
        lambda x: tf.sparse.segment_sum(x, [4, 1, 1], [0, 0, 1]),
        ROWS,
    ),
    "sparse_segment_mean": (
        lambda x: tf.sparse.segment_mean(x, [4, 1, 1], [0, 0, 1], num_segments=3),
        ROWS,
    ),
    "sparse_segment_sqrt_n": (
        lambda x: tf.sparse.segment_sqrt_n(x, [4, 1, 1], [0, 0, 1]),
        ROWS,
    ),
    "sparse_dense_matmul": (
        lambda x: tf.sparse.sparse_dense_matmul(MATRIX, x),
        ROWS[:3],
    ),
    "values_of_sparse_dense_matmul": (
        lambda x: tf.sparse.sparse_dense_matmul(MATRIX.with_values(x), ROWS[:3]),
        MATRIX.values,
    ),
    "sparse_softmax": (
        lambda x: tf.sparse.softmax(MATRIX.with_values(x)).values,
        MATRIX.values,
    ),
    "sparse_reduce_sum": (
        lambda x: tf.sparse.reduce_sum(MATRIX.with_values(x), axis=1),
        MATRIX.values,
    ),
    "images_of_crop_and_resize": (
        lambda x: tf.image.crop_and_resize(x, BOXES, [1, 0], [3, 4]),
        IMAGES,
    ),
    "boxes_of_crop_and_resize": (
        lambda x: tf.image.crop_and_resize(IMAGES, x, [1, 0], [3, 4]),
        BOXES,
    ),
    "images_of_dilation2d": (lambda x: _dilated(x, FILTER), IMAGES),
    "filter_of_dilation2d": (lambda x: _dilated(IMAGES, x), FILTER),
    "max_pool_with_argmax": (
        lambda x: tf.nn.max_pool_with_argmax(x, 2, 1, "SAME").output,
        IMAGES,
    ),
    "resize_bicubic": (
        lambda x: tf.image.resize(x, [3, 9], method="bicubic"),
        IMAGES,
    ),
    "values_of_fill_empty_rows": (lambda x: _filled(x, 0.5), MATRIX.values),
    "filler_of_fill_empty_rows": (lambda x: _filled(MATRIX.values, x), 0.5),
    "sparse_cwise_mul": (
        lambda x: tf.sparse.map_values(tf.square, MATRIX.with_values(x) * ROWS[:2, :1]),
        MATRIX.values,
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_compiled_gradient_matches_eager(name: str) -> None:
    function, given = GRADIENTS[name]
    x = tf.constant(given)

    def gradient(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            y = getattr(y, "values", y)
            loss = tf.reduce_sum(y * y * y)
        return tape.gradient(loss, x)

    wanted = gradient(x)
    found = tf.function(gradient, jit_compile=True, autograph=False)(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def compiled(name: str, **given: Any) -> Any:
    inputs, rest = split(name, given)
    tensors = {key: tf.convert_to_tensor(value) for key, value in inputs.items()}

    @tf.function(jit_compile=True, autograph=False)
    def function(given: dict[str, tf.Tensor]) -> Any:
        return getattr(tf.raw_ops, name)(**given, **rest)

    return function(tensors)


def eager(name: str, **given: Any) -> Any:
    return getattr(tf.raw_ops, name)(**given)


ERRORS = (
    tf.errors.InvalidArgumentError,
    tf.errors.InternalError,
    tf.errors.OutOfRangeError,
)
#: TensorFlow's CPU kernels of them end the process for wrong values.
ENDING = ("MaxPoolGradWithArgmax",)
COO = {"indices": [[0, 1], [1, 0]], "shape": [2, 3]}
CROPPED = np.array([[[[1.0], [2.0]]], [[[3.0], [4.0]]]], np.float32)
ALL = {"boxes": np.array([[0, 0, 1, 1]] * 2, np.float32)}
PICKED: dict[str, Any] = {
    "boxes": np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3]], np.float32),
    "scores": [1.0, 3.0, 2.0],
    "max_output_size": 4,
    "score_threshold": 0.0,
    "pad_to_max_output_size": True,
}
#: By op: wrong values that XLA does not refuse, and its first result.
NOT_CHECKED: list[tuple[str, dict[str, Any], Any]] = [
    (
        "SparseSegmentSumWithNumSegments",
        {
            "data": [[1.0], [2.0]],
            "indices": [0, 7, 0],
            "segment_ids": [0, 0, 2],
            "num_segments": 2,
        },
        [[3.0], [0.0]],
    ),
    (
        "SparseTensorDenseMatMul",
        {
            "a_indices": [[0, 9], [9, 0], [1, 1]],
            "a_values": [1.0, 1.0, 2.0],
            "a_shape": np.array([2, 2]),
            "b": [[1.0], [5.0]],
        },
        [[0.0], [10.0]],
    ),
    (
        "SparseReduceSum",
        {
            "input_indices": np.array([[0, 1], [5, 0]]),
            "input_values": [1.0, 2.0],
            "input_shape": np.array([2, 3]),
            "reduction_axes": [1],
        },
        [1.0, 0.0],
    ),
    (
        "RaggedBincount",
        {
            "splits": np.array([0, 1, 2]),
            "values": [-1, 1],
            "size": 2,
            "weights": np.zeros([0], np.float32),
        },
        [[0.0, 0.0], [0.0, 1.0]],
    ),
    (
        "CropAndResize",
        {"image": CROPPED, **ALL, "box_ind": [-1, 7], "crop_size": [1, 2]},
        CROPPED,
    ),
    (
        "CropAndResize",
        {
            "image": CROPPED,
            "boxes": np.array([[np.nan] * 4, [np.inf] * 4], np.float32),
            "box_ind": [0, 1],
            "crop_size": [1, 2],
            "extrapolation_value": 5.0,
        },
        np.full([2, 1, 2, 1], 5.0),
    ),
    (
        "CropAndResizeGradBoxes",
        {
            "grads": CROPPED,
            "image": CROPPED,
            "boxes": np.array([[0, 0.25, 1, 0.75]] * 2, np.float32),
            "box_ind": [0, 7],
        },
        [[0, 1, 0, 2], [0, 3, 0, 4]],
    ),
    (
        "CropAndResizeGradImage",
        {
            "grads": CROPPED,
            **ALL,
            "box_ind": [0, 7],
            "image_size": CROPPED.shape,
            "T": tf.float32,
        },
        [CROPPED[0], np.zeros([1, 2, 1])],
    ),
    (
        "MaxPoolGradWithArgmax",
        {
            "input": CROPPED,
            "grad": CROPPED,
            "argmax": np.array([0, -1, 0, 2]).reshape(CROPPED.shape),
            "ksize": [1, 1, 1, 1],
            "strides": [1, 1, 1, 1],
            "padding": "VALID",
        },
        [[[[1.0], [0.0]]], [[[3.0], [0.0]]]],
    ),
    (
        "NonMaxSuppressionV5",
        {**PICKED, "iou_threshold": 2.0, "soft_nms_sigma": 0.0},
        [1, 2, 0, 0],
    ),
    (
        "NonMaxSuppressionV5",
        {**PICKED, "iou_threshold": 0.5, "soft_nms_sigma": -1.0},
        [1, 2, 0, 0],
    ),
    (
        "SparseFillEmptyRows",
        {
            "indices": np.array([[7, 1], [-1, 2]]),
            "values": [1.0, 2.0],
            "dense_shape": np.array([3, 4]),
            "default_value": 0.0,
        },
        [[-1, 2], [1, 0], [7, 1]],
    ),
    ("UnravelIndex", {"indices": [7], "dims": [2, 3]}, [[0], [1]]),
    ("NthElement", {"input": [3.0, 1.0, 2.0], "n": 9}, 3.0),
    (
        "HistogramFixedWidth",
        {"values": [0.5, np.nan], "value_range": [0.0, 1.0], "nbins": 2},
        [0, 1],
    ),
    (
        "SparseTensorDenseAdd",
        {
            "a_indices": [[0, 1], [5, 0]],
            "a_values": [1.0, 2.0],
            "a_shape": [1, 2],
            "b": [[1.0, 1.0]],
        },
        [[1.0, 2.0]],
    ),
]


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    NOT_CHECKED,
    ids=[f"{one[0]}-{n}" for n, one in enumerate(NOT_CHECKED)],
)
def test_compiled_op_wrong_values_do_what_the_page_says(
    name: str, given: dict[str, Any], wanted: Any
) -> None:
    if name not in ENDING:
        with pytest.raises(ERRORS):
            eager(name, **given)
    found, *_ = tf.nest.flatten(compiled(name, **given))
    np.testing.assert_allclose(found, wanted)


#: By op: a wrong call, and the argument that the error names.
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("SegmentSum", "segment_ids", {"data": [1.0, 2.0], "segment_ids": [1, 0]}),
    ("SegmentSum", "segment_ids", {"data": [1.0, 2.0], "segment_ids": [-1, 0]}),
    ("SegmentSum", "segment_ids", {"data": [1.0, 2.0], "segment_ids": [0]}),
    (
        "SegmentSum",
        "segment_ids",
        {"data": [1.0], "segment_ids": np.array([2**63 - 1])},
    ),
    (
        "SparseSegmentSumWithNumSegments",
        "num_segments",
        {"data": [1.0], "indices": [0], "segment_ids": [0], "num_segments": -1},
    ),
    (
        "SparseTensorDenseMatMul",
        "a_shape",
        {
            "a_indices": np.zeros([0, 2], np.int64),
            "a_values": np.zeros([0], np.float32),
            "a_shape": np.array([2**62, 1]),
            "b": [[1.0]],
        },
    ),
    (
        "SparseReduceSum",
        "reduction_axes",
        {
            "input_indices": np.array([[0, 1]]),
            "input_values": [1.0],
            "input_shape": np.array([2, 3]),
            "reduction_axes": [2],
        },
    ),
    (
        "HistogramFixedWidth",
        "nbins",
        {"values": [0.5], "value_range": [0.0, 1.0], "nbins": 0},
    ),
    ("NthElement", "input", {"input": np.zeros([2, 0], np.float32), "n": 0}),
    (
        "CropAndResize",
        "crop_size",
        {"image": CROPPED, **ALL, "box_ind": [0, 1], "crop_size": [0, 1]},
    ),
    (
        "CropAndResize",
        "boxes",
        {"image": CROPPED, **ALL, "box_ind": [0], "crop_size": [1, 1]},
    ),
    (
        "CropAndResize",
        "image",
        {"image": CROPPED[:0], **ALL, "box_ind": [0, 1], "crop_size": [1, 1]},
    ),
    (
        "Dilation2DBackpropFilter",
        "out_backprop",
        {
            "input": IMAGES,
            "filter": FILTER,
            "out_backprop": IMAGES[:, :1],
            "strides": [1, 1, 1, 1],
            "rates": [1, 1, 1, 1],
            "padding": "SAME",
        },
    ),
    (
        "Dilation2D",
        "filter",
        {
            "input": IMAGES,
            "filter": FILTER,
            "strides": [1, 1, 1, 1],
            "rates": [1, 2**31 - 1, 1, 1],
            "padding": "SAME",
        },
    ),
    (
        "MaxPoolWithArgmax",
        "ksize",
        {
            "input": IMAGES,
            "ksize": [1, 9, 1, 1],
            "strides": [1, 1, 1, 1],
            "padding": "VALID",
        },
    ),
    ("UniqueWithCounts", "x", {"x": [[1, 2]]}),
    ("RaggedRange", "deltas", {"starts": 0, "limits": [3, 4], "deltas": [1, 0]}),
    ("RaggedRange", "starts", {"starts": [0], "limits": [3, 4], "deltas": 1}),
    ("RaggedRange", "limits", {"starts": 0, "limits": 2**31 - 1, "deltas": 1}),
    ("RaggedRange", "limits", {"starts": 0.0, "limits": np.inf, "deltas": 1.0}),
    (
        "SparseFillEmptyRows",
        "dense_shape",
        {
            "indices": np.array([[0, 1]]),
            "values": [1.0],
            "dense_shape": np.array([0, 2]),
            "default_value": 0.0,
        },
    ),
    (
        "SparseFillEmptyRows",
        "dense_shape",
        {
            "indices": np.array([[0, 1]]),
            "values": [1.0],
            "dense_shape": np.array([2**62, 2]),
            "default_value": 0.0,
        },
    ),
    (
        "ExtractImagePatches",
        "ksizes",
        {
            "images": np.zeros([1, 2, 2, 1], np.int64),
            "ksizes": [1, 2**30, 2**30, 1],
            "strides": [1, 1, 1, 1],
            "rates": [1, 1, 1, 1],
            "padding": "SAME",
        },
    ),
    ("UniqueWithCountsV2", "axis", {"x": [1, 2], "axis": [1]}),
    ("UniqueWithCountsV2", "axis", {"x": [1, 2], "axis": [0, 0]}),
    ("ResizeArea", "size", {"images": IMAGES, "size": [0, 2]}),
    ("ResizeBicubic", "size", {"images": IMAGES, "size": [2**31 - 1, 2**31 - 1]}),
    ("ResizeBicubic", "images", {"images": IMAGES[:, :0], "size": [2, 2]}),
    (
        "ResizeBicubicGrad",
        "original_image",
        {"grads": IMAGES, "original_image": IMAGES[:, :0]},
    ),
    (
        "ExtractVolumePatches",
        "ksizes",
        {
            "input": IMAGES[None],
            "ksizes": [1, 2**30, 2**30, 1, 1],
            "strides": [1, 1, 1, 1, 1],
            "padding": "SAME",
        },
    ),
    (
        "NonMaxSuppressionV5",
        "max_output_size",
        {**PICKED, "max_output_size": -1, "iou_threshold": 0.5, "soft_nms_sigma": 0.0},
    ),
    (
        "CombinedNonMaxSuppression",
        "max_total_size",
        {
            "boxes": np.zeros([1, 2, 1, 4], np.float32),
            "scores": np.zeros([1, 2, 3], np.float32),
            "max_output_size_per_class": 2,
            "max_total_size": 0,
            "iou_threshold": 0.5,
            "score_threshold": 0.0,
        },
    ),
]


@pytest.mark.parametrize(
    ("name", "argument", "given"),
    REFUSED,
    ids=[f"{name}-{argument}-{n}" for n, (name, argument, _) in enumerate(REFUSED)],
)
def test_compiled_op_wrong_call_is_refused(
    name: str, argument: str, given: dict[str, Any]
) -> None:
    inputs, rest = split(name, given)
    tensors = {key: tf.convert_to_tensor(value) for key, value in inputs.items()}
    unknown = {key: tf.TensorSpec(None, value.dtype) for key, value in tensors.items()}

    @tf.function(input_signature=[unknown], jit_compile=True, autograph=False)
    def function(given: dict[str, tf.Tensor]) -> Any:
        return getattr(tf.raw_ops, name)(**given, **rest)

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        function(tensors)
    assert f"{argument}: " in str(raised.value)


def test_compiled_op_dynamic_shape_is_refused() -> None:
    @tf.function(jit_compile=True, autograph=False)
    def function(x: tf.Tensor) -> Any:
        return tf.raw_ops.NthElement(input=tf.boolean_mask(x, x > 0), n=0)

    # Unimplemented: with automatic clustering TensorFlow then runs it without XLA.
    with pytest.raises(tf.errors.UnimplementedError, match=r"input: .* static shape"):
        function(tf.constant([1.0, -1.0, 2.0]))


def test_compiled_non_max_suppression_without_padding_is_refused() -> None:
    given = {"iou_threshold": 0.5, "soft_nms_sigma": 0.0}
    with pytest.raises(tf.errors.UnimplementedError, match="must be True with XLA"):
        compiled(
            "NonMaxSuppressionV5",
            **{**PICKED, **given, "pad_to_max_output_size": False},
        )
