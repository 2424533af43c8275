"""The notation of shapes: jaxtyping's dimension strings, with attrs and conditions.

    m k if not transpose_a else k m
    broadcast(x, y) m n
    remove(x, axis) where len(x) >= 1

A shape is a row of sizes; `opdefs/README.md` tells writers all of it. Here it is read,
checked against the op that it is about, and turned into the Python expression that the
classes carry and the runtime evaluates: `(m, k) if not transpose_a else (k, m)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from opwright_codegen.model import Arg, Op
from opwright_codegen.nodes import did_you_mean


class Kind(Enum):
    """What a part of the notation is."""

    #: One size, or any integer.
    SIZE = "a size"
    #: A row of sizes.
    ROW = "a row of sizes"
    #: True, false, a text, an attr's value: for conditions.
    FLAG = "a value for conditions"
    #: An attr that is a list of rows.
    ROWS = "a list of rows"


#: Functions: what they take, what they give; what follows None may be left out.
FUNCTIONS: Final[Mapping[str, tuple[tuple[Kind | None, ...], Kind]]] = {
    # One size.
    "len": ((Kind.ROW,), Kind.SIZE),
    "sum": ((Kind.ROW,), Kind.SIZE),
    "prod": ((Kind.ROW,), Kind.SIZE),
    "min": ((Kind.SIZE, Kind.SIZE), Kind.SIZE),
    "max": ((Kind.SIZE, Kind.SIZE), Kind.SIZE),
    "ceildiv": ((Kind.SIZE, Kind.SIZE), Kind.SIZE),
    "window": (
        (Kind.SIZE, Kind.SIZE, Kind.SIZE, Kind.FLAG, None, Kind.SIZE),
        Kind.SIZE,
    ),
    # A row of them.
    "broadcast": ((Kind.ROW, Kind.ROW, None, Kind.ROW, Kind.ROW), Kind.ROW),
    "dims": ((Kind.SIZE,), Kind.ROW),
    "insert": ((Kind.ROW, Kind.SIZE, Kind.SIZE), Kind.ROW),
    "replace": ((Kind.ROW, Kind.SIZE, Kind.SIZE), Kind.ROW),
    "remove": ((Kind.ROW, Kind.FLAG), Kind.ROW),
    "reduce": ((Kind.ROW, Kind.FLAG, Kind.FLAG), Kind.ROW),
    "squeeze": ((Kind.ROW, Kind.ROW), Kind.ROW),
    "permute": ((Kind.ROW, Kind.ROW), Kind.ROW),
    "pad": ((Kind.ROW, Kind.FLAG), Kind.ROW),
    "tile": ((Kind.ROW, Kind.ROW), Kind.ROW),
    "reshape": ((Kind.ROW, Kind.ROW), Kind.ROW),
}
#: The position in a list of tensors.
INDEX: Final = "i"
_WORDS: Final = ("scalar", "if", "else", "where", "of", "|")
_RESERVED: Final = {*FUNCTIONS, *_WORDS, INDEX, "_", "either", "not", "and", "or", "in"}
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


class ShapeError(ValueError):
    """What is wrong with a shape, and where: an offset in its text."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True)
class Symbol:
    """A name that inputs' shapes give a meaning: a size, or a row of them."""

    name: str
    kind: Kind
    #: Whether each tensor of a list has its own.
    indexed: bool


