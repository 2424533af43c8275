"""Converts OpDefs to models and back.

OpDefs come from an installed TensorFlow, a library or a saved list. Only this file
imports TensorFlow. `from_op_def` and `to_op_def` are inverse in all fields but prose.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from opwright_notation.tensorflow_log import hidden_log

with hidden_log():
    import tensorflow as tf

import numpy as np
from google.protobuf import message, text_format
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import ops

from opwright_codegen import contents, library_faults
from opwright_codegen.library_process import received, start
from opwright_codegen.model import (
    Arg,
    Attr,
    Deprecation,
    FullType,
    FuncAttr,
    FuncValue,
    Op,
    Scalar,
    ShapeValue,
    TensorValue,
    Value,
)
from opwright_codegen.problems import SourceError
from opwright_codegen.types import KINDS, TENSOR_DTYPES, AttrKind, DTypeName

VERSION: str = tf.__version__


def _messages(name: str) -> Any:
    """Imports a module of message classes, for which type checkers have no types."""
    return importlib.import_module(f"tensorflow.core.framework.{name}_pb2")


attr_value_pb2 = _messages("attr_value")
full_type_pb2 = _messages("full_type")
graph_pb2 = _messages("graph")
op_def_pb2 = _messages("op_def")
tensor_pb2 = _messages("tensor")
tensor_shape_pb2 = _messages("tensor_shape")
types_pb2 = _messages("types")


def installed() -> list[Any]:
    """All OpDefs in the op registry of this process."""
    buffer = pywrap_tf_session.TF_GetAllOpList()
    return list(op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(buffer)).op)


def gradients() -> dict[str, str]:
    """For each op, what TensorFlow's registry of gradients has: one of `GRADIENTS`."""
    registered = ops.gradient_registry
    known = {
        name: "not_differentiable" if registered.lookup(name) is None else "registered"
        for name in registered.list()
    }
    return {op_def.name: known.get(op_def.name, "none") for op_def in installed()}


def raw_ops() -> dict[str, dict[str, str] | None]:
    """For each op, the keywords of `tf.raw_ops`; None for an op that it lacks.

    The dict of an op has only the keywords that differ from the OpDef's names. Its keys
    are the OpDef's names. Names and keywords are matched by position, because
    TensorFlow keeps the order.
    """
    return {op_def.name: _keywords(op_def) for op_def in installed()}


def _keywords(op_def: Any) -> dict[str, str] | None:
    function = getattr(tf.raw_ops, op_def.name, None)
    if function is None:
        return None
    inferred: set[str] = set()
    for arg in op_def.input_arg:
        inferred |= {arg.type_attr, arg.number_attr, arg.type_list_attr}
    attrs = [attr.name for attr in op_def.attr if attr.name not in inferred]
    names = [arg.name for arg in op_def.input_arg] + attrs
    keywords = [one for one in inspect.signature(function).parameters if one != "name"]
    ours = [name for name in names if name not in keywords]
    theirs = [keyword for keyword in keywords if keyword not in names]
    return dict(zip(ours, theirs, strict=True))


def library(path: Path) -> list[Any]:
    """The OpDefs that the custom-op library at `path` registers. There may be none.

    The library is loaded in another process: a registry accepts an op only once, and a
    library that crashes must not end this process.

    Raises:
      SourceError: TensorFlow cannot load it, or it needs another copy of TensorFlow.
    """
    if not path.is_file():
        what = "is no regular file" if path.exists() else "no such file"
        raise SourceError(f"{path}: {what}")
    if (own := library_faults.own_framework(path)) is not None:
        raise SourceError(
            f"{path}: it is linked with {own}, a copy of TensorFlow of its own, and a"
            " process can hold one: leave TensorFlow's libraries out of the wheel:"
            " auditwheel repair --exclude libtensorflow_framework.so.2 --exclude"
            " libtensorflow_cc.so.2"
        )
    receiver, loading = start(_send_ops, path)
    found, reason = received(receiver) or (None, "")
    loading.join()
    if found is not None:
        return list(op_def_pb2.OpList.FromString(found).op)
    if not reason:
        code = loading.exitcode or 0
        ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        reason = f"it ends the process ({ended})"
    facts = library_faults.of_unloadable(path, reason, framework(), VERSION)
    raise SourceError(
        f"{path}: TensorFlow {VERSION} cannot load it: {reason}."
        f"{facts and f' {facts[0].upper()}{facts[1:]}.'} If it was built for"
        f" another TensorFlow, run 'opwright-codegen save {path} ops.pb' where that is"
        " installed, and give ops.pb here in its place"
    )


def framework() -> Path:
    """TensorFlow's library, in which ops are registered."""
    return Path(str(tf.sysconfig.get_lib()), "libtensorflow_framework.so.2")


