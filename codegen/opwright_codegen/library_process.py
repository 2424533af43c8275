"""Processes that load libraries: a library that crashes ends only its own process."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any


def _context() -> ForkContext | SpawnContext:
    """How processes are started. They are forked on Linux, because that is faster."""
    if sys.platform == "linux":
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def start(
    target: Callable[[Path, Connection], None], path: Path
) -> tuple[Connection, BaseProcess]:
    """Starts a process that runs `target` on a library.

    Returns the process's pipe, from which its results are received, and the process.
    """
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(path.resolve(), sender))
    with warnings.catch_warnings():
        # Python warns of a fork in a process with threads, because they may hold locks.
        # No op has run in this process, so TensorFlow's threads hold no lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    sender.close()
    return receiver, process


def received(receiver: Connection) -> Any:
    """The next object that the other process sends; None if it has ended."""
    try:
        return receiver.recv()
    except EOFError:
        return None
