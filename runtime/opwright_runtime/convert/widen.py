"""Computes in float32 what a runtime has no other dtype for."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import tensorflow as tf

from opwright_runtime.convert import graphs
from opwright_runtime.convert.graphs import (
    FunctionDef,
    GraphDef,
    NodeDef,
    node_of,
)
from opwright_runtime.convert.signatures import Flat

_FLOAT = tf.float32.as_datatype_enum


def widen(flat: Flat, dtypes: Collection[tf.DType]) -> tuple[str, ...]:
    """Lets all nodes compute in float32 in place of these dtypes, in place.

    Inputs and outputs keep their dtypes, by casts. But outputs of bfloat16, which
    Python cannot take from a runtime, become float32.

    Returns:
        The names of those of the dtypes that the graph had.
    """
    numbers = {one.as_datatype_enum for one in dtypes}
    before = _output_dtypes(flat)
    found = {number for number in numbers if _has(flat.graph, number)}
    if not found:
        return ()
    inputs = {node_of(tensor): key for key, tensor in flat.inputs.items()}
    for body in graphs.bodies(flat.graph):
        if body.function is not None:
            _widen_signature(body.function, numbers)
        for node in body.nodes:
            if body.function is not None or node.name not in inputs:
                _widen_node(node, numbers)
    _cast_inputs(flat, dtypes)
    kept = {*dtypes} - {tf.bfloat16}
    for key, dtype in before.items():
        if dtype in kept and node_of(flat.outputs[key]) not in inputs:
            flat.outputs[key] = _cast(flat, flat.outputs[key], tf.float32, dtype)
    return tuple(sorted(tf.as_dtype(number).name for number in found))


def notes(widened: Collection[str]) -> list[str]:
    """What a report says about it."""
    return [f"nodes of {', '.join(widened)} compute in float32"] if widened else []


def _has(graph: GraphDef, number: int) -> bool:
    return any(
        value.type == number or number in value.list.type
        for node in graphs.nodes(graph)
        for value in node.attr.values()
    )


def _output_dtypes(flat: Flat) -> dict[str, tf.DType]:
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(flat.graph, name="")
        return {
            key: graph.get_tensor_by_name(name).dtype
            for key, name in flat.outputs.items()
        }


def _widen_signature(function: FunctionDef, numbers: Collection[int]) -> None:
    signature = function.signature
    for argument in (*signature.input_arg, *signature.output_arg):
        if argument.type in numbers:
            argument.type = _FLOAT
            argument.ClearField("experimental_full_type")


def _widen_node(node: NodeDef, numbers: Collection[int]) -> None:
    # The type of a list's elements, for instance, which TensorFlow infers anew.
    node.ClearField("experimental_type")
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "type" and value.type in numbers:
            value.type = _FLOAT
        elif kind == "list":
            for i, number in enumerate(value.list.type):
                if number in numbers:
                    value.list.type[i] = _FLOAT
        elif kind == "tensor" and value.tensor.dtype in numbers:
            array = np.asarray(tf.make_ndarray(value.tensor), np.float32)
            value.tensor.CopyFrom(tf.make_tensor_proto(array))


def _cast_inputs(flat: Flat, dtypes: Collection[tf.DType]) -> None:
    """Lets nodes read float32 where an input keeps one of these dtypes."""
    names: dict[str, str] = {}
    for key, tensor in flat.inputs.items():
        if flat.specs[key].dtype in dtypes:
            made = _cast(flat, tensor, flat.specs[key].dtype, tf.float32)
            names[node_of(tensor)] = node_of(made)
    for node in flat.graph.node:
        if node.name not in names.values():
            for i, name in enumerate(node.input):
                if not name.startswith("^") and node_of(name) in names:
                    node.input[i] = names[node_of(name)]


def _cast(flat: Flat, tensor: str, before: tf.DType, after: tf.DType) -> str:
    taken = {node.name for node in flat.graph.node}
    name = graphs.unique_name(f"{node_of(tensor)}_{after.name}", taken)
    node = flat.graph.node.add(name=name, op="Cast", input=[tensor])
    node.attr["SrcT"].type = before.as_datatype_enum
    node.attr["DstT"].type = after.as_datatype_enum
    return f"{name}:0"
