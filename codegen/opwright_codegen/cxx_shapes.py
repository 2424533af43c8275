"""Translates shapes to C++, for shape functions.

`shapes.py` has read and checked a shape. Here its expression is written with the
functions of `templates/native/shapes.h`, whose names are in
`opwright_notation.functions`. Some shapes cannot be translated: those that depend on an
input's values or on a position in a list, and those with several forms (`either`). The
generated C++ does not check them. A comment there gives the reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from opwright_codegen import shapes
from opwright_codegen.model import Op
from opwright_notation.functions import COMPARISONS, FUNCTIONS, OPERATORS, Kind
from opwright_notation.syntax import is_call, names_in, parsed


class OpenError(Exception):
    """A shape cannot be translated. The message is the reason."""


@dataclass(frozen=True)
class Shape:
    """A shape in C++.

    `parts`: the source of an `opdef::Shape`. `where`: the condition under which an
    input is refused although its sizes fit `parts`; None if there is no such condition.
    """

    parts: str
    where: str | None = None


def translated(op: Op) -> tuple[Mapping[str, Shape], Mapping[str, str]]:
    """The shapes that C++ can express, and why others cannot be, by argument."""
    read, _ = shapes.read(op)
    said = {**read.inputs, **read.outputs}
    found: dict[str, Shape] = {}
    open_: dict[str, str] = {}
    for arg in op.args():
        if arg.name not in said:
            open_[arg.name] = "the opdef says no shape"
            continue
        try:
            # If the shape of an input is left open, the sizes that it defines have no
            # value. In C++, such a size is unknown. A size computed from it is unknown
            # too. Shapes with these sizes need no special treatment.
            writer = _Writer(op, read)
            found[arg.name] = writer.shape(parsed(said[arg.name]))
        except OpenError as error:
            open_[arg.name] = f"{error}: `{arg.shape}`"
    return found, open_


class _Writer:
    def __init__(self, op: Op, read: shapes.Shapes) -> None:
        self.kinds = {attr.name: str(attr.kind) for attr in op.attrs}
        self.given = {attr.name for attr in op.given}
        self.read = read

    def shape(self, node: ast.expr) -> Shape:
        if is_call(node, "where"):
            shape, condition = node.args
            known: dict[str, None] = {}
            holds = self.condition(condition, known)
            tests = "".join(f"opdef::Known({size}) && " for size in known)
            return Shape(self.parts(shape), f"{tests}!({holds})")
        return Shape(self.parts(node))

    def parts(self, node: ast.expr) -> str:
        if isinstance(node, ast.IfExp):
            test = self.condition(node.test, None)
            first, second = self.parts(node.body), self.parts(node.orelse)
            return f"{test} ? {first} : {second}"
        if isinstance(node, ast.Tuple):
            return f"opdef::Shape{{{', '.join(map(self.part, node.elts))}}}"
        if is_call(node, "either"):
            raise OpenError("one of several forms, which nothing decides")
        if is_call(node, "of"):
            raise OpenError("a handle's, of what it leads to")
        raise OpenError("it has no form in C++")

    def part(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and node.value is Ellipsis:
            return "opdef::AnyRow()"
        if isinstance(node, ast.Starred):
            name = node.value
            if isinstance(name, ast.Name) and self.is_symbol(name.id, Kind.ROW):
                return f'opdef::RowNamed("{name.id}")'
            return f"opdef::Are({self.row(name)})"
        if isinstance(node, ast.Name):
            # A name with an underscore is the size of an output that depends on values.
            if node.id.startswith("_"):
                return "opdef::Any()"
            if self.is_symbol(node.id, Kind.SIZE):
                return f'opdef::Named("{node.id}")'
            if self.kinds.get(node.id) == "int":
                return f"opdef::Is(opdef::Given({self.size(node)}))"
        return f"opdef::Is({self.size(node)})"

    def is_symbol(self, name: str, kind: Kind) -> bool:
        known = self.read.symbols.get(name)
        if known is not None and known.indexed:
            raise OpenError("each tensor of a list has its own")
        return known is not None and known.kind is kind

    def size(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return str(node.value)
        if isinstance(node, ast.Name):
            if self.is_symbol(node.id, Kind.SIZE):
                return f'names.size("{node.id}")'
            if self.kinds.get(node.id) == "int" and node.id in self.given:
                return f"attrs.{member(node.id)}"
        if isinstance(node, ast.BinOp):
            name = OPERATORS[type(node.op)].cxx
            return f"opdef::{name}({self.size(node.left)}, {self.size(node.right)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            if isinstance(node.operand, ast.Constant):
                return f"-{self.size(node.operand)}"
            return f"opdef::Subtract(0, {self.size(node.operand)})"
        if isinstance(node, ast.IfExp):
            test = self.condition(node.test, None)
            return f"({test} ? {self.size(node.body)} : {self.size(node.orelse)})"
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            return f"opdef::At({self.row(node.value)}, {self.size(node.slice)})"
        if isinstance(node, ast.Call):
            return self.call(node, Kind.SIZE)
        raise OpenError(self.why(node))

    def row(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name) and self.is_symbol(node.id, Kind.ROW):
            return f'names.row("{node.id}")'
        if isinstance(node, ast.Name) and self.kinds.get(node.id) == "shape":
            return f"opdef::Row(attrs.{member(node.id)})"
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            part = node.slice
            if part.step is None:
                of = self.row(node.value)
                start = "0" if part.lower is None else self.size(part.lower)
                stop = f"{of}.length()" if part.upper is None else self.size(part.upper)
                return f"opdef::Slice({of}, {start}, {stop})"
        if isinstance(node, ast.Call):
            return self.call(node, Kind.ROW)
        raise OpenError(self.why(node))

    def call(self, node: ast.Call, gives: Kind) -> str:
        assert isinstance(node.func, ast.Name)
        function = FUNCTIONS[node.func.id]
        if function.cxx is None or function.gives is not gives:
            raise OpenError(self.why(node))
        arguments = [
            self.row(each) if parameter.kind is Kind.ROW else self.size(each)
            for parameter, each in zip(function.takes, node.args, strict=False)
        ]
        if len(arguments) == 1:
            return function.cxx.format(*arguments)
        return reduce(function.cxx.format, arguments)

    def condition(self, node: ast.expr, known: dict[str, None] | None) -> str:
        """Translates a condition on attrs.

        If `known` is not None, the condition may also contain sizes. Their names are
        added to `known`.
        """
        if isinstance(node, ast.Name) and self.kinds.get(node.id) == "bool":
            return f"attrs.{member(node.id)}"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"!({self.condition(node.operand, known)})"
        if isinstance(node, ast.BoolOp):
            word = " && " if isinstance(node.op, ast.And) else " || "
            return word.join(f"({self.condition(one, known)})" for one in node.values)
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            tests = [
                self.comparison(left, operator, right, known)
                for left, operator, right in zip(
                    operands, node.ops, operands[1:], strict=False
                )
            ]
            return " && ".join(tests)
        raise OpenError(self.why(node))

    def comparison(
        self,
        left: ast.expr,
        operator: ast.cmpop,
        right: ast.expr,
        known: dict[str, None] | None,
    ) -> str:
        if isinstance(operator, ast.In) and isinstance(right, ast.Tuple):
            tests = [self.comparison(left, ast.Eq(), one, known) for one in right.elts]
            return f"({' || '.join(tests)})"
        word = COMPARISONS[type(operator)].cxx
        if word is None:
            raise OpenError("a comparison that has no form in C++")
        sides = [self.operand(side, known) for side in (left, right)]
        return f" {word} ".join(sides)

    def operand(self, node: ast.expr, known: dict[str, None] | None) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bool)):
            if isinstance(node.value, bool):
                return "true" if node.value else "false"
            return text(node.value)
        name = node.id if isinstance(node, ast.Name) else ""
        plain = self.kinds.get(name) in ("string", "bool", "int", "float")
        if plain and name in self.given:
            return f"attrs.{member(name)}"
        size = self.size(node)
        if not isinstance(node, ast.Constant):
            if known is None:
                raise OpenError("its form depends on sizes")
            known[size] = None
        return size

    def why(self, node: ast.expr) -> str:
        values = sorted(self.read.values.intersection(names_in(node)))
        if values:
            return f"it depends on the values of {values[0]}"
        return f"`{ast.unparse(node)}` has no form in C++"


#: Keywords of C++, and names that the generated classes use.
_RESERVED: Final = frozenset(
    re.findall(
        r"\w+",
        """alignas alignof and and_eq asm auto bitand bitor bool break case catch char
        class compl concept const consteval constexpr constinit const_cast continue
        co_await co_return co_yield decltype default delete do double dynamic_cast
        else enum explicit export extern false float for friend goto if inline int
        long mutable namespace new noexcept not not_eq nullptr operator or or_eq
        private protected public register reinterpret_cast requires return short
        signed sizeof static static_assert static_cast struct switch template this
        thread_local throw true try typedef typeid typename union unsigned using
        virtual void volatile wchar_t while xor xor_eq Read c""",
    )
)


def member(name: str) -> str:
    """The name of an attr or argument as a member of a struct."""
    return f"{name}_" if name in _RESERVED else name


def text(value: str) -> str:
    """A string literal of C++.

    Bytes beyond ASCII are octal escapes. These have at most three digits, while a
    hexadecimal escape would include digits that follow.
    """
    found = []
    for byte in value.encode():
        if byte in b'"\\':
            found.append(f"\\{chr(byte)}")
        elif 32 <= byte < 127 and byte != ord("?"):
            found.append(chr(byte))
        else:
            found.append(f"\\{byte:03o}")
    return f'"{"".join(found)}"'