@dataclass(frozen=True)
class Shapes:
    """The shapes of an op's arguments, as expressions in Python."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    symbols: Mapping[str, Symbol] = field(default_factory=dict)
    #: Attrs that shapes depend on.
    attrs: frozenset[str] = frozenset()
    #: Inputs whose values shapes depend on.
    values: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Misread:
    """A mistake in the shape of the argument `arg`, at an offset in it."""

    arg: str
    offset: int
    message: str


def read(op: Op) -> tuple[Shapes, list[Misread]]:
    """The shapes of `op`, and what is wrong with them."""
    problems: list[Misread] = []
    scope = _Scope(op)
    found: dict[str, str] = {}
    sections = (("inputs", op.inputs), ("outputs", op.outputs))
    for section, args in sections:
        scope.binding = section == "inputs"
        for arg in args:
            if arg.shape is None:
                continue
            scope.arg = arg
            try:
                found[arg.name] = _Parser(arg.shape, scope).shape()
            except ShapeError as error:
                problems.append(Misread(arg.name, error.offset, str(error)))
    for name, (arg_name, offset) in scope.mentioned.items():
        if not name.startswith("_"):
            what = f"{name!r} stands in conditions only; no shape gives it a size"
            problems.append(Misread(arg_name, offset, what))
    return (
        Shapes(
            {arg.name: found[arg.name] for arg in op.inputs if arg.name in found},
            {arg.name: found[arg.name] for arg in op.outputs if arg.name in found},
            dict(scope.symbols),
            frozenset(scope.attrs),
            frozenset(scope.values),
        ),
        problems,
    )


class _Scope:
    """What names mean.

    In this order: an attr; an input's values, unless the input's own shape has the
    name; a size or row that the inputs' shapes name.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self.kinds = {attr.name: attr.kind for attr in op.attrs}
        self.inputs = {arg.name: arg for arg in op.inputs}
        self.symbols: dict[str, Symbol] = {}
        self.attrs: set[str] = set()
        self.values: set[str] = set()
        #: The argument whose shape is read, and whether it may name sizes.
        self.arg = Arg("")
        self.binding = True
        #: Names that stand in conditions alone say nothing: where each stands first.
        self.in_condition = False
        self.mentioned: dict[str, tuple[str, int]] = {}

    def kind(self, name: str, offset: int, wanted: Kind, indexed: bool) -> Kind:
        """What `name` stands for where `wanted` fits best."""
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
        if name in _RESERVED or not re.fullmatch(r"[A-Za-z_]\w*", name):
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
        """Whether the symbol `name` is one for each tensor of a list."""
        known = self.symbols.get(name)
        return known is not None and known.indexed

    def is_rows(self, name: str) -> bool:
        """Whether `name` is an attr that is a list of shapes."""
        return str(self.kinds.get(name)) == "list(shape)"

    def is_symbol(self, name: str) -> bool:
        is_value = name in self.inputs and not self._names_itself(name)
        return name not in self.kinds and not is_value

    def _names_itself(self, name: str) -> bool:
        sizes = _sizes(self.inputs[name].shape or "")
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sizes) is not None

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


