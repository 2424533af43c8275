"""Functions of plain ops that take the place of recurrent nodes.

Each takes the inputs of its node in order, and returns the outputs in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from opwright_runtime.convert import cells
from opwright_runtime.convert.layers import BACKWARD, KERAS, Layers
from opwright_runtime.rnn.plain_cells import Cell, Tensor, keras_weights

Function: TypeAlias = Callable[..., list[Tensor]]


def function(layers: Layers, cell: Cell, *, checked: bool) -> Function:
    """The function for a forward, backward or Keras node.

    Args:
        layers: what the node computes.
        cell: how to run one layer in one direction.
        checked: whether to refuse lengths that the ops refuse.
    """
    if layers.op == KERAS:
        return _keras(layers, cell, checked)
    return (_backward if layers.op in BACKWARD else _forward)(layers, cell, checked)


def _forward(layers: Layers, cell: Cell, checked: bool) -> Function:
    def forward(
        x: Tensor, h: Tensor, c: Tensor, params: Tensor, *lengths: Tensor
    ) -> list[Tensor]:
        given = lengths[0] if lengths else None
        if checked and given is not None:
            given = _checked_lengths(given, tf.shape(x)[0 if layers.time_major else 1])
        results = _run(layers, cell, x, h, c, params, given)
        reserve = [tf.zeros([], layers.dtype), tf.zeros([], tf.int8)]
        return [*results, *(reserve[:1] if layers.op == "CudnnRNN" else reserve)]

    return forward


def _backward(layers: Layers, cell: Cell, checked: bool) -> Function:
    """Computes the forward pass again, and differentiates it."""

    def backward(*inputs: Tensor) -> list[Tensor]:
        first = 5 if layers.has_lengths else 4
        x, h, c, params, *lengths = inputs[:first]
        upstream = inputs[first + 3 : first + 6]
        given = [x, h, c, params] if layers.lstm else [x, h, params]

        def run(*given: Tensor) -> list[Tensor]:
            x, h, *rest = given
            c_in = rest[0] if layers.lstm else c
            results = _run(
                layers, cell, x, h, c_in, rest[-1], lengths[0] if lengths else None
            )
            return results if layers.lstm else results[:2]

        outputs = run(*given)
        back = [*upstream][: len(outputs)]
        gradients = tf.gradients(outputs, given, back)
        found = [
            tf.zeros_like(one) if gradient is None else tf.convert_to_tensor(gradient)
            for one, gradient in zip(given, gradients, strict=True)
        ]
        if not layers.lstm:
            found.insert(2, tf.zeros_like(c))
        return found

    return backward


def _keras(layers: Layers, cell: Cell, checked: bool) -> Function:
    def keras(
        x: Tensor,
        h: Tensor,
        c: Tensor,
        kernel: Tensor,
        recurrent: Tensor,
        bias: Tensor,
        lengths: Tensor,
    ) -> list[Tensor]:
        if checked:
            lengths = _checked_lengths(lengths, tf.shape(x)[1])
        given = [_wide(layers, one) for one in (kernel, recurrent, bias)]
        weights = keras_weights(layers.sizes.rnn_mode, *given)
        y, h, last = cells.run(
            layers,
            [weights],
            tf.transpose(_wide(layers, x), [1, 0, 2]),
            _wide(layers, h)[None],
            _wide(layers, c)[None] if layers.lstm else None,
            lengths,
            cell,
        )
        outputs = [tf.transpose(y, [1, 0, 2]), h[0]]
        outputs.append(tf.zeros([], y.dtype) if last is None else last[0])
        return [tf.cast(one, layers.dtype) for one in outputs]

    return keras


def function_to_cudnn(layers: Layers) -> Function:
    """The function for a Keras node in terms of CudnnRNNV3."""

    def keras(
        x: Tensor,
        h: Tensor,
        c: Tensor,
        kernel: Tensor,
        recurrent: Tensor,
        bias: Tensor,
        lengths: Tensor,
    ) -> list[Tensor]:
        weights = keras_weights(layers.sizes.rnn_mode, kernel, recurrent, bias)
        parts: list[Tensor] = [weights.kernel, weights.recurrent, weights.biases]
        y, last_h, last_c, _, _ = tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=tf.expand_dims(h, 1),
            input_c=tf.expand_dims(c, 1) if layers.lstm else tf.zeros([], x.dtype),
            params=tf.concat([tf.reshape(one, [-1]) for one in parts], axis=0),
            sequence_lengths=lengths,
            rnn_mode=layers.sizes.rnn_mode,
            time_major=False,
            is_training=False,
        )
        if layers.lstm:
            last_c = tf.squeeze(last_c, 1)
        return [y, tf.squeeze(last_h, 1), last_c]

    return keras


def _run(
    layers: Layers,
    cell: Cell,
    x: Tensor,
    h: Tensor,
    c: Tensor,
    params: Tensor,
    lengths: Tensor | None,
) -> list[Tensor]:
    """Output, output_h and output_c of a forward node."""
    shapes = [tf.shape(state) for state in (h, c)]
    y, last_h, last_c = cells.run(
        layers,
        cells.unpack(_wide(layers, params), layers.sizes),
        _time_major(layers, _wide(layers, x)),
        _stacked(layers, _wide(layers, h)),
        _stacked(layers, _wide(layers, c)) if layers.lstm else None,
        lengths,
        cell,
    )
    results = [_time_major(layers, y), tf.reshape(last_h, shapes[0])]
    if last_c is None:
        results.append(tf.zeros([], y.dtype))
    else:
        results.append(tf.reshape(last_c, shapes[1]))
    return [tf.cast(one, layers.dtype) for one in results]


def _time_major(layers: Layers, x: Tensor) -> Tensor:
    """Converts a sequence from the node's layout to time-major, or back."""
    return x if layers.time_major else tf.transpose(x, [1, 0, 2])


def _stacked(layers: Layers, state: Tensor) -> Tensor:
    """A state as [layers * directions, batch, size].

    In a batch-major node the elements of a state have this order too, although its
    shape is [batch, layers * directions, size], because cuDNN reads them so.
    """
    if layers.time_major:
        return state
    batch = tf.shape(state)[0] if state.shape[0] is None else state.shape[0]
    return tf.reshape(state, [layers.cells, batch, state.shape[2]])


def _wide(layers: Layers, tensor: Tensor) -> Tensor:
    """In the dtype that the layers compute in."""
    return tf.cast(tensor, layers.wide)


def _checked_lengths(lengths: Tensor, time: Tensor) -> Tensor:
    """The lengths. Lengths that the ops refuse raise an error when the model runs.

    It is the error of a gather, which names the node, and the node's name says what is
    wrong. An Assert would keep other tools from inlining the function.
    """
    with tf.name_scope("sequence_lengths_must_lie_between_0_and_the_number_of_steps"):
        return tf.gather(tf.range(time + 1), lengths)
