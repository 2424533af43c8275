"""Reads the conditions of an op (`requires`), checks them, and writes them in Python.

`opwright_notation.conditions` reads a condition as an expression. This module checks
the names and kinds in it. An op's class contains the text. Its module contains a
function for the same conditions, which calls evaluate before TensorFlow's fast path.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from opwright_codegen import naming, once
from opwright_codegen.helpers import (
    BUILTINS,
    DTYPE_OF,
    HELPERS,
    OF_ATTR,
    OF_FUNCTION,
    SOME_DTYPE_OF,
    TENSORS_OF,
)
from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.nodes import did_you_mean
from opwright_notation import conditions, syntax
from opwright_notation.conditions import (
    CROSSES,
    EAGER,
    HOLDS,
    JOINT,
    MEMORY,
    MOST_TEXTS,
    OF_HANDLES,
    OF_LISTS,
    OF_TEXT,
    PROPERTIES,
    RUNS,
    SHARED,
    TABLE,
    THREADS,
)
from opwright_notation.functions import COMPARISONS, FUNCTIONS, OPERATORS, Kind
from opwright_notation.syntax import ShapeError

#: Kinds of attrs. Other lists are rows, and all other attrs are flags.
_KIND_OF_ATTR: Final = {
    "int": Kind.SIZE,
    "float": Kind.SIZE,
    "shape": Kind.ROW,
    "list(shape)": Kind.ROWS,
}
#: Properties of the values in an attr, with the kinds to which they apply.
_OF_ATTRS: Final = {
    "least": (Kind.ROW,),
    "most": (Kind.ROW,),
    "finite": (Kind.ROW, Kind.SIZE),
    "positives": (Kind.ROW,),
    "ranks": (Kind.ROWS,),
    "products": (Kind.ROWS,),
    "extents": (Kind.ROWS,),
}


_ATTRS_ONLY: Final = {
    "positives": "a list of numbers",
    "ranks": "a list of shapes",
    "products": "a list of shapes",
    "extents": "a list of shapes",
    "results": "functions",
    "parameters": "functions",
}


@dataclass(frozen=True)
class Misread:
    """A mistake in the condition at `index`, at an offset in its text."""

    index: int
    offset: int
    message: str


@dataclass(frozen=True)
class Requirements:
    """The conditions of an op as Python.

    Attributes:
        parameters: the inputs and attrs that the function takes, in their order.
        condition: the expression; "" for an op without conditions.
        helpers: the runtime's names that it uses.
        of_tensors: an expression that takes less time. If it is true, all inputs are
            eager tensors, and the condition holds. "" if there is none.
    """

    parameters: tuple[Arg | Attr, ...] = ()
    condition: str = ""
    helpers: frozenset[str] = field(default_factory=frozenset)
    of_tensors: str = ""


def read(op: Op) -> list[Misread]:
    """The mistakes in the conditions of `op`."""
    problems: list[Misread] = []
    for index, text in enumerate(op.requires):
        try:
            _Check(op).condition(conditions.read(text))
        except ShapeError as error:
            problems.append(Misread(index, error.offset, str(error)))
    return problems


def in_python(op: Op) -> Requirements:
    """The conditions of `op`, which have no mistakes, as one expression."""
    if not op.requires:
        return Requirements()
    writer = _Writer(op)
    parts = [
        part
        for text in op.requires
        for part in writer.condition(conditions.parsed(text))
        if not _is_true(part)
    ]
    if not parts:
        return Requirements()
    used: list[Arg | Attr] = [*op.inputs, *op.given]
    parts = once.computed(parts)
    called = {name for part in parts for name in once.called(part)}
    of_tensors = _of_tensors(op)
    return Requirements(
        tuple(each for each in used if each.name in writer.used),
        " and ".join(map(_text, parts)),
        frozenset(called & HELPERS | ({_OF_TENSORS} if of_tensors else set())),
        of_tensors,
    )


def _is_true(part: ast.expr) -> bool:
    """Whether a condition holds in each eager call."""
    first = part.values[0] if isinstance(part, ast.BoolOp) else part
    return isinstance(first, ast.Constant) and first.value is True


#: The runtime's function that `Requirements.of_tensors` calls.
_OF_TENSORS: Final = "can_broadcast"


def _of_tensors(op: Op) -> str:
    """`Requirements.of_tensors` of an op whose only condition is on their broadcast."""
    if len(op.requires) != 1 or op.truncated:
        return ""
    found = conditions.bounded(conditions.parsed(op.requires[0]))
    if found is None or found[0] != [arg.name for arg in op.inputs]:
        return ""
    names, bound = found
    if bound != 2**63:
        return ""
    return f"{_OF_TENSORS}({', '.join(map(naming.argument, names))})"


def _text(part: ast.expr) -> str:
    text = ast.unparse(part)
    match part:
        case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() as each]):
            return f"all{ast.unparse(each)}"
        case ast.BoolOp() | ast.IfExp():
            return f"({text})"
    return text


class _Check:
    """Checks the names and kinds of one condition."""

    def __init__(self, op: Op) -> None:
        self.attrs = {attr.name: attr for attr in op.attrs}
        self.inputs = {arg.name: arg for arg in op.inputs}

    def condition(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name) if self.is_when(name, EAGER):
                return
            case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)) if self.is_when(
                name, RUNS
            ):
                return
            case ast.BoolOp(
                op=ast.Or(), values=[ast.Name(id=name), *rest]
            ) if self.is_when(name, EAGER):
                self.flags(rest)
                return
        self.kind(node)
        if not syntax.names_in(node):
            message = f"{ast.unparse(node)!r} is about no input and no attr"
            raise ShapeError(node.col_offset, message)

    def is_when(self, name: str, when: str) -> bool:
        return name == when and name not in self.attrs

    def expect(self, node: ast.expr, *wanted: Kind) -> None:
        kind = self.kind(node)
        if kind not in wanted and Kind.FLAG not in wanted:
            words = " or ".join(each.value for each in wanted)
            message = f"{ast.unparse(node)!r} is {kind.value}, not {words}"
            raise ShapeError(node.col_offset, message)

    def kind(self, node: ast.expr) -> Kind:
        match node:
            case ast.Name():
                return self.name(node)
            case ast.Constant(value=str() | bool()):
                return Kind.FLAG
            case ast.Constant(value=int() | float()):
                return Kind.SIZE
            case ast.BinOp(op=ast.Pow(), left=ast.Constant(), right=ast.Constant()):
                return Kind.SIZE
            case ast.BinOp() if type(node.op) in OPERATORS:
                self.expect(node.left, Kind.SIZE)
                self.expect(node.right, Kind.SIZE)
                return Kind.SIZE
            case ast.UnaryOp(op=ast.USub()):
                self.expect(node.operand, Kind.SIZE)
                return Kind.SIZE
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.kind(operand)
                return Kind.FLAG
            case ast.BoolOp():
                return self.flags(node.values)
            case ast.Compare() if {*map(type, node.ops)} <= COMPARISONS.keys():
                return self.flags((node.left, *node.comparators))
            case ast.Tuple():
                return self.flags(node.elts)
            case ast.IfExp():
                self.kind(node.test)
                kind = self.kind(node.body)
                self.expect(node.orelse, kind)
                return kind
            case ast.Subscript():
                return self.part(node)
            case ast.Call():
                return self.call(node)
        message = f"{ast.unparse(node)!r} has no meaning in a condition"
        raise ShapeError(node.col_offset, message)

    def flags(self, nodes: Iterable[ast.expr]) -> Kind:
        for node in nodes:
            self.kind(node)
        return Kind.FLAG

    def name(self, node: ast.Name) -> Kind:
        attr = self.attrs.get(node.id)
        if attr is not None:
            other = Kind.ROW if attr.kind.is_list else Kind.FLAG
            return _KIND_OF_ATTR.get(str(attr.kind), other)
        if node.id in self.inputs:
            some = "rank, elements, shape, value"
            message = f"{node.id!r} is an input; name a property of it: {some}, ..."
        else:
            hint = did_you_mean(node.id, [*self.attrs, *self.inputs])
            message = f"{node.id!r} is neither an attr nor an input{hint}"
        raise ShapeError(node.col_offset, message)

    def part(self, node: ast.Subscript) -> Kind:
        kind = self.kind(node.value)
        if kind not in (Kind.ROW, Kind.ROWS):
            message = f"{ast.unparse(node.value)!r} is {kind.value}, without parts"
            raise ShapeError(node.col_offset, message)
        if isinstance(node.slice, ast.Slice):
            for part in (node.slice.lower, node.slice.upper, node.slice.step):
                if part is not None:
                    self.expect(part, Kind.SIZE)
            return kind
        self.expect(node.slice, Kind.SIZE)
        return Kind.SIZE if kind is Kind.ROW else Kind.ROW

    def call(self, node: ast.Call) -> Kind:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        known = (*PROPERTIES, *JOINT, HOLDS, TABLE, MEMORY, THREADS, *SHARED)
        if name not in known or node.keywords:
            message = f"{ast.unparse(node)!r} calls no function of: {', '.join(known)}"
            raise ShapeError(node.col_offset, message)
        least = 2 if name in (HOLDS, MEMORY, "batched", "distinct", "spans") else 1
        if len(node.args) < least:
            message = f"{name} takes at least {least} arguments, not {len(node.args)}"
            raise ShapeError(node.col_offset, message)
        if name == MEMORY:
            self.dtype(node.args[0])
            for size in node.args[1:]:
                self.expect(size, Kind.SIZE, Kind.ROW)
            return Kind.FLAG
        if name == THREADS:
            if len(node.args) != 1:
                message = f"{name} takes 1 argument, not {len(node.args)}"
                raise ShapeError(node.col_offset, message)
            self.expect(node.args[0], Kind.SIZE)
            return Kind.FLAG
        if name == TABLE:
            if len(node.args) != 3:
                message = f"{name} takes 3 arguments, not {len(node.args)}"
                raise ShapeError(node.col_offset, message)
            self.handle(node.args[0])
            self.dtype(node.args[1])
            self.dtype(node.args[2])
            return Kind.FLAG
        if name == HOLDS:
            for argument in node.args[:-1]:
                self.handle(argument)
            self.dtype(node.args[-1])
            return Kind.FLAG
        if name in JOINT:
            return self.joint(node, name)
        if name in PROPERTIES:
            more = PROPERTIES[name].more
            inputs, sizes = node.args[: len(node.args) - more], node.args[-more:]
            for argument in inputs:
                self.property(name, argument)
            for argument in sizes if more else ():
                self.expect(argument, Kind.SIZE)
            return PROPERTIES[name].gives
        return self.shared(node, name)

    def joint(self, node: ast.Call, name: str) -> Kind:
        """A function of several inputs."""
        inputs, kind = JOINT[name]
        number = inputs + (name in OF_TEXT)
        most = inputs + MOST_TEXTS.get(name, number - inputs)
        if name == CROSSES:
            number -= 1  # Its last list may be missing.
        if not number <= len(node.args) <= most:
            takes = f"{number}" if number == most else f"{number} to {most}"
            message = f"{name} takes {takes} arguments, not {len(node.args)}"
            raise ShapeError(node.col_offset, message)
        for argument in node.args[inputs:]:
            self.text(argument)
        handles = OF_HANDLES.get(name, 0)
        for argument in node.args[:handles]:
            self.handle(argument)
        for argument in node.args[handles:inputs]:
            if name in OF_LISTS:
                self.list_of_tensors(argument)
            self.property(name, argument)
        return kind

    def text(self, node: ast.expr) -> None:
        attr = self.attrs.get(node.id) if isinstance(node, ast.Name) else None
        if attr is None or attr.kind != "string":
            message = f"{ast.unparse(node)!r} is no attr that is text"
            raise ShapeError(node.col_offset, message)

    def list_of_tensors(self, node: ast.expr) -> None:
        arg = self.inputs.get(node.id) if isinstance(node, ast.Name) else None
        if arg is None or not arg.is_list:
            message = f"{ast.unparse(node)!r} is no list of tensors"
            raise ShapeError(node.col_offset, message)

    def shared(self, node: ast.Call, name: str) -> Kind:
        """A function that shapes have, too."""
        (*arguments,) = node.args
        function = FUNCTIONS[name]
        most = len(function.takes)
        least = most - function.optional
        if not least <= len(arguments) <= most:
            takes = f"{least} to {most}" if function.optional else f"{most}"
            message = f"{name} takes {takes} arguments, not {len(arguments)}"
            instead = {"min": "least", "max": "most"}.get(name)
            hint = ""
            if instead is not None and len(arguments) == 1:
                hint = f" (did you mean {instead}({ast.unparse(arguments[0])})?)"
            raise ShapeError(node.col_offset, message + hint)
        for argument, parameter in zip(arguments, function.takes, strict=False):
            is_list = isinstance(argument, ast.Name) and (
                argument.id in self.inputs and self.inputs[argument.id].is_list
            )
            if name == "len" and (is_list or self.has_length(argument)):
                continue
            self.expect(argument, parameter.kind)
        return function.gives

    def has_length(self, argument: ast.expr) -> bool:
        """Whether `len` applies, though it is no row of sizes."""
        attr = self.attrs.get(argument.id) if isinstance(argument, ast.Name) else None
        is_text = attr is not None and attr.kind == "string"
        return is_text or self.kind(argument) is Kind.ROWS

    def property(self, name: str, argument: ast.expr) -> None:
        named, at = conditions.input_named(argument)
        if named in self.inputs:
            if name in _ATTRS_ONLY:
                message = f"{name!r} is of {_ATTRS_ONLY[name]}, not of {named!r}"
                raise ShapeError(argument.col_offset, message)
            if at is not None and not self.inputs[named].is_list:
                message = f"{named!r} is one tensor, without parts"
                raise ShapeError(argument.col_offset, message)
            if name in ("held", "matrix", "removable", "shards"):
                self.handle(argument)
            return
        if name in ("results", "parameters"):
            if named not in self.attrs or self.attrs[named].kind != "func":
                message = f"{name!r} is of functions, and {named!r} is none"
                raise ShapeError(argument.col_offset, message)
            return
        kinds = _OF_ATTRS.get(name)
        if kinds is None:
            text = ast.unparse(argument)
            hint = did_you_mean(text, self.inputs)
            message = f"{name!r} is of inputs, and {text!r} is none{hint}"
            raise ShapeError(argument.col_offset, message)
        self.expect(argument, *kinds)

    def handle(self, argument: ast.expr) -> None:
        arg = self.inputs.get(argument.id) if isinstance(argument, ast.Name) else None
        if arg is None or not _is_handle(arg):
            message = f"it takes handles, and {ast.unparse(argument)!r} is none"
            raise ShapeError(argument.col_offset, message)

    def dtype(self, node: ast.expr) -> None:
        attr = self.attrs.get(node.id) if isinstance(node, ast.Name) else None
        if attr is not None and attr.kind == "type":
            return
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return
        message = f"{ast.unparse(node)!r} is no dtype: neither text nor an attr of type"
        raise ShapeError(node.col_offset, message)


def _is_handle(arg: Arg) -> bool:
    """Whether an input is a handle, or a reference to a handle or a variable."""
    return arg.is_ref or arg.dtype in ("resource", "variant")


class _Writer(ast.NodeTransformer):
    """Writes conditions as expressions over a call's arguments.

    `used`: the inputs and attrs that they need.
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        self.attrs = {attr.name: attr for attr in op.attrs}
        self.inputs = {arg.name: arg for arg in op.inputs}
        self.used: set[str] = set()

    def condition(self, node: ast.expr) -> list[ast.expr]:
        """The parts of a condition, all of which have to hold."""
        parts = _with_all_handles(conditions.conjuncts(node))
        return [self.one(_with_elements_first(part)) for part in parts]

    def one(self, node: ast.expr) -> ast.expr:
        lists = self.lists_in(node)
        if lists and isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            first, *others = node.values
            if not self.lists_in(first):
                # It is the same for each tensor, and spares a look at all of them.
                rest = others[0] if len(others) == 1 else ast.BoolOp(ast.Or(), others)
                parts = [self.visit(deepcopy(first)), self.one(rest)]
                return ast.BoolOp(ast.Or(), parts)
        found: ast.expr = self.visit(deepcopy(node))
        if not lists:
            return found
        text = _text(found)
        each = [self.helper(TENSORS_OF, self.local(name)) for name in lists]
        names = [f"_{name}" for name in lists]
        if len(lists) == 1:
            return _expression(f"all({text} for {names[0]} in {each[0]})")
        loops = f"({', '.join(names)}) in zip({', '.join(each)})"
        return _expression(f"all({text} for {loops})")

    def lists_in(self, node: ast.expr) -> list[str]:
        """The lists of tensors for each tensor of which a condition stands."""
        inputs = conditions.whole_inputs_in(node, self.inputs)
        return [name for name in inputs if self.inputs[name].is_list]

    def helper(self, name: str, *arguments: str) -> str:
        return f"{name}({', '.join(arguments)})"

    def local(self, name: str) -> str:
        """The parameter for an input or attr."""
        self.used.add(name)
        return parameter(name)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        attr = self.attrs.get(node.id)
        if attr is None:
            # EAGER or RUNS.
            return ast.Constant(True)
        if attr.name not in self.op.inferred:
            value = self.local(attr.name)
            convert = OF_ATTR.get(str(attr.kind))
            return _expression(self.helper(convert, value) if convert else value)
        args = [arg for arg in self.op.inputs if attr.name in arg.attrs_used]
        if attr.kind == "type":
            return self.dtype(node, DTYPE_OF)
        length = f"len({self.helper(TENSORS_OF, self.local(args[0].name))})"
        return _expression(length)

    def dtype(self, node: ast.expr, helper: str) -> ast.expr:
        """A dtype. If inputs decide it, `helper` finds it out from them."""
        name = node.id if isinstance(node, ast.Name) else ""
        if name not in self.op.inferred:
            found: ast.expr = self.visit(node)
            return found
        args = [arg for arg in self.op.inputs if name in arg.attrs_used]
        return _expression(self.helper(helper, *(self.local(arg.name) for arg in args)))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        python = OF_FUNCTION.get(name, name)
        if name == MEMORY:
            first = self.dtype(node.args[0], SOME_DTYPE_OF)
            arguments = [first, *(self.argument(name, n) for n in node.args[1:])]
        else:
            arguments = [self.argument(name, argument) for argument in node.args]
        if name == HOLDS:
            arguments = [arguments[-1], *arguments[:-1]]
        if name == "len" and isinstance(node.args[0], ast.Name):
            attr = self.attrs.get(node.args[0].id)
            if attr is not None and attr.name in self.op.inferred:
                # The length of an inferred list of dtypes is that of the input.
                return arguments[0]
            if attr is not None and attr.kind == "list(shape)":
                arguments = [_expression(self.local(attr.name))]
        return ast.Call(ast.Name(python, ast.Load()), arguments, [])

    def argument(self, function: str, node: ast.expr) -> ast.expr:
        named, at = conditions.input_named(node)
        if function in OF_TEXT and named in self.attrs:
            # It may be bytes that are no text.
            return _expression(self.local(named))
        if named not in self.inputs:
            found: ast.expr = self.visit(node)
            return found
        arg = self.inputs[named]
        if at is not None:
            tensors = self.helper(TENSORS_OF, self.local(named))
            return _expression(f"{tensors}[{at}]")
        if function == "len":
            return _expression(self.helper(TENSORS_OF, self.local(arg.name)))
        if function in OF_LISTS:
            return _expression(self.local(arg.name))
        local = self.local(arg.name)
        return ast.Name(f"_{arg.name}" if arg.is_list else local, ast.Load())


