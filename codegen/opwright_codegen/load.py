"""Reads opdefs (YAML) into models, strictly.

Every mistake is collected as a `Problem` with file, line, column and op. No content of
a file raises an exception. Mistakes are unknown keys, repeated keys, values of a wrong
kind, and names that refer to nothing.
"""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import yaml

from opwright_codegen import contents, naming, rules
from opwright_codegen.model import (
    GRADIENTS,
    Arg,
    Attr,
    Deprecation,
    FullType,
    Op,
    Plain,
    Value,
)
from opwright_codegen.nodes import Mapping, Read, did_you_mean
from opwright_codegen.problems import OpdefError, Problem
from opwright_codegen.types import (
    DTYPES,
    KINDS,
    AttrKind,
    DTypeName,
)
from opwright_codegen.values import ValueReader, nothing

#: Regular expressions for names that TensorFlow accepts.
ARG_NAME: Final = "[a-z][a-z0-9_]*"
ATTR_NAME: Final = "[A-Za-z][A-Za-z0-9_]*"
OP_NAME: Final = "(?:[A-Z][A-Za-z0-9_]*>)*[A-Z][A-Za-z0-9_]*"
GROUP: Final = r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*"
FULL_TYPE_ID: Final = "TFT_[A-Z0-9_]+"
MESSAGE: Final = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
#: A minor version of TensorFlow.
VERSION: Final = r"[0-9]+\.[0-9]+"

#: What `opwright-codegen upgrade` writes where an author must write a text. The loader
#: reads it as no text.
STUB: Final = "TODO"
#: The start of a doctest, which an example must have.
PROMPT: Final = ">>> "

DEVICES: Final = ("CPU", "GPU", "XLA")
PROVIDERS: Final = ("opwright",)
#: The file about groups, which `groups.py` reads.
GROUPS: Final = Path("groups.yaml")
#: The file about `tf.raw_ops`, which `raw_ops.py` reads.
RAW_OPS: Final = Path("raw_ops.yaml")
#: Files next to the groups' folders that are not opdefs.
_BESIDE: Final = (GROUPS, RAW_OPS)
_MAX_DEPTH: Final = 32
#: The folder of opwright's own opdefs in its source tree.
TREE: Final = Path(__file__).parents[2] / "opdefs"
#: The opdefs in a wheel.
_ARCHIVE: Final = Path(__file__).parent / "opdefs.zip"


