"""Keras models as sources: they are copied, and stay as they are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import opwright.keras
from convert.support.models import barred, ops_of
from opwright.convert import to_plain
from opwright_runtime.rnn.keras_models import with_states

L = keras.layers
X = np.random.default_rng(0).standard_normal((2, 5, 3)).astype("float32")


class Watcher(L.Layer):  # type: ignore[misc]
    """Calls a function whenever it is traced."""

    def __init__(self, watch: Callable[[], None], **named: Any) -> None:
        super().__init__(**named)
        self.watch = watch

    def call(self, x: Any) -> Any:
        if not tf.executing_eagerly():
            self.watch()
        return tf.identity(x)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "watch": self.watch}

    @classmethod
    def from_config(cls, config: Any) -> Any:
        return cls(**config)


def model(*more: Any, time: int | None = None) -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input([time, 3], name="x"),
            L.LSTM(4, return_sequences=True),
            L.GRU(3),
            *more,
        ]
    )


def found_ops(source: Any, folder: Path) -> set[str]:
    report = to_plain(source, folder / "plain")
    assert not barred(ops_of(folder / "plain"))
    return {one.op for one in report.found}


@pytest.mark.rotating
def test_to_plain_of_keras_layers_changes_none_of_them_while_it_traces(
    tmp_path: Path,
) -> None:
    seen: list[list[type]] = []
    made: Any = None

    def watch() -> None:
        if made is not None:
            seen.append([type(layer) for layer in made.layers])

    made = model(Watcher(watch))
    kinds = [type(layer) for layer in made.layers]
    assert "OpwrightKerasRNN" in found_ops(made, tmp_path)
    assert seen and all(one == kinds for one in seen)


@pytest.mark.rotating
def test_to_plain_of_keras_layers_leaves_calls_of_other_threads_alone(
    tmp_path: Path,
) -> None:
    """A call of few steps runs Keras's loop, also while a model is traced."""
    traces, done = threading.Event(), threading.Event()
    wide = opwright.keras.LSTM(600)
    wide.build([None, 2, 600])

    def watch() -> None:
        traces.set()
        assert done.wait(60)

    def ops_elsewhere() -> set[str]:
        spec = tf.TensorSpec([1, 2, 600])
        graph = tf.function(lambda x: wide(x)).get_concrete_function(spec).graph
        return {op.type for op in graph.get_operations()}

    done.set()
    made = model(Watcher(watch))
    done.clear()
    traces.clear()
    thread = threading.Thread(target=to_plain, args=[made, tmp_path / "plain"])
    thread.start()
    try:
        assert traces.wait(60)
        found = ops_elsewhere()
    finally:
        done.set()
        thread.join()
    assert "OpwrightKerasRNN" not in found
    assert (tmp_path / "plain").is_dir()


@pytest.mark.rotating
@pytest.mark.parametrize("steps", [1, 2, None])
def test_to_plain_of_keras_layers_replaces_them_for_any_steps(
    steps: int | None, tmp_path: Path
) -> None:
    assert "OpwrightKerasRNN" in found_ops(model(time=steps), tmp_path)


@pytest.mark.rotating
def test_to_plain_of_a_model_with_a_lambda_replaces_its_layers(tmp_path: Path) -> None:
    made = model(L.Lambda(lambda y: tf.abs(y)))
    assert "OpwrightKerasRNN" in found_ops(made, tmp_path)
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    np.testing.assert_allclose(loaded.serve(X), made(X), atol=5e-6)


class Subclass(keras.Model):  # type: ignore[misc]
    """A model that Keras cannot copy."""

    def __init__(self, of: Any) -> None:
        super().__init__()
        self.rnn = of.LSTM(4)

    def call(self, x: Any) -> Any:
        return self.rnn(x)


@pytest.mark.rotating
@pytest.mark.parametrize("of", [L, opwright.keras])
def test_to_plain_of_a_model_that_has_no_copy_says_which_loops_stay(
    of: Any, tmp_path: Path
) -> None:
    made = Subclass(of)
    wanted = made(X)
    report = to_plain(made, tmp_path / "plain")
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    np.testing.assert_allclose(loaded.serve(X), wanted, atol=5e-6)
    if of is L:
        assert "1 layers of keras.layers keep their loops" in report.notes[0]
        assert not report.found
    else:
        assert "OpwrightKerasRNN" in {one.op for one in report.found}


@pytest.mark.rotating
def test_to_plain_of_a_stateful_layer_continues_from_its_state(tmp_path: Path) -> None:
    x = keras.Input([5, 3], batch_size=2, name="x")
    made = keras.Model(x, L.LSTM(4, stateful=True)(x))
    first = np.asarray(made(X))
    report = to_plain(made, tmp_path / "plain", samples={"x": X})
    assert report.found
    second = np.asarray(made(X))
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    np.testing.assert_allclose(loaded.serve(X), second, atol=5e-6)
    assert np.abs(first - second).max() > 1e-3


def test_with_states_keeps_the_model_as_it_is() -> None:
    made = model()
    kinds = [type(layer) for layer in made.layers]
    copy = with_states(made)
    assert [type(layer) for layer in made.layers] == kinds
    assert [type(layer) for layer in copy.layers] == [
        opwright.keras.LSTM,
        opwright.keras.GRU,
    ]
