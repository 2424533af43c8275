"""What a fuzzer says while it runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def say(words: str) -> None:
    print(words, flush=True)


@contextmanager
def show_progress(total: int, made: Callable[[], int]) -> Iterator[None]:
    """Progress: a bar on a terminal, otherwise a line from time to time.

    Args:
        total: the calls to make.
        made: the calls that were made.
    """
    done = threading.Event()
    began = time.monotonic()

    def watch() -> None:
        if sys.stdout.isatty():
            from rich.progress import Progress

            with Progress() as progress:
                task = progress.add_task("calls", total=total)
                while not done.wait(0.5):
                    progress.update(task, completed=made())
            return
        while not done.wait(60):
            say(f"{time.monotonic() - began:6.0f} s, {made()} calls")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
