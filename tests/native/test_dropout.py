"""Dropout between layers: its statistics, and that backward and forward agree."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright.nn import cudnn_rnn_v3

TIME, BATCH, UNITS = 20, 25, 16


Masks = Callable[..., tuple[Any, Any]]


def run(
    dropout: float, seed: int, seed2: int, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor]:
    """What dropout makes of ones, forwards and backwards.

    Two layers that hand on what they read: ReLU, identities for W, zeros for the rest.
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


@cache
def compiled(*arguments: Any) -> Callable[[], tuple[tf.Tensor, tf.Tensor]]:
    return tf.function(lambda: run(*arguments), jit_compile=True, autograph=False)


@pytest.fixture(params=["CPU", "XLA"])
def masks(request: pytest.FixtureRequest) -> Masks:
    def drawn(
        dropout: float, seed: int = 0, seed2: int = 0, dtype: tf.DType = tf.float32
    ) -> tuple[Any, Any]:
        arguments = (dropout, seed, seed2, dtype)
        y, dx = compiled(*arguments)() if request.param == "XLA" else run(*arguments)
        return y.numpy(), dx.numpy()

    return drawn


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_drops_that_share_and_scales_the_rest(masks: Masks, dropout: float) -> None:
    y, dx = masks(dropout)
    kept = y != 0
    np.testing.assert_allclose(y[kept], 1 / (1 - dropout), rtol=1e-6)
    deviation = np.sqrt(dropout * (1 - dropout) / y.size)
    assert abs(kept.mean() - (1 - dropout)) < 5 * deviation
    for axis in (0, 1, 2):
        share = kept.mean(axis=tuple({0, 1, 2} - {axis}))
        assert np.abs(share - (1 - dropout)).max() < 5 * deviation * np.sqrt(share.size)
    np.testing.assert_array_equal(y, dx)


def test_masks_change_from_call_to_call_and_with_the_seed(masks: Masks) -> None:
    draws = [masks(0.5)[0], masks(0.5)[0], masks(0.5, 1)[0], masks(0.5, 0, 1)[0]]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            same = ((one != 0) == (other != 0)).mean()
            assert 0.45 < same < 0.55


def test_all_or_nothing(masks: Masks) -> None:
    for dropout, value in ((0.0, 1.0), (1.0, 0.0)):
        y, dx = masks(dropout)
        assert (y == value).all()
        assert (dx == value).all()


@pytest.mark.parametrize("dtype", [tf.half, tf.bfloat16, tf.float64])
def test_backward_finds_the_masks_in_every_dtype(masks: Masks, dtype: tf.DType) -> None:
    """What tells them apart goes through a tensor of the dtype."""
    for _ in range(3):
        y, dx = masks(0.5, dtype=dtype)
        assert 0.45 < (y != 0).mean() < 0.55
        np.testing.assert_array_equal(y, dx)
