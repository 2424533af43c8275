"""CudnnRNNV3 with the weights of torch and Keras layers gives their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch

from opwright.nn import cudnn_rnn_v3
from rnn.support.cases import error

TIME, BATCH, INPUT, UNITS = 6, 5, 7, 11


def packed_from_torch(module: Any) -> np.ndarray[Any, Any]:
    """torch's own tensors, one after the other: weights first, then biases."""
    layers = range(module.num_layers)
    names = [
        f"l{k}{d}" for k in layers for d in ("", "_reverse")[: 1 + module.bidirectional]
    ]
    weights = ["weight_ih", "weight_hh", *(["weight_hr"] if module.proj_size else [])]
    order = [f"{w}_{n}" for n in names for w in weights]
    order += [f"{b}_{n}" for n in names for b in ("bias_ih", "bias_hh")]
    return np.concatenate([getattr(module, n).detach().numpy().ravel() for n in order])


@pytest.mark.rotating
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("mode", ["lstm", "projected", "gru", "rnn_tanh", "rnn_relu"])
def test_cudnn_rnn_v3_matches_torch(
    mode: str, layers: int, bidirectional: bool
) -> None:
    torch.manual_seed(0)
    kind = {"gru": torch.nn.GRU, "rnn_tanh": torch.nn.RNN, "rnn_relu": torch.nn.RNN}
    more: dict[str, Any] = {"proj_size": 4} if mode == "projected" else {}
    if mode == "rnn_relu":
        more["nonlinearity"] = "relu"
    module = kind.get(mode, torch.nn.LSTM)(
        INPUT, UNITS, layers, bidirectional=bidirectional, dtype=torch.float64, **more
    )
    lstm = mode in ("lstm", "projected")
    stacked = layers * (1 + bidirectional)
    x = torch.randn(TIME, BATCH, INPUT, dtype=torch.float64, requires_grad=True)
    h = torch.randn(
        stacked,
        BATCH,
        more.get("proj_size", UNITS),
        dtype=torch.float64,
        requires_grad=True,
    )
    c = torch.randn(stacked, BATCH, UNITS, dtype=torch.float64, requires_grad=True)
    y, states = module(x, (h, c) if lstm else h)
    final = list(states) if lstm else [states]
    weights = [torch.randn_like(t) for t in (y, *final)]
    torch.autograd.backward([y, *final], weights)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data, parameter.grad = parameter.grad, parameter.data
        dparams = packed_from_torch(module)
        for parameter in module.parameters():
            parameter.data, parameter.grad = parameter.grad, parameter.data

    given = [tf.constant(t.detach().numpy()) for t in (x, h, c)]
    given.append(tf.constant(packed_from_torch(module)))
    with tf.GradientTape() as tape:
        for tensor in given:
            tape.watch(tensor)
        rnn = cudnn_rnn_v3(
            *given,
            [TIME] * BATCH,
            rnn_mode="lstm" if lstm else mode,
            direction="bidirectional" if bidirectional else "unidirectional",
            num_proj=more.get("proj_size", 0),
        )
        outputs = [rnn.output, rnn.output_h, *([rnn.output_c] if lstm else [])]
    gradients = tape.gradient(outputs, given, [tf.constant(w.numpy()) for w in weights])
    for found, wanted in zip(outputs, (y, *final), strict=True):
        assert error(found, wanted.detach().numpy()) <= 1e-12
    assert error(gradients[0], x.grad.numpy()) <= 1e-12
    assert error(gradients[1], h.grad.numpy()) <= 1e-12
    if lstm:
        assert error(gradients[2], c.grad.numpy()) <= 1e-12
    assert error(gradients[3], dparams) <= 1e-12


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_cudnn_rnn_v3_matches_keras(mode: str) -> None:
    """Keras's LSTM has one bias and gates i, f, c, o; its GRU two, gates z, r, h."""
    kind = {"lstm": tf.keras.layers.LSTM, "gru": tf.keras.layers.GRU}[mode]
    layer = kind(
        UNITS, return_sequences=True, dtype="float64", bias_initializer="normal"
    )
    x = tf.random.stateless_normal([BATCH, TIME, INPUT], [1, 2], dtype=tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    dx = tape.gradient(y, x)
    kernel, recurrent, bias = (np.asarray(w) for w in layer.get_weights())
    gates = [0, 1, 2, 3] if mode == "lstm" else [1, 0, 2]
    biases = np.stack([np.zeros_like(bias), bias]) if bias.ndim == 1 else bias

    def rows(matrix: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        parts = np.split(matrix.T, len(gates))
        return [parts[gate].ravel() for gate in gates]

    parts = [*rows(kernel), *rows(recurrent), *rows(biases[0]), *rows(biases[1])]
    params = tf.constant(np.concatenate(parts))
    zeros = tf.zeros([BATCH, 1, UNITS], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        rnn = cudnn_rnn_v3(
            x,
            zeros,
            zeros if mode == "lstm" else 0.0,
            params,
            [TIME] * BATCH,
            rnn_mode=mode,
            time_major=False,
        )
        output = rnn.output
    assert error(output, y.numpy()) <= 1e-12
    assert error(tape.gradient(output, x), dx.numpy()) <= 1e-12
