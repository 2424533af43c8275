"""Reads the shapes of an op, checks them against the op, and writes them in Python.

`opwright_notation.syntax` reads a shape as an expression, such as `(m, k) if not
transpose_a else (k, m)`. This module checks the names and kinds in it. Generated
classes contain the expression, and the runtime evaluates it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from opwright_codegen.model import Arg, Op
from opwright_codegen.nodes import did_you_mean
from opwright_notation import syntax
from opwright_notation.functions import COMPARISONS, FUNCTIONS, OPERATORS, Kind
from opwright_notation.syntax import ShapeError, is_call

#: The name in shapes for the position in a list of tensors.
INDEX: Final = "i"
_INTEGERS_ALL: Final = {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_KIND_OF_ATTR: Final = {
    "int": Kind.SIZE,
    "list(int)": Kind.ROW,
    "shape": Kind.ROW,
    "list(shape)": Kind.ROWS,
    "list(type)": Kind.ROW,
}


@dataclass(frozen=True)
class Symbol:
    """A name that the shapes of inputs define: a size, or a row of sizes."""

    name: str
    kind: Kind
    #: Whether each tensor of a list has its own value.
    indexed: bool


@dataclass(frozen=True)
class Shapes:
    """The shapes of an op's arguments, as expressions in Python."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    symbols: Mapping[str, Symbol] = field(default_factory=dict)
    #: The attrs on which shapes depend.
    attrs: frozenset[str] = frozenset()
    #: The inputs on whose values shapes depend.
    values: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Misread:
    """A mistake in the shape of the argument `arg`, at an offset in the text."""

    arg: str
    offset: int
    message: str


def read(op: Op) -> tuple[Shapes, list[Misread]]:
    """The shapes of `op`, and the mistakes in them."""
    problems: list[Misread] = []
    nodes: dict[str, ast.expr] = {}
    for arg in op.args():
        try:
            if arg.shape is not None:
                nodes[arg.name] = syntax.read(arg.shape)
        except ShapeError as error:
            problems.append(Misread(arg.name, error.offset, str(error)))
    scope = _Scope(op, nodes)
    written: list[dict[str, str]] = []
    for args in (op.inputs, op.outputs):
        scope.binding = args is op.inputs
        written.append({})
        for arg in args:
            if arg.name not in nodes:
                continue
            scope.arg = arg
            try:
                _Check(scope).shape(nodes[arg.name])
                written[-1][arg.name] = ast.unparse(nodes[arg.name])
            except ShapeError as error:
                problems.append(Misread(arg.name, error.offset, str(error)))
    for name, (arg_name, offset) in scope.mentioned.items():
        if not name.startswith("_"):
            what = f"{name!r} stands in conditions only; no shape gives it a size"
            problems.append(Misread(arg_name, offset, what))
    inputs, outputs = written
    attrs, values = frozenset(scope.attrs), frozenset(scope.values)
    return Shapes(inputs, outputs, scope.symbols, attrs, values), problems


