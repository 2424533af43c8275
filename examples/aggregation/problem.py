"""What is learned: a linear regression that any process can compute from its seed.

A batch depends on nothing but the worker and the step, and the gradient is written
out here in NumPy. From the workers that took part in a step follows what the step must
have done to the weights, without TensorFlow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FEATURES = 8
BATCH = 32
NOISE = 0.1
SEED = 20170119

Array = NDArray[Any]

_TRUTH = np.random.default_rng(SEED).uniform(-2, 2, FEATURES)


def batch(worker: int, step: int) -> tuple[Array, Array]:
    """Inputs [BATCH, FEATURES] and targets [BATCH] of a worker at a step, float32."""
    return _sample(BATCH, SEED, worker, step)


def gradient(weights: Array, worker: int, step: int) -> Array:
    """Gradient of the batch's loss, in float64."""
    inputs, targets = (part.astype(np.float64) for part in batch(worker, step))
    return np.asarray(inputs.T @ (inputs @ weights - targets) / BATCH)


def loss(weights: Array) -> float:
    """Half the mean squared error over samples that no worker trains on."""
    return float(np.mean((_HELD_OUT[0] @ weights - _HELD_OUT[1]) ** 2) / 2)


def _sample(count: int, *seed: int) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    inputs = generator.standard_normal((count, FEATURES))
    targets = inputs @ _TRUTH + NOISE * generator.standard_normal(count)
    return inputs.astype(np.float32), targets.astype(np.float32)


_HELD_OUT = _sample(1000, SEED)
