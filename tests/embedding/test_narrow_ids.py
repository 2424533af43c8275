"""Ids of int32 go to the ops that enqueue as they came, past TensorFlow's casts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from embedding.support.program import Program, rows, sparse, table, tpu_embedding
from opwright import tpu

FILMS = np.random.default_rng(7).normal(size=(12, 5)).astype(np.float32)
ENQUEUE = "EnqueueTPUEmbeddingArbitraryTensorBatch"


@pytest.fixture
def graphs() -> Iterator[Callable[[], Any]]:
    """The nodes that ran since the last call, by op."""
    eager: Any = context.context()
    eager.enable_run_metadata()

    def nodes() -> Any:
        found: dict[str, list[Any]] = {}
        for functions in eager.export_run_metadata().function_graphs:
            for graph in functions.partition_graphs:
                for node in graph.node:
                    found.setdefault(node.op, []).append(node)
        return found

    yield nodes
    eager.disable_run_metadata()


def casts_of_ids(ops: dict[str, list[Any]]) -> list[Any]:
    wide = tf.int64.as_datatype_enum
    return [node for node in ops.get("Cast", []) if node.attr["DstT"].type == wide]


def program(count: int) -> Program:
    films = table(FILMS, "films", combiner="sum")
    features = {
        str(i): tpu_embedding.FeatureConfig(films, output_shape=[4])
        for i in range(count)
    }
    made = Program(features, tpu_embedding.SGD(0.0))
    with made.strategy.scope():
        made.embedding.build()
    return made


def narrow(ids: Any) -> Any:
    return ids.with_values(tf.cast(ids.values, tf.int32))


IDS = {
    "vector": tf.constant([3, 3, 0, 11], tf.int32),
    "column": tf.constant([[1], [2], [3], [1]], tf.int32),
    "ragged": narrow(rows([3, 3, 11], [], [0], [5, 1, 5, 2])),
    "sparse": narrow(sparse(rows([3, 3, 11], [], [0], [5, 1, 5, 2]))),
}


def summed(ids: Any) -> Any:
    """In doubles, by NumPy."""
    if isinstance(ids, tf.SparseTensor):
        ids = tf.RaggedTensor.from_sparse(ids)
    if isinstance(ids, tf.RaggedTensor):
        bags = ids.to_list()
    else:
        bags = ids.numpy().reshape(4, -1).tolist()
    return [FILMS[np.array(bag, int)].sum(0, np.float64) for bag in bags]


@pytest.mark.parametrize("kind", list(IDS))
def test_no_casts_are_left(kind: str, graphs: Callable[[], Any]) -> None:
    made = program(2)
    ids = {"0": IDS[kind], "1": IDS["vector"]}
    found = made.look_up(ids)
    ops = graphs()
    (enqueue,) = ops[ENQUEUE]
    assert enqueue.attr["T2"].type == tf.int32.as_datatype_enum
    assert not casts_of_ids(ops)
    for name, one in ids.items():
        np.testing.assert_allclose(found[name], summed(one), rtol=1e-6, atol=1e-6)


def test_ids_of_int64_stay(graphs: Callable[[], Any]) -> None:
    """All of an op's ids have one dtype: one of int64 keeps the others' casts."""
    made = program(2)
    ids = {"0": IDS["vector"], "1": tf.cast(IDS["vector"], tf.int64)}
    found = made.look_up(ids)
    ops = graphs()
    (enqueue,) = ops[ENQUEUE]
    assert enqueue.attr["T2"].type == tf.int64.as_datatype_enum
    assert casts_of_ids(ops)
    for name in ids:
        np.testing.assert_array_equal(found[name], FILMS[[3, 3, 0, 11]])


def test_narrow_ids_out_of_range_are_refused() -> None:
    made = program(1)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"position 1 is 12; .*\[0, 12\)"
    ):
        made.look_up({"0": tf.constant([0, 12, 0, 0], tf.int32)})
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"position 2 is -1; .*\[0, 12\)"
    ):
        made.look_up({"0": tf.constant([0, 0, -1, 0], tf.int32)})


def test_narrow_ids_keep_control_dependencies(graphs: Callable[[], Any]) -> None:
    """A reshape behind an assertion is not passed, what comes after it is."""
    tpu.software_strategy()
    films = tpu.EmbeddingTable("films", 12, 5, tpu.Momentum(0.1))
    config = tpu.EmbeddingConfig([films], [tpu.EmbeddingFeature("seen", films, [4])])
    tpu.configure_tpu_embedding(config.message)
    none = tf.zeros([0], tf.int32)

    @tf.function
    def look_up(ids: tf.Tensor, fine: tf.Tensor) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(fine, ["not fine"])]):
            wide = tf.cast(tf.reshape(ids, [-1]), tf.int64)
        tpu.enqueue_tpu_embedding_arbitrary_tensor_batch(
            [none], [wide], [tf.zeros([0])], "inference"
        )
        return tpu.recv_tpu_embedding_activations(1, config.message)

    with tf.device("CPU:0"):
        look_up(tf.zeros([2, 2], tf.int32), tf.constant(True))
    ops = graphs()
    assert len(ops["Reshape"]) == 1 and not casts_of_ids(ops)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not fine"):
        look_up(tf.zeros([2, 2], tf.int32), tf.constant(False))
    assert tpu.drop_embedding_batches() == 0
