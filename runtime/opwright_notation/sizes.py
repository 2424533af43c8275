"""Sizes and rows of sizes: the values of the notation of shapes."""

from __future__ import annotations

from types import EllipsisType
from typing import TypeAlias

#: A size of a tensor. None stands for an unknown size.
Size: TypeAlias = "int | None"
#: The sizes of a row. None stands for a row with an unknown number of sizes.
Sizes: TypeAlias = "tuple[Size, ...] | None"
#: The shape of a tensor. An ellipsis stands for any number of unknown sizes.
Row: TypeAlias = "tuple[int | EllipsisType | None, ...]"


class MisfitError(Exception):
    """Sizes contradict each other."""


def count(number: int | None, what: str) -> str:
    """A number with a noun: `1 row`, `2 rows`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def is_known(found: object) -> bool:
    """Whether a value is known, with all its elements."""
    if isinstance(found, tuple):
        return all(map(is_known, found))
    return found is not None
