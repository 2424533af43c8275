"""OpDefs into opdefs: facts are renewed, what was written by hand stays."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from opwright_codegen import dump, load, registry, since, write
from opwright_codegen.model import Op
from opwright_codegen.problems import OpdefError, Problem

TEST_OPS = "test_ops.yaml"
#: The group of ops that nobody has put into a better one.
UNSORTED = "core"


@dataclass(frozen=True)
class Imported:
    """Files by what became of them."""

    added: tuple[Path, ...]
    updated: tuple[Path, ...]
    unchanged: tuple[Path, ...]
    #: Opdefs of ops that the source does not have; left alone.
    absent: tuple[Path, ...]


def import_ops(
    op_defs: Iterable[Any], root: Path, group: str | None = None
) -> Imported:
    """Writes an opdef for each of `op_defs` below `root`.

    Args:
      op_defs: OpDef messages; names with a leading underscore and those that
        `root`/test_ops.yaml lists are passed over.
      root: folder of opdefs.
      group: where ops go that have no opdef yet; by default a new version of an op
        joins the versions there are, and any other op goes to `UNSORTED`.

    Raises:
      OpdefError: an opdef that would be renewed, or written, has mistakes. Nothing
        was written.
      SourceError: an OpDef says what no opdef can say. Nothing was written.
    """
    left_out = excluded(root)
    files = {load.op_name_of(path): path for path in load.find(root)}
    families = {_unversioned(name): path.parent.name for name, path in files.items()}

    def place(name: str) -> str:
        return group or families.get(_unversioned(name), UNSORTED)

    facts = {
        op_def.name: registry.from_op_def(op_def, place(op_def.name))
        for op_def in op_defs
        if not op_def.name.startswith("_") and op_def.name not in left_out
    }
    problems: list[Problem] = []
    texts: dict[Path, str] = {}
    added: list[Path] = []
    updated: list[Path] = []
    unchanged: list[Path] = []
    for name, fresh in sorted(facts.items()):
        path = files.get(name)
        if path is None:
            path = load.op_path(root, fresh.group, name)
            texts[path] = dump.dump(fresh)
            added.append(path)
            continue
        content = path.read_bytes()
        written, found = load.load_text(content, path)
        problems += found
        if written is None:
            continue
        renewed = dump.with_facts(written, fresh)
        if renewed == written:
            unchanged.append(path)
        else:
            texts[path] = dump.dump(renewed, comments=_comments(content.decode()))
            updated.append(path)
    for path, text in texts.items():
        # Names that clash in Python, say: better told now than by the next command.
        problems += load.load_text(text.encode(), path)[1]
    if problems:
        raise OpdefError(problems)
    for path, text in texts.items():
        write.write(path, text.encode())
    absent = tuple(files[name] for name in sorted(set(files) - set(facts)))
    return Imported(tuple(added), tuple(updated), tuple(unchanged), absent)


def date_ops(history: since.History, root: Path) -> tuple[Path, ...]:
    """Writes into the opdefs below `root` since when there is what; returns the files.

    Raises:
      OpdefError: any of them has a mistake. Nothing was written.
    """
    texts: dict[Path, str] = {}
    for op in read(root):
        dated = since.dated(op, history)
        if dated != op:
            path = Path(op.source)
            texts[path] = dump.dump(dated, comments=_comments(path.read_text("utf-8")))
    for path, text in texts.items():
        write.write(path, text.encode())
    return tuple(texts)


def excluded(root: Path) -> frozenset[str]:
    """Ops that `root` lists as not wanted."""
    path = root / TEST_OPS
    if not path.is_file():
        return frozenset()
    try:
        names = yaml.safe_load(path.read_bytes())["ops"]
        if not isinstance(names, list):
            raise TypeError(f"'ops' is {names!r}")
    except (yaml.YAMLError, KeyError, TypeError, UnicodeDecodeError) as error:
        what = " ".join(str(error).split())
        message = f"wants keys 'reason' and 'ops', a list of names: {what}"
        raise OpdefError([Problem(str(path), 1, 1, "", message)]) from error
    return frozenset(map(str, names))


def read(root: Path) -> list[Op]:
    """Every op below `root`.

    Raises:
      OpdefError: any of them has a mistake.
    """
    ops, problems = load.load_all(root)
    if problems:
        raise OpdefError(problems)
    return ops


def _unversioned(op_name: str) -> str:
    """`TopK` of `TopKV2`."""
    return re.sub(r"V\d+\Z", "", op_name)


def _comments(text: str) -> str:
    """The comment lines at the top of a file."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line)
    return "\n".join(lines)
