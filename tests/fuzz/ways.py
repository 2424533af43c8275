"""The ways to make a call: eagerly, in a function, from a SavedModel, compiled."""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)
from tensorflow.python.eager import context, execute

from . import functions
from .calls import Call, Literal, Made, attr_kinds, op_def, settled

# eager: TensorFlow's own path. args: a function of arguments of no known shape; shapes:
# of their shapes; constants: of none. saved: written as a SavedModel, with the op in a
# function of its library or in the graph, and loaded. compiled: by XLA.
EAGER = ("eager",)
GRAPH = ("args", "shapes", "constants")
SAVED = ("saved", "saved graph", "saved constants", "saved session")
COMPILED = ("compiled", "compiled shapes", "compiled constants")
WAYS = {"eager": EAGER, "graph": GRAPH, "saved": SAVED, "compiled": COMPILED}
KIND = {way: kind for kind, ways in WAYS.items() for way in ways}
# Tensors of these are never constants, and are not read.
HANDLES = (tf.variant, tf.resource)
# An attr that says how many outputs there are.
MOST_OUTPUTS = 2000

_numbers = itertools.count()


class NotMadeError(Exception):
    """An input of the call is missing, because an earlier call was refused."""


def tensor_of(
    value: Literal | Made, outputs: Sequence[list[tf.Tensor] | None]
) -> tf.Tensor:
    if isinstance(value, Made):
        made = outputs[value.call]
        if made is None or value.output >= len(made):
            raise NotMadeError
        tensor = made[value.output]
        if tensor.dtype in HANDLES:
            return tensor
        if tensor.dtype == tf.string and (value.put or value.bytes):
            raw = bytearray(tensor.numpy()) if tensor.shape == [] else bytearray()
            for at, byte in value.bytes.items():
                if raw:
                    raw[at % len(raw)] = byte
            return tf.constant(bytes(raw[: -1 if value.put else None]))
        if value.put or value.bytes:
            array = np.array(tensor.numpy())
            flat = array.reshape(-1)
            with np.errstate(all="ignore"):
                for at, element in value.put.items():
                    if flat.size:
                        flat[at % flat.size] = np.array(element).astype(array.dtype)
            raw = flat.view(np.uint8)
            for at, byte in value.bytes.items():
                if raw.size:
                    raw[at % raw.size] = byte
            tensor = tf.constant(array)
        return tensor
    try:
        tensor = tf.constant(value.array(), tf.as_dtype(value.dtype))
        return (
            tensor
            if value.shape == [tensor.shape[0]]
            else tf.reshape(tensor, value.shape)
        )
    except (tf.errors.InvalidArgumentError, ValueError, OverflowError) as error:
        raise NotMadeError(str(error)) from error  # No tensor can have this shape.


def xla_takes(tensor: tf.Tensor) -> bool:
    """Whether XLA survives a tensor of this shape: any op's, an addition's too."""
    return math.prod(x or 1 for x in tensor.shape) * tensor.dtype.size < 2**63


def tensorflow_takes(call: Call) -> bool:
    """Whether TensorFlow, also without the library, survives importing its graph.

    Its shape function of SplitDedupData reads the first dimension of a mask of none,
    that of RecvTPUEmbeddingActivations tables that a configuration does not have. Its
    loader needs the functions that attrs name.
    """
    if call.op == "RecvTPUEmbeddingActivations" and KIND[call.way] != "eager":
        config = TPUEmbeddingConfiguration()
        try:
            config.ParseFromString(call.attrs.get("config", b""))
        except DecodeError:
            return True
        tables = range(len(config.table_descriptor))
        return all(one.table_id in tables for one in config.feature_descriptor)
    if functions.MISSING in call.attrs.values() and KIND[call.way] == "saved":
        return False
    if call.op != "SplitDedupData" or KIND[call.way] != "saved":
        return True
    try:
        mask = TensorProto.FromString(call.attrs["tuple_mask"])
    except DecodeError:
        return True
    return bool(mask.tensor_shape.dim)


