"""The form of an opdef: what is written by hand is above a line, facts are below it.

The order of keys does not change the meaning of a file. The form shows which parts to
edit. Below the line are the facts of the OpDef, which an import renews. What is written
by hand about a fact is at the end of the fact's entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from opwright_codegen import load
from opwright_codegen.nodes import Reader
from opwright_codegen.problems import Problem

#: The keys above the line: the op's name and group, and what is written by hand.
ABOVE: Final = (
    "op",
    "group",
    "summary",
    "description",
    "example",
    "check_with",
    "unchecked",
    "truncated",
    "requires",
    "gradient_of",
    "kernels",
    "tpu_only",
)
#: The keys below the line that are written by hand.
BY_HAND_BELOW: Final = ("doc", "shape", "message", "replacement")
LINE: Final = f"# ---- Imported facts; by hand below: {', '.join(BY_HAND_BELOW)}. ----"


def has_line(content: bytes) -> bool:
    """Whether an opdef has the line."""
    return LINE in _rows(content)


def problems(content: bytes, path: Path) -> Iterator[Problem]:
    """The places where an opdef, which has no mistakes, is not in this form."""
    reader = Reader(path, load.op_name_of(path))
    rows = _rows(content)
    line = rows.index(LINE) if LINE in rows else None
    for name, key in _keys(reader, content):
        imported = name not in ABOVE
        if line is None and imported:
            what = f"{name!r} is a fact, and no line {LINE!r} stands above it"
        elif line is not None and imported != (key.start_mark.line > line):
            what = (
                f"{name!r} is a fact and belongs below the line {LINE!r}"
                if imported
                else f"{name!r} is written by hand and belongs above the line {LINE!r}"
            )
        else:
            continue
        reader.problem(key, f"{what}; 'opwright-codegen lint --fix' arranges that")
        break
    yield from reader.problems


def arranged(content: bytes, path: Path) -> bytes:
    """Reorders the rows of an opdef without mistakes so that it has this form.

    If that is not possible, returns the content unchanged.
    """
    keys = list(_keys(Reader(path, ""), content))
    rows = _rows(content)
    starts = [_start(rows, key.start_mark.line) for _, key in keys]
    above, below = rows[: starts[0]], list[str]()
    for (name, _), start, end in zip(keys, starts, [*starts[1:], None], strict=True):
        part = above if name in ABOVE else below
        part += [row for row in rows[start:end] if row != LINE]
        while part and not part[-1]:
            part.pop()
    if below:
        above += ["", LINE, *below]
    result = "\n".join([*above, ""]).encode()
    before, after = (load.load_text(text, path) for text in (content, result))
    return result if before == after and not any(problems(result, path)) else content


def _keys(reader: Reader, content: bytes) -> Iterator[tuple[str, yaml.Node]]:
    top = reader.compose(content)
    if isinstance(top, yaml.MappingNode):
        yield from ((str(key.value), key) for key, _ in top.value)


def _rows(content: bytes) -> list[str]:
    return content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")


def _start(rows: list[str], line: int) -> int:
    """The first row of a key, including the comments directly above it."""
    while line and rows[line - 1].startswith("#") and rows[line - 1] != LINE:
        line -= 1
    return line
