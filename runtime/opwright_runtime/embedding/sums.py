"""Sums over cores that send all values of a core in one message.

TensorFlow sends each value in its own message to the core that sums, and each sum in
its own message to all cores. Each message wakes an executor. Here all values of a core
are one variant tensor, and so one message. The values are not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from opwright_runtime._internals import mirrored


class SumsOnOneCore(tf.distribute.ReductionToOneDevice):  # type: ignore[misc]
    """Sums several values at once. Terms are added in the order of the cores."""

    def batch_reduce_implementation(
        self, reduce_op: Any, value_destination_pairs: Any, options: Any
    ) -> list[Any]:
        values = [value for value, _ in value_destination_pairs]
        # TensorFlow's implementation is used if this one would save no message, or if
        # a value is not a tensor on each core.
        if (
            len(values) == 1
            or tf.executing_eagerly()
            or not all(
                mirrored.cross_device_ops_lib._devices_match(values[0], one)
                for pair in value_destination_pairs
                for one in pair
            )
            or not all(isinstance(one, tf.Tensor) for v in values for one in v.values)
        ):
            return [
                self.reduce_implementation(reduce_op, value, to, options)
                for value, to in value_destination_pairs
            ]
        devices = values[0]._devices
        cores = zip(*(value.values for value in values), strict=True)
        messages = [
            _pack(of_core, device)
            for of_core, device in zip(cores, devices, strict=True)
        ]
        first = [value.values[0] for value in values]
        there = [_unpack(message, first, devices[0]) for message in messages]
        with tf.device(devices[0]):
            sums = [tf.add_n(terms) for terms in zip(*there, strict=True)]
            if reduce_op == tf.distribute.ReduceOp.MEAN:
                sums = [one / len(devices) for one in sums]
        message = _pack(sums, devices[0])
        back = [_unpack(message, sums, device) for device in devices]
        return [
            mirrored.distribute_utils.regroup(
                of_cores, wrap_class=mirrored.values.Mirrored
            )
            for of_cores in zip(*back, strict=True)
        ]


def _pack(values: Sequence[tf.Tensor], device: str) -> tf.Tensor:
    with tf.device(device):
        return tf.raw_ops.CompositeTensorVariantFromComponents(
            components=values, metadata=""
        )


def _unpack(
    message: tf.Tensor, like: Sequence[tf.Tensor], device: str
) -> list[tf.Tensor]:
    with tf.device(device):
        values: list[tf.Tensor] = tf.raw_ops.CompositeTensorVariantToComponents(
            encoded=message, metadata="", Tcomponents=[one.dtype for one in like]
        )
    for value, one in zip(values, like, strict=True):
        value.set_shape(one.shape)
    return values
