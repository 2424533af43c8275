"""Types of attrs, as calls accept them and as operations return them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from opwright_runtime.types.tensors import ArrayLike


class TensorFlowShape(Protocol):
    """A `tf.TensorShape`."""

    def is_fully_defined(self) -> bool: ...


class TensorFlowProto(Protocol):
    """A message: a `TensorProto`, a `TPUEmbeddingConfiguration`."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802


class GraphFunction(Protocol):
    """A function that a graph can add."""

    @property
    def name(self) -> object: ...
    @property
    def add_to_graph(self) -> object: ...


if TYPE_CHECKING:
    # TensorFlow's stubs declare a concrete function without members. Without stubs mypy
    # reads it as Any, which accepts every callable. `_tensorflow` has a class for mypy.
    MYPY = False
    if not MYPY:
        ConcreteFunction: TypeAlias = (  # pyright: ignore
            GraphFunction | tf.types.experimental.ConcreteFunction[..., object]
        )
    else:
        from opwright_runtime.types._tensorflow import ConcreteFunction as WithStubs

        ConcreteFunction: TypeAlias = (  # pyright: ignore
            GraphFunction | WithStubs[..., object]
        )


StringLike: TypeAlias = str | bytes
ShapeLike: TypeAlias = (
    TensorFlowShape | Sequence[int | None] | npt.NDArray[np.integer[Any]] | None
)
TensorLike: TypeAlias = TensorFlowProto | ArrayLike
MessageLike: TypeAlias = TensorFlowProto | StringLike
"""A message, or its serialized form."""
MessageBytes: TypeAlias = bytes
FunctionLike: TypeAlias = "StringLike | ConcreteFunction | TensorFlowProto"
"""The name of a function, a NameAttrList, or a concrete function."""
Operation: TypeAlias = tf.Operation
DType: TypeAlias = tf.DType
TensorShape: TypeAlias = tf.TensorShape
TensorProto: TypeAlias = TensorFlowProto

_MOST_SIZE = 2**63 - 1


def as_bytes(value: MessageLike, message: str) -> StringLike:
    """`value` in serialized form; bytes and text count as serialized already.

    Raises:
        TypeError: it is not a message of the type with the full name `message`.
    """
    if isinstance(value, (bytes, str)):
        return value
    if message_name(value) != message:
        raise TypeError(f"{value!r} is not a {message}")
    return value.SerializeToString()


def message_name(value: object) -> str | None:
    """The full name of the type of a message; None if `value` is not a message."""
    name = getattr(getattr(value, "DESCRIPTOR", None), "full_name", None)
    return None if name is None or isinstance(value, type) else str(name)


def as_shape(value: ShapeLike) -> TensorShape:
    """`value` as a `tf.TensorShape`.

    Raises:
        TypeError, ValueError: it is not a shape, or a size has more than 64 bits.
    """
    shape: Any = value
    found = tf.TensorShape(shape)
    # TensorFlow's fast path goes on with such a size, and an error set.
    if found.rank and any(size and size > _MOST_SIZE for size in found.as_list()):
        raise ValueError(f"{value!r} has a size over 2**63 - 1")
    return found


def as_shapes(values: Iterable[ShapeLike]) -> list[TensorShape]:
    """`as_shape` of each."""
    return list(map(as_shape, values))


def as_bool(value: object) -> bool:
    """Converts a bool of Python or NumPy to a bool.

    Raises:
        TypeError: it is not a bool. The integer 1 equals True but is not a bool.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{value!r} is not a bool")
