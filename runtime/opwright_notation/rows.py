"""What the notation computes of rows of sizes, without the notation itself.

The checks of eager calls use these functions, and import nothing else of the notation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from opwright_notation.sizes import MisfitError, Size, Sizes, count


def extent(row: tuple[int, ...]) -> int:
    """The product of the sizes that are not 0, which TensorFlow also has to hold."""
    # It is faster for the usual row, which has no 0.
    return math.prod(row) or math.prod([size for size in row if size])


def known_product(row: Iterable[int | None]) -> int:
    """The product of the known sizes."""
    return math.prod(size for size in row if size is not None)


def known_extent(row: tuple[int | None, ...]) -> int:
    """The product of the sizes that are known and not 0."""
    return math.prod([size for size in row if size])


def broadcast(*rows: tuple[object, ...]) -> tuple[object, ...]:
    """The shape of tensors of these shapes together.

    Shapes that do not fit give that of a scalar: the op refuses them, and says why.
    """
    found, *others = rows
    for row in others:
        if row == found:
            continue
        longer, shorter = (found, row) if len(found) >= len(row) else (row, found)
        start = len(longer) - len(shorter)
        together = [*longer[:start]]
        for a, b in zip(longer[start:], shorter, strict=True):
            if a == b or b == 1:
                together.append(a)
            elif a == 1 or a is None:
                together.append(b)
            elif b is None:
                together.append(a)
            else:
                return ()
        found = tuple(together)
    return found


def axis_of(at: int, rank: int) -> int:
    """An axis as a number from 0 on; a negative one counts from the end."""
    if not -rank <= at < rank:
        raise MisfitError(f"axis {at} of {count(rank, 'dimension')}")
    return at % rank


def axes_of(found: object, rank: int) -> tuple[int, ...] | None:
    """Distinct axes as numbers from 0 on; None if they are unknown."""
    several = found if isinstance(found, tuple) else (found,)
    row = tuple(axis_of(at, rank) for at in several if type(at) is int)
    if len(row) < len(several):
        return None
    if len(set(row)) < len(row):
        raise MisfitError(f"an axis is twice in {found}")
    return row


def remove(row: tuple[Size, ...], at: object) -> Sizes:
    """A row without the sizes at some axes."""
    return reduce(row, at, False)


def reduce(row: tuple[Size, ...], at: object, keep: object) -> Sizes:
    """A row in which the sizes at some axes are 1, or without them."""
    several = axes_of(at, len(row))
    if several is None:
        return (None,) * len(row) if keep else None
    if keep is None:
        return None
    if keep:
        return tuple(1 if n in several else size for n, size in enumerate(row))
    return tuple(size for n, size in enumerate(row) if n not in several)
