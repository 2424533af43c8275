"""Complete models of Keras and tf_keras, as a GPU saves them, to all formats."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import opwright.keras
from convert.support.models import (
    CONVERSIONS,
    as_on_a_gpu,
    barred,
    onnx_ops,
    ops_of,
)
from opwright.convert import ConvertError, to_onnx, to_plain, to_tflite
from support.tiers import part_of

pytestmark = pytest.mark.partial

L = keras.layers


def stacked(of: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input([None, 3], name="x"),
            of.LSTM(4, return_sequences=True),
            of.LSTM(5, return_sequences=True),
            of.GRU(3),
            L.Dense(2),
        ]
    )


def masked(of: Any) -> Any:
    x = keras.Input([None], dtype="int32", name="x")
    y = L.Embedding(11, 4, mask_zero=True)(x)
    return keras.Model(x, of.LSTM(5, return_sequences=True)(y))


def bidirectional(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    y = L.Bidirectional(of.GRU(4, return_sequences=True), merge_mode="sum")(x)
    return keras.Model(x, L.Bidirectional(of.LSTM(3))(y))


def returns_states(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    y, h, c = of.LSTM(4, return_sequences=True, return_state=True)(x)
    return keras.Model(x, [y, h, c])


def with_attention(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    y = of.GRU(4, return_sequences=True)(x)
    weights = L.Softmax(axis=1)(L.Dense(1)(y))
    return keras.Model(x, L.Dot(axes=1)([weights, y]))


def encoder_and_decoder(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    _, h, c = of.LSTM(4, return_state=True)(x)
    y = of.LSTM(4, return_sequences=True)(x, initial_state=[h, c])
    return keras.Model(x, L.Dense(2)(y))


def backwards(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    return keras.Model(x, of.LSTM(4, go_backwards=True, return_sequences=True)(x))


def with_dropout(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    y = of.LSTM(4, dropout=0.5, return_sequences=True)(x)
    return keras.Model(x, L.Dropout(0.5)(of.GRU(3, dropout=0.1)(y)))


def of_fixed_time(of: Any) -> Any:
    x = keras.Input([5, 3], name="x")
    return keras.Model(x, L.Dense(2)(of.LSTM(4)(x)))


def convolutional(of: Any) -> Any:
    x = keras.Input([12, 3], name="x")
    y = L.Conv1D(4, 3, activation="relu")(x)
    return keras.Model(x, of.GRU(4)(L.LayerNormalization()(L.MaxPooling1D()(y))))


def with_masking_layer(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    y = of.LSTM(4, return_sequences=True)(L.Masking()(x))
    return keras.Model(x, of.GRU(3)(y))


def with_two_inputs(of: Any) -> Any:
    both = [keras.Input([None, 3], name=name) for name in ("a", "b")]
    return keras.Model(both, L.Concatenate()([of.LSTM(4)(one) for one in both]))


def nested(of: Any) -> Any:
    inner = keras.Sequential([keras.Input([None, 3]), of.GRU(4), L.Dense(3)])
    both = [keras.Input([None, 3], name=name) for name in ("a", "b")]
    return keras.Model(both, L.Subtract()([inner(one) for one in both]))


def with_self_attention(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    y = of.GRU(4, return_sequences=True)(x)
    return keras.Model(x, L.MultiHeadAttention(2, 4)(y, y))


def residual(of: Any) -> Any:
    x = keras.Input([None, 4], name="x")
    y = L.LayerNormalization()(L.Add()([x, of.LSTM(4, return_sequences=True)(x)]))
    return keras.Model(x, L.Add()([y, of.LSTM(4, return_sequences=True)(y)]))


def with_given_states(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    states = [keras.Input([4], name=name) for name in ("h", "c")]
    y, h, c = of.LSTM(4, return_sequences=True, return_state=True)(
        x, initial_state=states
    )
    return keras.Model([x, *states], {"y": y, "last_h": h, "last_c": c})


def bidirectional_states(of: Any) -> Any:
    x = keras.Input([None, 3], name="x")
    layer = of.LSTM(4, return_sequences=True, return_state=True)
    return keras.Model(x, L.Bidirectional(layer)(x))


KERAS = [
    stacked,
    masked,
    bidirectional,
    returns_states,
    with_attention,
    encoder_and_decoder,
    backwards,
    with_dropout,
    of_fixed_time,
    convolutional,
    with_masking_layer,
    with_two_inputs,
    nested,
    with_self_attention,
    residual,
    with_given_states,
    bidirectional_states,
]


KINDS = ("SavedModel", ".keras", ".h5")


def saved(model: Any, kind: str, folder: Path) -> Path:
    if kind == "SavedModel":
        with as_on_a_gpu():
            model.export(str(folder / "model"), verbose=False)
        return folder / "model"
    model.save(folder / f"model{kind}")
    return folder / f"model{kind}"


#: The largest differences.
TOLERANCE: dict[Any, float] = {to_plain: 5e-6, to_onnx: 2e-6, to_tflite: 2e-6}


def check(source: Path, convert: Any, tmp_path: Path) -> Path:
    """Converts a model, and looks at the result."""
    target = tmp_path / "target"
    report = convert(source, target)
    assert report.found and report.difference <= TOLERANCE[convert]
    if convert is to_plain:
        assert not barred(ops_of(target))
    if convert is to_onnx:
        assert {"LSTM", "GRU"} & {*onnx_ops(target)}
        assert "Loop" not in onnx_ops(target)
    return target


@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize(
    ("build", "kind"),
    part_of([(build, kind) for build in KERAS for kind in KINDS], 25),
)
def test_convert_of_a_keras_model_reaches_all_formats(
    build: Callable[[Any], Any], kind: str, convert: Any, tmp_path: Path
) -> None:
    keras.utils.set_random_seed(0)
    check(saved(build(keras.layers), kind, tmp_path), convert, tmp_path)


@pytest.mark.rotating
@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize("build", [stacked, bidirectional])
def test_convert_of_opwright_layers_from_h5_reaches_all_formats(
    build: Callable[[Any], Any], convert: Any, tmp_path: Path
) -> None:
    check(saved(build(opwright.keras), ".h5", tmp_path), convert, tmp_path)


def cudnn_layers() -> tuple[Any, Any]:
    rnn = tf_keras.src.layers.rnn
    return rnn.cudnn_lstm.CuDNNLSTM, rnn.cudnn_gru.CuDNNGRU


def legacy_stacked() -> Any:
    lstm, gru = cudnn_layers()
    layers = [lstm(4, return_sequences=True), gru(3, return_sequences=True), lstm(2)]
    return tf_keras.Sequential([tf_keras.layers.InputLayer((None, 3)), *layers])


def legacy_bidirectional() -> Any:
    lstm, gru = cudnn_layers()
    both = tf_keras.layers.Bidirectional
    layers = [both(lstm(4, return_sequences=True)), both(gru(3))]
    return tf_keras.Sequential([tf_keras.layers.InputLayer((None, 3)), *layers])


def legacy_with_states() -> Any:
    lstm, _ = cudnn_layers()
    x = tf_keras.Input([None, 3])
    y, h, c = lstm(4, return_sequences=True, return_state=True)(x)
    return tf_keras.Model(x, [y, h, c])


@pytest.mark.rotating
@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize(
    "build", [legacy_stacked, legacy_bidirectional, legacy_with_states]
)
def test_convert_of_cudnn_layers_from_h5_reaches_all_formats(
    build: Callable[[], Any], convert: Any, tmp_path: Path
) -> None:
    tf_keras.utils.set_random_seed(0)
    model = build()
    model.save(tmp_path / "model.h5")
    target = check(tmp_path / "model.h5", convert, tmp_path)
    if convert is to_plain:
        x = np.random.default_rng(0).standard_normal((2, 6, 3)).astype("float32")
        wanted = tf.nest.flatten(model(x))
        # A function holds its variables weakly, so the object outlives the call.
        loaded = tf.saved_model.load(str(target))
        found = tf.nest.flatten(loaded.serve(x))
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(a, b, atol=5e-6)


@pytest.mark.rotating
@pytest.mark.parametrize("build", [legacy_stacked, legacy_bidirectional])
def test_to_plain_of_cudnn_layers_from_a_keras_file_computes_the_same(
    build: Callable[[], Any], tmp_path: Path
) -> None:
    """tf_keras writes such a file, and does not read it."""
    model = build()
    model.save(tmp_path / "model.keras")
    with pytest.raises(TypeError, match="CuDNN"):
        tf_keras.models.load_model(tmp_path / "model.keras")
    before = (tmp_path / "model.keras").read_bytes()
    report = to_plain(tmp_path / "model.keras", tmp_path / "plain")
    assert {one.op for one in report.found} == {"CudnnRNNV3"}
    assert (tmp_path / "model.keras").read_bytes() == before
    x = np.random.default_rng(0).standard_normal((2, 6, 3)).astype("float32")
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    np.testing.assert_allclose(loaded.serve(x), model(x), atol=5e-6)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (keras, "new.weights.h5"),
        (tf_keras, "new.weights.h5"),
        (tf_keras, "old.h5"),
    ],
)
def test_to_plain_of_a_file_of_weights_alone_is_refused_with_what_to_do(
    name: str, package: Any, tmp_path: Path
) -> None:
    layers = package.layers
    model = package.Sequential([layers.Input([None, 3]), layers.LSTM(4)])
    model.save_weights(tmp_path / name)
    words = rf"{name} has no model, and may have weights only; .* load_weights"
    with pytest.raises(ConvertError, match=words):
        to_plain(tmp_path / name, tmp_path / "plain")
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.convert
@pytest.mark.parametrize("kind", [".keras", ".h5"])
def test_convert_of_a_file_with_a_stateful_layer_is_plain_alone(
    kind: str, tmp_path: Path
) -> None:
    x = keras.Input([5, 3], batch_size=2, name="x")
    model = keras.Model(x, L.LSTM(4, stateful=True)(x))
    source = saved(model, kind, tmp_path)
    for convert in (to_onnx, to_tflite):
        with pytest.raises(ConvertError, match="keeps a state from call to call"):
            convert(source, tmp_path / "other")
    to_plain(source, tmp_path / "plain", shapes={"x": [2, 5, 3]})
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    given = tf.ones([2, 5, 3])
    for _ in range(3):
        np.testing.assert_allclose(loaded.serve(given), model(given), atol=5e-6)


@pytest.mark.convert
@pytest.mark.parametrize("on_gpu", [False, True])
def test_convert_of_a_stateful_keras_model_is_plain_alone(
    on_gpu: bool, tmp_path: Path
) -> None:
    """A layer that keeps its state writes variables: only plain TensorFlow does."""
    x = keras.Input([5, 3], batch_size=2, name="x")
    model = keras.Model(x, L.LSTM(4, stateful=True)(x))
    with as_on_a_gpu() if on_gpu else nullcontext():
        model.export(str(tmp_path / "source"), verbose=False)
    for convert in (to_onnx, to_tflite):
        with pytest.raises(ConvertError, match="keeps a state from call to call"):
            convert(tmp_path / "source", tmp_path / "other")
    report = to_plain(tmp_path / "source", tmp_path / "plain", shapes={"x": [2, 5, 3]})
    assert {*report.comparisons} == {"serve", "serving_default"}
    assert not barred(ops_of(tmp_path / "plain"))
    a, b = (tf.saved_model.load(str(tmp_path / one)) for one in ("source", "plain"))
    given = tf.ones([2, 5, 3])
    for _ in range(3):
        np.testing.assert_allclose(a.serve(given), b.serve(given), atol=5e-6)
