"""A ranking model with keras-rs's DistributedEmbedding, as its documentation writes it.

The strategy's line is all that opwright has to do with it. Run with a folder and a
place; it prints what happened, as JSON, and the same with plain layers of Keras.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras
import keras_rs
import numpy as np
import tensorflow as tf

from embedding.support.places import at_place
from opwright import tpu

ROWS, WIDTH, BATCH, BATCHES = 40, 8, 16, 6
ON_HOST = tf.distribute.InputOptions(experimental_fetch_to_device=False)
RANDOM = np.random.default_rng(13)
WEIGHTS = {
    name: RANDOM.normal(size=[ROWS, WIDTH]).astype(np.float32) / 4
    for name in ("users", "films")
}
FEATURES = {"user": "users", "film": "films", "seen": "films"}


def data(seed: int, ragged: bool = False) -> tf.data.Dataset:
    random = np.random.default_rng(seed)
    examples = BATCH * BATCHES
    features: dict[str, Any] = {
        name: random.integers(0, ROWS, [examples, 1], np.int32) for name in FEATURES
    }
    labels = (features["user"] + features["film"]) % 2
    if ragged:
        lengths = random.integers(1, 5, examples)
        ids = random.integers(0, ROWS, lengths.sum(), np.int32)
        features["seen"] = tf.RaggedTensor.from_row_lengths(ids, lengths)
    made = tf.data.Dataset.from_tensor_slices((features, labels.astype(np.float32)))
    return made.batch(BATCH, drop_remainder=True)


def optimizer(name: str) -> Any:
    return {
        "sgd": lambda: keras.optimizers.SGD(0.5),
        "adagrad": lambda: keras.optimizers.Adagrad(0.25),
    }[name]()


def of_the_library(name: str) -> Any:
    tables = {
        table: keras_rs.layers.TableConfig(
            name=table,
            vocabulary_size=ROWS,
            embedding_dim=WIDTH,
            initializer=keras.initializers.Constant(WEIGHTS[table]),
            optimizer=optimizer(name),
            combiner="mean",
        )
        for table in WEIGHTS
    }
    return keras_rs.layers.DistributedEmbedding(
        {
            feature: keras_rs.layers.FeatureConfig(
                name=feature,
                table=tables[table],
                input_shape=(BATCH, 1),
                output_shape=(BATCH, WIDTH),
            )
            for feature, table in FEATURES.items()
        }
    )


def of_keras() -> Callable[[Any], Any]:
    """By products: of a sparse gradient Keras 3 sums the squares, one for each id."""
    tables = {
        table: keras.layers.Dense(
            WIDTH,
            use_bias=False,
            kernel_initializer=keras.initializers.Constant(WEIGHTS[table]),
        )
        for table in WEIGHTS
    }
    return lambda inputs: {
        feature: tables[table](keras.ops.one_hot(inputs[feature][:, 0], ROWS))
        for feature, table in FEATURES.items()
    }


def model_of(embedding: Any, name: str, **options: Any) -> Any:
    """Inputs, embeddings, a dense tower."""
    batch = BATCH // tf.distribute.get_strategy().num_replicas_in_sync
    inputs = {one: keras.Input([1], batch, dtype="int32", name=one) for one in FEATURES}
    activations = embedding(inputs)
    keras.utils.set_random_seed(1)
    x = keras.ops.concatenate([activations[one] for one in FEATURES], axis=1)
    x = keras.layers.Dense(8, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer(name), loss, **options)
    return model


def experience(model: Any, distribute: Callable[[tf.data.Dataset], Any]) -> Any:
    """Every way to go through data, alternately."""

    def of(seed: int) -> Any:
        return distribute(data(seed))

    history = model.fit(of(1), epochs=2, validation_data=of(2), verbose=0).history
    evaluated = [model.evaluate(of(2), verbose=0) for _ in range(2)]
    predicted = model.predict(of(3), verbose=0)
    more = model.fit(of(3), verbose=0).history
    return {
        "fit": history["loss"],
        "validation": history["val_loss"],
        "evaluate": evaluated,
        "predict": predicted[:, 0].tolist(),
        "more": more["loss"],
        "again": model.predict(of(3), verbose=0)[:, 0].tolist(),
    }


def loop(strategy: Any) -> Any:
    """The layer without a model, with ragged ids: a loop in a tf.function."""
    a_replica = BATCH // strategy.num_replicas_in_sync
    with strategy.scope():
        embedding = of_the_library("sgd")
        embedding.build(dict.fromkeys(FEATURES, (a_replica, 1)))
    distributed = strategy.experimental_distribute_dataset(
        data(1, ragged=True), options=ON_HOST
    )

    @tf.function
    def run(iterator: Any, steps: tf.Tensor) -> Any:
        def step(batch: Any) -> Any:
            inputs, labels = batch
            with tf.GradientTape() as tape:
                activations = embedding(inputs)
                loss = sum(
                    tf.reduce_sum((activations[one] - labels) ** 2) for one in FEATURES
                )
            tape.gradient(loss, embedding.trainable_variables)
            return loss

        losses = tf.TensorArray(tf.float32, steps)
        for i in tf.range(steps):
            loss = strategy.run(step, args=(next(iterator),))
            losses = losses.write(i, strategy.reduce("SUM", loss, axis=None))
        return losses.stack()

    return run(iter(distributed), 3).numpy().tolist()


def plain_loop() -> Any:
    tables = {name: tf.Variable(weights) for name, weights in WEIGHTS.items()}
    losses = []
    for inputs, labels in data(1, ragged=True).take(3):
        with tf.GradientTape() as tape:
            bags = {
                one: tf.reduce_mean(tf.gather(tables[table], inputs[one]), axis=1)
                for one, table in FEATURES.items()
            }
            loss = sum(tf.reduce_sum((bags[one] - labels) ** 2) for one in FEATURES)
        for name, gradient in tape.gradient(loss, tables).items():
            tables[name].scatter_sub(
                tf.IndexedSlices(0.5 * gradient.values, gradient.indices)
            )
        losses.append(float(loss))
    return losses


def checkpoint(model: Any, embedding: Any) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(model=model, tables=embedding._tpu_embedding)


def main(folder: str, make_strategy: Callable[[], Any]) -> Any:
    found: dict[str, Any] = {}
    for name, steps_per_execution in (("adagrad", 1), ("sgd", 3)):
        strategy = make_strategy()

        def distribute(data: Any, strategy: Any = strategy) -> Any:
            return strategy.experimental_distribute_dataset(data, options=ON_HOST)

        options = {"steps_per_execution": steps_per_execution}
        with strategy.scope():
            embedding = of_the_library(name)
            model = model_of(embedding, name, **options)
        here = experience(model, distribute)
        plain = experience(model_of(of_keras(), name, **options), lambda data: data)
        found[name] = {"here": here, "plain": plain}
        if name == "adagrad":
            slots = tpu.table("films").slots
            found["slots"] = {slot: float(tf.reduce_min(slots[slot])) for slot in slots}
            # Into another model, whose tables start as those did. The layer does not
            # save its tables: the checkpoint names them in addition.
            path = checkpoint(model, embedding).save(f"{folder}/model")
            strategy = make_strategy()
            with strategy.scope():
                embedding = of_the_library(name)
                loaded = model_of(embedding, name)
            checkpoint(loaded, embedding).restore(path).expect_partial()
            batch = strategy.experimental_distribute_dataset(data(3), options=ON_HOST)
            found["loaded"] = loaded.predict(batch, verbose=0)[:, 0].tolist()
    found["loop"] = {"here": loop(make_strategy()), "plain": plain_loop()}
    return found


if __name__ == "__main__":
    at_place(sys.argv[2], sys.argv[1], main)
