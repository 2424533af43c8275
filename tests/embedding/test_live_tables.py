"""opwright.tpu.table: what tables hold. And features by their keys, in errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.program import Program, table, tpu_embedding
from opwright import tpu

WEIGHTS = np.arange(24, dtype=np.float32).reshape(6, 4)


def program() -> Program:
    films = table(WEIGHTS, "films", optimizer=tpu_embedding.Adagrad(0.5))
    people = table(-WEIGHTS, "people")
    features = {
        "seen": {"last": tpu_embedding.FeatureConfig(films)},
        "friends": tpu_embedding.FeatureConfig(people, name="best friends"),
    }
    return Program(features, tpu_embedding.SGD(1.0))


def ids(films: list[int], people: list[int]) -> dict[str, Any]:
    return {"seen": {"last": tf.constant(films)}, "friends": tf.constant(people)}


def ones() -> dict[str, Any]:
    return {"seen": {"last": tf.ones([2, 4])}, "friends": tf.ones([2, 4])}


@pytest.mark.parametrize("pipelined", [False, True])
def test_rows_and_slots_are_those_of_the_last_update(pipelined: bool) -> None:
    films = table(WEIGHTS, "films", optimizer=tpu_embedding.Adagrad(0.5))
    features = {"seen": tpu_embedding.FeatureConfig(films)}
    made = Program(features, None, pipelined)
    made.train({"seen": tf.constant([1, 3])}, {"seen": tf.ones([2, 4])})
    rows, slots = tpu.table("films")
    expected, accumulators = WEIGHTS.copy(), np.full_like(WEIGHTS, 0.1)
    accumulators[[1, 3]] += 1
    expected[[1, 3]] -= 0.5 / np.sqrt(np.float32(1.1))
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert list(slots) == ["accumulators"]
    np.testing.assert_allclose(slots["accumulators"], accumulators, rtol=1e-6)
    # A copy: it does not move with the table.
    made.train({"seen": tf.constant([1, 3])}, {"seen": tf.ones([2, 4])})
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert np.all(tpu.table("films").rows[1] < rows[1])


def test_each_table_has_its_own() -> None:
    made = program()
    made.train(ids([0, 1], [2, 2]), ones())
    assert list(tpu.table("films").slots) == ["accumulators"]
    people = tpu.table("people")
    assert people.slots == {}
    expected = -WEIGHTS
    expected[2] -= 2
    np.testing.assert_array_equal(people.rows, expected)


def configure_by_hand() -> None:
    """Two tables, "a" and "b", that no embedding of TensorFlow knows."""
    tables = [
        tpu.EmbeddingTable("a", 6, 4, tpu_embedding.SGD(1.0)),
        tpu.EmbeddingTable("b", 6, 4, tpu.Lion(1.0)),
    ]
    features = [tpu.EmbeddingFeature(one.name, one, [2]) for one in tables]
    config = tpu.EmbeddingConfig(tables, features).message
    tpu.configure_tpu_embedding(config)
    nothing = tf.zeros([0, 0])
    empty = [[nothing, nothing]] * 6
    tpu.load_all_tpu_embedding_parameters(
        [WEIGHTS, -WEIGHTS],
        [nothing, tf.constant(2 * WEIGHTS)],
        *empty,
        config=config,
        num_shards=1,
        shard_id=0,
    )


def test_optimizers_that_no_op_retrieves_alone() -> None:
    tpu.software_strategy()
    configure_by_hand()
    rows, slots = tpu.table("b")
    np.testing.assert_array_equal(rows, -WEIGHTS)
    assert list(slots) == ["momenta"]
    np.testing.assert_array_equal(slots["momenta"], 2 * WEIGHTS)
    np.testing.assert_array_equal(tpu.table("a").rows, WEIGHTS)


def test_table_configured_after_a_v2_embedding_is_read() -> None:
    films = tpu_embedding.TableConfig(30, 5, name="films")
    features = {"seen": tpu_embedding.FeatureConfig(films, output_shape=[4])}
    with tpu.software_strategy(embedding_feature="v2").scope():
        made = tpu_embedding.TPUEmbeddingV2(features, tpu_embedding.SGD(1.0))
    made.build()
    assert tpu.table("films").rows.shape == (30, 5)
    configure_by_hand()
    np.testing.assert_array_equal(tpu.table("a").rows, WEIGHTS)
    with pytest.raises(ValueError, match="there are 'a', 'b'"):
        tpu.table("films")
    del made


def test_table_unknown_or_unconfigured_raises() -> None:
    tpu.software_strategy()
    with pytest.raises(RuntimeError, match="no embeddings are configured"):
        tpu.table("films")
    program().embedding.build(2)
    with pytest.raises(ValueError, match="'movies'; there are 'people', 'films'"):
        tpu.table("movies")

    @tf.function
    def traced() -> Any:
        return tpu.table("films").rows

    with pytest.raises(RuntimeError, match="call it eagerly"):
        traced()


def test_errors_name_a_feature_by_its_keys() -> None:
    """Or by the name that its FeatureConfig has."""
    made = program()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'seen/last'.*'films'"):
        made.look_up(ids([0, 6], [0, 0]))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"'best friends'.*'people'"
    ):
        made.look_up(ids([0, 0], [-1, 0]))
    gradients = ones()
    gradients["seen"]["last"] *= np.nan
    with pytest.raises(tf.errors.InvalidArgumentError, match="'seen/last'"):
        made.train(ids([0, 0], [0, 0]), gradients)


def test_features_in_a_tuple_have_their_places() -> None:
    strategy = tpu.software_strategy()
    films = tpu_embedding.FeatureConfig(table(WEIGHTS, "films"))
    people = tpu_embedding.FeatureConfig(table(WEIGHTS, "people"))
    with strategy.scope():
        made = tpu_embedding.TPUEmbedding((films, people), tpu_embedding.SGD(1.0))

    @tf.function
    def enqueue(ids: Any) -> None:
        made.enqueue(ids, training=False)

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'1'.*'people'"):
        enqueue((tf.constant([0]), tf.constant([9])))
