"""Values that XLA must know when it compiles, and sizes that values decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tpu.support.remedies.case import COUNTS, FLOATS, IMAGE, TABLE, Case, segment_sums

TWO = np.int32(2)
THREE = np.int32(3)


def _repeated(values: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    rows = tf.searchsorted(tf.cumsum(counts), tf.range(6), side="right")
    return tf.gather(values, rows)


def _row_sums(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    ragged = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
    return tf.reduce_sum(ragged, axis=1)


def _padded_at(x: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
    return tf.roll(tf.pad(x, [[0, 4]]), before, axis=0)


def _mirrored(x: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
    places = tf.range(10) - before
    return tf.gather(x, 7 - tf.abs(7 - tf.abs(places)))


def _split_sums(x: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.reduce_sum(one) for one in tf.split(x, sizes, num=3)])


def _sums_of_parts(x: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    part = tf.searchsorted(tf.cumsum(sizes), tf.range(8), side="right")
    return tf.math.unsorted_segment_sum(x, part, num_segments=3)


def _along(axis: tf.Tensor, results: list[tf.Tensor]) -> tf.Tensor:
    return tf.stack(results)[axis]


def _gradient_of(loop: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(x: tf.Tensor, count: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loop(x, count)
        return tape.gradient(y, x)

    return gradient


def _open_loop(x: tf.Tensor, count: tf.Tensor) -> Any:
    return tf.while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y * y), (0, x))[1]


def _limited_loop(x: tf.Tensor, count: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda i, y: i < count,
        lambda i, y: (i + 1, y * y),
        (0, x),
        maximum_iterations=8,
    )[1]


def _grown(x: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda i, rows: i < 3,
        lambda i, rows: (i + 1, tf.concat([rows, x[None] * i], axis=0)),
        (1.0, x[None]),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 8])),
    )[1]


def _written(x: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda i, rows: i < 3,
        lambda i, rows: (
            i + 1,
            tf.tensor_scatter_nd_update(rows, [[i]], [x * tf.cast(i, x.dtype)]),
        ),
        (1, tf.pad(x[None], [[0, 2], [0, 0]])),
    )[1]


def _array(x: tf.Tensor, size: Any) -> tf.TensorArray:
    return tf.TensorArray(x.dtype, size, element_shape=x.shape)


def _sized_array(x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    rows = _array(x, size)
    for i in tf.range(size):
        rows = rows.write(i, x * tf.cast(i, x.dtype))
    return tf.reduce_sum(rows.stack())


def _fixed_array(x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    rows = _array(x, 8)
    for i in tf.range(8):
        rows = rows.write(i, tf.where(i < size, x * tf.cast(i, x.dtype), 0.0))
    return tf.reduce_sum(rows.stack())


def _stitched(places: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    return tf.dynamic_stitch([places[:4], places[4:]], [values[:4], values[4:]])


PLACES = np.array([3, 1, 4, 7, 5, 2, 6, 0], np.int32)
IDS = np.array([0, 0, 1, 2, 2, 2, 3, 3], np.int32)

CASES = (
    Case(
        "sequence_mask",
        "Range limit",
        lambda lengths: tf.sequence_mask(lengths),
        lambda lengths: tf.sequence_mask(lengths, maxlen=3),
        [COUNTS],
    ),
    Case(
        "repeat",
        "Range limit",
        lambda x, repeats: tf.repeat(x, repeats),
        _repeated,
        [FLOATS[:4], COUNTS],
    ),
    Case(
        "ragged_reduction", "Range limit", _row_sums, segment_sums, [FLOATS[:6], COUNTS]
    ),
    Case(
        "resize",
        "ResizeBilinear size",
        lambda image, size: tf.image.resize(image, size),
        lambda image, size: tf.image.resize(image, [4, 4]),
        [IMAGE, np.array([4, 4], np.int32)],
    ),
    Case(
        "range",
        "Range limit",
        lambda n: tf.reduce_sum(tf.cast(tf.range(n), tf.float32)),
        lambda n: tf.reduce_sum(tf.where(tf.range(64) < n, tf.range(64.0), 0.0)),
        [np.int32(9)],
    ),
    Case(
        "fill",
        "Fill dims",
        lambda n: tf.reduce_sum(tf.ones([n]) / 2.0),
        lambda n: tf.reduce_sum(tf.where(tf.range(64) < n, 0.5, 0.0)),
        [np.int32(9)],
    ),
    Case(
        "eye",
        "Fill dims",
        lambda n: tf.linalg.trace(tf.eye(n)),
        lambda n: tf.linalg.trace(tf.linalg.diag(tf.cast(tf.range(8) < n, tf.float32))),
        [THREE],
    ),
    Case(
        "reshape",
        "Reshape shape",
        lambda x, rows: tf.reduce_max(tf.reshape(x, [rows, 8 // rows]), axis=1),
        lambda x, rows: tf.reduce_max(tf.reshape(x, [2, -1]), axis=1),
        [FLOATS, TWO],
    ),
    Case(
        "broadcast_to",
        "BroadcastTo shape",
        lambda x, n: tf.broadcast_to(x, [n, 8]),
        lambda x, n: tf.broadcast_to(x, [3, 8]),
        [FLOATS, THREE],
    ),
    Case(
        "one_hot",
        "OneHot depth",
        lambda x, depth: tf.reduce_sum(tf.one_hot(x, depth), axis=0),
        lambda x, depth: tf.reduce_sum(tf.one_hot(x, 4), axis=0),
        [COUNTS, np.int32(4)],
    ),
    Case(
        "tile",
        "Tile multiples",
        lambda x, n: tf.tile(x, [n]),
        lambda x, n: tf.tile(x, [3]),
        [FLOATS, THREE],
    ),
    Case(
        "linspace",
        "Range limit",
        lambda n: tf.linspace([0.0, 2.0], [1.0, 4.0], n),
        lambda n: tf.linspace([0.0, 2.0], [1.0, 4.0], 5),
        [np.int32(5)],
    ),
    Case(
        "pad",
        "Pad paddings",
        lambda x, n: tf.pad(x, [[n, 4 - n]]),
        _padded_at,
        [FLOATS, THREE],
    ),
    Case(
        "pad",
        "PadV2 paddings",
        lambda x, n: tf.pad(x, [[n, 4 - n]], constant_values=1.0),
        lambda x, n: tf.roll(tf.pad(x, [[0, 4]], constant_values=1.0), n, axis=0),
        [FLOATS, THREE],
    ),
    Case(
        "mirror_pad",
        "MirrorPad paddings",
        lambda x, n: tf.pad(x, [[n, 2 - n]], "REFLECT"),
        _mirrored,
        [FLOATS, TWO],
    ),
    Case(
        "split",
        "SplitV size_splits",
        _split_sums,
        _sums_of_parts,
        [FLOATS, np.array([3, 1, 4], np.int32)],
    ),
    Case(
        "constant",
        "StridedSlice strides",
        lambda x, n: x[::n],
        lambda x, n: x[::2],
        [FLOATS, TWO],
    ),
    Case(
        "num_segments",
        "UnsortedSegmentSum num_segments",
        lambda x, ids, n: tf.math.unsorted_segment_sum(x, ids, n),
        lambda x, ids, n: tf.math.unsorted_segment_sum(x, ids, 4),
        [FLOATS, IDS, np.int32(4)],
    ),
    Case(
        "scatter_nd",
        "ScatterNd shape",
        lambda places, x, n: tf.scatter_nd(places[:, None], x, [n]),
        lambda places, x, n: tf.scatter_nd(places[:, None], x, [8]),
        [PLACES, FLOATS, np.int32(8)],
    ),
    Case(
        "confusion_matrix",
        "ScatterNd shape",
        lambda a, b: tf.math.confusion_matrix(a, b),
        lambda a, b: tf.math.confusion_matrix(a, b, num_classes=4),
        [COUNTS, COUNTS[::-1]],
    ),
    Case(
        "bincount",
        "DenseBincount size",
        lambda x: tf.math.bincount(x),
        lambda x: tf.math.unsorted_segment_sum(tf.ones_like(x), x, num_segments=4),
        [COUNTS],
    ),
    Case(
        "random_shape",
        "RandomUniform shape",
        lambda x, n: tf.reduce_sum(x) + 0.0 * tf.reduce_sum(tf.random.uniform([n])),
        lambda x, n: tf.reduce_sum(x) + 0.0 * tf.reduce_sum(tf.random.uniform([4])),
        [FLOATS, np.int32(4)],
    ),
    Case(
        "transpose",
        "Transpose perm",
        lambda x, axes: tf.transpose(x, axes),
        lambda x, axes: tf.transpose(x, [1, 0]),
        [TABLE, np.array([1, 0], np.int32)],
    ),
    Case(
        "reduction_axis",
        "Sum reduction_indices",
        lambda x, axis: tf.reduce_sum(x @ tf.transpose(x), axis=axis),
        lambda x, axis: _along(
            axis, [tf.reduce_sum(x @ tf.transpose(x), axis=one) for one in range(2)]
        ),
        [TABLE, np.int32(1)],
    ),
    Case(
        "axis",
        "ConcatV2 axis",
        lambda x, axis: tf.concat([x, x], axis),
        lambda x, axis: tf.concat([x, x], 1),
        [TABLE, np.int32(1)],
    ),
    Case(
        "axis",
        "Cumsum axis",
        lambda x, axis: tf.cumsum(x, axis),
        lambda x, axis: _along(axis, [tf.cumsum(x, one) for one in range(2)]),
        [TABLE, np.int32(1)],
    ),
    Case(
        "axis",
        "GatherV2 axis",
        lambda x, places, axis: tf.gather(x, places, axis=axis),
        lambda x, places, axis: tf.gather(x, places, axis=1),
        [TABLE, TWO, np.int32(1)],
    ),
    Case(
        "axis",
        "ArgMax dimension",
        lambda x, axis: tf.argmax(x, axis),
        lambda x, axis: tf.argmax(x, 1),
        [TABLE, np.int32(1)],
    ),
    Case(
        "axis",
        "ExpandDims dim",
        lambda x, axis: tf.expand_dims(x, axis),
        lambda x, axis: tf.expand_dims(x, 1),
        [TABLE, np.int32(1)],
    ),
    Case(
        "axis",
        "ReverseV2 axis",
        lambda x, axis: tf.reverse(x, axis),
        lambda x, axis: tf.reverse(x, [1]),
        [TABLE, np.array([1], np.int32)],
    ),
    Case(
        "axis",
        "Roll axis",
        lambda x, axis: tf.roll(x, 1, axis),
        lambda x, axis: tf.roll(x, 1, 1),
        [TABLE, np.int32(1)],
    ),
    Case(
        "conv_transpose",
        "Conv2DBackpropInput input_sizes",
        lambda x, n: tf.nn.conv2d_transpose(x, tf.ones([2, 2, 1, 3]), [2, n, n, 1], 2),
        lambda x, n: tf.nn.conv2d_transpose(
            x, tf.ones([2, 2, 1, 3]), [2, 16, 16, 1], 2
        ),
        [IMAGE, np.int32(16)],
    ),
    Case(
        "fft_length",
        "Pad paddings",
        lambda x, n: tf.abs(tf.signal.rfft(x, [n])),
        lambda x, n: tf.abs(tf.signal.rfft(x, [8])),
        [FLOATS, np.int32(8)],
    ),
    Case(
        "frame",
        "Range limit",
        lambda x, n: tf.signal.frame(x, n, 2),
        lambda x, n: tf.signal.frame(x, 4, 2),
        [FLOATS, np.int32(4)],
    ),
    Case(
        "diagonal",
        "MatrixDiagV3 k",
        lambda x, k: tf.linalg.diag(x, k=k, num_rows=8, num_cols=8),
        lambda x, k: tf.roll(tf.linalg.diag(x), -k, axis=0),
        [FLOATS, np.int32(0)],
    ),
    Case(
        "diagonal",
        "MatrixDiagPartV3 k",
        lambda x, k: tf.linalg.diag_part(x, k=k),
        lambda x, k: tf.linalg.diag_part(x, k=1),
        [TABLE, np.int32(1)],
    ),
    Case(
        "space_to_batch",
        "SpaceToBatchND paddings",
        lambda x, n: tf.space_to_batch(x, [2, 2], [[n, n], [n, n]]),
        lambda x, n: tf.space_to_batch(x, [2, 2], [[1, 1], [1, 1]]),
        [IMAGE, np.int32(1)],
    ),
    Case(
        "loop_gradient",
        "EmptyTensorList",
        _gradient_of(_open_loop),
        _gradient_of(_limited_loop),
        [FLOATS / 4, THREE],
    ),
    Case("grown_loop", "StatelessWhile", _grown, _written, [FLOATS]),
    Case(
        "array_size",
        "TensorListReserve num_elements",
        _sized_array,
        _fixed_array,
        [FLOATS, THREE],
    ),
    Case(
        "dynamic_stitch",
        "DynamicStitch indices",
        _stitched,
        lambda places, values: tf.scatter_nd(places[:, None], values, [8]),
        [PLACES, FLOATS],
    ),
    Case(
        "categorical",
        "Multinomial num_samples",
        lambda x, n: tf.random.categorical(x, n),
        lambda x, n: tf.random.categorical(x, 4),
        [np.array([[0.0, -1e9]], np.float32), np.int32(4)],
    ),
    Case(
        "space_to_batch",
        "BatchToSpaceND crops",
        lambda x, n: tf.batch_to_space(
            tf.tile(x, [2, 1, 1, 1]), [2, 2], [[n, n], [n, n]]
        ),
        lambda x, n: tf.batch_to_space(
            tf.tile(x, [2, 1, 1, 1]), [2, 2], [[1, 1], [1, 1]]
        ),
        [IMAGE, np.int32(1)],
    ),
    Case(
        "sparse_to_dense",
        "SparseToDense output_shape",
        lambda p, x, n: tf.sparse.to_dense(
            tf.SparseTensor(tf.cast(p[:, None], tf.int64), x, [n]),
            validate_indices=False,
        ),
        lambda p, x, n: tf.scatter_nd(p[:, None], x, [8]),
        [PLACES, FLOATS, np.int64(8)],
    ),
    Case(
        "range",
        "Range delta",
        lambda x, n: tf.gather(x, tf.range(0, 8, n)),
        lambda x, n: tf.gather(x, tf.range(0, 8, 2)),
        [FLOATS, TWO],
    ),
)
