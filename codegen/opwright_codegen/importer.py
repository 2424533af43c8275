"""Writes opdefs from OpDefs. It renews facts and keeps what was written by hand."""

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
from opwright_codegen.model import Op, is_later
from opwright_codegen.problems import OpdefError, Problem, Skipped, SourceError

#: The group of ops for which no other group is known.
UNSORTED = "core"


@dataclass(frozen=True)
class Imported:
    """The results of an import."""

    added: tuple[Path, ...]
    updated: tuple[Path, ...]
    unchanged: tuple[Path, ...]
    #: Opdefs of ops that the source does not have, and that are not newer.
    absent: tuple[Path, ...]
    #: Ops that an opdef cannot represent.
    skipped: tuple[Skipped, ...] = ()
    #: Arguments that were renamed: op, old name, new name.
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
      op_defs: OpDef messages. Internal ops and TensorFlow's test ops are skipped.
      root: the folder of opdefs.
      group: the group of ops that have no opdef yet. By default, a new version of an op
        goes to the group of the other versions. Any other op goes to the only group, if
        there is only one. Other ops of TensorFlow go to `UNSORTED`.
      prune: whether to remove the opdefs of ops that are not in `op_defs`. Ops and
        options of a later TensorFlow than the installed one stay.
      gradients: by op, what the registry of gradients has: one of `GRADIENTS`. The
        opdefs of other ops keep their value.

    Raises:
      OpdefError: an opdef that is to be written has mistakes. Nothing was written.
      SourceError: ops of a library have no group. Nothing was written.
    """
    files = {load.op_name_of(path): path for path in load.find(root)}
    op_defs = list(op_defs)
    facts, skipped = _facts(op_defs, files, group)
    # Ops of TensorFlow are of the installed version, or of a later one.
    version = None
    if sources.is_tensorflow(op_defs):
        version = registry.VERSION.rpartition(".")[0]
    run = _Run(root, files, gradients, skipped, version)
    for name, fresh in sorted(facts.items()):
        if name in files:
            run.renew(files[name], fresh)
        else:
            run.add(fresh)
    run.settle_clashes()
    for path in run.updated:
        # Renewed facts may contradict what is written by hand. An example is a shape
        # that names an attr which was removed from the op.
        run.problems += load.load_text(run.texts[path].encode(), path)[1]
    if run.problems:
        raise OpdefError(run.problems)
    for path, text in run.texts.items():
        write.write(path, text.encode())
    known = {*facts, *(one.op for one in run.skipped)}
    left = (files[name] for name in sorted(set(files) - known))
    absent = tuple(path for path in left if not is_later(_since(path), version))
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
    """The models of OpDefs by name, with their groups, and the ops that are skipped.

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
        # A library's ops get the texts of their OpDefs as documentation. TensorFlow's
        # ops do not, because opwright documents them in its own words.
        facts[op.name] = prose.documented(op, op_def) if own else op
    if homeless:
        named = ", ".join(homeless[:3]) + (", ..." if len(homeless) > 3 else "")
        raise SourceError(
            f"{named}: in no group yet; name one with --group, the package that their"
            " classes go to: --group audio"
        )
    return facts, skipped


def _since(path: Path) -> str | None:
    """The version that brought the op of an opdef, if the file says so."""
    content, _ = load.read_bytes(path)
    op = None if content is None else load.load_text(content, path)[0]
    return None if op is None else op.since


@dataclass
class _Run:
    """The state of an import: the files to write, and the problems."""

    root: Path
    files: Mapping[str, Path]
    gradients: Mapping[str, str]
    skipped: list[Skipped]
    version: str | None
    problems: list[Problem] = field(default_factory=list)
    texts: dict[Path, str] = field(default_factory=dict)
    added: list[Path] = field(default_factory=list)
    updated: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    moved: list[tuple[str, str, str]] = field(default_factory=list)

    def with_gradient(self, op: Op) -> Op:
        """`op` with the entry of the registry of gradients, if that is known."""
        gradient = self.gradients.get(op.name, op.gradient)
        return dataclasses.replace(op, gradient=gradient)

    def add(self, fresh: Op) -> None:
        """Adds the opdef of an op that has none yet."""
        path = load.op_path(self.root, fresh.group, fresh.name)
        text = dump.dump(self.with_gradient(fresh))
        # The op may be invalid as an opdef, for example if names clash in Python.
        if found := load.load_text(text.encode(), path)[1]:
            why = f"{fresh.name}: {found[0].message}"
            self.skipped.append(Skipped(fresh.name, why))
        else:
            self.texts[path] = text
            self.added.append(path)

    def renew(self, path: Path, fresh: Op) -> None:
        """Renews the existing opdef of an op."""
        content, found = load.read_bytes(path)
        self.problems += found
        if content is None:
            return
        written, found = load.load_text(content, path)
        self.problems += found
        if written is None:
            return
        names = renamed.find(written, fresh)
        kept = renamed.apply(written, names)
        renewed = dump.with_facts(kept, fresh, self.version)
        renewed = self.with_gradient(renewed)
        if renewed == written:
            self.unchanged.append(path)
        else:
            self.texts[path] = comments.rewritten(renewed, content, names)
            self.updated.append(path)
            self.moved += [(fresh.name, was, now) for was, now in names.items()]

    def settle_clashes(self) -> None:
        """Skips new ops whose names clash. Clashes of existing opdefs are problems."""
        for clash in load.clashes(self.root, [*self.files.values(), *self.added]):
            path = Path(clash.path)
            if path in self.added:
                self.skipped.append(Skipped(clash.op, f"{clash.op}: {clash.message}"))
                self.added.remove(path)
                del self.texts[path]
            else:
                self.problems.append(clash)


def date_ops(history: since.History, root: Path) -> tuple[tuple[Path, ...], int]:
    """Writes into opdefs which version added each op, attr and allowed value.

    Returns:
      The files that changed, and the number of versions in opdefs that do not follow
      from `history`.

    Raises:
      OpdefError: an opdef has a mistake. Nothing was written.
    """
    texts: dict[Path, str] = {}
    kept = 0
    for op in load.read(root):
        dated = since.dated(op, history)
        kept += since.undatable(dated, history)
        if dated != op:
            path = Path(op.source)
            texts[path] = comments.rewritten(dated, contents.of(path), {})
    for path, text in texts.items():
        write.write(path, text.encode())
    return tuple(texts), kept


def _unversioned(op_name: str) -> str:
    """`TopK` of `TopKV2`."""
    return re.sub(r"V\d+\Z", "", op_name)
