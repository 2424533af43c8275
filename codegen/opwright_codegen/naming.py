"""The only module that decides Python identifiers: of ops, arguments and files.

Arguments, outputs and attrs keep the OpDef's names. A name that Python reserves, or
that the generated code itself uses, gets a trailing underscore. The names that
generated code uses are read from the templates.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from opwright_codegen import skeleton
from opwright_codegen.helpers import HELPERS
from opwright_codegen.types import (
    AS_BOOL,
    BINDING,
    BINDING_OF_SOME,
    CONVERTERS,
    MESSAGE_CONVERTER,
    NAMES,
)

if TYPE_CHECKING:
    from opwright_codegen.model import Op


class Identifier(str):
    """A valid Python identifier that clashes with no other name where it is used."""

    __slots__ = ()


#: The public members of the runtime's base class of ops.
OP_MEMBERS: Final = frozenset(
    {"env", "from_operation", "inputs", "kernels", "op", "op_def", "rebuild"}
    | {"runs_on", "tensorflow_doc"}
)
#: The public members of a tensor. An op with one output has them, too.
TENSOR_MEMBERS: Final = frozenset(
    {"as_output", "backing_device", "consumers", "cpu", "device", "dtype", "eval"}
    | {"experimental_ref", "get_shape", "gpu", "graph", "is_packed", "name", "ndim"}
    | {"numpy", "ref", "set_shape", "shape", "value_index"}
)
#: The public members of a tuple.
_TUPLE_MEMBERS: Final = frozenset({"count", "index"})
#: The public members of the runtime's base classes of `Inputs` and of `Options`.
INPUTS_MEMBERS: Final = frozenset(
    {"as_dict", "attribute_names", "attribute_value", "op"}
)
OPTIONS_MEMBERS: Final = frozenset({"as_dict", "explicit", "merge"})

#: The names that the files of an op, of a group and of the top package use themselves.
_FILE: Final = skeleton.names("op.py.jinja", "signature.jinja")
_GROUP: Final = skeleton.names("group.py.jinja").module
_PACKAGE: Final = skeleton.names("package.py.jinja").module
_MODULE: Final = (
    _FILE.module
    | NAMES.keys()
    | (BINDING | BINDING_OF_SOME | HELPERS)
    | {*CONVERTERS.values(), AS_BOOL, MESSAGE_CONVERTER}
)
_ARGUMENT: Final = (
    _MODULE | _FILE.parameters | _FILE.locals | INPUTS_MEMBERS | OPTIONS_MEMBERS
)
# An output may not have the name of a parameter of `create`. For example, `op.name` and
# `op.scope` would look like the arguments of the call.
_OUTPUT: Final = _MODULE | _FILE.parameters | _FILE.members | OP_MEMBERS


@cache
def snake_case(name: str) -> str:
    """`CudnnRNNV3` -> `cudnn_rnn_v3`, `Conv2DBackpropInput` -> `conv2d_backprop_input`.

    A version, a dimension (`2D`) and a sequence of capitals are not divided.
    """
    name = re.sub(r"([A-Za-z0-9])(V\d+)(?=$|[A-Z])", r"\1_\2", name)
    name = re.sub(r"(\dD)(?=[A-Z])", r"\1_", name)
    name = re.sub(r"([a-z])([A-Z])", r"\1_\2", name)
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    name = re.sub(r"(\d)([A-CE-Z][a-z])", r"\1_\2", name)
    return re.sub(r"_+", "_", name).lower().strip("_")


@cache
def class_name(op_name: str) -> Identifier:
    """The name of an op's class: the OP_NAME, or `AddonsRoll` for `Addons>Roll`."""
    return _apart(op_name.replace(">", ""), _MODULE)


@cache
def function_name(op_name: str) -> Identifier:
    """The name of an op's function. It is `if_` or `assert_` for a Python keyword."""
    name = "_".join(snake_case(part) for part in op_name.split(">"))
    return _apart(name, _MODULE | _GROUP)


@cache
def module_name(op_name: str) -> Identifier:
    """The name of an op's module, which is that of its function."""
    return function_name(op_name)


def _apart(name: str, reserved: frozenset[str]) -> Identifier:
    """`name`, with an underscore if Python or generated code uses that name."""
    return Identifier(
        f"{name}_" if keyword.iskeyword(name) or name in reserved else name
    )


