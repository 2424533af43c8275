"""Properties of a call of Einsum: what its kernel makes of an equation and of shapes.

The kernel reads an equation byte by byte. It sums each input over the letters that only
this input has, and that the result lacks. It multiplies what remains as batches of
matrices, and repeats axes whose letter the result repeats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from opwright_notation.rows import broadcast
from opwright_runtime._binding.properties import (
    MOST_AXES,
    encoded,
    sizes_of,
    tensors_of,
)

#: The sizes of an input; None stands for an unknown size.
Row = tuple[Any, ...]

_PERIOD = ord(".")


class Term(NamedTuple):
    """What an equation says of an input or of the result.

    Attributes:
        front: the letters before "...", or all letters.
        back: the letters behind "..."; None without one.
        dots: how often it has "...".
    """

    front: tuple[int, ...]
    back: tuple[int, ...] | None
    dots: int

    @property
    def letters(self) -> tuple[int, ...]:
        return self.front + (self.back or ())


class Equation(NamedTuple):
    """An equation that TensorFlow reads.

    Attributes:
        inputs: the term of each input.
        result: the term of the result.
        ranks: how many axes each input has; empty if a term has "...", or the result a
            letter of its own.
        pick: takes the sizes of all inputs in a row, and returns those of the result,
            unless `ranks` is empty.
        batch: the letters of both inputs and of the result.
        summed: the letters that only one of two inputs has, and that the result lacks.
        is_batched: whether the inputs may be batches of matrices.
    """

    inputs: tuple[Term, ...]
    result: Term
    ranks: tuple[int, ...]
    pick: Callable[[Row], Row]
    batch: tuple[int, ...]
    summed: frozenset[int]
    is_batched: bool


@lru_cache(maxsize=1024)
def read(equation: str | bytes) -> Equation | None:
    """The equation in a text; None if TensorFlow refuses it."""
    text = encoded(equation)
    left, *others = text.split(b"->")
    terms = tuple(map(_term, left.split(b",")))
    first, last = {*terms[0].letters}, {*terms[-1].letters}
    if len(others) != 1 or len(terms) > 2:
        return None
    result = _term(others[0])
    has_dots = any(term.dots for term in (*terms, result))
    kept = {*result.letters}
    batch, summed = first & last & kept, (first ^ last) - kept
    if len(terms) == 1:
        batch.clear()
    letters = [letter for term in terms for letter in term.letters]
    is_plain = not has_dots and kept.issubset(letters)
    return Equation(
        terms,
        result,
        tuple([len(term.letters) for term in terms]) if is_plain else (),
        _picked(letters, result.letters) if is_plain else tuple,
        tuple(batch),
        frozenset(summed),
        len(terms) == 2 and (has_dots or bool(batch)),
    )


def _term(text: bytes) -> Term:
    parts: list[list[int]] = [[]]
    at = 0
    while at < len(text):
        if text[at] == _PERIOD:
            # The kernel takes it for "...", whatever the next two are.
            parts.append([])
            at += 3
        else:
            parts[-1].append(text[at])
            at += 1
    front, *others = map(tuple, parts)
    return Term(front, sum(others, ()) if others else None, len(others))


def _picked(letters: list[int], wanted: tuple[int, ...]) -> Callable[[Row], Row]:
    """A function that picks a size for each letter: that of its last axis.

    The kernel remembers this size. It refuses another, unless the one before is 0.
    """
    last = {letter: at for at, letter in enumerate(letters)}
    places = [last[letter] for letter in wanted]
    if len(places) > 1:
        picked: Callable[[Row], Row] = itemgetter(*places)
        return picked
    return lambda row: tuple([row[at] for at in places])


def are_subscripts(equation: str | bytes) -> bool:
    """Whether the kernel survives an equation.

    It is also true for an equation that TensorFlow refuses.
    """
    found = read(equation)
    if found is None or found.ranks:
        return found is None or len(found.result.front) <= MOST_AXES
    terms = (*found.inputs, found.result)
    letters = {letter for term in found.inputs for letter in term.letters}
    return (
        max(term.dots for term in terms) <= 1
        and letters.issuperset(found.result.letters)
        and len(found.result.letters) <= MOST_AXES
    )


def rows_of(tensors: Sequence[Any]) -> tuple[Row, ...]:
    """The shapes of tensors."""
    return tuple(map(sizes_of, tensors_of(tensors)))


def einsum_of(tensors: Sequence[Any], equation: str | bytes) -> Row:
    """The shape of the result; that of a scalar for inputs that do not fit."""
    found = read(equation)
    rows = rows_of(tensors)
    if found is not None and tuple(map(len, rows)) == found.ranks:
        # It is the usual case, which has to be fast.
        return found.pick(rows[0] + rows[1] if len(rows) == 2 else rows[0])
    return einsum_in(rows, equation)


def batches_of(tensors: Sequence[Any], equation: str | bytes) -> int:
    """How many matrices an input, or the product of both, has at most."""
    found = read(equation)
    if found is None or not found.is_batched:
        # It is the usual case, which has to be fast.
        return 1
    return batches_in(rows_of(tensors), equation)


def indexed_of(tensors: Sequence[Any], equation: str | bytes) -> int:
    """How many pairs of matrices the kernel keeps the indices of."""
    found = read(equation)
    if found is None or not found.is_batched or found.ranks:
        # Without "...", batches do not broadcast.
        return 0
    return indexed_in(rows_of(tensors), equation)


def reduced_of(tensors: Sequence[Any], equation: str | bytes) -> int:
    """How many zeros the kernel makes of an input without elements that it sums."""
    found = read(equation)
    if found is None or not found.summed:
        return 0
    return reduced_in(rows_of(tensors), equation)


# The same for shapes.


def einsum_in(rows: tuple[Row, ...], equation: str | bytes) -> Row:
    found = read(equation)
    if found is None or tuple(map(len, rows)) != found.ranks:
        return () if found is None or found.ranks else _broadcast(rows, equation)
    return found.pick(rows[0] + rows[1] if len(rows) == 2 else rows[0])


def batches_in(rows: tuple[Row, ...], equation: str | bytes) -> int:
    return max(_batches(rows, equation))


def indexed_in(rows: tuple[Row, ...], equation: str | bytes) -> int:
    *each, both = _batches(rows, equation)
    return 0 if min(each) == both else both


@lru_cache(maxsize=1024)
def _broadcast(rows: tuple[Row, ...], equation: str | bytes) -> Row:
    """The shape of a result if a term has "..."."""
    found = read(equation)
    assert found is not None
    inputs = _split(found, rows)
    together: Row = broadcast(*(part for _, part in inputs)) if inputs else ()
    front, back = found.result.front, found.result.back
    if not inputs or (together and back is None):
        return ()
    sizes = {letter: size for named, _ in inputs for letter, size in named}
    before = tuple([sizes[letter] for letter in front])
    return before + together + tuple([sizes[letter] for letter in back or ()])


def reduced_in(rows: tuple[Row, ...], equation: str | bytes) -> int:
    found = read(equation)
    zeros = 0
    for named, part in _split(found, rows) if found is not None else ():
        assert found is not None
        sizes = dict(named)
        summed = [size for letter, size in sizes.items() if letter in found.summed]
        if 0 in summed:
            kept = [
                size for letter, size in sizes.items() if letter not in found.summed
            ]
            zeros = max(zeros, math.prod(kept) * math.prod(part))
    return zeros


@lru_cache(maxsize=1024)
def _batches(rows: tuple[Row, ...], equation: str | bytes) -> tuple[int, int, int]:
    """How many matrices each of two inputs has, and both together."""
    found = read(equation)
    inputs = _split(found, rows) if found is not None and found.is_batched else []
    if found is None or not inputs:
        return (1, 1, 1)
    first, second = (
        part + tuple([dict(reversed(named))[letter] for letter in found.batch])
        for named, part in inputs
    )
    both: Row = broadcast(first, second)
    if not both and (first or second):
        # TensorFlow refuses inputs that do not fit.
        return (1, 1, 1)
    return math.prod(first), math.prod(second), math.prod(both)


def _split(
    found: Equation, rows: tuple[Row, ...]
) -> list[tuple[list[tuple[int, Any]], Row]]:
    """For each input its letters with their sizes, and its sizes for "...".

    The list is empty for inputs that TensorFlow refuses, as they do not fit.
    """
    inputs = []
    if len(rows) != len(found.inputs):
        return []
    for term, row in zip(found.inputs, rows, strict=True):
        back = term.back or ()
        end = len(row) - len(back)
        if end < len(term.front) or (term.back is None and end > len(term.front)):
            return []
        named = [
            *zip(term.front, row, strict=False),
            *zip(back, row[end:], strict=True),
        ]
        inputs.append((named, row[len(term.front) : end]))
    return inputs
