"""Reads `raw_ops.yaml`: the ops that `tf.raw_ops` lacks, and its keywords.

The file is next to the groups' folders. Opdefs of a library have no such file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from opwright_codegen import contents, load, naming, write
from opwright_codegen.model import Op
from opwright_codegen.nodes import Reader, did_you_mean, repr_short
from opwright_codegen.problems import OpdefError, Problem

_HEAD: Final = """\
# Imported from TensorFlow: the ops that tf.raw_ops lacks, and its keywords where they
# are not the names of the OpDef.

"""


@dataclass(frozen=True)
class RawOps:
    """The facts about `tf.raw_ops`.

    `absent`: the ops that it lacks. `keywords`: for each op, the keywords that differ
    from the OpDef's names. The keys are the OpDef's names.
    """

    absent: frozenset[str] = frozenset()
    keywords: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def keyword(self, op: Op, name: str) -> str:
        """The keyword for an input or attr. `name` is its name in the OpDef."""
        return self.keywords.get(op.name, {}).get(name, name)

    def renamed(self, op: Op) -> dict[str, str]:
        """The keywords that differ from arguments of the op's function, by these."""
        names = [arg.name for arg in op.inputs] + [attr.name for attr in op.given]
        pairs = {naming.argument(name): self.keyword(op, name) for name in names}
        return {argument: word for argument, word in pairs.items() if argument != word}


def read(root: Path, paths: Sequence[Path]) -> tuple[RawOps | None, list[Problem]]:
    """Reads `root`/raw_ops.yaml and checks it against the opdefs at `paths`.

    Returns None if there is no such file, or if it has mistakes.
    """
    path = root / load.RAW_OPS
    if not path.exists():
        return None, []
    content, problems = load.read_bytes(path)
    if content is None:
        return None, problems
    reader = _RawOpsReader(path, paths)
    found = reader.read(content)
    return (None if reader.problems else found), reader.problems


def renew(root: Path, installed: Mapping[str, Mapping[str, str] | None]) -> bool:
    """Writes the names of an installed TensorFlow to the file; returns if it changed.

    Args:
      root: the folder of opdefs.
      installed: for each op, the keywords that differ from the OpDef's names, with the
        OpDef's names as keys. None for an op that `tf.raw_ops` lacks. The file keeps
        its facts about other ops.

    Raises:
      OpdefError: the existing file has mistakes.
    """
    paths = load.find(root)
    known, problems = read(root, paths)
    if problems:
        raise OpdefError(problems)
    known = known or RawOps()
    names = {load.op_name_of(path) for path in paths}
    absent = {name for name in installed.keys() & names if installed[name] is None}
    absent |= known.absent - installed.keys()
    keywords = {n: v for n, v in known.keywords.items() if n not in installed}
    keywords |= {n: v for n in names if (v := installed.get(n))}
    path = root / load.RAW_OPS
    text = _text(RawOps(frozenset(absent), keywords))
    if path.exists() and contents.of(path) == text.encode():
        return False
    write.write(path, text.encode())
    return True


def _text(raw: RawOps) -> str:
    rows = ["keywords:"]
    for name, words in sorted(raw.keywords.items()):
        pairs = ", ".join(f"{ours}: {theirs}" for ours, theirs in words.items())
        rows.append(f"  {name}: {{{pairs}}}")
    rows += ["", "absent:", *(f"  - {name}" for name in sorted(raw.absent))]
    return _HEAD + "\n".join(rows) + "\n"


class _RawOpsReader(Reader):
    def __init__(self, path: Path, paths: Sequence[Path]) -> None:
        super().__init__(path, "")
        self.ops = {load.op_name_of(opdef) for opdef in paths}

    def read(self, content: bytes) -> RawOps:
        root = self.compose(content)
        top = None if root is None else self.mapping(root, "the file")
        if top is None:
            return RawOps()
        keywords = top.take("keywords", self.keywords)
        absent = top.take("absent", self.many(self.known_op))
        top.close()
        return RawOps(frozenset(absent or ()), keywords or {})

    def known_op(self, node: yaml.Node, what: str) -> str | None:
        name = self.text(node, what)
        if name is not None and name not in self.ops:
            hint = did_you_mean(name, self.ops)
            which = repr_short(name)
            self.problem(node, f"{what} is {which}, an op without opdef{hint}")
        return name

    def keywords(
        self, node: yaml.Node, what: str
    ) -> dict[str, Mapping[str, str]] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        found: dict[str, Mapping[str, str]] = {}
        for name in table:
            found[name] = table.take(name, self.words) or {}
            if name not in self.ops:
                hint = did_you_mean(name, self.ops)
                message = f"{what} has {repr_short(name)}, an op without opdef{hint}"
                self.problem(table.at(name), message)
        return found

    def words(self, node: yaml.Node, what: str) -> dict[str, str] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        return {name: table.take(name, self.text) or "" for name in table}
