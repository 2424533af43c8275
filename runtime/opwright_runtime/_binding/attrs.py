"""Attrs and their values: checked, normalised, written to and read from protos."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_runtime._internals import (
    NameAttrList,
    TensorProto,
    eager_execute,
    op_def_library,
)
from opwright_runtime.errors import format_allowed
from opwright_runtime.types import (
    MessageLike,
    TType,
    as_bytes,
    as_dtype,
    message_name,
)


@dataclass(frozen=True)
class AttrInfo:
    """An attr.

    Attributes:
        default: None if the attr has no default.
        inferred: whether TensorFlow infers it from the inputs.
        message: full name of the protocol buffer that a string serializes.
        why_absent: which version of TensorFlow added or dropped the attr, if the
            installed one lacks it: `2.20 brought it`.
        newer: values that a newer TensorFlow added, each with its version.
        truncated: the narrower dtype to which kernels truncate the 64-bit integer.
    """

    name: str
    python_name: str
    kind: str
    default: Any
    allowed: tuple[Any, ...] | None
    minimum: int | None
    inferred: bool
    message: str | None = None
    why_absent: str | None = None
    newer: Mapping[str, str] = field(default_factory=dict)
    truncated: tf.DType | None = None

    @cached_property
    def is_comparable(self) -> bool:
        """Whether a value that equals the default is the default."""
        return self.default is not None and is_comparable(self.kind)

    def brought(self, value: object) -> str:
        """A note that names the TensorFlow version that added `value`.

        It is empty if the installed TensorFlow has the value.
        """
        text = value.name if isinstance(value, tf.DType) else value
        version = self.newer.get(text) if isinstance(text, str) else None
        return "" if version is None else f" (TensorFlow {version} brought {text})"

    def left(self, value: object) -> object:
        """The value of an attr that this TensorFlow lacks. It must be the default.

        Raises:
            BadValueError: `value` is not the default.
        """
        if value == self.default:
            return value
        raise BadValueError(
            f"left at {self.default!r} (TensorFlow {tf.__version__} has no such attr, "
            f"{self.why_absent})"
        )


class BadValueError(Exception):
    """The attr does not allow a value; `allowed` has the values that it allows."""

    def __init__(self, allowed: object) -> None:
        super().__init__(allowed)
        self.allowed = allowed


def element(kind: str) -> str:
    """The kind of one value of an attr: `int` of `list(int)`."""
    return kind[5:-1] if kind.startswith("list(") else kind


def _int(value: Any) -> int:
    if type(value) is not int:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
            raise BadValueError("an int")
        value = int(value)
    if not -(2**63) <= value < 2**63:
        raise BadValueError("an int of 64 bits")
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise BadValueError("a float")
    try:
        return float(value)
    except OverflowError:
        raise BadValueError("a float of 64 bits") from None


def _bool(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise BadValueError("a bool")
    return bool(value)


def _string(value: Any) -> str | bytes:
    if not isinstance(value, (str, bytes)):
        raise BadValueError("a str or bytes")
    return value


def _message(value: MessageLike, message: str) -> str | bytes:
    try:
        return as_bytes(value, message)
    except TypeError:
        other = message_name(value)
        found = "" if other is None else f" (this is a {other})"
        raise BadValueError(f"a {message} or its bytes{found}") from None


def _type(value: Any) -> tf.DType:
    try:
        return as_dtype(value)
    except TypeError as error:
        if isinstance(value, type) and issubclass(value, TType):
            raise BadValueError(f"a dtype that there is: {error}") from None
        raise BadValueError("a dtype, such as TFloat32 or tf.float32") from None


def _shape(value: Any) -> tf.TensorShape:
    try:
        return tf.TensorShape(value)
    except (TypeError, ValueError):
        raise BadValueError("a shape: dimensions or None") from None


def _tensor(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return value
    try:
        return tf.make_tensor_proto(value)
    except (TypeError, ValueError):
        raise BadValueError("a TensorProto, or a value that makes one") from None


def _func(value: Any) -> Any:
    if isinstance(value, (str, bytes, NameAttrList)):
        return value
    # A value with both attributes is a ConcreteFunction, an AtomicFunction, or the
    # function of a Defun. A graph can add each of them.
    if hasattr(value, "add_to_graph") and hasattr(value, "name"):
        return value
    raise BadValueError(
        "the name of a function, a NameAttrList, or a concrete function, which "
        "get_concrete_function() of a tf.function returns"
    )


_NORMALISE: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "string": _string,
    "type": _type,
    "shape": _shape,
    "tensor": _tensor,
    "func": _func,
}

# A value of exactly this class needs no normalising.
_EXACT: dict[str, type] = {
    "float": float,
    "bool": bool,
    "string": str,
    "shape": tf.TensorShape,
    "type": tf.DType,
}


def normalised(kind: str, value: Any, message: str | None = None) -> Any:
    """`value` as the Python type of an attr of `kind`.

    Args:
        kind: the kind of the attr.
        value: a value from a call.
        message: full name of the message that the attr serializes; None without one.

    Raises:
        BadValueError: `value` is of another kind.
    """
    if message is not None:
        return _message(value, message)
    if type(value) is _EXACT.get(kind):
        return value
    convert = _NORMALISE[element(kind)]
    if not kind.startswith("list("):
        return convert(value)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise BadValueError(f"a sequence, each element {_word(element(kind))}")
    try:
        return tuple(map(convert, value))
    except BadValueError as refused:
        raise BadValueError(f"a sequence, each element {refused.allowed}") from None


def whole(attr: AttrInfo, value: Any) -> Any:
    """`value` normalised. Refuses an integer that kernels would truncate.

    Raises:
        BadValueError: `value` is of another kind, or does not fit.
    """
    value = normalised(attr.kind, value, attr.message)
    dtype = attr.truncated
    if dtype is not None and not dtype.min <= value <= dtype.max:
        raise BadValueError(f"an int of {8 * dtype.size} bits")
    return value


def plain(kind: str, value: object) -> object:
    """An attr's value as shapes and conditions use it; None for other values."""
    try:
        value = normalised(kind, value)
    except BadValueError:
        return None
    if isinstance(value, tuple) and kind.startswith("list("):
        return tuple(plain(element(kind), one) for one in value)
    if isinstance(value, tf.TensorShape):
        return None if value.rank is None else tuple(value.as_list())
    if isinstance(value, tf.DType):
        return value.name
    if isinstance(value, bytes):
        value = _text(value)
    return value if isinstance(value, (bool, int, float, str)) else None


