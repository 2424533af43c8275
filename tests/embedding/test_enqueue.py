"""Every enqueue op brings the same ids, in configurations with and without features."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.cases import (
    Feature,
    Lookup,
    System,
    Table,
    configure,
    configured,
    draw_gradients,
    load,
    optimizer,
    receive,
    retrieve,
    send,
)
from embedding.support.reference import Array, Ids
from opwright import Scope
from opwright.tpu import (
    DynamicEnqueueTPUEmbeddingArbitraryTensorBatch,
    DynamicEnqueueTPUEmbeddingRaggedTensorBatch,
    EnqueueTPUEmbeddingBatch,
    EnqueueTPUEmbeddingIntegerBatch,
    EnqueueTPUEmbeddingRaggedTensorBatch,
    EnqueueTPUEmbeddingSparseBatch,
    EnqueueTPUEmbeddingSparseTensorBatch,
    shutdown_distributed_tpu,
)

BATCH = 5
# Without feature descriptors: table 0 has 2 features, whose samples take turns.
COMBINERS = ["mean", "sqrtn"]
SYSTEM = System(
    [
        Table(9, 4, optimizer("adagrad"), COMBINERS[0]),
        Table(7, 3, optimizer("adagrad"), COMBINERS[1]),
    ],
    [Feature(0, (2 * BATCH,)), Feature(1, (BATCH,))],
)
SCOPE = Scope.current()


def num_features() -> bytes:
    config = SYSTEM.config
    del config.feature_descriptor[:]
    config.batch_size_per_tensor_core = BATCH
    for table, count in zip(config.table_descriptor, (2, 1), strict=True):
        table.num_features = count
    return bytes(config.SerializeToString())


Pieces = list[tuple[Ids, Ids, Array]]


def pieces(lookups: list[Lookup]) -> Pieces:
    """The bags, ids and weights of each feature: 2 of table 0, 1 of table 1."""
    both, third = lookups
    result = []
    for feature in range(2):
        of_it = both.bags % 2 == feature
        result.append((both.bags[of_it] // 2, both.ids[of_it], both.weights[of_it]))
    return [*result, (third.bags, third.ids, third.weights)]


Column = list[tf.Tensor]


def columns(
    parts: Pieces, where: Callable[[Ids], Any]
) -> tuple[Column, Column, Column]:
    return (
        [tf.constant(where(bags), tf.int32) for bags, _, _ in parts],
        [tf.constant(ids, tf.int64) for _, ids, _ in parts],
        [tf.constant(weights, tf.float32) for _, _, weights in parts],
    )


def splits(bags: Ids) -> Ids:
    return np.searchsorted(bags, np.arange(BATCH + 1))


def places(bags: Ids) -> Ids:
    """[ids, 2]: the sample of each id, and which of its sample's it is."""
    return np.stack([bags, np.arange(len(bags)) - np.searchsorted(bags, bags)], 1)


def whole(lookups: list[Lookup]) -> Pieces:
    return [(one.bags, one.ids, one.weights) for one in lookups]


def sparse(lookups: list[Lookup]) -> None:
    op = EnqueueTPUEmbeddingSparseBatch
    tensors = columns(whole(lookups), lambda bags: bags)
    op.create(SCOPE, *tensors, "train", op.Options(combiners=COMBINERS))


def sparse_vectors(lookups: list[Lookup]) -> None:
    op = EnqueueTPUEmbeddingSparseTensorBatch
    tensors = columns(pieces(lookups), lambda bags: bags)
    options = op.Options(combiners=COMBINERS)
    op.create(SCOPE, *tensors, "train", [0, 0, 1], options)


def sparse_matrices(lookups: list[Lookup]) -> None:
    op = EnqueueTPUEmbeddingSparseTensorBatch
    tensors = columns(pieces(lookups), places)
    options = op.Options(combiners=COMBINERS)
    op.create(SCOPE, *tensors, "train", [0, 0, 1], options)


def sparse_of_several_features(lookups: list[Lookup]) -> None:
    """One input for both features of table 0."""
    op = EnqueueTPUEmbeddingSparseTensorBatch
    tensors = columns(whole(lookups), lambda bags: bags)
    options = op.Options(combiners=COMBINERS, num_features=[2, 1])
    op.create(SCOPE, *tensors, "train", [0, 1], options)


def ragged(lookups: list[Lookup]) -> None:
    op = EnqueueTPUEmbeddingRaggedTensorBatch
    tensors = columns(pieces(lookups), splits)
    options = op.Options(combiners=COMBINERS)
    op.create(SCOPE, *tensors, "train", [0, 0, 1], options)


def ragged_for_a_core(lookups: list[Lookup]) -> None:
    op = DynamicEnqueueTPUEmbeddingRaggedTensorBatch
    tensors = columns(pieces(lookups), splits)
    options = op.Options(combiners=COMBINERS)
    op.create(SCOPE, *tensors, "train", tf.constant(0), [0, 0, 1], options)


def varint(value: int) -> bytes:
    low = value & 127
    return bytes([low]) if value < 128 else bytes([low | 128]) + varint(value >> 7)


