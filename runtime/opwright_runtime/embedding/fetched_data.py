"""Data that a TPUStrategy fetches to its TPU, where nothing can be enqueued from.

TensorFlow's TPUEmbedding tells them by the device that their tensors are placed on.
There is none here, so tensors say that they are placed on one; they lie where they
always do.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import input_lib, nest

Distributed: TypeAlias = tf.distribute.DistributedDataset


def fetched(dataset: Distributed) -> Distributed:
    """A distributed data set whose elements, in functions, are placed on the core."""
    dataset.__class__ = _fetching(dataset.__class__)
    return dataset


@cache
def _fetching(kind: Any) -> type:
    """A class of distributed data sets with iterators of the kind below."""

    def iterate(self: Distributed) -> object:
        iterator = kind.__iter__(self)
        iterator.__class__ = _FetchedIterator
        return iterator

    return type(kind.__name__, (kind,), {"__iter__": iterate})


class _FetchedIterator(input_lib.DistributedIterator):  # type: ignore[misc]
    def get_next(self, name: str | None = None) -> object:
        device = self._strategy.extended.worker_devices[0]

        def place(value: object) -> object:
            if tf.inside_function() and isinstance(value, tf.Tensor):
                with tf.device(device):
                    return tf.identity(value)
            return value

        element = super().get_next(name)
        parts = [place(part) for part in nest.flatten(element, expand_composites=True)]
        return nest.pack_sequence_as(element, parts, expand_composites=True)

    @property
    def _type_spec(self) -> tf.TypeSpec:
        spec = super()._type_spec
        spec.__class__ = _FetchedIteratorSpec
        return spec


class _FetchedIteratorSpec(input_lib.DistributedIteratorSpec):  # type: ignore[misc]
    """Of such an iterator as it reaches a `tf.function`."""

    @property
    def value_type(self) -> type:
        return _FetchedIterator

    def _from_components(self, components: object) -> object:
        iterator = super()._from_components(components)
        iterator.__class__ = _FetchedIterator
        return iterator
