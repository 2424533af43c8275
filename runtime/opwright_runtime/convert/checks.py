"""Finds what keeps a model from a runtime, before it is converted."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from opwright_runtime.convert import (
    forms,
    graphs,
    onnx_model,
    plain_model,
    saved_models,
    tflite_model,
)
from opwright_runtime.convert.calls import Request
from opwright_runtime.convert.errors import ConvertError
from opwright_runtime.convert.layers import OPS
from opwright_runtime.convert.outcome import Verdict
from opwright_runtime.convert.report import Findings, Report
from opwright_runtime.convert.rewrite import Found
from opwright_runtime.convert.sources import opened

_OPSET = 17


def check(model: Any, request: Request) -> Findings:
    """Tries each conversion without comparing numbers, and keeps nothing."""
    with (
        opened(model, request.tensors, request.shapes) as source,
        tempfile.TemporaryDirectory(prefix="opwright-check-") as folder,
    ):
        message = saved_models.read(source.folder)
        counted = Counter(
            node.op
            for meta in message.meta_graphs
            for node in graphs.nodes(meta.graph_def)
        )
        barred = {op: count for op, count in sorted(counted.items()) if op in OPS}
        rewritten = {op: counted[op] for op in sorted(forms.OPS) if counted[op]}
        quick = replace(request, check=False, shapes={})
        target = Path(folder)
        found: tuple[Found, ...] = ()

        def plain() -> Report:
            return plain_model.convert(source.folder, target / "plain", quick)

        def onnx() -> Report:
            file = target / "model.onnx"
            return onnx_model.convert(source.folder, file, _OPSET, quick)

        def tflite() -> Report:
            form = tflite_model.Form()
            return tflite_model.convert(source.folder, target / "m.tflite", form, quick)

        verdicts = []
        for runtime, command, run, lacks in (
            ("TensorFlow without a GPU", "plain", plain, barred),
            ("ONNX", "onnx", onnx, {**barred, **rewritten}),
            ("TFLite", "tflite", tflite, {**barred, **rewritten}),
        ):
            request.notify(f"trying {runtime}")
            report, refusal = _tried(run)
            if command == "plain" and report is not None:
                found = report.found
            verdicts.append(Verdict(runtime, command, lacks, refusal))
        return Findings(source.name, sum(counted.values()), found, tuple(verdicts))


def _tried(run: Callable[[], Report]) -> tuple[Report | None, str | None]:
    try:
        return run(), None
    except ConvertError as error:
        return None, str(error)
