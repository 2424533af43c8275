"""The only home of Python identifiers: how an op, argument or file is named.

Arguments, outputs and attrs keep the OpDef's own names; one that Python reserves, or
that the generated code needs itself, gets a trailing underscore.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opwright_codegen.model import Op


class Identifier(str):
    """A valid Python identifier, safe where it is used."""

    __slots__ = ()


#: What annotations in class bodies refer to; a field of that name would hide it.
_BUILTINS: Final = frozenset({"bool", "float", "int", "list", "str"})
#: Locals and parameters of every generated function.
_LOCALS: Final = frozenset(
    {"context", "default", "execute", "graphs", "name", "op", "options", "opts"}
    | {"refusal", "scope", "self", "cls"}
)
#: What the base classes of generated classes define.
_OP_MEMBERS: Final = frozenset(
    {"Inputs", "OP_NAME", "Options", "PYTHON_NAMES", "as_output", "create", "env"}
    | {"from_operation", "inputs", "kernels", "op", "op_def", "tensorflow_doc"}
)
_INPUTS_MEMBERS: Final = frozenset(
    {"as_dict", "attribute_names", "attribute_value", "op", "op_class"}
)
_OPTIONS_MEMBERS: Final = frozenset({"as_dict", "explicit", "merge"})
#: Names that the files of ops import or define; an op of that name would hide them.
_FILE_NAMES: Final = frozenset(
    {"DEFAULTS", "Generic", "Literal", "Op", "OpInputs", "OpOptions"}
    | {"Operand", "Output", "Scope", "Self", "Sequence", "TYPE_CHECKING", "TypeVar"}
    | {"as_dtype", "as_dtypes", "context", "default", "deprecated", "execute"}
    | {"graphs", "overload"}
)


@cache
def snake_case(name: str) -> str:
    """`CudnnRNNV3` -> `cudnn_rnn_v3`, `Conv2DBackpropInput` -> `conv2d_backprop_input`.

    A version, a dimension (`2D`) and a run of capitals stay in one piece.
    """
    name = re.sub(r"([A-Za-z0-9])(V\d+)(?=$|[A-Z])", r"\1_\2", name)
    name = re.sub(r"(\dD)(?=[A-Z])", r"\1_", name)
    name = re.sub(r"([a-z])([A-Z])", r"\1_\2", name)
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    name = re.sub(r"(\d)([A-CE-Z][a-z])", r"\1_\2", name)
    return re.sub(r"_+", "_", name).lower().strip("_")


@cache
def class_name(op_name: str) -> Identifier:
    """The class of an op: its OP_NAME, `Addons>Op` as `AddonsOp`."""
    return Identifier(op_name.replace(">", ""))


@cache
def function_name(op_name: str) -> Identifier:
    """The function of an op; `if_`, `assert_` where Python has a keyword."""
    name = "_".join(snake_case(part) for part in op_name.split(">"))
    return Identifier(name + "_" if _reserved(name) else name)


@cache
def module_name(op_name: str) -> Identifier:
    """The file of an op, named as its function."""
    return function_name(op_name)


def _reserved(name: str) -> bool:
    return keyword.iskeyword(name) or name in _FILE_NAMES


def argument(name: str) -> Identifier:
    """An input, output or attr wherever generated code names it."""
    if keyword.iskeyword(name) or name in _BUILTINS or name in _LOCALS:
        return Identifier(name + "_")
    return Identifier(name)


def output(name: str) -> Identifier:
    """An output: an attribute of the op's class."""
    spelled = argument(name)
    return Identifier(spelled + "_") if spelled in _OP_MEMBERS else spelled


def view(name: str) -> Identifier:
    """An input or attr: an attribute of the op's `Inputs`."""
    spelled = argument(name)
    return Identifier(spelled + "_") if spelled in _INPUTS_MEMBERS else spelled


def option(name: str) -> Identifier:
    """An option: a field of the op's `Options`."""
    spelled = argument(name)
    return Identifier(spelled + "_") if spelled in _OPTIONS_MEMBERS else spelled


def type_variable(attr: str) -> Identifier:
    """The type variable of a class for a type attr: `T`, `Tidx`, `OutType`."""
    return Identifier("".join(part[:1].upper() + part[1:] for part in attr.split("_")))


def function_variables(attrs: Sequence[str]) -> dict[str, Identifier]:
    """Their twins for `create` and the function: `U`, `Uidx`, `UOutType`.

    The next letter serves where that is the name of another type attr.
    """
    taken: set[str] = set(map(type_variable, attrs))
    twins: dict[str, Identifier] = {}
    for attr in attrs:
        name = type_variable(attr)
        tail = name[1:] if name.startswith("T") else name
        twin = next(letter + tail for letter in "UVWXYZ" if letter + tail not in taken)
        taken.add(twin)
        twins[attr] = Identifier(twin)
    return twins


def public_names(op_name: str) -> Iterator[tuple[str, str]]:
    """The names that `op_name` takes: among all ops, then in its package."""
    yield "op", op_name
    yield "class", class_name(op_name)
    yield "function", function_name(op_name)
    yield "module", module_name(op_name)


def clashes(op: Op) -> Iterator[str]:
    """Names of one op that come out the same in Python, in words."""
    if class_name(op.name) in _FILE_NAMES or keyword.iskeyword(class_name(op.name)):
        yield (
            f"the class would be named {class_name(op.name)!r}, which Python or every"
            " generated file uses itself; rename the op"
        )
    parameters = [arg.name for arg in op.inputs] + [
        attr.name for attr in (*op.required, *op.options)
    ]
    for what, names, spell in (
        ("arguments", parameters, argument),
        ("outputs", [arg.name for arg in op.outputs], output),
        ("options", [attr.name for attr in op.options], option),
        (
            "type variables",
            [a.name for a in op.attrs if a.kind == "type"],
            type_variable,
        ),
    ):
        taken: dict[str, str] = {}
        for name in names:
            other = taken.setdefault(spell(name), name)
            if other != name:
                yield (
                    f"{what} {other!r} and {name!r} would both be named"
                    f" {spell(name)!r} in Python; rename one of them"
                )
