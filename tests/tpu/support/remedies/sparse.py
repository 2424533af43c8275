"""Sparse and ragged tensors, and segments: XLA has no kernel of these ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tpu.support.remedies.case import COUNTS, FLOATS, TABLE, Case, segment_sums

PLACES = np.array([[0, 1], [1, 0], [3, 7]], np.int64)
WEIGHTS = np.array([2, 3, 4], np.float32)
ROWS = np.array([0, 2], np.int32)
IDS = np.array([0, 0, 1, 2, 2, 2, 3, 3], np.int32)


def _sparse(places: tf.Tensor, weights: tf.Tensor) -> tf.SparseTensor:
    return tf.SparseTensor(places, weights, [4, 8])


def _gathered(places: tf.Tensor, weights: tf.Tensor, dense: tf.Tensor) -> tf.Tensor:
    rows = tf.gather(dense, places[:, 1]) * weights[:, None]
    return tf.math.unsorted_segment_sum(rows, places[:, 0], num_segments=4)


def _sparse_sum(places: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    return tf.sparse.to_dense(
        tf.sparse.add(_sparse(places, weights), _sparse(places, weights))
    )


def _scattered_sum(places: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    both = tf.concat([places, places], 0), tf.concat([weights, weights], 0)
    return tf.scatter_nd(*both, [4, 8])


def _looked_up(places: tf.Tensor, weights: tf.Tensor, dense: tf.Tensor) -> tf.Tensor:
    ids = tf.SparseTensor(places, places[:, 1], [4, 8])
    weighted = tf.SparseTensor(places, weights, [4, 8])
    return tf.nn.embedding_lookup_sparse(dense, ids, weighted, combiner="sum")


def _looked_up_rows(places: tf.Tensor, dense: tf.Tensor) -> tf.Tensor:
    ids = tf.SparseTensor(places, places[:, 1], [4, 8])
    return tf.nn.embedding_lookup_sparse(dense, ids, None, combiner="sum")


def _filled(places: tf.Tensor, weights: tf.Tensor, shape: Any) -> tf.Tensor:
    return tf.sparse.fill_empty_rows(tf.SparseTensor(places, weights, shape), 0.5)[
        0
    ].values


def _mapped(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    ragged = tf.RaggedTensor.from_row_lengths(x, n, validate=False)
    return tf.map_fn(tf.reduce_sum, ragged, fn_output_signature=tf.float32)


CASES = (
    Case("sparse_add", "SparseAdd", _sparse_sum, _scattered_sum, [PLACES, WEIGHTS]),
    Case(
        "sparse_layout",
        "SparseSlice",
        lambda p, w: tf.sparse.to_dense(tf.sparse.slice(_sparse(p, w), [0, 0], [2, 8])),
        lambda p, w: tf.scatter_nd(p, w, [4, 8])[:2],
        [PLACES, WEIGHTS],
    ),
    Case(
        "embedding_sparse",
        "SegmentSum segment_ids",
        _looked_up,
        lambda p, w, dense: _gathered(p, w, dense)[:2],
        [PLACES[:2], WEIGHTS[:2], TABLE],
    ),
    Case(
        "embedding_sparse",
        "SparseSegmentSum segment_ids",
        _looked_up_rows,
        lambda p, dense: _gathered(p, tf.ones([2]), dense)[:2],
        [PLACES[:2], TABLE],
    ),
    Case(
        "sparse_segment",
        "SparseSegmentMean segment_ids",
        lambda x, ids, segments: tf.sparse.segment_mean(x, ids, segments),
        lambda x, ids, segments: tf.sparse.segment_mean(
            x, ids, segments, num_segments=3
        ),
        [TABLE, COUNTS, np.array([0, 0, 1, 2], np.int32)],
    ),
    Case(
        "segment",
        "SegmentMax segment_ids",
        lambda x, ids: tf.math.segment_max(x, ids),
        lambda x, ids: tf.math.unsorted_segment_max(x, ids, num_segments=4),
        [FLOATS, IDS],
    ),
    Case(
        "segment",
        "SegmentMean segment_ids",
        lambda x, ids: tf.math.segment_mean(x, ids),
        lambda x, ids: tf.math.unsorted_segment_mean(x, ids, num_segments=4),
        [FLOATS, IDS],
    ),
    Case(
        "ragged_to_tensor",
        "RaggedTensorToTensor shape",
        lambda x, n: tf.RaggedTensor.from_row_lengths(x, n, validate=False).to_tensor(),
        lambda x, n: tf.RaggedTensor.from_row_lengths(x, n, validate=False).to_tensor(
            shape=[None, 3]
        ),
        [FLOATS[:6], COUNTS],
    ),
    Case(
        "ragged_gather",
        "RaggedGather",
        lambda x, n, rows: tf.reduce_sum(
            tf.gather(
                tf.RaggedTensor.from_row_lengths(x, n, validate=False), rows
            ).flat_values
        ),
        lambda x, n, rows: tf.reduce_sum(tf.gather(segment_sums(x, n), rows)),
        [FLOATS[:6], COUNTS, ROWS],
    ),
    Case(
        "ragged_range",
        "RaggedRange limits",
        lambda n: tf.reduce_sum(tf.ragged.range(n).flat_values),
        lambda n: tf.reduce_sum(tf.where(tf.range(8) < n[:, None], tf.range(8), 0)),
        [COUNTS],
    ),
    Case(
        "fill_empty_rows",
        "SparseFillEmptyRows dense_shape",
        lambda p, w, shape: tf.reduce_sum(_filled(p, w, shape)),
        lambda p, w, shape: tf.reduce_sum(_filled(p, w, [4, 8])),
        [PLACES, WEIGHTS, np.array([4, 8], np.int64)],
    ),
    Case(
        "sparse_maximum",
        "SparseSparseMaximum",
        lambda p, w: tf.sparse.maximum(_sparse(p, w), _sparse(p, -w)).values,
        lambda p, w: tf.maximum(w, -w),
        [PLACES, WEIGHTS],
    ),
    Case(
        "map_ragged",
        "RaggedTensorToVariant",
        _mapped,
        segment_sums,
        [FLOATS[:6], COUNTS],
    ),
)