def argument(name: str) -> Identifier:
    """The name of an input or attr in `create`, functions, `Inputs` and `Options`."""
    return _apart(name, _ARGUMENT)


def output(name: str, *, only: bool = False) -> Identifier:
    """The name of an output, an attribute of the op's class.

    `only`: whether it is the only output, and a tensor. The op then has the attributes
    of a tensor, too.
    """
    return _apart(name, _OUTPUT | TENSOR_MEMBERS if only else _OUTPUT)


def outputs_class(op_name: str) -> Identifier:
    """The name of the named tuple that a function with several outputs returns."""
    return Identifier(f"{class_name(op_name)}Outputs")


def field(name: str) -> Identifier:
    """The name of an output in the named tuple of outputs."""
    return _apart(name, _OUTPUT | _TUPLE_MEMBERS)


def type_variable(attr: str) -> Identifier:
    """The type variable of an op's class for a type attr: `T`, `Tidx`, `OutType`."""
    name = "".join(part[:1].upper() + part[1:] for part in attr.split("_"))
    return _apart(name, _MODULE)


def function_variables(op: Op) -> dict[str, Identifier]:
    """Type variables of `create` and the function, by attr: `U`, `Uidx`, `UOutType`.

    If the op has an attr or type variable of that name, the next letter is used.
    """
    attrs = [attr.name for attr in op.attrs if attr.kind == "type"]
    taken = {*map(type_variable, attrs), *(attr.name for attr in op.attrs)}
    variables: dict[str, Identifier] = {}
    for attr in attrs:
        name = type_variable(attr)
        tail = name[1:] if name.startswith("T") else name
        variable = next(
            variable
            for letter in _letters()
            if (variable := letter + tail) not in taken
        )
        taken.add(variable)
        variables[attr] = Identifier(variable)
    return variables


def _letters() -> Iterator[str]:
    for times in itertools.count(1):
        for letter in "UVWXYZ":
            yield letter * times


def import_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names in the order of import sorters: constants, classes, functions."""

    def key(name: str) -> tuple[int, list[str | int]]:
        kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
        parts = re.split(r"(\d+)", name)
        return kind, [int(part) if part.isdigit() else part for part in parts]

    return tuple(sorted(names, key=key))


def public_names(op_name: str) -> dict[str, Identifier]:
    """The names of an op in its group's package: by "class", "function" and others."""
    return {
        "class": class_name(op_name),
        "function": function_name(op_name),
        "module": module_name(op_name),
    }


def group_clashes(group: str) -> Iterator[str]:
    """The reasons why `group` cannot be the name of a package."""
    for place, part in enumerate(group.split(".")):
        reserved = _GROUP if place else _PACKAGE
        if keyword.iskeyword(part) or part in reserved:
            yield (
                f"the group {group!r} would be a package named {part!r}, a name that"
                " Python or the package around it has; rename the group"
            )


def clashes(op: Op) -> Iterator[tuple[str, str]]:
    """Names of an op that are equal in Python, each with the reason.

    The name is that of an attr, an argument or the op itself.
    """
    cls = class_name(op.name)
    inputs = [arg.name for arg in op.inputs]
    outputs = [arg.name for arg in op.outputs]
    attrs = [attr.name for attr in op.attrs]
    variables = [attr.name for attr in op.attrs if attr.kind == "type"]
    classes = {
        name: f"class {name!r}" for name in (cls, f"{cls}Inputs", f"{cls}Outputs")
    }
    setters = {
        f"with_{argument(attr.name)}": f"setter of {attr.name!r}" for attr in op.options
    }
    for what, names, spell, others in (
        ("input or attr", [*inputs, *attrs], argument, classes | setters),
        ("output", outputs, partial(output, only=op.is_tensor), {}),
        ("type variable", variables, type_variable, classes),
    ):
        taken = dict(others)
        for name in names:
            other = taken.setdefault(spell(name), f"{what} {name!r}")
            if other != f"{what} {name!r}":
                yield (
                    name,
                    f"{what} {name!r} would be named {spell(name)!r} in Python, as the"
                    f" {other} is; rename one of them",
                )
