"""opwright.keras.on_kernels and kernel_report."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import opwright.keras
from opwright import OpInputError
from opwright.keras import kernel_report, on_kernels

layers = keras.layers
X = np.random.default_rng(0).standard_normal((4, 40, 8)).astype("float32")


def nested_model() -> Any:
    """LSTM and SimpleRNN in Bidirectional, GRU in a model in the model."""
    inputs = keras.Input([None, 8])
    x = layers.Bidirectional(
        layers.LSTM(16, return_sequences=True, name="lstm"), name="both"
    )(inputs)
    x = layers.TimeDistributed(layers.Dense(5))(x)
    inner = keras.Sequential(
        [
            keras.Input([None, 5]),
            layers.GRU(7, return_sequences=True, name="gru"),
            layers.Bidirectional(layers.SimpleRNN(3, name="rnn"), "sum", name="two"),
        ],
        name="inner",
    )
    return keras.Model(inputs, inner(x))


PATHS = {
    "both/forward_lstm",
    "both/backward_lstm",
    "inner/gru",
    "inner/two/forward_rnn",
    "inner/two/backward_rnn",
}


@pytest.mark.rotating
def test_on_kernels_nested_layers_are_replaced_and_compute_the_same() -> None:
    plain = nested_model()
    fast = on_kernels(plain)
    report = kernel_report(fast, steps=40)
    assert {*report} == PATHS
    assert {*report.values()} == {"kernels"}
    np.testing.assert_allclose(fast(X), plain(X), atol=1e-5)
    changed = [weight + 0.1 for weight in plain.get_weights()]
    fast.set_weights(changed)
    assert np.abs(fast(X) - plain(X)).max() > 1e-3, "the copy shares the weights"


def test_kernel_report_of_a_keras_model_says_what_replaces_its_layers() -> None:
    report = kernel_report(nested_model())
    assert {*report} == PATHS
    assert all("on_kernels(model) replaces it" in text for text in report.values())


@pytest.mark.rotating
def test_on_kernels_compiled_model_trains_as_the_original() -> None:
    y = np.random.default_rng(1).standard_normal((4, 3)).astype("float32")
    plain = nested_model()
    plain.compile(keras.optimizers.SGD(0.1), "mse")
    fast = on_kernels(plain)
    assert fast.optimizer is not plain.optimizer
    plain.fit(X, y, epochs=3, verbose=0, shuffle=False)
    fast.fit(X, y, epochs=3, verbose=0, shuffle=False)
    for ours, theirs in zip(fast.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_on_kernels_saved_copy_keeps_its_layers(tmp_path: Any) -> None:
    fast = on_kernels(nested_model())
    fast.save(tmp_path / "model.keras")
    again: Any = keras.models.load_model(tmp_path / "model.keras")
    assert {*kernel_report(again).values()} == {"kernels"}


def test_on_kernels_model_without_input_keeps_the_weights() -> None:
    plain = keras.Sequential([layers.LSTM(3)])
    plain(X)
    np.testing.assert_allclose(on_kernels(plain)(X), plain(X), atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "steps", "reason"),
    [
        (layers.GRU(4, reset_after=False), 40, "reset_after is False"),
        (layers.LSTM(4, recurrent_dropout=0.5), 40, "recurrent_dropout is not 0"),
        (
            layers.LSTM(4, activation="relu"),
            40,
            "its activation is relu; the kernels have tanh",
        ),
        (
            layers.GRU(4, recurrent_activation="hard_sigmoid"),
            40,
            "its recurrent_activation is hard_sigmoid; the kernels have sigmoid",
        ),
        (
            layers.SimpleRNN(4, activation="elu"),
            40,
            "its activation is elu; the kernels have tanh and relu",
        ),
        (layers.LSTM(4, use_cudnn=False), 40, "use_cudnn is False"),
        (
            layers.Bidirectional(layers.GRU(4, use_cudnn=False)),
            40,
            "use_cudnn is False",
        ),
        (layers.LSTM(4), 2, "for 2 steps Keras's loop is faster"),
    ],
)
def test_kernel_report_layer_that_keras_runs_has_its_reason(
    layer: Any, steps: int, reason: str
) -> None:
    fast = on_kernels(keras.Sequential([keras.Input([None, 8]), layer]))
    for text in kernel_report(fast, steps=steps).values():
        assert text == reason


def test_kernel_report_own_cell_is_the_reason() -> None:
    layer = opwright.keras.LSTM(4)
    layer.cell = layers.GRUCell(4)
    layer.cell.reset_after = False
    own = type("Own", (layers.LSTMCell,), {})(4)
    assert {*kernel_report(layer).values()} == {"reset_after is False"}
    layer.cell = own
    assert {*kernel_report(layer).values()} == {"its cell is of the class Own"}


@pytest.mark.rotating
def test_kernel_report_lists_layers_of_cells_with_what_replaces_them() -> None:
    cells = [layers.GRUCell(4), layers.LSTMCell(5)]
    model = keras.Sequential(
        [
            keras.Input([None, 8]),
            layers.RNN(layers.LSTMCell(4), return_sequences=True, name="one"),
            layers.Bidirectional(layers.RNN(cells, name="two"), name="both"),
        ]
    )
    report = kernel_report(model)
    assert {*report} == {"one", "both/forward_two", "both/backward_two"}
    assert report["one"].startswith("its class is RNN, of LSTMCell; the kernels run")
    assert "of GRUCell, LSTMCell; " in report["both/forward_two"]
    assert "one layer for each cell" in report["both/backward_two"]
    fast = on_kernels(model)
    np.testing.assert_allclose(fast(X), model(X), atol=1e-5)


@pytest.mark.parametrize("steps", ["30", 0, -1, 2.5, True])
def test_kernel_report_bad_steps_are_refused(steps: Any) -> None:
    words = f"kernel_report: steps must be a positive integer, or None .* not {steps!r}"
    with pytest.raises(OpInputError, match=words) as raised:
        kernel_report(opwright.keras.LSTM(3), steps)
    assert raised.value.argument == "steps"


def test_kernel_report_what_keras_3_does_not_have_is_refused() -> None:
    words = "model must be a model or a layer of Keras 3, not "
    layer = tf_keras.layers.LSTM(3)
    for wrong, shown in (
        (3, "3$"),
        (layer, "a layer of tf_keras: build it with opwright.keras, and copy"),
        (tf_keras.Sequential([layer]), "a model of tf_keras: build it with"),
    ):
        with pytest.raises(OpInputError, match=words + shown):
            kernel_report(wrong)


def test_kernel_report_steps_of_training_are_more_than_those_of_inference() -> None:
    model = keras.Sequential([keras.Input([None, 512]), opwright.keras.LSTM(512)])
    inference, training, unknown = (
        kernel_report(model, steps, training)
        for steps, training in ((6, False), (6, True), (None, True))
    )
    assert {*inference.values()} == {"kernels"} == {*unknown.values()}
    assert {*training.values()} == {"for 6 steps Keras's loop is faster"}


@pytest.mark.parametrize(("steps", "op"), [(2, False), (40, True), (None, True)])
def test_kernels_run_a_graph_of_unknown_steps(steps: int | None, op: bool) -> None:
    """A graph has one path: the steps that are known at tracing select it."""
    model = keras.Sequential([keras.Input([None, 8]), opwright.keras.LSTM(4)])
    traced = tf.function(model).get_concrete_function(tf.TensorSpec([None, steps, 8]))
    found = {one.type for one in traced.graph.get_operations()}
    assert ("OpwrightKerasRNN" in found) == op


class OwnModel(keras.Model):  # type: ignore[misc]
    pass


def test_on_kernels_model_of_another_class_is_refused() -> None:
    words = r"model must be a keras\.Sequential or a functional keras\.Model, not "
    remedy = r".*: replace keras\.layers with opwright\.keras in its code$"
    with pytest.raises(OpInputError, match=words + remedy):
        on_kernels(OwnModel())
    for wrong in (layers.LSTM(3), "model"):
        with pytest.raises(OpInputError, match=words):
            on_kernels(wrong)


def test_on_kernels_model_of_tf_keras_is_refused_with_what_to_do() -> None:
    model = tf_keras.Sequential([tf_keras.layers.LSTM(3)])
    words = (
        r"functional keras\.Model, not a model of tf_keras: build it with "
        r"opwright\.keras, and copy its weights with params_from_keras and "
        r"params_to_keras \(docs/how-to/cudnn_lstm\.md\)$"
    )
    with pytest.raises(OpInputError, match=words):
        on_kernels(model)


def test_on_kernels_layers_of_opwright_stay() -> None:
    model = keras.Sequential([keras.Input([None, 8]), opwright.keras.GRU(3)])
    assert kernel_report(on_kernels(model)) == kernel_report(model)


def test_on_kernels_lambda_layers_keep_their_functions() -> None:
    plain = keras.Sequential(
        [
            keras.Input([None, 8]),
            layers.Lambda(lambda x: np.float32(2) * x, name="twice"),
            layers.LSTM(4),
            layers.Lambda(lambda x, by: by * x, output_shape=(4,), arguments={"by": 3}),
        ]
    )
    fast = on_kernels(plain)
    assert {*kernel_report(fast).values()} == {"kernels"}
    assert fast.layers[0].name == "twice"
    np.testing.assert_allclose(fast(X), plain(X), atol=1e-5)
