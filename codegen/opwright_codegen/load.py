"""Opdefs (YAML) to models, strictly.

Every mistake is collected as a `Problem` with file, line, column and op; nothing here
raises for what a file says. A key that nothing reads is a mistake, and so is a key
read twice, a value of another kind, a name that refers to nothing.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import yaml

from opwright_codegen import naming
from opwright_codegen.model import (
    Arg,
    Attr,
    Deprecation,
    FullType,
    FuncValue,
    Op,
    Scalar,
    ShapeValue,
    TensorValue,
    Value,
)
from opwright_codegen.types import DTYPES, KINDS, AttrKind, DTypeName

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

R = TypeVar("R")
#: Reads a node; the text says which one, for what is reported.
Read: TypeAlias = Callable[[yaml.Node, str], R | None]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_OP_NAME = re.compile(r"(?:[A-Za-z][A-Za-z0-9_]*>)*[A-Za-z][A-Za-z0-9_]*\Z")
GROUP = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*\Z")
_MAX_DEPTH = 32
_DEVICES = ("CPU", "GPU", "XLA")
_PROVIDERS = ("opwright",)


@dataclass(frozen=True, order=True)
class Problem:
    """A mistake in an opdef, with where it is."""

    path: str
    line: int
    column: int
    op: str
    message: str

    def __str__(self) -> str:
        op = f" {self.op}:" if self.op else ""
        return f"{self.path}:{self.line}:{self.column}:{op} {self.message}"


class OpdefError(Exception):
    """Opdefs have mistakes; `problems` lists all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))


def op_path(root: Path, group: str, op_name: str) -> Path:
    """Where an op's file belongs: one op a file, one folder a group."""
    return root / group / f"{op_name.replace('>', '.')}.yaml"


def op_name_of(path: Path) -> str:
    """The op that a file is for, by its name."""
    return path.stem.replace(".", ">")


def load_text(
    text: bytes, path: Path, names: frozenset[str] | None = None
) -> tuple[Op | None, list[Problem]]:
    """Reads one op's definition; its group and name must agree with `path`.

    `names` are the ops that it may refer to; None allows any.
    """
    reader = _Reader(path, names)
    op = reader.read(text)
    return (None if reader.problems else op), reader.problems


def check_names(op: Op, problems: list[Problem]) -> None:
    """Adds a problem for every clash among the Python names of `op`."""
    for clash in naming.clashes(op):
        problems.append(Problem(op.source, 1, 1, op.name, clash))


def check_together(paths: Sequence[Path]) -> list[Problem]:
    """Mistakes that no single file shows: two files of one op, clashing names.

    A file is named as its op and lies in its group's folder (`load_text` holds it to
    that), so the paths alone tell.
    """
    problems: list[Problem] = []
    seen: dict[tuple[str, str], Path] = {}
    for path in sorted(paths):
        name = op_name_of(path)
        if not _OP_NAME.match(name):
            continue
        for what, spelled in naming.public_names(name):
            scope = "" if what == "op" else path.parent.name
            key = (f"{scope}/{what}", spelled)
            other = seen.setdefault(key, path)
            if other == path:
                continue
            if what == "op":
                message = f"{other} defines this op too; one op, one file"
            elif op_name_of(other) == name:
                continue
            else:
                message = (
                    f"its {what} would be named {spelled!r}, as {op_name_of(other)!r}"
                    f" ({other}) has it; rename one of the ops or move it to another"
                    " group"
                )
            problems.append(Problem(str(path), 1, 1, name, message))
    return problems


