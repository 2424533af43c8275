"""Times CudnnRNN on the CPU against torch and Keras, in one interleaved run.

Every round times each contender once on the same shape, so that a slow spell of the
machine hits all of them; what is printed is medians over the rounds, and the spread
from the first to the third quartile. A training step is a forward and a backward pass
for all gradients. One op is called as it is, and so is torch; Keras and opwright's
training step run in a `tf.function`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import torch

from opwright.nn import cudnn_rnn_params_size, cudnn_rnn_v3
from opwright_runtime import native

Call = Callable[[], object]


@dataclass(frozen=True)
class Shape:
    name: str
    time: int
    batch: int
    inputs: int
    units: int
    layers: int = 1
    bidirectional: bool = False

    @property
    def dirs(self) -> int:
        return 1 + self.bidirectional

    def operations(self, gates: int) -> float:
        """Of a forward pass, multiplications and additions; training has three."""
        widths = [self.inputs] + [self.dirs * self.units] * (self.layers - 1)
        weights = sum(gates * self.units * (w + self.units) for w in widths)
        return 2.0 * self.time * self.batch * self.dirs * weights

    def __str__(self) -> str:
        more = f", {self.layers} layers" if self.layers > 1 else ""
        more += ", bidirectional" if self.bidirectional else ""
        sizes = f"T{self.time} B{self.batch} I{self.inputs} H{self.units}"
        return f"{self.name}: {sizes}{more}"


SHAPES = (
    Shape("A", 100, 32, 128, 256),
    Shape("B", 100, 64, 512, 512, layers=2, bidirectional=True),
    Shape("C", 20, 1, 64, 64),
    Shape("D", 512, 16, 256, 256),
    Shape("E", 50, 128, 64, 128),
    Shape("F", 32, 8, 1024, 1024),
    Shape("G", 200, 4, 80, 320, bidirectional=True),
    Shape("H", 10, 256, 300, 100),
)


def opwright_calls(shape: Shape, mode: str) -> tuple[Call, Call]:
    size = cudnn_rnn_params_size(
        shape.layers,
        shape.units,
        shape.inputs,
        tf.float32,
        tf.int32,
        rnn_mode=mode,
        direction="bidirectional" if shape.bidirectional else "unidirectional",
    ).params_size
    states = [shape.layers * shape.dirs, shape.batch, shape.units]
    x = tf.random.normal([shape.time, shape.batch, shape.inputs])
    params = tf.random.normal(size) * 0.05
    h, c = tf.zeros(states), tf.zeros(states)
    lengths = tf.fill([shape.batch], shape.time)

    def forward(
        x: tf.Tensor, h: tf.Tensor, c: tf.Tensor, params: tf.Tensor, training: bool
    ) -> tf.Tensor:
        return cudnn_rnn_v3(
            x,
            h,
            c,
            params,
            lengths,
            rnn_mode=mode,
            direction="bidirectional" if shape.bidirectional else "unidirectional",
            is_training=training,
        ).output

    def infer(*given: tf.Tensor) -> tf.Tensor:
        return forward(*given, training=False)

    @tf.function(autograph=False)
    def train(*given: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(given)
            y = forward(*given, training=True)
        return tape.gradient(y, [given[0], given[3]], y)

    return lambda: infer(x, h, c, params), lambda: train(x, h, c, params)


def torch_calls(shape: Shape, mode: str) -> tuple[Call, Call]:
    kind = torch.nn.LSTM if mode == "lstm" else torch.nn.GRU
    module = kind(
        shape.inputs, shape.units, shape.layers, bidirectional=shape.bidirectional
    )
    x = torch.randn(shape.time, shape.batch, shape.inputs)
    leaf = x.clone().requires_grad_()

    def infer() -> object:
        with torch.no_grad():
            return module(x)

    def train() -> object:
        module.zero_grad()
        leaf.grad = None
        y, _ = module(leaf)
        y.backward(y.detach())
        return leaf.grad

    return infer, train


def keras_calls(shape: Shape, mode: str) -> tuple[Call, Call]:
    kind = tf.keras.layers.LSTM if mode == "lstm" else tf.keras.layers.GRU
    layers = []
    for _ in range(shape.layers):
        layer = kind(shape.units, return_sequences=True)
        layers.append(
            tf.keras.layers.Bidirectional(layer) if shape.bidirectional else layer
        )
    model = tf.keras.Sequential(layers)
    x = tf.random.normal([shape.batch, shape.time, shape.inputs])
    model(x)

    @tf.function(autograph=False)
    def infer(x: tf.Tensor) -> tf.Tensor:
        return model(x, training=False)

    @tf.function(autograph=False)
    def train(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x, training=True)
        return tape.gradient(y, [x, *model.trainable_variables], y)

    return lambda: infer(x), lambda: train(x)


CONTENDERS = {
    "opwright": opwright_calls,
    "torch": torch_calls,
    "keras": keras_calls,
}


def timed(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def measure(calls: dict[str, Call], seconds: float) -> dict[str, np.ndarray]:
    """Seconds a call by contender and round."""
    for call in calls.values():
        call()
    once = {name: timed(call, 1) for name, call in calls.items()}
    # A sample lasts some milliseconds at least; all rounds as long as asked for.
    counts = {name: max(1, int(0.004 / t)) for name, t in once.items()}
    a_round = sum(counts[name] * once[name] for name in calls)
    rounds = int(min(60, max(3, seconds / a_round)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            # Threads that spin for more work stop doing so.
            time.sleep(0.01)
            samples[name].append(timed(call, counts[name]))
    return {name: np.asarray(times) for name, times in samples.items()}


def fma_peak() -> float:
    """What the cores reach in multiply-adds, FLOP/s; 0 without a compiler."""
    source = Path(__file__).with_name("fma_peak.cc")
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "fma_peak"
        compiler = ["c++", "-O2", "-march=native", "-pthread"]
        if subprocess.run([*compiler, source, "-o", binary], check=False).returncode:
            return 0.0
        return 1e9 * float(subprocess.check_output([binary]))


def streaming() -> Iterator[str]:
    """One step of one sequence, against the dispatch of an op that does nothing."""
    size = cudnn_rnn_params_size(1, 64, 64, tf.float32, tf.int32).params_size
    x, h = tf.zeros([1, 1, 64]), tf.zeros([1, 1, 64])
    params, lengths = tf.random.normal(size), tf.constant([1])

    def step() -> object:
        return cudnn_rnn_v3(x, h, h, params, lengths, is_training=False)

    def nothing() -> object:
        return tf.raw_ops.IdentityN(input=[x, h, h, params, lengths])

    times = measure({"step": step, "dispatch": nothing}, 1.0)
    medians = {name: 1e6 * float(np.median(t)) for name, t in times.items()}
    yield (
        f"T1 B1 I64 H64, LSTM, eager: {medians['step']:.1f} us; "
        f"bare dispatch {medians['dispatch']:.1f} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="ABCDEFGH", help="letters of shapes")
    parser.add_argument("--modes", nargs="+", default=["lstm", "gru"])
    parser.add_argument("--what", nargs="+", default=["inference", "training"])
    parser.add_argument("--against", nargs="*", default=["torch", "keras"])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each line")
    options = parser.parse_args()

    native.load()
    torch.set_num_threads(os.cpu_count() or 1)
    peak = fma_peak()
    print(f"{native.isa()}, {os.cpu_count()} cores, FMA peak {peak / 1e9:.0f} GFLOP/s")
    ratios: dict[tuple[str, str], list[float]] = {}
    for shape in SHAPES:
        if shape.name not in options.shapes:
            continue
        print(shape)
        for mode in options.modes:
            names = ["opwright", *options.against]
            made = {name: CONTENDERS[name](shape, mode) for name in names}
            for which, what in enumerate(("inference", "training")):
                if what not in options.what:
                    continue
                times = measure(
                    {n: calls[which] for n, calls in made.items()}, options.seconds
                )
                ours = float(np.median(times["opwright"]))
                work = shape.operations(4 if mode == "lstm" else 3) * (1, 3)[which]
                line = f"  {mode:4} {what:9}"
                for name, samples in times.items():
                    low, middle, high = 1e3 * np.quantile(samples, [0.25, 0.5, 0.75])
                    line += f"  {name} {middle:8.3f} ms [{low:.3f}, {high:.3f}]"
                    if name != "opwright":
                        ratios.setdefault((what, name), []).append(1e-3 * middle / ours)
                        line += f" {1e-3 * middle / ours:4.2f}x"
                gflops = work / ours / 1e9
                share = f", {1e9 * gflops / peak:.0%} of peak" if peak else ""
                print(f"{line}  ({gflops:.0f} GFLOP/s{share})", flush=True)
    for (what, name), values in ratios.items():
        mean = float(np.exp(np.mean(np.log(values))))
        print(
            f"{what}: {mean:.2f}x {name} (geometric mean), at least {min(values):.2f}x"
        )
    for line in streaming():
        print(line)


if __name__ == "__main__":
    main()
