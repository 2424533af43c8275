"""What made a handle: the tensor or the op of a graph that a handle is a copy of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

from opwright_runtime._binding import resources
from opwright_runtime._binding.fast_path import EagerTensor
from opwright_runtime._internals import handle_data

_Result = TypeVar("_Result")
# An eager tensor, or a tensor of a graph.
_Handle: TypeAlias = Any

#: Ops that pass a handle on.
_PASSED_ON = frozenset({"Identity", "RefIdentity", "StopGradient", "PreventGradient"})
# Steps back, after which the source of a handle is unknown.
_MOST_STEPS = 100
#: The op that makes an accumulator, and the one that makes a reference to one.
_ACCUMULATORS = frozenset({"ConditionalAccumulator", "ResourceConditionalAccumulator"})


def source_of(handle: _Handle) -> _Handle:
    """The tensor that a handle of a graph is a copy of.

    Returns:
        An eager tensor that a function captures, or the output of an op of a graph.
    """
    for _ in range(_MOST_STEPS):
        if type(handle) is EagerTensor:
            break
        op = handle.op
        if op.type in _PASSED_ON:
            handle = op.inputs[0]
            continue
        outer = _captured(handle) if op.type == "Placeholder" else None
        if outer is None:
            break
        handle = outer
    return handle


def _captured(placeholder: tf.Tensor) -> _Handle:
    """The tensor outside of a function that a placeholder in it stands for, or None."""
    captures = getattr(placeholder.graph, "captures", ())
    return next((outer for outer, inner in captures if inner is placeholder), None)


def held_by(handle: tf.Tensor) -> str | None:
    """The dtype that a handle of a graph holds; None if it is unknown."""
    found = resources.held_in(handle_data(handle))
    if found is not None:
        return found
    source = source_of(handle)
    if type(source) is EagerTensor:
        return _eagerly(resources.held_by, source)
    if source.op.type in _ACCUMULATORS:
        dtype: str = source.op.get_attr("dtype").name
        return dtype
    return None


def is_table(handle: tf.Tensor, keys: str, values: str) -> bool | None:
    """Whether a table has these dtypes; None if its handle's source is unknown."""
    source = source_of(handle)
    if type(source) is EagerTensor:
        return _eagerly(resources.is_table, source, keys, values)
    if "HashTable" not in source.op.type:
        return None
    made = [source.op.get_attr(name).name for name in ("key_dtype", "value_dtype")]
    return made == [keys, values]


def is_importable(table: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> bool | None:
    """Whether an import can fill a table of a graph; None if it is unknown.

    Args:
        table: the handle.
        keys: what the import takes as keys.
        values: what it takes as values.
    """
    source = source_of(table)
    if type(source) is EagerTensor:
        if type(keys) is EagerTensor and type(values) is EagerTensor:
            return _eagerly(resources.are_importable, source, keys, values)
        return None
    if "HashTable" not in source.op.type:
        return None
    if "Dense" not in source.op.type:
        return True
    return resources.fits_dense_table(keys.shape, source.op.inputs[0].shape)


def shape_of_dense_key(table: _Handle) -> tf.Tensor | None:
    """The shape of a key of a dense table, as ops of the graph that makes the table.

    Returns:
        None if the table is not dense, or if it is unknown what makes it.
    """
    source = source_of(table)
    if type(source) is EagerTensor or "DenseHashTable" not in source.op.type:
        return None
    shape: tf.Tensor = tf.shape(source.op.inputs[0], tf.int64)
    return shape


def is_removable(handle: _Handle) -> bool:
    """Whether a resource can be removed, by the text of its handle.

    The kernel that makes an accumulator ends the process if it finds none to remove.
    """
    if type(handle) is not EagerTensor:
        raise TypeError
    return resources.ACCUMULATOR not in handle._summarize_value()


def is_removable_in_graph(handle: tf.Tensor) -> bool | None:
    """`is_removable` for a graph; None if it is unknown what makes the handle."""
    source = source_of(handle)
    if type(source) is EagerTensor:
        return is_removable(source)
    return False if source.op.type in _ACCUMULATORS else None


def shards_of(handle: tf.Tensor) -> int | None:
    """`resources.shards_of` for a graph; None if it is unknown."""
    source = source_of(handle)
    if type(source) is EagerTensor:
        return _eagerly(resources.shards_of, source)
    # An iterator with a name may be one that another op made.
    if not source.op.type.startswith("AnonymousMultiDeviceIterator"):
        return None
    return len(source.op.get_attr("devices"))


def known(
    function: Callable[..., object], tensors: list[_Handle], rest: list[object]
) -> object:
    """A property of several handles; None if the source of one is unknown."""
    sources = [*map(source_of, tensors)]
    if any(type(one) is not EagerTensor for one in sources):
        return None
    return _eagerly(function, *sources, *rest)


def _eagerly(function: Callable[..., _Result], *arguments: object) -> _Result:
    """The result of a function that runs ops, in a program that builds a graph."""
    with tf.init_scope():
        return function(*arguments)
