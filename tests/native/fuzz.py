"""Calls the CudnnRNN ops with arguments made wrong at random: `python fuzz.py 10000`.

All eleven ops, eagerly and in graphs that know the shapes, do not, or have the
arguments as constants; with `--xla`, compiled. A call may succeed, or be refused as
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
WAYS = ("eager", "eager", "shapes", "no shapes", "constants")
BIG = 2**31 - 1


class Fuzzer:
    def __init__(self, seed: int, compiled: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.compiled = compiled
        self.outcomes: dict[str, int] = {}
        self.ops: dict[str, int] = {}
        # Reserves of earlier calls, by dtype.
        self.reserves: dict[tf.DType, tf.Tensor] = {}

    def pick(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def array(self, shape: list[int], dtype: tf.DType) -> tf.Tensor:
        scale = self.pick(0.0, 1.0, 1e30, float("nan"))
        return tf.cast(self.rng.standard_normal(shape) * scale, dtype)

    def damaged(self, tensor: tf.Tensor) -> tf.Tensor:
        """Another shape: longer, shorter, empty, of another rank."""
        shape = tensor.shape.as_list()
        if max(shape, default=0) >= 2**31:
            return tensor
        kind = self.pick("size", "size", "rank up", "rank down", "empty", "huge")
        if kind == "rank down":
            shape = shape[:-1]
        elif kind == "rank up" or not shape:
            shape = [*shape, self.pick(0, 1, 2)]
        else:
            at = self.rng.integers(len(shape))
            if kind == "huge":
                # Only an empty tensor can have a dimension like this.
                shape[at] = self.pick(2**31, 2**40)
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
            if name == "sequence_lengths" and self.rng.random() < 0.7:
                bad = self.pick(-1, -(2**31), BIG, 9)
                arguments[name] = tf.where(self.rng.random() < 0.5, value, bad)
            elif name == "reserve_space" and self.rng.random() < 0.7:
                arguments[name] = self.other_reserve(value)
            elif isinstance(value, tf.Tensor):
                arguments[name] = self.damaged(value)
            elif isinstance(value, list):
                at = self.rng.integers(len(value))
                arguments[name] = [
                    *value[:at],
                    self.damaged(value[at]),
                    *value[at + 1 :],
                ]
            elif name == "rnn_mode":
                arguments[name] = self.pick(*GATES)
            elif name == "input_mode":
                arguments[name] = self.pick("skip_input", "auto_select")
            elif name == "direction":
                arguments[name] = self.pick("unidirectional", "bidirectional")
            elif name == "num_proj":
                arguments[name] = self.pick(-1, 0, 1, 3, BIG, 2**40, 2**63 - 1)
            elif name == "dropout":
                arguments[name] = self.pick(-1.0, 0.0, 0.5, 1.0, 2.0, float("nan"))
            elif name in ("seed", "seed2"):
                arguments[name] = self.pick(-(2**63), 2**63 - 1)
            elif name in ("time_major", "is_training"):
                arguments[name] = not value

    def other_reserve(self, reserve: tf.Tensor) -> tf.Tensor:
        """Of another call; or with some of its bytes changed, its header's perhaps."""
        if self.rng.random() < 0.4:
            return self.reserves.get(reserve.dtype, reserve)
        values = np.asarray(reserve).copy()
        raw = values.reshape(-1).view(np.uint8)
        for _ in range(self.pick(1, 3)):
            raw[self.rng.integers(self.pick(24, len(raw)))] = self.rng.integers(256)
        return tf.constant(values)

    def rnn(self) -> None:
        dtype, mode = self.pick(*DTYPES), self.pick(*GATES)
        version = self.pick(1, 2, 3, 3, 3)
        layers, units, inputs, time, batch = self.rng.integers(1, 6, 5).tolist()
        dirs = self.pick(1, 2)
        proj = self.pick(0, units) if mode == "lstm" and version == 3 else 0
        hidden = proj or units
        gates, size = GATES[mode], 0
        for layer in range(layers):
            size += dirs * (
                gates * units * ((dirs * hidden if layer else inputs) + hidden + 2)
                + proj * units
            )
        major = version < 3 or self.pick(False, True)
        first = [time, batch] if major else [batch, time]
        states = [layers * dirs, batch] if major else [batch, layers * dirs]
        arguments: dict[str, Any] = {
            "input": self.array([*first, inputs], dtype),
            "input_h": self.array([*states, hidden], dtype),
            "input_c": self.array([*states, units], dtype),
            "params": self.array([size], dtype),
            "rnn_mode": mode,
            "input_mode": "linear_input",
            "direction": ("unidirectional", "bidirectional")[dirs - 1],
            "dropout": self.pick(0.0, 0.5),
            "seed": 0,
            "seed2": 0,
        }
        if version == 3:
            lengths = self.rng.integers(0, time + 1, batch)
            arguments["sequence_lengths"] = tf.constant(lengths, tf.int32)
            arguments |= {"num_proj": proj, "time_major": major}
        suffix = "" if version == 1 else f"V{version}"
        forward = {**arguments, "is_training": True}
        backward = self.rng.random() < 0.6
        if not backward:
            self.damage(forward)
        outputs = self.call(f"CudnnRNN{suffix}", forward)
        if outputs is None or not backward:
            return
        y, h, c, reserve = outputs[:4]
        arguments.update(
            output=y,
            output_h=h,
            output_c=c,
            output_backprop=y,
            output_h_backprop=h,
            output_c_backprop=c,
            reserve_space=reserve,
        )
        if version > 1:
            arguments["host_reserved"] = outputs[4]
        self.damage(arguments)
        self.call(f"CudnnRNNBackprop{suffix}", arguments)
        self.reserves[dtype] = reserve

    def params(self) -> None:
        """Sizes that fit or do not, and that overflow."""
        dtype, mode = self.pick(*DTYPES), self.pick(*GATES)
        layers, units, inputs = self.rng.integers(1, 4, 3).tolist()
        dirs, gates = self.pick(1, 2), GATES[mode]
        proj = self.pick(0, 1) if mode == "lstm" else 0
        hidden = proj or units
        arguments: dict[str, Any] = {
            "num_layers": layers,
            "num_units": units,
            "input_size": inputs,
            "rnn_mode": mode,
            "input_mode": "linear_input",
            "direction": ("unidirectional", "bidirectional")[dirs - 1],
        }
        for name in ("num_layers", "num_units", "input_size"):
            if self.rng.random() < 0.15:
                arguments[name] = self.pick(-(2**31), -1, 0, 2**16, 2**20, BIG)
            arguments[name] = tf.constant(arguments[name], tf.int32)
        kind = self.pick("size", "pack", "unpack")
        version = self.pick("", "V2")
        if kind == "size":
            arguments |= {"T": dtype, "S": self.pick(tf.int32, tf.int64)}
            arguments["num_proj"] = self.pick(0, proj, -1, 1, BIG, 2**40, 2**63 - 1)
            self.damage(arguments)
            self.call("CudnnRNNParamsSize", arguments)
            return
        if version:
            arguments["num_proj"] = proj
        else:
            proj, hidden = 0, units
        weights: list[list[int]] = []
        for layer in range(layers):
            width = dirs * hidden if layer else inputs
            one = [[units, width]] * gates + [[units, hidden]] * gates
            weights += (one + [[proj, units]] * bool(proj)) * dirs
        biases = [[units]] * (layers * dirs * 2 * gates)
        if kind == "pack":
            arguments["weights"] = [self.array(shape, dtype) for shape in weights]
            arguments["biases"] = [self.array(shape, dtype) for shape in biases]
            op = "CudnnRNNCanonicalToParams"
        else:
            size = sum(int(np.prod(shape)) for shape in (*weights, *biases))
            arguments["params"] = self.array([size], dtype)
            op = "CudnnRNNParamsToCanonical"
            counts = {"num_params": len(biases)}
            if version:
                counts = {
                    "num_params_weights": len(weights),
                    "num_params_biases": len(biases),
                }
            for name, count in counts.items():
                wrong = self.pick(count, count, count, 1, count + 1, 0)
                arguments[name] = wrong
        self.damage(arguments)
        if kind == "pack" and not version and len(weights) != len(biases):
            return
        self.call(op + version, arguments)

    def call(self, op: str, arguments: dict[str, Any]) -> Any:
        way = self.pick(*(("shapes", "constants") if self.compiled else WAYS))
        print(op, way, {k: in_words(v) for k, v in arguments.items()}, flush=True)
        try:
            made = call(getattr(tf.raw_ops, op), way, arguments, self.compiled)
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            outcome = type(error).__name__
            made = None
        else:
            outcome = "ran"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.ops[op] = self.ops.get(op, 0) + 1
        return made


