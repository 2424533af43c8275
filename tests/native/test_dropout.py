"""Dropout between layers: its statistics, and that backward and forward agree."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from opwright.nn import cudnn_rnn_v3

TIME, BATCH, UNITS = 20, 25, 16


def masks(dropout: float, seed: int = 0, seed2: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    """What dropout made of ones, forwards and backwards.

    Two layers that hand on what they read: ReLU, identities for W, zeros for the rest.
    """
    eye, zero = tf.eye(UNITS), tf.zeros([UNITS, UNITS])
    weights = [tf.reshape(m, [-1]) for m in (eye, zero, eye, zero)]
    params = tf.concat([*weights, tf.zeros(4 * UNITS)], 0)
    x, h = tf.ones([TIME, BATCH, UNITS]), tf.zeros([2, BATCH, UNITS])
    with tf.GradientTape() as tape:
        tape.watch(x)
        rnn = cudnn_rnn_v3(
            x,
            h,
            0.0,
            params,
            [TIME] * BATCH,
            rnn_mode="rnn_relu",
            dropout=dropout,
            seed=seed,
            seed2=seed2,
        )
        y = rnn.output
    return y.numpy(), tape.gradient(y, x).numpy()


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_drops_that_share_and_scales_the_rest(dropout: float) -> None:
    y, dx = masks(dropout)
    kept = y != 0
    np.testing.assert_allclose(y[kept], 1 / (1 - dropout), rtol=1e-6)
    deviation = np.sqrt(dropout * (1 - dropout) / y.size)
    assert abs(kept.mean() - (1 - dropout)) < 5 * deviation
    for axis in (0, 1, 2):
        share = kept.mean(axis=tuple({0, 1, 2} - {axis}))
        assert np.abs(share - (1 - dropout)).max() < 5 * deviation * np.sqrt(share.size)
    np.testing.assert_array_equal(y, dx)


def test_masks_change_from_call_to_call_and_with_the_seed() -> None:
    draws = [masks(0.5)[0], masks(0.5)[0], masks(0.5, 1)[0], masks(0.5, 0, 1)[0]]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            same = ((one != 0) == (other != 0)).mean()
            assert 0.45 < same < 0.55


def test_all_or_nothing() -> None:
    for dropout, value in ((0.0, 1.0), (1.0, 0.0)):
        y, dx = masks(dropout)
        assert (y == value).all()
        assert (dx == value).all()