class _Mapping:
    """A YAML mapping whose keys must all be taken."""

    def __init__(self, reader: _Reader, node: yaml.MappingNode, what: str) -> None:
        self.reader = reader
        self.node = node
        self.what = what
        self.known: list[str] = []
        self.values: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            name = reader.text(key, f"a key of {what}")
            if name is None:
                continue
            if name in self.values:
                first = self.values[name][0].start_mark.line + 1
                reader.problem(
                    key, f"duplicate key {name!r} in {what}; first on line {first}"
                )
                continue
            self.values[name] = (key, value)

    def take(self, key: str, read: Read[R], needed: bool = False) -> R | None:
        self.known.append(key)
        if key not in self.values:
            if needed:
                self.reader.problem(self.node, f"{self.what} lacks the key {key!r}")
            return None
        _, node = self.values.pop(key)
        return read(node, f"{key!r} of {self.what}")

    def close(self) -> None:
        for name, (key, _) in self.values.items():
            near = difflib.get_close_matches(name, self.known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            self.reader.problem(
                key,
                f"unknown key {name!r} in {self.what}; {hint}"
                f"allowed: {', '.join(self.known)}",
            )


class _Reader:
    def __init__(self, path: Path, names: frozenset[str] | None) -> None:
        self.path = path
        self.names = names
        self.op = ""
        self.problems: list[Problem] = []
        self.construct = yaml.constructor.SafeConstructor()

    def problem(self, node: yaml.Node | None, message: str) -> None:
        line, column = 1, 1
        if node is not None:
            line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self.problems.append(Problem(str(self.path), line, column, self.op, message))

    # Values of one kind: each returns None and reports when the kind is another.

    def scalar(self, node: yaml.Node) -> Any:
        try:
            return self.construct.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError):
            return node

    def wrong(self, node: yaml.Node, what: str, wanted: str) -> None:
        if isinstance(node, yaml.MappingNode):
            came = "a mapping"
        elif isinstance(node, yaml.SequenceNode):
            came = "a list"
        else:
            kind = str(node.tag).rsplit(":", 1)[-1]
            came = f"{kind} {node.value!r}" if kind != "null" else "nothing"
        hint = "; put it in quotes" if wanted == "text" and came[0] in "bif" else ""
        self.problem(node, f"{what} must be {wanted}, not {came}{hint}")

    def text(self, node: yaml.Node, what: str) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":str"):
            return str(node.value)
        self.wrong(node, what, "text")
        return None

    def filled(self, node: yaml.Node, what: str) -> str | None:
        text = self.text(node, what)
        if text is not None and not text.strip():
            self.problem(node, f"{what} is empty; leave the key out instead")
            return None
        return text

    def boolean(self, node: yaml.Node, what: str) -> bool | None:
        value = self.scalar(node)
        if isinstance(value, bool):
            return value
        self.wrong(node, what, "true or false")
        return None

    def integer(self, node: yaml.Node, what: str) -> int | None:
        value = self.scalar(node)
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(node, what, "an integer")
            return None
        if not -(2**63) <= value < 2**63:
            self.problem(node, f"{what} is {value}, which does not fit into 64 bits")
            return None
        return value

    def number(self, node: yaml.Node, what: str) -> float | None:
        value = self.scalar(node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            hint = "a number"
            if isinstance(value, str) and re.match(r"[-+]?\d+[eE][-+]?\d+\Z", value):
                hint = "a number (YAML wants a point before the exponent: 1.0e-5)"
            self.wrong(node, what, hint)
            return None
        return float(value)

    def matching(self, pattern: re.Pattern[str], form: str) -> Read[str]:
        def read(node: yaml.Node, what: str) -> str | None:
            text = self.text(node, what)
            if text is not None and not pattern.match(text):
                self.problem(node, f"{what} is {text!r}; it must be {form}")
                return None
            return text

        return read

    def op_reference(self, node: yaml.Node, what: str) -> str | None:
        name = self.matching(_OP_NAME, "an op's name")(node, what)
        if name is not None and self.names is not None and name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.problem(node, f"{what} is {name!r}, and no opdef is of that op{hint}")
            return None
        return name

    def one_of(self, allowed: Iterable[str], what_kind: str) -> Read[str]:
        choices = tuple(allowed)

        def read(node: yaml.Node, what: str) -> str | None:
            text = self.text(node, what)
            if text is None or text in choices:
                return text
            near = difflib.get_close_matches(text, choices, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            self.problem(
                node,
                f"{what} is {text!r}, which is no {what_kind}; {hint}"
                f"allowed: {', '.join(choices)}",
            )
            return None

        return read

    def many(self, read: Read[R]) -> Read[tuple[R, ...]]:
        def read_all(node: yaml.Node, what: str) -> tuple[R, ...] | None:
            if not isinstance(node, yaml.SequenceNode):
                self.wrong(node, what, "a list")
                return None
            items = [
                read(item, f"item {position} of {what}")
                for position, item in enumerate(node.value, 1)
            ]
            return tuple(item for item in items if item is not None)

        return read_all

    def mapping(self, node: yaml.Node, what: str) -> _Mapping | None:
        if isinstance(node, yaml.MappingNode):
            return _Mapping(self, node, what)
        self.wrong(node, what, "a mapping")
        return None

    # The parts of an op.

    def read(self, content: bytes) -> Op | None:
        root = self.compose(content)
        if root is None:
            return None
        top = self.mapping(root, "the op")
        if top is None:
            return None
        name = top.take(
            "op", self.matching(_OP_NAME, "an op's name such as MatMul"), needed=True
        )
        self.op = name or ""
        group = top.take(
            "group",
            self.matching(GROUP, "a package's name in lower case: nn, data"),
            needed=True,
        )
        if name is not None and name != op_name_of(self.path):
            self.problem(root, f"the file of op {name!r} must be named {name}.yaml")
        if group is not None and group != self.path.parent.name:
            self.problem(
                root,
                f"group is {group!r}, but the file lies in {self.path.parent.name!r};"
                " an op lies in the folder of its group",
            )
        summary = top.take("summary", self.filled)
        description = top.take("description", self.filled)
        flags = {
            key: bool(top.take(key, self.boolean))
            for key in (
                "stateful",
                "commutative",
                "aggregate",
                "allows_uninitialized_input",
                "distributed_communication",
            )
        }
        deprecation = top.take("deprecated", self.deprecation)
        gradient_of = top.take("gradient_of", self.op_reference)
        kernels = top.take("kernels", self.kernels) or ()
        inputs = top.take("inputs", self.many(self.arg)) or ()
        outputs = top.take("outputs", self.many(self.arg)) or ()
        attrs_node = top.values.get("attrs", (root, root))[1]
        options_node = top.values.get("options", (root, root))[1]
        attrs = top.take("attrs", self.many(self.attr)) or ()
        options = top.take("options", self.many(self.attr)) or ()
        order_node = top.values.get("attr_order", (root, root))[1]
        order = top.take("attr_order", self.many(self.text))
        top.close()
        if self.problems:
            return None
        op = Op(
            name=name or "",
            group=group or "",
            inputs=tuple(arg for _, arg in inputs),
            outputs=tuple(arg for _, arg in outputs),
            attrs=self.ordered(order_node, order, [a for _, a in (*attrs, *options)]),
            is_stateful=flags["stateful"],
            is_commutative=flags["commutative"],
            is_aggregate=flags["aggregate"],
            allows_uninitialized_input=flags["allows_uninitialized_input"],
            is_distributed_communication=flags["distributed_communication"],
            deprecation=deprecation,
            summary=summary,
            description=description,
            gradient_of=gradient_of,
            kernels=kernels,
            source=str(self.path),
        )
        self.check_references(op, (*inputs, *outputs))
        self.check_unique(inputs, "input", (*attrs, *options))
        self.check_unique(outputs, "output", ())
        if self.problems:
            return None
        self.check_sections(op, attrs, attrs_node, options, options_node)
        if not self.problems:
            check_names(op, self.problems)
        return op

    def compose(self, content: bytes) -> yaml.Node | None:
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.problems.append(
                Problem(
                    str(self.path),
                    line,
                    error.start - content.rfind(b"\n", 0, error.start),
                    "",
                    f"not UTF-8: byte 0x{content[error.start]:02x}; save it as UTF-8",
                )
            )
            return None
        try:
            node = yaml.compose(text, Loader=Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            what = " ".join(filter(None, (error.context, error.problem)))
            self.problems.append(
                Problem(str(self.path), line, column, "", f"not YAML: {what}")
            )
            return None
        except (yaml.YAMLError, RecursionError) as error:
            what = " ".join(str(error).split()) or type(error).__name__
            self.problem(None, f"not YAML: {what}")
            return None
        if node is None:
            self.problem(None, "the file is empty; an op's definition was expected")
            return None
        return node

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
        if version < 1:
            self.problem(node, f"version of {what} is {version}; it must be positive")
        return Deprecation(version, explanation or "", replacement)

    def kernels(self, node: yaml.Node, what: str) -> tuple[tuple[str, str], ...] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        found = []
        for device in _DEVICES:
            provider = table.take(device, self.one_of(_PROVIDERS, "provider"))
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
            self.matching(re.compile(r"TFT_[A-Z0-9_]+\Z"), "a FullTypeId: TFT_..."),
            needed=True,
        )
        variable = table.take("s", self.text)
        args = table.take(
            "args",
            self.many(lambda item, where: self.full_type(item, where, depth + 1)),
        )
        table.close()
        return FullType(type_id or "", args or (), variable)

    def arg(self, node: yaml.Node, what: str) -> tuple[yaml.Node, Arg] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        name = table.take("name", self.matching(_NAME, "an identifier"), needed=True)
        table.what = repr(name) if name else what
        type_name = table.take("type", self.text)
        type_list = table.take("types", self.text)
        count = table.take("count", self.text)
        ref = table.take("ref", self.boolean)
        full_type = table.take("full_type", self.full_type)
        shape = table.take("shape", self.filled)
        doc = table.take("doc", self.filled)
        table.close()
        if (type_name is None) == (type_list is None):
            if not self.problems or self.problems[-1].line < node.start_mark.line:
                self.problem(
                    node, f"{table.what} must have one of 'type' and 'types', not both"
                )
            return None
        if type_list is not None and count is not None:
            self.problem(
                node, f"{table.what} has 'types' and 'count'; a list has one of them"
            )
            return None
        dtype = type_name if type_name in DTYPES else None
        return node, Arg(
            name=name or "",
            dtype=None if dtype is None else DTypeName(dtype),
            type_attr=None if dtype is not None else type_name,
            type_list_attr=type_list,
            count=count,
            is_ref=bool(ref),
            full_type=full_type,
            doc=doc,
            shape=shape,
        )

    def attr(self, node: yaml.Node, what: str) -> tuple[yaml.Node, Attr] | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        name = table.take("name", self.matching(_NAME, "an identifier"), needed=True)
        table.what = repr(name) if name else what
        kind_name = table.take("type", self.one_of(KINDS, "kind of attr"), needed=True)
        if kind_name is None:
            for key in ("default", "allowed", "minimum", "doc"):
                table.take(key, lambda *_: None)
            table.close()
            return None
        kind = AttrKind(kind_name)
        allowed_node = table.values.get("allowed", (node, node))[1]
        allowed = table.take("allowed", lambda n, w: self.allowed(n, w, kind))
        minimum_node = table.values.get("minimum", (node, node))[1]
        minimum = table.take("minimum", self.integer)
        default_node = table.values.get("default", (node, node))[1]
        # mypy joins the members of the union to object.
        default = cast(
            "Value | None",
            table.take("default", lambda item, what: self.value(item, what, kind)),
        )
        doc = table.take("doc", self.filled)
        table.close()
        if allowed is not None and kind.element not in ("string", "type"):
            self.problem(
                allowed_node,
                f"{table.what} is of kind {kind}, which takes no 'allowed';"
                " only string and type do",
            )
        if minimum is not None:
            if kind != "int" and not kind.is_list:
                self.problem(
                    minimum_node,
                    f"{table.what} is of kind {kind}, which takes no 'minimum';"
                    " only int and lists do",
                )
            elif kind.is_list and minimum < 0:
                self.problem(
                    minimum_node,
                    f"minimum of {table.what} is {minimum}; no list is that short",
                )
        attr = Attr(name or "", kind, default, allowed, minimum, doc)
        self.check_default(default_node, attr)
        return node, attr

    def allowed(
        self, node: yaml.Node, what: str, kind: AttrKind
    ) -> tuple[str, ...] | None:
        item = self.one_of(DTYPES, "dtype") if kind.element == "type" else self.text
        values = self.many(item)(node, what)
        if values is not None and not values and not self.problems:
            self.problem(node, f"{what} is empty; nothing would be allowed")
        return values

    def value(self, node: yaml.Node, what: str, kind: AttrKind) -> Value | None:
        one = self.element_reader(kind.element)
        if not kind.is_list:
            return one(node, what)
        many: Read[tuple[Scalar, ...]] = self.many(one)
        return many(node, what)

    def element_reader(self, kind: str) -> Read[Scalar]:
        dtype = self.one_of(DTYPES, "dtype")

        def read_dtype(node: yaml.Node, what: str) -> DTypeName | None:
            name = dtype(node, what)
            return None if name is None else DTypeName(name)

        def read_func(node: yaml.Node, what: str) -> FuncValue | None:
            name = self.text(node, what)
            return None if name is None else FuncValue(name)

        readers: dict[str, Read[Scalar]] = {
            "int": self.integer,
            "float": self.number,
            "bool": self.boolean,
            "string": self.text,
            "type": read_dtype,
            "shape": self.shape_value,
            "tensor": self.tensor_value,
            "func": read_func,
        }
        return readers[kind]

    def shape_value(self, node: yaml.Node, what: str) -> ShapeValue | None:
        if isinstance(node, yaml.ScalarNode):
            if node.value == "unknown":
                return ShapeValue(None)
            self.wrong(node, what, "a list of sizes, or 'unknown'")
            return None
        dims = self.many(self.integer)(node, what)
        if dims is None:
            return None
        if any(size < -1 for size in dims):
            self.problem(
                node, f"{what} is {list(dims)}; sizes are -1 (unknown) or more"
            )
        return ShapeValue(dims)

    def tensor_value(self, node: yaml.Node, what: str) -> TensorValue | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        dtype = table.take("dtype", self.one_of(DTYPES, "dtype"), needed=True)
        shape = table.take("shape", self.many(self.integer), needed=True)

        def item(value_node: yaml.Node, where: str) -> int | float | bool | str | None:
            value = self.scalar(value_node)
            if isinstance(value, int | float | bool | str):
                return value
            self.wrong(value_node, where, "a number, text, true or false")
            return None

        items: Read[tuple[int | float | bool | str, ...]] = self.many(item)
        values = table.take("values", items, needed=True)
        table.close()
        if dtype is None or shape is None or values is None:
            return None
        if math.prod(shape) != len(values) or any(size < 0 for size in shape):
            self.problem(
                node, f"{what} has {len(values)} values for shape {list(shape)}"
            )
        return TensorValue(DTypeName(dtype), shape, values)

    # What holds between the parts.

    def check_default(self, node: yaml.Node, attr: Attr) -> None:
        if attr.default is None:
            return
        values = attr.default if isinstance(attr.default, tuple) else (attr.default,)
        for value in values if attr.allowed is not None else ():
            if value not in (attr.allowed or ()):
                self.problem(
                    node,
                    f"default of {attr.name!r} is {value!r}, which is not allowed;"
                    f" allowed: {', '.join(attr.allowed or ())}",
                )
        if attr.minimum is None:
            return
        if attr.kind.is_list and len(values) < attr.minimum:
            # TensorFlow itself gives some lists a default shorter than their minimum:
            # the empty list that stands for "not given".
            if values:
                self.problem(
                    node,
                    f"default of {attr.name!r} has {len(values)} values,"
                    f" fewer than its minimum {attr.minimum}",
                )
        elif attr.kind == "int":
            value = values[0]
            if isinstance(value, int) and value < attr.minimum:
                self.problem(
                    node,
                    f"default of {attr.name!r} is {value},"
                    f" below its minimum {attr.minimum}",
                )

    def check_unique(
        self,
        args: Sequence[tuple[yaml.Node, Arg]],
        what: str,
        attrs: Sequence[tuple[yaml.Node, Attr]],
    ) -> None:
        seen: dict[str, str] = {}
        entries: list[tuple[yaml.Node, Arg | Attr]] = [*args, *attrs]
        for node, item in entries:
            kind = what if isinstance(item, Arg) else "attr"
            if item.name in seen:
                self.problem(
                    node,
                    f"{kind} {item.name!r} has the name of the {seen[item.name]}"
                    f" {item.name!r}; names of inputs and attrs are unique",
                )
            seen.setdefault(item.name, kind)

    def check_references(self, op: Op, args: Sequence[tuple[yaml.Node, Arg]]) -> None:
        kinds = {attr.name: attr.kind for attr in op.attrs}
        for node, arg in args:
            for used, wanted, key in (
                (arg.type_attr, "type", "type"),
                (arg.count, "int", "count"),
                (arg.type_list_attr, "list(type)", "types"),
            ):
                if used is None or kinds.get(used) == wanted:
                    continue
                if used in kinds:
                    self.problem(
                        node,
                        f"{key!r} of {arg.name!r} is the attr {used!r}, which is of"
                        f" kind {kinds[used]}; it must be of kind {wanted}",
                    )
                    continue
                near = difflib.get_close_matches(used, [*kinds, *DTYPES], n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                what = "a dtype or " if key == "type" else ""
                self.problem(
                    node,
                    (
                        f"{key!r} of {arg.name!r} is {used!r}, which is neither"
                        f" {what}an attr of kind {wanted} here{hint}"
                        if what
                        else f"{key!r} of {arg.name!r} is {used!r}, which is no attr"
                        f" here{hint}"
                    ),
                )

    def check_sections(
        self,
        op: Op,
        attrs: Sequence[tuple[yaml.Node, Attr]],
        attrs_node: yaml.Node,
        options: Sequence[tuple[yaml.Node, Attr]],
        options_node: yaml.Node,
    ) -> None:
        for node, attr in attrs:
            if op.is_option(attr):
                self.problem(
                    node,
                    f"{attr.name!r} has a default and is not inferred from an input:"
                    " it belongs under 'options'",
                )
        for node, attr in options:
            if attr.name in op.inferred:
                self.problem(
                    node,
                    f"{attr.name!r} is inferred from an input: it belongs under"
                    " 'attrs'",
                )
            elif attr.default is None:
                self.problem(
                    node,
                    f"{attr.name!r} has no default, so that callers must give it: it"
                    " belongs under 'attrs'",
                )
            elif not op.is_option(attr):
                self.problem(
                    node,
                    f"{attr.name!r} is a dtype, which is an argument even with a"
                    " default: it belongs under 'attrs'",
                )

    def ordered(
        self, node: yaml.Node, order: tuple[str, ...] | None, attrs: list[Attr]
    ) -> tuple[Attr, ...]:
        if order is None:
            return tuple(attrs)
        names = [attr.name for attr in attrs]
        if sorted(order) != sorted(names):
            odd = sorted(set(order) ^ set(names)) or sorted(
                {name for name in order if order.count(name) > 1}
            )
            self.problem(
                node,
                "'attr_order' must name every attr and option once; check"
                f" {', '.join(map(repr, odd))}",
            )
            return tuple(attrs)
        return tuple(sorted(attrs, key=lambda attr: order.index(attr.name)))


def find(root: Path) -> list[Path]:
    """Every opdef below `root`: `<group>/<OP_NAME>.yaml`, in sorted order."""
    return sorted(root.glob("*/*.yaml"))


def misplaced(root: Path) -> Iterator[Problem]:
    """Files below `root` that would be overlooked: too high, too deep, `.yml`."""
    for path in sorted(root.rglob("*.y*ml")):
        parts = path.relative_to(root).parts
        if len(parts) == 1 and path.name == "test_ops.yaml":
            continue
        if len(parts) != 2 or path.suffix != ".yaml":
            yield Problem(
                str(path), 1, 1, "", "an opdef is named <group>/<OP_NAME>.yaml"
            )


def load_all(
    root: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[Op], list[Problem]]:
    """Every op below `root`, and every mistake in any of the files."""
    paths = find(root)
    names = frozenset(map(op_name_of, paths))
    problems = [*misplaced(root), *check_together(paths)]
    if not paths and not problems:
        problems.append(Problem(str(root), 1, 1, "", "holds no opdefs"))
    ops = []
    for done, path in enumerate(paths, 1):
        op, found = load_text(path.read_bytes(), path, names)
        problems += found
        if op is not None:
            ops.append(op)
        progress(done, len(paths))
    return ops, problems
