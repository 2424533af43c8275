"""Two towers over embedding tables: the training as for a TPU, and its export.

The tables, of users, films and tags, are held by TPUEmbedding outside of the graph. The
one of films serves two features: a film itself, and the films of a user's history.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from opwright import tpu
from two_towers.data import GENRES, TAGS_A_GENRE, Data

tpu_embedding = tf.tpu.experimental.embedding

# TensorFlow's stubs know little of it.
RAGGED: Any = tf.RaggedTensor

TABLES: tuple[str, ...] = ("users", "films", "tags")
TEMPERATURE = 0.1
# Ids are for the tables, which are not on the chip: they stay on the host.
ON_HOST = tf.distribute.InputOptions(experimental_fetch_to_device=False)


class Towers(tf.Module):
    """The dense part: activations of the tables to vectors of length 1."""

    def __init__(self, dimension: int) -> None:
        super().__init__()

        def tower(name: str, inputs: int) -> keras.Model:
            layers = [
                keras.Input([inputs]),
                keras.layers.Dense(2 * dimension, "relu"),
                keras.layers.Dense(dimension),
                keras.layers.UnitNormalization(),
            ]
            return keras.Sequential(layers, name=name)

        self.user_tower = tower("user", 2 * dimension)
        self.film_tower = tower("film", 2 * dimension)

    def users(self, activations: Mapping[str, tf.Tensor]) -> tf.Tensor:
        inputs = [activations["user"], activations["history"]]
        vectors: tf.Tensor = self.user_tower(tf.concat(inputs, axis=1))
        return vectors

    def films(self, activations: Mapping[str, tf.Tensor]) -> tf.Tensor:
        inputs = [activations["film"], activations["tags"]]
        vectors: tf.Tensor = self.film_tower(tf.concat(inputs, axis=1))
        return vectors


def features(data: Data, dimension: int, batch: int | None = None) -> dict[str, Any]:
    """What is looked up, and in which table; with a batch's size for training."""

    def table(name: str, size: int, **options: Any) -> Any:
        return tpu_embedding.TableConfig(size, dimension, name=name, **options)

    def feature(table: Any) -> Any:
        shape = None if batch is None else [batch]
        return tpu_embedding.FeatureConfig(table, output_shape=shape)

    films = table("films", data.films)
    tags = table("tags", GENRES * TAGS_A_GENRE, combiner="sqrtn")
    return {
        "user": feature(table("users", data.users)),
        "history": feature(films),
        "film": feature(films),
        "tags": feature(tags),
    }


