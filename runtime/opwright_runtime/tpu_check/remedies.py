"""What to write instead of what TPUs do not run: the rows of remedies.json.

Rows with the field `text` fit where the name of the op or the reason matches it. Rows
with `ops` or `dtypes` fit the types of ops, with wildcards, or dtypes of their tensors.
The first row that fits counts, so special ones come before general ones.
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
        cause: what stops the program.
        remedy: what to write instead.
        ops: the OP_NAMEs that have this cause, with wildcards.
        dtypes: names of dtypes that have it, with any op.
        text: a pattern in the name of the op, in the reason or in libtpu's error.
    """

    id: str
    cause: str
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


@cache
def remedies() -> tuple[Remedy, ...]:
    """The rows, in their order."""
    rows = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return tuple(
        Remedy(
            row["id"],
            row["cause"],
            row["remedy"],
            tuple(row.get("ops", ())),
            tuple(row.get("dtypes", ())),
            row.get("text", ""),
        )
        for row in rows
    )


def remedy_for(text: str, op: str = "", dtypes: Collection[str] = ()) -> str | None:
    """What to write instead; None if no row fits.

    Args:
        text: name of the op and the reason, or libtpu's error.
        op: type of the op.
        dtypes: names of the dtypes of its tensors.
    """
    fitting = (row.remedy for row in remedies() if row.fits(op, text, dtypes))
    return next(fitting, None)


def table() -> str:
    """The rows as a table in Markdown."""
    lines = [f"| {row.cause} | {row.remedy} |" for row in remedies()]
    return "\n".join(["| cause | what to write instead |", "|---|---|", *lines, ""])
