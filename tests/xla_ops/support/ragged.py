"""Calls of ops on ragged tensors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import tensorflow as tf

from xla_ops.support.draws import Arguments, Draw, Kind, Kinds, Values


def _numbers(draw: Draw, shape: list[int]) -> tf.Tensor:
    if draw.dtype == tf.bool:
        return draw.integers(0, 2, shape, tf.bool)
    return draw.numbers(shape)


def _splits(draw: Draw, rows: int, values: int) -> np.ndarray:
    if rows == 0:
        return np.zeros([1], np.int64)
    inner = np.sort(draw.rng.integers(0, values + 1, rows - 1))
    return np.array([0, *inner, values], np.int64)


def _counts(draw: Draw) -> list[int]:
    """The number of rows, and that of the values of each level."""
    counts = [draw.size(), *draw.sizes(draw.size(1, 2), 0, 9)]
    for i in range(1, len(counts)):
        counts[i] = 0 if counts[i - 1] == 0 else counts[i]
    return counts


def to_tensor(draw: Draw) -> Values:
    counts, inner = _counts(draw), draw.sizes(draw.size(0, 2), 1, 3)
    index = draw.choice(tf.int32, tf.int64)
    by_ids = draw.flag()
    levels = len(counts) - 1
    # XLA does not know FIRST_DIM_SIZE, and then needs the size.
    shape = [draw.size() if by_ids else draw.choice(-1, draw.size())]
    shape += draw.sizes(levels, 0, 5)
    shape += [draw.choice(-1, size) for size in inner]
    # TensorFlow refuses some fillers of lower rank if there are no values.
    filler = draw.choice([], [draw.choice(1, size) for size in inner])
    types = ["ROW_SPLITS"] * levels
    if by_ids:
        types = ["FIRST_DIM_SIZE", *["VALUE_ROWIDS"] * levels]

    def values() -> Arguments:
        parts = [_splits(draw, counts[i], counts[i + 1]) for i in range(levels)]
        if by_ids:
            ids = [np.repeat(np.arange(len(s) - 1), np.diff(s)) for s in parts]
            parts = [np.array(counts[0]), *ids]
        return {
            "shape": tf.constant(shape, draw.choice(tf.int32, tf.int64)),
            "values": _numbers(draw, [counts[-1], *inner]),
            "default_value": _numbers(draw, filler),
            "row_partition_tensors": [tf.cast(part, index) for part in parts],
            "row_partition_types": types,
        }

    return values


def to_sparse(draw: Draw) -> Values:
    counts, inner = _counts(draw), draw.sizes(draw.size(0, 2), 1, 3)
    index = draw.choice(tf.int32, tf.int64)
    return lambda: {
        "rt_nested_splits": [
            tf.cast(_splits(draw, rows, values), index)
            for rows, values in pairwise(counts)
        ],
        "rt_dense_values": _numbers(draw, [counts[-1], *inner]),
    }


def ragged_range(draw: Draw) -> Values:
    rows = draw.size()
    shapes = [draw.choice([], [rows]) for _ in range(3)]
    splits = draw.choice(tf.int32, tf.int64)

    def values() -> Arguments:
        deltas = draw.numbers(shapes[2])
        deltas = tf.where(tf.equal(deltas, 0), tf.ones_like(deltas), deltas)
        if deltas.dtype.is_floating:  # Few numbers a row.
            deltas = tf.where(abs(deltas) < 0.1, 3 * tf.sign(deltas), deltas)
        return {
            "starts": draw.numbers(shapes[0]),
            "limits": draw.numbers(shapes[1]),
            "deltas": deltas,
            "Tsplits": splits,
        }

    return values


KINDS: Kinds = {
    "RaggedRange": Kind(
        ragged_range, known=("starts", "limits", "deltas"), tolerance=0.0, narrow=True
    ),
    "RaggedTensorToTensor": Kind(to_tensor, known=("shape",)),
    "RaggedTensorToSparse": Kind(to_sparse, "Tsplits"),
}
