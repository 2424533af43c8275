"""Opdefs (YAML) to models, strictly.

Every mistake is collected as a `Problem` with file, line, column and op; nothing here
raises for what a file says. A key that nothing reads is a mistake, and so is a key
given twice, a value of another kind, a name that refers to nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias, cast

import yaml

from opwright_codegen import contents, naming, shapes
from opwright_codegen.model import (
    GRADIENTS,
    Arg,
    Attr,
    Deprecation,
    FullType,
    FuncAttr,
    FuncValue,
    Op,
    Plain,
    Role,
    Scalar,
    ShapeValue,
    TensorItem,
    TensorValue,
    Value,
)
from opwright_codegen.nodes import Mapping, Read, Reader, did_you_mean, shown
from opwright_codegen.problems import OpdefError, Problem
from opwright_codegen.types import (
    BOUNDS,
    DTYPES,
    KINDS,
    TENSOR_DTYPES,
    AttrKind,
    DTypeName,
    dtype_meant,
)

#: Names as TensorFlow takes them, for regular expressions.
ARG_NAME: Final = "[a-z][a-z0-9_]*"
ATTR_NAME: Final = "[A-Za-z][A-Za-z0-9_]*"
OP_NAME: Final = "(?:[A-Z][A-Za-z0-9_]*>)*[A-Z][A-Za-z0-9_]*"
GROUP: Final = r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*"
FULL_TYPE_ID: Final = "TFT_[A-Z0-9_]+"
MESSAGE: Final = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
#: A minor version of TensorFlow.
VERSION: Final = r"[0-9]+\.[0-9]+"

DEVICES: Final = ("CPU", "GPU", "XLA")
PROVIDERS: Final = ("opwright",)
#: What integers of tensor-valued defaults hold, by dtype.
_RANGES: Final = {
    f"int{bits}": range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (8, 16, 32, 64)
} | {f"uint{bits}": range(2**bits) for bits in (8, 16, 32, 64)}
#: Of groups, read by `groups.py`.
GROUPS: Final = Path("groups.yaml")
#: Files beside the groups' folders that are no opdefs.
_BESIDE: Final = (GROUPS,)
_MAX_DEPTH: Final = 32
#: Why an attr is no option.
_NO_OPTION: Final = {
    Role.INFERRED: "is inferred from an input",
    Role.ARGUMENT: "has no default, so that callers must give it",
    Role.KEYWORD: "is a dtype, which is an argument even with a default",
}

#: An input, output or attr with where its parts are.
_Args: TypeAlias = Sequence[tuple[Mapping, Arg]]
_Attrs: TypeAlias = Sequence[tuple[Mapping, Attr]]


def own_opdefs() -> Path:
    """The folder of the opdefs that opwright is made of: in its wheel, or its tree."""
    here = Path(__file__).parent
    shipped = here / "opdefs"
    return shipped if shipped.is_dir() else here.parents[1] / "opdefs"


def find(root: Path) -> list[Path]:
    """Every opdef below `root`: `<group>/<OP_NAME>.yaml`, in sorted order."""
    return sorted(root.glob("*/*.yaml"))


def op_path(root: Path, group: str, op_name: str) -> Path:
    """Where an op's file belongs: one op a file, one folder a group."""
    return root / group / f"{op_name.replace('>', '.')}.yaml"


def op_name_of(path: Path) -> str:
    """The op that a file is for, by its name."""
    return path.stem.replace(".", ">")


def load_all(
    root: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[Op], list[Problem]]:
    """Every op below `root`, and every mistake in any of the files."""
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
    """Every op below `root`.

    Raises:
      OpdefError: any of them has a mistake.
    """
    ops, problems = load_all(root)
    if problems:
        raise OpdefError(problems)
    return ops


def read_bytes(path: Path) -> tuple[bytes | None, list[Problem]]:
    """The content of a file, or that it cannot be read."""
    try:
        return contents.of(path), []
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        return None, [Problem(str(path), 1, 1, op_name_of(path), what)]


