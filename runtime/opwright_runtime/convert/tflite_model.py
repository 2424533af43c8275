"""Converts models to TFLite."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import tensorflow as tf

from opwright_runtime.convert import (
    files,
    flat_graphs,
    forms,
    graphs,
    implementations,
    layers,
    numbers,
    packages,
    plain,
    signatures,
    widen,
)
from opwright_runtime.convert.assignments import without_assignments
from opwright_runtime.convert.calls import Request, calls_for
from opwright_runtime.convert.errors import ConvertError, refusal
from opwright_runtime.convert.fused import NO_BATCH, fused_cell, refusal_of
from opwright_runtime.convert.layers import FORWARD, Shape
from opwright_runtime.convert.numbers import Run, Values
from opwright_runtime.convert.replacements import specs
from opwright_runtime.convert.report import Report
from opwright_runtime.convert.rewrite import Found, Replacement, replace_nodes
from opwright_runtime.convert.signatures import Flat
from opwright_runtime.convert.sources import opened
from opwright_runtime.rnn.plain_loops import LOOPS

FORMAT = "TFLite"
Quantize: TypeAlias = Literal["dynamic", "float16"]
# The largest differences, by what is quantized.
TOLERANCES: dict[str | None, float] = {None: 2e-6, "dynamic": 5e-2, "float16": 5e-3}
_REMEDIES = {
    None: numbers.REPORT,
    "dynamic": "Weights of 8 bits are too coarse: quantize to float16, or not at all",
    "float16": "Weights of 16 bits are too coarse: do not quantize",
}

_SIGNATURE = "serving_default"
# LiteRT has few operators for them.
_WIDENED = (tf.float16, tf.bfloat16, tf.float64)


@dataclass(frozen=True)
class Form:
    """The form of the result.

    Attributes:
        fused: whether LSTM layers become fused operators; "auto": where they can.
        batch: the fixed size of the first dimension of all inputs, or None.
        quantize: how to store weights; None as they are.
    """

    fused: Literal["auto"] | bool = "auto"
    batch: int | None = None
    quantize: Quantize | None = None

    def check(self) -> None:
        if self.fused not in ("auto", True, False):
            raise ConvertError(
                f"fused must be 'auto', True or False, not {self.fused!r}"
            )
        if self.batch is not None and (
            not isinstance(self.batch, int) or self.batch < 1
        ):
            raise ConvertError(f"batch must be at least 1 or None, not {self.batch!r}")
        given: str | None = self.quantize
        if given == "int8":
            raise ConvertError(
                "quantize='int8' is refused: for recurrent layers, TFLite's converter "
                "crashes, or writes files with wrong numbers or with states that stay "
                "from call to call; pass 'dynamic' or 'float16'"
            )
        if self.quantize not in TOLERANCES:
            raise ConvertError(
                f"quantize must be 'dynamic', 'float16' or None, not {self.quantize!r}"
            )


def convert(model: Any, path: Path, form: Form, request: Request) -> Report:
    """Writes a TFLite file: `to_tflite`."""
    form.check()
    if request.check:
        _interpreter_class()
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
        function = signatures.choose(loaded, request.signature)
        given = {} if callable(model) else request.shapes
        shapes = {**_with_batch(function, form.batch), **given}
        flat = signatures.flatten(fixed_model, request.signature, shapes)
        signatures.refuse_bfloat16(flat, "LiteRT")
        request.notify("replacing recurrent nodes")
        found, notes = prepare(flat, form)
        widened = widen.widen(flat, _WIDENED)
        request.notify("converting all other nodes")
        data = _converted(flat, form.quantize)
        comparisons = {}
        if request.check:
            request.notify("comparing the numbers")
            before = signatures.run(function)
            allowed = numbers.tolerance(widened, TOLERANCES[form.quantize])
            comparisons[request.signature or _SIGNATURE] = numbers.compare(
                before,
                _interpreter(data, flat),
                calls_for(loaded, request.signature, request, before, shapes),
                request.tolerance or allowed,
                "the TFLite file",
                _REMEDIES[form.quantize],
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


def _with_batch(function: Any, batch: int | None) -> dict[str, Any]:
    """Shapes with a fixed first dimension."""
    if batch is None:
        return {}
    found: dict[str, Any] = {}
    for name, spec in signatures.specs(function).items():
        if spec.shape.rank and spec.shape[0] in (None, batch):
            found[name] = [batch, *spec.shape.as_list()[1:]]
    return found


def prepare(flat: Flat, form: Form) -> tuple[list[Found], tuple[str, ...]]:
    """Replaces recurrent nodes by loops and fused operators, in place."""
    keras = flat_graphs.replace_keras(flat)
    forms.replace(flat)
    flat_graphs.inline(flat)
    signatures.unwire_identities(flat.graph)
    flat_graphs.prune(flat)
    flat_graphs.refuse_backward(flat, "TFLite")
    flat_graphs.fold_params(flat)
    flat_graphs.prune(flat)
    replacer = _Replacer(form.fused, _read_cells(flat.graph))
    found = replace_nodes(flat.graph, frozenset(FORWARD), replacer)
    notes = implementations.notes(keras)
    return found, tuple(notes)


def _read_cells(graph: Any) -> frozenset[str]:
    """The names of nodes whose final cell state is read, in any body."""
    read: set[str] = set()
    for body in graphs.bodies(graph):
        names = {name for node in body.nodes for name in node.input}
        if body.function is not None:
            names |= {*body.function.ret.values()}
        for node in body.nodes:
            if {f"{node.name}:2", f"{node.name}:output_c:0"} & names:
                read.add(node.name)
    return frozenset(read)


class _Replacer:
    """Replaces forward nodes."""

    def __init__(self, fused: bool | str, reads_c: frozenset[str]) -> None:
        self._fused = fused
        self._reads_c = reads_c

    def __call__(
        self, node: Any, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
    ) -> Replacement:
        read = layers.read(node, graphs.defaults(node.op), shapes)
        read = replace(read, single=True)
        signature = specs(read, dtypes, shapes)
        batch = signature[0].shape[1 if read.time_major else 0]
        why = refusal_of(read, batch, node.name in self._reads_c)
        if self._fused is True and why is not None and read.lstm:
            fix = "pass batch= (--batch), or " if why == NO_BATCH else "pass "
            raise refusal(node.op, node.name, why, f"{fix}fused='auto' (--fused auto)")
        fuse = self._fused is not False and why is None
        cell = fused_cell if fuse else LOOPS["update"]
        became = "UNIDIRECTIONAL_SEQUENCE_LSTM" if fuse else "a WHILE of builtin ops"
        function = plain.function(read, cell, checked=False)
        text, dtype = str(read), read.dtype.name
        return Replacement((read, fuse), function, signature, text, became, dtype)


def _converted(flat: Flat, quantize: str | None) -> bytes:
    with tempfile.TemporaryDirectory(prefix="opwright-convert-") as folder:
        target = Path(folder, "model")
        _save(flat, target)
        converter = tf.lite.TFLiteConverter.from_saved_model(
            str(target), signature_keys=[_SIGNATURE]
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if quantize is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantize == "float16":
            converter.target_spec.supported_types = [tf.float16]
        try:
            data: bytes = converter.convert()
        except Exception as error:
            # The converter raises errors of its own class.
            text = " ".join(str(error).split())[:600]
            raise ConvertError(
                f"TFLite's converter refuses the model: {text}. Loops of other layers "
                "need fixed sizes: pass batch= and shapes= (--batch and --shape)"
            ) from error
    return data


def _save(flat: Flat, target: Path) -> None:
    """Saves a flat graph with its signature."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(flat.graph, name="")

        def infos(tensors: Mapping[str, str]) -> dict[str, Any]:
            return {
                key: v1.saved_model.build_tensor_info(graph.get_tensor_by_name(name))
                for key, name in tensors.items()
            }

        signature = v1.saved_model.build_signature_def(
            infos(flat.inputs), infos(flat.outputs), "tensorflow/serving/predict"
        )
        builder = v1.saved_model.Builder(str(target))
        with v1.Session(graph=graph) as session:
            builder.add_meta_graph_and_variables(
                session, ["serve"], {_SIGNATURE: signature}
            )
        builder.save()


def _interpreter_class() -> Any:
    return packages.load(
        "ai_edge_litert.interpreter", "the check of to_tflite"
    ).Interpreter


def _interpreter(data: bytes, flat: Flat) -> Run:
    """Loads the file.

    Raises:
        ConvertError: LiteRT refuses it.
    """
    try:
        interpreter = _interpreter_class()(model_content=data, num_threads=1)
        runner = interpreter.get_signature_runner(_SIGNATURE)
    except (RuntimeError, ValueError) as error:
        raise ConvertError(
            f"LiteRT refuses the result: {error}; report this with the model, or use "
            "to_plain"
        ) from error
    taken = {*runner.get_input_details()}

    def run(inputs: Values) -> Values:
        given = {key: np.asarray(inputs[key]) for key in inputs if key in taken}
        outputs: Values = runner(**given)
        return outputs

    return run
