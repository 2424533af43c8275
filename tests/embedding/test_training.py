"""Training with TPUEmbedding: one effect of each argument, and full trainings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.program import (
    Program,
    Weights,
    own_optimizers,
    rows,
    sparse,
    table,
    tpu_embedding,
)
from opwright import tpu

SGD = tpu_embedding.SGD

WEIGHTS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)
# Row 2 is there twice: its gradient is the sum of two rows.
IDS = [2, 0, 2, 5]
GRADIENTS = np.linspace(-3, 3, 16, dtype=np.float32).reshape(4, 4)


def summed() -> Weights:
    """The gradient of each row of the table."""
    gradient = np.zeros_like(WEIGHTS)
    np.add.at(gradient, IDS, GRADIENTS)
    return gradient


def touched(value: float) -> Weights:
    """`value` in the rows that a step looks up, 0 in the others."""
    made = np.zeros_like(WEIGHTS)
    made[IDS] = value
    return made


def after(optimizer: Any, steps: int = 1, **changes: Any) -> Weights:
    """The table after steps of the ids and gradients above."""
    films = table(WEIGHTS, "films", **changes)
    program = Program({"seen": tpu_embedding.FeatureConfig(films)}, optimizer)
    for _ in range(steps):
        program.train({"seen": tf.constant(IDS)}, {"seen": tf.constant(GRADIENTS)})
    found: Weights = program.tables()["films"]
    return found


def close(found: Weights, expected: Weights) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


# Each argument on SGD's page, and what it does.


def test_learning_rate_scales_updates() -> None:
    close(after(SGD(0.5)), WEIGHTS - 0.5 * summed())
    close(after(SGD(0.25), steps=2), WEIGHTS - 0.5 * summed())


def test_learning_rate_function_is_read_each_step() -> None:
    step = tf.Variable(0.0, trainable=False)
    films = table(WEIGHTS, "films")
    program = Program(
        {"seen": tpu_embedding.FeatureConfig(films)},
        SGD(lambda: 0.5 / (1 + step)),
    )
    for number in range(3):
        step.assign(number)
        program.train({"seen": tf.constant(IDS)}, {"seen": tf.constant(GRADIENTS)})
    close(program.tables()["films"], WEIGHTS - (0.5 + 0.25 + 0.5 / 3) * summed())


def test_use_gradient_accumulation_sums_before_adagrad() -> None:
    """SGD does not tell; Adagrad sees squares of sums, or sums of squares."""
    expected = WEIGHTS.copy()
    accumulators = np.full_like(WEIGHTS, 0.1)
    for row, gradient in zip(IDS, GRADIENTS, strict=True):
        accumulators[row] += gradient**2
        expected[row] -= 0.5 * gradient / np.sqrt(accumulators[row])
    separate = tpu_embedding.Adagrad(0.5, use_gradient_accumulation=False)
    close(after(separate), expected)
    at_once = WEIGHTS - 0.5 * summed() / np.sqrt(0.1 + summed() ** 2)
    close(after(tpu_embedding.Adagrad(0.5)), at_once)
    assert np.abs(expected - at_once).max() > 0.1
    close(after(SGD(0.5, use_gradient_accumulation=False)), WEIGHTS - 0.5 * summed())


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (None, 0.25), (-0.25, None)])
def test_clip_weight_bounds_updated_rows(
    bounds: tuple[float | None, float | None],
) -> None:
    """Only of rows that are updated: the others keep what is out of bounds."""
    optimizer = SGD(0.1, clip_weight_min=bounds[0], clip_weight_max=bounds[1])
    expected = WEIGHTS.copy()
    rows = sorted(set(IDS))
    low, high = (-np.inf if bounds[0] is None else bounds[0]), bounds[1] or np.inf
    expected[rows] = np.clip((WEIGHTS - 0.1 * summed())[rows], low, high)
    close(after(optimizer), expected)


def test_weight_decay_factor_decays_updated_rows() -> None:
    close(
        after(SGD(0.5, weight_decay_factor=0.25)),
        WEIGHTS - touched(0.25) * WEIGHTS - 0.5 * summed(),
    )


def test_multiply_weight_decay_factor_by_learning_rate() -> None:
    optimizer = SGD(
        0.5,
        weight_decay_factor=0.25,
        multiply_weight_decay_factor_by_learning_rate=True,
    )
    close(after(optimizer), WEIGHTS - touched(0.125) * WEIGHTS - 0.5 * summed())


@pytest.mark.parametrize(
    ("clipvalue", "low", "high"),
    [
        (1.5, -1.5, 1.5),
        ((-0.5, 2.0), -0.5, 2.0),
        ((None, 0.5), -np.inf, 0.5),
        ((-0.5, None), -0.5, np.inf),
        ((None, None), -np.inf, np.inf),
    ],
)
def test_clipvalue_clips_summed_gradients(
    clipvalue: Any, low: float, high: float
) -> None:
    """A row's gradient is clipped after its occurrences are summed."""
    close(
        after(SGD(0.5, clipvalue=clipvalue)),
        WEIGHTS - 0.5 * np.clip(summed(), low, high),
    )


