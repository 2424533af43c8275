"""What a process has of processors and memory, as Linux reports it.

A process that is gone has 0.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

Pid = int | str


def running_time(pid: Pid) -> float:
    """Seconds that a process has run on processors."""
    # Its name, which may hold anything, ends with the last parenthesis.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def waiting_time(pid: Pid) -> float:
    """Seconds that a process's main thread has waited for a processor."""
    return sum(map(int, _read(pid, "schedstat").split()[1:2])) / 1e9


def resident(pid: Pid = "self") -> int:
    """Bytes of a process in memory."""
    pages = sum(map(int, _read(pid, "statm").split()[1:2]))
    return pages * resource.getpagesize()


def _read(pid: Pid, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
