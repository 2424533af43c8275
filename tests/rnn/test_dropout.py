"""Dropout between layers: its statistics, and that backward and forward agree."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rnn.support.dropout import run
from support.processes import run_code

Masks = Callable[..., tuple[Any, Any]]


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


@pytest.mark.rotating
@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_scales_the_rest(
    masks: Masks, dropout: float
) -> None:
    y, dx = masks(dropout)
    kept = y != 0
    np.testing.assert_allclose(y[kept], 1 / (1 - dropout), rtol=1e-6)
    deviation = np.sqrt(dropout * (1 - dropout) / y.size)
    assert abs(kept.mean() - (1 - dropout)) < 5 * deviation
    for axis in (0, 1, 2):
        share = kept.mean(axis=tuple({0, 1, 2} - {axis}))
        assert np.abs(share - (1 - dropout)).max() < 5 * deviation * np.sqrt(share.size)
    np.testing.assert_array_equal(y, dx)


@pytest.mark.rotating
def test_dropout_masks_change_with_call_and_seed(masks: Masks) -> None:
    draws = [masks(0.5)[0], masks(0.5)[0], masks(0.5, 1)[0], masks(0.5, 0, 1)[0]]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            same = ((one != 0) == (other != 0)).mean()
            assert 0.45 < same < 0.55


def test_dropout_masks_of_equal_seeds_are_equal_call_by_call() -> None:
    """Two nodes of equal seeds, such as replicas, have equal masks in each call."""

    def pair(seed: int) -> Callable[[], list[Any]]:
        def draw_both() -> list[tf.Tensor]:
            return [run(0.5, 0, other, tf.float32)[0] for other in (0, seed)]

        step = tf.function(draw_both, autograph=False)
        return lambda: [y.numpy() for y in step()]

    equal, apart = pair(0), pair(1)
    for _ in range(3):
        one, other = equal()
        np.testing.assert_array_equal(one, other)
        one, other = apart()
        assert 0.45 < ((one != 0) == (other != 0)).mean() < 0.55


RESET = """
import numpy as np
import tensorflow as tf
from rnn.support import dropout as rnn_dropout

run = lambda: rnn_dropout.run(0.5, 3, 0, tf.float32)
for compiled in (False, True):
    step = tf.function(run, jit_compile=compiled, autograph=False)
    first = [one.numpy() for one in step()]
    assert 0.4 < (first[0] != 0).mean() < 0.6
    for found in (step(), step(), run()):
        np.testing.assert_array_equal(found[0], first[0])
        np.testing.assert_array_equal(found[1], first[1])
"""


@pytest.mark.rotating
@pytest.mark.parametrize("value", ["1", "true"])
def test_dropout_reset_of_generator_makes_calls_equal(value: str) -> None:
    """The environment variable is the one of TensorFlow's GPU kernels."""
    done = run_code(RESET, TF_CUDNN_RESET_RND_GEN_STATE=value)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.rotating
def test_dropout_rates_0_and_1_keep_and_drop_all(masks: Masks) -> None:
    for dropout, value in ((0.0, 1.0), (1.0, 0.0)):
        y, dx = masks(dropout)
        assert (y == value).all()
        assert (dx == value).all()


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", [tf.half, tf.bfloat16, tf.float64])
def test_dropout_backward_has_forward_masks_in_every_dtype(
    masks: Masks, dtype: tf.DType
) -> None:
    """The number of a mask passes through a tensor of the dtype."""
    for _ in range(3):
        y, dx = masks(0.5, dtype=dtype)
        assert 0.45 < (y != 0).mean() < 0.55
        np.testing.assert_array_equal(y, dx)