def parameter(name: str) -> str:
    """The parameter of `_holds` for an input or attr."""
    spelled = naming.argument(name)
    return f"{spelled}_" if spelled in BUILTINS else spelled


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _with_all_handles(parts: Iterable[ast.expr]) -> Iterable[ast.expr]:
    """`parts`, in which handles that hold the same dtype are in one call."""
    found: list[ast.expr] = []
    for part in parts:
        last = found[-1] if found else part
        if (
            last is not part
            and syntax.is_call(part, HOLDS)
            and syntax.is_call(last, HOLDS)
            and ast.dump(part.args[-1]) == ast.dump(last.args[-1])
        ):
            handles = [*last.args[:-1], *part.args]
            found[-1] = ast.Call(last.func, handles, [])
        else:
            found.append(part)
    return found


def _with_elements_first(node: ast.expr) -> ast.expr:
    """A condition of a broadcast shape, with a test before it that takes less time."""
    found = conditions.bounded(node)
    if found is None:
        return node
    names, bound = found
    product = " * ".join(f"elements({name})" for name in names)
    first = _expression(f"0 < {product} < {bound}")
    return ast.BoolOp(ast.Or(), [first, node])


def words(texts: Sequence[str]) -> str:
    """Conditions, as documentation lists them."""
    return ", ".join(f"`{' '.join(text.split())}`" for text in texts)
