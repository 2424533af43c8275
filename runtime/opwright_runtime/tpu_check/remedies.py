"""What to write instead of what TPUs do not run: the rows of remedies.json.

The table has a list of rows for each cause. Rows with the field `text` fit where the
name of the op or the reason matches it. Rows with `ops` or `dtypes` fit the types of
ops, with wildcards, or dtypes of their tensors. The first row that fits counts, so
special ones come before general ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Remedy:
    """A row of the table.

    Attributes:
        id: a short name, for tests.
        cause: why XLA does not compile it; one of `TITLES`.
        call: what stops the program.
        remedy: what to write instead.
        ops: the OP_NAMEs that have this cause, with wildcards.
        dtypes: names of dtypes that have it, with any op.
        text: a pattern in the name of the op, in the reason or in libtpu's error.
    """

    id: str
    cause: str
    call: str
    remedy: str
    ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    text: str = ""

    def fits(self, op: str, text: str, dtypes: Collection[str]) -> bool:
        if self.text and not re.search(self.text, text):
            return False
        if not self.ops and not self.dtypes:
            return True
        return any(fnmatchcase(op, one) for one in self.ops) or any(
            one in self.dtypes for one in dtypes
        )


#: The causes, with the titles of their tables.
TITLES = {
    "host": "Only the host runs it",
    "kernel": "XLA has no kernel, and other ops do the same",
    "constant": "XLA needs the value when it compiles",
    "shape": "Shapes grow, or are too large",
    "dtype": "The dtype has no kernel",
    "other": "Anything else",
}


@cache
def remedies() -> tuple[Remedy, ...]:
    """The rows, in their order."""
    table = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return tuple(
        Remedy(
            row["id"],
            cause,
            row["call"],
            row["remedy"],
            tuple(row.get("ops", ())),
            tuple(row.get("dtypes", ())),
            row.get("text", ""),
        )
        for cause, rows in table.items()
        for row in rows
    )


def row_for(text: str, op: str = "", dtypes: Collection[str] = ()) -> Remedy | None:
    """The first row that fits; None if no row does.

    Args:
        text: name of the op and the reason, or libtpu's error.
        op: type of the op.
        dtypes: names of the dtypes of its tensors.
    """
    return next((row for row in remedies() if row.fits(op, text, dtypes)), None)


def remedy_for(text: str, op: str = "", dtypes: Collection[str] = ()) -> str | None:
    """What to write instead; None if no row fits. It takes what `row_for` takes."""
    row = row_for(text, op, dtypes)
    return None if row is None else row.remedy


def tables() -> str:
    """The rows in Markdown: a table for each cause."""
    parts = []
    for cause, title in TITLES.items():
        rows = [row for row in remedies() if row.cause == cause]
        parts += [f"## {title}", "", "| what stops the program | write instead |"]
        parts += ["|---|---|", *(f"| {row.call} | {row.remedy} |" for row in rows), ""]
    return "\n".join(parts)
