"""Sequences with masked steps, for kernels that take the lengths of sequences."""

from __future__ import annotations

import tensorflow as tf

from opwright_runtime.rnn.plain_cells import Tensor


def add_zeros(
    tensor: Tensor, *, axis: int, before: Tensor = 0, after: Tensor = 0
) -> Tensor:
    """Adds zeros along an axis."""
    paddings: list[list[Tensor]] = [[0, 0] for _ in tensor.shape]
    paddings[axis] = [before, after]
    return tf.pad(tensor, paddings)


class Steps:
    """Moves the unmasked steps of sequences to the front, as the kernels require.

    If `zeros` is true, a masked step outputs zeros. Otherwise it outputs what the last
    unmasked step before it did, or zeros if there is none.
    """

    def __init__(self, mask: Tensor, zeros: bool, search: bool) -> None:
        # Whether the runtime has an op for binary searches.
        self._search = search
        shown = tf.cast(mask, tf.int32)
        self.lengths = tf.reduce_sum(shown, axis=1)
        # For each step, the number of unmasked steps up to it.
        self._count = tf.cumsum(shown, axis=1)
        # For each step, the number of the unmasked step whose output it has, counted
        # from 1. For 0, the output is zeros.
        self._source = self._count * shown if zeros else self._count

    def to_front(self, x: Tensor) -> Tensor:
        """Reorders [batch, time, size]: unmasked steps first, then arbitrary ones."""
        shape = tf.shape(self._count)
        time = shape[1]
        numbers = tf.broadcast_to(tf.range(1, time + 1), shape)
        if self._search:
            at = tf.searchsorted(self._count, numbers)
        else:
            before = tf.expand_dims(self._count, 1) < tf.expand_dims(numbers, 2)
            at = tf.reduce_sum(tf.cast(before, tf.int32), axis=-1)
        return tf.gather(x, tf.minimum(at, time - 1), batch_dims=1)

    def back(self, y: Tensor) -> Tensor:
        """The outputs of all steps, from the outputs in the order of `to_front`."""
        return tf.gather(add_zeros(y, axis=1, before=1), self._source, batch_dims=1)

    def last(self, h: Tensor) -> Tensor:
        """The output of the last step, from the final state."""
        return tf.where(self._source[:, -1:] > 0, h, tf.zeros_like(h))
