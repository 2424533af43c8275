"""How many crosses of features an op makes, eagerly and as ops of a graph.

Row b of the result has a cross for each way to take one value of row b from every
tensor. They are counted in float64: a few short rows have more than int64 holds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from opwright_runtime._binding.fast_path import EagerTensor
from opwright_runtime._binding.properties import array_of, sizes_of

_MOST = 2.0**62


def crosses_of(
    indices: Sequence[tf.Tensor],
    dense_inputs: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor] = (),
) -> int:
    """How many crosses there are in all rows, or a number of which no one has memory.

    Args:
        indices: of each sparse tensor, [values, 2]: row and column of each value.
        dense_inputs: matrices with a value for each column of a row.
        row_splits: of each ragged tensor, where its rows begin and end.

    Raises:
        TypeError: one of them is no eager tensor.
    """
    for each in (*indices, *dense_inputs, *row_splits):
        if type(each) is not EagerTensor:
            raise TypeError
    found = math.prod(float(sizes_of(each)[1]) for each in dense_inputs)
    lengths = [np.diff(array_of(each).astype("d")) for each in row_splits]
    of_ragged = np.prod(np.broadcast_arrays(*lengths), axis=0) if lengths else None
    if indices:
        # By row. One that lacks a value of a tensor has no cross.
        first, *others = [Counter(array_of(each)[:, 0].tolist()) for each in indices]
        counts: Mapping[int, float] = first
        for each in others:
            counts = {row: counts[row] * each[row] for row in counts if row in each}
        if of_ragged is not None:
            last = len(of_ragged) - 1
            counts = {
                row: count * of_ragged[min(max(row, 0), last)]
                for row, count in counts.items()
            }
        found *= sum(counts.values())
    elif of_ragged is not None:
        found *= of_ragged.sum()
    else:
        found *= sizes_of(dense_inputs[0])[0] if dense_inputs else 0
    return int(min(found, _MOST))


def crosses_in_graph(
    indices: Sequence[tf.Tensor],
    dense_inputs: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor] = (),
) -> tf.Tensor:
    """`crosses_of` as ops."""
    number: tf.Tensor = tf.constant(1.0, tf.float64)
    for each in dense_inputs:
        number *= tf.cast(tf.shape(each, tf.int64)[1], tf.float64)
    of_ragged: tf.Tensor | None = None
    for each in row_splits:
        lengths = tf.cast(each[1:] - each[:-1], tf.float64)
        of_ragged = lengths if of_ragged is None else of_ragged * lengths
    if not indices:
        if of_ragged is not None:
            return tf.reduce_sum(of_ragged) * number
        rows = tf.shape(dense_inputs[0], tf.int64)[0] if dense_inputs else 0
        return tf.cast(rows, tf.float64) * number
    columns = [each[:, 0] for each in indices]
    numbers, places = tf.unique(tf.concat(columns, 0))
    counts: tf.Tensor = tf.ones_like(numbers, tf.float64)
    for part in tf.split(places, [tf.size(each) for each in columns]):
        ones = tf.ones_like(part, tf.float64)
        counts *= tf.math.unsorted_segment_sum(ones, part, tf.size(numbers))
    if of_ragged is not None:
        last = tf.maximum(tf.size(of_ragged, tf.int64) - 1, 0)
        counts *= tf.gather(of_ragged, tf.clip_by_value(numbers, 0, last))
    return tf.reduce_sum(counts) * number
