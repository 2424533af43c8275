"""The semantic model of an op: frozen, complete, free of I/O.

A model says everything a TensorFlow OpDef says but its prose, plus what is written
by hand: documentation, the group, the forward op that an op differentiates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from opwright_codegen.types import AttrKind, DTypeName


@dataclass(frozen=True)
class TensorValue:
    """A tensor-valued default: dense, row-major."""

    dtype: DTypeName
    shape: tuple[int, ...]
    values: tuple[int | float | bool | str, ...]


@dataclass(frozen=True)
class ShapeValue:
    """A shape-valued default; `dims` is None if its rank is unknown, -1 a size."""

    dims: tuple[int, ...] | None


@dataclass(frozen=True)
class FuncValue:
    """A function-valued default: the function's name."""

    name: str


Scalar: TypeAlias = (
    int | float | bool | str | DTypeName | ShapeValue | TensorValue | FuncValue
)
Value: TypeAlias = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True)
class FullType:
    """A FullTypeDef: `type_id` as TensorFlow spells it, `s` for type variables."""

    type_id: str
    args: tuple[FullType, ...] = ()
    s: str | None = None


@dataclass(frozen=True)
class Arg:
    """An input or output.

    Exactly one of `dtype`, `type_attr` and `type_list_attr` is set. With `count` the
    argument is a list of that many tensors of one type.
    """

    name: str
    dtype: DTypeName | None = None
    type_attr: str | None = None
    type_list_attr: str | None = None
    count: str | None = None
    is_ref: bool = False
    full_type: FullType | None = None
    doc: str | None = None
    shape: str | None = None

    @property
    def is_list(self) -> bool:
        return self.count is not None or self.type_list_attr is not None

    @property
    def attrs_used(self) -> tuple[str, ...]:
        """Names of the attrs that this argument's type and length refer to."""
        used = (self.type_attr, self.count, self.type_list_attr)
        return tuple(name for name in used if name is not None)


@dataclass(frozen=True)
class Attr:
    """An attr; `default` is None when there is none, for no default is null.

    `message`: a string that is a serialized protocol buffer, by its full name.
    """

    name: str
    kind: AttrKind
    default: Value | None = None
    allowed: tuple[str, ...] | None = None
    minimum: int | None = None
    doc: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class Deprecation:
    version: int
    explanation: str
    replacement: str | None = None


@dataclass(frozen=True)
class Op:
    """One op. `attrs` holds all of them, in the OpDef's order."""

    name: str
    group: str
    inputs: tuple[Arg, ...] = ()
    outputs: tuple[Arg, ...] = ()
    attrs: tuple[Attr, ...] = ()
    is_stateful: bool = False
    is_commutative: bool = False
    is_aggregate: bool = False
    allows_uninitialized_input: bool = False
    is_distributed_communication: bool = False
    deprecation: Deprecation | None = None
    summary: str | None = None
    description: str | None = None
    gradient_of: str | None = None
    kernels: tuple[tuple[str, str], ...] = ()
    tpu_only: str | None = None
    source: str = field(default="", compare=False)

    @cached_property
    def inferred(self) -> frozenset[str]:
        """Attrs that the inputs settle; never arguments, never options."""
        return frozenset(name for arg in self.inputs for name in arg.attrs_used)

    @cached_property
    def required(self) -> tuple[Attr, ...]:
        """Attrs that are arguments of `create`; type attrs may have a default."""
        return tuple(
            attr
            for attr in self.attrs
            if attr.name not in self.inferred and not self.is_option(attr)
        )

    @cached_property
    def options(self) -> tuple[Attr, ...]:
        return tuple(attr for attr in self.attrs if self.is_option(attr))

    @property
    def refers(self) -> tuple[str, ...]:
        """Other ops that this one names."""
        names = [self.gradient_of]
        if self.deprecation is not None:
            names.append(self.deprecation.replacement)
        return tuple(name for name in names if name is not None)

    def is_option(self, attr: Attr) -> bool:
        """An option has a default, is not inferred, and is not a dtype.

        A dtype that nothing infers shapes the static type of the outputs, so that it
        is an argument of `create` even when it has a default.
        """
        return (
            attr.name not in self.inferred
            and attr.default is not None
            and attr.kind != "type"
        )

    def attr(self, name: str) -> Attr:
        return next(attr for attr in self.attrs if attr.name == name)

    def args(self) -> Iterator[Arg]:
        yield from self.inputs
        yield from self.outputs