class Prepared:
    """A call with its tensors, in the order of the op's inputs."""

    def __init__(self, call: Call, outputs: Sequence[list[tf.Tensor] | None]) -> None:
        self.call = call
        self.definition = op_def(call.op)
        self.tensors: list[tf.Tensor] = []
        self.grouped: list[tf.Tensor | list[tf.Tensor]] = []
        counts: dict[str, Any] = {}
        for arg in self.definition.input_arg:
            given = call.inputs[arg.name]
            if isinstance(given, list):
                tensors = [tensor_of(value, outputs) for value in given]
                if arg.number_attr:
                    counts.setdefault(arg.number_attr, len(tensors))
                self.grouped.append(tensors)
            else:
                tensors = [tensor_of(given, outputs)]
                self.grouped.append(tensors[0])
            if arg.type_attr and tensors:
                counts.setdefault(arg.type_attr, tensors[0].dtype.name)
            if arg.type_list_attr:
                counts[arg.type_list_attr] = [one.dtype.name for one in tensors]
            self.tensors += tensors
        if not tensorflow_takes(call):
            raise NotMadeError
        if KIND[call.way] == "compiled" and not all(map(xla_takes, self.tensors)):
            raise NotMadeError
        self.attrs: dict[str, Any] = {}
        for attr in self.definition.attr:
            # TensorFlow itself believes a number of inputs.
            counted = isinstance(counts.get(attr.name), int)
            if attr.name in call.attrs and not counted:
                self.attrs[attr.name] = call.attrs[attr.name]
            elif attr.name in counts:
                self.attrs[attr.name] = counts[attr.name]
            elif attr.name in settled(call.op):
                # No tensor of the list says which.
                allowed = attr.allowed_values.list.type
                self.attrs[attr.name] = tf.as_dtype(allowed[0] if allowed else 1).name
        # By the output's name and number: its dtype.
        self.outputs: list[tuple[str, int, int]] = []
        for arg in self.definition.output_arg:
            if arg.type_list_attr:
                kinds = self.attrs[arg.type_list_attr]
                self.outputs += [
                    (arg.name, i, int(tf.as_dtype(kind).as_datatype_enum))
                    for i, kind in enumerate(kinds)
                ]
                continue
            count = 1
            if arg.number_attr:
                count = self.attrs[arg.number_attr]
                if not 0 <= count <= MOST_OUTPUTS:
                    raise NotMadeError
            kind = arg.type
            if arg.type_attr:
                kind = self.dtype(arg.type_attr)
            self.outputs += [(arg.name, i, kind) for i in range(count)]

    def dtype(self, attr: str) -> int:
        given = self.attrs.get(attr)
        if given is None:
            return next(
                a.default_value.type for a in self.definition.attr if a.name == attr
            )
        return int(tf.as_dtype(given).as_datatype_enum)

    def flat_attrs(self) -> tuple[Any, ...]:
        """As TensorFlow's eager path takes them."""
        kinds = attr_kinds(self.call.op)
        flat: list[Any] = []
        for name, value in self.attrs.items():
            if kinds[name] == "type":
                value = tf.as_dtype(value).as_datatype_enum
            elif kinds[name] == "list(type)":
                value = [tf.as_dtype(one).as_datatype_enum for one in value]
            flat += [name, value]
        return tuple(flat)

    def functions(self) -> list[FunctionDef]:
        """The functions that attrs name."""
        kinds = attr_kinds(self.call.op)
        names = {value for name, value in self.attrs.items() if kinds[name] == "func"}
        return [
            functions.definition(name) for name in sorted(names - {functions.MISSING})
        ]

    def node(self, inputs: Sequence[str]) -> NodeDef:
        node = NodeDef(name="op", op=self.call.op, input=inputs)
        kinds = attr_kinds(self.call.op)
        for name, value in self.attrs.items():
            node.attr[name].CopyFrom(attr_value(kinds[name], value))
        return node


