"""The prose of opdefs: that it is complete, says something, and is our own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from opwright_codegen.model import Arg, Attr, Op
from support.equivalence.calls import MODULES
from support.equivalence.registry import OpDef, op_defs

#: The longest run of words that a text may share with TensorFlow's of the same op.
SHARED = 8
SUMMARY = 78
DOC = 400
DESCRIPTION = 2500
#: Rows that keep their layout must not be longer than a docstring's lines.
ROW = 80
#: Set phrases of types and shapes, which every author has to use.
STOCK = tuple(
    " ".join(re.findall(r"[a-z0-9]+", phrase))
    for phrase in (
        "a tensor of type",
        "must be one of the following types",
        "has the same type as",
        "have the same type as",
        "has the same shape as",
        "must have the same shape as",
        "must have the same type as",
        "the same shape as",
        "the same dtype as",
        "a scalar tensor of type",
        "a list of tensors",
        "along the first dimension of",
        "number of elements in",
        "must be a scalar",
        "the last dimension of",
    )
)
_EMPTY_WORDS = """
a an the of for to in is be this that its
tensor tensors value values input inputs output outputs
op operation given scalar number attr attribute result
"""
#: Words that say nothing by themselves.
EMPTY = set(_EMPTY_WORDS.split())


def documented(op: Op) -> Iterator[Arg | Attr]:
    """Everything that a caller gives or gets; inferred attrs are neither."""
    yield from op.args()
    yield from op.given


def texts(op: Op) -> Iterator[tuple[str, str]]:
    """What is written of an op: of what, and the text."""
    yield "summary", op.summary or ""
    yield "description", op.description or ""
    for part in documented(op):
        yield part.name, part.doc or ""


def incomplete(op: Op) -> Iterator[str]:
    """What an op lacks, or has in another form than all others."""
    if op.summary is None:
        yield "has no summary"
    elif (
        not op.summary.endswith(".") or "\n" in op.summary or len(op.summary) > SUMMARY
    ):
        yield f"its summary is no line of {SUMMARY} columns that ends with a period"
    if op.description is None:
        yield "has no description"
    else:
        if len(op.description) > DESCRIPTION:
            yield f"its description has more than {DESCRIPTION} characters"
        for row in op.description.split("\n"):
            if row.startswith((" ", "-", "*", "|")) and len(row) > ROW:
                yield f"its description has a row of more than {ROW} columns: {row}"
    for part in documented(op):
        if part.doc is None:
            yield f"{part.name} has no doc"
        elif not part.doc.rstrip().endswith("."):
            yield f"the doc of {part.name} ends without a period"
        elif len(part.doc) > DOC:
            yield f"the doc of {part.name} has more than {DOC} characters"
        elif restates(part.name, part.doc):
            yield f"the doc of {part.name} says no more than its name: {part.doc}"
    for arg in op.args():
        if arg.shape is None:
            yield f"{arg.name} has no shape"


def restates(name: str, doc: str) -> bool:
    """Whether a text has no word that its name lacks."""
    known = {word.rstrip("s") for word in re.findall(r"[a-z0-9]+", name.lower())}
    said = [word for word in words(doc) if word not in EMPTY]
    return not [word for word in said if word.rstrip("s") not in known]


def unknown_names(op: Op, ops: frozenset[str]) -> Iterator[str]:
    """Names of ops in backquotes, or written as one, that no op has."""
    for what, text in texts(op):
        for name in re.findall(r"`([A-Z][a-z]+[A-Z]\w*)`", text):
            if name not in ops and name not in {part.name for part in op.attrs}:
                yield f"{what} names `{name}`, which is no op"


def copied(op: Op) -> Iterator[str]:
    """Runs of more than `SHARED` words that TensorFlow's text of the op has too."""
    theirs = _runs(" \n ".join(tensorflow_texts(op.name)))
    for what, text in texts(op):
        common = _runs(text) & theirs
        if common:
            yield f"{what} shares {' '.join(min(common))!r} with TensorFlow's text"


@cache
def tensorflow_texts(name: str) -> tuple[str, ...]:
    """What TensorFlow says of an op: its wrapper's docstring, the registry."""
    found = [
        getattr(getattr(module, name, None), "__doc__", None) for module in MODULES
    ]
    proto = op_defs().get(name, OpDef())
    found += [proto.summary, proto.description]
    for part in (*proto.input_arg, *proto.output_arg, *proto.attr):
        found.append(part.description)
    return tuple(text for text in found if text)


def words(text: str) -> list[str]:
    """Words of prose: code and formulas are left out, each as a full stop."""
    text = re.sub(r"```.*?```", " | ", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", " | ", text)
    text = re.sub(r"(?m)^(?: {2,}|>>> |\.\.\. ).*$", " | ", text)
    return re.findall(r"[a-z0-9]+", text.lower().replace("'", ""))


def _runs(text: str) -> set[tuple[str, ...]]:
    text = re.sub(r"```.*?```", " | ", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", " | ", text)
    text = re.sub(r"(?m)^(?: {6,}|>>> |\.\.\. ).*$", " | ", text)
    flat = " ".join(re.findall(r"[a-z0-9]+|\|", text.lower().replace("'", "")))
    for phrase in STOCK:
        flat = re.sub(rf"\b{phrase}\b", "|", flat)
    length = SHARED + 1
    found: set[tuple[str, ...]] = set()
    for part in flat.split("|"):
        part_words = part.split()
        for start in range(len(part_words) - length + 1):
            found.add(tuple(part_words[start : start + length]))
    return found
