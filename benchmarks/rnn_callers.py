"""Throughput of CudnnRNN with many callers at once, against one caller's.

Each round runs every number of callers once, and one caller before or after it, in
turn, so that a slow spell of the machine hits both. Callers are threads of one process
that call a tf.function, as the requests of a server do. A function runs small ops
several times, because Python's lock would be measured otherwise. The output has the
median over the rounds of RNNs in a second, its first and third quartile, and the same
of the ratios to one caller. The ratio of one caller to one caller shows the noise.

With --check the exit status is 1 if a ratio's third quartile is below 1: more callers
then get less done.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from opwright.nn import cudnn_rnn_params_size, cudnn_rnn_v3
from opwright_runtime import native

# Steps, sequences, inputs, units, layers; RNNs in a function. A reply to one user, a
# batch, a large batch.
SHAPES = {
    "small": (20, 1, 64, 64, 1, 64),
    "medium": (50, 8, 128, 256, 1, 4),
    "large": (50, 32, 256, 256, 1, 1),
}
CALLERS = (1, 2, 4, 8, 16)


def make_call(shape: str, training: bool) -> Callable[[], object]:
    steps, batch, inputs, units, layers, repeats = SHAPES[shape]
    size = cudnn_rnn_params_size(layers, units, inputs, tf.float32, tf.int32)
    x = tf.random.normal([steps, batch, inputs])
    params = tf.random.normal(size.params_size) * 0.05
    zeros = tf.zeros([layers, batch, units])
    lengths = tf.fill([batch], steps)

    @tf.function(autograph=False)
    def infer() -> tf.Tensor:
        h = zeros
        for _ in range(repeats):
            rnn = cudnn_rnn_v3(x, h, zeros, params, lengths, is_training=False)
            h = rnn.output_h
        return h

    @tf.function(autograph=False)
    def train() -> tf.Tensor:
        h, total = zeros, tf.zeros_like(params)
        for _ in range(repeats):
            with tf.GradientTape() as tape:
                tape.watch(params)
                rnn = cudnn_rnn_v3(x, h, zeros, params, lengths)
            h = rnn.output_h
            total += tape.gradient(rnn.output, params)
        return total

    return train if training else infer


def rate(call: Callable[[], object], callers: int, calls: int) -> float:
    """Calls in a second, of `calls` calls that the callers share."""
    ready = threading.Barrier(callers + 1)

    def work() -> None:
        ready.wait()
        for _ in range(calls // callers):
            call()

    threads = [threading.Thread(target=work) for _ in range(callers)]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return calls // callers * callers / (time.perf_counter() - start)


def measure(call: Callable[[], object], seconds: float) -> dict[int, np.ndarray]:
    """By number of callers: for each round its rate and the rate of one caller."""
    call()
    start = time.perf_counter()
    for _ in range(3):
        call()
    once = (time.perf_counter() - start) / 3
    # Each of the callers has some calls to do, and all of them some time.
    calls = max(max(CALLERS), int(0.1 / once))
    calls -= calls % max(CALLERS)
    rounds = int(min(40, max(7, seconds / (once * calls * 2 * len(CALLERS)))))
    found: dict[int, list[tuple[float, float]]] = {callers: [] for callers in CALLERS}
    for i in range(rounds):
        for callers in CALLERS:
            pair = (callers, 1) if i % 2 else (1, callers)
            first, second = (rate(call, number, calls) for number in pair)
            found[callers].append((first, second) if i % 2 else (second, first))
    return {callers: np.asarray(rates).T for callers, rates in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each case")
    parser.add_argument("--check", action="store_true", help="exit with 1 if slower")
    options = parser.parse_args()
    native.load()

    table = Table(
        title=f"LSTM on {os.cpu_count()} cores, {native.isa()}: RNNs a second"
    )
    for column in ("shape", "what", "callers", "median", "quartiles", "to one caller"):
        table.add_column(column, justify="left" if column in "shape what" else "right")
    worst = np.inf
    for shape in options.shapes:
        for training in (False, True):
            found = measure(make_call(shape, training), options.seconds)
            repeats = SHAPES[shape][-1]
            what = "training" if training else "inference"
            for callers, (rates, alone) in found.items():
                low, middle, high = repeats * np.quantile(rates, [0.25, 0.5, 0.75])
                least, ratio, most = np.quantile(rates / alone, [0.25, 0.5, 0.75])
                worst = min(worst, most if callers > 1 else worst)
                table.add_row(
                    shape if callers == 1 else "",
                    what if callers == 1 else "",
                    str(callers),
                    f"{middle:,.1f}",
                    f"{low:,.1f} - {high:,.1f}",
                    f"{ratio:.2f} [{least:.2f}, {most:.2f}]",
                    end_section=callers == max(found),
                )
    Console(width=100).print(table)
    slower = bool(worst < 1)
    if options.check and slower:
        print(f"slower than one caller: {worst:.2f} at best in three rounds of four")
        sys.exit(1)


if __name__ == "__main__":
    main()
