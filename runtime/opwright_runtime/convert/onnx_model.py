"""Converts models to ONNX."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from opwright_runtime.convert import (
    files,
    flat_graphs,
    forms,
    implementations,
    numbers,
    packages,
    signatures,
    widen,
)
from opwright_runtime.convert.assignments import without_assignments
from opwright_runtime.convert.calls import Request, calls_for
from opwright_runtime.convert.errors import ConvertError, refusal
from opwright_runtime.convert.flat_graphs import label
from opwright_runtime.convert.layers import FORWARD, Layers
from opwright_runtime.convert.numbers import Run, Values
from opwright_runtime.convert.onnx_rnn import handler
from opwright_runtime.convert.replacements import Plain, ProjectedOnly
from opwright_runtime.convert.report import Report
from opwright_runtime.convert.rewrite import Found, replace_nodes
from opwright_runtime.convert.signatures import Flat
from opwright_runtime.convert.sources import opened

FORMAT = "ONNX"
TOLERANCE = 2e-6
OPSETS = range(13, 19)
"""The opsets that tf2onnx writes, and that have the operators as they are used here."""

_REMEDY = "report this with the model, or use to_plain"
_OperatorSets: TypeAlias = Any


def convert(model: Any, path: Path, opset: int, request: Request) -> Report:
    """Writes an ONNX file: `to_onnx`."""
    for name in ("tf2onnx", "onnx", "onnxruntime"):
        packages.load(name, "to_onnx")
    if opset not in OPSETS:
        raise ConvertError(
            f"opset must lie between {OPSETS[0]} and {OPSETS[-1]}, not {opset!r}"
        )
    with (
        opened(
            model, request.tensors, request.shapes, dropout_off=request.dropout_off
        ) as source,
        tempfile.TemporaryDirectory(prefix="opwright-convert-") as folder,
        files.replacing(path, overwrite=request.overwrite) as target,
    ):
        request.notify("reading the model")
        fixed = without_assignments(source.folder, Path(folder, "fixed"))
        fixed = implementations.with_nodes(
            fixed, request.signature, Path(folder, "nodes")
        )
        loaded = signatures.load(source.folder)
        fixed_model = loaded if fixed == source.folder else signatures.load(fixed)
        shapes = {} if callable(model) else request.shapes
        flat = signatures.flatten(fixed_model, request.signature, shapes)
        signatures.refuse_bfloat16(flat, "onnxruntime")
        request.notify("replacing recurrent nodes")
        known, found, notes = prepare(flat)
        widened = widen.widen(flat, [tf.bfloat16])
        request.notify("converting all other nodes")
        made = _through_tf2onnx(flat, known, opset)
        data = _checked_bytes(made)
        request.notify("comparing the numbers")
        run = _session(data, flat)
        comparisons = {}
        if request.check:
            function = signatures.choose(loaded, request.signature)
            before = signatures.run(function)
            dtypes = {*widened, *(one.dtype for one in found)}
            comparisons[request.signature or "serving_default"] = numbers.compare(
                before,
                run,
                calls_for(loaded, request.signature, request, before, shapes),
                request.tolerance or numbers.tolerance(dtypes, TOLERANCE),
                "the ONNX file",
            )
        target.write_bytes(data)
        return Report(
            source.name,
            str(path),
            FORMAT,
            tuple(found),
            files.size_of(source.folder),
            len(data),
            comparisons,
            (*source.notes, *notes, *widen.notes(widened)),
        )


def prepare(
    flat: Flat,
) -> tuple[dict[str, tuple[str, Layers]], list[Found], tuple[str, ...]]:
    """Leaves forward nodes that ONNX has operators for, each with a name of its own."""
    keras = flat_graphs.replace_keras(flat)
    forms.replace(flat)
    plain = Plain("scatter", False, single=True)
    projected = replace_nodes(flat.graph, frozenset(FORWARD), ProjectedOnly(plain))
    flat_graphs.inline(flat)
    signatures.unwire_identities(flat.graph)
    flat_graphs.prune(flat)
    flat_graphs.refuse_backward(flat, "ONNX")
    flat_graphs.fold_params(flat)
    flat_graphs.prune(flat)
    known = label(flat)
    found = [
        Found(
            place,
            layers.op,
            str(layers),
            f"{_operator(layers)} nodes of ONNX",
            layers.dtype.name,
        )
        for place, layers in known.values()
    ]
    notes = implementations.notes(keras)
    cast = sorted({one.dtype.name for _, one in known.values()} - {"float32"})
    if cast:
        notes.append(f"recurrent layers of {', '.join(cast)} compute in float32")
    if projected:
        notes.append("ONNX has no projections: a Loop runs such layers")
    return known, [*projected, *found], tuple(notes)


def _operator(layers: Layers) -> str:
    return {"lstm": "LSTM", "gru": "GRU"}.get(layers.sizes.rnn_mode, "RNN")


def _through_tf2onnx(
    flat: Flat, known: dict[str, tuple[str, Layers]], opset: int
) -> Any:
    tf2onnx = packages.load("tf2onnx", "to_onnx")
    names = {tensor: key for key, tensor in flat.inputs.items()}
    names |= {flat.outputs[key]: name for key, name in output_names(flat).items()}
    convert_node = handler({name: layers for name, (_, layers) in known.items()})
    failures: list[tuple[ConvertError, Exception]] = []
    made: object = None

    def noted(graph: object, node: object, name: str, args: object) -> None:
        # tf2onnx logs what a handler raises, and goes on.
        try:
            convert_node(graph, node, name, args)
        except Exception as error:
            place, layers = known[name.rpartition("/")[2]]
            why = f"it has no form in ONNX: {error}"
            failures.append((refusal(layers.op, place, why, _REMEDY), error))
            raise

    with _quiet():
        try:
            made, _ = tf2onnx.convert.from_graph_def(
                flat.graph,
                name="model",
                input_names=[*flat.inputs.values()],
                output_names=[*flat.outputs.values()],
                opset=opset,
                custom_op_handlers={op: (noted, []) for op in FORWARD},
                tensors_to_rename=names,
            )
        except Exception as error:
            # tf2onnx raises errors of any class.
            text = " ".join(str(error).split())[:600]
            said = f"tf2onnx refuses the model: {text}; {_REMEDY}"
            failures.append((ConvertError(said), error))
    if failures:
        # The others come of the first one.
        failure, cause = failures[0]
        raise failure from cause
    return made


def output_names(flat: Flat) -> dict[str, str]:
    """The names of outputs in ONNX, where they must differ from those of inputs."""
    return {key: f"{key}_output" if key in flat.inputs else key for key in flat.outputs}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences tf2onnx: the result is checked afterwards."""
    logger = logging.getLogger("tf2onnx")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _checked_bytes(model: Any) -> bytes:
    """The file, if ONNX knows all that is in it."""
    onnx = packages.load("onnx", "to_onnx")
    unknown = sorted(_unknown_operators(model.graph, model.opset_import))
    if unknown:
        raise ConvertError(
            f"ONNX has no operators for {', '.join(unknown)}, and tf2onnx does not "
            "convert them; replace them in the model, or use to_plain"
        )
    data: bytes = model.SerializeToString()
    try:
        onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)
    except Exception as error:
        text = " ".join(str(error).split())[:600]
        raise ConvertError(f"ONNX refuses the result: {text}; {_REMEDY}") from error
    return data


def _unknown_operators(graph: Any, opsets: _OperatorSets) -> set[str]:
    onnx = packages.load("onnx", "to_onnx")
    versions = {one.domain: one.version for one in opsets}
    found: set[str] = set()
    for node in graph.node:
        version = versions.get(node.domain, 0)
        if not onnx.defs.has(node.op_type, version, node.domain):
            found.add(node.op_type)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                found |= _unknown_operators(inner, opsets)
    return found


def _session(data: bytes, flat: Flat) -> Run:
    """Loads the file.

    Raises:
        ConvertError: onnxruntime refuses it.
    """
    onnxruntime = packages.load("onnxruntime", "to_onnx")
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            data, settings, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        text = " ".join(str(error).split())[:600]
        raise ConvertError(
            f"onnxruntime refuses the result: {text}; {_REMEDY}"
        ) from error
    keys = {name: key for key, name in output_names(flat).items()}
    wanted = [one.name for one in session.get_outputs()]
    taken = {one.name for one in session.get_inputs()}

    def run(inputs: Values) -> Values:
        given = {key: np.asarray(inputs[key]) for key in inputs if key in taken}
        values = session.run(wanted, given)
        return {keys[name]: one for name, one in zip(wanted, values, strict=True)}

    return run
