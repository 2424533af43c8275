"""Attrs: how they are given, and how they are read back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from opwright_runtime.types.tensors import ArrayLike


class TensorFlowShape(Protocol):
    """What `tf.TensorShape` is."""

    def is_fully_defined(self) -> bool: ...


class TensorFlowProto(Protocol):
    """What a message is: a `TensorProto`, a `TPUEmbeddingConfiguration`."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802


class GraphFunction(Protocol):
    """What a graph can add, as it is at run time."""

    @property
    def name(self) -> object: ...
    @property
    def add_to_graph(self) -> object: ...


if TYPE_CHECKING:
    # The stubs of TensorFlow know nothing of a concrete function but that it is one;
    # without them mypy reads it as Any, which would let every callable in.
    MYPY = False
    TENSORFLOW_STUBS = False
    if TENSORFLOW_STUBS or not MYPY:
        ConcreteFunction: TypeAlias = (  # pyright: ignore
            GraphFunction | tf.types.experimental.ConcreteFunction[..., object]
        )
    else:
        ConcreteFunction: TypeAlias = GraphFunction  # pyright: ignore


StringLike: TypeAlias = str | bytes
ShapeLike: TypeAlias = (
    TensorFlowShape | Sequence[int | None] | npt.NDArray[np.integer[Any]] | None
)
TensorLike: TypeAlias = TensorFlowProto | ArrayLike
MessageLike: TypeAlias = TensorFlowProto | StringLike
"""A message, or what it serializes to."""
MessageBytes: TypeAlias = bytes
FunctionLike: TypeAlias = "StringLike | ConcreteFunction | TensorFlowProto"
"""The name of a function, a NameAttrList, or a concrete function; no callable else."""
Operation: TypeAlias = tf.Operation
DType: TypeAlias = tf.DType
TensorShape: TypeAlias = tf.TensorShape
TensorProto: TypeAlias = TensorFlowProto


def as_bytes(value: MessageLike, message: str) -> StringLike:
    """What `value` serializes to; bytes, or text, are taken for that already.

    Raises:
        TypeError: it is no message of the type that `message` names in full.
    """
    if isinstance(value, (bytes, str)):
        return value
    if message_name(value) != message:
        raise TypeError(f"{value!r} is not a {message}")
    return value.SerializeToString()


def message_name(value: object) -> str | None:
    """The full name of the type of a message; None if `value` is none."""
    name = getattr(getattr(value, "DESCRIPTOR", None), "full_name", None)
    return None if name is None or isinstance(value, type) else str(name)


def as_shape(value: ShapeLike) -> TensorShape:
    """The shape that `value` is.

    Raises:
        TypeError, ValueError: it is none.
    """
    shape: Any = value
    return tf.TensorShape(shape)


def as_shapes(values: Iterable[ShapeLike]) -> list[TensorShape]:
    """`as_shape` of each."""
    return list(map(as_shape, values))


class _Flags:
    # No dict: 1 and `tf.float32` are equal to True.
    def __getitem__(self, value: object) -> bool:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        raise TypeError(f"{value!r} is not a bool")


flags = _Flags()
"""`flags[value]`: the bool that a value is; NumPy's are some, and nothing else is.

Raises:
    TypeError: it is none.
"""
