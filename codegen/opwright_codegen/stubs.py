"""Stubs of raw ops: of `opwright.raw_ops`, and of `tf.raw_ops` for typeshed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from opwright_codegen import annotate, docs, literals, naming
from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.raw_ops import RawOps
from opwright_codegen.signature import Field, Signature, signatures
from opwright_codegen.types import ANY_DTYPE, PyType, named, one_of_dtypes

#: typeshed's type aliases, by the kind of an attr.
_TYPESHED_ATTRS: Final = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "string": "str | bytes",
    "type": "DTypeLike",
    "shape": "ShapeLike | None",
    "tensor": "Incomplete",
    "func": "Incomplete",
}
#: The last argument of each raw op.
_NAME: Final = "name: str | None = None"
_WIDTH: Final = 88
#: The longest line in typeshed.
_TYPESHED_WIDTH: Final = 130


@dataclass(frozen=True)
class Function:
    """A function of a stub: the head of each overload, or its only head."""

    heads: tuple[str, ...]
    deprecated: str | None = None
    doc: str | None = None


@dataclass(frozen=True)
class Tuple:
    """A named tuple of outputs. Its fields include their types."""

    name: str
    generic: str | None
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Stub:
    """All data for the template of a stub."""

    #: The imported names, by module.
    imports: Mapping[str, Sequence[str]]
    #: The type variables, with their bounds.
    variables: Mapping[str, PyType] = field(default_factory=dict)
    tuples: Sequence[Tuple] = ()
    functions: Sequence[Function] = ()


def own(package: str, ops: Iterable[Op], raw: RawOps) -> Stub:
    """The stub of a package's `raw_ops`, with the types and docs of the functions.

    Args:
      package: the package of the ops. It has a subpackage for each group.
      ops: the ops.
      raw: the facts about `tf.raw_ops`.
    """
    writer = _Writer(package, raw)
    functions = [writer.function(op) for op in _present(ops, raw)]
    used = {one for bound in writer.variables.values() for one in bound.walk()}
    for one in (*used, *writer.types, ANY_DTYPE):
        if one.module is not None:
            writer.imports[one.module].add(one.name)
    if any(len(function.heads) > 1 for function in functions):
        writer.imports["typing"].add("overload")
    writer.imports["typing_extensions"].add("TypeVar")
    if any(function.deprecated for function in functions):
        writer.imports["typing_extensions"].add("deprecated")
    return Stub(
        {
            module: naming.import_order(names)
            for module, names in sorted(writer.imports.items())
        },
        dict(sorted(writer.variables.items())),
        writer.tuples,
        functions,
    )


def _present(ops: Iterable[Op], raw: RawOps) -> list[Op]:
    """The ops that `tf.raw_ops` has, sorted by name."""
    found = (op for op in ops if op.name not in raw.absent)
    return sorted(found, key=lambda op: op.name)


def _given(op: Op) -> Iterator[Arg | Attr]:
    """The arguments in the order of `tf.raw_ops`."""
    yield from op.inputs
    yield from (attr for attr in op.given if attr.default is None)
    yield from (attr for attr in op.given if attr.default is not None)


def _fields(op: Op, types: Iterable[object]) -> tuple[str, ...]:
    """The fields of a named tuple of outputs.

    Type checkers must ignore a field with the name of a method of tuples.
    """
    return tuple(
        f"{arg.name}: {one}"
        + ("" if naming.field(arg.name) == arg.name else "  # type: ignore")
        for arg, one in zip(op.outputs, types, strict=True)
    )


def _head(name: str, parameters: Sequence[str], returns: str, width: int) -> str:
    """The head `def name(...) -> returns:`, in one line if it fits."""
    given = ["*", *parameters]
    line = f"def {name}({', '.join(given)}) -> {returns}:"
    if len(line) + len(" ...") <= width:
        return line
    rows = "".join(f"    {one},\n" for one in given)
    return f"def {name}(\n{rows}) -> {returns}:"


@dataclass
class _Writer:
    """Writes functions, and collects the type variables and tuples that they need."""

    package: str
    raw: RawOps
    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    types: set[PyType] = field(default_factory=set)
    variables: dict[str, PyType] = field(default_factory=dict)
    tuples: list[Tuple] = field(default_factory=list)

    def function(self, op: Op) -> Function:
        variables = self._variables(op)
        outputs = annotate.class_variables(op)
        one, overloads = signatures(op, outputs, variables)
        heads = [self._signature(op, each) for each in overloads or (one,)]
        doc = docs.raw_op(op, self.package)
        doc = docs.renamed(doc, self.raw.renamed(op))
        return Function(tuple(heads), docs.deprecation(op), doc)

    def _variables(self, op: Op) -> dict[str, PyType]:
        """The type variables of an op. Ops share those of the same name and bound."""
        found = {}
        for attr, name in naming.function_variables(op).items():
            bound = one_of_dtypes(op.attr(attr).allowed)
            words = re.findall(r"\w+", str(bound))
            tail = "" if words == ["TType"] else "".join(f"_{one[1:]}" for one in words)
            self.variables[f"_{name}{tail}"] = bound
            found[attr] = PyType(f"_{name}{tail}")
        return found

    def _signature(self, op: Op, signature: Signature) -> str:
        fields = {one.name: one for one in signature.parameters}
        for attr in op.options:
            default = literals.value(attr.default)
            # A stub does not import NumPy, so a default that is an array is `...`.
            default = "..." if "np." in default else default
            name = naming.argument(attr.name)
            fields[name] = Field(name, annotate.given(attr), default)
        parameters = []
        for given in _given(op):
            one = fields.get(naming.argument(given.name))
            if one is None:
                continue
            self.types.update(one.annotation.walk())
            if isinstance(one.default, PyType):
                self.types.add(one.default)
            keyword = self.raw.keyword(op, given.name)
            parameters.append(Field(keyword, one.annotation, one.default).parameter)
        parameters.append(_NAME)
        returns = self._returned(op, signature.values)
        return _head(op.name, parameters, str(returns), _WIDTH)

    def _returned(self, op: Op, values: PyType) -> PyType:
        self.types.update(values.walk())
        if len(op.outputs) < 2:
            return values
        if all(naming.field(arg.name) == arg.name for arg in op.outputs):
            module = f".{op.group}.{naming.module_name(op.name)}"
            self.imports[module].add(values.name)
            return values
        # Some fields in `tf.raw_ops` have other names than in the function's tuple.
        name = f"_{op.name}Outputs"
        variables = annotate.class_variables(op)
        if name not in {one.name for one in self.tuples}:
            self.tuples.append(self._tuple(name, op))
        return PyType(name, tuple(values.args[: len(variables)]))

    def _tuple(self, name: str, op: Op) -> Tuple:
        used = annotate.class_variables(op)
        variables = {n: one for n, one in self._variables(op).items() if n in used}
        types = [annotate.output(arg, variables) for arg in op.outputs]
        self.types.update(part for one in types for part in one.walk())
        generic = named("Generic", *variables.values()) if variables else None
        self.imports["typing_extensions"].add("NamedTuple")
        self.types.update(generic.walk() if generic else ())
        return Tuple(name, str(generic) if generic else None, _fields(op, types))


def typeshed(ops: Iterable[Op], raw: RawOps) -> Stub:
    """The stub of `tf.raw_ops` for typeshed: with its type aliases, without docs."""
    imports = {
        "_typeshed": ["Incomplete"],
        "collections.abc": ["Sequence"],
        "typing": ["Literal", "NamedTuple"],
        "tensorflow": ["Operation", "Tensor"],
        "tensorflow._aliases": ["DTypeLike", "ShapeLike", "TensorCompatible"],
    }
    tuples, functions = [], []
    for op in _present(ops, raw):
        types = ["list[Tensor]" if arg.is_list else "Tensor" for arg in op.outputs]
        returns = "Operation | None"
        if len(types) == 1:
            (returns,) = types
        elif types:
            returns = f"_{op.name}"
            tuples.append(Tuple(returns, None, _fields(op, types)))
        parameters = [_in_typeshed(raw, op, one) for one in _given(op)]
        parameters.append(_NAME)
        head = _head(op.name, parameters, returns, _TYPESHED_WIDTH)
        functions.append(Function((head,)))
    return Stub(imports, {}, tuples, functions)


def _in_typeshed(raw: RawOps, op: Op, given: Arg | Attr) -> str:
    name = raw.keyword(op, given.name)
    if isinstance(given, Arg):
        tensors_only = given.is_ref or given.dtype in ("resource", "variant")
        one = "Tensor" if tensors_only else "TensorCompatible"
        return f"{name}: {f'Sequence[{one}]' if given.is_list else one}"
    one = _TYPESHED_ATTRS[given.kind.element]
    if given.kind.element == "string" and given.allowed and given.message is None:
        one = f"Literal[{', '.join(map(literals.quoted, given.allowed))}]"
    if given.kind.is_list:
        one = f"Sequence[{one}]"
    if given.default is None:
        return f"{name}: {one}"
    plain = given.kind in ("bool", "int", "float", "string")
    default = literals.value(given.default) if plain else "..."
    return f"{name}: {one} = {default}"
