"""Helpers of programs in another file."""

from __future__ import annotations

import tensorflow as tf


def expanded(x: tf.Tensor, durations: tf.Tensor) -> tf.Tensor:
    """Frames of speech from phonemes, each as long as predicted."""
    return tf.repeat(x, durations, axis=0)  # stops


def padded_to(x: tf.Tensor, multiple: tf.Tensor) -> tf.Tensor:
    missing = -tf.shape(x)[0] % multiple
    if missing > 0:
        x = tf.pad(x, [[0, missing], [0, 0]])  # stops
    return x


def glimpses(images: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2.0
    return tf.image.extract_glimpse(images, [7, 7], centers)  # stops


def shared(ids: tf.Tensor) -> tf.Tensor:
    found = tf.sets.intersection(ids[None, :2], ids[None, 2:])  # stops
    return tf.cast(found.values, tf.float32)
