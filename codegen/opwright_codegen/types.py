"""The only home of dtype names, attr kinds and how a type is spelled in Python."""

from __future__ import annotations

from typing import Final


class DTypeName(str):
    """A dtype as TensorFlow's OpDef text spells it: `float`, `half`, `int32`."""

    __slots__ = ()


class AttrKind(str):
    """The kind of an attr: `int`, `type`, `list(shape)`."""

    __slots__ = ()

    @property
    def is_list(self) -> bool:
        return self.startswith("list(")

    @property
    def element(self) -> str:
        """The kind of one value."""
        return self[5:-1] if self.is_list else str(self)


#: dtype name in OpDefs -> the class that stands for it in Python.
DTYPES: Final[dict[str, str]] = {
    "bfloat16": "TBfloat16",
    "half": "TFloat16",
    "float": "TFloat32",
    "double": "TFloat64",
    "float8_e5m2": "TFloat8E5m2",
    "float8_e4m3fn": "TFloat8E4m3fn",
    "float8_e4m3fnuz": "TFloat8E4m3fnuz",
    "float8_e4m3b11fnuz": "TFloat8E4m3b11fnuz",
    "float8_e5m2fnuz": "TFloat8E5m2fnuz",
    "float4_e2m1fn": "TFloat4E2m1fn",
    "int2": "TInt2",
    "int4": "TInt4",
    "int8": "TInt8",
    "int16": "TInt16",
    "int32": "TInt32",
    "int64": "TInt64",
    "uint2": "TUint2",
    "uint4": "TUint4",
    "uint8": "TUint8",
    "uint16": "TUint16",
    "uint32": "TUint32",
    "uint64": "TUint64",
    "bool": "TBool",
    "complex64": "TComplex64",
    "complex128": "TComplex128",
    "string": "TString",
    "resource": "TResource",
    "variant": "TVariant",
    "qint8": "TQint8",
    "qint16": "TQint16",
    "qint32": "TQint32",
    "quint8": "TQuint8",
    "quint16": "TQuint16",
}

ELEMENT_KINDS: Final = (
    "int",
    "float",
    "bool",
    "string",
    "type",
    "shape",
    "tensor",
    "func",
)
KINDS: Final = (*ELEMENT_KINDS, *(f"list({kind})" for kind in ELEMENT_KINDS))
