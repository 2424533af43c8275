"""Whether the process can start threads: a kernel that fails to ends the process."""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

#: The address space that the C library reserves for the heap of a thread, in bytes.
_HEAP = 2**26
#: The stack of a thread if its size is not limited.
_STACK = 2**23
_STATUS = Path("/proc/self/status")
_GROUP = Path("/sys/fs/cgroup")


def can_start(number: object) -> bool:
    """Whether the process can start so many threads, as far as its limits say."""
    return not isinstance(number, int) or number <= _most()


def _most() -> float:
    """How many threads the process can start; inf without a limit."""
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    stack = _STACK if stack == resource.RLIM_INFINITY else stack
    found = _free(resource.RLIMIT_AS, "VmSize:", 1024) / (stack + _HEAP)
    if os.geteuid():
        # Other processes of the user count too.
        found = min(found, _free(resource.RLIMIT_NPROC, "Threads:", 1))
    try:
        most = (_GROUP / "pids.max").read_text().strip()
        if most != "max":
            used = int((_GROUP / "pids.current").read_text())
            found = min(found, int(most) - used)
    except (OSError, ValueError):
        pass
    return max(found, 0.0)


def _free(limit: int, row: str, unit: int) -> float:
    """What is left of a limit of the process, of which a row of its status is used."""
    most, _ = resource.getrlimit(limit)
    if most == resource.RLIM_INFINITY:
        return math.inf
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(row):
                return float(most - unit * int(line.split()[1]))
    except (OSError, ValueError, IndexError):
        pass
    return math.inf
