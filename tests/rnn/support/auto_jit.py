"""Trains recurrent layers and prints the losses as JSON: `auto_jit.py MODE`.

Around the forward op, or around its gradient, lie ops that XLA does not compile. So
where TensorFlow chooses what it compiles, the two are kernels of different kinds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from opwright.nn import cudnn_rnn_params_size, cudnn_rnn_v3

TIME, BATCH, INPUTS, UNITS, LAYERS = 7, 4, 5, 6, 2
LENGTHS = [TIME, 3, 1, 0]


def uncompiled(x: tf.Tensor) -> tf.Tensor:
    y = tf.numpy_function(lambda value: value, [x], x.dtype)
    y.set_shape(x.shape)
    return y


def wall(forward: bool, backward: bool) -> Callable[[tf.Tensor], tf.Tensor]:
    """An identity that XLA does not compile, forwards or in its gradient."""

    @tf.custom_gradient
    def identity(x: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
        y = uncompiled(x) if forward else tf.identity(x)
        return y, lambda dy: uncompiled(dy) if backward else tf.identity(dy)

    return identity


def losses(mode: str, direction: str, alone: str) -> list[float]:
    rng = np.random.default_rng(0)
    options = {"rnn_mode": mode, "direction": direction}
    made = cudnn_rnn_params_size(LAYERS, UNITS, INPUTS, tf.float32, tf.int32, **options)
    size = int(made[0])
    states = LAYERS * (1 + (direction == "bidirectional"))
    params = tf.Variable(rng.standard_normal(size) * 0.3, dtype=tf.float32)
    x = tf.constant(rng.standard_normal([TIME, BATCH, INPUTS]), tf.float32)
    h = tf.constant(rng.standard_normal([states, BATCH, UNITS]), tf.float32)
    c = h if mode == "lstm" else tf.constant(0.0)
    around = wall(alone == "forward", alone == "backward")

    @tf.function
    def step(x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            given = [around(one) for one in (tf.tanh(x * 1.5 + 0.1), params)]
            y = cudnn_rnn_v3(
                given[0], h, c, given[1], lengths, dropout=0.3, seed=1, **options
            ).output
            loss = tf.reduce_mean(tf.square(tf.sin(around(y)) - 0.3) * 2.0)
        params.assign_sub(tape.gradient(loss, params) * 0.5)
        return loss

    return [float(step(x, tf.constant(LENGTHS))) for _ in range(5)]


print(
    json.dumps(
        {
            f"{direction}, {alone} alone": losses(sys.argv[1], direction, alone)
            for direction in ("unidirectional", "bidirectional")
            for alone in ("forward", "backward", "neither")
        }
    )
)
