"""A program before and after its remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

FLOATS = np.arange(-4, 4, dtype=np.float32)
TABLE = np.arange(24, dtype=np.float32).reshape(8, 3)
IMAGE = np.linspace(0, 1, 2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3)
COUNTS = np.array([2, 0, 3, 1], np.int32)
MATRIX = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]], np.float32)

LOGITS = np.log(
    np.array(
        [[[0.1, 0.8, 0.1]], [[0.2, 0.7, 0.1]], [[0.8, 0.1, 0.1]], [[0.1, 0.2, 0.7]]],
        np.float32,
    )
)


def segment_sums(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """The sums of four rows of different lengths, with six values in all."""
    rows = tf.searchsorted(tf.cumsum(lengths), tf.range(6), side="right")
    return tf.math.unsorted_segment_sum(values, rows, num_segments=4)


def _same(*given: Any) -> Sequence[Any]:
    return given


@dataclass(frozen=True)
class Case:
    """A program before and after its remedy.

    Attributes:
        row: the row's id.
        stops: what the report names: the OP_NAME, and the argument after a space.
        before: does not compile.
        after: compiles, and gives the same numbers.
        given: arguments of both.
        host: makes the arguments of `after` from `given` on the host.
        until: the first TensorFlow with which `before` compiles.
    """

    row: str
    stops: str
    before: Callable[..., Any]
    after: Callable[..., Any]
    given: Sequence[Any]
    host: Callable[..., Sequence[Any]] = _same
    until: str | None = None
