"""What TPU embeddings look up and how they learn is what the formulas say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support import reference
from embedding.support.cases import (
    Feature,
    Lookup,
    System,
    Table,
    configured,
    deviation,
    draw_gradients,
    enqueue,
    limits,
    load,
    optimizer,
    receive,
    retrieve,
    send,
)
from support.tiers import FULL, part_of

TOLERANCE = 1e-6
DIMS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100)
# In full, over 100 steps for each optimizer and instruction set.
SYSTEMS, STEPS = (4, 26) if FULL else (2, 5)
COMBINERS = ("sum", "mean", "sqrtn")
KINDS = ("dense", "sparse", "ragged")


def parameters(name: str, rng: np.random.Generator, dynamic: bool) -> Any:
    """An optimizer with any of what all of them have."""
    hyper = reference.RULES[name].draw_hyper(rng)
    rate = None if dynamic else float(rng.uniform(0, 0.5))
    result = optimizer(name, rate, **hyper)
    all_rows = reference.touches_all(result)
    result.gradient_accumulation_status = 1 if all_rows else rng.integers(0, 3)
    if name == "frequency_estimator":
        return result
    if rng.random() < 0.4:
        low, high = (-0.7, None), (None, 0.6)
        both = (low, high, (-0.5, 0.8))[rng.integers(3)]
        result.gradient_clipping_limits.CopyFrom(limits(*both))
    if rng.random() < 0.4:
        result.clipping_limits.CopyFrom(limits(-1.5, (None, 1.25)[rng.integers(2)]))
    if rng.random() < 0.4:
        result.weight_decay_factor = rng.uniform(0, 0.1)
        result.multiply_weight_decay_factor_by_learning_rate = rng.random() < 0.5
    return result


def random_system(name: str, rng: np.random.Generator) -> System:
    """A table with a constant rate, one with a dynamic one; features of all kinds."""
    only_dynamic = name == "frequency_estimator"
    tables = [
        Table(
            rows=int(rng.integers(1, 40)),
            dim=int(rng.choice(DIMS)),
            parameters=parameters(name, rng, dynamic=bool(i) or only_dynamic),
            combiner=str(rng.choice(COMBINERS)),
        )
        for i in range(2)
    ]
    features = [
        Feature(
            table,
            (int(rng.integers(1, 9)),) * int(rng.integers(1, 3)),
            str(rng.choice(KINDS[:2] if i else KINDS)),
            weighted=rng.random() < 0.5,
        )
        for i, table in enumerate((0, 1, int(rng.integers(2))))
    ]
    features = [
        Feature(f.table, f.shape, f.kind, f.weighted and f.kind != "dense")
        for f in features
    ]
    return System(tables, features)


@pytest.mark.partial
@pytest.mark.parametrize("name", reference.RULES)
def test_optimizer_steps_match_reference(isa: str, name: str) -> None:
    """Each step starts from what the engine has, in float32, after the step before."""
    for seed in range(SYSTEMS):
        rng = np.random.default_rng([seed, len(name), ord(name[0])])
        system = random_system(name, rng)
        with configured(system) as proto:
            load(system, [table.draw(rng) for table in system.tables])
            before = retrieve(system)
            for step in range(STEPS):
                lookups = system.draw(rng)
                rate = np.float32(rng.uniform(0, 0.5))
                if name == "frequency_estimator":
                    rate = np.float32(step + 1)
                gradients = draw_gradients(system, rng)
                enqueue(system, lookups)
                activations = receive(system, proto)
                send(system, proto, gradients, [float(rate)])
                after = retrieve(system)
                check_activations(system, before, lookups, activations)
                expected = system.updated(before, lookups, gradients, [float(rate)])
                for i in range(len(system.tables)):
                    for slot, values in expected[i].items():
                        worst = deviation(after[i][slot], values, before[i][slot])
                        assert worst <= TOLERANCE, (seed, step, i, slot, system)
                before = after


def check_activations(
    system: System,
    tables: list[dict[str, reference.Array]],
    lookups: list[Lookup],
    found: list[tf.Tensor],
) -> None:
    """Errors are held against what was added up."""
    expected = system.expected(tables, lookups)
    magnitudes = [
        {name: np.abs(value) for name, value in table.items()} for table in tables
    ]
    sizes = system.expected(magnitudes, lookups)
    for feature, activations, values, size in zip(
        system.features, found, expected, sizes, strict=True
    ):
        dim = values.shape[1]
        assert activations.shape == (*feature.shape, dim)
        error = np.abs(activations.numpy().reshape(-1, dim) - values)
        assert (error <= TOLERANCE * size).all(), (feature, error.max())


@pytest.mark.partial
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("kind", ["sparse", "ragged"])
@pytest.mark.parametrize("weighted", [False, True])
def test_lookup_matches_tensorflow(
    isa: str, combiner: str, kind: str, weighted: bool
) -> None:
    """Empty bags, ids that come twice, either width of ids and weights."""
    rng = np.random.default_rng(0)
    for dim in part_of(DIMS, 3):
        feature = Feature(0, (13,), kind, weighted)
        system = System([Table(20, dim, combiner=combiner)], [feature])
        with configured(system) as proto:
            tables = [table.draw(rng) for table in system.tables]
            load(system, tables)
            for ids_dtype in (tf.int32, tf.int64):
                for weights_dtype in (tf.float32, tf.float64):
                    lookups = system.draw(
                        rng, ids_dtype=ids_dtype, weights_dtype=weights_dtype
                    )
                    enqueue(system, lookups, "inference")
                    (found,) = receive(system, proto)
                    theirs = tensorflow_lookup(tables[0], lookups[0], 13, combiner)
                    np.testing.assert_allclose(found, theirs, 1e-5, 1e-5)


def tensorflow_lookup(
    table: dict[str, reference.Array], lookup: Lookup, samples: int, combiner: str
) -> tf.Tensor:
    indices = np.stack([lookup.bags, np.arange(len(lookup.bags))], 1)
    shape = [samples, max(1, len(lookup.bags))]
    return tf.nn.safe_embedding_lookup_sparse(
        tf.constant(table["parameters"]),
        tf.SparseTensor(indices.astype(np.int64), lookup.ids, shape),
        tf.SparseTensor(indices.astype(np.int64), lookup.weights, shape),
        combiner,
    )


@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_lookup_sequences_match_reference(kind: str) -> None:
    """An id a position; what is too long is cut, what is short is followed by zeros."""
    rng = np.random.default_rng(0)
    samples, length = 7, 4
    system = System([Table(20, 5)], [Feature(0, (samples, length))])
    with configured(system) as proto:
        tables = [table.draw(rng) for table in system.tables]
        load(system, tables)
        lengths = np.array([0, 1, 4, 6, 2, 0, 5])
        splits = np.concatenate([[0], np.cumsum(lengths)])
        ids = rng.integers(0, 20, splits[-1])
        rows = np.repeat(np.arange(samples), lengths)
        places = np.arange(len(ids)) - splits[rows]
        where: Any = splits
        if kind == "sparse":
            where = np.stack([rows, places, np.zeros_like(rows)], 1)
        tensors = (tf.constant(where, tf.int32), tf.constant(ids), tf.zeros([0]))
        kept = places < length
        lookup = Lookup(
            (rows * length + places)[kept], ids[kept], np.ones(kept.sum()), tensors
        )
        enqueue(system, [lookup])
        found = receive(system, proto)
        check_activations(system, tables, [lookup], found)
        padded = tf.RaggedTensor.from_row_splits(ids, splits).to_tensor(
            -1, shape=[samples, length]
        )
        dense = tf.gather(tables[0]["parameters"], tf.maximum(padded, 0))
        dense = tf.where(padded[..., None] < 0, tf.zeros_like(dense), dense)
        np.testing.assert_allclose(found[0], dense, 1e-6)
        gradients = draw_gradients(system, rng)
        send(system, proto, gradients)
        expected = system.updated(tables, [lookup], gradients)
        after = retrieve(system)[0]["parameters"]
        values = expected[0]["parameters"]
        assert deviation(after, values, tables[0]["parameters"]) <= TOLERANCE


def test_lookup_quantized_matches_reference() -> None:
    """The lookup sees quantized rows, the update the rows as they are."""
    rng = np.random.default_rng(0)
    parameters = optimizer("stochastic_gradient_descent")
    quantization = parameters.simulated_quantization
    quantization.enabled = True
    quantization.num_buckets = 17
    quantization.clipping_limits.CopyFrom(limits(-1, 1))
    table = Table(50, 9, parameters, "mean")
    system = System([table], [Feature(0, (30,), weighted=True)])
    with configured(system) as proto:
        tables = [table.draw(rng)]
        load(system, tables)
        lookups = system.draw(rng)
        enqueue(system, lookups)
        check_activations(system, tables, lookups, receive(system, proto))
        gradients = draw_gradients(system, rng)
        send(system, proto, gradients)
        expected = system.updated(tables, lookups, gradients)[0]["parameters"]
        after = retrieve(system)[0]["parameters"]
        assert deviation(after, expected, tables[0]["parameters"]) <= TOLERANCE


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_weights_of_nothing_give_zeros(combiner: str) -> None:
    rng = np.random.default_rng(0)
    system = System([Table(5, 3, combiner=combiner)], [Feature(0, (2,))])
    with configured(system) as proto:
        tables = [table.draw(rng) for table in system.tables]
        load(system, tables)
        where = tf.constant([0, 2, 3])
        tensors = (where, tf.constant([0, 1, 2]), tf.constant([0.0, 0.0, 2.0]))
        lookup = Lookup(
            np.array([0, 0, 1]), np.array([0, 1, 2]), np.array([0.0, 0.0, 2.0]), tensors
        )
        enqueue(system, [lookup])
        (found,) = receive(system, proto)
        assert not found[0].numpy().any()
        np.testing.assert_allclose(found[1], tables[0]["parameters"][2], 1e-6)
        send(system, proto, [np.ones((2, 3))])
        after = retrieve(system)[0]["parameters"]
        assert (after[:2] == tables[0]["parameters"][:2]).all()
        np.testing.assert_allclose(
            after[2], tables[0]["parameters"][2] - 0.125, rtol=1e-5
        )


LARGE = ("adagrad", "stochastic_gradient_descent", "adam")


def large_system(name: str, accumulate: bool) -> System:
    parameters = optimizer(name)
    if name == "adam":
        parameters = optimizer(name, beta1=0.9, beta2=0.99, epsilon=1e-4)
    parameters.gradient_accumulation_status = 1 if accumulate else 2
    tables = [Table(3000, 24, parameters), Table(70, 40, parameters, "mean")]
    features = [
        Feature(0, (600,), "ragged", longest=20),
        Feature(1, (400,), "sparse", weighted=True, longest=10),
        Feature(0, (500,), "dense"),
    ]
    return System(tables, features)


@pytest.mark.rotating
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("accumulate", [False, True])
def test_work_that_is_cut_up(isa: str, name: str, accumulate: bool) -> None:
    """Large enough for several threads; a hot row is updated in the batch's order."""
    rng = np.random.default_rng(0)
    system = large_system(name, accumulate)
    with configured(system) as proto:
        tables = [table.draw(rng) for table in system.tables]
        load(system, tables)
        for _ in range(2):
            lookups = system.draw(rng)
            # One after the other, so many updates of one row only add up their errors.
            gradients = [g / 64 for g in draw_gradients(system, rng)]
            enqueue(system, lookups)
            check_activations(system, tables, lookups, receive(system, proto))
            send(system, proto, gradients)
            expected = system.updated(tables, lookups, gradients)
            tables = retrieve(system)
            for found, values in zip(tables, expected, strict=True):
                for slot in values:
                    np.testing.assert_allclose(
                        found[slot], values[slot], 1e-5, 1e-6 if accumulate else 1e-4
                    )


def test_steps_repeated_give_equal_bits(isa: str) -> None:
    """However threads share them."""
    system = large_system("adagrad", True)
    results = []
    for _ in range(3):
        rng = np.random.default_rng(0)
        with configured(system) as proto:
            load(system, [table.draw(rng) for table in system.tables])
            for _ in range(3):
                enqueue(system, system.draw(rng))
                receive(system, proto)
                send(system, proto, draw_gradients(system, rng))
            results.append(retrieve(system))
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            for slot in first:
                assert (first[slot] == second[slot]).all()
