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

#: Sets of dtypes with a name of their own in the runtime's `types`.
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "TIndex": ("int32", "int64"),
    "TFloating": ("bfloat16", "half", "float", "double"),
    "TComplex": ("complex64", "complex128"),
    "TQuantized": ("qint8", "qint16", "qint32", "quint8", "quint16"),
    "TSigned": ("int8", "int16", "int32", "int64"),
    "TUnsigned": ("uint8", "uint16", "uint32", "uint64"),
    "TIntegral": (
        *("int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
    ),
    "TReal": (
        *("bfloat16", "half", "float", "double"),
        *("int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
    ),
    "TInexact": ("bfloat16", "half", "float", "double", "complex64", "complex128"),
    "TNumber": (
        *("bfloat16", "half", "float", "double"),
        *("int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
        *("complex64", "complex128"),
        *("qint8", "qint16", "qint32", "quint8", "quint16"),
    ),
}

#: All that annotations take from the runtime's `types`.
RUNTIME_TYPES: Final = frozenset(
    {"AnyDType", "AnyDTypeLike", "DType", "DTypeLike", "FunctionLike", "MessageBytes"}
    | {
        "MessageLike",
        "Operand",
        "Output",
        "ShapeLike",
        "StringLike",
        "TensorLike",
        "TensorOperand",
    }
    | {"TensorProto", "TensorShape", "TType", *DTYPES.values(), *FAMILIES}
)

#: How the element of an attr is spelled where a caller gives it, ...
ARGUMENT_TYPES: Final[dict[str, str]] = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "string": "StringLike",
    "type": "AnyDTypeLike",
    "shape": "ShapeLike",
    "tensor": "TensorLike",
    "func": "FunctionLike",
}
#: ... and where it is read back.
FIELD_TYPES: Final[dict[str, str]] = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "string": "StringLike",
    "type": "DType",
    "shape": "TensorShape",
    "tensor": "TensorProto",
    "func": "FunctionLike",
}


def dtype_text(name: str) -> str:
    """A dtype as Python's TensorFlow names it: `float32` for `float`."""
    return {"half": "float16", "float": "float32", "double": "float64"}.get(name, name)


def union(names: tuple[str, ...] | None) -> str:
    """The Python type of "one of these dtypes"; of any dtype when there are none.

    Families stand for their members, largest first.
    """
    if names is None:
        return "TType"
    left = set(names)
    parts: dict[str, int] = {}
    order = list(DTYPES)
    for family, members in sorted(FAMILIES.items(), key=lambda item: -len(item[1])):
        if left.issuperset(members):
            left.difference_update(members)
            parts[family] = min(map(order.index, members))
    parts |= {DTYPES[name]: order.index(name) for name in left}
    return " | ".join(sorted(parts, key=lambda part: parts[part]))