class _Scope:
    """The meanings of names in the shapes of an op.

    A name is looked up in this order: the attr of that name; the values of the input of
    that name, unless the shape of that input has the name in it; a size, or a row of
    sizes, that the shapes of inputs define.
    """

    def __init__(self, op: Op, nodes: Mapping[str, ast.expr]) -> None:
        self.op = op
        self.nodes = nodes
        self.kinds = {attr.name: attr.kind for attr in op.attrs}
        self.inputs = {arg.name: arg for arg in op.inputs}
        self.symbols: dict[str, Symbol] = {}
        self.attrs: set[str] = set()
        self.values: set[str] = set()
        #: The argument whose shape is read, and whether that shape may define sizes.
        self.arg = Arg("")
        self.binding = True
        #: Names in conditions, with the argument and offset of the first occurrence. A
        #: name that occurs in conditions only is a mistake, because it has no value.
        self.in_condition = False
        self.mentioned: dict[str, tuple[str, int]] = {}

    def kind(self, name: str, offset: int, wanted: Kind, indexed: bool) -> Kind:
        """The kind of `name`. A name without another meaning is of kind `wanted`."""
        if name in self.kinds:
            self.attrs.add(name)
            return _KIND_OF_ATTR.get(str(self.kinds[name]), Kind.FLAG)
        if name in self.inputs and not self._names_itself(name):
            if not self._is_integer(self.inputs[name]):
                message = (
                    f"{name!r} stands for the values of that input, which are no sizes;"
                    " name its sizes otherwise"
                )
                raise ShapeError(offset, message)
            self.values.add(name)
            return wanted
        if name in syntax.RESERVED or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ShapeError(offset, f"{name!r} is no name for a size")
        decided = name.startswith("_")
        if decided and self.binding:
            message = f"{name!r}: only sizes of outputs, which values decide, begin so"
            raise ShapeError(offset, message)
        known = self.symbols.get(name)
        if known is None:
            if not self.binding and not decided:
                names = [*self.symbols, *self.kinds, *self.inputs]
                message = (
                    f"{name!r} is neither a size in an input's shape nor an attr nor an"
                    f" integer input{did_you_mean(name, names)}; a size that values"
                    f" decide is '_' or '_{name}'"
                )
                raise ShapeError(offset, message)
            kind = Kind.ROW if wanted is Kind.ROW else Kind.SIZE
            known = Symbol(name, kind, indexed)
            self.symbols[name] = known
            self.mentioned[name] = self.arg.name, offset
        if not self.in_condition:
            self.mentioned.pop(name, None)
        if indexed and not known.indexed:
            raise ShapeError(offset, f"{name!r} is one for all tensors, without [i]")
        return known.kind

    def is_indexed(self, name: str) -> bool:
        """Whether the symbol `name` has a value for each tensor of a list."""
        known = self.symbols.get(name)
        return known is not None and known.indexed

    def is_rows(self, name: str) -> bool:
        """Whether `name` is an attr that is a list of shapes."""
        return str(self.kinds.get(name)) == "list(shape)"

    def is_symbol(self, name: str) -> bool:
        is_value = name in self.inputs and not self._names_itself(name)
        return name not in self.kinds and not is_value

    def _names_itself(self, name: str) -> bool:
        return syntax.names_itself(name, self.nodes.get(name))

    def _is_integer(self, arg: Arg) -> bool:
        if arg.dtype is not None:
            return str(arg.dtype) in _INTEGERS_ALL
        if arg.type_attr is None:
            return False
        allowed = self.op.attr(arg.type_attr).allowed
        return allowed is not None and set(map(str, allowed)) <= {
            *_INTEGERS_ALL,
            "bool",
            "float",
            "double",
            "half",
            "bfloat16",
        }


