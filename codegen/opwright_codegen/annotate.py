"""The type annotations of an op: of its type variables, inputs, outputs and attrs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from opwright_codegen import literals, naming
from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.types import (
    ANY_DTYPE,
    ARGUMENT_TYPES,
    FIELD_TYPES,
    NONE,
    PyType,
    dtype,
    named,
    one_of_dtypes,
)

#: Type variables by the type attr that they stand for.
Variables: TypeAlias = Mapping[str, PyType]

#: Only tensors can have these dtypes, not Python values.
_NO_VALUES = ("resource", "variant")


def class_variables(op: Op) -> Variables:
    """The type parameters of the op's class: one for each type attr of an output."""
    names = (arg.type_attr for arg in op.outputs)
    return {
        name: PyType(naming.type_variable(name)) for name in names if name is not None
    }


def function_variables(op: Op) -> Variables:
    """The type variables of `create` and the function: one for each type attr."""
    names = naming.function_variables(op)
    return {attr: PyType(name) for attr, name in names.items()}


def output(arg: Arg, variables: Variables) -> PyType:
    """The type of an output, or of an input that is read from an operation."""
    if arg.dtype is not None:
        inner = dtype(arg.dtype)
    else:
        inner = variables.get(arg.type_attr or "", ANY_DTYPE)
    one = named("Output", inner)
    return named("list", one) if arg.is_list else one


def values(op: Op, variables: Variables) -> PyType:
    """The type that the op's function returns."""
    if not op.outputs:
        return named("Operation") | NONE
    if len(op.outputs) == 1:
        return output(op.outputs[0], variables)
    return PyType(naming.outputs_class(op.name), tuple(variables.values()))


def operand(op: Op, arg: Arg, variables: Variables) -> PyType:
    """The type of the argument for an input."""
    if arg.dtype is not None:
        inner = dtype(arg.dtype)
    elif arg.type_attr is not None:
        inner = variables[arg.type_attr]
    else:
        inner = ANY_DTYPE
    if arg.is_ref or arg.dtype in _NO_VALUES:
        one = named("TensorOperand", inner)
    elif arg.dtype == "string":
        one = named("StringOperand")
    else:
        name = "AnyOperand" if _may_be_text(op, arg) else "Operand"
        one = named(f"Same{name}" if _is_settled(op, arg) else name, inner)
    return named("Sequence", one) if arg.is_list else one


def _is_settled(op: Op, arg: Arg) -> bool:
    """Whether an earlier input has the same type attr."""
    before = op.inputs[: op.inputs.index(arg)]
    return arg.type_attr in {one.type_attr for one in before} - {None}


def _may_be_text(op: Op, arg: Arg) -> bool:
    """Whether an input whose dtype is inferred may have strings."""
    name = arg.type_attr or arg.type_list_attr
    allowed = None if name is None else op.attr(name).allowed
    return arg.dtype is None and (allowed is None or "string" in allowed)


def given(attr: Attr) -> PyType:
    """The type of the argument for an attr."""
    if attr.message is not None:
        return named("MessageLike")
    element = _element(attr, ARGUMENT_TYPES)
    return named("Sequence", element) if attr.kind.is_list else element


def read(attr: Attr) -> PyType:
    """The type of an attr that is read from an operation."""
    if attr.message is not None:
        return named("MessageBytes")
    element = _element(attr, FIELD_TYPES)
    return named("tuple", element, PyType("...")) if attr.kind.is_list else element


def _element(attr: Attr, names: Mapping[str, str]) -> PyType:
    kind = attr.kind.element
    if kind == "string" and attr.allowed:
        return named(
            "Literal", *(PyType(literals.quoted(text)) for text in attr.allowed)
        )
    return named(names[kind])


def dtype_given(attr: Attr) -> PyType:
    """The type of a dtype argument that does not decide the type of an output.

    It accepts the classes of the allowed dtypes, and other names of a dtype
    (`DTypeLike`).
    """
    if attr.allowed is None:
        return given(attr)
    return named("type", one_of_dtypes(attr.allowed)) | named("DTypeLike")


def dtype_followed(variable: PyType) -> PyType:
    """The type of a dtype argument that, as a class, decides the type of outputs."""
    return named("type", variable) | named("DTypeLike")