def why_no_ops(path: Path) -> str:
    """Why a library that can be loaded registers no op."""
    receiver, loading = start(_send_frameworks, path)
    loaded: list[str] = received(receiver) or []
    loading.join()
    return library_faults.of_silent(path, loaded, framework(), VERSION)


def ops_without_shapes(path: Path) -> list[str]:
    """The ops of a library that infer an unknown rank for outputs of all tried inputs.

    TensorFlow infers such outputs for an op without a shape function. The library is
    loaded in another process. If a shape function crashes that process, or the probe
    takes longer than `_PROBE_SECONDS`, the ops found until then are returned.
    """
    receiver, probing = start(_send_ops_without_shapes, path)
    deadline = time.monotonic() + _PROBE_SECONDS
    found: list[str] = []
    while receiver.poll(max(0.0, deadline - time.monotonic())):
        name = received(receiver)
        if name is None:
            break
        found.append(name)
    else:
        probing.kill()
    probing.join()
    return found


_PROBE_SECONDS: Final = 60.0


def _send_ops(path: Path, sender: Connection) -> None:
    """Sends the OpList that the library at `path` registers, or why that failed."""
    try:
        # `path` is absolute, because the loader searches a bare name in the system's
        # folders. load_op_library would generate functions, and fails for some names.
        handle = pywrap_tf_session.TF_LoadLibrary(str(path))
        registered: Any = pywrap_tf_session.TF_GetOpList(handle)
        sender.send((bytes(registered), ""))
    except (tf.errors.OpError, OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        sender.send((None, reason.removesuffix(".")))


def _send_frameworks(path: Path, sender: Connection) -> None:
    """Sends the files of TensorFlow's libraries that are loaded with a library."""
    pywrap_tf_session.TF_LoadLibrary(str(path))
    maps = Path("/proc/self/maps")
    lines = maps.read_text("utf-8").splitlines() if maps.exists() else []
    files = {line.partition("/")[2] for line in lines}
    named = (f"/{file}" for file in files if _FRAMEWORK_FILE.search(file))
    sender.send(sorted(named))


_FRAMEWORK_FILE: Final = re.compile(r"libtensorflow_(framework|cc)[-.\w]*$")


def _send_ops_without_shapes(path: Path, sender: Connection) -> None:
    handle = pywrap_tf_session.TF_LoadLibrary(str(path))
    registered: Any = pywrap_tf_session.TF_GetOpList(handle)
    for op_def in op_def_pb2.OpList.FromString(bytes(registered)).op:
        if op_def.output_arg and _lacks_shapes(op_def):
            sender.send(op_def.name)


#: The ranks of inputs that `_lacks_shapes` tries.
_PROBED_RANKS: Final = range(5)


def _lacks_shapes(op_def: Any) -> bool:
    """Whether every output has an unknown rank for all ranks of the inputs.

    An op without a shape function refuses no shapes. So an op that refuses some shapes
    has a shape function, or it cannot be probed. The result is then False.
    """
    graph_def = graph_pb2.GraphDef()
    graph_def.versions.producer = tf.version.GRAPH_DEF_VERSION
    probes: list[str] = []
    # The first two inputs get all combinations of ranks. Later inputs repeat these
    # ranks in turn.
    for ranks in itertools.product(_PROBED_RANKS, repeat=min(2, len(op_def.input_arg))):
        probes.append(f"probe{len(probes)}")
        _add_probe(graph_def, op_def, probes[-1], itertools.cycle(ranks))
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
    except (ValueError, TypeError, KeyError, RuntimeError, tf.errors.OpError):
        return False
    outputs = [
        output
        for name in probes
        for output in graph.get_operation_by_name(name).outputs
    ]
    return bool(outputs) and all(output.shape.rank is None for output in outputs)


def _add_probe(graph_def: Any, op_def: Any, name: str, ranks: Iterator[int]) -> None:
    """Adds a node of the op, and a node for each of its inputs."""
    attrs = {attr.name: _probed_attr(attr) for attr in op_def.attr}
    inputs: list[str] = []
    for arg in op_def.input_arg:
        rank = next(ranks)
        for dtype in _probed_dtypes(arg, attrs):
            inputs.append(f"{name}_input{len(inputs)}")
            shape = tf.TensorShape([2] * rank).as_proto()
            node = graph_def.node.add(name=inputs[-1])
            node.attr["dtype"].type = dtype
            if dtype in (types_pb2.DT_INT32, types_pb2.DT_INT64) and not arg.is_ref:
                # A shape function may read the value of this input, such as sizes or
                # axes, so it is a constant.
                node.op = "Const"
                ones = tf.make_tensor_proto(1, tf.as_dtype(dtype), [2] * rank)
                node.attr["value"].tensor.CopyFrom(ones)
            else:
                node.op = "VariableV2" if arg.is_ref else "Placeholder"
                node.attr["shape"].shape.CopyFrom(shape)
    node = graph_def.node.add(name=name, op=op_def.name, input=inputs)
    for attr, value in attrs.items():
        node.attr[attr].CopyFrom(value)


def _probed_dtypes(arg: Any, attrs: Mapping[str, Any]) -> list[int]:
    """The dtypes of the tensors of an argument."""
    if arg.type_list_attr:
        return list(attrs[arg.type_list_attr].list.type)
    dtype = attrs[arg.type_attr].type if arg.type_attr else arg.type
    return [dtype] * (attrs[arg.number_attr].i if arg.number_attr else 1)


def _probed_attr(attr: Any) -> Any:
    """The default of an attr, or else a value that it allows."""
    if attr.HasField("default_value"):
        return attr.default_value
    kind = AttrKind(attr.type)
    field = _FIELDS[kind.element]
    allowed = getattr(attr.allowed_values.list, field, ())
    values: dict[str, Any] = {
        "i": max(attr.minimum, 1),
        "f": 1.0,
        "b": False,
        "s": b"",
        "type": types_pb2.DT_FLOAT,
        "shape": tf.TensorShape([2]).as_proto(),
        "tensor": tf.make_tensor_proto(1.0),
        "func": attr_value_pb2.NameAttrList(name="f"),
    }
    one = allowed[0] if allowed else values[field]
    if not kind.is_list:
        return attr_value_pb2.AttrValue(**{field: one})
    items = {field: [one] * max(attr.minimum, 1)}
    return attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(**items))


