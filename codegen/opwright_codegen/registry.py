"""OpDefs of an installed TensorFlow, a custom-op library or a saved list, as models.

The only file that imports TensorFlow. Both directions are here, so that what is
written by one is read by the other: `from_op_def` and `to_op_def` are inverse in every
field but prose.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from google.protobuf import message, text_format
from tensorflow.python.client import pywrap_tf_session

from opwright_codegen.model import (
    Arg,
    Attr,
    Deprecation,
    FullType,
    FuncValue,
    Op,
    Scalar,
    ShapeValue,
    TensorValue,
    Value,
)
from opwright_codegen.problems import SourceError
from opwright_codegen.types import AttrKind, DTypeName

VERSION: str = tf.__version__


def _messages(name: str) -> Any:
    """A module of message classes, which are made at run time: no checker sees them."""
    return importlib.import_module(f"tensorflow.core.framework.{name}_pb2")


attr_value_pb2 = _messages("attr_value")
full_type_pb2 = _messages("full_type")
op_def_pb2 = _messages("op_def")
tensor_pb2 = _messages("tensor")
tensor_shape_pb2 = _messages("tensor_shape")
types_pb2 = _messages("types")


def installed() -> list[Any]:
    """Every OpDef in this process's registry."""
    buffer = pywrap_tf_session.TF_GetAllOpList()
    return list(op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(buffer)).op)


def library(path: Path) -> list[Any]:
    """The OpDefs that the custom-op library at `path` registers.

    Raises:
      SourceError: TensorFlow cannot load it, or it registers no op.
    """
    try:
        # The loader takes a bare name for that of a library of the system. TensorFlow's
        # load_op_library would also make functions, and stumble over names.
        handle = pywrap_tf_session.TF_LoadLibrary(str(path.resolve()))
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SourceError(
            f"{path}: TensorFlow {VERSION} cannot load it: {reason}"
        ) from error
    try:
        found = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetOpList(handle)).op
    finally:
        pywrap_tf_session.TF_DeleteLibraryHandle(handle)
    if not found:
        raise SourceError(f"{path}: registers no op")
    return list(found)


def saved(path: Path) -> list[Any]:
    """An OpList saved in binary (`.pb`) or text (`.pbtxt`).

    Raises:
      SourceError: the file cannot be read as one.
    """
    try:
        if path.suffix == ".pb":
            return list(op_def_pb2.OpList.FromString(path.read_bytes()).op)
        text = path.read_text("utf-8")
        return list(text_format.Parse(text, op_def_pb2.OpList()).op)
    except (OSError, ValueError, message.Error, text_format.ParseError) as error:
        raise SourceError(f"{path}: no OpList can be read from it: {error}") from error


def save(op_defs: Iterable[Any], path: Path) -> bytes:
    """`op_defs` as an OpList in the form that `path` asks for."""
    op_list = op_def_pb2.OpList(op=op_defs)
    if path.suffix == ".pb":
        return bytes(op_list.SerializeToString(deterministic=True))
    return str(text_format.MessageToString(op_list)).encode()


# OpDef -> model


def from_op_def(op_def: Any, group: str) -> Op:
    """The facts of `op_def`; its prose is left out.

    Raises:
      SourceError: it says something else that a model cannot say.
    """
    try:
        op = _op(op_def, group)
        lossless = to_op_def(op) == without_prose(op_def)
    except (ValueError, TypeError) as error:
        raise SourceError(f"{op_def.name}: cannot be an opdef: {error}") from error
    if not lossless:
        raise SourceError(f"{op_def.name}: its OpDef says more than an opdef can")
    return op


def _op(op_def: Any, group: str) -> Op:
    deprecation = None
    if op_def.HasField("deprecation"):
        deprecation = Deprecation(
            op_def.deprecation.version, op_def.deprecation.explanation
        )
    return Op(
        name=op_def.name,
        group=group,
        inputs=tuple(_arg(arg) for arg in op_def.input_arg),
        outputs=tuple(_arg(arg) for arg in op_def.output_arg),
        attrs=tuple(_attr(attr) for attr in op_def.attr),
        is_stateful=op_def.is_stateful,
        is_commutative=op_def.is_commutative,
        is_aggregate=op_def.is_aggregate,
        allows_uninitialized_input=op_def.allows_uninitialized_input,
        is_distributed_communication=op_def.is_distributed_communication,
        deprecation=deprecation,
    )


def _dtype_name(number: int) -> DTypeName:
    return DTypeName(types_pb2.DataType.Name(number)[3:].lower())


def _dtype_number(name: str) -> int:
    return int(types_pb2.DataType.Value(f"DT_{name.upper()}"))


def _arg(arg: Any) -> Arg:
    return Arg(
        name=arg.name,
        dtype=_dtype_name(arg.type) if arg.type else None,
        type_attr=arg.type_attr or None,
        type_list_attr=arg.type_list_attr or None,
        count=arg.number_attr or None,
        is_ref=arg.is_ref,
        full_type=(
            _full_type(arg.experimental_full_type)
            if arg.HasField("experimental_full_type")
            else None
        ),
    )


def _full_type(full_type: Any) -> FullType:
    return FullType(
        full_type_pb2.FullTypeId.Name(full_type.type_id),
        tuple(_full_type(arg) for arg in full_type.args),
        full_type.s if full_type.HasField("s") else None,
    )


def _attr(attr: Any) -> Attr:
    kind = AttrKind(attr.type)
    allowed: tuple[str, ...] | None = None
    if attr.HasField("allowed_values"):
        values = _value(attr.allowed_values, AttrKind(f"list({kind.element})"))
        allowed = tuple(str(value) for value in values if isinstance(value, str))
        if kind.element == "type":
            allowed = tuple(DTypeName(name) for name in allowed)
    return Attr(
        name=attr.name,
        kind=kind,
        default=(
            _value(attr.default_value, kind) if attr.HasField("default_value") else None
        ),
        allowed=allowed,
        minimum=attr.minimum if attr.has_minimum else None,
    )


