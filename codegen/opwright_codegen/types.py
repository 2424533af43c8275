"""The only module with names of dtypes, kinds of attrs and spellings of types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

#: The module of the runtime from which generated code imports types.
RUNTIME: Final = "opwright_runtime.gencode"


class DTypeName(str):
    """The name of a dtype in the text of OpDefs: `float`, `half`, `int32`."""

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


#: The Python class for each name of a dtype in OpDefs.
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

#: The dtypes that a tensor-valued default may have.
TENSOR_DTYPES: Final = (
    "float",
    "double",
    "half",
    "bfloat16",
    "complex64",
    "complex128",
    "bool",
    "string",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)

#: Sets of dtypes for which the runtime's `types` has a name.
FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "TIndex": ("int32", "int64"),
    "TFloating": ("bfloat16", "half", "float", "double"),
    "TComplex": ("complex64", "complex128"),
    "TQuantized": ("qint8", "qint16", "qint32", "quint8", "quint16"),
    "TSigned": ("int8", "int16", "int32", "int64"),
    "TUnsigned": ("uint8", "uint16", "uint32", "uint64"),
    "TIntegral": (
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ),
    "TReal": (
        "bfloat16",
        "half",
        "float",
        "double",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ),
    "TInexact": ("bfloat16", "half", "float", "double", "complex64", "complex128"),
    "TNumber": (
        "bfloat16",
        "half",
        "float",
        "double",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "complex64",
        "complex128",
        "qint8",
        "qint16",
        "qint32",
        "quint8",
        "quint16",
    ),
}

#: The names that annotations use, by the module that has them. None: Python's builtins.
_SOURCES: Final[dict[str | None, tuple[str, ...]]] = {
    None: ("bool", "float", "int", "list", "tuple", "type"),
    "collections.abc": ("Sequence",),
    "typing": ("Generic", "Literal"),
    RUNTIME: (
        "AnyDType",
        "AnyDTypeLike",
        "AnyOperand",
        "DType",
        "DTypeLike",
        "FunctionLike",
        "MessageBytes",
        "MessageLike",
        "Operand",
        "Operation",
        "Output",
        "SameAnyOperand",
        "SameOperand",
        "ShapeLike",
        "StringLike",
        "StringOperand",
        "TensorLike",
        "TensorOp",
        "TensorOperand",
        "TensorProto",
        "TensorShape",
        "TType",
        *DTYPES.values(),
        *FAMILIES,
    ),
}
#: Each name that annotations use, with the module from which it is imported.
NAMES: Final = {name: module for module, names in _SOURCES.items() for name in names}

#: The names besides types that every file of an op imports from the runtime.
BINDING: Final = frozenset(
    {"OpInputs", "Scope", "describe_missing_args", "execute", "is_eager", "new"}
)
#: The names besides types and the functions of conditions that only some files of ops
#: import from the runtime.
BINDING_OF_SOME: Final = frozenset(
    {"EagerTensor", "Op", "OpOptions", "TensorOp", "all_tensors", "can_broadcast"}
    | {"default", "fit_pair", "fit_together", "fits", "merging"}
)

#: The dtypes of integers and bool. TensorFlow truncates numbers of Python and NumPy
#: that these cannot represent.
WHOLE: Final = frozenset(name for name in DTYPES if "int" in name) | {"bool"}
#: The Python integers that fit a dtype, for dtypes where TensorFlow does not check the
#: range.
BOUNDS: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}

#: The function that converts an argument to a dtype, and the class of its result. A
#: value of that class needs no conversion.
AS_DTYPE: Final = "as_dtype"
DTYPE: Final = "DType"
#: The functions that convert an argument for TensorFlow, by the kind of the attr.
CONVERTERS: Final = {
    "type": AS_DTYPE,
    "list(type)": "as_dtypes",
    # None is a shape of unknown rank. TensorFlow would use the default instead.
    "shape": "as_shape",
    "list(shape)": "as_shapes",
}
#: The function that converts an argument of kind bool.
AS_BOOL: Final = "as_bool"
#: The function that converts a message. Its second argument is the message's name.
MESSAGE_CONVERTER: Final = "as_bytes"

#: Types of parameters: those of an attr, or of one element of a list attr.
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
#: The types of an attr's element where it is read from an operation.
FIELD_TYPES: Final[dict[str, str]] = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "string": "StringLike",
    "type": DTYPE,
    "shape": "TensorShape",
    "tensor": "TensorProto",
    "func": "FunctionLike",
}


#: Other names of dtypes, in lower case, with their names in OpDefs.
_ALIASES: Final = {
    "float64": "double",
    "float32": "float",
    "float16": "half",
    "str": "string",
    "bytes": "string",
    "boolean": "bool",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "complex": "complex64",
}


def dtype_meant(text: str) -> str | None:
    """The OpDefs' name of `float64`, `tf.float32`, `DT_INT32` or `TBool`."""
    name = text.rpartition(".")[2].removeprefix("DT_")
    classes = {cls: dtype for dtype, cls in DTYPES.items()}
    name = classes.get(name, name.lower())
    name = _ALIASES.get(name, name)
    return name if name in DTYPES else None


def dtype_text(name: str) -> str:
    """The name of a dtype in TensorFlow's Python API: `float32` for `float`."""
    return {"half": "float16", "float": "float32", "double": "float64"}.get(name, name)


@dataclass(frozen=True)
class PyType:
    """A type expression of Python.

    `module` is the module from which `name` must be imported. Python's builtins, type
    variables and the classes of the same file have none.
    """

    name: str
    args: tuple[PyType, ...] = ()
    module: str | None = None

    def __str__(self) -> str:
        args = map(str, self.args)
        if self.name == _UNION:
            return " | ".join(args)
        return f"{self.name}[{', '.join(args)}]" if self.args else self.name

    def __or__(self, other: PyType) -> PyType:
        return either((self, other))

    def walk(self) -> Iterator[PyType]:
        """This expression and all expressions in it."""
        yield self
        for arg in self.args:
            yield from arg.walk()


#: The name of `A | B`, whose alternatives are its arguments.
_UNION: Final = "|"


def named(name: str, *args: PyType) -> PyType:
    """The type of one of `NAMES`, with arguments."""
    return PyType(name, args, NAMES[name])


def either(alternatives: Iterable[PyType]) -> PyType:
    """The union of several types. A single type is returned itself."""
    parts = tuple(alternatives)
    return parts[0] if len(parts) == 1 else PyType(_UNION, parts)


ANY_DTYPE: Final = named("AnyDType")
NONE: Final = PyType("None")


def dtype(name: str) -> PyType:
    """The class that stands for a dtype."""
    return named(DTYPES[name])


def one_of_dtypes(names: tuple[str, ...] | None) -> PyType:
    """The type "one of these dtypes". None stands for any dtype.

    It uses families of dtypes in place of their members, the largest first.
    """
    if names is None:
        return named("TType")
    left = set(names)
    parts: dict[str, int] = {}
    order = list(DTYPES)
    for family, members in sorted(FAMILIES.items(), key=lambda item: -len(item[1])):
        if left.issuperset(members):
            left.difference_update(members)
            parts[family] = min(map(order.index, members))
    parts |= {DTYPES[name]: order.index(name) for name in left}
    return either(named(part) for part in sorted(parts, key=lambda part: parts[part]))