def saved(path: Path) -> list[Any]:
    """Reads an OpList in binary (`.pb`) or text (`.pbtxt`) form, also with `.xz`.

    Raises:
      SourceError: the file cannot be read as an OpList.
    """
    try:
        read = contents.of_list(path)
        if contents.is_list(path, ".pb"):
            return list(op_def_pb2.OpList.FromString(read).op)
        return list(text_format.Parse(read.decode(), op_def_pb2.OpList()).op)
    except (
        # The parser of text is recursive, so deeply nested text raises RecursionError.
        OSError,
        ValueError,
        RecursionError,
        message.Error,
        text_format.ParseError,
    ) as error:
        raise SourceError(f"{path}: no OpList can be read from it: {error}") from error


def save(op_defs: Iterable[Any], path: Path) -> bytes:
    """`op_defs` as an OpList: text, or binary if `path` ends in `.pb` or `.pb.xz`."""
    op_list = op_def_pb2.OpList(op=op_defs)
    if contents.is_list(path, ".pb"):
        return contents.packed(op_list.SerializeToString(deterministic=True), path)
    return contents.packed(text_format.MessageToString(op_list).encode(), path)


def from_op_def(op_def: Any, group: str) -> Op:
    """Converts an OpDef to a model, without the OpDef's prose.

    Raises:
      SourceError: the OpDef has a value that a model cannot represent.
    """
    try:
        op = _op(op_def, group)
        # The serialized bytes are compared, because nan is not equal to nan.
        lossless = _bytes(to_op_def(op)) == _bytes(without_prose(op_def))
    except (ValueError, TypeError) as error:
        raise SourceError(f"{op_def.name}: cannot be an opdef: {error}") from error
    if not lossless:
        raise SourceError(f"{op_def.name}: its OpDef says more than an opdef can")
    return op


def _bytes(op_def: Any) -> bytes:
    return bytes(op_def.SerializeToString(deterministic=True))


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
    if attr.type not in KINDS:
        raise ValueError(f"attr {attr.name!r} is of the unknown kind {attr.type!r}")
    kind = AttrKind(attr.type)
    allowed: tuple[str, ...] | None = None
    if attr.HasField("allowed_values"):
        values = _value(attr.allowed_values, AttrKind(f"list({kind.element})"))
        if not all(isinstance(value, str) for value in values):
            raise ValueError(f"{attr.name} allows what is neither a dtype nor UTF-8")
        allowed = tuple(map(str, values))
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
        return _float(value, np.float32)
    if kind == "string":
        return _text(value)
    if kind == "type":
        return _dtype_name(value)
    if kind == "shape":
        if value.unknown_rank:
            return ShapeValue(None)
        names = tuple(dim.name for dim in value.dim)
        return ShapeValue(
            tuple(dim.size for dim in value.dim), names if any(names) else ()
        )
    if kind == "tensor":
        return _tensor(value)
    if kind == "func":
        return FuncValue(
            value.name,
            tuple(_func_attr(name, value.attr[name]) for name in sorted(value.attr)),
        )
    return value  # type: ignore[no-any-return]


