"""Exports by others of models with layers of opwright.keras, in real runtimes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import opwright.keras
from convert.support.models import run_onnx, text_model, tflite_ops

FIRST = np.array([[3, 1, 2, 0], [4, 5, 0, 0]], "int32")
OTHER = np.array([[7, 8, 9], [2, 1, 5], [6, 0, 0]], "int32")
Run = Callable[[Any], Any]


def check_same(model: Any, run: Run) -> None:
    """Runs calls of several sizes, and the first one again."""
    for words in (FIRST, OTHER, FIRST):
        (found,) = run(words).values()
        np.testing.assert_allclose(found, model(words), atol=2e-6)


def in_litert(file: Path) -> Run:
    """Runs a file of one input, whatever the exporter names it."""
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(str(file)).get_signature_runner()
    (name,) = runner.get_input_details()
    return lambda value: dict(runner(**{name: value}))


@pytest.mark.parametrize("mask", [False, True])
def test_export_to_onnx_of_opwright_layers_gives_equal_numbers(
    mask: bool, tmp_path: Path
) -> None:
    model = text_model(opwright.keras, mask=mask)
    model(FIRST)
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    run = run_onnx(tmp_path / "model.onnx")
    check_same(model, lambda words: run({"words": words}))


def exported(model: Any, file: Path) -> None:
    if "litert" not in (keras.Model.export.__doc__ or ""):
        pytest.skip("this Keras does not export to litert")
    model.export(file, format="litert", verbose=False)


def converted(model: Any, file: Path) -> None:
    file.write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())


@pytest.mark.parametrize("write", [exported, converted])
@pytest.mark.parametrize("mask", [False, True])
def test_export_to_tflite_of_opwright_layers_takes_any_batch_and_time(
    mask: bool, write: Callable[[Any, Path], None], tmp_path: Path
) -> None:
    model = text_model(opwright.keras, mask=mask)
    file = tmp_path / "model.tflite"
    write(model, file)
    ops = tflite_ops(file)
    assert "WHILE" in ops and not [op for op in ops if "Flex" in op or op == "CUSTOM"]
    check_same(model, in_litert(file))


@pytest.mark.parametrize("of", ["SimpleRNN", "GRU", "LSTM"])
@pytest.mark.parametrize("options", [{}, {"go_backwards": True}, {"use_bias": False}])
def test_export_to_tflite_of_one_layer_gives_equal_states(
    of: str, options: dict[str, Any], tmp_path: Path
) -> None:
    keras.utils.set_random_seed(0)
    x = keras.Input([None, 3], name="x")
    layer = getattr(opwright.keras, of)
    outputs = layer(4, return_sequences=True, return_state=True, **options)(x)
    model = keras.Model(x, {f"output{i}": one for i, one in enumerate(outputs)})
    converted(model, tmp_path / "model.tflite")
    given = np.random.default_rng(0).standard_normal((2, 6, 3)).astype("float32")
    wanted = model(given)
    found = in_litert(tmp_path / "model.tflite")(given)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=2e-6)


def test_tf2onnx_of_a_function_of_opwright_layers_gives_equal_numbers() -> None:
    import onnxruntime
    import tf2onnx

    model = text_model(opwright.keras, mask=False)
    spec = tf.TensorSpec([None, None], tf.int32, "words")
    with contextlib.redirect_stderr(None):
        made, _ = tf2onnx.convert.from_function(tf.function(model), [spec])
    session = onnxruntime.InferenceSession(made.SerializeToString())
    names = [one.name for one in session.get_inputs()]
    for words in (FIRST, OTHER):
        (found,) = session.run(None, {names[0]: words})
        np.testing.assert_allclose(found, model(words), atol=2e-6)
