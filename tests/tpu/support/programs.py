"""Programs that the command is pointed at."""

from __future__ import annotations

import keras
import tensorflow as tf


@tf.function
def dense(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(x @ w)


def spell(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(tf.strings.as_string(x))  # not for TPUs


small = keras.Sequential(
    [keras.Input([4], name="x"), keras.layers.Dense(3)], name="small"
)

#: In training, it updates the state of a seed and the statistics of batches.
flipped = keras.Sequential(
    [
        keras.Input([8, 8, 3], name="images"),
        keras.layers.RandomFlip(),
        keras.layers.BatchNormalization(),
    ],
    name="flipped",
)
