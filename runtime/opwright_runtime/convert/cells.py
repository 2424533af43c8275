"""Recurrent layers in ops that every TensorFlow has.

Sequences are time-major, states are [layers * directions, batch, size]. Everything is
computed in float32, or in float64 if the layers have it.
"""

from __future__ import annotations

import math

import tensorflow as tf

from opwright_runtime.convert.layers import Layers
from opwright_runtime.rnn.packed import Sizes
from opwright_runtime.rnn.plain_cells import (
    Cell,
    Tensor,
    Weights,
    reversed_steps,
    zero_past,
)


def unpack(params: Tensor, sizes: Sizes) -> list[Weights]:
    """The weights of each layer and direction, as slices of packed params."""
    at = 0

    def take(*shape: int) -> Tensor:
        nonlocal at
        begin, at = at, at + math.prod(shape)
        return tf.reshape(params[begin:at], shape)

    matrices = [[take(*shape) for shape in cell] for cell in sizes.matrices()]
    rows = sizes.gates * sizes.num_units
    return [
        Weights(
            kernel if kernel.shape[1] else None,
            recurrent,
            projection[0] if projection else None,
            take(2, rows),
        )
        for kernel, recurrent, *projection in matrices
    ]


def run(
    layers: Layers,
    weights: list[Weights],
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    lengths: Tensor | None,
    cell: Cell,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Runs all layers.

    Args:
        layers: their configuration.
        weights: one for each layer and direction.
        x: [time, batch, inputs], in float32 or float64.
        h: [layers * directions, batch, hidden].
        c: [layers * directions, batch, units]; None if the cell has no cell state.
        lengths: [batch], or None if every sequence has `time` steps.
        cell: how to run one layer in one direction.

    Returns:
        All outputs, zero past the lengths, and the final states.
    """
    sizes = layers.sizes
    finals: list[list[Tensor]] = []
    for layer in range(sizes.num_layers):
        outputs = []
        for direction in range(sizes.dirs):
            at = layer * sizes.dirs + direction
            states = [h[at]] if c is None else [h[at], c[at]]
            reverse = direction == 1
            steps = reversed_steps(x, lengths) if reverse else x
            y, states = cell(sizes, weights[at], steps, states, lengths)
            if lengths is not None:
                y = zero_past(y, lengths)
            outputs.append(reversed_steps(y, lengths) if reverse else y)
            finals.append(states)
        x = outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=-1)
        x = _rounded(x, layers.dtype)
    last_h = tf.stack([states[0] for states in finals])
    last_c = None if c is None else tf.stack([states[1] for states in finals])
    return x, last_h, last_c


def _rounded(x: Tensor, dtype: tf.DType) -> Tensor:
    """As the kernels do, rounds what a layer hands to the next one."""
    return x if dtype.size > 2 else tf.cast(tf.cast(x, dtype), x.dtype)
