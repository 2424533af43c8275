"""tf_keras's CuDNNLSTM and CuDNNGRU on the CPU: `legacy_layers.py eager FOLDER`.

Runs every check of its mode ("eager", or "v1": the behaviour of TensorFlow 1) and
prints a line for each. tf_keras takes Keras's place when a process starts, so this is a
program of its own. It leaves SavedModels in FOLDER.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from opwright import OpError, params_from_keras, params_to_keras
from opwright.nn import cudnn_rnn_v3

MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
BATCH, TIME, INPUT, UNITS, RATE, STEPS = 16, 7, 5, 8, 0.05, 4
CHECKS: list[Callable[[], None]] = []

if MODE == "v1":
    tf.compat.v1.disable_v2_behavior()
layers = tf.keras.layers
legacy = tf.compat.v1.keras.layers
rng = np.random.default_rng(0)
X = rng.standard_normal((BATCH, TIME, INPUT)).astype("float32")
Y = X[:, :, :1].sum(axis=1)


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS.append(function)
    return function


def only(mode: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    return check if mode == MODE else lambda function: function


def model(*stack: Any) -> Any:
    made = tf.keras.Sequential(
        [layers.InputLayer(batch_input_shape=(BATCH, TIME, INPUT)), *stack]
    )
    made.compile(tf.keras.optimizers.legacy.SGD(RATE), "mse")
    return made


def biased(made: Any) -> Any:
    """Random biases too, which start as zeros."""
    made.set_weights([rng.standard_normal(w.shape) * 0.3 for w in made.get_weights()])
    return made


def fit(made: Any, steps: int = STEPS) -> list[float]:
    """One step an epoch."""
    done = made.fit(X, Y, epochs=steps, batch_size=BATCH, verbose=0, shuffle=False)
    return [float(loss) for loss in done.history["loss"]]


def with_weights_of(source: Any, target: Any) -> Any:
    """tf_keras itself turns weights of layers for cuDNN into those of its others."""
    path = str(FOLDER / f"{MODE} weights.h5")
    source.save_weights(path)
    target.load_weights(path)
    return target


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


@check
def gru_trains_as_the_other_layer_does() -> None:
    ours = biased(
        model(legacy.CuDNNGRU(UNITS, return_sequences=True), legacy.CuDNNGRU(1))
    )
    theirs = model(
        layers.GRU(UNITS, return_sequences=True, reset_after=True),
        layers.GRU(1, reset_after=True),
    )
    with_weights_of(ours, theirs)
    losses = fit(ours)
    close(losses, fit(theirs))
    assert losses[-1] < losses[0]
    trained = theirs.get_weights()
    with_weights_of(ours, theirs)
    for found, wanted in zip(theirs.get_weights(), trained, strict=True):
        close(found, wanted)


@only("eager")
def lstm_trains_as_the_other_layer_does() -> None:
    """Which has one bias where this has two: its step is as long as theirs together."""
    ours = biased(model(layers.Bidirectional(legacy.CuDNNLSTM(UNITS)), layers.Dense(1)))
    theirs = model(layers.Bidirectional(layers.LSTM(UNITS)), layers.Dense(1))
    with_weights_of(ours, theirs)
    wanted = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((theirs(X, training=True) - Y) ** 2)
        variables = theirs.trainable_variables
        for variable, gradient in zip(
            variables, tape.gradient(loss, variables), strict=True
        ):
            twice = "lstm" in variable.name and "bias" in variable.name
            variable.assign_sub(RATE * (1 + twice) * gradient)
        wanted.append(float(loss))
    losses = fit(ours)
    close(losses, wanted)
    assert losses[-1] < losses[0]
    close(ours.predict(X), theirs.predict(X))


@check
def both_learn() -> None:
    """From one start: at this rate one in forty diverges, in float64 arithmetic too."""
    tf.keras.utils.set_random_seed(0)
    for layer in (legacy.CuDNNLSTM, legacy.CuDNNGRU):
        losses = fit(model(layer(UNITS), layers.Dense(1)), steps=25)
        assert losses[-1] < 0.5 * losses[0], losses


@check
def states_carry_over() -> None:
    """Halves of a sequence, one after the other, give what all of it gives."""
    for layer in (legacy.CuDNNLSTM, legacy.CuDNNGRU):
        whole = biased(model(layer(UNITS, return_sequences=True)))
        carried = tf.keras.Sequential(
            [
                layers.InputLayer(batch_input_shape=(BATCH, None, INPUT)),
                layer(UNITS, return_sequences=True, stateful=True),
            ]
        )
        carried.set_weights(whole.get_weights())
        halves = [carried.predict(x, batch_size=BATCH) for x in (X[:, :3], X[:, 3:])]
        wanted = whole.predict(X, batch_size=BATCH)
        close(np.concatenate(halves, axis=1), wanted)
        carried.reset_states()
        close(carried.predict(X, batch_size=BATCH), wanted)


@check
def saved_and_loaded() -> None:
    made = biased(model(layers.Bidirectional(legacy.CuDNNLSTM(UNITS))))
    path = str(FOLDER / f"{MODE}.h5")
    made.save(path)
    loaded = tf.keras.models.load_model(path)
    close(loaded.predict(X), made.predict(X))
    loaded.compile("sgd", "mse")
    target = np.zeros((BATCH, 2 * UNITS), "float32")
    loaded.fit(X, target, batch_size=BATCH, verbose=0)


@check
def a_device_that_is_not_there() -> None:
    with tf.device("/device:GPU:0"):
        made = model(legacy.CuDNNLSTM(UNITS, return_sequences=True), legacy.CuDNNGRU(1))
        losses = fit(made)
    assert losses[-1] < losses[0]


@only("eager")
def run_eagerly() -> None:
    made = biased(model(legacy.CuDNNGRU(1)))
    weights = made.get_weights()
    losses = fit(made)
    made.set_weights(weights)
    made.compile(tf.keras.optimizers.legacy.SGD(RATE), "mse", run_eagerly=True)
    close(fit(made), losses)


@only("eager")
def packed() -> None:
    """The weights of these layers as packed parameters."""
    zeros = np.zeros((2, BATCH, UNITS), "float32")
    for layer, state in ((legacy.CuDNNLSTM, zeros), (legacy.CuDNNGRU, 0.0)):
        both = layers.Bidirectional(layer(UNITS, return_sequences=True))
        made = biased(model(both))
        params = params_from_keras(both)
        before = both.get_weights()
        params_to_keras(params.params, both)
        for found, wanted in zip(both.get_weights(), before, strict=True):
            np.testing.assert_array_equal(found, wanted)
        y = cudnn_rnn_v3(
            X.transpose(1, 0, 2),
            zeros,
            state,
            params.params,
            [TIME] * BATCH,
            rnn_mode=params.rnn_mode,
            direction=params.direction,
        ).output
        close(tf.transpose(y, [1, 0, 2]), made.predict(X))


class Unguarded(layers.Wrapper):  # type: ignore[misc]
    """As users write one: it builds its layer whether that is built or not."""

    def build(self, shape: Any) -> None:
        self.layer.build(shape)
        super().build(shape)

    def call(self, x: Any) -> Any:
        return self.layer(x)


@only("eager")
def unbuilt_in_any_wrapper() -> None:
    """Refused before anything changes, and taken once the wrapper has been called."""
    for kind in (legacy.CuDNNLSTM, legacy.CuDNNGRU):

        def make(kind: Any = kind) -> Any:
            return kind(UNITS, return_sequences=True)

        one, both, wrapped = make(), layers.Bidirectional(make()), Unguarded(make())
        each = layers.TimeDistributed(make())
        half = layers.Bidirectional(make())
        for child in (half.forward_layer, half.backward_layer):
            child.build((None, TIME, INPUT))
        for called, given, x in (
            (one, one, X),
            (both, both, X),
            (both, both.forward_layer, X),
            (half, half, X),
            (wrapped, wrapped.layer, X),
            (each, each.layer, X[None]),
        ):
            double = isinstance(given, layers.Bidirectional)
            source = layers.Bidirectional(make()) if double else make()
            wanted = source(X)
            params = params_from_keras(source)
            if not called.built:
                try:
                    params_to_keras(params, given)
                except OpError as error:
                    assert "must be built: call the model first" in str(error)
                else:
                    raise AssertionError(f"{called} was taken")
                called(x)
            params_to_keras(params, given)
            called(x)
            close(given(X), wanted)


@only("eager")
def exported() -> None:
    """Leaves a SavedModel whose nodes are pinned to a GPU, and what it gives."""
    with tf.device("/device:GPU:0"):
        made = biased(
            model(
                layers.Bidirectional(legacy.CuDNNLSTM(UNITS, return_sequences=True)),
                legacy.CuDNNGRU(UNITS),
            )
        )
        module = tf.Module()
        module.weights = made.variables
        module.constants = [
            layer._vector_shape
            for outer in made.layers
            for layer in (
                (outer.forward_layer, outer.backward_layer)
                if hasattr(outer, "forward_layer")
                else (outer,)
            )
        ]
        spec = tf.TensorSpec([None, TIME, INPUT])

        @tf.function(input_signature=[spec], autograph=False)
        def serve(x: tf.Tensor) -> tf.Tensor:
            with tf.device("/device:GPU:0"):
                return made.layers[1](made.layers[0](x))

        module.serve = serve
    tf.saved_model.save(module, str(FOLDER / "pinned"), signatures=serve)
    made.export(str(FOLDER / "exported"))
    with tf.GradientTape() as tape:
        x = tf.constant(X)
        tape.watch(x)
        y = made(x)
    np.savez(FOLDER / "wanted.npz", x=X, y=y, dx=tape.gradient(y, x))


def main() -> None:
    for function in CHECKS:
        try:
            function()
        except Exception:
            print(f"{function.__name__}: failed\n{traceback.format_exc()}", flush=True)
        else:
            print(f"{function.__name__}: passed", flush=True)


if __name__ == "__main__":
    main()