class _Check:
    """Checks the kinds of the parts of one shape."""

    def __init__(self, scope: _Scope) -> None:
        self.scope = scope

    def shape(self, node: ast.expr) -> None:
        """Checks an expression that `syntax.read` returned."""
        if is_call(node, "where"):
            shape, condition = node.args
            self.shape(shape)
            self.condition(condition)
        elif is_call(node, "of"):
            lead, behind = node.args
            self.shape(lead)
            self.held(node)
            self.shape(behind)
        elif is_call(node, "either"):
            for option in node.args:
                self.shape(option)
        elif isinstance(node, ast.IfExp):
            self.shape(node.body)
            self.condition(node.test)
            self.shape(node.orelse)
        else:
            assert isinstance(node, ast.Tuple)
            for element in node.elts:
                self.element(element)

    def held(self, node: ast.Call) -> None:
        """Checks that `of` is used for a handle."""
        arg = self.scope.arg
        if str(arg.dtype) not in ("resource", "variant") and not arg.is_ref:
            message = f"'of' is for handles, and {arg.name!r} is none"
            raise ShapeError(node.col_offset, message)

    def element(self, node: ast.expr) -> None:
        if isinstance(node, ast.Starred):
            self.expect(node.value, Kind.ROW)
        elif isinstance(node, ast.Tuple | ast.List):
            sizes = " ".join(map(ast.unparse, node.elts)) or "scalar"
            message = (
                f"{ast.unparse(node)!r} has no meaning in a shape; write {sizes!r}"
            )
            raise ShapeError(node.col_offset, message)
        elif not _is_open(node):
            self.expect(node, Kind.SIZE)

    def condition(self, node: ast.expr) -> None:
        self.scope.in_condition = True
        try:
            self.expect(node, Kind.FLAG)
        finally:
            self.scope.in_condition = False

    def expect(self, node: ast.expr, wanted: Kind) -> None:
        """Checks that `node` is of the kind `wanted`. A flag may be of any kind."""
        kind = self.kind(node, wanted)
        if kind is wanted or wanted is Kind.FLAG:
            return
        hint = "; put a * before it" if kind is Kind.ROW and wanted is Kind.SIZE else ""
        message = f"{ast.unparse(node)!r} is {kind.value}, not {wanted.value}{hint}"
        raise ShapeError(node.col_offset, message)

    def kind(self, node: ast.expr, wanted: Kind) -> Kind:
        match node:
            case ast.Name():
                return self.name(node, wanted)
            case ast.Constant(value=str() | bool() | float()):
                return Kind.FLAG
            case ast.Constant(value=int()):
                return Kind.SIZE
            case ast.BinOp() if type(node.op) in OPERATORS:
                return self.all((node.left, node.right), Kind.SIZE)
            case ast.UnaryOp(op=ast.USub()):
                return self.all((node.operand,), Kind.SIZE)
            case ast.UnaryOp(op=ast.Not()):
                return self.all((node.operand,), Kind.FLAG)
            case ast.BoolOp():
                return self.all(node.values, Kind.FLAG)
            case ast.Compare() if {*map(type, node.ops)} <= COMPARISONS.keys():
                return self.operands((node.left, *node.comparators))
            case ast.Tuple():
                return self.operands(node.elts)
            case ast.IfExp():
                self.expect(node.test, Kind.FLAG)
                result = Kind.ROW if wanted is Kind.ROW else Kind.SIZE
                return self.all((node.body, node.orelse), result)
            case ast.Subscript():
                return self.subscript(node, wanted)
            case ast.Call():
                return self.call(node)
        message = f"{ast.unparse(node)!r} has no meaning in a shape"
        raise ShapeError(node.col_offset, message)

    def all(self, nodes: Iterable[ast.expr], kind: Kind) -> Kind:
        """Checks that all nodes are of the kind `kind`, and returns it."""
        for node in nodes:
            self.expect(node, kind)
        return kind

    def operands(self, nodes: Iterable[ast.expr]) -> Kind:
        """Checks the operands of a comparison: sizes, texts, flags."""
        for node in nodes:
            # A name that is in no shape counts as a size.
            self.kind(node, Kind.FLAG if isinstance(node, ast.Name) else Kind.SIZE)
        return Kind.FLAG

    def name(self, node: ast.Name, wanted: Kind) -> Kind:
        if node.id == INDEX:
            if not self.scope.arg.is_list:
                message = f"{INDEX!r} counts tensors, and this is no list of them"
                raise ShapeError(node.col_offset, message)
            return Kind.SIZE
        if self.scope.is_indexed(node.id):
            # Without an index, the name stands for the row of its values for all
            # tensors of the list. `sum` and `len` take such a row.
            return Kind.ROW
        return self.scope.kind(node.id, node.col_offset, wanted, indexed=False)

    def subscript(self, node: ast.Subscript, wanted: Kind) -> Kind:
        base, index = node.value, node.slice
        if (
            isinstance(base, ast.Name)
            and isinstance(index, ast.Name)
            and index.id == INDEX
        ):
            offset = base.col_offset
            if not self.scope.arg.is_list:
                message = f"[{INDEX}] counts tensors, and this is no list of them"
                raise ShapeError(offset, message)
            if self.scope.is_symbol(base.id):
                return self.scope.kind(base.id, offset, wanted, indexed=True)
            kind = self.scope.kind(base.id, offset, Kind.ROW, indexed=False)
            return {Kind.ROWS: Kind.ROW, Kind.ROW: Kind.SIZE}.get(kind, Kind.FLAG)
        if isinstance(base, ast.Subscript):
            self.expect(base, Kind.ROW)
            kind = Kind.ROW
        elif isinstance(base, ast.Name) and not self.scope.is_indexed(base.id):
            kind = self.scope.kind(base.id, base.col_offset, Kind.ROW, False)
        else:
            kind = self.kind(base, Kind.ROW)
        if kind is Kind.ROWS and not isinstance(index, ast.Slice):
            self.expect(index, Kind.SIZE)
            return Kind.ROW
        if kind is not Kind.ROW:
            message = f"{ast.unparse(base)!r} is {kind.value}, which has no parts"
            raise ShapeError(base.col_offset, message)
        if isinstance(index, ast.Slice):
            for part in (index.lower, index.upper, index.step):
                if part is not None:
                    self.expect(part, Kind.SIZE)
            return Kind.ROW
        self.expect(index, Kind.SIZE)
        return Kind.SIZE

    def call(self, node: ast.Call) -> Kind:
        offset = node.col_offset
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS or node.keywords:
            functions = ", ".join(FUNCTIONS)
            message = f"{ast.unparse(node)!r} calls no function of: {functions}"
            raise ShapeError(offset, message)
        function = FUNCTIONS[name]
        least = len(function.takes) - function.optional
        if not least <= len(node.args) <= len(function.takes):
            message = f"{name} takes {least} arguments, not {len(node.args)}"
            raise ShapeError(offset, message)
        for argument, parameter in zip(node.args, function.takes, strict=False):
            is_list = isinstance(argument, ast.Name) and self.scope.is_rows(argument.id)
            is_counted = name == "len" and is_list
            self.expect(argument, Kind.FLAG if is_counted else parameter.kind)
        return function.gives


def _is_open(node: ast.expr) -> bool:
    """Whether a part of a row is `_` or `...`. These stand for any sizes."""
    return (isinstance(node, ast.Name) and node.id == "_") or (
        isinstance(node, ast.Constant) and node.value is ...
    )
