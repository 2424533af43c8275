"""The semantic model of an op: frozen, complete, free of I/O.

A model says everything a TensorFlow OpDef says but its prose, plus what is written
by hand: documentation, the group, the forward op that an op differentiates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TypeAlias

from opwright_codegen.types import AttrKind, DTypeName

TensorItem: TypeAlias = int | float | complex | bool | str | bytes


@dataclass(frozen=True)
class TensorValue:
    """A tensor-valued default: dense, row-major.

    With fewer values than the shape has, the last one stands for the rest, or with none
    zero does. `packed`: its proto has bytes in place of values, which changes nothing
    but the proto.
    """

    dtype: DTypeName
    shape: tuple[int, ...]
    values: tuple[TensorItem, ...]
    packed: bool = False

    @property
    def is_filled(self) -> bool:
        """Whether one value stands for several."""
        return len(self.values) < math.prod(self.shape)


@dataclass(frozen=True)
class ShapeValue:
    """A shape-valued default; `dims` is None if its rank is unknown, -1 a size.

    `names` are the dimensions' names, empty for one that has none; or there are none.
    """

    dims: tuple[int, ...] | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class FuncValue:
    """A function-valued default: the function's name, and its attrs by name."""

    name: str
    attrs: tuple[FuncAttr, ...] = ()


@dataclass(frozen=True)
class FuncAttr:
    """An attr of a function: one that was given, with its value."""

    name: str
    kind: AttrKind
    value: Value


#: A string that is not UTF-8 is bytes; of nan there is one, `math.nan`.
Scalar: TypeAlias = (
    int | float | bool | str | bytes | DTypeName | ShapeValue | TensorValue | FuncValue
)
Value: TypeAlias = Scalar | tuple[Scalar, ...]
#: A value as YAML has it, for tests alone.
Plain: TypeAlias = "int | float | bool | str | tuple[Plain, ...]"


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
    argument is a list of that many tensors of one type. `shape` is in the notation of
    `opwright_notation.syntax`.
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
    `since`: the version of TensorFlow that the attr came with, if its op is older;
    `allowed_since`: the same of values that are newer than the attr.
    """

    name: str
    kind: AttrKind
    default: Value | None = None
    allowed: tuple[str, ...] | None = None
    minimum: int | None = None
    doc: str | None = None
    message: str | None = None
    since: str | None = None
    allowed_since: tuple[tuple[str, str], ...] = ()


class Role(Enum):
    """What an attr is to a caller of the op; nothing else decides it.

    A dtype that is inferred from no input shapes the static type of the outputs, so
    that it is an argument even with a default: one that may be left out.
    """

    #: Inferred from the inputs: the caller never gives it, with a default or without.
    INFERRED = "inferred"
    #: Without a default: a positional argument of `create`.
    ARGUMENT = "argument"
    #: A dtype with a default: a keyword argument of `create`.
    KEYWORD = "keyword"
    #: Anything else with a default: a field of `Options`.
    OPTION = "option"


#: What TensorFlow's registry of gradients has of an op: a function, the declaration
#: that there is nothing to differentiate, or nothing.
GRADIENTS = ("registered", "not_differentiable", "none")


@dataclass(frozen=True)
class Deprecation:
    version: int
    explanation: str
    replacement: str | None = None


@dataclass(frozen=True)
class Op:
    """One op. `attrs` holds all of them, in the OpDef's order.

    `since`: the version of TensorFlow that it came with, if the oldest that opwright
    works with lacks it.
    `gradient`: one of `GRADIENTS`; None if it is not known, as of a library's op.
    `imported_text`: digests of the texts that came from the library's OpDef.
    `check_with`: by attr or input, values that its shapes are checked with; and
    `unchecked`, why they cannot be.
    `truncated`: by input or attr, the dtype that kernels truncate its integers to.
    """

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
    gradient: str | None = None
    deprecation: Deprecation | None = None
    since: str | None = None
    summary: str | None = None
    description: str | None = None
    example: str | None = None
    check_with: tuple[tuple[str, tuple[Plain, ...]], ...] = ()
    unchecked: str | None = None
    truncated: tuple[tuple[str, DTypeName], ...] = ()
    gradient_of: str | None = None
    kernels: tuple[tuple[str, str], ...] = ()
    tpu_only: str | None = None
    imported_text: tuple[str, ...] = ()
    source: str = field(default="", compare=False)

    @cached_property
    def inferred(self) -> frozenset[str]:
        """Names of the attrs that are inferred from the inputs."""
        return frozenset(name for arg in self.inputs for name in arg.attrs_used)

    @property
    def is_tensor(self) -> bool:
        """Whether it has one output, which is no list."""
        return len(self.outputs) == 1 and not self.outputs[0].is_list

    def role(self, attr: Attr) -> Role:
        """What one of its attrs is to a caller."""
        if attr.name in self.inferred:
            return Role.INFERRED
        if attr.default is None:
            return Role.ARGUMENT
        return Role.KEYWORD if attr.kind == "type" else Role.OPTION

    @cached_property
    def given(self) -> tuple[Attr, ...]:
        """Attrs that a caller gives, or that stand at their defaults."""
        return tuple(a for a in self.attrs if self.role(a) is not Role.INFERRED)

    @cached_property
    def arguments(self) -> tuple[Attr, ...]:
        return self._of_role(Role.ARGUMENT)

    @cached_property
    def keywords(self) -> tuple[Attr, ...]:
        return self._of_role(Role.KEYWORD)

    @cached_property
    def options(self) -> tuple[Attr, ...]:
        return self._of_role(Role.OPTION)

    def _of_role(self, role: Role) -> tuple[Attr, ...]:
        return tuple(attr for attr in self.attrs if self.role(attr) is role)

    @property
    def refers(self) -> tuple[str, ...]:
        """Other ops that this one names."""
        names = [self.gradient_of]
        if self.deprecation is not None:
            names.append(self.deprecation.replacement)
        return tuple(name for name in names if name is not None)

    def attr(self, name: str) -> Attr:
        return next(attr for attr in self.attrs if attr.name == name)

    def args(self) -> Iterator[Arg]:
        yield from self.inputs
        yield from self.outputs
