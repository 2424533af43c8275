"""Converts models to plain TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from opwright_runtime.convert import (
    files,
    implementations,
    numbers,
    saved_models,
    signatures,
)
from opwright_runtime.convert.calls import Request, calls_for
from opwright_runtime.convert.errors import ConvertError
from opwright_runtime.convert.layers import OPS
from opwright_runtime.convert.outcome import Comparison
from opwright_runtime.convert.replacements import Plain
from opwright_runtime.convert.report import Report
from opwright_runtime.convert.rewrite import Found
from opwright_runtime.convert.sources import Source, opened

FORMAT = "plain TensorFlow"
TOLERANCE = 5e-6


def convert(model: Any, path: Path, request: Request) -> Report:
    """Writes a model without ops of cuDNN and opwright: `to_plain`."""
    with (
        opened(
            model, request.tensors, request.shapes, dropout_off=request.dropout_off
        ) as source,
        files.replacing(path, overwrite=request.overwrite) as target,
    ):
        request.notify("reading the graph")
        message = saved_models.read(source.folder)
        unused = implementations.without_unused(message)
        request.notify("replacing recurrent nodes")
        found = saved_models.replace_in(message, OPS, Plain())
        if rest := saved_models.left(message, OPS):
            raise ConvertError(f"ops are left: {', '.join(sorted(rest))}")
        written = target.with_name("saved") if source.frozen else target
        saved_models.write(message, source.folder, written)
        comparisons = {}
        if request.check:
            dtypes = {one.dtype for one in found}
            allowed = request.tolerance or numbers.tolerance(dtypes, TOLERANCE)
            shapes = {} if callable(model) else request.shapes
            comparisons = _checked(source, written, request, shapes, allowed)
        if source.frozen:
            _write_graph(message, target)
        notes = _notes(source, found, unused)
        return Report(
            source.name,
            str(path),
            FORMAT,
            tuple(found),
            files.size_of(source.folder),
            files.size_of(target),
            comparisons,
            notes,
        )


def _write_graph(message: Any, target: Path) -> None:
    graph = tf.compat.v1.GraphDef()
    graph.CopyFrom(message.meta_graphs[0].graph_def)
    target.write_bytes(graph.SerializeToString(deterministic=True))


def _notes(source: Source, found: list[Found], unused: int) -> tuple[str, ...]:
    notes = [*source.notes]
    if unused:
        notes.append(
            f"{unused} functions for GPUs are left out; the layers keep their loops"
        )
    if not found:
        notes.append("the model has no recurrent node of cuDNN or opwright")
    if (source.original / "keras_metadata.pb").is_file():
        notes.append(
            "keras_metadata.pb is left out, because tf_keras would build the layers of "
            "cuDNN from it; load the result with tf.saved_model.load"
        )
    return tuple(notes)


def _checked(
    source: Source,
    written: Path,
    request: Request,
    shapes: Mapping[str, object],
    tolerance: float,
) -> dict[str, Comparison]:
    """Compares every signature of two SavedModels."""
    request.notify("comparing the numbers")
    # A model may keep states: the one that inputs are tried on is another one.
    tried = signatures.load(source.folder)
    before, after = signatures.load(source.folder), signatures.load(written)
    found: dict[str, Comparison] = {}
    names = signatures.named(before)
    for name in sorted(names):
        if request.signature not in (None, name):
            continue
        run = signatures.run(tried.signatures[name])
        found[name] = numbers.compare(
            signatures.run(names[name]),
            signatures.run(after.signatures[name]),
            calls_for(tried, name, request, run, shapes),
            tolerance,
            f"signature {name!r} of the result",
        )
    return found
