"""Finds what is still to be written by hand in an opdef, and writes stubs for it."""

from __future__ import annotations

import ast
import dataclasses
import doctest
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import yaml

from opwright_codegen import comments, load
from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.nodes import Reader
from opwright_codegen.problems import Problem

#: The author of a library need not know the notation of shapes.
_SHAPE_HINT: Final = (
    "(shape: n m for a matrix, shape: '*x' for an output and an input of one shape,"
    " shape: '...' if it is unknown; see docs/how-to/libraries.md)"
)
#: The keys that may be stubs, and what their text says.
_KEYS: Final = {
    "summary": "what the op does, in one line",
    "description": "what it computes, and which calls it refuses",
    "example": "one to six lines of a doctest, with their output",
    "doc": "what the argument means, its range and special values",
    "shape": "the sizes, as in 'batch n'; '...' is any shape",
}

_Part = TypeVar("_Part", Arg, Attr)


def missing(op: Op, *, in_full: bool) -> Iterator[Problem]:
    """The keys that are still to be written by hand, as one problem.

    Args:
      op: the op.
      in_full: whether to include keys that only opwright's own opdefs must have.
    """
    keys = [] if op.summary else ["summary"]
    documented: tuple[Arg | Attr, ...] = (*op.args(), *op.given)
    keys += _of("doc", [one.name for one in documented if not one.doc])
    if in_full:
        keys += [] if op.description else ["description"]
        keys += [] if op.example else ["example"]
        keys += _of("shape", [arg.name for arg in op.args() if not arg.shape])
    elif open_ := _of("shape", [arg.name for arg in op.outputs if not arg.shape]):
        keys.append(f"{open_[0]} {_SHAPE_HINT}")
    if keys:
        how = "; opdefs/WRITING.md says how" if in_full else ""
        what = f"lacks what is written by hand: {', '.join(keys)}{how}"
        yield Problem(op.source, 1, 1, op.name, what)


def with_stubs(op: Op, content: bytes) -> str | None:
    """The file of an op with a stub for each text that is missing; None if none is.

    Stubs that the file has already stay.
    """
    if not any(missing(op, in_full=True)):
        return None
    given = {attr.name for attr in op.given}
    stubbed = dataclasses.replace(
        op,
        summary=op.summary or load.STUB,
        description=op.description or load.STUB,
        example=op.example or load.PROMPT + load.STUB,
        inputs=tuple(_shaped(_documented(arg)) for arg in op.inputs),
        outputs=tuple(_shaped(_documented(arg)) for arg in op.outputs),
        attrs=tuple(
            _documented(attr) if attr.name in given else attr for attr in op.attrs
        ),
    )
    return comments.rewritten(stubbed, content, {})


def misread_example(op: Op) -> Iterator[Problem]:
    """A problem if the example of an op is no doctest, or no Python."""
    try:
        for one in doctest.DocTestParser().get_examples(op.example or ""):
            ast.parse(one.source)
    except (SyntaxError, ValueError) as error:
        why = getattr(error, "msg", None) or str(error)
        row = getattr(error, "text", None) or ""
        where = f" in {row.strip()!r}" if row.strip() else ""
        what = f"the example is not readable as a doctest{where}: {why}"
        yield Problem(op.source, 1, 1, op.name, what)


def stubs(content: bytes, path: Path) -> Iterator[Problem]:
    """A problem for each text of an opdef that is a stub. It says what to write."""
    if load.STUB.encode() not in content:
        return
    reader = Reader(path, load.op_name_of(path))
    _find_stubs(reader, reader.compose(content), "")
    yield from reader.problems


def _find_stubs(reader: Reader, node: yaml.Node | None, owner: str) -> None:
    """Adds a problem for each stub in a mapping, and in the mappings of its lists."""
    rows = node.value if isinstance(node, yaml.MappingNode) else []
    name = next((value.value for key, value in rows if key.value == "name"), None)
    owner = f" of {name}" if isinstance(name, str) else owner
    for key, value in rows:
        if isinstance(value, yaml.SequenceNode):
            for item in value.value:
                _find_stubs(reader, item, owner)
        elif key.value in _KEYS and value.value in (load.STUB, load.PROMPT + load.STUB):
            says = _KEYS[key.value]
            message = f"{key.value}{owner} is a stub: write {says}"
            reader.problem(value, message)


def _documented(part: _Part) -> _Part:
    return dataclasses.replace(part, doc=part.doc or load.STUB)


def _shaped(arg: Arg) -> Arg:
    return dataclasses.replace(arg, shape=arg.shape or load.STUB)


def _of(key: str, names: list[str]) -> list[str]:
    return [f"{key} of {', '.join(names)}"] if names else []
