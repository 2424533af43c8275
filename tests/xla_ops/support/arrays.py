"""Calls of ops that rearrange, select or count elements."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from xla_ops.support.draws import Arguments, Draw, Kind, Kinds, Values


def unravel_index(draw: Draw) -> Values:
    shape = draw.choice([], [draw.size(1)])
    dims = draw.sizes(draw.size(1, 4), 1)

    def values() -> Arguments:
        return {
            "indices": draw.integers(0, int(np.prod(dims)), shape, draw.dtype),
            "dims": draw.rng.permutation(dims).astype(draw.dtype.as_numpy_dtype),
        }

    return values


def nth_element(draw: Draw) -> Values:
    last = draw.size(1, 9)
    shape = [*draw.sizes(draw.size(0, 2)), last]
    reverse = draw.flag()
    return lambda: {
        "input": draw.numbers(shape),
        "n": draw.integers(0, last),
        "reverse": reverse,
    }


def in_top_k(draw: Draw) -> Values:
    batch, classes = draw.size(), draw.size(1)
    k = draw.size(-1)

    def values() -> Arguments:
        predictions = draw.numbers([batch, classes], tf.float32).numpy()
        wrong = draw.rng.random(predictions.shape) < 0.05
        predictions[wrong] = draw.choice(np.nan, np.inf, -np.inf)
        targets = draw.integers(-1, classes + 1, [batch], draw.dtype)
        return {"predictions": predictions, "targets": targets, "k": k}

    return values


def _repeated(draw: Draw, shape: list[int]) -> tf.Tensor:
    """Numbers of which many are equal."""
    made = draw.rng.integers(0 if draw.dtype.is_unsigned else -2, 3, shape)
    if not draw.dtype.is_floating:
        return tf.cast(made, draw.dtype)
    special = draw.rng.random(shape)
    # In 16 bits TensorFlow compares 0 with -0 as its hashes happen to fall.
    least = 0.0 if draw.dtype.size == 2 else 0.1
    numbers = np.where(special < least, -0.0, np.where(special > 0.95, np.nan, made))
    return tf.cast(tf.constant(numbers, tf.float64), draw.dtype)


def unique_with_counts(draw: Draw) -> Values:
    shape = [draw.size(0, 12)]
    index = draw.choice(tf.int32, tf.int64)
    return lambda: {"x": _repeated(draw, shape), "out_idx": index}


def unique_with_counts_v2(draw: Draw) -> Values:
    shape = draw.sizes(draw.size(1, 3), most=4)
    axis = draw.choice(*range(-len(shape), len(shape)))
    axes = [] if len(shape) == 1 and draw.flag() else [axis]
    kind = draw.choice(np.int32, np.int64)
    index = draw.choice(tf.int32, tf.int64)
    return lambda: {
        "x": _repeated(draw, shape),
        "axis": np.array(axes, kind),
        "out_idx": index,
    }


def isotonic_regression(draw: Draw) -> Values:
    shape = [*draw.sizes(draw.size(0, 2), most=4), draw.size(0, 20)]
    narrow = {tf.int8: tf.float32, tf.int16: tf.float32}
    wide = {tf.int32: tf.float64, tf.int64: tf.float64}
    dtype = {**narrow, **wide}.get(draw.dtype, draw.dtype)
    return lambda: {"input": draw.numbers(shape), "output_dtype": dtype}


def histogram_fixed_width(draw: Draw) -> Values:
    shape = draw.sizes(draw.size(0, 3), most=9)
    bins = draw.size(1, 12)
    dtype = draw.choice(tf.int32, tf.int64)

    def values() -> Arguments:
        low, high = sorted(draw.rng.choice(10, 2, replace=False))
        return {
            "values": draw.numbers(shape),
            "value_range": tf.cast([low, high], draw.dtype),
            "nbins": bins,
            "dtype": dtype,
        }

    return values


def _weights(draw: Draw, count: int, binary: bool) -> Values:
    """Weights for `count` values; without them, each value counts one."""
    given = not binary and draw.flag()
    return lambda: {"weights": draw.numbers([count if given else 0])}


def ragged_bincount(draw: Draw) -> Values:
    rows, count = draw.size(1), draw.size(0, 12)
    size, binary = draw.size(0, 8), draw.flag()
    index = draw.choice(tf.int32, tf.int64)
    weights = _weights(draw, count, binary)

    def values() -> Arguments:
        inner = np.sort(draw.rng.integers(0, count + 1, rows - 1))
        return {
            "splits": np.array([0, *inner, count], np.int64),
            "values": draw.integers(0, 10, [count], index),
            "size": tf.constant(size, index),
            "binary_output": binary,
            **weights(),
        }

    return values


def sparse_bincount(draw: Draw) -> Values:
    rows, columns = draw.size(1), draw.size(1)
    size, binary = draw.size(0, 8), draw.flag()
    rank = draw.choice(1, 2)
    dense = [rows * columns] if rank == 1 else [rows, columns]
    count = draw.size(0, rows * columns)
    index = draw.choice(tf.int32, tf.int64)
    weights = _weights(draw, count, binary)

    def values() -> Arguments:
        flat = np.sort(draw.rng.permutation(rows * columns)[:count])
        at = np.stack(np.unravel_index(flat, dense), axis=1).astype(np.int64)
        return {
            "indices": at,
            "values": draw.integers(0, 10, [count], index),
            "dense_shape": tf.constant(dense, tf.int64),
            "size": tf.constant(size, index),
            "binary_output": binary,
            **weights(),
        }

    return values


KINDS: Kinds = {
    "UnravelIndex": Kind(unravel_index, "Tidx"),
    "NthElement": Kind(nth_element),
    "InTopK": Kind(in_top_k),
    "IsotonicRegression": Kind(isotonic_regression, tolerance=0.0, narrow=True),
    "UniqueWithCounts": Kind(unique_with_counts, narrow=True),
    "UniqueWithCountsV2": Kind(unique_with_counts_v2, known=("axis",), narrow=True),
    "HistogramFixedWidth": Kind(histogram_fixed_width, known=("nbins",)),
    "RaggedBincount": Kind(ragged_bincount, known=("size",)),
    "SparseBincount": Kind(sparse_bincount, known=("dense_shape", "size")),
}
