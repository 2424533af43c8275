"""OpDefs into opdefs: facts are renewed, what was written by hand stays."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from opwright_codegen import (
    comments,
    contents,
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

#: The group of ops without a better one.
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
    gradients: Mapping[str, str] = MappingProxyType({}),
) -> Imported:
    """Writes an opdef for each of `op_defs` below `root`.

    Args:
      op_defs: OpDef messages; internal ops and TensorFlow's test ops are passed over.
      root: folder of opdefs.
      group: where ops go that have no opdef yet; by default a new version of an op
        joins the versions there are, and any other the only group that there is. What
        is left of TensorFlow's goes to `UNSORTED`.
      prune: remove the opdefs of ops that are not among `op_defs`.
      gradients: by op what the registry of gradients has, one of `GRADIENTS`. That of
        others stays as their opdefs say.

    Raises:
      OpdefError: an opdef that would be renewed, or written, has mistakes. Nothing
        was written.
      SourceError: ops of a library have no group. Nothing was written.
    """
    files = {load.op_name_of(path): path for path in load.find(root)}
    facts, skipped = _facts(list(op_defs), files, group)
    run = _Run(root, files, gradients, skipped)
    for name, fresh in sorted(facts.items()):
        if name in files:
            run.renew(files[name], fresh)
        else:
            run.add(fresh)
    run.settle_clashes()
    for path in run.updated:
        # A shape that names an attr that is gone, say.
        run.problems += load.load_text(run.texts[path].encode(), path)[1]
    if run.problems:
        raise OpdefError(run.problems)
    for path, text in run.texts.items():
        write.write(path, text.encode())
    known = {*facts, *(one.op for one in run.skipped)}
    absent = tuple(files[name] for name in sorted(set(files) - known))
    if prune:
        write.remove(root, absent)
    return Imported(
        tuple(run.added),
        tuple(run.updated),
        tuple(run.unchanged),
        absent,
        skipped=tuple(run.skipped),
        renamed=tuple(run.moved),
    )


def _facts(
    op_defs: Sequence[Any], files: Mapping[str, Path], group: str | None
) -> tuple[dict[str, Op], list[Skipped]]:
    """By name what OpDefs say, in the groups that ops go to; and what no opdef can say.

    Raises:
      SourceError: ops of a library have no group.
    """
    own = not sources.is_tensorflow(op_defs)
    families = {_unversioned(name): path.parent.name for name, path in files.items()}
    groups = {path.parent.name for path in files.values()}
    only = next(iter(groups)) if len(groups) == 1 else None
    homeless: list[str] = []
    facts: dict[str, Op] = {}
    skipped: list[Skipped] = []
    for op_def in sources.wanted(op_defs):
        place = group or families.get(_unversioned(op_def.name)) or only
        try:
            op = registry.from_op_def(op_def, place or UNSORTED)
        except SourceError as error:
            skipped.append(Skipped(op_def.name, str(error)))
            continue
        if place is None and own:
            homeless.append(op_def.name)
        # Of TensorFlow's ops we say in our own words what they do.
        facts[op.name] = prose.documented(op, op_def) if own else op
    if homeless:
        named = ", ".join(homeless[:3]) + (", ..." if len(homeless) > 3 else "")
        raise SourceError(
            f"{named}: in no group yet; name one with --group, the package that their"
            " classes go to: --group audio"
        )
    return facts, skipped


@dataclass
class _Run:
    """What an import is to write, and what was wrong."""

    root: Path
    files: Mapping[str, Path]
    gradients: Mapping[str, str]
    skipped: list[Skipped]
    problems: list[Problem] = field(default_factory=list)
    texts: dict[Path, str] = field(default_factory=dict)
    added: list[Path] = field(default_factory=list)
    updated: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    moved: list[tuple[str, str, str]] = field(default_factory=list)

    def with_gradient(self, op: Op) -> Op:
        """`op`, with what the registry of gradients has, if that is known."""
        gradient = self.gradients.get(op.name, op.gradient)
        return dataclasses.replace(op, gradient=gradient)

    def add(self, fresh: Op) -> None:
        """An op that has no opdef yet."""
        path = load.op_path(self.root, fresh.group, fresh.name)
        text = dump.dump(self.with_gradient(fresh))
        # Names that clash in Python, say.
        if found := load.load_text(text.encode(), path)[1]:
            why = f"{fresh.name}: {found[0].message}"
            self.skipped.append(Skipped(fresh.name, why))
        else:
            self.texts[path] = text
            self.added.append(path)

    def renew(self, path: Path, fresh: Op) -> None:
        """An op that has one."""
        content, found = load.read_bytes(path)
        self.problems += found
        if content is None:
            return
        written, found = load.load_text(content, path)
        self.problems += found
        if written is None:
            return
        names = renamed.find(written, fresh)
        renewed = dump.with_facts(renamed.apply(written, names), fresh)
        renewed = self.with_gradient(renewed)
        if renewed == written:
            self.unchanged.append(path)
        else:
            self.texts[path] = _text(renewed, content, names)
            self.updated.append(path)
            self.moved += [(fresh.name, was, now) for was, now in names.items()]

    def settle_clashes(self) -> None:
        """Leaves out what is new and clashes; of what is there it is a problem."""
        for clash in load.clashes(self.root, [*self.files.values(), *self.added]):
            path = Path(clash.path)
            if path in self.added:
                self.skipped.append(Skipped(clash.op, f"{clash.op}: {clash.message}"))
                self.added.remove(path)
                del self.texts[path]
            else:
                self.problems.append(clash)


def date_ops(history: since.History, root: Path) -> tuple[tuple[Path, ...], int]:
    """Writes into the opdefs below `root` since when there is what.

    Returns:
      The files that changed, and how many dates stay that `history` does not tell.

    Raises:
      OpdefError: any of them has a mistake. Nothing was written.
    """
    texts: dict[Path, str] = {}
    kept = 0
    for op in load.read(root):
        dated = since.dated(op, history)
        kept += since.undatable(dated, history)
        if dated != op:
            path = Path(op.source)
            texts[path] = _text(dated, contents.of(path), {})
    for path, text in texts.items():
        write.write(path, text.encode())
    return tuple(texts), kept


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
    # Comments in an unforeseen place: all of them go to the top.
    return "".join(f"{comment}\n" for comment in comments.texts(old)) + new