_FIELDS = {
    "int": "i",
    "float": "f",
    "bool": "b",
    "string": "s",
    "type": "type",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
}


def _value(value: Any, kind: AttrKind) -> Any:
    field = _FIELDS[kind.element]
    if kind.is_list:
        return tuple(_scalar(item, kind.element) for item in getattr(value.list, field))
    return _scalar(getattr(value, field), kind.element)


def _scalar(value: Any, kind: str) -> Scalar:
    if kind == "float":
        # The shortest text that reads back as the same float32.
        return float(str(np.float32(value)))
    if kind == "string":
        return str(value.decode())
    if kind == "type":
        return _dtype_name(value)
    if kind == "shape":
        if value.unknown_rank:
            return ShapeValue(None)
        return ShapeValue(tuple(dim.size for dim in value.dim))
    if kind == "tensor":
        array = tf.make_ndarray(value)
        return TensorValue(
            _dtype_name(value.dtype),
            tuple(array.shape),
            tuple(
                item.decode() if isinstance(item, bytes) else item
                for item in array.reshape(-1).tolist()
            ),
        )
    if kind == "func":
        return FuncValue(value.name)
    return value  # type: ignore[no-any-return]


# model -> OpDef


def to_op_def(op: Op) -> Any:
    """The OpDef that `op` describes, without prose."""
    op_def = op_def_pb2.OpDef(
        name=op.name,
        input_arg=[_to_arg(arg) for arg in op.inputs],
        output_arg=[_to_arg(arg) for arg in op.outputs],
        attr=[_to_attr(attr) for attr in op.attrs],
        is_stateful=op.is_stateful,
        is_commutative=op.is_commutative,
        is_aggregate=op.is_aggregate,
        allows_uninitialized_input=op.allows_uninitialized_input,
        is_distributed_communication=op.is_distributed_communication,
    )
    if op.deprecation is not None:
        op_def.deprecation.version = op.deprecation.version
        op_def.deprecation.explanation = op.deprecation.explanation
    return op_def


def without_prose(op_def: Any) -> Any:
    """A copy of `op_def` that says nothing but facts."""
    copy = op_def_pb2.OpDef()
    copy.CopyFrom(op_def)
    copy.ClearField("summary")
    copy.ClearField("description")
    for part in (*copy.input_arg, *copy.output_arg, *copy.attr):
        part.ClearField("description")
    return copy


def _to_arg(arg: Arg) -> Any:
    proto = op_def_pb2.OpDef.ArgDef(
        name=arg.name,
        type_attr=arg.type_attr,
        type_list_attr=arg.type_list_attr,
        number_attr=arg.count,
        is_ref=arg.is_ref,
    )
    if arg.dtype is not None:
        proto.type = _dtype_number(arg.dtype)
    if arg.full_type is not None:
        proto.experimental_full_type.CopyFrom(_to_full_type(arg.full_type))
    return proto


def _to_full_type(full_type: FullType) -> Any:
    return full_type_pb2.FullTypeDef(
        type_id=full_type_pb2.FullTypeId.Value(full_type.type_id),
        args=[_to_full_type(arg) for arg in full_type.args],
        s=full_type.s,
    )


def _to_attr(attr: Attr) -> Any:
    proto = op_def_pb2.OpDef.AttrDef(name=attr.name, type=str(attr.kind))
    if attr.default is not None:
        proto.default_value.CopyFrom(_to_value(attr.default, attr.kind))
    if attr.minimum is not None:
        proto.has_minimum = True
        proto.minimum = attr.minimum
    if attr.allowed is not None:
        kind = AttrKind(f"list({attr.kind.element})")
        proto.allowed_values.CopyFrom(_to_value(attr.allowed, kind))
    return proto


def _to_value(value: Value | tuple[str, ...], kind: AttrKind) -> Any:
    field = _FIELDS[kind.element]
    if kind.is_list and isinstance(value, tuple):
        items = [_to_scalar(item, kind.element) for item in value]
        lists = attr_value_pb2.AttrValue.ListValue(**{field: items})
        return attr_value_pb2.AttrValue(list=lists)
    return attr_value_pb2.AttrValue(**{field: _to_scalar(value, kind.element)})


def _to_scalar(value: Any, kind: str) -> Any:
    if kind == "string":
        return value.encode()
    if kind == "type":
        return _dtype_number(value)
    if isinstance(value, ShapeValue):
        if value.dims is None:
            return tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
        return tensor_shape_pb2.TensorShapeProto(
            dim=[
                tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in value.dims
            ]
        )
    if isinstance(value, TensorValue):
        return _to_tensor(value)
    if isinstance(value, FuncValue):
        return attr_value_pb2.NameAttrList(name=value.name)
    return value


def _to_tensor(value: TensorValue) -> Any:
    """One value a repeated field, as OpDefs written in text have it."""
    fields = {
        "float": "float_val",
        "double": "double_val",
        "int64": "int64_val",
        "bool": "bool_val",
        "string": "string_val",
        "uint32": "uint32_val",
        "uint64": "uint64_val",
    }
    items = [item.encode() if isinstance(item, str) else item for item in value.values]
    proto = tensor_pb2.TensorProto(
        dtype=_dtype_number(value.dtype),
        tensor_shape=_to_scalar(ShapeValue(value.shape), "shape"),
    )
    getattr(proto, fields.get(value.dtype, "int_val")).extend(items)
    return proto