def message(ids: Ids, weights: Array) -> bytes:
    """ids: repeated uint64 of number 1; weights: repeated float of number 2, packed."""
    first = b"".join(varint(1 << 3) + varint(int(i)) for i in ids)
    raw = struct.pack(f"<{len(weights)}f", *weights)
    return first + varint(2 << 3 | 2) + varint(len(raw)) + raw


def serialized(lookups: list[Lookup]) -> None:
    op = EnqueueTPUEmbeddingBatch
    batch = [
        tf.constant(
            [
                message(one.ids[one.bags == sample], one.weights[one.bags == sample])
                for sample in range(feature.samples)
            ]
        )
        for one, feature in zip(lookups, SYSTEM.features, strict=True)
    ]
    op.create(SCOPE, batch, "train", op.Options(combiners=COMBINERS))


LEGACY = [
    sparse,
    sparse_vectors,
    sparse_matrices,
    sparse_of_several_features,
    ragged,
    ragged_for_a_core,
    serialized,
]


def check_step(
    system: System, config: bytes, lookups: list[Lookup], enqueue: Callable[[], object]
) -> None:
    """A step of freshly loaded tables looks up and learns what the reference does."""
    rng = np.random.default_rng(1)
    tables = [table.draw(rng) for table in system.tables]
    gradients = draw_gradients(system, rng)
    load(system, tables, config=config)
    enqueue()
    expected = system.expected(tables, lookups)
    for found, values in zip(receive(system, config), expected, strict=True):
        values = np.reshape(values, found.shape)
        np.testing.assert_allclose(found, values, 1e-5, 1e-5)
    send(system, config, gradients)
    after = system.updated(tables, lookups, gradients)
    for now, one in zip(retrieve(system, config=config), after, strict=True):
        np.testing.assert_allclose(now["parameters"], one["parameters"], 1e-4, 1e-5)


@pytest.fixture
def num_features_config() -> Any:
    config = num_features()
    configure(config)
    yield config
    shutdown_distributed_tpu()


@pytest.mark.parametrize("enqueue", LEGACY)
def test_enqueue_legacy_without_features_matches_reference(
    num_features_config: bytes, enqueue: Callable[[list[Lookup]], None]
) -> None:
    rng = np.random.default_rng(0)
    weighted = System(
        SYSTEM.tables,
        [Feature(f.table, f.shape, "ragged", True) for f in SYSTEM.features],
    )
    lookups = weighted.draw(rng)
    check_step(SYSTEM, num_features_config, lookups, lambda: enqueue(lookups))


def test_enqueue_integer_batch_matches_reference(num_features_config: bytes) -> None:
    dense = [Feature(f.table, f.shape, "dense") for f in SYSTEM.features]
    lookups = System(SYSTEM.tables, dense).draw(np.random.default_rng(0))
    batch = [tf.constant(one.ids, tf.int32) for one in lookups]
    # The op has no combiners, and one id needs none.
    check_step(
        SYSTEM,
        num_features_config,
        lookups,
        lambda: EnqueueTPUEmbeddingIntegerBatch.create(SCOPE, batch, "train"),
    )


@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_enqueue_legacy_sequences_match_reference(
    num_features_config: bytes, kind: str
) -> None:
    """A sequence of 2 takes the places of 2 features; what is longer is cut."""
    rng = np.random.default_rng(0)
    third = SYSTEM.draw(rng)[1]
    lengths = np.array([3, 0, 2, 1, 4])
    bags = np.repeat(np.arange(BATCH), lengths)
    ids = rng.integers(0, 9, len(bags))
    kept = places(bags)[:, 1] < 2
    samples = bags[kept] * 2 + places(bags)[kept, 1]
    first = Lookup(samples, ids[kept], np.ones(kept.sum()), third.tensors)
    parts = [(bags, ids, np.ones(len(bags))), *whole([third])]

    def enqueue() -> None:
        settings: dict[str, Any] = {
            "combiners": COMBINERS,
            "max_sequence_lengths": [2, 0],
        }
        if kind == "sparse":
            sparse_op = EnqueueTPUEmbeddingSparseTensorBatch
            options = sparse_op.Options(**settings)
            tensors = columns(parts, places)
            sparse_op.create(SCOPE, *tensors, "train", [0, 1], options)
        else:
            ragged_op = EnqueueTPUEmbeddingRaggedTensorBatch
            of_ragged = ragged_op.Options(**settings)
            tensors = columns(parts, splits)
            ragged_op.create(SCOPE, *tensors, "train", [0, 1], of_ragged)

    check_step(SYSTEM, num_features_config, [first, third], enqueue)


def test_described_features_for_a_core() -> None:
    features = [Feature(0, (BATCH,), "sparse", True), Feature(1, (2, 3), "dense")]
    system = System(SYSTEM.tables, features)
    with configured(system) as proto:
        lookups = system.draw(np.random.default_rng(0))
        op = DynamicEnqueueTPUEmbeddingArbitraryTensorBatch
        where, ids, weights = (
            list(column)
            for column in zip(*(one.tensors for one in lookups), strict=True)
        )
        options = op.Options(combiners=COMBINERS)

        def enqueue() -> None:
            core = tf.constant(0)
            op.create(SCOPE, where, ids, weights, "train", core, options)

        check_step(system, proto, lookups, enqueue)
