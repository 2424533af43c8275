"""Recurrent layers in ops that every TensorFlow has.

Sequences are time-major, states are [layers * directions, batch, size]. Everything is
computed in float32, or in float64 if the layers have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime.convert.layers import Layers
from opwright_runtime.rnn.packed import RnnMode, Sizes

Tensor: TypeAlias = Any

Step: TypeAlias = Callable[[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]
"""Maps the products of a step's input, and the states, to an output and new states."""

Cell: TypeAlias = Callable[
    [Sizes, "Weights", Tensor, list[Tensor], "Tensor | None"],
    tuple[Tensor, list[Tensor]],
]
"""Runs one layer in one direction. The arguments are the sizes, the weights, the input
[time, batch, inputs], the initial states, and the lengths or None. Returns the output
[time, batch, size], with arbitrary values past the lengths, and the final states."""


@dataclass(frozen=True)
class Weights:
    """The weights of one layer and direction.

    Attributes:
        kernel: [gates * units, inputs]; None if the layer adds its input as it is.
        recurrent: [gates * units, hidden].
        projection: [num_proj, units], or None.
        biases: [2, gates * units]: of the input, and of the hidden state.
    """

    kernel: Tensor | None
    recurrent: Tensor
    projection: Tensor | None
    biases: Tensor


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


def zero_past(y: Tensor, lengths: Tensor) -> Tensor:
    # TFLite gives no new dimension to booleans.
    steps = tf.reshape(tf.range(tf.shape(y)[0]), [-1, 1, 1])
    shown = steps < tf.reshape(lengths, [1, -1, 1])
    return tf.where(shown, y, tf.zeros([], y.dtype))


def reversed_steps(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverses each sequence of [time, batch, size] up to its length."""
    if lengths is None:
        return tf.reverse(x, axis=[0])
    return tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)


def input_products(sizes: Sizes, weights: Weights, x: Tensor) -> Tensor:
    """[time, batch, gates * units]: input products and biases of all steps."""
    bias, recurrent_bias = weights.biases[0], weights.biases[1]
    if sizes.rnn_mode != "gru":
        bias += recurrent_bias
    if weights.kernel is None:
        return tf.tile(x, [1, 1, sizes.gates]) + bias
    rows = sizes.gates * sizes.num_units
    flat = tf.reshape(x, [-1, weights.kernel.shape[1]])
    products = tf.matmul(flat, weights.kernel, transpose_b=True) + bias
    shape = tf.shape(x)
    sized: Tensor = tf.reshape(products, [shape[0], shape[1], rows])
    sized.set_shape([x.shape[0], x.shape[1], rows])
    return sized


def step_of(sizes: Sizes, weights: Weights, *, transposed: bool = False) -> Step:
    """One step of a cell.

    Args:
        sizes: its configuration.
        weights: its weights.
        transposed: whether to transpose the weights once, before the loop. TensorFlow
            is faster then. TFLite reads the weights as they are.
    """
    mode: RnnMode = sizes.rnn_mode
    columns = tf.transpose(weights.recurrent) if transposed else None

    def product(h: Tensor) -> Tensor:
        if columns is not None:
            return tf.matmul(h, columns)
        return tf.matmul(h, weights.recurrent, transpose_b=True)

    def lstm(x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        h, c = states
        i, f, g, o = tf.split(x + product(h), 4, axis=-1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
        if weights.projection is not None:
            h = tf.matmul(h, weights.projection, transpose_b=True)
        return h, [h, c]

    def gru(x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        (h,) = states
        of_hidden = product(h) + weights.biases[1]
        parts = [2 * sizes.num_units, sizes.num_units]
        x_rz, x_n = tf.split(x, parts, axis=-1)
        h_rz, h_n = tf.split(of_hidden, parts, axis=-1)
        r, z = tf.split(tf.sigmoid(x_rz + h_rz), 2, axis=-1)
        n = tf.tanh(x_n + r * h_n)
        h = n + z * (h - n)
        return h, [h]

    def plain(x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        total = x + product(states[0])
        h = tf.tanh(total) if mode == "rnn_tanh" else tf.nn.relu(total)
        return h, [h]

    return {"lstm": lstm, "gru": gru}.get(mode, plain)


def _rounded(x: Tensor, dtype: tf.DType) -> Tensor:
    """As the kernels do, rounds what a layer hands to the next one."""
    return x if dtype.size > 2 else tf.cast(tf.cast(x, dtype), x.dtype)
