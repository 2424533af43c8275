"""opwright.keras: exports to other formats have none of opwright's own nodes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import opwright.keras
from opwright_runtime.rnn import keras_layers

OURS = "OpwrightKerasRNN"
BATCH, TIME, SIZE = 2, 6, 3
X = np.random.default_rng(0).standard_normal((BATCH, TIME, SIZE)).astype("float32")
#: Graphs that were traced with a model of `Recorder`s.
GRAPHS: list[tf.Graph] = []


@pytest.fixture(autouse=True)
def kernels_for_any_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the kernels also for few steps, where Keras's loop is faster."""
    monkeypatch.setattr(keras_layers, "_FIXED_STEPS", -(10**9))
    GRAPHS.clear()


@keras.saving.register_keras_serializable("test_keras_exports")
class Recorder(keras.layers.Layer):  # type: ignore[misc]
    """Remembers each graph that a model is traced in."""

    def call(self, x: Any) -> Any:
        if not tf.executing_eagerly():
            GRAPHS.append(tf.compat.v1.get_default_graph())
        return tf.identity(x)


def make(of: Any = opwright.keras) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input([TIME, SIZE], batch_size=BATCH),
            keras.layers.Bidirectional(of.LSTM(4, return_sequences=True)),
            of.GRU(4, return_sequences=True),
            of.SimpleRNN(3),
            Recorder(),
        ]
    )
    model(X)
    GRAPHS.clear()
    return model


def traced_nodes() -> set[str]:
    """The types of all nodes of the graphs that were traced."""
    assert GRAPHS, "nothing was traced"
    found = set()
    for graph in GRAPHS:
        made = graph.as_graph_def()
        nodes = [*made.node, *(n for f in made.library.function for n in f.node_def)]
        found |= {node.op for node in nodes}
    return found


def outputs(tflite: bytes) -> Any:
    with contextlib.redirect_stderr(None):
        interpreter = tf.lite.Interpreter(model_content=tflite)
    (wanted,) = interpreter.get_input_details()
    interpreter.resize_tensor_input(wanted["index"], X.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(wanted["index"], X)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


SUFFIXES = {"onnx": ".onnx", "openvino": ".xml", "litert": ".tflite", "torch": ".pt2"}


def formats() -> list[str]:
    """Every format that the installed Keras exports to, as its error names them."""
    with pytest.raises(ValueError, match="Supported formats") as raised:
        make().export("nowhere", format="nothing")
    return re.findall(r"'(\w+)'", str(raised.value))


def test_export_formats_are_all_tested() -> None:
    assert set(formats()) <= SUFFIXES.keys() | {"tf_saved_model"}


@pytest.mark.rotating
@pytest.mark.parametrize("kind", SUFFIXES)
def test_export_to_another_format_traces_the_loop_of_keras(
    kind: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "model") + SUFFIXES[kind]
    # Packages that convert need not be installed, and may be unable to convert loops.
    with contextlib.suppress(Exception):
        make().export(file, format=kind, verbose=False)
    if not GRAPHS:
        pytest.skip(f"this Keras traces nothing for {kind} without more packages")
    assert OURS not in traced_nodes()


@pytest.mark.rotating
def test_export_to_litert_writes_a_file(tmp_path: Path) -> None:
    if "litert" not in formats():
        pytest.skip("this Keras does not export to litert")
    make().export(tmp_path / "model.tflite", format="litert", verbose=False)
    assert OURS.encode() not in (tmp_path / "model.tflite").read_bytes()


@pytest.mark.rotating
def test_tflite_converter_of_a_model_gives_a_file_that_runs() -> None:
    model = make()
    converted = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    assert OURS not in traced_nodes()
    np.testing.assert_allclose(outputs(converted), model(X), 0, 1e-5)


def saved(model: Any, folder: str) -> None:
    model.export(folder, verbose=False)


def archived(model: Any, folder: str) -> None:
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", model.__call__, [tf.TensorSpec(X.shape)])
    archive.write_out(folder, verbose=False)


@pytest.mark.rotating
@pytest.mark.parametrize("export", [saved, archived])
def test_export_of_a_saved_model_keeps_the_kernels(
    export: Callable[[Any, str], None], tmp_path: Path
) -> None:
    model = make()
    export(model, str(tmp_path))
    assert OURS in traced_nodes()
    loaded = tf.saved_model.load(tmp_path)
    np.testing.assert_allclose(loaded.serve(X), model(X), 0, 1e-5)


@pytest.mark.rotating
def test_tf_function_after_an_export_keeps_the_kernels() -> None:
    model = make()
    tf.lite.TFLiteConverter.from_keras_model(model).convert()
    GRAPHS.clear()
    tf.function(model).get_concrete_function(tf.TensorSpec(X.shape))
    assert OURS in traced_nodes()


@pytest.mark.rotating
def test_concrete_function_for_tflite_keeps_the_kernels_and_is_refused() -> None:
    model = make()
    function = tf.function(model).get_concrete_function(tf.TensorSpec(X.shape))
    with pytest.raises(Exception, match=f"{OURS}.* neither a custom op nor a flex op"):
        tf.lite.TFLiteConverter.from_concrete_functions([function], model).convert()


@pytest.mark.rotating
@pytest.mark.rotating
@pytest.mark.parametrize("way", ["layers of Keras", "use_cudnn"])
def test_saved_model_converts_after_the_remedy(way: str, tmp_path: Path) -> None:
    """Converters of a SavedModel meet our nodes; rnn_keras.md has remedies."""

    def convert(model: Any, name: str) -> Any:
        archived(model, str(tmp_path / name))
        return tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / name)).convert()

    model = make()
    with pytest.raises(Exception, match=f"{OURS}.* neither a custom op nor a flex op"):
        convert(model, "before")
    wanted = model(X)
    both, *rest, _ = model.layers
    if way == "use_cudnn":
        for layer in (both.forward_layer, both.backward_layer, *rest):
            layer.use_cudnn = False
        plain = model
    else:
        text = model.to_json().replace('"opwright.keras"', '"keras.layers"')
        plain = keras.models.model_from_json(re.sub(r'"opwright>\w+"', "null", text))
        plain.set_weights(model.get_weights())
        assert "opwright" not in plain.to_json()
    np.testing.assert_allclose(outputs(convert(plain, "after")), wanted, 0, 1e-5)
