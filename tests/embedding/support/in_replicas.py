"""What a replica of two does with its TPUEmbedding, in addition to the plain step.

Prints what came of each case, as JSON: what the replicas looked up and the table's
first column after it, or the error. Run by test_in_run.py.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from opwright import tpu

embedding = tf.tpu.experimental.embedding
WEIGHTS = np.arange(20, dtype=np.float32).reshape(10, 2)


class Made:
    """Two cores, a table with SGD, and a step that takes 1 off the rows of its ids."""

    def __init__(
        self,
        strict: bool,
        rate: Any = 1.0,
        pipelined: bool = False,
        built: bool = True,
    ) -> None:
        self.strategy = tpu.software_strategy(cores=2, strict=strict)
        table = embedding.TableConfig(
            10, 2, lambda shape, dtype: tf.constant(WEIGHTS), name="films"
        )
        feature = embedding.FeatureConfig(table, output_shape=[1])
        with self.strategy.scope():
            self.tables = embedding.TPUEmbedding(
                feature, embedding.SGD(rate), pipelined
            )
        if built:
            self.tables.build()

    def ids(self) -> Any:
        """Row 1 for the first core, row 2 for the second one."""
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant([1 + context.replica_id_in_sync_group])
        )

    def enqueue(self, ids: Any, **options: Any) -> None:
        self.tables.enqueue(ids, training=True, **options)

    def train(self) -> Any:
        found = self.tables.dequeue()
        self.tables.apply_gradients(tf.ones([1, 2]))
        return found[:, 0]

    def step(self, ids: Any) -> Any:
        self.enqueue(ids)
        return self.train()

    def run(self, step: Callable[..., Any], ids: Any = None) -> Any:
        """In a tf.function."""
        if ids is None:
            ids = self.ids()
        return tf.function(lambda ids: self.strategy.run(step, args=(ids,)))(ids)


def a_step(made: Made) -> Any:
    return made.run(made.step)


def call_for_each_replica(made: Made) -> Any:
    call = made.strategy.extended.call_for_each_replica
    return tf.function(lambda ids: call(made.step, args=(ids,)))(made.ids())


def session(made: Made) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as graph_session:

        def step(ids: Any) -> Any:
            made.enqueue(ids)
            graph = tf.compat.v1.get_default_graph()
            enqueued = [op for op in graph.get_operations() if "Enqueue" in op.type]
            with tf.control_dependencies(enqueued[-1:]):
                found = made.tables.dequeue()
            with tf.control_dependencies([found]):
                made.tables.apply_gradients(tf.ones([1, 2]))
            sent = [op for op in graph.get_operations() if op.type.startswith("Send")]
            with tf.control_dependencies(sent[-1:]):
                return tf.identity(found[:, 0])

        found = made.strategy.run(step, args=(made.ids(),))
        values = list(made.strategy.experimental_local_results(found))
        return tuple(graph_session.run(values))


def branch(made: Made) -> Any:
    return made.run(
        lambda ids: tf.cond(ids[0] > 0, lambda: made.step(ids), lambda: tf.zeros([1]))
    )


def loop(made: Made) -> Any:
    def step(ids: Any) -> Any:
        found = tf.zeros([1])
        for _ in tf.range(3):
            found = made.step(ids)
        return found

    return made.run(step)


def function(made: Made) -> Any:
    step = tf.function(made.step)
    return made.run(lambda ids: step(ids))


def function_that_run_calls(made: Made) -> Any:
    return made.strategy.run(tf.function(made.step), args=(made.ids(),))


def loop_around_run(made: Made) -> Any:
    @tf.function
    def program(ids: Any) -> Any:
        found = made.strategy.run(made.step, args=(ids,))
        for _ in tf.range(2):
            found = made.strategy.run(made.step, args=(ids,))
        return found

    return program(made.ids())


def loop_that_dequeues(made: Made) -> Any:
    def steps() -> Any:
        found = tf.zeros([1])
        for _ in tf.range(3):
            found = made.train()
        return found

    @tf.function
    def program(ids: Any) -> Any:
        for _ in range(3):
            made.enqueue(ids)
        return made.strategy.run(steps)

    return program(made.ids())


def function_with_three_steps(made: Made) -> Any:
    steps = tf.function(lambda: [made.train() for _ in range(3)][-1])

    @tf.function
    def program(ids: Any) -> Any:
        for _ in range(3):
            made.enqueue(ids)
        return made.strategy.run(lambda: steps())

    return program(made.ids())


def checkpoint_in_run(made: Made) -> Any:
    """Saved after a step, and loaded after another: both replicas do it."""
    checkpoint = tf.train.Checkpoint(tables=made.tables)
    paths: list[str] = []
    with tempfile.TemporaryDirectory() as folder:

        def save() -> None:
            paths.append(checkpoint.write(f"{folder}/{len(paths)}"))

        def load() -> None:
            checkpoint.read(paths[0])

        made.run(made.step)
        made.strategy.run(save)
        made.run(made.step)
        made.strategy.run(load)
        return made.run(made.step)


def build_in_run(made: Made) -> Any:
    made = Made(made.strategy.extended._strict, built=False)
    return made.run(made.step)


def dynamic_rate(made: Made) -> Any:
    made = Made(made.strategy.extended._strict, rate=lambda: 0.5)
    return made.run(made.step)


def pipelined(made: Made) -> Any:
    """The third step sees the update of the first, but not of the second."""
    made = Made(made.strategy.extended._strict, pipelined=True)
    for _ in range(2):
        made.run(made.step)
    return made.run(made.step)


def enqueue_in_merge_call(made: Made) -> Any:
    def step(ids: Any) -> Any:
        context = tf.distribute.get_replica_context()
        context.merge_call(lambda strategy, ids: made.enqueue(ids), args=(ids,))
        return made.train()

    return made.run(step)


def computed_ids_in_merge_call(made: Made) -> Any:
    def step(ids: Any) -> Any:
        context = tf.distribute.get_replica_context()
        context.merge_call(lambda strategy, ids: made.enqueue(ids), args=(ids + 0,))
        return made.train()

    return made.run(step)


def apply_gradients_in_merge_call(made: Made) -> Any:
    def step(ids: Any) -> Any:
        made.enqueue(ids)
        found = made.tables.dequeue()
        tf.distribute.get_replica_context().merge_call(
            lambda strategy, gradients: made.tables.apply_gradients(gradients),
            args=(tf.ones([1, 2]),),
        )
        return found

    return made.run(step)


def dequeue_outside_of_run(made: Made) -> Any:
    @tf.function
    def program(ids: Any) -> Any:
        made.enqueue(ids)
        return made.tables.dequeue()

    return program(made.ids())


def ids_of_all_replicas(made: Made) -> Any:
    return tf.function(lambda ids: made.strategy.run(lambda: made.step(ids)))(
        made.ids()
    )


def weights_of_all_replicas(made: Made) -> Any:
    ids = made.ids()
    return made.run(lambda one: made.enqueue(one, weights=ids))


def device_in_run(made: Made) -> Any:
    device = made.strategy.extended.worker_devices[0]
    return made.run(lambda ids: made.enqueue(ids, device=device))


CASES = (
    a_step,
    call_for_each_replica,
    session,
    branch,
    loop,
    function,
    function_that_run_calls,
    loop_around_run,
    loop_that_dequeues,
    function_with_three_steps,
    checkpoint_in_run,
    build_in_run,
    dynamic_rate,
    pipelined,
    enqueue_in_merge_call,
    computed_ids_in_merge_call,
    apply_gradients_in_merge_call,
    dequeue_outside_of_run,
    ids_of_all_replicas,
    weights_of_all_replicas,
    device_in_run,
)


def came_of(case: Callable[[Made], Any], strict: bool) -> Any:
    made = Made(strict)
    try:
        found = case(made)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not isinstance(found, tuple):
        found = made.strategy.experimental_local_results(found)
    rows = tpu.table("films").rows[:4, 0].numpy()
    return [[float(one[0]) for one in found], rows.tolist()]


def main() -> None:
    tpu.software_strategy(cores=2)
    found = {
        f"{case.__name__} {kind}": came_of(case, kind == "strict")
        for case in CASES
        for kind in ("strict", "lenient")
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
