"""Many callers of the kernels at once: `crowd.py INTRA INTER`, threads of either kind.

TensorFlow's pools have one size for a process, so this is a program of its own. Exits
with an error if a result is wrong; its parent kills it after a timeout.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from opwright.nn import cudnn_rnn_v3
from rnn.support.cases import Case, draw_values, error, expect

# Before the first op runs.
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
tf.config.threading.set_inter_op_parallelism_threads(int(sys.argv[2]))
CASES = [
    Case(mode, tf.float32, layers=2, units=48 + i, input_size=24, time=12, batch=9 + i)
    for i, mode in enumerate(("lstm", "gru", "rnn_tanh", "lstm", "gru", "lstm"))
]
DRAWN = [draw_values(case) for case in CASES]
EXPECTED = [expect(case, *drawn) for case, drawn in zip(CASES, DRAWN, strict=True)]


def step(i: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Output and gradient of params of a case, in eager mode or a graph."""
    case, (inputs, gradients) = CASES[i], DRAWN[i]
    x, h, c, params = (tf.constant(t.numpy()) for t in vars(inputs).values())
    with tf.GradientTape() as tape:
        tape.watch(params)
        rnn = cudnn_rnn_v3(x, h, c, params, [case.time] * case.batch, **case.options)
        outputs = [rnn.output, rnn.output_h]
        back = [tf.constant(gradients.input.numpy())]
        back.append(tf.constant(gradients.input_h.numpy()))
        if case.mode == "lstm":
            outputs.append(rnn.output_c)
            back.append(tf.constant(gradients.input_c.numpy()))
    return outputs[0], tape.gradient(outputs, params, back)


def check(i: int, found: tuple[np.ndarray, np.ndarray]) -> None:
    names = ("output", "params_backprop")
    for name, value in zip(names, found, strict=True):
        assert error(value, EXPECTED[i][name]) <= 1e-5, (i, name)


def sessions() -> None:
    """Sessions that share the process's pools, each run by several threads."""

    def one(number: int) -> None:
        i = number % len(CASES)
        with tf.Graph().as_default():
            fetched = step(i)
            with tf.compat.v1.Session() as session, ThreadPoolExecutor(4) as callers:
                runs = list(callers.map(lambda _: session.run(fetched), range(12)))
        for found in runs:
            check(i, found)

    with ThreadPoolExecutor(12) as starters:
        list(starters.map(one, range(24)))


def between_ops() -> None:
    """Many nodes of one graph that wait for nothing."""

    @tf.function(autograph=False)
    def all_of_them() -> list[tuple[tf.Tensor, tf.Tensor]]:
        return [step(n % len(CASES)) for n in range(32)]

    with ThreadPoolExecutor(4) as callers:
        for made in callers.map(lambda _: all_of_them(), range(8)):
            for n, found in enumerate(made):
                check(n % len(CASES), found)


def workers_of_tf_data() -> None:
    """Parallel and nested, at the same time as eager callers."""

    def map_one(i: int) -> tf.data.Dataset:
        data = tf.data.Dataset.range(24)
        return data.map(lambda _: step(i), num_parallel_calls=8).prefetch(4)

    def read(i: int) -> None:
        for found in map_one(i):
            check(i, found)

    def call(i: int) -> None:
        for _ in range(24):
            check(i, step(i))

    with ThreadPoolExecutor(2 * len(CASES)) as callers:
        both = [(work, i) for work in (read, call) for i in range(len(CASES))]
        list(callers.map(lambda pair: pair[0](pair[1]), both))


def main() -> None:
    for crowd in (between_ops, workers_of_tf_data, sessions):
        crowd()
        print(crowd.__name__, flush=True)


if __name__ == "__main__":
    main()
