"""How many crosses of features an op makes, compared with what TensorFlow makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright_runtime._binding.crossing import crosses_in_graph, crosses_of

COLUMNS = 5
# Two features with as many values in one row. Their crosses take 26 GiB or more.
MANY = 60_000


def tensors(values: list[Any]) -> list[tf.Tensor]:
    return [tf.constant(each, tf.int64) for each in values]


def drawn(rng: np.random.Generator) -> tuple[list[Any], list[Any], list[Any], int]:
    """Indices of sparse tensors, dense matrices and row_splits; the number of rows."""
    rows = int(rng.integers(0, 5))
    sparse, dense, splits = [], [], []
    for _ in range(rng.integers(0, 3)):
        is_set = rng.random((rows, COLUMNS)) < rng.random()
        sparse.append(np.argwhere(is_set).reshape(-1, 2))
    for _ in range(rng.integers(0, 3)):
        dense.append(rng.integers(0, 9, (rows, int(rng.integers(0, 4)))))
    for _ in range(rng.integers(0, 3)):
        splits.append(np.cumsum([0, *rng.integers(0, 4, rows)]))
    return tensors(sparse), tensors(dense), tensors(splits), rows


@pytest.mark.parametrize("seed", range(60))
def test_crosses_are_as_many_as_tensorflow_makes(seed: int) -> None:
    sparse, dense, splits, rows = drawn(np.random.default_rng(seed))
    shapes = tensors([[rows, COLUMNS]] * len(sparse))
    values = [each[:, 1] for each in sparse]
    if splits:
        made, _ = tf.raw_ops.RaggedCross(
            ragged_values=[tf.range(each[-1]) for each in splits],
            ragged_row_splits=splits,
            sparse_indices=sparse,
            sparse_values=values,
            sparse_shape=shapes,
            dense_inputs=dense,
            input_order="R" * len(splits) + "S" * len(sparse) + "D" * len(dense),
            hashed_output=True,
            num_buckets=9,
            hash_key=1,
            out_values_type=tf.int64,
            out_row_splits_type=tf.int64,
        )
    elif sparse or dense:
        _, made, _ = tf.raw_ops.SparseCrossHashed(
            indices=sparse,
            values=values,
            shapes=shapes,
            dense_inputs=dense,
            num_buckets=9,
            strong_hash=False,
            salt=[1, 2],
        )
    else:
        assert crosses_of([], []) == 0
        return
    assert crosses_of(sparse, dense, splits) == made.shape[0]
    assert float(crosses_in_graph(sparse, dense, splits)) == made.shape[0]


def cross_ragged() -> None:
    opwright.ragged.ragged_cross(
        ragged_values=[np.zeros(MANY, np.int64)] * 2,
        ragged_row_splits=[np.int64([0, MANY])] * 2,
        sparse_indices=[],
        sparse_values=[],
        sparse_shape=[],
        dense_inputs=[],
        input_order="RR",
        hashed_output=True,
        num_buckets=9,
        hash_key=1,
        out_values_type=tf.int64,
        out_row_splits_type=tf.int64,
    )


def cross_strings() -> None:
    """Sixty features with two values each, which have 2**60 crosses."""
    count = 60
    opwright.sparse.sparse_cross_v2(
        [[[0, 0], [0, 1]]] * count, [["a", "b"]] * count, [[1, 2]] * count, [], "_"
    )


@pytest.mark.parametrize("cross", [cross_ragged, cross_strings])
def test_crosses_without_memory_are_refused(cross: Any) -> None:
    with pytest.raises(opwright.OpMemoryError, match="memory are free"):
        cross()


def test_checked_graph_counts_crosses_when_it_runs() -> None:
    @tf.function(autograph=False)
    def cross(indices: tf.Tensor) -> tf.Tensor:
        with opwright.checked():
            made = opwright.sparse.sparse_cross_hashed(
                [indices] * 2,
                [indices[:, 0]] * 2,
                [[1, MANY]] * 2,
                [],
                9,
                False,
                [1, 2],
            )
        return made.output_values

    row = np.zeros(MANY, np.int64)
    indices = np.stack([row, np.arange(MANY)], 1)
    assert cross(tf.constant(indices[:3])).shape == (9,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="crosses"):
        cross(tf.constant(indices))
