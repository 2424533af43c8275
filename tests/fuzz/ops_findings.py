"""What the fuzzer of all ops found: kept in a folder, and reported."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .supervisor import Finding

HANG, MEMORY, REFUSED = "hang", "memory", "false refusal"
#: The order of a report.
KINDS = ("crash", HANG, MEMORY, REFUSED)
HEADER = "import numpy as np\nimport tensorflow as tf\n"


@dataclass
class Found:
    """A call that ended its process, or that is refused and TensorFlow takes.

    Attributes:
        kind: the name of a signal, or one of the constants above.
        confirmed: whether the call alone did it again.
        code: the call as Python text.
        data: the call as the worker takes it.
    """

    op: str
    kind: str
    message: str
    side: str
    onednn: str
    seed: int
    number: int
    confirmed: bool
    code: str
    data: dict[str, Any]
    times: int = 1

    @property
    def signature(self) -> str:
        return signature(self.op, self.kind, self.message)

    @property
    def places(self) -> frozenset[str]:
        """The arguments that are bent."""
        return frozenset(place for place, *_ in self.data["bends"])

    @property
    def group(self) -> str:
        """The kind; all signals are one."""
        return self.kind if self.kind in KINDS else "crash"


def signature(op: str, kind: str, message: str) -> str:
    """The same for calls that fail for one reason."""
    message = re.sub(r"\w+ expected, got \w+", "_ expected, got _", message)
    return Finding(0, 0, op, "", kind, message).signature


class Corpus:
    """Findings and finished ops, in files of a folder if there is one."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        if self.folder is None:
            return
        with self.lock, (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")

    def read(self, name: str) -> list[dict[str, Any]]:
        path = None if self.folder is None else self.folder / name
        return [] if path is None or not path.exists() else lines(path)

    def keep(self, found: Found) -> None:
        self.write("findings.jsonl", asdict(found))

    def findings(self) -> list[Found]:
        return [Found(**one) for one in self.read("findings.jsonl")]

    def finish(self, task: Mapping[str, Any]) -> None:
        self.write("finished.jsonl", task)

    def finished(self) -> list[dict[str, Any]]:
        return self.read("finished.jsonl")


def lines(path: Path) -> list[dict[str, Any]]:
    """The values of a JSON-lines file. A line that was cut short is left out."""
    found = []
    for line in path.read_text("utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def in_order(found: Iterable[Found]) -> list[Found]:
    return sorted(
        found, key=lambda one: (KINDS.index(one.group), one.op, one.kind, len(one.code))
    )


def summary(found: Iterable[Found], outcomes: Counter[str], about: str) -> str:
    """A report in Markdown, for readers and for programs that make rules of it."""
    ordered = in_order(found)
    by_group = Counter(one.group for one in ordered)
    ops = {group: {one.op for one in ordered if one.group == group} for group in KINDS}
    rows = [
        "# Calls that end the process",
        "",
        about,
        "",
        "calls: " + ", ".join(f"{name} {n}" for name, n in outcomes.items()),
        "",
        "| kind | findings | ops |",
        "|---|---|---|",
    ]
    rows += [f"| {one} | {by_group[one]} | {len(ops[one])} |" for one in KINDS]
    for group in KINDS:
        rows += ["", f"## {group}", ""]
        for one in (one for one in ordered if one.group == group):
            note = "" if one.confirmed else ", not again alone"
            message = " ".join(one.message.split())[:200]
            rows.append(
                f"- **{one.op}** {one.kind}, {one.times} times, {_way(one)}{note}: "
                f"`{message or 'no message'}`"
            )
            rows += ["  ```python", *_indented(one.code), "  ```"]
    return "\n".join(rows) + "\n"


def _way(one: Found) -> str:
    bends = ", ".join(f"{place} {kind}" for place, _, kind, _ in one.data["bends"])
    return f"{one.data['mode']}, oneDNN {one.onednn}, by {bends or 'nothing'}"


def _indented(code: str) -> list[str]:
    return [f"  {line[:1500]}" for line in code.rstrip().split("\n")]


def show(found: Iterable[Found], outcomes: Counter[str], seconds: float) -> None:
    """Prints a table of the findings."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    ordered = in_order(found)
    table = Table(title="findings", show_lines=True)
    for name in ("kind", "op", "times", "message", "call"):
        table.add_column(name, overflow="fold")
    for one in ordered:
        kind = one.kind if one.confirmed else f"{one.kind}, not again alone"
        message = " ".join(one.message.split())[:160]
        table.add_row(kind, one.op, str(one.times), message, one.code[:600])
    if ordered:
        console.print(table, markup=False)
    counts = Counter(one.group for one in ordered)
    ops = {group: {one.op for one in ordered if one.group == group} for group in KINDS}
    for group in KINDS:
        console.print(f"{group}: {counts[group]} findings in {len(ops[group])} ops")
    said = ", ".join(f"{name} {n}" for name, n in outcomes.items())
    total = sum(outcomes.values())
    console.print(f"{total} calls in {seconds:.0f} s: {said}", markup=False)
