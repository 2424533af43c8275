"""Reads `groups.yaml`: facts about the groups of ops.

The facts are a line on each group, other exports of its package, and ops that were in
the group before. The file is next to the groups' folders. It is optional, and a group
needs no line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from opwright_codegen import load, naming
from opwright_codegen.nodes import Read, Reader, did_you_mean, repr_short
from opwright_codegen.problems import Problem


@dataclass(frozen=True)
class Groups:
    """Facts about groups besides their ops.

    `lines`: a sentence on the content of each group. `exports`: for a group, a module
    written by hand whose public names the group's package exports, too. `moved`: the
    ops that were in a group before. Their names can still be imported from it.
    """

    lines: Mapping[str, str] = field(default_factory=dict)
    exports: Mapping[str, str] = field(default_factory=dict)
    moved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read(root: Path, paths: Sequence[Path]) -> tuple[Groups, list[Problem]]:
    """Reads `root`/groups.yaml and checks it against the opdefs at `paths`.

    If there are problems, the returned facts are empty.
    """
    path = root / load.GROUPS
    if not path.exists():
        return Groups(), []
    content, problems = load.read_bytes(path)
    if content is None:
        return Groups(), problems
    reader = _GroupsReader(path, paths)
    groups = reader.read(content)
    return (Groups() if reader.problems else groups), reader.problems


class _GroupsReader(Reader):
    def __init__(self, path: Path, paths: Sequence[Path]) -> None:
        super().__init__(path, "")
        self.group_of = {load.op_name_of(opdef): opdef.parent.name for opdef in paths}
        self.groups = sorted(set(self.group_of.values()))
        #: For each dotted name that is in use, the group or op that has it.
        self.taken = {group: f"the group {group!r}" for group in self.groups}
        for op, group in self.group_of.items():
            for spelled in naming.public_names(op).values():
                self.taken[f"{group}.{spelled}"] = repr(op)

    def read(self, content: bytes) -> Groups:
        root = self.compose(content)
        top = None if root is None else self.mapping(root, "the file")
        if top is None:
            return Groups()
        lines = top.take("groups", self.by_group(self.filled))
        exports = top.take("exports", self.by_group(self.module))
        moved = top.take("moved", self.moved)
        top.close()
        return Groups(lines or {}, exports or {}, moved or {})

    def by_group(self, read: Read[str]) -> Read[dict[str, str]]:
        """Reads a mapping whose keys are existing groups."""

        def take(node: yaml.Node, what: str) -> dict[str, str] | None:
            table = self.mapping(node, what)
            if table is None:
                return None
            found = {group: table.take(group, read) for group in self.groups}
            table.close()
            return {group: text for group, text in found.items() if text is not None}

        return take

    def module(self, node: yaml.Node, what: str) -> str | None:
        """Reads the dotted name of a module."""
        name = self.text(node, what)
        if name is not None and not all(map(str.isidentifier, name.split("."))):
            message = f"{what} must be a module, such as a.b, not {repr_short(name)}"
            self.problem(node, message)
        return name

    def moved(self, node: yaml.Node, what: str) -> dict[str, tuple[str, ...]] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        moved = {}
        for group in table:
            ops = table.take(group, self.many(self.moved_from(group)))
            moved[group] = ops or ()
            if not re.fullmatch(load.GROUP, group) or any(naming.group_clashes(group)):
                message = f"{group!r} in {what} cannot be the name of a package"
                self.problem(table.at(group), message)
            elif group not in self.groups and group in self.taken:
                message = f"{group!r} in {what} is a name of {self.taken[group]}"
                self.problem(table.at(group), message)
        return moved

    def moved_from(self, group: str) -> Read[str]:
        """Reads an op of another group whose names are not in use in `group`."""
        before: set[str] = set()

        def read(node: yaml.Node, what: str) -> str | None:
            op = self.text(node, what)
            if op is None:
                return None
            if op not in self.group_of:
                hint = did_you_mean(op, self.group_of)
                message = f"{what} is {repr_short(op)}, an op that has no opdef{hint}"
                self.problem(node, message)
            elif self.group_of[op] == group:
                self.problem(node, f"{what} is {op!r}, which lies there now")
            elif op in before:
                self.problem(node, f"{what} is {op!r} once more")
            else:
                before.add(op)
                for spelled in naming.public_names(op).values():
                    other = self.taken.setdefault(f"{group}.{spelled}", repr(op))
                    if other != repr(op):
                        message = f"{what} is {op!r}, but {other} is {spelled!r} there"
                        self.problem(node, message)
                        break
            return op

        return read
