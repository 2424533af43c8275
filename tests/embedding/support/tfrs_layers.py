"""A ranking model of tensorflow-recommenders, as its documentation writes it for a TPU.

The strategy's line is all that opwright has to do with it. Run with a folder and a
place, and TF_USE_LEGACY_KERAS=1; it prints what happened, as JSON, and the same with
plain layers of Keras.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs

from embedding.support.places import at_place
from opwright import tpu

keras = tf.keras
tpu_embedding = tf.tpu.experimental.embedding
ROWS, WIDTH, BATCH, BATCHES = 40, 8, 16, 6
ON_HOST = tf.distribute.InputOptions(experimental_fetch_to_device=False)
RANDOM = np.random.default_rng(13)
WEIGHTS = {
    name: RANDOM.normal(size=[ROWS, WIDTH]).astype(np.float32) / 4
    for name in ("users", "films")
}


def data(seed: int) -> tf.data.Dataset:
    random = np.random.default_rng(seed)
    examples = BATCH * BATCHES
    lengths = random.integers(1, 5, examples)
    features = {
        "user": random.integers(0, ROWS, examples, np.int32),
        "film": random.integers(0, ROWS, examples, np.int32),
        "seen": tf.RaggedTensor.from_row_lengths(
            random.integers(0, ROWS, lengths.sum(), np.int32), lengths
        ),
    }
    labels = (features["user"] + features["film"]) % 2
    made = tf.data.Dataset.from_tensor_slices((features, labels.astype(np.float32)))
    return made.batch(BATCH, drop_remainder=True)


def optimizer(name: str) -> Any:
    return {
        "sgd": keras.optimizers.legacy.SGD(0.5),
        "adagrad": keras.optimizers.legacy.Adagrad(0.25),
    }[name]


def model_of(embedding: Any, optimizer_name: str, **options: Any) -> Any:
    """Inputs, embeddings, a dense tower."""
    inputs = {
        "user": keras.Input([], BATCH, dtype=tf.int32),
        "film": keras.Input([], BATCH, dtype=tf.int32),
        "seen": keras.Input([None], BATCH, dtype=tf.int32, ragged=True),
    }
    activations = embedding(inputs)
    keras.utils.set_random_seed(1)
    x = tf.concat([activations[name] for name in inputs], axis=1)
    x = keras.layers.Dense(8, activation="relu")(x)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer(optimizer_name), loss, **options)
    return model


def of_the_library(name: str) -> Any:
    tables = {
        table: tpu_embedding.TableConfig(
            ROWS,
            WIDTH,
            initializer=keras.initializers.Constant(WEIGHTS[table]),
            combiner="mean",
            name=table,
        )
        for table in WEIGHTS
    }
    return tfrs.layers.embedding.TPUEmbedding(
        {
            "user": tpu_embedding.FeatureConfig(tables["users"]),
            "film": tpu_embedding.FeatureConfig(tables["films"]),
            "seen": tpu_embedding.FeatureConfig(tables["films"]),
        },
        optimizer(name),
    )


def of_keras() -> Callable[[Any], Any]:
    tables = {
        table: keras.layers.Embedding(
            ROWS, WIDTH, keras.initializers.Constant(WEIGHTS[table])
        )
        for table in WEIGHTS
    }

    def call(inputs: Any) -> Any:
        return {
            "user": tables["users"](inputs["user"]),
            "film": tables["films"](inputs["film"]),
            "seen": tf.reduce_mean(tables["films"](inputs["seen"]), axis=1),
        }

    return call


def experience(model: Any, distribute: Callable[[tf.data.Dataset], Any]) -> Any:
    """Every way to go through data, alternately."""

    def of(seed: int) -> Any:
        return distribute(data(seed).repeat())

    history = model.fit(
        of(1),
        epochs=2,
        steps_per_epoch=BATCHES,
        validation_data=of(2),
        validation_steps=BATCHES,
        verbose=0,
    ).history
    evaluated = [model.evaluate(of(2), steps=BATCHES, verbose=0) for _ in range(2)]
    predicted = model.predict(of(3), steps=2, verbose=0)
    more = model.fit(of(3), steps_per_epoch=BATCHES, verbose=0).history
    return {
        "fit": history["loss"],
        "validation": history["val_loss"],
        "evaluate": evaluated,
        "predict": predicted[:, 0].tolist(),
        "more": more["loss"],
        "again": model.predict(of(3), steps=1, verbose=0)[:, 0].tolist(),
    }


def main(folder: str, make_strategy: Callable[[], Any]) -> Any:
    found: dict[str, Any] = {}
    for name, steps_per_execution in (("adagrad", 1), ("sgd", 3)):
        strategy = make_strategy()

        def distribute(data: Any, strategy: Any = strategy) -> Any:
            return strategy.experimental_distribute_dataset(data, options=ON_HOST)

        options = {"steps_per_execution": steps_per_execution}
        with strategy.scope():
            model = model_of(of_the_library(name), name, **options)
        here = experience(model, distribute)
        plain = experience(model_of(of_keras(), name, **options), lambda data: data)
        found[name] = {"here": here, "plain": plain}
        if name == "adagrad":
            slots = tpu.table("films").slots
            found["slots"] = {slot: float(tf.reduce_min(slots[slot])) for slot in slots}
            # Into another one, whose tables start as those did.
            path = tf.train.Checkpoint(model=model).save(f"{folder}/model")
            strategy = make_strategy()
            with strategy.scope():
                loaded = model_of(of_the_library(name), name)
            tf.train.Checkpoint(model=loaded).restore(path).expect_partial()
            batch = strategy.experimental_distribute_dataset(data(3), options=ON_HOST)
            restored = loaded.predict(batch, steps=1, verbose=0)
            found["loaded"] = restored[:, 0].tolist()
    return found


if __name__ == "__main__":
    at_place(sys.argv[2], sys.argv[1], main)
