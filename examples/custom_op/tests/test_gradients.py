"""Gradients, against differences."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from my_audio.ops.audio import fade


def test_fade() -> None:
    signal = tf.constant(np.linspace(-1, 1, 10).reshape(2, 5))
    gains = tf.constant([0.5, 3.0], tf.float64)

    def faded(signal: tf.Tensor, gains: tf.Tensor) -> tf.Tensor:
        return fade(signal, gains, length=3, both=True) ** 2

    found, expected = tf.test.compute_gradient(faded, [signal, gains])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
