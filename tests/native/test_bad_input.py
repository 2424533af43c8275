"""A bad call is an InvalidArgument that names the argument, eagerly and in graphs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

T, B, N, H, L = 3, 2, 4, 5, 2
SIZE = 4 * H * (N + H + 2) + 4 * H * (H + H + 2)


def floats(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def forward(**changes: Any) -> dict[str, Any]:
    return {
        "input": floats(T, B, N),
        "input_h": floats(L, B, H),
        "input_c": floats(L, B, H),
        "params": floats(SIZE),
        "sequence_lengths": np.full([B], T, np.int32),
        **changes,
    }


def call(arguments: dict[str, Any]) -> Any:
    return tf.raw_ops.CudnnRNNV3(**arguments)


# By the argument that the error names.
FORWARD: list[tuple[str, dict[str, Any]]] = [
    ("params", {"params": floats(SIZE - 1)}),
    ("params", {"params": floats(SIZE, 1)}),
    ("params", {"params": floats(0)}),
    ("input", {"input": floats(B, N)}),
    ("input", {"input": floats(T, B, N, 1)}),
    ("input", {"input": floats(0, B, N)}),
    ("input", {"input": floats(T, 0, N), "input_h": floats(L, 0, H)}),
    ("input", {"input": floats(T, B, 0)}),
    ("input_h", {"input_h": floats(B, H)}),
    ("input_h", {"input_h": floats(L, B + 1, H)}),
    ("input_h", {"input_h": floats(0, B, H)}),
    ("input_h", {"input_h": floats(L, B, 0), "input_c": floats(L, B, 0)}),
    ("input_h", {"input_h": floats(3, B, H), "direction": "bidirectional"}),
    ("input_h", {"input_h": floats(L, B, H), "time_major": False}),
    ("input_c", {"input_c": floats(L, B, H + 1)}),
    ("input_c", {"input_c": floats()}),
    ("sequence_lengths", {"sequence_lengths": np.array([T, T + 1], np.int32)}),
    ("sequence_lengths", {"sequence_lengths": np.array([-1, T], np.int32)}),
    ("sequence_lengths", {"sequence_lengths": np.array([T], np.int32)}),
    ("sequence_lengths", {"sequence_lengths": np.array([[T, T]], np.int32)}),
    ("num_proj", {"num_proj": H + 1, "input_h": floats(L, B, H + 1)}),
    ("num_proj", {"num_proj": -1}),
    ("num_proj", {"num_proj": 2, "rnn_mode": "gru"}),
    ("input_h", {"num_proj": 3}),
    ("input_mode", {"input_mode": "skip_input"}),
    ("dropout", {"dropout": 1.5}),
    ("dropout", {"dropout": float("nan")}),
]


@pytest.mark.parametrize(("argument", "changes"), FORWARD)
def test_forward(argument: str, changes: dict[str, Any]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(forward(**changes))
    assert f"{argument}: " in raised.value.message or "rank" in raised.value.message
    arrays = {k: v for k, v in forward(**changes).items() if isinstance(v, np.ndarray)}
    rest = {k: v for k, v in changes.items() if k not in arrays}
    unknown = [tf.TensorSpec(None, tf.as_dtype(v.dtype)) for v in arrays.values()]

    @tf.function(input_signature=unknown, autograph=False)
    def graph(*given: tf.Tensor) -> Any:
        return call({**dict(zip(arrays, given, strict=True)), **rest})

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        graph(*arrays.values())
    assert f"{argument}: " in raised.value.message


BACKWARD: list[tuple[str, dict[str, Any]]] = [
    ("reserve_space", {"reserve_space": floats(7)}),
    ("reserve_space", {"reserve_space": floats()}),
    ("reserve_space", {"reserve_space": lambda r: np.zeros_like(r)}),
    ("reserve_space", {"dropout": 0.25}),
    ("reserve_space", {"seed": 3}),
    ("reserve_space", {"rnn_mode": "gru", "params": floats(3 * SIZE // 4)}),
    ("output", {"output": floats(T, B, H + 1)}),
    ("output_h", {"output_h": floats(1, B, H)}),
    ("output_c", {"output_c": floats(L, B)}),
    ("output_backprop", {"output_backprop": floats(T, B)}),
    ("output_h_backprop", {"output_h_backprop": floats(L, B, H, 1)}),
    ("output_c_backprop", {"output_c_backprop": floats()}),
    ("params", {"params": floats(3)}),
]


def backward() -> dict[str, Any]:
    """Arguments of the backward op, from those of a forward call and its outputs."""
    given = forward()
    output, output_h, output_c, reserve, host = call(given)
    return {
        **given,
        "output": output,
        "output_h": output_h,
        "output_c": output_c,
        "output_backprop": output,
        "output_h_backprop": output_h,
        "output_c_backprop": output_c,
        "reserve_space": reserve,
        "host_reserved": host,
    }


@pytest.mark.parametrize(("argument", "changes"), BACKWARD)
def test_backward(argument: str, changes: dict[str, Any]) -> None:
    arguments = backward()
    reserve = arguments["reserve_space"]
    for name, change in changes.items():
        arguments[name] = change(reserve) if callable(change) else change
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        tf.raw_ops.CudnnRNNBackpropV3(**arguments)
    assert f"{argument}: " in raised.value.message


BIG = 2**31 - 1


@pytest.mark.parametrize(
    ("argument", "sizes"),
    [
        ("num_layers", (0, 1, 1)),
        ("num_layers", (-1, 1, 1)),
        ("num_units", (1, 0, 1)),
        ("input_size", (1, 1, -5)),
        ("num_units", (1, BIG, BIG)),
        ("num_units", (BIG, BIG, BIG)),
        ("num_units", (BIG, 1, 1)),
        ("num_units", (1, 60000, 1)),
        ("num_layers", ([1], 1, 1)),
        ("input_size", (1, 1, [[1]])),
    ],
)
def test_params_size(argument: str, sizes: tuple[Any, Any, Any]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        tf.raw_ops.CudnnRNNParamsSize(
            num_layers=sizes[0],
            num_units=sizes[1],
            input_size=sizes[2],
            T=tf.float32,
            S=tf.int32,
        )
    assert f"{argument}: " in raised.value.message or "rank" in raised.value.message


@pytest.mark.parametrize(
    ("argument", "sizes", "count", "size"),
    [
        ("num_params", (1, 2, 3), 7, 64),
        ("num_params", (BIG, 2, 3), 8, 64),
        ("num_layers", (0, 2, 3), 8, 64),
        ("params", (1, 2, 3), 8, 55),
    ],
)
def test_params_to_canonical(
    argument: str, sizes: tuple[int, int, int], count: int, size: int
) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        tf.raw_ops.CudnnRNNParamsToCanonical(
            num_layers=sizes[0],
            num_units=sizes[1],
            input_size=sizes[2],
            params=floats(size),
            num_params=count,
        )
    assert f"{argument}: " in raised.value.message


def test_canonical_to_params() -> None:
    weights = [floats(2, 3)] * 4 + [floats(2, 2)] * 3 + [floats(3, 2)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"weights\[7\]: "):
        tf.raw_ops.CudnnRNNCanonicalToParams(
            num_layers=1,
            num_units=2,
            input_size=3,
            weights=weights,
            biases=[floats(2)] * 8,
        )


def test_fuzzed_calls_end_nothing() -> None:
    fuzz = Path(__file__).with_name("fuzz.py")
    done = subprocess.run(
        [sys.executable, fuzz, "500"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
