"""One step of a recurrent layer in ops that every TensorFlow has.

Sequences are time-major, states are [batch, size] unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import tensorflow as tf

from opwright_runtime.rnn.packed import RnnMode, Sizes

Tensor: TypeAlias = Any

Step: TypeAlias = Callable[[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]
"""Maps the products of a step's input, and the states, to an output and new states."""

_Map: TypeAlias = Callable[[Tensor], Tensor]

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


def keras_weights(
    mode: RnnMode, kernel: Tensor, recurrent: Tensor, bias: Tensor
) -> Weights:
    """Keras's weights: transposed, and with the gates of a GRU in another order.

    Args:
        mode: of the cell.
        kernel: [inputs, gates * units].
        recurrent: [units, gates * units].
        bias: [0, 1 or 2, gates * units].
    """

    def ordered(tensor: Tensor) -> Tensor:
        if mode != "gru":
            return tensor
        z, r, n = tf.split(tensor, 3, axis=-1)
        return tf.concat([r, z, n], axis=-1)

    missing = 2 - bias.shape[0]
    biases = tf.pad(ordered(bias), [[missing, 0], [0, 0]])
    return Weights(
        tf.transpose(ordered(kernel)), tf.transpose(ordered(recurrent)), None, biases
    )


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
    # TensorFlow fuses a product with BiasAdd, and with no other addition.
    products = tf.nn.bias_add(tf.matmul(flat, weights.kernel, transpose_b=True), bias)
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
    columns = tf.transpose(weights.recurrent) if transposed else None

    def product(h: Tensor) -> Tensor:
        if columns is not None:
            found = tf.matmul(h, columns)
        else:
            found = tf.matmul(h, weights.recurrent, transpose_b=True)
        if sizes.rnn_mode != "gru":
            return found
        return tf.nn.bias_add(found, weights.biases[1])

    def projected(h: Tensor) -> Tensor:
        if weights.projection is None:
            return h
        return tf.matmul(h, weights.projection, transpose_b=True)

    return _step(sizes, product, projected, -1)


def column_step_of(sizes: Sizes, weights: Weights, x: Tensor) -> tuple[Tensor, Step]:
    """One step of a cell on states of [size, batch], and the input of this step.

    The step also multiplies its input [batch, inputs + 1], whose last column is 1: the
    weights of this column are the biases.

    Args:
        sizes: its configuration.
        weights: its weights, with a kernel.
        x: [time, batch, inputs].
    """
    ones = tf.ones_like(x[:, :, :1])
    row = tf.transpose(ones[0])
    gru = sizes.rnn_mode == "gru"
    bias, recurrent = weights.biases[0], weights.recurrent
    if gru:
        recurrent = tf.concat([recurrent, weights.biases[1][:, None]], axis=1)
    else:
        bias += weights.biases[1]
    kernel = tf.concat([cast(Tensor, weights.kernel), bias[:, None]], axis=1)

    def product(h: Tensor) -> Tensor:
        if gru:
            h = tf.concat([h, row], axis=0)
        return tf.matmul(recurrent, h)

    def projected(h: Tensor) -> Tensor:
        return h if weights.projection is None else tf.matmul(weights.projection, h)

    of_products = _step(sizes, product, projected, 0)

    def step(x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return of_products(tf.matmul(kernel, x, transpose_b=True), states)

    return tf.concat([x, ones], axis=-1), step


def _step(sizes: Sizes, product: _Map, projected: _Map, axis: int) -> Step:
    """One step of a cell.

    Args:
        sizes: its configuration.
        product: of a hidden state and the recurrent weights; of a GRU, with the bias.
        projected: maps an output to the hidden state.
        axis: of the units.
    """
    mode: RnnMode = sizes.rnn_mode

    def lstm(x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        h, c = states
        i, f, g, o = tf.split(x + product(h), 4, axis=axis)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = projected(tf.sigmoid(o) * tf.tanh(c))
        return h, [h, c]

    def gru(x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        (h,) = states
        parts = [2 * sizes.num_units, sizes.num_units]
        x_rz, x_n = tf.split(x, parts, axis=axis)
        h_rz, h_n = tf.split(product(h), parts, axis=axis)
        r, z = tf.split(tf.sigmoid(x_rz + h_rz), 2, axis=axis)
        n = tf.tanh(x_n + r * h_n)
        h = n + z * (h - n)
        return h, [h]

    def plain(x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        total = x + product(states[0])
        h = tf.tanh(total) if mode == "rnn_tanh" else tf.nn.relu(total)
        return h, [h]

    return {"lstm": lstm, "gru": gru}.get(mode, plain)