def in_words(value: Any) -> Any:
    if isinstance(value, list):
        return [in_words(one) for one in value]
    if isinstance(value, tf.Tensor):
        return f"{value.dtype.name}{value.shape.as_list()}"
    return value


def call(op: Any, way: str, arguments: dict[str, Any], compiled: bool) -> Any:
    """Runs an op, eagerly or in a graph; a list of its outputs."""
    if way == "eager":
        return tf.nest.flatten(op(**arguments))
    flat = tf.nest.flatten(arguments)
    tensors = [value for value in flat if isinstance(value, tf.Tensor)]

    def graph(*given: tf.Tensor) -> Any:
        if way == "constants":
            given = tuple(tf.constant(tensor.numpy()) for tensor in tensors)
        rest = iter(given)
        packed = [next(rest) if isinstance(v, tf.Tensor) else v for v in flat]
        return tf.nest.flatten(op(**tf.nest.pack_sequence_as(arguments, packed)))

    specs = [
        tf.TensorSpec(tensor.shape if way == "shapes" else None, tensor.dtype)
        for tensor in tensors
    ]
    if way == "constants":
        return tf.function(graph, autograph=False, jit_compile=compiled)()
    function = tf.function(
        graph, input_signature=specs, autograph=False, jit_compile=compiled
    )
    return function(*tensors)


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
    assert len(fuzzer.ops) == 11 or options.calls < 500, fuzzer.ops
    print(fuzzer.ops)
    print(fuzzer.outcomes)


if __name__ == "__main__":
    main()