def attr_value(kind: str, value: Any) -> AttrValue:
    result = AttrValue()
    if kind == "list(type)":
        result.list.type.extend(tf.as_dtype(one).as_datatype_enum for one in value)
    elif kind.startswith("list("):
        result.list.SetInParent()
        field = {"int": "i", "float": "f", "bool": "b", "string": "s"}[kind[5:-1]]
        getattr(result.list, field).extend(value)
    elif kind == "type":
        result.type = tf.as_dtype(value).as_datatype_enum
    elif kind == "func":
        result.func.name = value
    else:
        setattr(
            result, {"int": "i", "float": "f", "bool": "b", "string": "s"}[kind], value
        )
    return result


def function_of(
    prepared: Prepared, name: str, shapes: bool, constants: bool, compiled: bool
) -> FunctionDef:
    """The op in a function, of its tensors or of none."""
    function = FunctionDef()
    function.signature.name = name
    inputs = []
    for i, tensor in enumerate(prepared.tensors):
        kind = tensor.dtype.as_datatype_enum
        if constants and tensor.dtype not in HANDLES:
            function.node_def.append(constant(f"c{i}", tensor))
            inputs.append(f"c{i}:output:0")
            continue
        function.signature.input_arg.add(name=f"a{i}", type=kind)
        inputs.append(f"a{i}")
        if shapes:
            at = len(function.signature.input_arg) - 1
            shape = tensor.shape.as_proto()
            function.arg_attr[at].attr["_output_shapes"].list.shape.append(shape)
    function.node_def.append(prepared.node(inputs))
    for i, (output, number, kind) in enumerate(prepared.outputs):
        function.signature.output_arg.add(name=f"o{i}", type=kind)
        function.ret[f"o{i}"] = f"op:{output}:{number}"
    function.signature.is_stateful = True
    function.signature.control_output.append("done")
    function.control_ret["done"] = "op"
    if compiled:
        function.attr["_XlaMustCompile"].b = True
    return function


def constant(name: str, tensor: tf.Tensor) -> NodeDef:
    node = NodeDef(name=name, op="Const")
    node.attr["dtype"].type = tensor.dtype.as_datatype_enum
    proto = node.attr["value"].tensor
    if tensor.dtype == tf.string:
        proto.CopyFrom(tf.make_tensor_proto(tensor.numpy()))
    else:
        proto.dtype = tensor.dtype.as_datatype_enum
        proto.tensor_shape.CopyFrom(tensor.shape.as_proto())
        flat = (
            tf.reshape(tensor, [-1])
            if len(tensor.shape) > 30 or not tf.size(tensor)
            else tensor
        )
        proto.tensor_content = flat.numpy().tobytes()
    return node


def fed(prepared: Prepared, constants: bool) -> list[tf.Tensor]:
    return [t for t in prepared.tensors if not constants or t.dtype in HANDLES]


def make(prepared: Prepared, folder: Path) -> list[tf.Tensor]:
    """Makes the call; its outputs. Raises TensorFlow's errors."""
    way, device = prepared.call.way, f"/device:CPU:{prepared.call.device}"
    for one in prepared.functions():
        if not context.context().has_function(one.signature.name):
            context.context().add_function_def(one)
    with tf.device(device):
        if way == "eager":
            tensors = execute.quick_execute(
                prepared.call.op,
                len(prepared.outputs),
                # A list of no tensors is none to TensorFlow.
                prepared.tensors,
                prepared.flat_attrs(),
                context.context(),
            )
            return list(tensors) if isinstance(tensors, list | tuple) else []
        if way.startswith("saved"):
            return load_and_run(prepared, folder)
        name = f"fuzzed_{next(_numbers)}"
        constants = way.endswith("constants")
        function = function_of(
            prepared,
            name,
            shapes=way.endswith("shapes"),
            constants=constants,
            compiled=way.startswith("compiled"),
        )
        ctx = context.context()
        ctx.add_function_def(function)
        try:
            tensors = execute.quick_execute(
                name, len(prepared.outputs), fed(prepared, constants), (), ctx
            )
        finally:
            ctx.remove_function(name)
        return list(tensors) if isinstance(tensors, list | tuple) else []


