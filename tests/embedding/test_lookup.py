"""Activations: what TPUEmbeddingForServing and tf.nn make of the same ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.program import Program, rows, sparse, table, tpu_embedding

WEIGHTS = np.random.default_rng(7).normal(size=(12, 5)).astype(np.float32)
PEOPLE = np.random.default_rng(8).normal(size=(6, 3)).astype(np.float32)
# One id several times, an empty sample, and all of a table.
BAGS = rows([3, 3, 11], [], [0], [5, 1, 5, 2])
SCALES = tf.ragged.constant([[0.5, 2.0, -1.0], [], [3.0], [1.0, 0.25, 4.0, 1.5]])


def serving(features: Any, ids: Any, weights: Any = None) -> Any:
    """The activations of TensorFlow's class for serving, which runs on the CPU.

    Dense ids of rank 2 or more end in a dimension of 1, which a TPU drops.
    """
    made = tpu_embedding.TPUEmbeddingForServing(features, optimizer=None)(ids, weights)
    return {
        name: (
            tf.squeeze(made[name], -2)
            if isinstance(given, tf.Tensor) and len(given.shape) > 1
            else made[name]
        )
        for name, given in ids.items()
    }


def check(features: Any, ids: Any, weights: Any = None) -> None:
    """In training and in evaluation alike, whatever is gradient and not."""
    expected = serving(features, ids, weights)
    program = Program(features, tpu_embedding.SGD(0.0))
    gradients = tf.nest.map_structure(tf.zeros_like, expected)
    for activations in (
        program.look_up(ids, weights),
        program.train(ids, gradients, weights),
    ):
        tf.nest.assert_same_structure(activations, expected)
        for one, other in zip(
            tf.nest.flatten(activations), tf.nest.flatten(expected), strict=True
        ):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_lookup_dense_ids_match_numpy() -> None:
    films = table(WEIGHTS, "films")
    check(
        {
            "one": tpu_embedding.FeatureConfig(films),
            "column": tpu_embedding.FeatureConfig(films),
            "matrix": tpu_embedding.FeatureConfig(films),
        },
        {
            "one": tf.constant([3, 3, 0, 11], tf.int64),
            "column": tf.constant([[1], [2], [3], [1]], tf.int32),
            "matrix": tf.reshape(tf.range(8), [4, 2, 1]),
        },
    )


@pytest.mark.rotating
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_lookup_bags_match_numpy(kind: str, weighted: bool, combiner: str) -> None:
    films = table(WEIGHTS, "films", combiner=combiner)
    people = table(PEOPLE, "people", combiner="sum")
    # By default, serving drops ids with weights that are not positive.
    feature = {"validate_weights_and_indices": False}
    features = {
        "seen": tpu_embedding.FeatureConfig(films, **feature),
        "liked": tpu_embedding.FeatureConfig(films, **feature),
        "friends": tpu_embedding.FeatureConfig(people, **feature),
    }
    make = sparse if kind == "sparse" else tf.identity
    bags = {
        "seen": make(BAGS),
        "liked": make(rows([1], [2, 2], [], [0])),
        "friends": make(rows([5, 0], [1], [2], [3])),
    }
    weights = None
    if weighted:
        weights = {
            "seen": make(SCALES),
            "liked": make(tf.ragged.constant([[2.0], [1.0, 3.0], [], [0.5]])),
            "friends": None,
        }
    check(features, bags, weights)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_bags_against_tf_nn(combiner: str) -> None:
    """Samples that are not empty: tf.nn leaves others to its caller."""
    bags = rows([3, 3, 11], [7], [5, 1, 5, 2])
    scales = tf.ragged.constant([[0.5, 2.0, -1.0], [3.0], [1.0, 0.25, 4.0, 1.5]])
    films = table(WEIGHTS, "films", combiner=combiner)
    program = Program(
        {"seen": tpu_embedding.FeatureConfig(films)}, tpu_embedding.SGD(0.0)
    )
    expected = tf.nn.embedding_lookup_sparse(
        WEIGHTS, sparse(bags), sparse(scales), combiner=combiner
    )
    found = program.look_up({"seen": sparse(bags)}, {"seen": sparse(scales)})["seen"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_lookup_sequences_are_cut_and_padded(kind: str) -> None:
    """Cut at three ids; short ones end in zeros."""
    films = table(WEIGHTS, "films")
    make = sparse if kind == "sparse" else tf.identity
    features = {
        "watched": tpu_embedding.FeatureConfig(films, max_sequence_length=3),
        "seen": tpu_embedding.FeatureConfig(films),
    }
    check(features, {"watched": make(BAGS), "seen": make(BAGS)})


def test_lookup_ragged_feature_by_position_pads_with_zeros() -> None:
    """Its output's shape says how many positions a sample has."""
    films = table(WEIGHTS, "films")
    feature = tpu_embedding.FeatureConfig(films, output_shape=[4, 3])
    program = Program({"watched": feature}, tpu_embedding.SGD(0.0))
    found = program.look_up({"watched": rows([3, 3, 11], [], [0], [5, 1])})["watched"]
    expected = np.zeros((4, 3, 5), np.float32)
    expected[0] = WEIGHTS[[3, 3, 11]]
    expected[2, 0] = WEIGHTS[0]
    expected[3, :2] = WEIGHTS[[5, 1]]
    np.testing.assert_array_equal(found, expected)


def test_lookup_quantized_table_rounds_rows() -> None:
    """Clipped to [-1, 1], in steps of 0.5; the table itself stays as it is."""
    quantization = tpu_embedding.QuantizationConfig(num_buckets=5, lower=-1, upper=1)
    films = table(WEIGHTS, "films", quantization_config=quantization)
    program = Program(
        {"seen": tpu_embedding.FeatureConfig(films)}, tpu_embedding.SGD(0.0)
    )
    found = program.look_up({"seen": tf.range(12)})["seen"]
    # Halves and ones are exact in any precision.
    expected = np.floor((np.clip(WEIGHTS, -1, 1) + 1) / 0.5 + 0.5) * 0.5 - 1
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(program.tables()["films"], WEIGHTS)
