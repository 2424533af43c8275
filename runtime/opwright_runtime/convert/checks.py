"""Finds what keeps a model from a runtime, before it is converted."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from opwright_runtime.convert import (
    forms,
    onnx_model,
    plain_model,
    reach,
    saved_models,
    tflite_model,
)
from opwright_runtime.convert.calls import Request
from opwright_runtime.convert.errors import ConvertError
from opwright_runtime.convert.graphs import NodeDef
from opwright_runtime.convert.layers import OPS
from opwright_runtime.convert.outcome import REFUSED, Verdict
from opwright_runtime.convert.report import Findings, Report
from opwright_runtime.convert.rewrite import Found
from opwright_runtime.convert.sources import Tensors, opened

_OPSET = 17


def check(model: Any, request: Request) -> Findings:
    """Tries each conversion without comparing numbers, and keeps nothing."""
    with (
        opened(model, request.tensors, request.shapes) as source,
        tempfile.TemporaryDirectory(prefix="opwright-check-") as folder,
    ):
        message = saved_models.read(source.folder)
        every = reach.of_all(message)
        one = reach.of_signature(message, request.signature)
        # The plain form keeps all signatures, and the other forms have one.
        shown = one if request.signature else reach.of_signatures(message)
        barred = _counted(one, OPS)
        rewritten = _counted(one, forms.OPS)
        # The source is a SavedModel now, whose signatures name the tensors.
        quick = replace(request, check=False, shapes={}, tensors=Tensors())
        target = Path(folder)
        found: tuple[Found, ...] = ()

        def plain(request: Request = quick) -> Report:
            return plain_model.convert(source.folder, target / "plain", request)

        def onnx() -> Report:
            file = target / "model.onnx"
            return onnx_model.convert(source.folder, file, _OPSET, quick)

        def tflite() -> Report:
            form = tflite_model.Form()
            return tflite_model.convert(source.folder, target / "m.tflite", form, quick)

        verdicts = []
        for runtime, command, run, lacks in (
            ("TensorFlow without a GPU", "plain", plain, _counted(shown, OPS)),
            ("ONNX", "onnx", onnx, {**barred, **rewritten}),
            ("TFLite", "tflite", tflite, {**barred, **rewritten}),
        ):
            request.notify(f"trying {runtime}")
            report, refusal = _tried(run)
            if command == "plain":
                found = report.found if report else _refused(plain, quick, shown)
            verdicts.append(Verdict(runtime, command, lacks, refusal))
        listed = tuple(each for each in found if each.node in shown)
        others = sum(_counted(every, OPS).values()) - sum(_counted(shown, OPS).values())
        return Findings(source.name, len(every), listed, tuple(verdicts), others)


def _refused(
    plain: Callable[[Request], Report], request: Request, nodes: Mapping[str, NodeDef]
) -> tuple[Found, ...]:
    """The recurrent nodes of a model that has no plain form."""
    # Dropout is the usual reason. Without it, the layers can be read.
    report, _ = _tried(lambda: plain(replace(request, dropout_off=True)))
    if report is not None:
        return tuple(replace(each, became=REFUSED) for each in report.found)
    return tuple(
        Found(place, node.op, "", REFUSED)
        for place, node in nodes.items()
        if node.op in OPS
    )


def _counted(nodes: Mapping[str, Any], ops: frozenset[str]) -> dict[str, int]:
    """How many of the nodes have each of these ops."""
    found = Counter(node.op for node in nodes.values() if node.op in ops)
    return dict(sorted(found.items()))


def _tried(run: Callable[[], Report]) -> tuple[Report | None, str | None]:
    try:
        return run(), None
    except ConvertError as error:
        return None, str(error)
