"""Distributed data sets whose tensors claim to be on a TPU, as under a TPUStrategy.

A TPUStrategy copies data to its TPU, and data there cannot be enqueued. TensorFlow's
TPUEmbedding recognizes such data by the device of their tensors, and refuses them. Here
there is no TPU. The tensors get the name of a TPU core as their device, so that
TPUEmbedding refuses them here too, but they stay in the memory of the CPU.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import input_lib, nest

Distributed: TypeAlias = tf.distribute.DistributedDataset


def fetched(dataset: Distributed) -> Distributed:
    """Makes a data set place its elements on the TPU core, within functions.

    It changes the class of `dataset`.
    """
    dataset.__class__ = _fetching(dataset.__class__)
    return dataset


@cache
def _fetching(kind: Any) -> type:
    """A subclass of `kind` whose iterators are _FetchedIterator."""

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
    """The type of a _FetchedIterator that is an argument of a `tf.function`."""

    @property
    def value_type(self) -> type:
        return _FetchedIterator

    def _from_components(self, components: object) -> object:
        iterator = super()._from_components(components)
        iterator.__class__ = _FetchedIterator
        return iterator
