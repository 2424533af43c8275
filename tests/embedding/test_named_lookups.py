"""Which ops of a function belong together: lookups with names, and several without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.program import Program, table, tpu_embedding
from opwright import tpu

ROWS = 8
WEIGHTS = np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2)
GRADIENT = np.ones([4, 2], np.float32)


@pytest.fixture
def program() -> Program:
    films = table(WEIGHTS, "films")
    features = {"row": tpu_embedding.FeatureConfig(films, output_shape=[4])}
    made = Program(features, tpu_embedding.SGD(1.0))
    made.embedding.build()
    return made


def four(row: int) -> Any:
    """A batch that looks one row up."""
    return tf.fill([4], row)


def enqueue(program: Program, ids: Any, name: str | None) -> None:
    program.embedding.enqueue({"row": ids}, training=True, name=name)


def dequeue(program: Program, name: str | None) -> Any:
    return program.embedding.dequeue(name=name)["row"]


def send(program: Program, name: str | None, gradient: Any = GRADIENT) -> None:
    gradients = {"row": tf.convert_to_tensor(gradient)}
    program.embedding.apply_gradients(gradients, name=name)


@pytest.mark.rotating
def test_gradients_for_a_name_make_its_lookup_one_for_training(
    program: Program,
) -> None:
    """Evaluations, as many as one likes, between steps: none waits for gradients."""

    @tf.function
    def train(ids: Any) -> None:
        def step(ids: Any) -> None:
            enqueue(program, ids, "training")
            dequeue(program, "training")
            send(program, "training")

        program.strategy.run(step, args=(ids,))

    @tf.function
    def evaluate(ids: Any) -> Any:
        def step(ids: Any) -> Any:
            enqueue(program, ids, "evaluation")
            return dequeue(program, "evaluation")

        return program.strategy.run(step, args=(ids,))

    for steps in range(1, 4):
        for _ in range(2):
            np.testing.assert_array_equal(
                evaluate(four(3))[0], WEIGHTS[3] - 4.0 * (steps - 1)
            )
        train(four(3))
    assert tpu.embedding_step_count() == 3


@pytest.mark.rotating
@pytest.mark.parametrize("where", ["loop", "cond", "not_inlined", "session"])
def test_names_count_wherever_a_step_stands(program: Program, where: str) -> None:
    """By the function that the ops are in, of a loop, branch or call; or the graph."""

    def step(ids: Any) -> Any:
        enqueue(program, ids, "evaluation")
        return dequeue(program, "evaluation")

    def run(ids: Any) -> Any:
        return program.strategy.run(step, args=(ids,))

    if where == "session":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            enqueue(program, four(3), "evaluation")
            enqueued = tf.compat.v1.get_default_graph().get_operations()
            with tf.control_dependencies(enqueued):
                found = dequeue(program, "evaluation")
            for _ in range(3):
                np.testing.assert_array_equal(session.run(found)[0], WEIGHTS[3])
        return
    if where == "not_inlined":
        run = tf.function(run, experimental_attributes={"_noinline": True})

    @tf.function
    def evaluate(ids: Any) -> Any:
        if where == "cond":
            return tf.cond(ids[0] > 2, lambda: run(ids), lambda: tf.zeros([4, 2]))
        if where != "loop":
            return run(ids)
        total = tf.zeros([4, 2])
        for _ in tf.range(3):
            total += run(ids)
        return total / 3

    for _ in range(3):
        np.testing.assert_array_equal(evaluate(four(3))[0], WEIGHTS[3])
    assert tpu.embedding_step_count() == 0


def test_two_names_in_a_function(program: Program) -> None:
    """One is trained, the other looked up, and each gets its own ids."""

    @tf.function
    def both(trained: Any, looked_up: Any) -> Any:
        def step(trained: Any, looked_up: Any) -> Any:
            enqueue(program, trained, "training")
            dequeue(program, "training")
            send(program, "training")
            enqueue(program, looked_up, "evaluation")
            return dequeue(program, "evaluation")

        return program.strategy.run(step, args=(trained, looked_up))

    for steps in range(1, 4):
        np.testing.assert_array_equal(
            both(four(1), four(1))[0], WEIGHTS[1] - 4.0 * steps
        )
        np.testing.assert_array_equal(
            both(four(2), four(1))[0], WEIGHTS[1] - 4.0 * steps
        )


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ("enqueue", "received and not enqueued"),
        ("dequeue", "enqueued and not received"),
        ("other", "more than once.* 2 times enqueued"),
    ],
)
def test_named_lookup_with_ambiguous_name_is_refused(
    program: Program, lacks: str, words: str
) -> None:
    """As on a TPU: a name is of one lookup, whose ops are in one function."""

    @tf.function
    def step() -> Any:
        if lacks != "enqueue":
            enqueue(program, four(1), "a")
        if lacks == "other":
            enqueue(program, four(2), "a")
        if lacks == "dequeue":
            return tf.constant(0)
        return dequeue(program, "a")

    with pytest.raises(tf.errors.InvalidArgumentError, match=f"'a'.*{words}"):
        step()
    assert tpu.drop_embedding_batches() == 0


def test_steps_side_by_side_in_a_function(program: Program) -> None:
    """Step k of an unrolled loop gets its own ids, and its own gradients."""

    @tf.function
    def train() -> Any:
        found = []
        for row in range(ROWS):
            enqueue(program, four(row), None)

            def step(row: int = row) -> Any:
                activations = dequeue(program, None)
                send(program, None, np.full([4, 2], row, np.float32))
                return activations

            found.append(program.strategy.run(step)[0])
        return tf.stack(found)

    for steps in range(20):
        moved = 4.0 * steps * np.arange(ROWS, dtype=np.float32)[:, None]
        np.testing.assert_array_equal(train(), WEIGHTS - moved)


@pytest.mark.rotating
@pytest.mark.parametrize("nested", [False, True], ids=["called", "called_within"])
def test_calls_side_by_side(program: Program, nested: bool) -> None:
    """Of functions that write no variable, which TensorFlow runs in any order."""
    one = tf.Variable(1.0)

    @tf.function
    def look_up(ids: Any) -> Any:
        program.embedding.enqueue({"row": ids}, training=False)
        return program.strategy.run(lambda: dequeue(program, None)) * one

    @tf.function
    def within(ids: Any) -> Any:
        return look_up(ids)

    @tf.function
    def look_up_all() -> Any:
        called = within if nested else look_up
        return tf.stack([called(four(row))[0] for row in range(ROWS)])

    for _ in range(20):
        np.testing.assert_array_equal(look_up_all(), WEIGHTS)
