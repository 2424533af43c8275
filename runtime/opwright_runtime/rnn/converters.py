"""Detects that a graph is traced for another runtime, which lacks opwright's ops."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Literal, TypeAlias

import tensorflow as tf

Runtime: TypeAlias = Literal["tflite", "other"]

#: Packages and modules that convert a graph, and for which runtime.
_CONVERTERS: dict[str, Runtime] = {
    "openvino": "other",
    "tensorflow.lite": "tflite",
    "tf2onnx": "other",
}
_SAVED_MODEL = "tf_saved_model"
_FORMATS: dict[str, Runtime] = {"litert": "tflite"}


def converting(export: CodeType) -> Runtime | None:
    """The runtime that the current call is traced for; None if there is no converter.

    TensorFlow and Keras do not say why a function is traced. If a converter traces it,
    the converter's code is on the stack. A converter that receives a finished graph is
    not detected.

    Args:
        export: the code of Keras's `Model.export`.
    """
    if tf.executing_eagerly():
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = _runtime_of(frame, export)
        if found is not None:
            return found
        frame = frame.f_back
    return None


def _runtime_of(frame: FrameType, export: CodeType) -> Runtime | None:
    if frame.f_code is export:
        kind = frame.f_locals.get("format", _SAVED_MODEL)
        return None if kind == _SAVED_MODEL else _FORMATS.get(kind, "other")
    module = frame.f_globals.get("__name__") or ""
    for name, runtime in _CONVERTERS.items():
        if module == name or module.startswith(name + "."):
            return runtime
    return None
