"""The limit of the memory that the result of one call may take.

It is the memory that is free at the call. `OPWRIGHT_MAX_OUTPUT_BYTES` sets another.
"""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path

VARIABLE = "OPWRIGHT_MAX_OUTPUT_BYTES"
#: Results up to this size are not compared with the free memory, which takes a while.
SMALL = 2**26
_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def _given() -> int | None:
    """The limit that the environment sets; None without one."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        warnings.warn(
            f"{VARIABLE} must be a number of bytes, not {text!r}; the limit is the "
            "free memory",
            stacklevel=2,
        )
        return None
    return number


_LIMIT = _given()
if _LIMIT is not None:
    SMALL = min(SMALL, _LIMIT)


def limit() -> float:
    """How many bytes a result may take; inf if the free memory is unknown."""
    return free() if _LIMIT is None else _LIMIT


def free() -> float:
    """The free memory in bytes: of the machine, or less if a container has less."""
    found = math.inf
    try:
        for row in _MEMORY.read_text().splitlines():
            if row.startswith("MemAvailable:"):
                found = 1024.0 * int(row.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:
        most = (_GROUP / "memory.max").read_text().strip()
        used = int((_GROUP / "memory.current").read_text())
        if most != "max":
            cached = _reclaimable()
            found = min(found, max(int(most) - used + cached, 0))
    except (OSError, ValueError):
        pass
    return found


def _reclaimable() -> int:
    """The bytes of files that the container's limit counts, and that can be freed."""
    for row in (_GROUP / "memory.stat").read_text().splitlines():
        if row.startswith("inactive_file "):
            return int(row.split()[1])
    return 0


def text(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
