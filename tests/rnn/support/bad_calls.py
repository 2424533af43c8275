"""Bad calls of the CudnnRNN ops, by the argument that the error names."""

from __future__ import annotations

from typing import Any

import numpy as np
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
