"""Detects that a graph is traced for another runtime, which lacks opwright's ops."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

import tensorflow as tf

#: Packages and modules that convert a graph for another runtime.
_CONVERTERS = ("openvino", "tensorflow.lite", "tf2onnx")
_SAVED_MODEL = "tf_saved_model"


def converting(export: CodeType) -> bool:
    """Whether the current call is traced for a converter.

    TensorFlow and Keras do not say why a function is traced. If a converter traces it,
    the converter's code is on the stack. A converter that receives a finished graph is
    not detected.

    Args:
        export: the code of Keras's `Model.export`.
    """
    if tf.executing_eagerly():
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _converts(frame, export):
            return True
        frame = frame.f_back
    return False


def _converts(frame: FrameType, export: CodeType) -> bool:
    if frame.f_code is export:
        return bool(frame.f_locals.get("format", _SAVED_MODEL) != _SAVED_MODEL)
    module = frame.f_globals.get("__name__") or ""
    return any(module == one or module.startswith(one + ".") for one in _CONVERTERS)
