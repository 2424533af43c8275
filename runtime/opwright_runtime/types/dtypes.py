"""dtypes as classes, and the ways to name one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, cast

import numpy as np
import tensorflow as tf


class _DTypeMeta(type):
    def __repr__(cls) -> str:
        return cls.__name__

    if not TYPE_CHECKING:
        # Hidden from type checkers, which would let every name pass.

        def __getattr__(cls, name: str) -> object:
            # Python calls this for `dtype` if the installed TensorFlow lacks the dtype.
            why = _LACKING.get(cls) if name == "dtype" else None
            raise AttributeError(why or f"{cls!r} has no attribute {name!r}")


class TType(metaclass=_DTypeMeta):
    """Base of the dtype classes, which are never instantiated."""

    dtype: ClassVar[tf.DType]
    """The `tf.DType` that the class stands for.

    Raises:
        AttributeError: TensorFlow has it in newer versions only.
    """

    def __init_subclass__(cls, *, name: str, since: str | None = None) -> None:
        """`since`: the TensorFlow that added the dtype, if it is newer than 2.18."""
        try:
            cls.dtype = tf.as_dtype(name)
        except TypeError:
            if since is None:
                raise
            _LACKING[cls] = (
                f"TensorFlow {tf.__version__} has no dtype {name}, which TensorFlow "
                f"{since} brought"
            )
        else:
            DTYPES[name] = cls


DTYPES: dict[str, type[TType]] = {}
"""The dtype classes whose dtype this TensorFlow has, by the dtype's name."""

_LACKING: dict[type, str] = {}
"""The other classes, and the error message for each."""


class TBfloat16(TType, name="bfloat16"):
    """16-bit float with the exponent range of float32."""


class TFloat16(TType, name="float16"):
    """IEEE 754 half precision."""


class TFloat32(TType, name="float32"):
    """IEEE 754 single precision."""


class TFloat64(TType, name="float64"):
    """IEEE 754 double precision."""


class TFloat8E5m2(TType, name="float8_e5m2"):
    """8-bit float: 5 exponent bits, 2 of mantissa."""


class TFloat8E5m2fnuz(TType, name="float8_e5m2fnuz", since="2.19"):
    """8-bit float: 5 exponent bits, 2 of mantissa, no infinity, no negative zero."""


class TFloat8E4m3fn(TType, name="float8_e4m3fn"):
    """8-bit float: 4 exponent bits, 3 of mantissa, no infinity."""


class TFloat8E4m3fnuz(TType, name="float8_e4m3fnuz", since="2.19"):
    """8-bit float: 4 exponent bits, 3 of mantissa, no infinity, no negative zero."""


class TFloat8E4m3b11fnuz(TType, name="float8_e4m3b11fnuz", since="2.19"):
    """`TFloat8E4m3fnuz` with an exponent bias of 11."""


class TFloat4E2m1fn(TType, name="float4_e2m1fn", since="2.21"):
    """4-bit float: 2 exponent bits, 1 of mantissa, no infinity."""


class TComplex64(TType, name="complex64"):
    """A pair of float32."""


class TComplex128(TType, name="complex128"):
    """A pair of float64."""


class TInt2(TType, name="int2", since="2.20"):
    """2-bit signed integer."""


class TInt4(TType, name="int4"):
    """4-bit signed integer."""


class TInt8(TType, name="int8"):
    """8-bit signed integer."""


class TInt16(TType, name="int16"):
    """16-bit signed integer."""


class TInt32(TType, name="int32"):
    """32-bit signed integer."""


class TInt64(TType, name="int64"):
    """64-bit signed integer."""


class TUint2(TType, name="uint2", since="2.20"):
    """2-bit unsigned integer."""


class TUint4(TType, name="uint4"):
    """4-bit unsigned integer."""


class TUint8(TType, name="uint8"):
    """8-bit unsigned integer."""


class TUint16(TType, name="uint16"):
    """16-bit unsigned integer."""


class TUint32(TType, name="uint32"):
    """32-bit unsigned integer."""


class TUint64(TType, name="uint64"):
    """64-bit unsigned integer."""


class TQint8(TType, name="qint8"):
    """8-bit signed quantized value."""


class TQint16(TType, name="qint16"):
    """16-bit signed quantized value."""


class TQint32(TType, name="qint32"):
    """32-bit signed quantized value."""


class TQuint8(TType, name="quint8"):
    """8-bit unsigned quantized value."""


class TQuint16(TType, name="quint16"):
    """16-bit unsigned quantized value."""


class TBool(TType, name="bool"):
    """True or false."""


class TString(TType, name="string"):
    """Bytes of any length."""


class TResource(TType, name="resource"):
    """Handle of a resource: a variable, table, iterator, accumulator, ..."""


class TVariant(TType, name="variant"):
    """A value of any C++ type: a dataset, tensor list, optional, ..."""


# The families are the sets of dtypes that the registry's ops allow most often.
TIndex: TypeAlias = TInt32 | TInt64
TFloating: TypeAlias = TBfloat16 | TFloat16 | TFloat32 | TFloat64
TComplex: TypeAlias = TComplex64 | TComplex128
TQuantized: TypeAlias = TQint8 | TQint16 | TQint32 | TQuint8 | TQuint16
TSigned: TypeAlias = TInt8 | TInt16 | TInt32 | TInt64
TUnsigned: TypeAlias = TUint8 | TUint16 | TUint32 | TUint64
TIntegral: TypeAlias = TSigned | TUnsigned
TReal: TypeAlias = TFloating | TIntegral
TInexact: TypeAlias = TFloating | TComplex
TNumber: TypeAlias = TReal | TComplex | TQuantized


class TensorFlowDType(Protocol):
    """A `tf.DType`; dtype classes do not match."""

    @property
    def as_numpy_dtype(self) -> Any: ...


DTypeLike: TypeAlias = TensorFlowDType | np.dtype[Any] | type[np.generic] | str
"""A dtype given in another way than by its class."""

AnyDTypeLike: TypeAlias = type[TType] | DTypeLike
"""A dtype given in any way."""

# The keys are object ids, because hashing a tf.DType would take longer than the rest of
# opwright's code for a call.
_BY_ID: dict[int, tf.DType] = {
    id(key): cls.dtype
    for cls in DTYPES.values()
    for key in (cls, cls.dtype, cls.dtype._as_ref)
}


def as_dtype(value: type[TType] | DTypeLike) -> tf.DType:
    """The `tf.DType` that `value` names. For a ref dtype, it is the base dtype.

    Raises:
        TypeError: `value` names no dtype.
    """
    try:
        return _BY_ID[id(value)]
    except KeyError:
        pass
    if isinstance(value, _DTypeMeta) and value in _LACKING:
        raise TypeError(_LACKING[value])
    try:
        return tf.as_dtype(cast(str, value)).base_dtype
    except TypeError:
        raise TypeError(
            f"{value!r} is not a dtype; give a class such as TFloat32, a tf.DType, "
            "a NumPy dtype, or one of their names"
        ) from None


def as_dtypes(values: Iterable[type[TType] | DTypeLike]) -> list[tf.DType]:
    """`as_dtype` of each of `values`.

    Raises:
        TypeError: one of `values` names no dtype.
    """
    return [as_dtype(value) for value in values]
