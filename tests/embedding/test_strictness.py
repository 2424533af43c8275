"""What TPUs refuse is refused, in TensorFlow's words; what XLA cannot do, in ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from embedding.support.program import rows, table, tpu_embedding
from opwright import tpu

WEIGHTS = np.arange(40, dtype=np.float32).reshape(10, 4)
ON_HOST = tf.distribute.InputOptions(experimental_fetch_to_device=False)


class Setup:
    """A strategy and an embedding of one feature, with SGD(1.0)."""

    def __init__(self, strict: bool) -> None:
        self.strategy = tpu.software_strategy(strict=strict)
        feature = tpu_embedding.FeatureConfig(table(WEIGHTS, "films"))
        with self.strategy.scope():
            self.embedding = tpu_embedding.TPUEmbedding(feature, tpu_embedding.SGD(1.0))
        self.embedding.build([tf.TensorShape([2])])

    def look_up(self, ids: Any) -> Any:
        self.embedding.enqueue(ids, training=False)
        return self.embedding.dequeue()


def data() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices([[1, 2], [3, 4]])


# Each is a program that a TPU refuses, and what TensorFlow says of it.


def in_a_branch(made: Setup) -> Any:
    @tf.function
    def program(ids: Any) -> Any:
        def step(ids: Any) -> Any:
            return tf.cond(
                tf.size(ids) > 1, lambda: made.look_up(ids), lambda: tf.zeros([2, 4])
            )

        return made.strategy.run(step, args=(ids,))

    return program(tf.constant([1, 2]))


def in_a_function_that_run_calls(made: Setup) -> Any:
    step = tf.function(made.look_up)
    return made.strategy.run(step, args=(tf.constant([1, 2]),))


def in_a_function_within(made: Setup) -> Any:
    step = tf.function(made.look_up)

    @tf.function
    def program(ids: Any) -> Any:
        return made.strategy.run(lambda ids: step(ids), args=(ids,))

    return program(tf.constant([1, 2]))


def with_ids_computed_in_run(made: Setup) -> Any:
    @tf.function
    def program(ids: Any) -> Any:
        return made.strategy.run(lambda ids: made.look_up(ids + 1), args=(ids,))

    return program(tf.constant([0, 1]))


def with_data_fetched_to_the_tpu(made: Setup, **options: Any) -> Any:
    iterator = iter(made.strategy.experimental_distribute_dataset(data(), **options))

    @tf.function
    def program(iterator: Any) -> Any:
        return made.strategy.run(made.look_up, args=(next(iterator),))

    return program(iterator)


def outside_of_run_with_data_fetched(made: Setup) -> Any:
    iterator = iter(
        made.strategy.distribute_datasets_from_function(lambda context: data())
    )

    @tf.function
    def program(iterator: Any) -> Any:
        made.embedding.enqueue(next(iterator), training=False)
        return made.strategy.run(made.embedding.dequeue)

    return program(iterator)


CONTROL_FLOW = "called inside control flow or a tf.function inside `strategy.run`"
NOT_DIRECT = "does not have the `_tpu_input_identity` attr"
ON_TPU = "Input tensors for TPU embeddings must be placed on the CPU"


@pytest.mark.parametrize(
    ("program", "error", "words"),
    [
        (in_a_branch, RuntimeError, CONTROL_FLOW),
        (in_a_function_that_run_calls, RuntimeError, CONTROL_FLOW),
        (in_a_function_within, RuntimeError, CONTROL_FLOW),
        (with_ids_computed_in_run, ValueError, NOT_DIRECT),
        (with_data_fetched_to_the_tpu, ValueError, ON_TPU),
        (outside_of_run_with_data_fetched, ValueError, ON_TPU),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refused_as_on_a_tpu_unless_told_otherwise(
    program: Callable[[Setup], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        program(Setup(strict=True))
    np.testing.assert_array_equal(program(Setup(strict=False)), WEIGHTS[1:3])


def test_data_that_stay_on_the_host() -> None:
    found = with_data_fetched_to_the_tpu(Setup(strict=True), options=ON_HOST)
    np.testing.assert_array_equal(found, WEIGHTS[1:3])


@pytest.mark.parametrize("from_function", [False, True])
def test_ragged_data_are_refused_when_they_are_distributed(from_function: bool) -> None:
    def ragged(context: Any = None) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(rows([1], [2, 3]))

    def distribute(strategy: Any, **options: Any) -> None:
        if from_function:
            strategy.distribute_datasets_from_function(ragged, **options)
        else:
            strategy.experimental_distribute_dataset(ragged(), **options)

    strategy = tpu.software_strategy()
    with pytest.raises(ValueError, match="experimental_fetch_to_device set to False"):
        distribute(strategy)
    distribute(strategy, options=ON_HOST)
    distribute(tpu.software_strategy(strict=False))


@pytest.mark.rotating
@pytest.mark.parametrize("options", [None, ON_HOST], ids=["fetched", "on_host"])
def test_data_come_through_every_loop(options: Any) -> None:
    """Also where no tables are: the last batch is a smaller one, and then they end."""
    strategy = tpu.software_strategy()
    data = strategy.experimental_distribute_dataset(
        tf.data.Dataset.range(10).batch(4), options=options
    )

    @tf.function
    def whole(data: Any) -> tf.Tensor:
        total = tf.constant(0, tf.int64)
        for batch in data:
            total += strategy.run(tf.reduce_sum, args=(batch,))
        return total

    @tf.function
    def one(iterator: Any) -> tf.Tensor:
        return strategy.run(lambda batch: batch + 1, args=(next(iterator),))

    assert [batch.numpy().tolist() for batch in data][-1] == [8, 9]
    assert int(whole(data)) == int(whole(iter(data))) == 45
    iterator = iter(data)
    assert [one(iterator).numpy()[-1] for _ in range(3)] == [4, 8, 10]
    with pytest.raises(tf.errors.OutOfRangeError):
        one(iterator)


def test_fit_takes_plain_data() -> None:
    """Keras hands them to a function as arguments, whose device is unknown."""
    made = Setup(strict=True)

    class Model(keras.Model):  # type: ignore[misc]
        def call(self, ids: Any) -> Any:
            return ids

        def train_step(self, ids: Any) -> dict[str, tf.Tensor]:
            return {"sum": tf.reduce_sum(made.look_up(ids))}

    with made.strategy.scope():
        model = Model()
        model.compile()
    history = model.fit(data(), verbose=0).history
    assert history["sum"] == [WEIGHTS[3:5].sum()]


def test_graphs_of_sessions_are_left_alone() -> None:
    made = Setup(strict=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:

        def step(ids: Any) -> Any:
            made.embedding.enqueue(ids + 1, training=False)
            enqueued = tf.compat.v1.get_default_graph().get_operations()
            with tf.control_dependencies(enqueued):
                return made.embedding.dequeue()

        found = made.strategy.run(step, args=(tf.constant([0, 1]),))
        np.testing.assert_array_equal(session.run(found), WEIGHTS[1:3])


# jit_compile.


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("where", ["around_run", "run", "within_run"])
def test_step_with_jit_compile_is_refused(where: str, strict: bool) -> None:
    made = Setup(strict)

    def step() -> Any:
        activations = made.embedding.dequeue()
        made.embedding.apply_gradients(activations)
        return activations

    compiled = tf.function(step, jit_compile=True)

    @tf.function(jit_compile=where == "around_run")
    def program(ids: Any) -> Any:
        made.embedding.enqueue(ids, training=True)
        return made.strategy.run(compiled if where == "within_run" else step)

    ids = tf.constant([1, 2])
    words = "jit_compile=True.*Leave jit_compile away.*a function that the step calls"
    with pytest.raises(
        (NotImplementedError, tf.errors.InvalidArgumentError), match=words
    ):
        if where == "run":
            made.strategy.run(compiled)
        else:
            program(ids)
    assert tpu.embedding_step_count() == 0
    assert tpu.drop_embedding_batches() == 0


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_compile_with_jit_compile_is_refused(library: Any) -> None:
    made = Setup(strict=True)

    class Model(library.Model):  # type: ignore[misc]
        def call(self, ids: Any) -> Any:
            return ids

        def train_step(self, ids: Any) -> dict[str, tf.Tensor]:
            return {"sum": tf.reduce_sum(made.look_up(ids))}

    with made.strategy.scope():
        model = Model()
        model.compile(jit_compile=True)
    with pytest.raises(NotImplementedError, match=r"Leave jit_compile away.*compile()"):
        model.fit(data(), verbose=0)


def test_dense_part_of_step_compiles() -> None:
    """As the words say: the dense part, with its gradients."""
    made = Setup(strict=True)

    @tf.function(jit_compile=True)
    def tower(activations: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(activations**2)

    @tf.function
    def train(ids: Any) -> Any:
        def step() -> Any:
            with tf.GradientTape() as tape:
                activations = made.embedding.dequeue()
                tape.watch(activations)
                loss = tower(activations)
            made.embedding.apply_gradients(tape.gradient(loss, activations))
            return loss

        made.embedding.enqueue(ids, training=True)
        return made.strategy.run(step)

    assert float(train(tf.constant([1, 2]))) == (WEIGHTS[1:3] ** 2).sum()
    # w - 2w.
    np.testing.assert_array_equal(
        tpu.table("films").rows[:4].numpy()[1:3], -WEIGHTS[1:3]
    )


def test_program_without_tables_compiles_under_strategy() -> None:
    strategy = tpu.software_strategy()

    @tf.function(jit_compile=True)
    def program(x: tf.Tensor) -> Any:
        return strategy.run(lambda x: tf.reduce_sum(x * x), args=(x,))

    assert float(program(tf.constant([1.0, 2.0]))) == 5.0


# What the context of `run` must leave as it is.


def test_effects_keep_their_order_in_and_around_run() -> None:
    strategy = tpu.software_strategy()
    with strategy.scope():
        total = tf.Variable(1.0)

    def add_two() -> None:
        for _ in tf.range(2):
            total.assign_add(1.0)

    @tf.function
    def program() -> Any:
        seen = []
        for factor in (2.0, 3.0):
            total.assign(total * factor)
            strategy.run(lambda: total.assign_add(1.0))
            seen.append(total.read_value())
            strategy.run(add_two)
        return seen

    # As Python would have it.
    value, expected = 1.0, []
    for factor in (2.0, 3.0):
        value = value * factor + 1.0
        expected.append(value)
        value += 2.0
    assert [float(one) for one in program()] == expected
    assert float(total) == value


@pytest.mark.parametrize("strict", [True, False])
def test_loops_and_their_gradients_in_run(strict: bool) -> None:
    strategy = tpu.software_strategy(strict=strict)

    @tf.function
    def program(x: tf.Tensor) -> Any:
        def step(x: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x
                while tf.reduce_sum(y) < 100.0:
                    y = y * y
            return y, tape.gradient(y, x)

        return strategy.run(step, args=(x,))

    value, gradient = program(tf.constant(2.0))
    # x to the 8th.
    assert (float(value), float(gradient)) == (256.0, 8 * 2.0**7)


# TensorFlow's other classes.


def test_tpu_embedding_v2_is_refused_when_it_is_made() -> None:
    strategy = tpu.software_strategy()
    feature = tpu_embedding.FeatureConfig(table(WEIGHTS, "films"))
    with (
        strategy.scope(),
        pytest.raises(
            NotImplementedError, match=r"TPUEmbeddingV2.*make a .*TPUEmbedding"
        ),
    ):
        tpu_embedding.TPUEmbeddingV2(feature, tpu_embedding.SGD(1.0))


def test_tpu_embedding_v0_works() -> None:
    """It looks up in plain variables, which the tape sees."""
    strategy = tpu.software_strategy()
    feature = tpu_embedding.FeatureConfig(table(WEIGHTS, "films"))
    with strategy.scope():
        made = tpu_embedding.TPUEmbeddingV0(feature, tpu_embedding.SGD(1.0))
        made.build()
    (films,) = made.embedding_tables.values()

    @tf.function
    def train(ids: Any) -> Any:
        def step(ids: Any) -> Any:
            with tf.GradientTape() as tape:
                activations = made(ids)
                loss = tf.reduce_sum(activations)
            (gradient,) = tape.gradient(loss, [films])
            films.scatter_sub(gradient)
            return activations

        return strategy.run(step, args=(ids,))

    np.testing.assert_array_equal(train(tf.constant([1, 2])), WEIGHTS[1:3])
    expected = WEIGHTS.copy()
    expected[1:3] -= 1
    np.testing.assert_array_equal(films, expected)
