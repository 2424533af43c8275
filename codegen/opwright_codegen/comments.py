"""Copies the comments of an opdef to the file that replaces it.

A comment belongs to the item below it, or to the item on the same line before it. An
item is a key, an entry of a section, or a key of an entry. In the new file the comment
is at the same item. If that item does not exist, the comment is at the end of the
innermost item around it that exists, or of the file.
"""

from __future__ import annotations

import pathlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import yaml

from opwright_codegen import dump, load
from opwright_codegen.form import LINE
from opwright_codegen.model import Op

#: An item of the file: a key, then the name of an entry below it, then a key of that.
Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class _Comment:
    text: str
    #: The item to which it belongs, and its place relative to that.
    path: Path
    side: Literal["above", "behind", "end"]


@dataclass(frozen=True)
class _Place:
    line: int
    indent: int


def rewritten(op: Op, content: bytes, renamed: Mapping[str, str]) -> str:
    """`op` as YAML, with the comments of the file that it replaces.

    Args:
      op: the op, whose file is to be replaced.
      content: that file.
      renamed: entries of the file that have another name in `op`.
    """
    old = content.decode("utf-8-sig").replace("\r\n", "\n")
    new = dump.dump(op)
    path = load.op_path(pathlib.Path(), op.group, op.name)
    text = carry(old, new, renamed)
    if load.load_text(text.encode(), path) == load.load_text(new.encode(), path):
        return text
    # A comment was in an unexpected place, where it would change what the file means.
    # All comments therefore go to the top.
    return "".join(f"{comment}\n" for comment in texts(old)) + new


def carry(old: str, new: str, renamed: Mapping[str, str]) -> str:
    """Adds the comments of `old` to `new`.

    Args:
      old, new: opdefs without mistakes. `new` has no comments but `form.LINE`.
      renamed: entries of `old` that have another name in `new`.
    """
    rows = new.split("\n")
    places = _places(new)
    above: dict[int, list[str]] = defaultdict(list)
    behind: dict[int, list[str]] = defaultdict(list)
    for comment in _comments(old):
        path = _now(comment.path, places, renamed)
        side = comment.side
        while path and path not in places:
            path, side = path[:-1], "end"
        if not path:
            above[len(rows) - 1].append(comment.text)
        elif side == "behind":
            behind[places[path].line].append(comment.text)
        elif side == "above":
            place = places[path]
            above[place.line].append(" " * place.indent + comment.text)
        else:
            above[_end(rows, places, path)].append("  " + comment.text)
    written: list[str] = []
    for line, row in enumerate(rows):
        written += above[line]
        written.append("  ".join([row, *behind[line]]))
    return "\n".join(written)


def texts(opdef: str) -> list[str]:
    """All comments in an opdef, except `form.LINE`."""
    return [text for _, _, text in _found(opdef) if text != LINE]


def _now(path: Path, places: Mapping[Path, _Place], renamed: Mapping[str, str]) -> Path:
    """The item in the new file, which may be renamed or in another section."""
    if len(path) < 2:
        return path
    section, name, *rest = path
    name = renamed.get(name, name)
    if (section, name) not in places:
        others = (key[0] for key in places if len(key) == 2 and key[1] == name)
        section = next(others, section)
    return (section, name, *rest)


def _end(rows: list[str], places: Mapping[Path, _Place], path: Path) -> int:
    """The first row after all items of the top-level key of `path`."""
    start = places[path[:1]].line
    later = [p.line for key, p in places.items() if len(key) == 1 and p.line > start]
    end = min(later, default=len(rows))
    while end > start + 1 and rows[end - 1] in ("", LINE):
        end -= 1
    return end


def _comments(text: str) -> Iterator[_Comment]:
    places = sorted(_places(text).items(), key=lambda item: item[1].line)
    rows = text.split("\n")
    for line, column, comment in _found(text):
        if comment == LINE:
            continue
        before = [path for path, place in places if place.line <= line]
        after = [item for item in places if item[1].line > line]
        if rows[line][:column].strip():
            # If several items begin in the row, the comment belongs to the outermost.
            first = [path for path, place in places if place.line == line]
            yield _Comment(comment, first[0] if first else before[-1], "behind")
        elif after and column <= after[0][1].indent:
            yield _Comment(comment, after[0][0], "above")
        else:
            yield _Comment(comment, before[-1][:1] if before and column else (), "end")


def _found(text: str) -> Iterator[tuple[int, int, str]]:
    """The row, column and text of each comment.

    Comments are found in the text between two tokens of YAML.
    """
    end = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        start = token.start_mark.index
        gaps = [(end, text[end:start])] if start > end else []
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            gaps.append((start, text[start:].partition("\n")[0]))
        for offset, gap in gaps:
            for found in re.finditer(r"#[^\n]*", gap):
                index = offset + found.start()
                line = text.count("\n", 0, index)
                column = index - text.rfind("\n", 0, index) - 1
                yield line, column, found[0].rstrip()
        end = max(end, token.end_mark.index)


def _places(text: str) -> dict[Path, _Place]:
    top = yaml.compose(text, Loader=yaml.SafeLoader)
    places: dict[Path, _Place] = {}
    for key, value in top.value if isinstance(top, yaml.MappingNode) else ():
        places[(key.value,)] = _Place(key.start_mark.line, 0)
        for item in value.value if isinstance(value, yaml.SequenceNode) else ():
            keys = item.value if isinstance(item, yaml.MappingNode) else []
            name = next((v.value for k, v in keys if k.value == "name"), None)
            if name is None:
                continue
            mark = item.start_mark
            # The column is that of the dash before the entry.
            places[key.value, name] = _Place(mark.line, max(mark.column - 2, 0))
            for below, _ in keys:
                mark = below.start_mark
                if mark.line > item.start_mark.line:
                    place = _Place(mark.line, mark.column)
                    places[key.value, name, below.value] = place
    return places