def _float(value: Any, dtype: Any) -> float:
    """The shortest text that reads back as the same number of `dtype`."""
    number = float(str(dtype(value)))
    return math.nan if math.isnan(number) else number


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _func_attr(name: str, value: Any) -> FuncAttr:
    field = value.WhichOneof("value")
    kinds = {field: kind for kind, field in _FIELDS.items()}
    if field not in (*kinds, "list"):
        raise ValueError(f"attr {name!r} of a function is of the unknown kind {field}")
    if field != "list":
        kind = AttrKind(kinds[field])
    else:
        # An empty list may be of any kind, because all empty lists are equal in protos.
        held = [kinds[found.name] for found, _ in value.list.ListFields()] or ["int"]
        if len(held) > 1:
            raise ValueError(f"the attr {name} is a list of {' and '.join(held)}")
        kind = AttrKind(f"list({held[0]})")
    return FuncAttr(name, kind, _value(value, kind))


#: The field of TensorProto with the values, by dtype. Other dtypes use int_val.
_TENSOR_FIELDS = {
    "float": "float_val",
    "double": "double_val",
    "half": "half_val",
    "bfloat16": "half_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "string": "string_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
}
_FLOATING = ("half", "bfloat16", "float", "double")
_HALVES = ("half", "bfloat16")
_COMPLEX = ("complex64", "complex128")


def _tensor(value: Any) -> TensorValue:
    dtype = _dtype_name(value.dtype)
    if dtype not in TENSOR_DTYPES:
        raise ValueError(f"a tensor of {dtype}")
    packed = bool(value.tensor_content)
    stored = getattr(value, _TENSOR_FIELDS.get(dtype, "int_val"))
    items: list[Any]
    if dtype == "string":
        items = [_text(item) for item in stored]
    else:
        numpy = tf.as_dtype(value.dtype).as_numpy_dtype
        if packed:
            array = np.frombuffer(value.tensor_content, numpy)
        elif dtype in _HALVES:
            array = np.array(stored, np.uint16).view(numpy)
        elif dtype in _COMPLEX:
            pairs = zip(stored[::2], stored[1::2], strict=True)
            array = np.array([complex(*pair) for pair in pairs], numpy)
        else:
            array = np.array(stored, numpy)
        if dtype in _COMPLEX and np.isnan(array).any():
            raise ValueError("a tensor of complex numbers with nan, which none equals")
        floating = dtype in _FLOATING
        items = [_float(x, numpy) for x in array] if floating else array.tolist()
    shape = ShapeValue(tuple(dim.size for dim in value.tensor_shape.dim)).dims or ()
    return TensorValue(dtype, shape, tuple(items), packed)


# These functions convert models to OpDefs.


def to_op_def(op: Op) -> Any:
    """Converts a model to an OpDef without prose."""
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
    """A copy of `op_def` without its summaries and descriptions."""
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
        return _to_bytes(value)
    if kind == "type":
        return _dtype_number(value)
    if isinstance(value, ShapeValue):
        if value.dims is None:
            return tensor_shape_pb2.TensorShapeProto(unknown_rank=True)
        names = value.names or [""] * len(value.dims)
        return tensor_shape_pb2.TensorShapeProto(
            dim=[
                tensor_shape_pb2.TensorShapeProto.Dim(size=size, name=name)
                for size, name in zip(value.dims, names, strict=True)
            ]
        )
    if isinstance(value, TensorValue):
        return _to_tensor(value)
    if isinstance(value, FuncValue):
        attrs = {attr.name: _to_value(attr.value, attr.kind) for attr in value.attrs}
        return attr_value_pb2.NameAttrList(name=value.name, attr=attrs)
    return value


def _to_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _to_tensor(value: TensorValue) -> Any:
    """A TensorProto with its values in a repeated field, or as bytes if packed."""
    proto = tensor_pb2.TensorProto(
        dtype=_dtype_number(value.dtype),
        tensor_shape=_to_scalar(ShapeValue(value.shape), "shape"),
    )
    if value.dtype == "string":
        proto.string_val.extend(_to_bytes(item) for item in value.values)
        return proto
    array = np.array(value.values, tf.as_dtype(proto.dtype).as_numpy_dtype)
    if value.packed:
        proto.tensor_content = array.tobytes()
        return proto
    if value.dtype in _HALVES:
        array = array.view(np.uint16)
    elif value.dtype in _COMPLEX:
        array = array.view(array.real.dtype)
    field = _TENSOR_FIELDS.get(value.dtype, "int_val")
    getattr(proto, field).extend(array.tolist())
    return proto
