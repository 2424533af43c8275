"""Calls the CudnnRNN ops with arguments made wrong at random: `python fuzz.py 10000`.

With `--xla` the calls are compiled. A call may succeed, or be refused as
InvalidArgument; nothing else. The last line printed before a crash is the call that
crashed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "generated"), str(ROOT / "runtime")]

import numpy as np
import tensorflow as tf

from opwright_runtime import native

DTYPES = (tf.float32, tf.float64, tf.half, tf.bfloat16)
GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


class Fuzzer:
    def __init__(self, seed: int, compiled: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.compiled = compiled
        self.outcomes: dict[str, int] = {}

    def pick(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def array(self, shape: list[int], dtype: tf.DType) -> tf.Tensor:
        scale = self.pick(0.0, 1.0, 1e30, float("nan"))
        return tf.cast(self.rng.standard_normal(shape) * scale, dtype)

    def damaged(self, tensor: tf.Tensor) -> tf.Tensor:
        """Another shape: longer, shorter, empty, of another rank."""
        shape = tensor.shape.as_list()
        kind = self.pick("size", "size", "rank up", "rank down", "empty", "huge")
        if kind == "rank down":
            shape = shape[:-1]
        elif kind == "rank up" or not shape:
            shape = [*shape, self.pick(0, 1, 2)]
        else:
            at = self.rng.integers(len(shape))
            if kind == "huge":
                # Only an empty tensor can have a dimension like this.
                shape[at] = 2**40
                shape[(at + 1) % len(shape)] = 0
            else:
                shape[at] = (
                    0 if kind == "empty" else max(0, shape[at] + self.pick(-1, 1, 7))
                )
        return tf.zeros(shape, tensor.dtype)

    def damage(self, arguments: dict[str, Any]) -> None:
        for _ in range(self.pick(0, 1, 1, 2)):
            name = self.pick(*arguments)
            value = arguments[name]
            if isinstance(value, tf.Tensor):
                if name == "sequence_lengths" and self.rng.random() < 0.7:
                    bad = self.pick(-1, -(2**31), 2**31 - 1, 9)
                    arguments[name] = tf.where(self.rng.random() < 0.5, value, bad)
                else:
                    arguments[name] = self.damaged(value)
            elif name == "rnn_mode":
                arguments[name] = self.pick(*GATES)
            elif name == "direction":
                arguments[name] = self.pick("unidirectional", "bidirectional")
            elif name == "num_proj":
                arguments[name] = self.pick(-1, 0, 1, 3, 2**31 - 1, 2**40)
            elif name == "dropout":
                arguments[name] = self.pick(-1.0, 0.0, 0.5, 1.0, 2.0, float("nan"))
            elif name == "time_major":
                arguments[name] = not value

    def rnn(self) -> None:
        dtype, mode = self.pick(*DTYPES), self.pick(*GATES)
        layers, units, inputs, time, batch = self.rng.integers(1, 6, 5).tolist()
        dirs = self.pick(1, 2)
        proj = self.pick(0, units) if mode == "lstm" else 0
        hidden = proj or units
        gates, size = GATES[mode], 0
        for layer in range(layers):
            size += dirs * (
                gates * units * ((dirs * hidden if layer else inputs) + hidden + 2)
                + proj * units
            )
        major = self.pick(False, True)
        first = [time, batch] if major else [batch, time]
        states = [layers * dirs, batch] if major else [batch, layers * dirs]
        arguments: dict[str, Any] = {
            "input": self.array([*first, inputs], dtype),
            "input_h": self.array([*states, hidden], dtype),
            "input_c": self.array([*states, units], dtype),
            "params": self.array([size], dtype),
            "sequence_lengths": tf.constant(
                self.rng.integers(0, time + 1, batch), tf.int32
            ),
            "rnn_mode": mode,
            "input_mode": "linear_input",
            "direction": ("unidirectional", "bidirectional")[dirs - 1],
            "num_proj": proj,
            "dropout": self.pick(0.0, 0.5),
            "time_major": major,
        }
        forward = dict(arguments)
        backward = self.rng.random() < 0.5
        if not backward:
            self.damage(forward)
        outputs = self.call(tf.raw_ops.CudnnRNNV3, forward)
        if outputs is None or not backward:
            return
        y, h, c, reserve, host = outputs
        arguments.update(
            output=y,
            output_h=h,
            output_c=c,
            output_backprop=y,
            output_h_backprop=h,
            output_c_backprop=c,
            reserve_space=reserve,
            host_reserved=host,
        )
        self.damage(arguments)
        self.call(tf.raw_ops.CudnnRNNBackpropV3, arguments)

    def params(self) -> None:
        size = lambda: self.pick(-1, 0, 1, 2, 3, 1000, 2**16, 2**31 - 1)  # noqa: E731
        arguments: dict[str, Any] = {
            "num_layers": size(),
            "num_units": size(),
            "input_size": size(),
            "rnn_mode": self.pick(*GATES),
            "num_proj": self.pick(0, 1, -1, 2**31),
        }
        if self.rng.random() < 0.3:
            self.call(
                tf.raw_ops.CudnnRNNParamsSize,
                {**arguments, "T": tf.half, "S": tf.int64},
            )
            return
        counts = {
            "num_params_weights": self.pick(1, 8, 9, 16, 6),
            "num_params_biases": self.pick(1, 8, 16, 6),
        }
        if self.rng.random() < 0.5:
            arguments["params"] = tf.zeros([self.pick(0, 1, 16, 40, 64)])
            self.call(tf.raw_ops.CudnnRNNParamsToCanonicalV2, {**arguments, **counts})
        else:
            weights, biases = counts.values()
            arguments["weights"] = [tf.zeros([1, 1])] * weights
            arguments["biases"] = [tf.zeros([1])] * biases
            self.call(tf.raw_ops.CudnnRNNCanonicalToParamsV2, arguments)

    def call(self, op: Any, arguments: dict[str, Any]) -> Any:
        words = {
            name: (
                f"{value.dtype.name}{value.shape.as_list()}"
                if isinstance(value, tf.Tensor)
                else value
            )
            for name, value in arguments.items()
        }
        print(words, flush=True)
        try:
            made = self.compile(op, arguments) if self.compiled else op(**arguments)
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            outcome = type(error).__name__
            made = None
        else:
            outcome = "ran"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        return made

    def compile(self, op: Any, arguments: dict[str, Any]) -> Any:
        given = {k: v for k, v in arguments.items() if isinstance(v, tf.Tensor)}
        rest = {k: v for k, v in arguments.items() if k not in given}
        function = tf.function(
            lambda given: op(**given, **rest), jit_compile=True, autograph=False
        )
        return function(given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("calls", type=int, nargs="?", default=500)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--xla", action="store_true", help="compile the calls")
    options = parser.parse_args()
    native.load()
    fuzzer = Fuzzer(options.seed, options.xla)
    while sum(fuzzer.outcomes.values()) < options.calls:
        fuzzer.pick(fuzzer.rnn, fuzzer.rnn, fuzzer.rnn, fuzzer.params)()
    print(fuzzer.outcomes)


if __name__ == "__main__":
    main()
