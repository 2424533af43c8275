"""The signatures of `create`, with overloads for dtypes that have a default."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from opwright_codegen import annotate, literals, naming
from opwright_codegen.annotate import Variables
from opwright_codegen.model import Attr, Op
from opwright_codegen.types import PyType, dtype, dtype_text, named


@dataclass(frozen=True)
class Field:
    """A name with its type: an output, an option, a parameter, a field of `Inputs`.

    `default` is the source of an expression, or a PyType if the default is a class.
    """

    name: str
    annotation: PyType
    default: PyType | str | None = None

    @property
    def parameter(self) -> str:
        text = f"{self.name}: {self.annotation}"
        return text if self.default is None else f"{text} = {self.default}"


@dataclass(frozen=True)
class Signature:
    """What a signature of `create` and one of the op's function have in common.

    `create` also has the scope, the function also has `name`, and both have options.
    `returns` is the type that `create` returns, `values` the one the function returns.
    """

    positional: tuple[Field, ...]
    keywords: tuple[Field, ...]
    returns: PyType
    values: PyType

    @property
    def parameters(self) -> tuple[Field, ...]:
        return self.positional + self.keywords

    def types(self) -> Iterator[PyType]:
        """All type expressions in the signature, with their parts."""
        for field in self.parameters:
            yield from field.annotation.walk()
        yield from self.returns.walk()
        yield from self.values.walk()


def signatures(
    op: Op, variables: Variables, function_variables: Variables
) -> tuple[Signature, tuple[Signature, ...]]:
    """The signature of `create`, and its overloads.

    If a dtype is passed as a class, or is the default, type checkers know the dtype of
    the outputs. If it is passed as a `tf.DType` or by name, they do not. Its type
    variable then has its own default, `AnyDType`.

    Args:
      op: the op.
      variables: the type parameters of its class.
      function_variables: the type variables of its functions.
    """
    optional = [attr.name for attr in op.keywords if attr.name in variables]

    def build(left_out: Collection[str], implementation: bool = False) -> Signature:
        """`left_out`: the optional dtypes that a call does not pass."""
        inferred = {
            name: (
                _default(op.attr(name))
                if name in left_out
                else function_variables[name]
            )
            for name in variables
        }
        return Signature(
            tuple(
                Field(
                    naming.argument(arg.name),
                    annotate.operand(op, arg, function_variables),
                )
                for arg in op.inputs
            )
            + tuple(
                Field(naming.argument(attr.name), annotation(attr))
                for attr in op.arguments
            ),
            tuple(
                keyword(attr, left_out, implementation)
                for attr in op.keywords
                # If a call leaves out only some dtypes, its signature has no parameters
                # for these. Otherwise it would overlap with a signature that has them.
                if attr.name not in left_out or len(left_out) == len(optional)
            ),
            PyType(naming.class_name(op.name), tuple(inferred.values())),
            annotate.values(op, inferred),
        )

    def annotation(attr: Attr) -> PyType:
        if attr.kind != "type":
            return annotate.given(attr)
        if attr.name in variables:
            return annotate.dtype_followed(function_variables[attr.name])
        return annotate.dtype_given(attr)

    def keyword(attr: Attr, left_out: Collection[str], implementation: bool) -> Field:
        name, default = naming.argument(attr.name), _default(attr)
        if attr.name in left_out:
            return Field(name, named("type", default), default)
        if attr.name not in variables:
            return Field(name, annotation(attr), default)
        # A class cannot be the default of a parameter whose type is a type variable.
        # The name of a dtype can.
        text = (
            literals.quoted(dtype_text(str(attr.default))) if implementation else None
        )
        return Field(name, annotation(attr), text)

    if not optional:
        return build((), implementation=True), ()
    overloads = tuple(
        build(left_out)
        for count in range(len(optional), -1, -1)
        for left_out in itertools.combinations(optional, count)
    )
    return build((), implementation=True), overloads


def _default(attr: Attr) -> PyType:
    """The class of the dtype that is an attr's default."""
    return dtype(str(attr.default))
