"""OpwrightKerasRNN: the op that opwright.keras runs in inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import opwright.keras
from opwright_runtime import native

BATCH, TIME, SIZE, UNITS = 3, 6, 5, 4
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def operands(mode: str = "lstm", biases: int = 1, **changes: Any) -> dict[str, Any]:
    """The arguments of a good call, with changes."""
    rng = np.random.default_rng(0)
    rows = GATES[mode] * UNITS
    shapes = {
        "input": [BATCH, TIME, SIZE],
        "input_h": [BATCH, UNITS],
        "input_c": [BATCH, UNITS],
        "kernel": [SIZE, rows],
        "recurrent_kernel": [UNITS, rows],
        "bias": [biases, rows],
    }
    given: dict[str, Any] = {
        name: rng.standard_normal(changes.get(name, shape)).astype("float32")
        for name, shape in shapes.items()
    }
    given["sequence_lengths"] = changes.get("sequence_lengths", [TIME] * BATCH)
    return {**given, "rnn_mode": mode}


def call(**given: Any) -> Any:
    return native.ops().opwright_keras_rnn(**given)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("input", {"input": [BATCH, SIZE]}),
        ("input", {"input": [BATCH, 0, SIZE]}),
        ("input_h", {"input_h": [BATCH, UNITS + 1]}),
        ("input_h", {"input_h": [1, BATCH, UNITS]}),
        ("input_c", {"input_c": [BATCH + 1, UNITS]}),
        ("kernel", {"kernel": [SIZE + 1, 4 * UNITS]}),
        ("kernel", {"kernel": [4 * UNITS, SIZE]}),
        ("kernel", {"recurrent_kernel": [UNITS + 1, 4 * UNITS]}),
        ("recurrent_kernel", {"recurrent_kernel": [UNITS, 3 * UNITS]}),
        ("num_units", {"recurrent_kernel": [UNITS]}),
        ("num_units", {"recurrent_kernel": [0, 0]}),
        ("bias", {"bias": [4 * UNITS]}),
        ("bias", {"bias": [3, 4 * UNITS]}),
        ("bias", {"bias": [1, UNITS]}),
        ("sequence_lengths", {"sequence_lengths": [TIME] * (BATCH + 1)}),
        ("sequence_lengths", {"sequence_lengths": [TIME, -1, 2]}),
        ("sequence_lengths", {"sequence_lengths": [TIME, TIME + 1, 2]}),
    ],
)
def test_keras_rnn_op_bad_argument_is_refused(
    argument: str, changes: dict[str, Any], compiled: bool
) -> None:
    given = operands(**changes)
    mode, lengths = given.pop("rnn_mode"), given.pop("sequence_lengths")

    # Lengths are constants: a compiled program does not check values at run time.
    @tf.function(jit_compile=compiled, autograph=False)
    def run(**given: Any) -> Any:
        return call(**given, sequence_lengths=lengths, rnn_mode=mode)

    tensors = {name: tf.constant(value) for name, value in given.items()}
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as raised:
        run(**tensors)
    # TensorFlow's shape inference refuses wrong ranks itself.
    assert f"{argument}: " in str(raised.value) or "must be rank" in str(raised.value)
    if not compiled:
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{argument}: "):
            call(**given, sequence_lengths=lengths, rnn_mode=mode)


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("biases", [0, 1, 2])
@pytest.mark.parametrize("mode", GATES)
def test_keras_rnn_op_jit_compile_matches_eager(
    mode: str, biases: int, dtype: str
) -> None:
    given = operands(mode, biases, sequence_lengths=[TIME, 2, 0])
    rnn_mode, lengths = given.pop("rnn_mode"), given.pop("sequence_lengths")
    tensors = {name: tf.cast(value, dtype) for name, value in given.items()}

    def run(**tensors: Any) -> Any:
        return call(**tensors, sequence_lengths=lengths, rnn_mode=rnn_mode)

    compiled = tf.function(run, jit_compile=True)(**tensors)
    tolerance = {"float32": 1e-5, "float64": 1e-12}.get(dtype, 5e-2)
    for found, wanted in zip(compiled, run(**tensors), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(
            np.asarray(found, "float64"), np.asarray(wanted, "float64"), 0, tolerance
        )


def test_keras_rnn_op_empty_batch_gives_empty_outputs() -> None:
    given = operands()
    given |= {name: given[name][:0] for name in ("input", "input_h", "input_c")}
    given["sequence_lengths"] = tf.zeros([0], tf.int32)
    mode = given.pop("rnn_mode")
    tensors = {name: tf.convert_to_tensor(value) for name, value in given.items()}
    for jit_compile in (False, True):
        run = tf.function(lambda **t: call(**t, rnn_mode=mode), jit_compile=jit_compile)
        y, h, c = run(**tensors)
        assert y.shape == [0, TIME, UNITS]
        assert h.shape == c.shape == [0, UNITS]


@pytest.mark.rotating
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_keras_layers_with_changed_weights_match_keras(
    kind: str, tmp_path: Path
) -> None:
    """Eagerly, in a function and in a SavedModel, after assign and assign_add."""
    ours, theirs = (getattr(of, kind)(UNITS) for of in (opwright.keras, keras.layers))
    x = tf.random.normal([BATCH, TIME, SIZE])
    for layer in (ours, theirs):
        layer(x)
    module = tf.Module()
    module.layer = tf.function(ours.__call__, input_signature=[tf.TensorSpec(x.shape)])
    module.weights = [variable.value for variable in ours.weights]
    module.layer(x)
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)

    rng = np.random.default_rng(1)
    for step in range(6):
        variables = ours.weights
        for number, variable in enumerate(variables):
            values = variable.numpy()
            values.flat[rng.integers(values.size)] += 1
            if step % 2:
                variable.assign(values)
            else:
                variable.value.assign_add(values - variable.numpy())
            loaded.weights[number].assign(variable.value)
        theirs.set_weights(ours.get_weights())
        wanted = theirs(x)
        for found in (ours(x), module.layer(x), loaded.layer(x)):
            np.testing.assert_allclose(found, wanted, 0, 1e-5)