def saved_model(prepared: Prepared, in_library: bool, constants: bool) -> SavedModel:
    meta = MetaGraphDef()
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = tf.__version__
    graph: GraphDef = meta.graph_def
    graph.versions.producer = tf.version.GRAPH_DEF_VERSION
    graph.library.function.extend(prepared.functions())
    signature = meta.signature_def["serving_default"]
    signature.method_name = "fuzzed"
    given = fed(prepared, constants)
    names = []
    for i, tensor in enumerate(given):
        node = graph.node.add(name=f"p{i}", op="Placeholder")
        node.attr["dtype"].type = tensor.dtype.as_datatype_enum
        node.attr["shape"].shape.unknown_rank = True
        names.append(node.name)
        info = signature.inputs[f"i{i}"]
        info.name, info.dtype = f"p{i}:0", tensor.dtype.as_datatype_enum
        info.tensor_shape.unknown_rank = True
    kinds = [kind for _, _, kind in prepared.outputs]
    if in_library:
        function = function_of(prepared, "fuzzed", False, constants, False)
        graph.library.function.append(function)
        node = graph.node.add(name="op", op="StatefulPartitionedCall", input=names)
        node.attr["f"].func.name = "fuzzed"
        node.attr["Tin"].list.type.extend(t.dtype.as_datatype_enum for t in given)
        node.attr["Tout"].list.type.extend(kinds)
        if not given:
            node.attr["Tin"].list.SetInParent()
        if not kinds:
            node.attr["Tout"].list.SetInParent()
    else:
        rest, inputs = iter(names), []
        for i, tensor in enumerate(prepared.tensors):
            if constants and tensor.dtype not in HANDLES:
                graph.node.append(constant(f"c{i}", tensor))
                inputs.append(f"c{i}")
            else:
                inputs.append(next(rest))
        graph.node.append(prepared.node(inputs))
    if not kinds:
        # A signature without outputs is run for this one.
        one = constant("one", tf.constant(1))
        one.input.append("^op")
        graph.node.append(one)
        kinds = [int(tf.int32.as_datatype_enum)]
        outputs = ["one:0"]
    else:
        outputs = [f"op:{i}" for i in range(len(kinds))]
    for i, (name, kind) in enumerate(zip(outputs, kinds, strict=True)):
        info = signature.outputs[f"o{i}"]
        info.name, info.dtype = name, kind
        info.tensor_shape.unknown_rank = True
    return SavedModel(saved_model_schema_version=1, meta_graphs=[meta])


def load_and_run(prepared: Prepared, folder: Path) -> list[tf.Tensor]:
    way = prepared.call.way
    constants = way == "saved constants"
    model = saved_model(prepared, way in ("saved", "saved constants"), constants)
    path = Path(tempfile.mkdtemp(dir=folder))
    try:
        (path / "saved_model.pb").write_bytes(model.SerializeToString())
        given = fed(prepared, constants)
        count = len(prepared.outputs)
        if way == "saved session" and all(t.dtype not in HANDLES for t in given):
            names = [f"op:{i}" for i in range(count)] or ["one:0"]
            config = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
            with (
                tf.Graph().as_default(),
                tf.compat.v1.Session(config=config) as session,
            ):
                # A graph has devices of its own; the function's are the caller's.
                with tf.device(f"/device:CPU:{prepared.call.device}"):
                    tf.compat.v1.saved_model.load(session, ["serve"], str(path))
                feed = {f"p{i}:0": t.numpy() for i, t in enumerate(given)}
                if any(k == tf.variant.as_datatype_enum for *_, k in prepared.outputs):
                    session.run("op", feed)
                    return []
                found = session.run(names, feed)
            return [tf.constant(x) for x in found[:count]]
        loaded = tf.saved_model.load(str(path))
        function = loaded.signatures["serving_default"]
        found = function(**{f"i{i}": t for i, t in enumerate(given)})
        return [found[f"o{i}"] for i in range(count)]
    finally:
        shutil.rmtree(path, ignore_errors=True)