def _word(kind: str) -> str:
    try:
        _NORMALISE[kind](object())
    except BadValueError as refused:
        return str(refused.allowed)
    return kind


def checked(attr: AttrInfo, value: Any) -> Any:
    """`value` normalised, and within the attr's allowed values and minimum.

    Raises:
        BadValueError: `value` is of another kind, or is not allowed.
    """
    if attr.why_absent is not None:
        return attr.left(value)
    value = whole(attr, value)
    if element(attr.kind) == "shape":
        _check_sizes(value if attr.kind.startswith("list(") else [value])
    if attr.allowed is None and attr.minimum is None:
        return value
    is_list = attr.kind.startswith("list(")
    if attr.allowed is not None:
        values: Sequence[Any] = value if is_list else (value,)
        if element(attr.kind) == "string":
            # Allowed values are of type str. A call may pass bytes.
            values = tuple(v.decode() if isinstance(v, bytes) else v for v in values)
            value = values if is_list else values[0]
        for one in values:
            if one not in attr.allowed:
                why = attr.brought(one)
                allowed = attr.allowed
                raise BadValueError(
                    f"{format_allowed(allowed)}{why}" if why else allowed
                )
    if attr.minimum is not None:
        if is_list and len(value) < attr.minimum:
            raise BadValueError(f"at least {attr.minimum} elements")
        if not is_list and value < attr.minimum:
            raise BadValueError(f"at least {attr.minimum}")
    return value


