"""The signatures of SavedModels: loading, calling and flattening them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from opwright_runtime._internals import flatten_function
from opwright_runtime.convert.errors import ConvertError
from opwright_runtime.convert.graphs import GraphDef, data_inputs, node_of
from opwright_runtime.convert.numbers import Run, Values

# A message of protocol buffers has at most 2 GB, and a graph needs space for its nodes.
_LARGEST = 2_000_000_000


def load(folder: Path) -> Any:
    """Loads a SavedModel.

    Raises:
        ConvertError: TensorFlow refuses it.
    """
    try:
        return tf.saved_model.load(str(folder))
    except Exception as error:
        # A damaged model fails with errors of any class.
        text = " ".join(str(error).split())[:600]
        raise ConvertError(
            f"TensorFlow does not load {folder}: {type(error).__name__}: {text}; save "
            "the model again, with this version of TensorFlow"
        ) from error


def named(loaded: Any) -> dict[str, Any]:
    """The signatures of a loaded model by name.

    Raises:
        ConvertError: the model has none, or other objects in their place.
    """
    found = getattr(loaded, "signatures", None)
    if not isinstance(found, Mapping):
        raise ConvertError(
            "the model has no list of signatures, or a damaged one; save the model "
            "again"
        )
    for name, one in found.items():
        if not hasattr(one, "structured_input_signature"):
            raise ConvertError(
                f"signature {name!r} of the model is no function; save the model again"
            )
    return dict(found)


def choose(loaded: Any, name: str | None) -> Any:
    """The signature of this name; by default "serving_default", or the only one."""
    known = named(loaded)
    if name is None:
        name = "serving_default" if "serving_default" in known else None
        if name is None and len(known) == 1:
            (name,) = known
    if name not in known:
        text = ", ".join(map(repr, sorted(known))) or "none"
        given = "one must be named" if name is None else f"there is no {name!r}"
        raise ConvertError(f"signature: {given}; the model has {text}")
    return known[name]


def specs(function: Any) -> dict[str, tf.TensorSpec]:
    """The inputs of a signature by name."""
    return dict(function.structured_input_signature[1])


def run(function: Any) -> Run:
    def called(inputs: Values) -> Values:
        given = {name: tf.constant(value) for name, value in inputs.items()}
        outputs: Values = function(**given)
        return outputs

    return called


@dataclass(frozen=True)
class Flat:
    """A signature as one graph without variables.

    Attributes:
        graph: its GraphDef. Loops and branches call functions of its library.
        inputs: the names of the tensors for each input.
        outputs: the names of the tensors for each output.
        specs: the inputs.
    """

    graph: GraphDef
    inputs: dict[str, str]
    outputs: dict[str, str]
    specs: dict[str, tf.TensorSpec]


def flatten(
    loaded: Any, name: str | None, shapes: Mapping[str, Any] | None = None
) -> Flat:
    """Freezes a signature: variables become constants, calls are inlined.

    Args:
        loaded: the SavedModel.
        name: the signature.
        shapes: other shapes for some of its inputs.

    Raises:
        ConvertError: a shape does not fit, or the model is too large.
    """
    function = choose(loaded, name)
    _check_size(function)
    wanted = _reshaped(specs(function), shapes or {})
    inner = function

    def serve(**inputs: Any) -> Any:
        return inner(**inputs)

    try:
        traced = tf.function(serve, autograph=False).get_concrete_function(**wanted)
        frozen = flatten_function(traced, lower_control_flow=False)
    except (ValueError, TypeError, KeyError, RuntimeError, tf.errors.OpError) as error:
        text = " ".join(str(error).split())[:600]
        raise ConvertError(
            f"the signature cannot be frozen: {text}; save the model again, or use "
            "to_plain"
        ) from error
    graph = frozen.graph.as_graph_def()
    named = traced.structured_outputs
    outputs = {
        key: tensor.name
        for key, tensor in zip(sorted(named), frozen.outputs, strict=True)
    }
    inputs = dict(zip(sorted(wanted), (t.name for t in frozen.inputs), strict=True))
    unwire_identities(graph)
    return Flat(graph, inputs, outputs, wanted)


def refuse_bfloat16(flat: Flat, runtime: str) -> None:
    """Refuses inputs that Python cannot pass to a runtime.

    Raises:
        ConvertError: an input is of dtype bfloat16.
    """
    for key, spec in flat.specs.items():
        if spec.dtype == tf.bfloat16:
            raise ConvertError(
                f"input {key!r} is bfloat16, which {runtime} does not take; let the "
                "signature take float32 and cast it"
            )


def _check_size(function: Any) -> None:
    total = sum(
        variable.shape.num_elements() * variable.dtype.size
        for variable in function.graph.variables
        if variable.shape.is_fully_defined()
    )
    if total > _LARGEST:
        raise ConvertError(
            f"the variables have {total:,} bytes, and one graph holds {_LARGEST:,}; "
            "convert it to plain TensorFlow, or save parts of the model"
        )


def _reshaped(
    known: dict[str, tf.TensorSpec], shapes: Mapping[str, Any]
) -> dict[str, tf.TensorSpec]:
    for name, shape in shapes.items():
        if name not in known:
            text = ", ".join(map(repr, sorted(known)))
            raise ConvertError(f"shapes: there is no input {name!r}; there are {text}")
        if not tf.TensorShape(shape).is_compatible_with(known[name].shape):
            raise ConvertError(
                f"shapes: {list(shape)} does not fit input {name!r}, which is "
                f"{known[name].shape}"
            )
    return {
        name: tf.TensorSpec(shapes.get(name, spec.shape), spec.dtype, name)
        for name, spec in known.items()
    }


def unwire_identities(graph: GraphDef) -> None:
    """Reads past IdentityN nodes, so that what nothing uses is seen to be unused.

    A custom gradient passes all its tensors through one.
    """
    passed = {
        node.name: data_inputs(node) for node in graph.node if node.op == "IdentityN"
    }

    def source(name: str) -> str:
        while (node := node_of(name)) in passed and not name.startswith("^"):
            _, _, index = name.partition(":")
            name = passed[node][int(index or 0)]
        return name

    for node in graph.node:
        if node.op != "IdentityN":
            for i, name in enumerate(node.input):
                node.input[i] = source(name)


def integer_limits(flat: Flat) -> dict[str, int]:
    """For inputs of integers, the number of rows of the tables that they select from.

    Inputs that select nothing are left out.
    """
    by_name = {node.name: node for node in flat.graph.node}
    limits: dict[str, int] = {}
    for node in flat.graph.node:
        if node.op not in ("GatherV2", "Gather"):
            continue
        table = by_name.get(node_of(node.input[0]))
        while table is not None and table.op == "Identity":
            table = by_name.get(node_of(table.input[0]))
        if table is None or table.op != "Const":
            continue
        dims = table.attr["value"].tensor.tensor_shape.dim
        for name in _reached(node.input[1], by_name) & {
            *map(node_of, flat.inputs.values())
        }:
            rows = dims[0].size if dims else 1
            limits[name] = min(rows, limits.get(name, rows))
    return {
        key: limits[node_of(tensor)]
        for key, tensor in flat.inputs.items()
        if node_of(tensor) in limits
    }


def _reached(tensor: str, by_name: Mapping[str, Any]) -> set[str]:
    """The nodes that a tensor is computed from."""
    found: set[str] = set()
    left = [node_of(tensor)]
    while left:
        name = left.pop()
        if name in by_name and name not in found:
            found.add(name)
            left += [node_of(one) for one in data_inputs(by_name[name])]
    return found
