"""Calls of ops on sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xla_ops.support.draws import Arguments, Draw, Kind, Kinds, Values


def _indices(
    draw: Draw, shape: Sequence[int], count: int, order: bool = True
) -> tf.Tensor:
    """Indices of different elements of a tensor of this shape."""
    total = int(np.prod(shape))
    flat = draw.rng.permutation(total)[:count]
    flat = np.sort(flat) if order else flat
    return np.stack(np.unravel_index(flat, shape), axis=1).astype(np.int64)


def _shape(draw: Draw, least: int = 1, most: int = 3) -> tuple[list[int], int]:
    """A shape of at least `least` dimensions, and a number of entries."""
    shape = draw.sizes(draw.size(least, most), 1, 5)
    return shape, draw.size(0, int(np.prod(shape)))


def matmul(draw: Draw) -> Values:
    rows, inner, columns = draw.size(1), draw.size(1), draw.size()
    adjoint_a, adjoint_b = draw.flag(), draw.flag()
    a = [inner, rows] if adjoint_a else [rows, inner]
    b = [columns, inner] if adjoint_b else [inner, columns]
    count = draw.size(0, rows * inner)
    index = draw.choice(tf.int32, tf.int64)
    return lambda: {
        "a_indices": tf.cast(_indices(draw, a, count, draw.flag()), index),
        "a_values": draw.numbers([count]),
        "a_shape": tf.constant(a, tf.int64),
        "b": draw.numbers(b),
        "adjoint_a": adjoint_a,
        "adjoint_b": adjoint_b,
    }


def _values(draw: Draw, count: int) -> tf.Tensor:
    if draw.dtype == tf.bool:
        return draw.integers(0, 2, [count], tf.bool)
    return draw.numbers([count])


def _inputs(draw: Draw, order: bool = True, least: int = 1) -> Values:
    shape, count = _shape(draw, least)
    return lambda: {
        "input_indices": _indices(draw, shape, count, order),
        "input_values": _values(draw, count),
        "input_shape": np.array(shape, np.int64),
    }


def reorder(draw: Draw) -> Values:
    return _inputs(draw, order=False)


def reshape(draw: Draw) -> Values:
    shape, count = _shape(draw)
    left = int(np.prod(shape))
    new = []
    for _ in range(draw.size(0, 2)):
        new.append(draw.choice(*(n for n in range(1, left + 1) if left % n == 0)))
        left //= new[-1]
    new.insert(draw.size(0, len(new)), draw.choice(left, -1))
    return lambda: {
        "input_indices": _indices(draw, shape, count),
        "input_shape": np.array(shape, np.int64),
        "new_shape": np.array(new, np.int64),
    }


def _sp(draw: Draw, least: int = 1) -> tuple[Values, list[int]]:
    shape, count = _shape(draw, least)

    def values() -> Arguments:
        return {
            "sp_indices": _indices(draw, shape, count),
            "sp_values": draw.numbers([count]),
            "sp_shape": np.array(shape, np.int64),
        }

    return values, shape


def softmax(draw: Draw) -> Values:
    return _sp(draw, least=2)[0]


def reduce(draw: Draw) -> Values:
    values = _inputs(draw)
    rank = len(values()["input_shape"])
    axes = draw.rng.permutation(rank)[: draw.size(0, rank)].astype(np.int32)
    axes = np.where(draw.rng.random(axes.shape) < 0.5, axes - rank, axes)
    keep = draw.flag()
    return lambda: {**values(), "reduction_axes": axes, "keep_dims": keep}


def cwise(draw: Draw) -> Values:
    values, shape = _sp(draw)
    dense = [draw.choice(1, size) for size in shape][draw.size(0, len(shape)) :]

    def made() -> Arguments:
        other = draw.numbers(dense)
        other = tf.where(tf.equal(other, 0), tf.ones_like(other), other)
        return {**values(), "dense": other}

    return made


def dense_add(draw: Draw) -> Values:
    shape, count = _shape(draw)
    index = draw.choice(tf.int32, tf.int64)
    return lambda: {
        "a_indices": tf.cast(_indices(draw, shape, count), index),
        "a_values": draw.numbers([count]),
        "a_shape": tf.constant(shape, index),
        "b": draw.numbers(shape),
    }


def concat(draw: Draw) -> Values:
    shape, _ = _shape(draw)
    dim = draw.size(0, len(shape) - 1)
    parts = []
    for _ in range(draw.size(2, 4)):
        part = list(shape)
        part[dim] = draw.size(1, 4)
        parts.append((part, draw.size(0, int(np.prod(part)))))
    given = draw.choice(dim, dim - len(shape))
    return lambda: {
        "indices": [_indices(draw, part, count) for part, count in parts],
        "values": [_values(draw, count) for _, count in parts],
        "shapes": [np.array(part, np.int64) for part, _ in parts],
        "concat_dim": given,
    }


def fill_empty_rows(draw: Draw) -> Values:
    shape, count = _shape(draw)
    order = draw.flag()
    return lambda: {
        "indices": _indices(draw, shape, count, order),
        "values": _values(draw, count),
        "dense_shape": np.array(shape, np.int64),
        "default_value": _values(draw, 1)[0],
    }


def fill_empty_rows_grad(draw: Draw) -> Values:
    count = draw.size()
    taken = draw.size(0, count)
    return lambda: {
        "reverse_index_map": draw.rng.permutation(count)[:taken].astype(np.int64),
        "grad_values": draw.numbers([count]),
    }


REDUCED = Kind(reduce, known=("input_shape", "reduction_axes"))

KINDS: Kinds = {
    "SparseTensorDenseMatMul": Kind(matmul, known=("a_shape",)),
    "SparseReorder": Kind(reorder),
    "SparseReshape": Kind(reshape, ""),
    "SparseSoftmax": Kind(softmax),
    "SparseReduceSum": REDUCED,
    "SparseReduceMax": REDUCED,
    "SparseDenseCwiseAdd": Kind(cwise),
    "SparseDenseCwiseMul": Kind(cwise),
    "SparseDenseCwiseDiv": Kind(cwise),
    "SparseTensorDenseAdd": Kind(dense_add),
    "SparseConcat": Kind(concat),
    "SparseFillEmptyRows": Kind(fill_empty_rows, known=("dense_shape",)),
    "SparseFillEmptyRowsGrad": Kind(fill_empty_rows_grad),
}
