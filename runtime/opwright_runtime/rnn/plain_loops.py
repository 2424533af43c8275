"""Loops over time, in forms that different runtimes accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import op_def_library
from opwright_runtime.rnn.packed import Sizes
from opwright_runtime.rnn.plain_cells import (
    Cell,
    Step,
    Tensor,
    Weights,
    column_step_of,
    input_products,
    step_of,
)

Loop: TypeAlias = Callable[
    [Step, Tensor, list[Tensor], "Tensor | None", int], tuple[Tensor, list[Tensor]]
]
"""Runs a step at each time. The arguments are the step, its input [time, batch, rows],
the initial states, the lengths or None, and the size of an output. Returns the outputs
and the final states."""


# Columns are faster from this batch. At 16, neither is faster for all cells. At 1,
# columns take longer.
_COLUMNS_FROM = 32


def list_loop(
    step: Step,
    x: Tensor,
    states: list[Tensor],
    lengths: Tensor | None,
    size: int,
    *,
    columns: bool = False,
) -> tuple[Tensor, list[Tensor]]:
    """A loop over TensorArrays: TensorFlow trains it, and XLA compiles it.

    With `columns`, states are [size, batch], and outputs [time, size, batch].
    """
    time = tf.shape(x)[0]
    shape = [size, x.shape[1]] if columns else [x.shape[1], size]
    inputs = tf.TensorArray(x.dtype, size=time, element_shape=x.shape[1:]).unstack(x)
    outputs = tf.TensorArray(x.dtype, size=time, element_shape=shape, infer_shape=False)

    def body(t: Tensor, outputs: Any, *states: Tensor) -> tuple[Any, ...]:
        y, new = step(inputs.read(t), [*states])
        kept = _kept(t, lengths, [*states], new, 0 if columns else 1)
        return t + 1, outputs.write(t, y), *kept

    # XLA trains no loop without a bound on its steps.
    _, outputs, *last = tf.while_loop(
        lambda t, *_: t < time,
        body,
        (tf.constant(0), outputs, *states),
        maximum_iterations=time,
    )
    y = outputs.stack()
    y.set_shape([x.shape[0], *shape])
    return y, last


def update_loop(
    step: Step, x: Tensor, states: list[Tensor], lengths: Tensor | None, size: int
) -> tuple[Tensor, list[Tensor]]:
    """A loop that writes into one tensor: TFLite runs it for any batch and time."""
    time = tf.shape(x)[0]
    # Every element is overwritten. Zeros of a known shape would be stored in the file.
    y = x[:, :, :size]
    invariants = [tf.TensorShape([]), tf.TensorShape([x.shape[0], x.shape[1], size])]
    invariants += [tf.TensorShape([x.shape[1], one.shape[-1]]) for one in states]

    def body(t: Tensor, y: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        out, new = step(tf.gather(x, t), [*states])
        kept = _kept(t, lengths, [*states], new)
        y = op_def_library.apply_op(
            "XlaDynamicUpdateSlice",
            input=y,
            update=out[None],
            indices=tf.stack([t, 0, 0]),
        )
        return t + 1, y, *kept

    _, y, *last = tf.while_loop(
        lambda t, *_: t < time,
        body,
        (tf.constant(0), y, *states),
        shape_invariants=tuple(invariants),
    )
    return y, last


def scatter_loop(
    step: Step, x: Tensor, states: list[Tensor], lengths: Tensor | None, size: int
) -> tuple[Tensor, list[Tensor]]:
    """A loop that scatters into one tensor: tf2onnx makes a Loop of it."""
    time = tf.shape(x)[0]
    y = tf.zeros_like(x[:, :, :size])

    def body(t: Tensor, y: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        out, new = step(tf.gather(x, t), [*states])
        kept = _kept(t, lengths, [*states], new)
        y = tf.tensor_scatter_nd_update(y, [[t]], out[None])
        return t + 1, y, *kept

    _, y, *last = tf.while_loop(
        lambda t, *_: t < time, body, (tf.constant(0), y, *states)
    )
    return y, last


def _kept(
    t: Tensor,
    lengths: Tensor | None,
    before: list[Tensor],
    after: list[Tensor],
    axis: int = 1,
) -> list[Tensor]:
    """The states after step t, where a sequence that has ended keeps its own.

    `axis` is that of the units.
    """
    if lengths is None:
        return after
    running = t < tf.expand_dims(lengths, axis)
    return [tf.where(running, new, old) for new, old in zip(after, before, strict=True)]


def _looped(loop: Loop, *, transposed: bool = False) -> Cell:
    def cell(
        sizes: Sizes,
        weights: Weights,
        x: Tensor,
        states: list[Tensor],
        lengths: Tensor | None,
    ) -> tuple[Tensor, list[Tensor]]:
        products = input_products(sizes, weights, x)
        step = step_of(sizes, weights, transposed=transposed)
        return loop(step, products, states, lengths, sizes.hidden)

    return cell


def _columns(
    sizes: Sizes,
    weights: Weights,
    x: Tensor,
    states: list[Tensor],
    lengths: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    """Takes the weights in the left of products.

    TensorFlow then multiplies faster, and splits gates without a copy.
    """
    given, step = column_step_of(sizes, weights, x)
    columns = [tf.transpose(state) for state in states]
    y, last = list_loop(step, given, columns, lengths, sizes.hidden, columns=True)
    return tf.transpose(y, [0, 2, 1]), [tf.transpose(state) for state in last]


_rows = _looped(list_loop, transposed=True)


def _trained(
    sizes: Sizes,
    weights: Weights,
    x: Tensor,
    states: list[Tensor],
    lengths: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    large = (x.shape[1] or 0) >= _COLUMNS_FROM
    cell = _columns if large and weights.kernel is not None else _rows
    return cell(sizes, weights, x, states, lengths)


LOOPS: dict[str, Cell] = {
    "list": _trained,
    "update": _looped(update_loop),
    "scatter": _looped(scatter_loop),
}