@functools.cache
def own_opdefs() -> Path:
    """The folder of opwright's own opdefs.

    In a source tree it is that of the tree. A wheel has the opdefs in one archive, so
    there it is a temporary folder, which ends with the process.
    """
    if not _ARCHIVE.is_file():
        return TREE
    folder = Path(tempfile.mkdtemp(prefix="opwright-opdefs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.unpack_archive(_ARCHIVE, folder)
    return folder


def find(root: Path) -> list[Path]:
    """Every opdef below `root`: `<group>/<OP_NAME>.yaml`, in sorted order."""
    return sorted(root.glob("*/*.yaml"))


def op_path(root: Path, group: str, op_name: str) -> Path:
    """The path of an op's file. Each op has a file, and each group has a folder."""
    return root / group / f"{op_name.replace('>', '.')}.yaml"


def op_name_of(path: Path) -> str:
    """The name of the op in a file, which follows from the file's name."""
    return path.stem.replace(".", ">")


def load_all(
    root: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[Op], list[Problem]]:
    """All ops below `root`, and all mistakes in the files."""
    paths = find(root)
    names = frozenset(map(op_name_of, paths))
    problems = check_tree(root, paths)
    ops = []
    for done, path in enumerate(paths, 1):
        content, found = read_bytes(path)
        problems += found
        if content is not None:
            op, found = load_text(content, path, names)
            problems += found
            if op is not None:
                ops.append(op)
        progress(done, len(paths))
    return ops, problems


def read(root: Path) -> list[Op]:
    """All ops below `root`.

    Raises:
      OpdefError: a file has a mistake.
    """
    ops, problems = load_all(root)
    if problems:
        raise OpdefError(problems)
    return ops


def read_bytes(path: Path) -> tuple[bytes | None, list[Problem]]:
    """The content of a file, or a problem if it cannot be read."""
    try:
        return contents.of(path), []
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        return None, [Problem(str(path), 1, 1, op_name_of(path), what)]


def load_text(
    content: bytes, path: Path, names: frozenset[str] | None = None
) -> tuple[Op | None, list[Problem]]:
    """Reads the definition of an op. Its group and name must agree with `path`.

    `names` are the ops to which it may refer. None allows any name.
    """
    reader = _OpReader(path, names)
    op = reader.read(content)
    return (None if reader.problems else op), reader.problems


def check_tree(root: Path, paths: Sequence[Path]) -> list[Problem]:
    """Mistakes that concern several of the opdefs at `paths` below `root`."""
    problems = [*_misplaced(root), *clashes(root, paths)]
    if not paths and not problems:
        what = "holds no opdefs" if root.is_dir() else "no such folder"
        problems.append(Problem(str(root), 1, 1, "", what))
    return problems


def _misplaced(root: Path) -> Iterator[Problem]:
    """Files below `root` that `find` would not find.

    They are not in a folder of a group, are too deep, or end in `.yml`.
    """
    for path in sorted(root.rglob("*")):
        place = path.relative_to(root)
        if path.suffix.lower() not in (".yaml", ".yml") or place in _BESIDE:
            continue
        if len(place.parts) != 2 or path.suffix != ".yaml":
            message = "an opdef is named <group>/<OP_NAME>.yaml, also in data.sub"
            yield Problem(str(path), 1, 1, "", message)


def clashes(root: Path, paths: Sequence[Path]) -> Iterator[Problem]:
    """Ops with two files, and names that several ops or packages would have.

    The paths are enough for this, because `load_text` checks that a file has the name
    of its op and is in the folder of its group.
    """
    taken: dict[tuple[str, str], str] = {}
    for group in sorted({path.parent.name for path in paths}):
        for reason in naming.group_clashes(group):
            yield Problem(str(root / group), 1, 1, "", reason)
        while group:
            parent, _, last = group.rpartition(".")
            taken[parent, last] = f"the group {group!r}"
            group = parent
    defined: dict[str, Path] = {}
    for path in paths:
        name = op_name_of(path)
        if not re.fullmatch(OP_NAME, name):
            continue
        other = defined.setdefault(name, path)
        if other != path:
            message = f"{other} defines this op too; one op, one file"
            yield Problem(str(path), 1, 1, name, message)
            continue
        user = f"{name!r} ({path})"
        for what, spelled in naming.public_names(name).items():
            first = taken.setdefault((path.parent.name, spelled), user)
            if first != user:
                message = (
                    f"its {what} would be named {spelled!r}, as {first} is;"
                    " rename one of them or move the op to another group"
                )
                yield Problem(str(path), 1, 1, name, message)
                break


#: Boolean fields of the model. The keys in opdefs are the same without `is_`.
_FLAGS: Final = (
    "is_stateful",
    "is_commutative",
    "is_aggregate",
    "allows_uninitialized_input",
    "is_distributed_communication",
)


class _OpReader(ValueReader):
    """Reads the opdef of one op."""

    def __init__(self, path: Path, names: frozenset[str] | None) -> None:
        super().__init__(path, op_name_of(path))
        self.names = names
        self.op_name = self.matching(
            re.compile(rf"{OP_NAME}\Z"), "an op's name such as MatMul or Addons>Roll"
        )
        self.version = self.matching(
            re.compile(rf"{VERSION}\Z"), "a version of TensorFlow in quotes: '2.20'"
        )

    def read(self, content: bytes) -> Op | None:
        root = self.compose(content)
        top = None if root is None else self.mapping(root, "the op")
        if top is None:
            return None
        fields = self.identity(top) | self.documentation(top) | self.facts(top)
        inputs = top.take("inputs", self.many(self.arg)) or ()
        outputs = top.take("outputs", self.many(self.arg)) or ()
        attrs = top.take("attrs", self.many(self.attr)) or ()
        options = top.take("options", self.many(self.attr)) or ()
        order = top.take("attr_order", self.many(self.text))
        fields["imported_text"] = top.take("imported_text", self.many(self.text)) or ()
        top.close()
        if fields["tpu_only"] is not None and fields["kernels"]:
            message = "an op that opwright brings kernels for is not 'tpu_only'"
            self.problem(top.at("tpu_only"), message)
        if self.problems:
            return None
        op = Op(
            inputs=tuple(arg for _, arg in inputs),
            outputs=tuple(arg for _, arg in outputs),
            attrs=rules.ordered(
                self, top.at("attr_order"), order, [a for _, a in (*attrs, *options)]
            ),
            source=str(self.path),
            **fields,
        )
        args = (*inputs, *outputs)
        rules.check_references(self, op, args)
        rules.check_unique(self, inputs, outputs, (*attrs, *options))
        if not self.problems:
            rules.check_sections(self, op, attrs, options)
            rules.check_versions(self, op, top, (*attrs, *options))
        if not self.problems:
            rules.check_names(self, op, top, args, (*attrs, *options))
            rules.check_truncated(self, op, top.at("truncated"))
            rules.check_requires(self, op, top.at("requires"))
        return op

    # These methods read keys of the op. They return the values by the names of the
    # model's fields.

    def identity(self, top: Mapping) -> dict[str, Any]:
        """The name and the group. They must agree with the file's path."""
        name = top.take("op", self.op_name, needed=True)
        group = top.take(
            "group",
            self.matching(
                re.compile(rf"{GROUP}\Z"), "a package's name in lower case: nn, data"
            ),
            needed=True,
        )
        if name is not None and name != op_name_of(self.path):
            right = op_path(Path(), "", name).name
            message = f"the file of op {name!r} must be named {right}"
            self.problem(top.at("op"), message)
        if group is not None and group != self.path.parent.name:
            self.problem(
                top.at("group"),
                f"group is {group!r}, but the file lies in {self.path.parent.name!r};"
                " an op lies in the folder of its group",
            )
        return {"name": name or "", "group": group or ""}

    def documentation(self, top: Mapping) -> dict[str, Any]:
        """The documentation that is written by hand."""
        return {
            "summary": top.take("summary", self.prose),
            "description": top.take("description", self.prose),
            "example": top.take("example", self.example),
            "check_with": top.take("check_with", self.check_with) or (),
            "unchecked": top.take("unchecked", self.filled),
            "truncated": top.take("truncated", self.truncated) or (),
            "requires": top.take("requires", self.many(self.filled)) or (),
        }

    def facts(self, top: Mapping) -> dict[str, Any]:
        """The properties of the op itself, not of its arguments."""
        flags = {
            field: bool(top.take(field.removeprefix("is_"), self.boolean))
            for field in _FLAGS
        }
        return flags | {
            "gradient": top.take(
                "gradient", self.one_of(GRADIENTS, "kind of gradient")
            ),
            "deprecation": top.take("deprecated", self.deprecation),
            "since": top.take("since", self.version),
            "dropped_in": top.take("dropped_in", self.version),
            "gradient_of": top.take("gradient_of", self.op_reference),
            "kernels": top.take("kernels", self.kernels) or (),
            "tpu_only": top.take("tpu_only", self.filled),
        }

    # These methods read the parts of an op.

    def prose(self, node: yaml.Node, what: str) -> str | None:
        text = self.filled(node, what)
        return None if text == STUB else text

    def example(self, node: yaml.Node, what: str) -> str | None:
        text = self.filled(node, what)
        if text is None or text == PROMPT + STUB:
            return None
        rows = text.splitlines()
        if not rows[0].startswith(PROMPT):
            self.problem(node, f"{what} must start with '{PROMPT}', as a doctest does")
        elif "" in rows:
            self.problem(node, f"{what} has an empty line, where a doctest would end")
        return text

    def check_with(
        self, node: yaml.Node, what: str
    ) -> tuple[tuple[str, tuple[Plain, ...]], ...] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        found = []
        for name in table:
            values = table.take(name, self.values, needed=True)
            found.append((name, values or ()))
        return tuple(found)

    def truncated(
        self, node: yaml.Node, what: str
    ) -> tuple[tuple[str, DTypeName], ...] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        found = [(name, table.take(name, self.dtype, needed=True)) for name in table]
        return tuple((name, DTypeName(dtype)) for name, dtype in found if dtype)

    def values(self, node: yaml.Node, what: str) -> tuple[Plain, ...] | None:
        # mypy joins the members of the union to object.
        return cast("tuple[Plain, ...] | None", self.many(self.plain)(node, what))

    def plain(self, node: yaml.Node, what: str) -> Plain | None:
        if isinstance(node, yaml.SequenceNode):
            return self.values(node, what)
        kind = str(node.tag).rpartition(":")[2]
        read: Callable[[yaml.Node, str], Plain | None] = {
            "int": self.integer,
            "float": self.number,
            "bool": self.boolean,
        }.get(kind, self.text)
        return read(node, what)

    def op_reference(self, node: yaml.Node, what: str) -> str | None:
        name = self.op_name(node, what)
        if name is not None and self.names is not None and name not in self.names:
            hint = did_you_mean(name, self.names)
            self.problem(node, f"{what} is {name!r}, an op that has no opdef{hint}")
            return None
        return name

    def deprecation(self, node: yaml.Node, what: str) -> Deprecation | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        version = table.take("version", self.integer, needed=True)
        explanation = table.take("explanation", self.text)
        replacement = table.take("replacement", self.op_reference)
        table.close()
        if version is None:
            return None
        if not 0 <= version < 2**31:
            self.problem(
                table.at("version"),
                f"version of {what} is {version}; GraphDef versions start at 0",
            )
        return Deprecation(version, explanation or "", replacement)

    def kernels(self, node: yaml.Node, what: str) -> tuple[tuple[str, str], ...] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        found = []
        for device in DEVICES:
            provider = table.take(device, self.one_of(PROVIDERS, "provider"))
            if provider is not None:
                found.append((device, provider))
        table.close()
        return tuple(found)

    def full_type(self, node: yaml.Node, what: str, depth: int = 0) -> FullType | None:
        if depth > _MAX_DEPTH:
            self.problem(node, f"{what} is nested more than {_MAX_DEPTH} deep")
            return None
        table = self.mapping(node, what)
        if table is None:
            return None
        type_id = table.take(
            "type_id",
            self.matching(re.compile(rf"{FULL_TYPE_ID}\Z"), "a FullTypeId: TFT_..."),
            needed=True,
        )
        variable = table.take("s", self.text)
        args = table.take(
            "args",
            self.many(lambda item, _: self.full_type(item, "a full type", depth + 1)),
        )
        table.close()
        return FullType(type_id or "", args or (), variable)

    def arg(self, node: yaml.Node, what: str) -> tuple[Mapping, Arg] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        name = table.take(
            "name",
            self.matching(
                re.compile(rf"{ARG_NAME}\Z"), "lower-case letters, digits, underscores"
            ),
            needed=True,
        )
        table.what = repr(name) if name else what
        type_name = table.take("type", self.text)
        type_list = table.take("types", self.text)
        count = table.take("count", self.text)
        ref = table.take("ref", self.boolean)
        full_type = table.take("full_type", self.full_type)
        shape = table.take("shape", self.shape)
        doc = table.take("doc", self.prose)
        table.close()
        if "type" in table and "types" in table:
            message = f"{table.what} has both 'type' and 'types'; it has one of them"
            self.problem(table.at("types"), message)
        elif "type" not in table and "types" not in table:
            self.problem(node, f"{table.what} lacks the key 'type', or 'types'")
        elif "types" in table and "count" in table:
            message = f"{table.what} has 'types' and 'count'; a list has one of them"
            self.problem(table.at("count"), message)
        is_dtype = type_name in DTYPES
        return table, Arg(
            name=name or "",
            dtype=DTypeName(type_name) if type_name and is_dtype else None,
            type_attr=None if is_dtype else type_name,
            type_list_attr=type_list,
            count=count,
            is_ref=bool(ref),
            full_type=full_type,
            doc=doc,
            shape=shape,
        )

    def shape(self, node: yaml.Node, what: str) -> str | None:
        scalar = "for no dimension write 'scalar'"
        text = self.text(node, what, f"; {scalar}")
        if text is not None and not text.strip():
            hint = f"{scalar}; for any shape leave the key out"
            self.problem(node, f"{what} is empty; {hint}")
            return None
        return None if text == STUB else text

    def attr(self, node: yaml.Node, what: str) -> tuple[Mapping, Attr] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        name = table.take(
            "name",
            self.matching(re.compile(rf"{ATTR_NAME}\Z"), "an identifier"),
            needed=True,
        )
        table.what = repr(name) if name else what
        kind_name = table.take("type", self.one_of(KINDS, "kind of attr"), needed=True)
        if kind_name is None:
            # Without a kind it is not known how to read the other values.
            for key in (
                "default",
                "allowed",
                "minimum",
                "message",
                "since",
                "allowed_since",
                "dropped_in",
                "doc",
            ):
                table.take(key, nothing)
            table.close()
            return None
        kind = AttrKind(kind_name)
        # mypy joins the members of the union to object.
        default = cast(
            "Value | None",
            table.take("default", lambda item, where: self.value(item, where, kind)),
        )
        allowed = table.take("allowed", lambda n, w: self.allowed(n, w, kind))
        minimum = table.take("minimum", self.integer)
        message = table.take(
            "message",
            self.matching(re.compile(rf"{MESSAGE}\Z"), "a message's full name"),
        )
        since = table.take("since", self.version)
        allowed_since = table.take("allowed_since", self.allowed_since(allowed or ()))
        dropped_in = table.take("dropped_in", self.version)
        doc = table.take("doc", self.prose)
        table.close()
        if message is not None and (kind != "string" or allowed is not None):
            self.problem(
                table.at("message"),
                f"{table.what} takes no 'message'; only a string without 'allowed' is"
                " a serialized one",
            )
        if minimum is not None and kind != "int" and not kind.is_list:
            words = f"; write 'requires: [{name} >= {minimum}]' instead"
            self.problem(
                table.at("minimum"),
                f"{table.what} is of kind {kind}, which takes no 'minimum';"
                f" only int and lists do{words if name and kind == 'float' else ''}",
            )
        elif minimum is not None and kind.is_list and minimum < 0:
            self.problem(
                table.at("minimum"),
                f"minimum of {table.what} is {minimum}; no list is that short",
            )
        attr = Attr(
            name or "",
            kind,
            default,
            allowed,
            minimum,
            doc,
            message,
            since,
            allowed_since=allowed_since or (),
            dropped_in=dropped_in,
        )
        rules.check_default(self, table, attr)
        return table, attr

    def allowed(
        self, node: yaml.Node, what: str, kind: AttrKind
    ) -> tuple[str, ...] | None:
        if kind.element not in ("string", "type"):
            message = f"{what} is given, but only string and type take it, not {kind}"
            self.problem(node, message)
            return None
        item = self.dtype if kind.element == "type" else self.text
        values = self.many(item)(node, what)
        if isinstance(node, yaml.SequenceNode) and not node.value:
            self.problem(node, f"{what} is empty; nothing would be allowed")
        return values

    def allowed_since(
        self, allowed: tuple[str, ...]
    ) -> Read[tuple[tuple[str, str], ...]]:
        def read(node: yaml.Node, what: str) -> tuple[tuple[str, str], ...] | None:
            table = self.mapping(node, what)
            if table is None:
                return None
            found = {value: table.take(value, self.version) for value in allowed}
            table.close()
            return tuple((value, when) for value, when in found.items() if when)

        return read
