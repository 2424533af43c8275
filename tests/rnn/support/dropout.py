"""What dropout does between two layers, made visible."""

from __future__ import annotations

import tensorflow as tf

from opwright.nn import cudnn_rnn_v3

TIME, BATCH, UNITS = 20, 25, 16


def run(
    dropout: float, seed: int, seed2: int, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor]:
    """The result of dropout on ones, forwards and backwards.

    Two layers that return their input: ReLU, identities for W, zeros for the rest.
    """
    eye, zero = tf.eye(UNITS, dtype=dtype), tf.zeros([UNITS, UNITS], dtype)
    weights = [tf.reshape(m, [-1]) for m in (eye, zero, eye, zero)]
    params = tf.concat([*weights, tf.zeros(4 * UNITS, dtype)], 0)
    x, h = tf.ones([TIME, BATCH, UNITS], dtype), tf.zeros([2, BATCH, UNITS], dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = cudnn_rnn_v3(
            x,
            h,
            tf.zeros([], dtype),
            params,
            [TIME] * BATCH,
            rnn_mode="rnn_relu",
            dropout=dropout,
            seed=seed,
            seed2=seed2,
        ).output
    return y, tape.gradient(y, x)