class _Parser:
    """One shape: words of sizes, with what stands between them."""

    def __init__(self, text: str, scope: _Scope) -> None:
        self.text = text
        self.scope = scope
        self.words = list(_split(text))
        self.position = 0

    def shape(self) -> str:
        """choice ["of" choice] ["where" condition]"""
        result = self.choice()
        if self.taken("of"):
            self.held()
            result = f"of({result}, {self.choice()})"
        if self.taken("where"):
            result = f"where({result}, {self.condition()})"
        if self.position < len(self.words):
            word, offset = self.words[self.position]
            raise ShapeError(offset, f"{word!r} stands where the shape should end")
        return result

    def held(self) -> None:
        """What stands after `of` is the shape of what a handle leads to."""
        arg = self.scope.arg
        if str(arg.dtype) not in ("resource", "variant") and not arg.is_ref:
            message = f"'of' is for handles, and {arg.name!r} is none"
            raise ShapeError(self.offset(), message)

    def choice(self) -> str:
        """option {"|" option}"""
        options = [self.option()]
        while self.taken("|"):
            options.append(self.option())
        return options[0] if len(options) == 1 else f"either({', '.join(options)})"

    def option(self) -> str:
        """sizes ["if" condition "else" option]"""
        result = self.sizes()
        if self.taken("if"):
            at = self.offset()
            condition = self.condition()
            if not self.taken("else"):
                raise ShapeError(at, "'if' wants an 'else', with the shape otherwise")
            result = f"{result} if {condition} else {self.option()}"
        return result

    def sizes(self) -> str:
        """ "scalar" | size {size}"""
        if self.taken("scalar"):
            return "()"
        sizes = []
        while self.position < len(self.words):
            word, offset = self.words[self.position]
            if word in _WORDS:
                break
            self.position += 1
            sizes.append(self.size(word, offset))
        if not sizes:
            word, offset = (
                self.words[self.position]
                if self.position < len(self.words)
                else ("the end", len(self.text))
            )
            message = f"no sizes before {word!r}; of no dimension is 'scalar'"
            raise ShapeError(offset, message)
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def size(self, word: str, offset: int) -> str:
        if word in ("_", "..."):
            return word
        if word.startswith("*"):
            checked = self.checked(word[1:], offset + 1, Kind.ROW)
            return _starred(checked)
        node = self.parsed(word, offset)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            signature = FUNCTIONS.get(node.func.id)
            if signature is not None and signature[1] is Kind.ROW:
                self.expect(node, offset, Kind.ROW)
                return _starred(node)
        self.expect(node, offset, Kind.SIZE)
        return ast.unparse(node)

    def condition(self) -> str:
        """The words up to the next word that ends a condition."""
        start = self.position
        while self.position < len(self.words) and self.words[self.position][0] not in (
            "else",
            "where",
            "of",
        ):
            self.position += 1
        if self.position == start:
            raise ShapeError(self.offset(), "a condition must follow")
        first = self.words[start][1]
        last, offset = self.words[self.position - 1]
        text = self.text[first : offset + len(last)]
        self.scope.in_condition = True
        try:
            return ast.unparse(self.checked(text, first, Kind.FLAG))
        finally:
            self.scope.in_condition = False

    def taken(self, word: str) -> bool:
        """Takes `word` if it is next."""
        is_next = self.position < len(self.words) and (
            self.words[self.position][0] == word
        )
        self.position += is_next
        return is_next

    def offset(self) -> int:
        """Where the word is that was taken last."""
        return self.words[self.position - 1][1]

    # Expressions are Python's, of which few are allowed.

    def checked(self, text: str, offset: int, wanted: Kind) -> ast.expr:
        node = self.parsed(text, offset)
        self.expect(node, offset, wanted)
        return node

    def parsed(self, text: str, offset: int) -> ast.expr:
        flat = text.replace("\n", " ")
        try:
            return ast.parse(flat, mode="eval").body
        except SyntaxError as error:
            at = offset + max((error.offset or 1) - 1, 0)
            raise ShapeError(at, f"{flat!r} is no expression: {error.msg}") from None

    def expect(self, node: ast.expr, start: int, wanted: Kind) -> None:
        """Checks that `node` is of the kind `wanted`; flags may be anything."""
        kind = self.kind(node, start, wanted)
        if kind is wanted or wanted is Kind.FLAG:
            return
        hint = "; put a * before it" if kind is Kind.ROW and wanted is Kind.SIZE else ""
        message = f"{ast.unparse(node)!r} is {kind.value}, not {wanted.value}{hint}"
        raise ShapeError(start + node.col_offset, message)

    def kind(self, node: ast.expr, start: int, wanted: Kind) -> Kind:
        offset = start + node.col_offset
        if isinstance(node, ast.Name):
            if node.id == INDEX:
                if not self.scope.arg.is_list:
                    message = f"{INDEX!r} counts tensors, and this is no list of them"
                    raise ShapeError(offset, message)
                return Kind.SIZE
            if self.scope.is_indexed(node.id):
                # Of all tensors: what `sum` and `len` take.
                return Kind.ROW
            return self.scope.kind(node.id, offset, wanted, indexed=False)
        if isinstance(node, ast.Constant):
            if type(node.value) is int:
                return Kind.SIZE
            if isinstance(node.value, (str, bool, float)):
                return Kind.FLAG
        elif isinstance(node, ast.BinOp) and isinstance(
            node.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
        ):
            self.expect(node.left, start, Kind.SIZE)
            self.expect(node.right, start, Kind.SIZE)
            return Kind.SIZE
        elif isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.USub):
                self.expect(node.operand, start, Kind.SIZE)
                return Kind.SIZE
            if isinstance(node.op, ast.Not):
                self.expect(node.operand, start, Kind.FLAG)
                return Kind.FLAG
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                self.expect(value, start, Kind.FLAG)
            return Kind.FLAG
        elif isinstance(node, ast.Compare):
            for value in (node.left, *node.comparators):
                self.operand(value, start)
            return Kind.FLAG
        elif isinstance(node, ast.IfExp):
            self.expect(node.test, start, Kind.FLAG)
            result = Kind.ROW if wanted is Kind.ROW else Kind.SIZE
            self.expect(node.body, start, result)
            self.expect(node.orelse, start, result)
            return result
        elif isinstance(node, ast.Subscript):
            return self.subscript(node, start, wanted)
        elif isinstance(node, ast.Call):
            return self.call(node, start)
        elif isinstance(node, ast.Tuple):
            for value in node.elts:
                self.operand(value, start)
            return Kind.FLAG
        message = f"{ast.unparse(node)!r} has no meaning in a shape"
        raise ShapeError(offset, message)

    def operand(self, node: ast.expr, start: int) -> None:
        """What is compared: sizes, texts, flags."""
        is_name = isinstance(node, ast.Name)
        (
            self.expect(node, start, Kind.FLAG)
            if is_name
            else self.kind(node, start, Kind.SIZE)
        )

    def subscript(self, node: ast.Subscript, start: int, wanted: Kind) -> Kind:
        base, index = node.value, node.slice
        if (
            isinstance(base, ast.Name)
            and isinstance(index, ast.Name)
            and index.id == INDEX
        ):
            offset = start + base.col_offset
            if not self.scope.arg.is_list:
                message = f"[{INDEX}] counts tensors, and this is no list of them"
                raise ShapeError(offset, message)
            if self.scope.is_symbol(base.id):
                return self.scope.kind(base.id, offset, wanted, indexed=True)
            kind = self.scope.kind(base.id, offset, Kind.ROW, indexed=False)
            return {Kind.ROWS: Kind.ROW, Kind.ROW: Kind.SIZE}.get(kind, Kind.FLAG)
        if isinstance(base, ast.Subscript):
            self.expect(base, start, Kind.ROW)
            kind = Kind.ROW
        elif isinstance(base, ast.Name) and not self.scope.is_indexed(base.id):
            kind = self.scope.kind(base.id, start + base.col_offset, Kind.ROW, False)
        else:
            kind = self.kind(base, start, Kind.ROW)
        if kind is Kind.ROWS and not isinstance(index, ast.Slice):
            self.expect(index, start, Kind.SIZE)
            return Kind.ROW
        if kind is not Kind.ROW:
            message = f"{ast.unparse(base)!r} is {kind.value}, which has no parts"
            raise ShapeError(start + base.col_offset, message)
        if isinstance(index, ast.Slice):
            for part in (index.lower, index.upper, index.step):
                if part is not None:
                    self.expect(part, start, Kind.SIZE)
            return Kind.ROW
        self.expect(index, start, Kind.SIZE)
        return Kind.SIZE

    def call(self, node: ast.Call, start: int) -> Kind:
        offset = start + node.col_offset
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS or node.keywords:
            functions = ", ".join(FUNCTIONS)
            message = f"{ast.unparse(node)!r} calls no function of: {functions}"
            raise ShapeError(offset, message)
        wanted, result = FUNCTIONS[name]
        kinds = [kind for kind in wanted if kind is not None]
        least = wanted.index(None) if None in wanted else len(kinds)
        if not least <= len(node.args) <= len(kinds):
            message = f"{name} takes {least} arguments, not {len(node.args)}"
            raise ShapeError(offset, message)
        for argument, kind in zip(node.args, kinds, strict=False):
            is_list = isinstance(argument, ast.Name) and self.scope.is_rows(argument.id)
            self.expect(
                argument, start, Kind.FLAG if name == "len" and is_list else kind
            )
        return result


def _starred(node: ast.expr) -> str:
    return ast.unparse(ast.Starred(node, ast.Load()))


def _sizes(text: str) -> str:
    """A shape without its conditions; as it is, if it cannot be read."""
    try:
        words = [word for word, _ in _split(text)]
    except ShapeError:
        return text
    kept, skipping = [], False
    for word in words:
        skipping = word in ("if", "where") or (skipping and word not in ("else", "of"))
        if not skipping:
            kept.append(word)
    return " ".join(kept)


def _split(text: str) -> Iterator[tuple[str, int]]:
    """Words with their offsets; what stands in brackets is one word."""
    depth, start, quote = 0, None, ""
    for offset, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
            start = offset if start is None else start
        elif char.isspace() and depth == 0:
            if start is not None:
                yield text[start:offset], start
            start = None
        else:
            depth += (char in "([") - (char in ")]")
            if depth < 0:
                raise ShapeError(offset, f"{char!r} closes nothing")
            start = offset if start is None else start
    if depth or quote:
        raise ShapeError(start or 0, "a bracket or quote is not closed")
    if start is not None:
        yield text[start:], start
