"""Keras layers whose `call` does not compile."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class Attention(keras.layers.Layer):  # type: ignore[misc]
    def call(self, x: tf.Tensor, lengths: tf.Tensor) -> Any:
        mask = self.mask_of(lengths)
        return tf.nn.softmax(tf.where(mask[:, None, :4], x, -1e9))

    def mask_of(self, lengths: tf.Tensor) -> Any:
        return tf.pad(
            tf.sequence_mask(lengths),  # stops
            [[0, 0], [0, 4]],
        )


class Vocabulary(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        pairs = tf.lookup.KeyValueTensorInitializer(
            tf.range(4), tf.constant([3, 1, 0, 2])
        )
        self.table = tf.lookup.StaticHashTable(pairs, -1)

    def call(self, ids: tf.Tensor) -> Any:
        return self.table.lookup(ids)  # stops


class Pooled(keras.layers.Layer):  # type: ignore[misc]
    """The sum of the embeddings of each example's ids."""

    def call(self, table: tf.Tensor, ids: tf.Tensor) -> Any:
        sparse = tf.sparse.from_dense(ids)
        return tf.nn.embedding_lookup_sparse(table, sparse, None)  # stops


class Enlarged(keras.layers.Layer):  # type: ignore[misc]
    def call(self, images: tf.Tensor) -> Any:
        return tf.image.resize(images, [16, 16], antialias=True)  # stops


class Hashed(keras.layers.Layer):  # type: ignore[misc]
    def call(self, ids: tf.Tensor) -> Any:
        text = tf.strings.as_string(ids)
        return tf.strings.to_hash_bucket_fast(text, 1000)  # stops
