"""`equations` for tensors of a graph whose shapes are known only when it runs.

A size that is missing is 0: the op itself refuses such inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._binding import equations
from opwright_runtime._binding.equations import Equation, Term

# Sizes in a tensor of the graph, or numbers that are known when it is built.
Value: TypeAlias = Any


@dataclass(frozen=True)
class _Input:
    """The sizes of the letters of an input, in their order, and those for "..."."""

    named: tuple[tuple[int, Value], ...]
    part: Value

    @property
    def first(self) -> dict[int, Value]:
        return dict(reversed(self.named))


def broadcast(*rows: Value) -> Value:
    """The shape of tensors of these shapes together.

    Shapes that do not fit give one of zeros: the op itself refuses them.
    """
    found, *others = rows
    for one in others:
        count = tf.maximum(tf.size(found), tf.size(one))
        left, right = (
            tf.pad(row, [[count - tf.size(row), 0]], constant_values=1)
            for row in (found, one)
        )
        fit = tf.reduce_all((left == right) | (left == 1) | (right == 1))
        found = tf.where(tf.equal(left, 1), right, left) * tf.cast(fit, tf.int64)
    return found


def einsum(tensors: Sequence[Value], equation: str | bytes) -> Value:
    found = equations.read(equation)
    if found is None or len(found.inputs) != len(tensors):
        return ()
    inputs = _inputs(found, tensors)
    sizes = {letter: size for one in inputs for letter, size in one.named}
    front, back = found.result.front, found.result.back
    together = () if back is None else broadcast(*(one.part for one in inputs))
    return _row(
        [sizes[letter] for letter in front],
        together,
        [sizes[letter] for letter in back or ()],
    )


def batches(tensors: Sequence[Value], equation: str | bytes) -> Value:
    return tf.reduce_max(_batches(tensors, equation))


def indexed(tensors: Sequence[Value], equation: str | bytes) -> Value:
    *each, both = tf.unstack(_batches(tensors, equation))
    return tf.where(tf.equal(tf.minimum(*each), both), tf.zeros_like(both), both)


def reduced(tensors: Sequence[Value], equation: str | bytes) -> Value:
    found = equations.read(equation)
    if found is None or len(found.inputs) != len(tensors):
        return 0
    zeros = tf.constant(0.0, tf.float64)
    for one in _inputs(found, tensors):
        sizes = dict(one.named)
        summed = [size for letter, size in sizes.items() if letter in found.summed]
        kept = [size for letter, size in sizes.items() if letter not in found.summed]
        if summed:
            made = _product(_row(kept, one.part))
            is_empty = tf.equal(_product(_row(summed)), 0.0)
            zeros = tf.maximum(zeros, tf.where(is_empty, made, tf.zeros_like(made)))
    return zeros


def _batches(tensors: Sequence[Value], equation: str | bytes) -> Value:
    """How many matrices each of two inputs has, and both together."""
    found = equations.read(equation)
    if found is None or not found.is_batched or len(tensors) != 2:
        return tf.ones([3], tf.float64)
    first, second = (
        _row(one.part, [one.first[letter] for letter in found.batch])
        for one in _inputs(found, tensors)
    )
    return tf.stack([*map(_product, (first, second, broadcast(first, second)))])


def _inputs(found: Equation, tensors: Sequence[Value]) -> list[_Input]:
    pairs = zip(found.inputs, tensors, strict=True)
    return [_input(term, tf.shape(one, tf.int64)) for term, one in pairs]


def _input(term: Term, row: Value) -> _Input:
    front, back = term.front, term.back or ()
    padded = tf.pad(row, [[0, len(front)]])
    named = [(letter, padded[at]) for at, letter in enumerate(front)]
    padded = tf.pad(row, [[len(back), 0]])
    named += [(letter, padded[at - len(back)]) for at, letter in enumerate(back)]
    end = tf.maximum(tf.size(row) - len(back), len(front))
    return _Input(tuple(named), row[len(front) : end])


def _row(*parts: Value) -> Value:
    rows = [
        (
            tf.convert_to_tensor(one or [], tf.int64)
            if isinstance(one, (list, tuple))
            else one
        )
        for one in parts
    ]
    return tf.concat(rows, 0)


def _product(row: Value) -> Value:
    """It may be more than an int64 holds."""
    return tf.reduce_prod(tf.cast(row, tf.float64))


#: The functions by the names that conditions have for them.
FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "einsum": einsum,
    "batches": batches,
    "indexed": indexed,
    "reduced": reduced,
}
