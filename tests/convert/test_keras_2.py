"""Layers of tf_keras, which have implementations for the CPU and for cuDNN."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convert.support.models import CONVERSIONS, barred, onnx_ops, ops_of, tflite_ops
from opwright.convert import check, to_onnx, to_plain, to_tflite
from opwright_runtime.convert import saved_models
from support.tiers import part_of

L = tf_keras.layers
#: The largest differences.
TOLERANCE: dict[Any, float] = {to_plain: 5e-6, to_onnx: 2e-6, to_tflite: 2e-6}


def text(mask: bool) -> Any:
    return tf_keras.Sequential(
        [
            L.InputLayer([None], dtype="int32", name="x"),
            L.Embedding(20, 8, mask_zero=mask),
            L.Bidirectional(L.LSTM(6, return_sequences=True)),
            L.GRU(5),
        ]
    )


def saved(model: Any, kind: str, folder: Path) -> Path:
    source = folder / (f"model{kind}" if kind.startswith(".") else "model")
    with contextlib.redirect_stdout(io.StringIO()):
        if kind == "exported":
            model.export(str(source))
        else:
            model.save(source)
    return source


@pytest.mark.convert
@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize(
    ("kind", "mask"),
    [
        ("exported", False),
        ("exported", True),
        ("SavedModel", False),
        (".h5", True),
        (".keras", False),
    ],
)
def test_convert_of_layers_of_keras_2_reaches_all_formats(
    kind: str, mask: bool, convert: Any, tmp_path: Path
) -> None:
    tf_keras.utils.set_random_seed(0)
    source = saved(text(mask), kind, tmp_path)
    target = tmp_path / "target"
    report = convert(source, target)
    assert report.difference <= TOLERANCE[convert]
    if convert is to_plain:
        assert not barred(ops_of(target))
        assert "functions for GPUs are left out" in report.notes[0]
    else:
        assert len(report.found) == 3
        assert report.notes == ("3 layers were loops of tf_keras",)
    if convert is to_onnx:
        assert {"LSTM", "GRU"} <= {*onnx_ops(target)}
        assert "Loop" not in onnx_ops(target)


def with_states(of: Any, **options: Any) -> Any:
    x = tf_keras.Input([None, 3], name="x")
    given = {"return_sequences": True, "return_state": True, **options}
    return tf_keras.Model(x, of(4, **given)(x))


def masked(of: Any, **options: Any) -> Any:
    """Steps of zeros are masked, wherever they are."""
    x = tf_keras.Input([None, 3], name="x")
    given = {"return_sequences": True, "return_state": True, **options}
    return tf_keras.Model(x, of(4, **given)(L.Masking()(x)))


def with_gaps(shape: tuple[int, int, int]) -> Any:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype("float32")
    x[0, 0] = x[1, 2] = x[0, -1] = 0
    return x


OPTIONS: list[dict[str, Any]] = [
    {},
    {"go_backwards": True},
    {"time_major": True},
    {"return_sequences": False},
    {"zero_output_for_mask": True},
    {"zero_output_for_mask": True, "return_sequences": False, "go_backwards": True},
]


@pytest.mark.partial
@pytest.mark.parametrize("convert", CONVERSIONS[1:])
@pytest.mark.parametrize(
    ("of", "build", "options"),
    part_of(list(itertools.product(("LSTM", "GRU"), (with_states, masked), OPTIONS))),
)
def test_convert_of_a_layer_of_keras_2_has_its_options(
    of: str, options: dict[str, Any], build: Any, convert: Any, tmp_path: Path
) -> None:
    tf_keras.utils.set_random_seed(0)
    model = build(getattr(L, of), **options)
    report = convert(
        saved(model, "exported", tmp_path),
        tmp_path / "target",
        samples={"x": with_gaps((4, 6, 3))},
    )
    assert len(report.found) == 1
    assert report.difference <= 2e-6


def edited(source: Path, edit: Callable[[Any], None]) -> Path:
    """Edits the functions of a SavedModel."""
    message = saved_models.read(source)
    for function in message.meta_graphs[0].graph_def.library.function:
        edit(function)
    (source / "saved_model.pb").write_bytes(message.SerializeToString())
    return source


def without_options(function: Any) -> None:
    for name in ("go_backwards", "time_major"):
        function.attr.pop(name, None)


def with_sigmoid(function: Any) -> None:
    # TensorFlow would take the model's own functions, which have the same mark.
    if "api_implements" in function.attr:
        function.attr["api_implements"].s += b"_of_sigmoid"
    for node in function.node_def:
        if node.op == "Tanh":
            node.op = "Sigmoid"


@pytest.mark.convert
def test_to_onnx_of_a_layer_of_keras_2_without_attrs_finds_its_options(
    tmp_path: Path,
) -> None:
    source = saved(with_states(L.LSTM, go_backwards=True), "exported", tmp_path)
    report = to_onnx(edited(source, without_options), tmp_path / "target")
    assert len(report.found) == 1


@pytest.mark.convert
def test_to_onnx_of_a_layer_with_other_numbers_keeps_its_loop(tmp_path: Path) -> None:
    source = saved(with_states(L.LSTM), "exported", tmp_path)
    report = to_onnx(edited(source, with_sigmoid), tmp_path / "target")
    assert not report.found and report.difference <= 2e-6


@pytest.mark.convert
def test_to_tflite_of_layers_of_keras_2_fuses_an_lstm(tmp_path: Path) -> None:
    to_tflite(text(mask=False), tmp_path / "target", batch=1)
    assert tflite_ops(tmp_path / "target").count("UNIDIRECTIONAL_SEQUENCE_LSTM") == 2


@pytest.mark.equivalence
@pytest.mark.parametrize(
    ("kind", "mask"),
    [("exported", False), ("exported", True), ("SavedModel", False)],
)
def test_to_plain_of_layers_of_keras_2_keeps_their_gradients(
    kind: str, mask: bool, tmp_path: Path
) -> None:
    model = text(mask)
    source = saved(model, kind, tmp_path)
    to_plain(source, tmp_path / "plain")
    words = tf.constant([[3, 1, 2, 0, 0], [4, 5, 0, 0, 0]])
    found = []
    for folder in (source, tmp_path / "plain"):
        loaded = tf.saved_model.load(str(folder))
        serve = loaded.serve if kind == "exported" else loaded
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(serve(words) ** 2)
        gradients = tape.gradient(loss, loaded.trainable_variables)
        assert len(gradients) == len(model.trainable_variables)
        found.append([tf.convert_to_tensor(one).numpy() for one in gradients])
    for wanted, one in zip(*found, strict=True):
        assert np.abs(wanted).max() > 0
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.convert
def test_check_of_layers_of_keras_2_says_that_all_exits_work(tmp_path: Path) -> None:
    findings = check(saved(text(mask=True), "exported", tmp_path))
    assert findings.works
    assert not any(verdict.barred for verdict in findings.verdicts[:1])


@pytest.mark.rotating
@pytest.mark.parametrize("dropout", [None, "off"])
def test_to_plain_of_a_saved_model_of_keras_2_says_what_is_left_out(
    dropout: Any, tmp_path: Path
) -> None:
    model = tf_keras.Sequential([L.InputLayer([3]), L.Dense(2)])
    source = saved(model, "SavedModel", tmp_path)
    report = to_plain(source, tmp_path / "plain", dropout=dropout)
    assert any(one.startswith("keras_metadata.pb is left out") for one in report.notes)
    assert not (tmp_path / "plain" / "keras_metadata.pb").exists()
