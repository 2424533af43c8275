"""Properties of the arguments of a call as ops, on which checks of a graph depend.

properties.py has them for eager tensors. Integers are int64 and other numbers float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._binding import (
    equations,
    files,
    graph_equations,
    properties,
    resources,
    texts,
    xla_messages,
)

# A tensor of a graph, or a value that is known when the graph is built.
Value: TypeAlias = Any


class UnknownError(Exception):
    """A part of a condition that has no form in a graph."""


def is_tensor(found: object) -> bool:
    return isinstance(found, tf.Tensor)


def numbers_of(*found: Value) -> Iterator[Value]:
    """Numbers as tensors of one dtype: int64 if all are integers that it holds."""
    floats = any(
        (
            one.dtype.is_floating
            if is_tensor(one)
            else isinstance(one, float) or not tf.int64.min <= one <= tf.int64.max
        )
        for one in found
    )
    dtype = tf.float64 if floats else tf.int64
    return (cast(one, dtype) for one in found)


def cast(found: Value, dtype: tf.DType) -> Value:
    """A value or tensor as a tensor of a dtype."""
    if is_tensor(found):
        return tf.cast(found, dtype)
    # tf.cast would convert it to float32 or int32 first.
    return tf.constant(found, dtype)


def fits_dense_table(key: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """`resources.fits_dense_table`, for the shape of a key and for all keys."""
    shape = tf.shape(keys, tf.int64)
    rows, columns = tf.unstack(tf.pad(shape, [[0, 2]])[:2], num=2)
    is_matrix = tf.equal(tf.size(shape), 2)
    return is_matrix & (rows > 0) & tf.equal(columns, tf.reduce_prod(key))


def row_of(found: Value) -> Value:
    return tf.reshape(cast(found, tf.int64), [-1])


def product_of(row: Value) -> Value:
    """The product of a row: of integers, at most what an int64 holds."""
    product = tf.reduce_prod(row)
    if row.dtype.is_floating:
        return product
    about = tf.reduce_prod(tf.cast(row, tf.float64))
    limit = tf.where(about < 0, tf.int64.min, tf.int64.max)
    return tf.where(tf.abs(about) < 2.0**63, product, limit)


def flat_of(tensor: Value) -> Value:
    """All numbers of a tensor in a row, as int64 or float64."""
    is_integer = tensor.dtype.is_integer or tensor.dtype.is_bool
    if not is_integer and not tensor.dtype.is_floating:
        raise UnknownError
    return tf.reshape(tf.cast(tensor, tf.int64 if is_integer else tf.float64), [-1])


def _extreme(reduce: Callable[[Value], Value]) -> Callable[[Value], Value]:
    def of(tensor: Value) -> Value:
        flat = flat_of(tensor)
        found = reduce(flat)
        if flat.dtype.is_floating:
            has_nan = tf.reduce_any(tf.math.is_nan(flat))
            found = tf.where(has_nan, tf.constant(math.nan, flat.dtype), found)
        return found

    return of


def _spans(tensor: Value, size: Value) -> Value:
    flat = flat_of(tensor)
    # A row has two numbers at least. Another condition says that.
    width = tf.maximum(tf.pad(tf.shape(tensor, tf.int64), [[1, 0]])[-1], 2)
    count = tf.size(flat, tf.int64) // width
    rows = tf.reshape(flat[: count * width], [count, width])
    starts, ends = rows[:, -2], rows[:, -1]
    size = cast(size, rows.dtype)
    return tf.reduce_all((starts >= 0) & (starts <= ends) & (ends <= size))


def _batched(tensor: Value, size: Value) -> Value:
    count = tf.maximum(tf.shape(tensor, tf.int64)[0], 1)
    rows = tf.reshape(flat_of(tensor), [count, -1])
    size = cast(size, rows.dtype)
    starts = tf.range(tf.cast(count, rows.dtype))[:, tf.newaxis] * size
    return tf.reduce_all((rows >= starts) & (rows < starts + size))


def _distinct(tensor: Value, least: Value) -> Value:
    # Rows without elements are equal, and may be too many for the kernel.
    count = tf.minimum(
        tf.pad(tf.shape(tensor, tf.int64), [[0, 1]])[0], tf.size(tensor, tf.int64)
    )
    rows = tf.reshape(flat_of(tensor), [tf.maximum(count, 1), -1])
    different = tf.raw_ops.UniqueV2(x=rows, axis=[0]).y
    return tf.shape(different, tf.int64)[0] >= cast(least, tf.int64)


def _permutation(tensor: Value) -> Value:
    flat = flat_of(tensor)
    numbers = tf.range(tf.size(flat, flat.dtype))
    return tf.reduce_all(tf.equal(tf.sort(flat), numbers))


def _steps(start: Value, limit: Value, delta: Value) -> Value:
    first, end, step = (tf.cast(one, tf.float64) for one in (start, limit, delta))
    counts = tf.math.ceil(tf.math.divide_no_nan(end - first, step))
    return tf.reduce_sum(tf.clip_by_value(counts, 0.0, 2.0**62))


def _padded(tensor: Value, paddings: Value) -> Value:
    return tf.shape(tensor, tf.int64) + tf.reduce_sum(tf.cast(paddings, tf.int64), -1)


def _banded(diagonal: Value, k: Value, num_rows: Value, num_cols: Value) -> Value:
    # Parts that are missing are 0. Other conditions say that they must be there.
    sizes = tf.shape(diagonal, tf.int64)
    longest = tf.pad(sizes, [[1, 0]])[-1]
    lowest, highest = tf.pad(flat_of(k), [[0, 1]])[0], tf.pad(flat_of(k), [[1, 0]])[-1]
    rows, columns = (tf.pad(flat_of(one), [[0, 1]])[0] for one in (num_rows, num_cols))
    needed_rows = longest - tf.minimum(highest, 0)
    needed_columns = longest + tf.maximum(lowest, 0)
    is_square = tf.cast((rows < 0) & (columns < 0), tf.int64)
    square = is_square * tf.maximum(needed_rows, needed_columns)
    row_of_each = tf.where(tf.equal(lowest, highest), 1, 2)
    return tf.concat(
        [
            sizes[: tf.size(sizes) - row_of_each],
            [tf.maximum(tf.maximum(rows, needed_rows), square)],
            [tf.maximum(tf.maximum(columns, needed_columns), square)],
        ],
        0,
    )


def _terms(order: Value, q: Value) -> Value:
    is_added = (order >= 1) & tf.equal(order, tf.floor(order))
    is_added &= (q < 0) & tf.not_equal(q, tf.floor(q))
    return tf.reduce_sum(tf.where(is_added, -tf.cast(q, tf.float64), 0))


def _convolves(
    value: tf.Tensor,
    window: tf.Tensor,
    padding: tf.Tensor,
    dilations: tf.Tensor,
    numbers: str | bytes,
) -> object:
    axes, windows, least, most = properties.axes_of(numbers)
    if least < 0 or most >= properties.MOST_AXES:
        return False
    # Axes that are missing have the size 0. XLA takes dilations that are left out as
    # ones, and padding as zeros. Other conditions refuse other numbers of them.
    sizes, lengths = (
        tf.pad(tf.shape(one, tf.int64), [[0, most + 1]]) for one in (value, window)
    )
    count = len(axes)
    rates = tf.pad(flat_of(dilations), [[0, count]], constant_values=1)[:count]
    added = tf.pad(flat_of(padding), [[0, 2 * count]])[: 2 * count]
    picked = tf.gather(sizes, tf.constant(axes, tf.int64))
    dilated = tf.maximum((picked - 1) * rates + 1, 0)
    padded = dilated + tf.reduce_sum(tf.reshape(added, [count, 2]), -1)
    held = tf.gather(lengths, tf.constant(windows, tf.int64))
    rank = tf.rank(value)
    fits = tf.logical_and(most < rank, tf.equal(tf.rank(window), rank))
    filled = tf.logical_and(tf.reduce_all(padded >= 0), tf.reduce_all(held >= 1))
    return tf.logical_and(fits, filled)


def nested_in_graph(splits: Sequence[Value]) -> Value:
    """Whether each row splits of a list end at a row that the next ones have."""
    is_nested = [
        tf.less(tf.pad(outer, [[1, 0]])[-1], tf.size(inner, outer.dtype))
        for outer, inner in pairwise(splits)
    ]
    return tf.reduce_all(is_nested) if is_nested else True


JOINT_IN_GRAPH: Mapping[str, Callable[..., Value]] = {
    "steps": _steps,
    "padded": _padded,
    "banded": _banded,
    "terms": _terms,
    "convolves": _convolves,
    "subscripts": equations.are_subscripts,
    "contracts": xla_messages.is_contracted_in_graph,
    "precise": xla_messages.is_precise,
    "labels": xla_messages.are_labeled_in_graph,
    "writable": files.is_writable,
}


def removed(row: Value, axes: Value) -> tf.Tensor:
    """A row without the sizes at some axes."""
    sizes, several = row_of(row), row_of(axes)
    rank = tf.size(sizes, tf.int64)
    several = tf.where(several < 0, several + rank, several)
    is_removed = tf.equal(tf.range(rank)[:, tf.newaxis], several)
    return tf.boolean_mask(sizes, tf.logical_not(tf.reduce_any(is_removed, axis=1)))


OF_ROWS: Mapping[str, Callable[..., Value]] = {
    "len": lambda row: tf.size(row, tf.int64),
    "sum": lambda row: tf.reduce_sum(row_of(row)),
    "prod": lambda row: product_of(row_of(row)),
    # It may be more than an int64 holds.
    "extent": lambda row: tf.reduce_prod(tf.maximum(cast(row, tf.float64), 1.0)),
    "min": lambda one, other: tf.minimum(*numbers_of(one, other)),
    "max": lambda one, other: tf.maximum(*numbers_of(one, other)),
    "remove": removed,
    "broadcast": lambda *rows: graph_equations.broadcast(*map(row_of, rows)),
    "least": lambda row: tf.reduce_min(row_of(row)),
    "most": lambda row: tf.reduce_max(row_of(row)),
}


def _shards(iterator: tf.Tensor) -> tf.Tensor:
    try:
        return resources.shards_in_graph(iterator)
    except ImportError:
        raise UnknownError from None


def _matrix(variant: tf.Tensor) -> tf.Tensor:
    """The shape of a sparse matrix; that of one number if it is not known."""

    def found(given: tf.Tensor) -> tf.Tensor:
        try:
            sizes = resources.matrix_of(given)
        except Exception:
            sizes = (1, 1)
        return tf.constant(sizes, tf.int64)

    # The text of a variant has it, and no op.
    with tf.device("CPU:0"):
        sizes: tf.Tensor = tf.py_function(found, [variant], tf.int64)
    sizes.set_shape([None])
    return sizes


PROPERTIES_IN_GRAPH: Mapping[str, Callable[..., Value]] = {
    "rank": lambda x: tf.cast(tf.rank(x), tf.int64),
    "elements": lambda x: tf.size(x, tf.int64),
    "shape": lambda x: tf.shape(x, tf.int64),
    "handles": lambda x: tf.size(x, tf.int64),
    # A part that is missing is 0.
    "value": lambda x: tf.pad(flat_of(x), [[0, 1]])[0],
    "contents": flat_of,
    "last": lambda x: tf.pad(flat_of(x), [[1, 0]], constant_values=-1)[-1],
    "least": _extreme(tf.reduce_min),
    "most": _extreme(tf.reduce_max),
    "finite": lambda x: tf.reduce_all(tf.math.is_finite(tf.cast(x, tf.float64))),
    "nan_free": lambda x: tf.logical_not(
        tf.reduce_any(tf.math.is_nan(tf.cast(x, tf.float64)))
    ),
    "named": texts.are_named_in_graph,
    "slices": texts.are_slices_in_graph,
    "drawable": texts.are_drawable_in_graph,
    "uncut": texts.are_uncut_in_graph,
    "rising": lambda x: tf.reduce_all(flat_of(x)[1:] >= flat_of(x)[:-1]),
    "permutation": _permutation,
    "batched": _batched,
    "distinct": _distinct,
    "spans": _spans,
    "shards": _shards,
    "matrix": _matrix,
}
