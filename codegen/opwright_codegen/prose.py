"""Converts the prose of an OpDef to the documentation of an opdef.

An OpDef has a summary and a description, and may have a text on each argument. Many
authors write about arguments in the description instead, in the sections "Args:" and
"Returns:".
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from opwright_codegen.model import Op

_INPUTS = ("args", "arguments", "inputs", "attrs", "attributes")
_OUTPUTS = ("returns", "outputs", "output")
_TITLES = {*_INPUTS, *_OUTPUTS}
_TITLE = re.compile(r"(?:#+ *)?(\w+):")
_ENTRY = re.compile(r"(?:[*-] +)?[`*]*(\w+)[`*]*(?: *\([^)]*\))?:(?: +|\Z)")
_FENCE = re.compile(r" *(?:```|~~~)")
_NUMBERED = re.compile(r"\d+[.)] ")


def documented(op: Op, op_def: Any) -> Op:
    """`op` with the prose of `op_def` as its documentation."""
    summary, description = _lines(op_def)
    parts = (op_def.input_arg, op_def.output_arg, op_def.attr)
    own = {part.name: part.description for some in parts for part in some}
    texts = {name: _one_line(text) for name, text in own.items() if text.strip()}
    inputs = {*(a.name for a in op.inputs), *(a.name for a in op.attrs)}
    outputs = {arg.name for arg in op.outputs}
    rows: list[str] = []
    for title, body in _sections(description):
        names = _named(title, inputs, outputs)
        left: list[str] = []
        for name, block in _entries(body) if names else [("", body)]:
            if not name and names == outputs and len(outputs) == 1:
                # A section "Returns:" without a name is about the only output.
                (name,) = outputs
            if name in names and (text := _said_in(block)):
                texts.setdefault(name, text)
            else:
                left += block
        if title and any(row.strip() for row in left):
            left = [title, *(f"  {row}" for row in left)]
        rows += ["", *left]
    said = dataclasses.replace(
        op,
        summary=summary,
        description=_description(rows),
        inputs=tuple(
            dataclasses.replace(arg, doc=texts.get(arg.name)) for arg in op.inputs
        ),
        outputs=tuple(
            dataclasses.replace(arg, doc=texts.get(arg.name)) for arg in op.outputs
        ),
        attrs=tuple(
            dataclasses.replace(attr, doc=texts.get(attr.name)) for attr in op.attrs
        ),
    )
    return dataclasses.replace(said, imported_text=tuple(map(digest, texts_of(said))))


def texts_of(op: Op) -> Iterator[str]:
    """All texts of an op that an import may have written."""
    docs = [*(arg.doc for arg in op.args()), *(attr.doc for attr in op.attrs)]
    yield from (t for t in (op.summary, op.description, *docs) if t is not None)


def digest(text: str) -> str:
    """A digest of the words of a text. It does not change if lines are wrapped anew."""
    words = " ".join(text.split()).encode()
    return base64.b32encode(hashlib.sha256(words).digest())[:8].decode().lower()


def _lines(op_def: Any) -> tuple[str | None, str]:
    """The summary of an OpDef, and the rest of its prose."""
    summary = " ".join(op_def.summary.split())
    description = textwrap.dedent(op_def.description.expandtabs()).strip("\n")
    if not summary:
        return None, description
    first, _, rest = description.partition("\n\n")
    if summary[-1] not in ".!?:" and first[:1].islower():
        # The summary of an OpDef is its first row, which may end in the middle of a
        # sentence. The description then continues it.
        whole = " ".join(f"{summary} {first}".split())
        summary, _, first = whole.partition(". ")
        description = "\n\n".join(filter(None, (first, rest)))
    return summary if summary[-1] in ".!?:" else f"{summary}.", description


def _named(title: str, inputs: set[str], outputs: set[str]) -> set[str]:
    """The names of arguments about which a section with this title may be."""
    found = _TITLE.fullmatch(title.strip())
    word = found[1].lower() if found else ""
    return inputs if word in _INPUTS else outputs if word in _OUTPUTS else set()


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """The sections of a text: rows with their title, or with "" if they have none.

    The rows of a section are indented below its title.
    """
    title, margin, fenced, rows = "", -1, False, list[str]()
    for row in text.split("\n"):
        indent = len(row) - len(row.lstrip())
        found = _TITLE.fullmatch(row.strip())
        begins = found is not None and found[1].lower() in _TITLES and not fenced
        if begins or (row.strip() and indent <= margin):
            yield title, rows
            title, margin, rows = (row, indent, []) if begins else ("", -1, [])
        if not begins:
            rows.append(row)
        fenced ^= bool(_FENCE.match(row))
    yield title, rows


def _entries(rows: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The entries of a section: a name with its rows. Other rows have the name "".

    An entry begins with `name: text`. Its other rows are indented below that.
    """
    name, block = "", list[str]()
    for row in textwrap.dedent("\n".join(rows)).split("\n"):
        found = _ENTRY.match(row)
        if found or (row[:1].strip() and name):
            if block:
                yield name, block
            name, block = found[1] if found else "", []
        block.append(row)
    yield name, block


def _said_in(block: list[str]) -> str:
    first, *others = block
    return _one_line("\n".join([_ENTRY.sub("", first, count=1), *others]))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _description(rows: list[str]) -> str | None:
    text = "\n".join(_laid_out(rows)).strip("\n")
    return re.sub(r"\n{3,}", "\n\n", text) or None


def _laid_out(rows: list[str]) -> Iterator[str]:
    """Converts Markdown for docstrings: code and numbered lists are indented."""
    fenced = False
    for row in rows:
        row = row.rstrip()
        if _FENCE.match(row):
            fenced = not fenced
            yield ""
        elif fenced:
            yield f"  {row}" if row else ""
        elif _NUMBERED.match(row):
            yield f"  {row}"
        else:
            yield re.sub(r"^#+ +", "", row)
