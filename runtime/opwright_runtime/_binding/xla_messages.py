"""Properties of messages and equations that ops of XLA have as attrs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import tensorflow as tf

from opwright_runtime._binding.properties import encoded, rank_of
from opwright_runtime._internals import DotDimensionNumbers, PrecisionConfig

#: The number of the highest precision.
_HIGHEST = 2


def is_contracted(lhs: object, rhs: object, numbers: str | bytes) -> bool:
    """Whether operands have the dimensions that a product of them names.

    Args:
        lhs: the operand on the left.
        rhs: the operand on the right.
        numbers: a serialized DotDimensionNumbers.
    """
    ranks = rank_of(lhs), rank_of(rhs)
    return all(most < rank for most, rank in zip(_last(numbers), ranks, strict=True))


def is_contracted_in_graph(
    lhs: tf.Tensor, rhs: tf.Tensor, numbers: str | bytes
) -> tf.Tensor:
    """`is_contracted` when the graph runs."""
    return tf.reduce_all(tf.less(_last(numbers), [tf.rank(lhs), tf.rank(rhs)]))


@lru_cache
def _last(numbers: str | bytes) -> tuple[int, int]:
    """The last dimension that is named of each operand; -1 without one."""
    found = DotDimensionNumbers.FromString(encoded(numbers))
    lhs = (*found.lhs_contracting_dimensions, *found.lhs_batch_dimensions)
    rhs = (*found.rhs_contracting_dimensions, *found.rhs_batch_dimensions)
    return max(lhs, default=-1), max(rhs, default=-1)


@lru_cache
def is_precise(config: str | bytes) -> bool:
    """Whether XLA has the precisions that a serialized PrecisionConfig names."""
    found = PrecisionConfig.FromString(encoded(config))
    return max(found.operand_precision, default=0) <= _HIGHEST


def are_labeled(a: object, b: object, equation: str | bytes) -> bool:
    """Whether no operand has more labels in an equation than axes."""
    counts = _counts(equation)
    if len(counts) != 2:
        return True  # XLA refuses it.
    return counts[0] <= rank_of(a) and counts[1] <= rank_of(b)


def are_labeled_in_graph(
    a: tf.Tensor, b: tf.Tensor, equation: str | bytes
) -> tf.Tensor | bool:
    """`are_labeled` when the graph runs."""
    counts = _counts(equation)
    if len(counts) != 2:
        return True
    return tf.reduce_all(tf.less_equal(counts, [tf.rank(a), tf.rank(b)]))


@lru_cache
def _counts(equation: str | bytes) -> Sequence[int]:
    """How many labels each operand has."""
    operands = encoded(equation).partition(b"->")[0].split(b",")
    return [len(one.replace(b".", b"").replace(b" ", b"")) for one in operands]
