"""What a run of gpu_check.py has found: rows of a table, and lines of Markdown.

Each part runs in its own process and writes what it finds to a file at once. The
findings of a part that dies are therefore kept.
"""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

OK, FAILED, NOT_RUN = "ok", "FAILED", "not run"
MARKS = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


@dataclass(frozen=True)
class Row:
    part: str
    what: str
    verdict: str
    note: str = ""


class Findings:
    """Written by a part: one line of JSON each."""

    def __init__(self, part: str, path: Path) -> None:
        self.part, self.path = part, path

    def _append(self, kind: str, value: object) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({kind: value}) + "\n")

    def row(self, what: str, verdict: str, note: str = "") -> None:
        self._append("row", [what, verdict, note])

    def lines(self, lines: Iterable[str]) -> None:
        """Of Markdown, above the table of rows."""
        self._append("lines", list(lines))

    def tried(self, what: str, call: Callable[[], tuple[str, str]]) -> None:
        """A row from verdict and note, or FAILED with what was raised."""
        try:
            self.row(what, *call())
        except Exception as error:
            traceback.print_exc()
            self.row(what, FAILED, f"{type(error).__name__}: {error}")

    def done(self) -> None:
        """Nothing is to follow."""
        self._append("done", True)


def found(part: str, path: Path) -> tuple[list[Row], list[str], bool]:
    """What a part has left: rows, lines and whether it came to its end.

    A line that was cut off when it died is not there.
    """
    rows, lines, done = [], [], False
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(text)
        except json.JSONDecodeError:
            continue
        if "row" in entry:
            rows.append(Row(part, *entry["row"]))
        lines += entry.get("lines", [])
        done = done or "done" in entry
    return rows, lines, done


def cell(text: str, longest: int = 160) -> str:
    """One cell of Markdown: one line, not long."""
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= longest else flat[: longest - 3] + "..."


def table(rows: list[Row]) -> list[str]:
    return [
        "| part | what | result | |",
        "|---|---|---|---|",
        *(
            f"| {r.part} | {cell(r.what)} | {r.verdict} | {cell(r.note)} |".replace(
                "  |", " |"
            )
            for r in rows
        ),
    ]


def write(doc: Path, text: str) -> None:
    """Puts the text between the marks of a page, completely or not at all."""
    before, mark, rest = doc.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        raise ValueError(f"{doc} lacks {MARKS[0].strip()} ... {MARKS[1].strip()}")
    handle, name = tempfile.mkstemp(dir=doc.parent, prefix=doc.name)
    with os.fdopen(handle, "w") as file:
        file.write(before + MARKS[0] + text + MARKS[1] + after)
    os.chmod(name, doc.stat().st_mode)
    os.replace(name, doc)
