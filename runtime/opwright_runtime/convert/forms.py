"""Ops that neither ONNX nor TFLite has, in forms that both have.

They surround recurrent layers: binary searches of masks, and ragged sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime.convert.layers import Shape
from opwright_runtime.convert.rewrite import Replacement, replace_nodes, signature_of
from opwright_runtime.convert.signatures import Flat

_Tensor: TypeAlias = Any

_SEARCHES = {"LowerBound": tf.less, "UpperBound": tf.less_equal}
_TO_TENSOR = "RaggedTensorToTensor"
# Ragged tensors count the values of each row with it.
_COUNT = "DenseBincount"
_SPLITS = [b"ROW_SPLITS"]
_ROW_IDS = [b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"]

OPS = frozenset([*_SEARCHES, _COUNT, _TO_TENSOR])


def replace(flat: Flat) -> None:
    """Replaces these ops, in place.

    Tensors with several ragged dimensions stay, and so do counts with weights.
    """
    replace_nodes(flat.graph, OPS, _replacement)


def _replacement(
    node: Any, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
) -> Replacement | None:
    if node.op in _SEARCHES:
        return _search(node, dtypes, shapes)
    if node.op == _COUNT:
        return _count(node, dtypes, shapes)
    types = [*node.attr["row_partition_types"].list.s]
    shape = shapes[0]
    if types not in (_SPLITS, _ROW_IDS) or shape is None:
        return None

    def to_tensor(
        shape: _Tensor, values: _Tensor, default: _Tensor, *parts: _Tensor
    ) -> list[_Tensor]:
        splits = parts[0] if types == _SPLITS else _splits(*parts)
        return [_padded(shape, values, default, splits)]

    signature = signature_of(shapes, dtypes)
    return Replacement((node.op, *types), to_tensor, signature, node.op, "a gather")


def _search(
    node: Any, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
) -> Replacement:
    before = _SEARCHES[node.op]
    out = node.attr.get("out_type")
    dtype = tf.as_dtype(out.type) if out is not None and out.type else tf.int32

    def search(ordered: _Tensor, values: _Tensor) -> list[_Tensor]:
        hits = before(tf.expand_dims(ordered, 1), tf.expand_dims(values, 2))
        return [tf.reduce_sum(tf.cast(hits, dtype), axis=-1)]

    signature = signature_of(shapes, dtypes)
    return Replacement((node.op, dtype), search, signature, node.op, "comparisons")


def _count(
    node: Any, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
) -> Replacement | None:
    values, _, weights = shapes
    if values is None or len(values) != 1 or weights != (0,):
        return None
    binary = node.attr["binary_output"].b
    dtype = dtypes[2]

    def count(values: _Tensor, size: _Tensor, weights: _Tensor) -> list[_Tensor]:
        hits = tf.expand_dims(values, 0) == tf.expand_dims(tf.range(size), 1)
        if binary:
            return [tf.cast(tf.reduce_any(hits, axis=1), dtype)]
        return [tf.reduce_sum(tf.cast(hits, dtype), axis=1)]

    signature = signature_of(shapes, dtypes)
    return Replacement((node.op, binary), count, signature, node.op, "comparisons")


def _splits(rows: _Tensor, ids: _Tensor) -> _Tensor:
    """Where each row begins and ends, from the row of each value."""
    numbers = tf.range(rows + 1)
    below = tf.expand_dims(ids, 0) < tf.expand_dims(numbers, 1)
    return tf.reduce_sum(tf.cast(below, ids.dtype), axis=1)


def _padded(
    shape: _Tensor, values: _Tensor, default: _Tensor, splits: _Tensor
) -> _Tensor:
    """[rows, time, ...]: the values of each row, and then the default value."""
    lengths = splits[1:] - splits[:-1]
    time = tf.reduce_max(tf.concat([lengths, tf.zeros([1], lengths.dtype)], axis=0))
    if shape.shape.rank == 1:
        shape = tf.cast(shape, splits.dtype)
        time = tf.where(shape[1] < 0, time, shape[1])
        rows = tf.size(splits, splits.dtype) - 1
        wanted = tf.where(shape[0] < 0, rows, shape[0])
        # Rows after the last one are empty.
        splits = tf.gather(splits, tf.minimum(tf.range(wanted + 1), rows))
        lengths = splits[1:] - splits[:-1]
    steps = tf.expand_dims(tf.range(time), 0)
    shown = steps < tf.expand_dims(lengths, 1)
    at = tf.expand_dims(splits[:-1], 1) + steps
    last = tf.broadcast_to(default, tf.shape(values)[1:])
    table = tf.concat([values, tf.expand_dims(last, 0)], axis=0)
    count = tf.shape(values, splits.dtype)[0]
    return tf.gather(table, tf.where(shown, at, count))
