"""The semantic model of an op: frozen, complete, free of I/O.

A model has everything of a TensorFlow OpDef except its prose. It also has what is
written by hand: documentation, the group, and the forward op of a gradient op.
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

    If there are fewer values than the shape has elements, the last value is repeated.
    Without any value, all elements are zero. `packed`: whether the TensorProto has
    bytes in place of values. The tensor is the same in both cases.
    """

    dtype: DTypeName
    shape: tuple[int, ...]
    values: tuple[TensorItem, ...]
    packed: bool = False

    @property
    def is_filled(self) -> bool:
        """Whether one value stands for several elements."""
        return len(self.values) < math.prod(self.shape)


@dataclass(frozen=True)
class ShapeValue:
    """A shape-valued default.

    `dims` is None if the rank is unknown, and an unknown size is -1. `names` is empty,
    or has a name for each dimension, which is "" for a dimension without one.
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
    """An attr of a function with its value."""

    name: str
    kind: AttrKind
    value: Value


#: A string that is not UTF-8 is of type bytes. All nans are the object `math.nan`, so
#: that equal models compare equal.
Scalar: TypeAlias = (
    int | float | bool | str | bytes | DTypeName | ShapeValue | TensorValue | FuncValue
)
Value: TypeAlias = Scalar | tuple[Scalar, ...]
#: A value as YAML represents it. Only `check_with` has such values.
Plain: TypeAlias = "int | float | bool | str | tuple[Plain, ...]"


@dataclass(frozen=True)
class FullType:
    """A FullTypeDef. `type_id` is TensorFlow's name, `s` that of a type variable."""

    type_id: str
    args: tuple[FullType, ...] = ()
    s: str | None = None


@dataclass(frozen=True)
class Arg:
    """An input or output.

    Exactly one of `dtype`, `type_attr` and `type_list_attr` is set. With `count`, the
    argument is a list of tensors of one type, and `count` is the attr with its length.
    `shape` is in the notation of `opwright_notation.syntax`.
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
    """An attr. `default` is None if it has no default, because no default is null.

    `message`: the full name of the protocol buffer that a string attr serializes.
    `since`: the version of TensorFlow that added the attr, if the op is older.
    `allowed_since`: allowed values that are newer than the attr, with their versions.
    `dropped_in`: the first version of TensorFlow whose op does not have the attr.
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
    dropped_in: str | None = None


class Role(Enum):
    """The role of an attr in calls of the op.

    A dtype that is not inferred from an input decides the static type of outputs. It is
    therefore an argument, not a field of `Options`, even if it has a default.
    """

    #: An attr that is inferred from the inputs. Callers never pass it.
    INFERRED = "inferred"
    #: An attr without a default. It is a positional argument of `create`.
    ARGUMENT = "argument"
    #: A dtype with a default. It is a keyword argument of `create`.
    KEYWORD = "keyword"
    #: Any other attr with a default. It is a field of `Options`.
    OPTION = "option"


#: What TensorFlow's registry of gradients may have for an op: a function, the
#: declaration that the op is not differentiable, or no entry.
GRADIENTS = ("registered", "not_differentiable", "none")


@dataclass(frozen=True)
class Deprecation:
    version: int
    explanation: str
    replacement: str | None = None


@dataclass(frozen=True)
class Op:
    """An op. `attrs` has all attrs, in the OpDef's order.

    `since`: the version of TensorFlow that added the op, if the oldest version that
    opwright supports lacks it.
    `dropped_in`: the first version of TensorFlow that does not have the op.
    `gradient`: one of `GRADIENTS`; None if it is not known, as for a library's op.
    `imported_text`: digests of the texts that came from the library's OpDef.
    `check_with`: values of attrs or inputs with which a test checks the op's shapes.
    `unchecked`: why a test cannot check the op's shapes.
    `truncated`: for an input or attr, the dtype to which kernels truncate its integers.
    `requires`: conditions without which a call may end the process, as
    `opwright_notation.conditions` reads them.
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
    dropped_in: str | None = None
    summary: str | None = None
    description: str | None = None
    example: str | None = None
    check_with: tuple[tuple[str, tuple[Plain, ...]], ...] = ()
    unchecked: str | None = None
    truncated: tuple[tuple[str, DTypeName], ...] = ()
    requires: tuple[str, ...] = ()
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
        """Whether it has exactly one output, which is not a list."""
        return len(self.outputs) == 1 and not self.outputs[0].is_list

    def role(self, attr: Attr) -> Role:
        """The role of one of its attrs in calls."""
        if attr.name in self.inferred:
            return Role.INFERRED
        if attr.default is None:
            return Role.ARGUMENT
        return Role.KEYWORD if attr.kind == "type" else Role.OPTION

    @cached_property
    def given(self) -> tuple[Attr, ...]:
        """The attrs that are not inferred. Callers pass them or use their defaults."""
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
        """The names of other ops to which this op refers."""
        names = [self.gradient_of]
        if self.deprecation is not None:
            names.append(self.deprecation.replacement)
        return tuple(name for name in names if name is not None)

    def attr(self, name: str) -> Attr:
        return next(attr for attr in self.attrs if attr.name == name)

    def args(self) -> Iterator[Arg]:
        yield from self.inputs
        yield from self.outputs


def version_number(version: str) -> tuple[int, int]:
    """The parts of a version of TensorFlow, by which versions are sorted."""
    major, minor = version.split(".")
    return int(major), int(minor)


def is_later(since: str | None, version: str | None) -> bool:
    """Whether a part of an op came after a version; False where one is not known."""
    if since is None or version is None:
        return False
    return version_number(since) > version_number(version)


def is_in(part: Op | Attr, version: str) -> bool:
    """Whether a version of TensorFlow has an op or attr."""
    dropped = part.dropped_in is not None and not is_later(part.dropped_in, version)
    return not dropped and not is_later(part.since, version)
