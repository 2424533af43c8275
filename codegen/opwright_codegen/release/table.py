"""The table that a release prints: a row for each TensorFlow and Python."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

#: The columns that steps fill, in their order, by the name of the step.
_STEPS = ("environment", "build", "audit", "install", "tests")


@dataclass
class Row:
    """What came of a TensorFlow and a Python.

    `cells`: results by the name of a step. `seconds`: how long its own steps took.
    """

    tensorflow: str
    python: str
    cells: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def show(rows: Sequence[Row]) -> None:
    """Prints the table to stdout, as wide as it has to be."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE)
    for name in ("TensorFlow", "Python", *_STEPS):
        table.add_column(name, no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    for row in rows:
        found = (row.cells.get(name, "-") for name in _STEPS)
        cells = (row.tensorflow, row.python, *found, f"{row.seconds:.0f}")
        table.add_row(*map(Text, cells))
    console = Console()
    if not sys.stdout.isatty():
        # A log has no width; a cell must not be cut.
        console = Console(width=160)
    console.print(table)