def test_low_dimensional_packing_status() -> None:
    """It says how a TPU lays a table out; numbers do not change."""
    optimizer = SGD(0.5, low_dimensional_packing_status=True)
    config = tpu.EmbeddingConfig(
        [one := tpu.EmbeddingTable("films", 6, 4, optimizer)],
        [tpu.EmbeddingFeature("seen", one, [4])],
    )
    parameters = config.message.table_descriptor[0].optimization_parameters
    assert parameters.low_dimensional_packing_status == 1
    close(after(optimizer), WEIGHTS - 0.5 * summed())


def test_table_optimizer_overrides_default() -> None:
    """The example of SGD's page: 0.2 for one table, 0.1 for the other."""
    features = {
        "one": tpu_embedding.FeatureConfig(table(WEIGHTS, "one", optimizer=SGD(0.2))),
        "two": tpu_embedding.FeatureConfig(table(WEIGHTS, "two")),
    }
    program = Program(features, SGD(0.1))
    ids, gradient = tf.constant(IDS), tf.constant(GRADIENTS)
    program.train({"one": ids, "two": ids}, {"one": gradient, "two": gradient})
    tables = program.tables()
    close(tables["one"], WEIGHTS - 0.2 * summed())
    close(tables["two"], WEIGHTS - 0.1 * summed())


def test_feature_without_gradient_stays_unchanged() -> None:
    films, people = table(WEIGHTS, "films"), table(WEIGHTS, "people")
    program = Program(
        {
            "seen": tpu_embedding.FeatureConfig(films),
            "friends": tpu_embedding.FeatureConfig(people),
        },
        SGD(0.5),
    )
    ids = tf.constant(IDS)
    program.train(
        {"seen": ids, "friends": ids}, {"seen": tf.constant(GRADIENTS), "friends": None}
    )
    close(program.tables()["films"], WEIGHTS - 0.5 * summed())
    np.testing.assert_array_equal(program.tables()["people"], WEIGHTS)


# Complete trainings, against plain variables.


class Plain:
    """Two variables, looked up with tf.nn, under TensorFlow's own optimizers."""

    def __init__(self, films: Weights, people: Weights) -> None:
        self.films = tf.Variable(films)
        self.people = tf.Variable(people)

    def activations(self, ids: dict[str, Any]) -> dict[str, tf.Tensor]:
        def bag(variable: tf.Variable, name: str, combiner: str) -> tf.Tensor:
            return tf.nn.safe_embedding_lookup_sparse(
                variable, sparse(ids[name]), combiner=combiner
            )

        return {
            "seen": bag(self.films, "seen", "mean"),
            "liked": bag(self.films, "liked", "mean"),
            "friends": bag(self.people, "friends", "sum"),
            "owner": tf.nn.embedding_lookup(self.people, ids["owner"]),
        }