def _check_sizes(shapes: Iterable[tf.TensorShape]) -> None:
    """Refuses shapes with sizes that protocol buffers do not hold."""
    for shape in shapes:
        for size in () if shape.rank is None else shape.as_list():
            if size is not None and size >= 2**63:
                raise BadValueError("a shape: dimensions of 64 bits or None")


# Kinds whose equal values are interchangeable. Floats are not: 0.0 equals -0.0.
_COMPARABLE = frozenset({"int", "bool", "string", "type", "shape"})


def is_comparable(kind: str) -> bool:
    """Whether equal values of `kind` are interchangeable."""
    return element(kind) in _COMPARABLE


def is_default(attr: AttrInfo, value: Any) -> bool:
    """Whether a normalised value is certain to be the attr's default."""
    if attr.kind == "tensor":
        return same_tensor(value, attr.default)
    return attr.is_comparable and bool(value == attr.default)


def same_tensor(a: Any, b: Any) -> bool:
    """Whether two `TensorProto`s hold the same value; packing does not count."""
    if a is None or b is None:
        return False
    return a.dtype == b.dtype and np.array_equal(tf.make_ndarray(a), tf.make_ndarray(b))


def proto(kind: str, value: Any) -> Any:
    """The `AttrValue` of a normalised value; a function joins the default graph."""
    if is_comparable(kind):
        return _cached_proto(kind, value)
    return op_def_library.value_to_attr_value(value, kind, kind)


@lru_cache(maxsize=4096, typed=True)
def _cached_proto(kind: str, value: Any) -> Any:
    return op_def_library.value_to_attr_value(value, kind, kind)


_EAGER: dict[str, Callable[[Any, str], Any]] = {
    "int": eager_execute.make_int,
    "float": eager_execute.make_float,
    "bool": eager_execute.make_bool,
    "string": eager_execute.make_str,
    "type": eager_execute.make_type,
    "shape": eager_execute.make_shape,
    "tensor": eager_execute.make_tensor,
    "func": lambda value, name: value,
}


def eager(kind: str, value: Any) -> Any:
    """A normalised value in the form that eager execution and its tape use."""
    make = _EAGER[element(kind)]
    if kind.startswith("list("):
        return [make(v, kind) for v in value]
    return make(value, kind)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _shortest(value: float) -> float:
    """The float with the shortest text for a float32: 0.1, not 0.10000000149."""
    return float(str(np.float32(value)))


_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "int": ("i", int),
    "float": ("f", _shortest),
    "bool": ("b", bool),
    "string": ("s", _text),
    "type": ("type", tf.as_dtype),
    "shape": ("shape", tf.TensorShape),
    "tensor": ("tensor", lambda value: value),
    "func": ("func", lambda value: value),
}


def read(kind: str, value: Any) -> Any:
    """The Python value of an `AttrValue`; a list is a tuple."""
    field, convert = _FIELDS[element(kind)]
    if kind.startswith("list("):
        return tuple(map(convert, getattr(value.list, field)))
    return convert(getattr(value, field))


def from_operation(kind: str, value: Any, message: str | None = None) -> Any:
    """A result of `Operation.get_attr` as the Python type of an attr of `kind`.

    A serialized `message` stays bytes.
    """
    if message is not None:
        return value
    convert = _FIELDS[element(kind)][1]
    return tuple(map(convert, value)) if kind.startswith("list(") else convert(value)


def read_allowed(value: Any) -> tuple[Any, ...]:
    """The allowed values of an attr, strings or dtypes."""
    kind = "list(type)" if value.list.type else "list(string)"
    allowed: tuple[Any, ...] = read(kind, value)
    return allowed
