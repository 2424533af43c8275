"""Converts recurrent models that GPUs trained to plain TensorFlow, ONNX and TFLite.

A model that was trained on a GPU has CudnnRNN ops, which other runtimes lack. The
functions write a model without them, compare its numbers with those of the source, and
return a report. They write nothing if they fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypedDict, Unpack

from opwright_runtime import native
from opwright_runtime.convert import checks, onnx_model, plain_model, tflite_model
from opwright_runtime.convert.calls import Request
from opwright_runtime.convert.errors import ConvertError
from opwright_runtime.convert.outcome import Comparison, Verdict
from opwright_runtime.convert.report import Findings, Report
from opwright_runtime.convert.rewrite import Found
from opwright_runtime.convert.sources import Model, Tensors

__all__ = [
    "Comparison",
    "ConvertError",
    "Findings",
    "Found",
    "Options",
    "Report",
    "Verdict",
    "check",
    "to_onnx",
    "to_plain",
    "to_tflite",
]


class Options(TypedDict, total=False):
    """The options that all conversions have.

    Attributes:
        signature: which of the model's signatures to convert; by default
            "serving_default", or the only one. `to_plain` converts all of them, and
            compares this one or all.
        inputs: for a GraphDef or a meta graph, the tensors that are inputs; by default
            its placeholders. Other models have signatures, and are refused with it.
        outputs: likewise the tensors that are outputs; by default those that nothing
            reads.
        shapes: for a function that was not traced, its arguments as `tf.TensorSpec`s;
            otherwise other shapes for inputs, by name.
        samples: an array for each input, to compare the models on. By default they are
            drawn.
        check: whether to compare the result with the source, on four calls.
        tolerance: the largest absolute difference, for values up to 1.
        dropout: "off" converts nodes that apply dropout as for inference.
        overwrite: whether to replace an existing target.
        notify: called before each step with a short text.
    """

    signature: str | None
    inputs: Sequence[str]
    outputs: Sequence[str]
    shapes: Mapping[str, Any] | None
    samples: Mapping[str, Any] | None
    check: bool
    tolerance: float | None
    dropout: Literal["off"] | None
    overwrite: bool
    notify: Callable[[str], None] | None


def to_plain(
    model: Model, path: str | os.PathLike[str], **options: Unpack[Options]
) -> Report:
    """Writes a model without ops of cuDNN or opwright, for any TensorFlow.

    Variables, signatures, assets and the names of all functions stay as they are, and
    the result can be trained. Backward nodes become the gradients of plain ops.

    Args:
        model: the folder of a SavedModel, a .keras or .h5 file, a Keras model, a
            `tf.function`, a frozen GraphDef or its .pb file, or the .meta file of a
            checkpoint.
        path: the folder of the new SavedModel; for a GraphDef, the new .pb file.
        **options: `Options`.

    Raises:
        ConvertError: a node cannot be converted, the model is damaged, the numbers
            differ, or `path` exists.
    """
    return plain_model.convert(model, Path(path), _request(options))


def to_onnx(
    model: Model,
    path: str | os.PathLike[str],
    *,
    opset: int = 17,
    **options: Unpack[Options],
) -> Report:
    """Writes one signature of a model as an ONNX file.

    A recurrent layer becomes one `LSTM`, `GRU` or `RNN` node, with both directions, and
    its weights as initializers. tf2onnx converts all else. The file is checked by
    `onnx.checker`, loaded by onnxruntime, and compared with the source.

    Args:
        model: as for `to_plain`.
        path: the new file.
        opset: of ONNX, between 13 and 18.
        **options: `Options`.

    Raises:
        ConvertError: as `to_plain`; or ONNX has no operator for a node; or tf2onnx,
            onnx or onnxruntime is not installed.
    """
    _check_ending(path, ".onnx")
    return onnx_model.convert(model, Path(path), opset, _request(options))


def to_tflite(
    model: Model,
    path: str | os.PathLike[str],
    *,
    fused: Literal["auto"] | bool = "auto",
    batch: int | None = None,
    quantize: Literal["dynamic", "float16"] | None = None,
    **options: Unpack[Options],
) -> Report:
    """Writes one signature of a model as a TFLite file of builtin operators.

    A recurrent layer becomes a loop, which takes any batch and any number of steps,
    or a fused operator. The file is run by LiteRT and compared with the source.

    Args:
        model: as for `to_plain`.
        path: the new file.
        fused: whether an LSTM layer becomes UNIDIRECTIONAL_SEQUENCE_LSTM, which needs a
            fixed batch; "auto": where it can. Fused files are smaller.
        batch: fixes the first dimension of all inputs. For others, pass shapes.
        quantize: "dynamic" stores weights in 8 bits, "float16" in 16.
        **options: `Options`.

    Raises:
        ConvertError: as `to_plain`; or TFLite has no operator for a node; or
            ai-edge-litert is not installed.
    """
    _check_ending(path, ".tflite")
    form = tflite_model.Form(fused, batch, quantize)
    return tflite_model.convert(model, Path(path), form, _request(options))


def check(model: Model, **options: Unpack[Options]) -> Findings:
    """Lists the ops of a model that each runtime lacks, and whether conversion works.

    Each conversion is tried in a temporary folder, without comparing numbers. Nodes
    that no call of the signatures runs, such as those of gradients, are only counted.

    Args:
        model: as for `to_plain`.
        **options: `Options`. Options about the target file have no effect.

    Raises:
        ConvertError: the model is damaged or of no known kind.
    """
    return checks.check(model, _request(options))


def _check_ending(path: str | os.PathLike[str], ending: str) -> None:
    """Refuses a path with the ending of another kind of file."""
    given = Path(path).suffix
    if given != ending and given in (".onnx", ".tflite", ".keras", ".h5", ".pb"):
        raise ConvertError(f"{path} ends with {given}; the file must end with {ending}")


def _request(options: Options) -> Request:
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        known = ", ".join(Options.__annotations__)
        raise TypeError(f"unknown option {sorted(unknown)[0]!r}; there are {known}")
    dropout = options.get("dropout")
    if dropout not in (None, "off"):
        raise ConvertError(f"dropout must be 'off' or None, not {dropout!r}")
    # Registers the ops and kernels of the source.
    native.load_if_present()
    given = {"notify": options.get("notify")}
    inputs, outputs = (
        (one,) if isinstance(one, str) else tuple(one or ())
        for one in (options.get("inputs"), options.get("outputs"))
    )
    return Request(
        signature=options.get("signature"),
        shapes=options.get("shapes") or {},
        samples=options.get("samples"),
        check=options.get("check", True),
        tolerance=options.get("tolerance"),
        dropout_off=dropout == "off",
        overwrite=options.get("overwrite", False),
        tensors=Tensors(inputs, outputs),
        **{key: value for key, value in given.items() if value is not None},
    )
