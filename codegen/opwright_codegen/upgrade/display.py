"""Says which step runs, in place on a terminal and in lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opwright_codegen.problems import one_line
from opwright_codegen.upgrade.steps import Show

if TYPE_CHECKING:
    from rich.status import Status


class Display:
    """Where a command says what it does. `status`: the line of a terminal, or None."""

    def __init__(self, status: Status | None) -> None:
        self.status = status

    def begin(self, head: str) -> Show:
        """Says that a step begins. Returns what shows its progress."""
        if self.status is None:
            say(head)
            return lambda line: None
        from rich.text import Text

        status = self.status
        status.update(Text(head))
        return lambda line: status.update(Text(f"{head}: {line[-100:]}"))


@contextmanager
def display() -> Iterator[Display]:
    """The display of standard error."""
    if not sys.stderr.isatty():
        yield Display(None)
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield Display(status)


def say(text: str) -> None:
    """Writes a line of the program to standard error."""
    print(one_line(f"opwright-codegen: {text}"), file=sys.stderr)
