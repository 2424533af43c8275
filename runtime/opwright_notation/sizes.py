"""Sizes and rows of them: the values of the notation of shapes."""

from __future__ import annotations

from types import EllipsisType
from typing import TypeAlias

#: None: an unknown size.
Size: TypeAlias = "int | None"
#: The sizes of a row; None: their number is unknown.
Sizes: TypeAlias = "tuple[Size, ...] | None"
#: The shape of a tensor. An ellipsis stands for any number of unknown sizes.
Row: TypeAlias = "tuple[int | EllipsisType | None, ...]"

ANY: Row = (...,)


class MisfitError(Exception):
    """Sizes contradict each other."""


def fits(actual: Row, row: Row) -> bool:
    """Whether a row may be `actual`: the known sizes of both agree."""
    if ... in row or ... in actual:
        # Only sizes before the first ellipsis and after the last can be compared.
        for one, other in (
            (actual, row),
            (actual[::-1], row[::-1]),
        ):
            for size, wanted in zip(one, other, strict=False):
                if size is ... or wanted is ...:
                    break
                if None not in (size, wanted) and size != wanted:
                    return False
        least = [len([s for s in r if s is not ...]) for r in (actual, row)]
        if ... not in actual:
            return least[0] >= least[1]
        if ... not in row:
            return least[1] >= least[0]
        return True
    return len(actual) == len(row) and all(
        size is None or wanted is None or size == wanted
        for size, wanted in zip(actual, row, strict=True)
    )


def count(number: int | None, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def is_known(found: object) -> bool:
    """Whether a value is known, with all its elements."""
    if isinstance(found, tuple):
        return all(map(is_known, found))
    return found is not None
