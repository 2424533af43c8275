"""For each row of remedies.json a program that does not compile, and its remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

FLOATS = np.arange(-4, 4, dtype=np.float32)
IMAGE = np.linspace(0, 1, 2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3)
COUNTS = np.array([2, 0, 3, 1], np.int32)
BOXES = np.array(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 0.9, 1, 1.9]], np.float32
)
SCORES = np.array([0.9, 0.8, 0.7, 0.6], np.float32)


@dataclass(frozen=True)
class Case:
    """A program before and after its remedy.

    Attributes:
        row: the row's id.
        before: does not compile.
        after: compiles, and gives the same numbers.
        given: arguments of both.
        host: makes the arguments of `after` from `given` on the host.
    """

    row: str
    before: Callable[..., Any]
    after: Callable[..., Any]
    given: Sequence[Any]
    host: Callable[..., Sequence[Any]] = lambda *given: given


def _printed(x: tf.Tensor) -> tf.Tensor:
    y = x * 2.0
    tf.print(y)
    return y


def _counts(ids: tf.Tensor) -> tf.Tensor:
    found = tf.unique(ids)
    return tf.math.unsorted_segment_sum(tf.ones_like(ids), found.idx, 4)


def _row_sums(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    ragged = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
    return tf.reduce_sum(ragged, axis=1)


def _segment_sums(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    rows = tf.searchsorted(tf.cumsum(lengths), tf.range(6), side="right")
    return tf.math.unsorted_segment_sum(values, rows, num_segments=4)


def _repeated(values: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    rows = tf.searchsorted(tf.cumsum(counts), tf.range(6), side="right")
    return tf.gather(values, rows)


def _crops(image: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    return tf.image.crop_and_resize(image, boxes, [0, 1, 0, 1], [4, 4])


def _weighted_crops(image: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    def weights(first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        places = tf.linspace(first, last, 4, axis=-1) * 7.0
        return tf.nn.relu(1.0 - tf.abs(places[..., None] - tf.range(8.0)))

    rows, columns = weights(boxes[:, 0], boxes[:, 2]), weights(boxes[:, 1], boxes[:, 3])
    chosen = tf.gather(image, [0, 1, 0, 1])
    return tf.einsum("nyh,nhwc,nxw->nyxc", rows, chosen, columns)


def _histogram(x: tf.Tensor) -> tf.Tensor:
    bins = tf.histogram_fixed_width_bins(x, [-4.0, 4.0], nbins=4)
    return tf.math.unsorted_segment_sum(tf.ones_like(bins), bins, num_segments=4)


def _combined(boxes: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.image.combined_non_max_suppression(
        boxes[None, :, None], scores[None, :, None], 2, 2, clip_boxes=False
    ).nmsed_scores[0]


def _soft(boxes: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.image.non_max_suppression_with_scores(boxes, scores, 2)[1]


def _padded(boxes: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    chosen, _ = tf.image.non_max_suppression_padded(
        boxes, scores, 2, pad_to_max_output_size=True
    )
    return tf.gather(scores, chosen)


PNG = tf.io.encode_png(tf.cast(IMAGE[0] * 255, tf.uint8)).numpy()


def _dataset(x: tf.Tensor) -> tf.Tensor:
    for one in tf.data.Dataset.range(3):
        x += tf.cast(one, tf.float32)
    return x


def _steps(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    for one in rows:
        x += tf.cast(one, tf.float32)
    return x


PLACES = np.array([[0, 1], [1, 0], [3, 7]], np.int64)
WEIGHTS = np.array([2, 3, 4], np.float32)
DENSE = np.arange(24, dtype=np.float32).reshape(8, 3)


def _sparse(places: tf.Tensor, weights: tf.Tensor, dense: tf.Tensor) -> tf.Tensor:
    sparse = tf.SparseTensor(places, weights, [4, 8])
    return tf.sparse.sparse_dense_matmul(sparse, dense)


def _gathered(places: tf.Tensor, weights: tf.Tensor, dense: tf.Tensor) -> tf.Tensor:
    rows = tf.gather(dense, places[:, 1]) * weights[:, None]
    return tf.math.unsorted_segment_sum(rows, places[:, 0], num_segments=4)


SETS = (
    np.array([[1, 2, 3], [4, 5, 6]], np.int32),
    np.array([[3, 1], [7, 5]], np.int32),
)


def _shared(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.sets.size(tf.sets.intersection(a, b))


def _equal_pairs(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    among = tf.reduce_any(a[:, :, None] == b[:, None, :], axis=2)
    return tf.reduce_sum(tf.cast(among, tf.int32), axis=1)


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


def _lookup(x: tf.Tensor) -> tf.Tensor:
    keys, values = tf.constant([1, 2]), tf.constant([10, 20])
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
    return tf.lookup.StaticHashTable(initializer, 0).lookup(x)


CASES = (
    Case(
        "strings",
        _lookup,
        lambda x: x,
        [np.array([2, 3], np.int32)],
        lambda x: [_lookup(x)],
    ),
    Case(
        "loop_gradient",
        _gradient_of(_open_loop),
        _gradient_of(_limited_loop),
        [FLOATS / 4, np.int32(3)],
    ),
    Case(
        "dtype",
        tf.cumsum,
        lambda x: tf.cumsum(tf.cast(x, tf.int32)),
        [np.arange(8, dtype=np.uint8)],
    ),
    Case(
        "op",
        lambda x: tf.linalg.lu(x)[0] * 2.0,
        lambda x: x * 2.0,
        [np.array([[4, 3], [2, 1]], np.float32)],
        lambda x: [tf.linalg.lu(x)[0]],
    ),
    Case(
        "strings",
        lambda x: tf.strings.length(tf.strings.as_string(x)) + 1,
        lambda lengths: lengths + 1,
        [FLOATS],
        lambda x: [tf.strings.length(tf.strings.as_string(x))],
    ),
    Case(
        "py_function",
        lambda x: tf.py_function(lambda y: y + 1.0, [x], tf.float32),
        lambda x: x + 1.0,
        [FLOATS],
    ),
    Case(
        "py_function",
        lambda x: tf.numpy_function(lambda y: y + np.float32(1), [x], tf.float32) * 2.0,
        lambda y: y * 2.0,
        [FLOATS],
        lambda x: [x + np.float32(1)],
    ),
    Case("print", _printed, lambda x: x * 2.0, [FLOATS]),
    Case(
        "unique_with_counts",
        lambda ids: tf.unique_with_counts(ids).count,
        _counts,
        [np.array([5, 7, 5, 1, 2, 5], np.int32)],
    ),
    Case(
        "sequence_mask",
        tf.sequence_mask,
        lambda lengths: tf.sequence_mask(lengths, maxlen=3),
        [COUNTS],
    ),
    Case("repeat", tf.repeat, _repeated, [FLOATS[:4], COUNTS]),
    Case("ragged", _row_sums, _segment_sums, [FLOATS[:6], COUNTS]),
    Case(
        "resize",
        tf.image.resize,
        lambda image: tf.image.resize(image, [4, 4]),
        [IMAGE, np.array([4, 4], np.int32)],
        lambda image, size: [image],
    ),
    Case(
        "crop_and_resize",
        _crops,
        _weighted_crops,
        [IMAGE, np.array([[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9]] * 2, np.float32)],
    ),
    Case(
        "histogram",
        lambda x: tf.histogram_fixed_width(x, [-4.0, 4.0], nbins=4),
        _histogram,
        [FLOATS],
    ),
    Case("non_max_suppression", _combined, _padded, [BOXES, SCORES]),
    Case("non_max_suppression", _soft, _padded, [BOXES, SCORES]),
    Case(
        "images",
        lambda: tf.cast(tf.io.decode_png(PNG), tf.float32) / 255.0,
        lambda image: tf.cast(image, tf.float32) / 255.0,
        [],
        lambda: [tf.io.decode_png(PNG)],
    ),
    Case("tf_data", _dataset, _steps, [FLOATS], lambda x: [x, np.arange(3)]),
    Case("sparse", _sparse, _gathered, [PLACES, WEIGHTS, DENSE]),
    Case("sets", _shared, _equal_pairs, SETS),
    Case(
        "timestamp",
        lambda x: x + tf.cast(tf.timestamp() > 0, tf.float32),
        lambda x, now: x + tf.cast(now > 0, tf.float32),
        [FLOATS],
        lambda x: [x, tf.timestamp()],
    ),
    Case(
        "complex128",
        lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex128))),
        lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64))),
        [FLOATS],
    ),
    Case(
        "shape",
        lambda n: tf.reduce_sum(tf.cast(tf.range(n), tf.float32)),
        lambda n: tf.reduce_sum(tf.where(tf.range(64) < n, tf.range(64.0), 0.0)),
        [np.int32(9)],
    ),
)
