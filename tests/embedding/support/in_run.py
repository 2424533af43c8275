"""`enqueue` inside and outside of `strategy.run`, held against NumPy.

Run with "plain", "tensorflow-recommenders" or "keras-rs". It is a grid: strict or not,
numbers of cores, place of enqueue, with a name or without, form of the ids, training or
inference. The layers of the libraries enqueue inside of run, with a name.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from opwright import tpu

embedding = tf.tpu.experimental.embedding
CORES = (1, 2, 4)
ROWS, WIDTH, BATCH, STEPS = 24, 2, 3, 2  # BATCH is a core's.
#: Whole numbers, of which float32 makes exact sums.
WEIGHTS = np.random.default_rng(0).integers(-99, 99, [ROWS, WIDTH]).astype("f4")

Bags = list[list[int]]


class Reference:
    """A table with SGD(1.0) that sums the rows of a bag, in NumPy."""

    def __init__(self) -> None:
        self.rows = WEIGHTS.copy()

    def activations(self, bags: Bags) -> Any:
        return np.array([self.rows[bag].sum(axis=0) for bag in bags])

    def update(self, bags: Bags, gradients: Any) -> None:
        for bag, gradient in zip(bags, gradients, strict=True):
            for row in bag:
                self.rows[row] -= gradient


class Plain:
    """TPUEmbedding itself."""

    places, names = ("inside", "outside"), (None, "step")

    def __init__(self) -> None:
        table = embedding.TableConfig(
            ROWS, WIDTH, lambda shape, dtype: tf.constant(WEIGHTS), combiner="sum"
        )
        feature = embedding.FeatureConfig(table, output_shape=[BATCH])
        self.tables = embedding.TPUEmbedding({"ids": feature}, embedding.SGD(1.0))
        self.tables.build()

    def enqueue(self, ids: Any, training: bool, name: str | None) -> None:
        self.tables.enqueue({"ids": ids}, training=training, name=name)

    def step(self, gradients: Any, training: bool, name: str | None) -> Any:
        with tf.GradientTape() as tape:
            found = self.tables.dequeue(name)
            tape.watch(found)
            loss = tf.reduce_sum(found["ids"] * gradients)
        if training:
            self.tables.apply_gradients(tape.gradient(loss, found), name)
        return found["ids"]


class Layer:
    """A layer of a library, which enqueues when it is called."""

    places, names = ("inside",), (None,)
    layer: Any

    def enqueue(self, ids: Any, training: bool, name: str | None) -> None:
        del training, name
        self.ids = ids

    def step(self, gradients: Any, training: bool, name: str | None) -> Any:
        del name
        with tf.GradientTape() as tape:
            found = self.layer({"ids": self.ids})["ids"]
            loss = tf.reduce_sum(found * gradients)
        if training:
            tape.gradient(loss, self.layer.trainable_variables)
        return found


class Recommenders(Layer):
    def __init__(self) -> None:
        import tensorflow_recommenders as tfrs

        table = embedding.TableConfig(
            ROWS, WIDTH, lambda shape, dtype: tf.constant(WEIGHTS), combiner="sum"
        )
        feature = embedding.FeatureConfig(table, output_shape=[BATCH])
        self.layer = tfrs.layers.embedding.TPUEmbedding(
            {"ids": feature}, embedding.SGD(1.0)
        )
        self.layer.build({"ids": tf.TensorShape([BATCH])})


class KerasRS(Layer):
    def __init__(self) -> None:
        import keras
        import keras_rs

        batch = BATCH * tf.distribute.get_strategy().num_replicas_in_sync
        table = keras_rs.layers.TableConfig(
            "table",
            ROWS,
            WIDTH,
            initializer=keras.initializers.Constant(WEIGHTS),
            optimizer=keras.optimizers.SGD(1.0),
            combiner="sum",
        )
        feature = keras_rs.layers.FeatureConfig(
            "ids", table, (batch, 1), (batch, WIDTH)
        )
        self.layer = keras_rs.layers.DistributedEmbedding({"ids": feature})
        self.layer.build({"ids": (BATCH, 1)})


LIBRARIES: dict[str, Any] = {
    "plain": Plain,
    "tensorflow-recommenders": Recommenders,
    "keras-rs": KerasRS,
}


def of_cores(strategy: Any, values: list[Any]) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )


def stepper(
    strategy: Any, made: Any, place: str, name: str | None, training: bool
) -> Callable[..., Any]:
    @tf.function
    def step(ids: Any, gradients: Any) -> Any:
        def inside(ids: Any, gradients: Any) -> Any:
            made.enqueue(ids, training, name)
            return made.step(gradients, training, name)

        if place == "inside":
            return strategy.run(inside, args=(ids, gradients))
        made.enqueue(ids, training, name)
        return strategy.run(lambda one: made.step(one, training, name), (gradients,))

    return step


def draw(rng: np.random.Generator, form: str, library: str) -> tuple[Bags, Any]:
    """A core's ids, as lists and as a tensor."""
    lengths = rng.integers(0, 4, BATCH) if form == "ragged" else np.ones(BATCH, int)
    bags = [rng.integers(0, ROWS, length).tolist() for length in lengths]
    if form == "ragged":
        return bags, tf.ragged.constant(bags, tf.int64, ragged_rank=1)
    ids = np.array(bags)
    return bags, tf.constant(ids if library == "keras-rs" else ids[:, 0])


def wrong_cells(library: str, strict: bool, cores: int) -> Iterator[str]:
    """Cells that found other activations or rows than NumPy."""
    strategy = tpu.software_strategy(cores=cores, strict=strict)
    with strategy.scope():
        made = LIBRARIES[library]()
    expected = Reference()
    table = "table" if library == "keras-rs" else "table_0"
    rng = np.random.default_rng(cores)
    for place, name, form, training in itertools.product(
        made.places, made.names, ("dense", "ragged"), (True, False)
    ):
        step = stepper(strategy, made, place, name, training)
        for _ in range(STEPS):
            drawn = [draw(rng, form, library) for _ in range(cores)]
            gradients = rng.integers(-9, 9, [cores, BATCH, WIDTH]).astype("f4")
            found = strategy.experimental_local_results(
                step(
                    of_cores(strategy, [ids for _, ids in drawn]),
                    of_cores(strategy, [tf.constant(one) for one in gradients]),
                )
            )
            wanted = [expected.activations(bags) for bags, _ in drawn]
            if training:
                for (bags, _), gradient in zip(drawn, gradients, strict=True):
                    expected.update(bags, gradient)
            rows = tpu.table(table).rows.numpy()
            if not np.array_equal(found, wanted):
                yield f"{place}, {name=}, {form}, {training=}: activations"
            if not np.array_equal(rows, expected.rows):
                yield f"{place}, {name=}, {form}, {training=}: rows"
                return


def main(library: str) -> None:
    tpu.software_strategy(cores=max(CORES))  # There are as many devices from now on.
    wrong = [
        f"{strict=}, {cores=}, {cell}"
        for strict, cores in itertools.product((True, False), CORES)
        for cell in wrong_cells(library, strict, cores)
    ]
    if wrong:
        raise SystemExit("\n".join(wrong))
    print("done")


if __name__ == "__main__":
    main(sys.argv[1])
