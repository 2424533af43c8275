"""OpDefs into opdefs: facts are renewed, what was written by hand stays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opwright_codegen import (
    comments,
    dump,
    load,
    prose,
    registry,
    renamed,
    since,
    sources,
    write,
)
from opwright_codegen.model import Op
from opwright_codegen.problems import OpdefError, Problem, Skipped, SourceError

#: The group of ops that nobody has put into a better one.
UNSORTED = "core"


@dataclass(frozen=True)
class Imported:
    """Files by what became of them."""

    added: tuple[Path, ...]
    updated: tuple[Path, ...]
    unchanged: tuple[Path, ...]
    #: Opdefs of ops that the source does not have.
    absent: tuple[Path, ...]
    #: Ops that no opdef can say.
    skipped: tuple[Skipped, ...] = ()
    #: Arguments that another one took the place of: op, old name, new name.
    renamed: tuple[tuple[str, str, str], ...] = ()


def import_ops(
    op_defs: Iterable[Any],
    root: Path,
    group: str | None = None,
    *,
    prune: bool = False,
) -> Imported:
    """Writes an opdef for each of `op_defs` below `root`.

    Args:
      op_defs: OpDef messages; internal ops and TensorFlow's test ops are passed over.
      root: folder of opdefs.
      group: where ops go that have no opdef yet; by default a new version of an op
        joins the versions there are, and any other the only group that there is. What
        is left of TensorFlow's goes to `UNSORTED`.
      prune: remove the opdefs of ops that are not among `op_defs`.

    Raises:
      OpdefError: an opdef that would be renewed, or written, has mistakes. Nothing
        was written.
      SourceError: ops of a library have no group. Nothing was written.
    """
    files = {load.op_name_of(path): path for path in load.find(root)}
    families = {_unversioned(name): path.parent.name for name, path in files.items()}

    listed = list(op_defs)
    own = not sources.is_tensorflow(listed)
    groups = {path.parent.name for path in files.values()}
    only = next(iter(groups)) if len(groups) == 1 else None
    homeless: list[str] = []

    def place(name: str) -> str:
        found = group or families.get(_unversioned(name)) or only
        if found is None and own:
            homeless.append(name)
        return found or UNSORTED

    facts: dict[str, Op] = {}
    skipped: list[Skipped] = []
    for op_def in sources.wanted(listed):
        try:
            op = registry.from_op_def(op_def, place(op_def.name))
            # Of TensorFlow's ops we say in our own words what they do.
            facts[op.name] = prose.documented(op, op_def) if own else op
        except SourceError as error:
            skipped.append(Skipped(op_def.name, str(error)))
    if homeless:
        shown = ", ".join(homeless[:3]) + (", ..." if len(homeless) > 3 else "")
        raise SourceError(
            f"{shown}: in no group yet; name one with --group, the package that their"
            " classes go to: --group audio"
        )
    problems: list[Problem] = []
    texts: dict[Path, str] = {}
    added: list[Path] = []
    updated: list[Path] = []
    unchanged: list[Path] = []
    moved: list[tuple[str, str, str]] = []
    for name, fresh in sorted(facts.items()):
        path = files.get(name)
        if path is None:
            path = load.op_path(root, fresh.group, name)
            text = dump.dump(fresh)
            # Names that clash in Python, say.
            if found := load.load_text(text.encode(), path)[1]:
                skipped.append(Skipped(name, f"{name}: {found[0].message}"))
            else:
                texts[path] = text
                added.append(path)
            continue
        content = path.read_bytes()
        written, found = load.load_text(content, path)
        problems += found
        if written is None:
            continue
        names = renamed.find(written, fresh)
        renewed = dump.with_facts(renamed.apply(written, names), fresh)
        if renewed == written:
            unchanged.append(path)
        else:
            texts[path] = _text(renewed, content, names)
            updated.append(path)
            moved += [(name, was, now) for was, now in names.items()]
    for clash in load.clashes(root, [*files.values(), *added]):
        path = Path(clash.path)
        if path in added:
            skipped.append(Skipped(clash.op, f"{clash.op}: {clash.message}"))
            added.remove(path)
            del texts[path]
        else:
            problems.append(clash)
    for path in updated:
        # A shape that names an attr that is gone, say.
        problems += load.load_text(texts[path].encode(), path)[1]
    if problems:
        raise OpdefError(problems)
    for path, text in texts.items():
        write.write(path, text.encode())
    known = {*facts, *(one.op for one in skipped)}
    absent = tuple(files[name] for name in sorted(set(files) - known))
    if prune:
        write.remove(root, absent)
    return Imported(
        *(tuple(added), tuple(updated), tuple(unchanged), absent),
        skipped=tuple(skipped),
        renamed=tuple(moved),
    )


def date_ops(history: since.History, root: Path) -> tuple[Path, ...]:
    """Writes into the opdefs below `root` since when there is what; returns the files.

    Raises:
      OpdefError: any of them has a mistake. Nothing was written.
    """
    texts: dict[Path, str] = {}
    for op in load.read(root):
        dated = since.dated(op, history)
        if dated != op:
            path = Path(op.source)
            texts[path] = _text(dated, path.read_bytes(), {})
    for path, text in texts.items():
        write.write(path, text.encode())
    return tuple(texts)


def _unversioned(op_name: str) -> str:
    """`TopK` of `TopKV2`."""
    return re.sub(r"V\d+\Z", "", op_name)


def _text(op: Op, content: bytes, names: Mapping[str, str]) -> str:
    """`op` as YAML, with the comments of the file that it takes the place of."""
    old = content.decode("utf-8-sig").replace("\r\n", "\n")
    new = dump.dump(op)
    path = load.op_path(Path(), op.group, op.name)
    text = comments.carry(old, new, names)
    if load.load_text(text.encode(), path) == load.load_text(new.encode(), path):
        return text
    # What nobody foresaw: better in another place than lost.
    return "".join(f"{comment}\n" for comment in comments.texts(old)) + new