class Training:
    """Tables, towers and optimizers, and the step that trains them.

    Attributes:
        strategy: where the program runs: the one line that is not as for a TPU.
        epoch: how many have been trained.
        checkpoint: of all of it.
    """

    def __init__(
        self,
        data: Data,
        dimension: int,
        batch: int,
        steps: int,
        resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
        row_dtype: str = "float32",
    ) -> None:
        row_dtypes = dict.fromkeys(TABLES, row_dtype)
        self.strategy = tpu.software_strategy(resolver, row_dtypes=row_dtypes)
        self.hosts = self.strategy.num_replicas_in_sync
        # Of the examples of a step each host has its part.
        self.data, self.batch, self.steps = data, batch // self.hosts, steps
        with self.strategy.scope():
            self.towers = Towers(dimension)
            self.variables = [
                *self.towers.user_tower.trainable_variables,
                *self.towers.film_tower.trainable_variables,
            ]
            self.optimizer = keras.optimizers.Adam(0.003)
            self.optimizer.build(self.variables)
            self.epoch = tf.Variable(tf.constant(0, tf.int64), trainable=False)
            self.tables = tpu_embedding.TPUEmbedding(
                features(data, dimension, self.batch),
                optimizer=tpu_embedding.Adagrad(self.learning_rate),
            )
        self.tables.build()
        self.checkpoint = tf.train.Checkpoint(
            tables=self.tables,
            towers=self.towers,
            optimizer=self.optimizer,
            epoch=self.epoch,
        )

    def learning_rate(self) -> tf.Tensor:
        """Of the tables: it rises for 50 steps, then falls as a cosine does."""
        step = tf.cast(self.optimizer.iterations, tf.float32)
        done = tf.minimum(step / self.steps, 1.0)
        warm = tf.minimum((step + 1) / 50, 1.0)
        rate: tf.Tensor = 0.2 * warm * (0.1 + 0.9 * (1 + tf.cos(np.pi * done)) / 2)
        return rate

    def batches(self) -> Any:
        """The batches of the next epoch: a user, a film watched, and what else was."""
        epoch, data = int(self.epoch.numpy()), self.data
        history, tags = tf.constant(data.history), tf.constant(data.tags)
        frequency = tf.constant(data.frequency, tf.float32)
        users = np.repeat(np.arange(data.users), data.history.shape[1])
        order = np.random.default_rng(epoch).permutation(len(users))
        pairs = (users[order], data.history.ravel()[order])

        def example(user: tf.Tensor, film: tf.Tensor) -> Any:
            watched = tf.gather(history, user)
            others = tf.ragged.boolean_mask(watched, watched != film[:, None])
            ids = {
                "user": user,
                "history": others,
                "film": film,
                "tags": RAGGED.from_tensor(tf.gather(tags, film)),
            }
            return ids, film, tf.gather(frequency, film)

        def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset[Any]:
            dataset = tf.data.Dataset.from_tensor_slices(pairs)
            dataset = dataset.shard(
                context.num_input_pipelines, context.input_pipeline_id
            )
            dataset = dataset.batch(self.batch, drop_remainder=True).map(example)
            return dataset.prefetch(2)

        return self.strategy.distribute_datasets_from_function(of_host, ON_HOST)

    @tf.function
    def train(self, iterator: Any, steps: tf.Tensor) -> tf.Tensor:
        """The mean loss of `steps` steps."""

        def step(film: tf.Tensor, frequency: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                activations = self.tables.dequeue()
                tape.watch(activations)
                loss: tf.Tensor = self.loss(activations, film, frequency) / self.hosts
            gradients: Any = tape.gradient(loss, (activations, self.variables))
            to_tables, to_towers = gradients
            self.tables.apply_gradients(to_tables)
            self.optimizer.apply_gradients(zip(to_towers, self.variables, strict=True))
            return loss

        total = tf.constant(0.0)
        for _ in tf.range(steps):
            ids, film, frequency = next(iterator)
            self.tables.enqueue(ids, training=True)
            loss = self.strategy.run(step, args=(film, frequency))
            total += self.strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)
        return total / tf.cast(steps, tf.float32)

    def loss(
        self,
        activations: Mapping[str, tf.Tensor],
        film: tf.Tensor,
        frequency: tf.Tensor,
    ) -> tf.Tensor:
        """Of finding each user's film among those of the host's batch.

        Films that are watched often are in the batch often: their logarithms make up
        for it. The same film of another user is no wrong answer.
        """
        users, films = self.towers.users(activations), self.towers.films(activations)
        scores = tf.matmul(users, films, transpose_b=True) / TEMPERATURE
        scores -= tf.math.log(frequency)
        same = film[:, None] == film[None, :]
        others = tf.logical_and(same, tf.logical_not(tf.eye(self.batch, dtype=tf.bool)))
        scores = tf.where(others, -1e9, scores)
        right = tf.range(self.batch)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(right, scores)
        return tf.reduce_mean(losses)


class Recommender(tf.Module):
    """What is served: plain variables, on any machine, with TensorFlow alone."""

    def __init__(
        self, data: Data, dimension: int, towers: Towers, checkpoint: str
    ) -> None:
        super().__init__()
        self.config = features(data, dimension)
        self.towers = towers
        self.tables = tpu_embedding.TPUEmbeddingForServing(self.config, optimizer=None)
        saved = tf.train.Checkpoint(tables=self.tables).restore(checkpoint)
        saved.expect_partial()
        films = {
            "film": tf.range(data.films),
            "tags": RAGGED.from_tensor(tf.constant(data.tags)),
        }
        self.films = tf.Variable(towers.films(self.look_up(films)), trainable=False)

    def look_up(self, ids: Mapping[str, Any]) -> Any:
        """Activations of some of the features."""
        config = {name: self.config[name] for name in ids}
        return tpu_embedding.serving_embedding_lookup(
            dict(ids), None, self.tables.embedding_tables, config
        )

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64, "user"),
            tf.RaggedTensorSpec([None, None], tf.int64),
        ]
    )
    def scores(self, user: tf.Tensor, history: tf.RaggedTensor) -> tf.Tensor:
        """[users, films]: how well each film suits each user."""
        activations = self.look_up({"user": user, "history": history})
        return tf.matmul(self.towers.users(activations), self.films, transpose_b=True)

    def export(self, folder: Path) -> Any:
        """Writes a SavedModel, and reads it as a server would."""
        tf.saved_model.save(self, str(folder))
        return tf.saved_model.load(str(folder))