def batches(count: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng(3)

    def bag(vocabulary: int) -> tf.RaggedTensor:
        lengths = generator.integers(0, 4, 8)
        values = generator.integers(0, vocabulary, lengths.sum())
        return tf.RaggedTensor.from_row_lengths(values, lengths)

    return [
        {
            "seen": bag(20),
            "liked": bag(20),
            "friends": bag(10),
            "owner": tf.constant(generator.integers(0, 10, 8)),
        }
        for _ in range(count)
    ]


def test_training_shared_tables_and_mixed_optimizers_matches_numpy() -> None:
    """Ten steps with a dense layer on top, its gradients from a tape."""
    generator = np.random.default_rng(4)
    start = [generator.normal(size=s).astype(np.float32) for s in ((20, 6), (10, 4))]
    kernel = generator.normal(size=(20, 1)).astype(np.float32)
    films = table(
        start[0], "films", optimizer=tpu_embedding.Adagrad(0.1), combiner="mean"
    )
    people = table(start[1], "people", combiner="sum")
    features = {
        "seen": tpu_embedding.FeatureConfig(films),
        "liked": tpu_embedding.FeatureConfig(films),
        "friends": tpu_embedding.FeatureConfig(people),
        "owner": tpu_embedding.FeatureConfig(people),
    }
    program = Program(features, SGD(0.05))
    with program.strategy.scope():
        dense = tf.Variable(kernel)

    def loss_of(activations: dict[str, tf.Tensor], variable: tf.Variable) -> tf.Tensor:
        joined = tf.concat([activations[name] for name in sorted(activations)], 1)
        return tf.reduce_mean((tf.tanh(joined @ variable) - 0.5) ** 2)

    @tf.function
    def step(ids: dict[str, Any]) -> tf.Tensor:
        def tpu_step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                activations = program.embedding.dequeue()
                tape.watch(activations)
                loss = loss_of(activations, dense)
            gradients, gradient = tape.gradient(loss, (activations, dense))
            program.embedding.apply_gradients(gradients)
            dense.assign_sub(0.1 * gradient)
            return loss

        program.embedding.enqueue(ids, training=True)
        return program.strategy.run(tpu_step)

    plain = Plain(*start)
    other = tf.Variable(kernel)
    accumulators = tf.Variable(tf.fill([20, 6], 0.1))
    for ids in batches(10):
        with tf.GradientTape() as tape:
            expected = loss_of(plain.activations(ids), other)
        gradients = tape.gradient(expected, (plain.films, plain.people, other))
        dense_gradients = [tf.convert_to_tensor(one) for one in gradients]
        accumulators.assign_add(dense_gradients[0] ** 2)
        plain.films.assign_sub(0.1 * dense_gradients[0] / tf.sqrt(accumulators))
        plain.people.assign_sub(0.05 * dense_gradients[1])
        other.assign_sub(0.1 * dense_gradients[2])
        np.testing.assert_allclose(step(ids), expected, rtol=1e-5)
    tables = program.tables()
    np.testing.assert_allclose(tables["films"], plain.films, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tables["people"], plain.people, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        tables["films/accumulators"], accumulators, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(dense, other, rtol=1e-5, atol=1e-6)


def test_evaluation_between_steps_changes_nothing() -> None:
    films = table(WEIGHTS, "films")
    program = Program({"seen": tpu_embedding.FeatureConfig(films)}, SGD(0.5))
    expected = WEIGHTS.copy()
    for _ in range(3):
        found = program.look_up({"seen": tf.range(4)})["seen"]
        close(found.numpy(), expected[:4])
        program.train({"seen": tf.constant(IDS)}, {"seen": tf.constant(GRADIENTS)})
        expected = expected - 0.5 * summed()
    close(program.tables()["films"], expected)


def test_pipelined_lookup_misses_last_update() -> None:
    """A lookup sees all updates but that of the step before."""
    films = table(WEIGHTS, "films")
    features = {"seen": tpu_embedding.FeatureConfig(films)}
    program = Program(features, SGD(0.5), pipelined=True)
    ids, gradients = {"seen": tf.constant(IDS)}, {"seen": tf.constant(GRADIENTS)}
    seen = [program.train(ids, gradients)["seen"].numpy() for _ in range(4)]
    for step, found in enumerate(seen):
        updates = max(step - 1, 0)
        close(found, (WEIGHTS - 0.5 * updates * summed())[IDS])
    close(program.tables()["films"], WEIGHTS - 0.5 * 4 * summed())


# The optimizers that TensorFlow has no classes for. What they compute is the native
# tests' affair; here, that TPUEmbedding takes them: slots, loading, retrieving.


@pytest.mark.parametrize("name", own_optimizers(0.1))
def test_optimizer_slots_have_initial_values(name: str) -> None:
    optimizer = own_optimizers(0.1)[name]
    films = table(WEIGHTS, "films")
    program = Program({"seen": tpu_embedding.FeatureConfig(films)}, optimizer)
    program.look_up({"seen": tf.constant(IDS)})
    before = program.tables()
    assert set(before) == {"films", *(f"films/{slot}" for slot in optimizer.SLOTS)}
    np.testing.assert_array_equal(before["films"], WEIGHTS)
    columns = 1 if optimizer.ROW_WISE else WEIGHTS.shape[1]
    for slot, value in zip(optimizer.SLOTS, optimizer.initial, strict=True):
        expected = np.full((len(WEIGHTS), columns), value, np.float32)
        np.testing.assert_array_equal(before[f"films/{slot}"], expected, strict=True)
    program.train({"seen": tf.constant(IDS)}, {"seen": tf.constant(GRADIENTS)})
    live = tpu.table("films")
    for slot in optimizer.SLOTS:
        found = program.tables()[f"films/{slot}"]
        np.testing.assert_array_equal(live.slots[slot], found, strict=True)
    for part, values in program.tables().items():
        moved = (values != before[part]).any(axis=1)
        # "updates" of Adadelta and others move with their first gradient, too.
        assert set(np.flatnonzero(moved)) == set(IDS), part


def test_frequency_estimator_steps_match_hand_calculation() -> None:
    """Three steps; the estimate of steps between two occurrences, by hand."""
    step = tf.Variable(0.0, trainable=False)
    optimizer = tpu.FrequencyEstimator(
        lambda: step, tau=0.5, max_delta=100, outlier_threshold=50
    )
    start = np.full([4, 1], 10, np.float32)
    films = table(start, "films")
    program = Program({"seen": tpu_embedding.FeatureConfig(films)}, optimizer)
    for number, ids in ((4, [0, 1]), (5, [1, 2]), (9, [0, 1])):
        step.assign(number)
        program.train({"seen": tf.constant(ids)}, {"seen": tf.zeros([2, 1])})
    tables = program.tables()
    # An estimate goes half of the way. Row 0 sees 4 steps, then 5: 10, 7, 6. Row 1 sees
    # 4, 1 and 4: 10, 7, 4, 4. Row 2 sees 5: 10, 7.5.
    close(tables["films"][:, 0], np.array([6, 4, 7.5, 10], np.float32))
    close(tables["films/last_hit_step"][:, 0], np.array([9, 9, 5, 0], np.float32))


def test_momentum_two_steps_match_formula() -> None:
    """Two steps of one gradient: the second one has 0.9 of the first one on top."""
    close(after(tpu.Momentum(0.1, momentum=0.9), steps=2), WEIGHTS - 0.29 * summed())


def test_look_up_ragged_batches_of_other_sizes_sums_rows() -> None:
    """Ragged ids keep their output's shape, however many there are."""
    films = table(WEIGHTS, "films", combiner="sum")
    program = Program({"seen": tpu_embedding.FeatureConfig(films)}, SGD(0.5))
    for bags in (rows([1], [2]), rows([1, 2, 3], [4]), rows([], [5, 5])):
        found = program.look_up({"seen": bags})["seen"].numpy()
        for sample, ids in zip(found, bags.to_list(), strict=True):
            close(sample, WEIGHTS[ids].sum(axis=0))
