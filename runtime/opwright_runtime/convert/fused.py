"""LSTM layers in the form that TFLite's converter fuses into one operator.

The operator is UNIDIRECTIONAL_SEQUENCE_LSTM, which overwrites its initial states. The
converter turns constant states into variables. A call would then start from the final
states of the call before, and other readers of a state would read the overwritten one.
The operator therefore gets copies. Each is a sum that the converter cannot remove.
"""

from __future__ import annotations

import uuid
from typing import Final

import tensorflow as tf

from opwright_runtime.convert.layers import Layers
from opwright_runtime.rnn.packed import Sizes
from opwright_runtime.rnn.plain_cells import Tensor, Weights, input_products, step_of
from opwright_runtime.rnn.plain_loops import list_loop

NO_BATCH: Final = "the batch is not fixed"


def refusal_of(layers: Layers, batch: int | None, reads_c: bool) -> str | None:
    """Why a node cannot be fused; None if it can."""
    if not layers.lstm:
        return f"TFLite has no fused {layers.sizes.rnn_mode}"
    if layers.sizes.num_proj:
        return "the fused operator is not used with a projection"
    if batch is None:
        return NO_BATCH
    if reads_c:
        return "its final cell state is read, which the fused operator does not give"
    return None


def fused_cell(
    sizes: Sizes,
    weights: Weights,
    x: Tensor,
    states: list[Tensor],
    lengths: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    """A layer in one direction. Nothing may read the final cell state."""
    h, c = states
    never = x[0, :, :1]
    h_copy = h + tf.cast(never < never, h.dtype)
    c_copy = c + tf.cast(never > never, c.dtype)
    kernel = weights.kernel
    if kernel is None:
        kernel = tf.tile(tf.eye(sizes.num_units), [sizes.gates, 1])
    _, y, _, _, _ = _composite(sizes)(
        x,
        h_copy,
        c_copy,
        tf.transpose(kernel),
        tf.transpose(weights.recurrent),
        tf.reduce_sum(weights.biases, axis=0),
    )
    return y, [_last(y, h, lengths), c]


def _last(y: Tensor, h: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return y[-1]
    rows = tf.range(tf.shape(lengths)[0])
    places = tf.stack([tf.maximum(lengths - 1, 0), rows], axis=1)
    return tf.where(tf.expand_dims(lengths, 1) > 0, tf.gather_nd(y, places), h)


def _composite(sizes: Sizes) -> Tensor:
    """A function whose attributes say that it is Keras's LSTM."""

    def lstm(
        x: Tensor, h: Tensor, c: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor
    ) -> tuple[Tensor, ...]:
        weights = Weights(
            tf.transpose(kernel),
            tf.transpose(recurrent),
            None,
            tf.stack([bias, tf.zeros_like(bias)]),
        )
        products = input_products(sizes, weights, x)
        step = step_of(sizes, weights)
        y, (last_h, last_c) = list_loop(step, products, [h, c], None, sizes.hidden)
        return y[-1], y, last_h, last_c, tf.constant(0.0)

    return tf.function(
        lstm,
        autograph=False,
        experimental_attributes={
            "api_implements": f"lstm_{uuid.uuid4()}",
            "time_major": True,
            "go_backwards": False,
        },
    )
