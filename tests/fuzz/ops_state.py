"""What a worker is at, in memory that outlives it."""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

#: What became of calls: they ran, were refused, were not made because an argument
#: cannot be, or were left out because others like them ended the process.
OUTCOMES = ("ran", "refused", "unmade", "left out")
#: Between the keys of a call's bends.
SEPARATOR = " + "
#: In place of a call's number: the example is run.
EXAMPLE = -1
_PLACE = struct.Struct("<qqd")
_COUNTS = struct.Struct(f"<{len(OUTCOMES)}q")
_KEYS_AT = _PLACE.size + _COUNTS.size
_KEYS = struct.Struct("<256p")
SIZE = _KEYS_AT + _KEYS.size


@dataclass(frozen=True)
class Place:
    """A call.

    Attributes:
        op: the index of the op in the command.
        started: when, on the monotonic clock; 0 between calls.
    """

    op: int
    number: int
    started: float


class State:
    """The call that a worker makes, and what became of those before."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            os.ftruncate(file.fileno(), SIZE)
            self.memory = mmap.mmap(file.fileno(), SIZE)
        self.counts = [0] * len(OUTCOMES)

    def clear(self) -> None:
        self.memory[:] = bytes(SIZE)
        self.counts = [0] * len(OUTCOMES)

    def begin(self, op: int, number: int, keys: str) -> None:
        """Says which call is next, and by which bends."""
        _KEYS.pack_into(self.memory, _KEYS_AT, keys.encode()[:255])
        _PLACE.pack_into(self.memory, 0, op, number, time.monotonic())

    def end(self, op: int, number: int, outcome: str) -> None:
        self.counts[OUTCOMES.index(outcome)] += 1
        _COUNTS.pack_into(self.memory, _PLACE.size, *self.counts)
        _PLACE.pack_into(self.memory, 0, op, number, 0.0)

    @property
    def place(self) -> Place:
        return Place(*_PLACE.unpack_from(self.memory, 0))

    @property
    def keys(self) -> str:
        (text,) = _KEYS.unpack_from(self.memory, _KEYS_AT)
        return bytes(text).decode(errors="replace")

    @property
    def outcomes(self) -> dict[str, int]:
        counts = _COUNTS.unpack_from(self.memory, _PLACE.size)
        return dict(zip(OUTCOMES, counts, strict=True))