def load_text(
    content: bytes, path: Path, names: frozenset[str] | None = None
) -> tuple[Op | None, list[Problem]]:
    """Reads one op's definition; its group and name must agree with `path`.

    `names` are the ops that it may refer to; None allows any.
    """
    reader = _OpReader(path, names)
    op = reader.read(content)
    return (None if reader.problems else op), reader.problems


def check_tree(root: Path, paths: Sequence[Path]) -> list[Problem]:
    """Mistakes that no single file shows, among the opdefs at `paths` below `root`."""
    problems = [*_misplaced(root), *clashes(root, paths)]
    if not paths and not problems:
        problems.append(Problem(str(root), 1, 1, "", "holds no opdefs"))
    return problems


def _misplaced(root: Path) -> Iterator[Problem]:
    """Files below `root` that would be overlooked: too high, too deep, `.yml`."""
    for path in sorted(root.rglob("*")):
        place = path.relative_to(root)
        if path.suffix.lower() not in (".yaml", ".yml") or place in _BESIDE:
            continue
        if len(place.parts) != 2 or path.suffix != ".yaml":
            message = "an opdef is named <group>/<OP_NAME>.yaml, also in data.sub"
            yield Problem(str(path), 1, 1, "", message)


def clashes(root: Path, paths: Sequence[Path]) -> Iterator[Problem]:
    """Two files of one op, names that several ops or packages would have.

    A file is named as its op and lies in its group's folder (`load_text` holds it to
    that), so the paths alone tell.
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


class _OpReader(Reader):
    """Reads one op."""

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
        summary = top.take("summary", self.filled)
        description = top.take("description", self.filled)
        example = top.take("example", self.example)
        check_with = top.take("check_with", self.check_with) or ()
        unchecked = top.take("unchecked", self.filled)
        truncated = top.take("truncated", self.truncated) or ()
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
        gradient = top.take("gradient", self.one_of(GRADIENTS, "kind of gradient"))
        deprecation = top.take("deprecated", self.deprecation)
        since = top.take("since", self.version)
        gradient_of = top.take("gradient_of", self.op_reference)
        kernels = top.take("kernels", self.kernels) or ()
        tpu_only = top.take("tpu_only", self.filled)
        inputs = top.take("inputs", self.many(self.arg)) or ()
        outputs = top.take("outputs", self.many(self.arg)) or ()
        attrs = top.take("attrs", self.many(self.attr)) or ()
        options = top.take("options", self.many(self.attr)) or ()
        order = top.take("attr_order", self.many(self.text))
        imported_text = top.take("imported_text", self.many(self.text)) or ()
        top.close()
        if tpu_only is not None and kernels:
            message = "an op that opwright brings kernels for is not 'tpu_only'"
            self.problem(top.at("tpu_only"), message)
        if self.problems:
            return None
        op = Op(
            name=name or "",
            group=group or "",
            inputs=tuple(arg for _, arg in inputs),
            outputs=tuple(arg for _, arg in outputs),
            attrs=self.ordered(
                top.at("attr_order"), order, [a for _, a in (*attrs, *options)]
            ),
            is_stateful=flags["stateful"],
            is_commutative=flags["commutative"],
            is_aggregate=flags["aggregate"],
            allows_uninitialized_input=flags["allows_uninitialized_input"],
            is_distributed_communication=flags["distributed_communication"],
            gradient=gradient,
            deprecation=deprecation,
            since=since,
            summary=summary,
            description=description,
            example=example,
            check_with=check_with,
            unchecked=unchecked,
            truncated=truncated,
            gradient_of=gradient_of,
            kernels=kernels,
            tpu_only=tpu_only,
            imported_text=imported_text,
            source=str(self.path),
        )
        self.check_references(op, (*inputs, *outputs))
        self.check_unique(inputs, outputs, (*attrs, *options))
        if not self.problems:
            self.check_sections(op, attrs, options)
        if not self.problems:
            places = {attr.name: table for table, attr in (*attrs, *options)}
            places |= {arg.name: table for table, arg in (*outputs, *inputs)}
            for subject, clash in naming.clashes(op):
                self.problem(places.get(subject, top).at("name"), clash)
            for misread in shapes.read(op)[1]:
                node = places[misread.arg].at("shape")
                what = f"'shape' of {misread.arg!r}: {misread.message}"
                self.problem_within(node, misread.offset, what)
            for name, _ in op.check_with:
                if name not in places:
                    hint = did_you_mean(name, places)
                    what = f"'check_with' names {name!r}, no input or attr{hint}"
                    self.problem(top.at("check_with"), what)
            self.check_truncated(op, top.at("truncated"))
        return op

    # The parts of an op.

    def example(self, node: yaml.Node, what: str) -> str | None:
        text = self.filled(node, what)
        if text is None:
            return None
        rows = text.splitlines()
        if not rows[0].startswith(">>> "):
            self.problem(node, f"{what} must start with '>>> ', as a doctest does")
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
        shape = table.take("shape", self.filled)
        doc = table.take("doc", self.filled)
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
            # Without a kind there is nothing to read the others by.
            for key in (
                *("default", "allowed", "minimum", "message", "since"),
                *("allowed_since", "doc"),
            ):
                table.take(key, _nothing)
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
        doc = table.take("doc", self.filled)
        table.close()
        if message is not None and (kind != "string" or allowed is not None):
            self.problem(
                table.at("message"),
                f"{table.what} takes no 'message'; only a string without 'allowed' is"
                " a serialized one",
            )
        if minimum is not None and kind != "int" and not kind.is_list:
            self.problem(
                table.at("minimum"),
                f"{table.what} is of kind {kind}, which takes no 'minimum';"
                " only int and lists do",
            )
        elif minimum is not None and kind.is_list and minimum < 0:
            self.problem(
                table.at("minimum"),
                f"minimum of {table.what} is {minimum}; no list is that short",
            )
        attr = Attr(
            *(name or "", kind, default, allowed, minimum, doc, message, since),
            allowed_since=allowed_since or (),
        )
        self.check_default(table, attr)
        return table, attr

    def dtype(self, node: yaml.Node, what: str) -> str | None:
        return self.one_of(DTYPES, "dtype", dtype_meant)(node, what)

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

    def value(self, node: yaml.Node, what: str, kind: AttrKind) -> Value | None:
        one = self.element_reader(kind.element)
        if not kind.is_list:
            return one(node, what)
        many: Read[tuple[Scalar, ...]] = self.many(one)
        return many(node, what)

    def element_reader(self, kind: str) -> Read[Scalar]:
        def read_dtype(node: yaml.Node, what: str) -> DTypeName | None:
            name = self.dtype(node, what)
            return None if name is None else DTypeName(name)

        readers: dict[str, Read[Scalar]] = {
            "int": self.integer,
            "float": self.single,
            "bool": self.boolean,
            "string": self.any_text,
            "type": read_dtype,
            "shape": self.shape_value,
            "tensor": self.tensor_value,
            "func": self.func_value,
        }
        return readers[kind]

    def any_text(self, node: yaml.Node, what: str) -> str | bytes | None:
        """Text, or `{hex: ff00}` where it is not UTF-8."""
        if not isinstance(node, yaml.MappingNode):
            return self.text(node, what)
        table = Mapping(self, node, what)
        digits = table.take("hex", self.text, needed=True)
        table.close()
        try:
            return None if digits is None else bytes.fromhex(digits)
        except ValueError:
            self.problem(node, f"{what} is {shown(digits or '')}, no hexadecimal bytes")
            return None

    def func_value(self, node: yaml.Node, what: str) -> FuncValue | None:
        """A function's name, or a mapping with that and its attrs."""
        if not isinstance(node, yaml.MappingNode):
            name = self.text(node, what)
            return None if name is None else FuncValue(name)
        table = Mapping(self, node, what)
        name = table.take("name", self.text, needed=True)
        attrs = table.take("attrs", self.many(self.func_attr), needed=True)
        table.close()
        return FuncValue(name or "", attrs or ())

    def func_attr(self, node: yaml.Node, what: str) -> FuncAttr | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        name = table.take("name", self.text, needed=True)
        kind_name = table.take("type", self.one_of(KINDS, "kind of attr"), needed=True)
        if name is None or kind_name is None:
            return None
        kind = AttrKind(kind_name)
        # mypy joins the members of the union to object.
        value = cast(
            "Value | None",
            table.take("value", lambda n, w: self.value(n, w, kind), needed=True),
        )
        table.close()
        return None if value is None else FuncAttr(name, kind, value)

    def shape_value(self, node: yaml.Node, what: str) -> ShapeValue | None:
        if isinstance(node, yaml.ScalarNode):
            if node.value == "unknown":
                return ShapeValue(None)
            self.wrong(node, what, "a list of sizes, or 'unknown'")
            return None
        found = self.many(self.dim)(node, what)
        if found is None:
            return None
        dims = tuple(size for size, _ in found)
        if any(size < -1 for size in dims):
            self.problem(
                node, f"{what} is {list(dims)}; sizes are -1 (unknown) or more"
            )
        names = tuple(name for _, name in found)
        return ShapeValue(dims, names if any(names) else ())

    def dim(self, node: yaml.Node, what: str) -> tuple[int, str] | None:
        """A size, or a mapping with that and the dimension's name."""
        if not isinstance(node, yaml.MappingNode):
            size = self.integer(node, what)
            return None if size is None else (size, "")
        table = Mapping(self, node, what)
        size = table.take("size", self.integer, needed=True)
        name = table.take("name", self.text, needed=True)
        table.close()
        return None if size is None else (size, name or "")

    def tensor_value(self, node: yaml.Node, what: str) -> TensorValue | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        dtype = table.take(
            "dtype",
            self.one_of(TENSOR_DTYPES, "dtype of a default", dtype_meant),
            needed=True,
        )
        shape = table.take("shape", self.many(self.integer), needed=True)
        readers: dict[str, Read[TensorItem]] = {
            "float": self.single,
            "double": self.number,
            "half": self.number,
            "bfloat16": self.number,
            "complex64": self.complex_number,
            "complex128": self.complex_number,
            "bool": self.boolean,
            "string": self.any_text,
            "uint64": lambda n, w: self.integer(n, w, _RANGES["uint64"]),
        }
        item = readers.get(dtype, self.integer) if dtype else _nothing
        items: Read[tuple[TensorItem, ...]] = self.many(item)
        values = table.take("values", items, needed=True)
        filled = bool(table.take("filled", self.boolean))
        packed = bool(table.take("packed", self.boolean))
        table.close()
        if dtype is None or shape is None or values is None:
            return None
        size = math.prod(shape)
        fits = len(values) < size if filled else len(values) == size
        if any(size < 0 for size in shape) or not fits:
            hint = "; 'filled' is for fewer" if filled else ""
            self.problem(
                node, f"{what} has {len(values)} values for shape {list(shape)}{hint}"
            )
        if packed and (dtype == "string" or not values):
            self.problem(table.at("packed"), f"{what} has no values that can be packed")
        for value in values if dtype in _RANGES else ():
            if value not in _RANGES[dtype]:
                message = f"{what} holds {value!r}, which is no {dtype}"
                self.problem(table.at("values"), message)
        return TensorValue(DTypeName(dtype), shape, values, packed)

    def complex_number(self, node: yaml.Node, what: str) -> complex | None:
        """`[real, imaginary]`."""
        parts = self.many(self.number)(node, what)
        if parts is None:
            return None
        if len(parts) != 2:
            self.problem(node, f"{what} must be [real part, imaginary part]")
            return 0j
        return complex(*parts)

    # What holds between the parts.

    def check_default(self, table: Mapping, attr: Attr) -> None:
        if attr.default is None:
            return
        values = attr.default if isinstance(attr.default, tuple) else (attr.default,)
        for value in values if attr.allowed is not None else ():
            if value not in (attr.allowed or ()):
                self.problem(
                    table.at("default"),
                    f"default of {attr.name!r} is {shown(str(value))}, which is not"
                    f" allowed; allowed: {', '.join(map(shown, attr.allowed or ()))}",
                )
        if attr.minimum is None:
            return
        # TensorFlow itself gives some lists a default shorter than their minimum: the
        # empty list that stands for "not given".
        if attr.kind.is_list and 0 < len(values) < attr.minimum:
            self.problem(
                table.at("default"),
                f"default of {attr.name!r} has {len(values)} values,"
                f" fewer than its minimum {attr.minimum}",
            )
        least = attr.default
        if attr.kind == "int" and isinstance(least, int) and least < attr.minimum:
            self.problem(
                table.at("default"),
                f"default of {attr.name!r} is {least},"
                f" below its minimum {attr.minimum}",
            )

    def check_unique(self, inputs: _Args, outputs: _Args, attrs: _Attrs) -> None:
        seen: dict[str, str] = {}
        sections: tuple[tuple[str, _Args | _Attrs], ...] = (
            ("input", inputs),
            ("output", outputs),
            ("attr", attrs),
        )
        for kind, entries in sections:
            for table, item in entries:
                if item.name in seen:
                    self.problem(
                        table.at("name"),
                        f"{kind} {item.name!r} has the name of an {seen[item.name]};"
                        " names of inputs, outputs and attrs are unique",
                    )
                seen.setdefault(item.name, kind)

    def check_references(self, op: Op, args: _Args) -> None:
        kinds = {attr.name: attr.kind for attr in op.attrs}
        for table, arg in args:
            for used, wanted, key in (
                (arg.type_attr, "type", "type"),
                (arg.count, "int", "count"),
                (arg.type_list_attr, "list(type)", "types"),
            ):
                if used is None or kinds.get(used) == wanted:
                    continue
                what = f"{key!r} of {arg.name!r} is"
                if used in kinds:
                    message = (
                        f"{what} the attr {used!r}, which is of kind {kinds[used]};"
                        f" it must be of kind {wanted}"
                    )
                else:
                    dtypes = DTYPES if key == "type" else ()
                    dtype = "neither a dtype nor" if key == "type" else "not"
                    meant = dtype_meant(used) if dtypes else None
                    hint = did_you_mean(used, [*kinds, *dtypes], meant)
                    message = (
                        f"{what} {shown(used)}, which is {dtype} an attr of kind"
                        f" {wanted} here{hint}"
                    )
                self.problem(table.at(key), message)

    def check_truncated(self, op: Op, node: yaml.Node) -> None:
        inputs = {arg.name: arg for arg in op.inputs}
        ints = {attr.name for attr in op.given if attr.kind == "int"}
        for name, dtype in op.truncated:
            what = f"'truncated' names {name!r},"
            if name not in inputs and name not in ints:
                hint = did_you_mean(name, [*inputs, *ints])
                self.problem(node, f"{what} no input or int that callers give{hint}")
            elif name in inputs and (inputs[name].is_list or inputs[name].is_ref):
                self.problem(node, f"{what} which is a list or a reference")
            if dtype not in BOUNDS:
                self.problem(node, f"{what} with {dtype}; give {' or '.join(BOUNDS)}")

    def check_sections(self, op: Op, attrs: _Attrs, options: _Attrs) -> None:
        for table, attr in attrs:
            if op.role(attr) is Role.OPTION:
                self.problem(
                    table.node,
                    f"{attr.name!r} has a default and is not inferred from an input:"
                    " it belongs under 'options'",
                )
        for table, attr in options:
            reason = _NO_OPTION.get(op.role(attr))
            if reason is not None:
                self.problem(
                    table.node, f"{attr.name!r} {reason}: it belongs under 'attrs'"
                )

    def ordered(
        self, node: yaml.Node, order: tuple[str, ...] | None, attrs: list[Attr]
    ) -> tuple[Attr, ...]:
        if order is None:
            return tuple(attrs)
        names = [attr.name for attr in attrs]
        if sorted(order) != sorted(names):
            odd = sorted(set(order) ^ set(names)) or _repeated(order)
            self.problem(
                node,
                "'attr_order' must name every attr and option once; check"
                f" {', '.join(map(shown, odd))}",
            )
            return tuple(attrs)
        return tuple(sorted(attrs, key=lambda attr: order.index(attr.name)))


def _nothing(node: yaml.Node, what: str) -> None:
    """Passes over what cannot be judged, for a problem that is reported already."""


def _repeated(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return sorted({name for name in listed if listed.count(name) > 1})
