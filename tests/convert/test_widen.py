"""Models of 16 and 64 bits, in runtimes that lack these dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from convert.support.models import as_on_a_gpu, run_onnx, run_tflite, text_model
from opwright.convert import to_onnx, to_tflite

WORDS = np.array([[3, 1, 2, 0], [4, 5, 0, 0]], "int32")


def saved(policy: str, folder: Path) -> Path:
    """A model with a Keras policy, as a GPU saves it."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        with as_on_a_gpu():
            text_model().export(str(folder), verbose=False)
    finally:
        keras.config.set_dtype_policy(before)
    return folder


@pytest.mark.parametrize(
    ("policy", "tolerance"),
    [("mixed_float16", 2e-2), ("mixed_bfloat16", 2e-2), ("float64", 2e-6)],
)
def test_to_tflite_of_a_model_of_another_dtype_gives_equal_numbers(
    policy: str, tolerance: float, tmp_path: Path
) -> None:
    source = saved(policy, tmp_path / "source")
    report = to_tflite(source, tmp_path / "model.tflite")
    dtype = policy.removeprefix("mixed_")
    assert f"nodes of {dtype} compute in float32" in report.notes
    loaded = tf.saved_model.load(str(source))
    wanted = loaded.serve(WORDS)
    (found,) = run_tflite(tmp_path / "model.tflite")({"words": WORDS}).values()
    assert found.dtype == ("float32" if dtype == "bfloat16" else dtype)
    np.testing.assert_allclose(
        found.astype("float64"), np.asarray(wanted, "float64"), atol=tolerance
    )


def test_to_onnx_of_a_model_of_bfloat16_gives_equal_numbers(tmp_path: Path) -> None:
    source = saved("mixed_bfloat16", tmp_path / "source")
    report = to_onnx(source, tmp_path / "model.onnx")
    assert "nodes of bfloat16 compute in float32" in report.notes
    loaded = tf.saved_model.load(str(source))
    wanted = loaded.serve(WORDS)
    (found,) = run_onnx(tmp_path / "model.onnx")({"words": WORDS}).values()
    np.testing.assert_allclose(found, np.asarray(wanted, "float32"), atol=2e-2)


def test_to_tflite_keeps_the_dtypes_of_inputs_and_outputs(tmp_path: Path) -> None:
    spec = tf.TensorSpec([None, 3], tf.float64, "x")

    @tf.function(input_signature=[spec], autograph=False)
    def serve(x: Any) -> Any:
        return {"same": x, "half": x / 2, "count": tf.shape(x)[0]}

    to_tflite(serve, tmp_path / "model.tflite")
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    found = run_tflite(tmp_path / "model.tflite")({"x": x})
    assert found["half"].dtype == found["same"].dtype == "float64"
    np.testing.assert_allclose(found["half"], x / 2, atol=1e-7)
    np.testing.assert_allclose(found["same"], x, atol=1e-7)
