"""Sizes and times of converted models, in one interleaved run.

python benchmarks/convert.py            prints a table

Each row is one layer. Every round calls the source, which runs opwright's kernel, and
what it is converted to, one after the other. Times are medians over the rounds, in
milliseconds. "of peak" is the share of the multiply-adds that all cores can make in
that time. `--check` exits with 1 where plain TensorFlow takes more than 1.6 times as
long as the source at a batch of 32. `--threads 1` compares work alone: on a busy
machine, calls of several threads wait for each other.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from limits import fma_peak, share
from results import Recorder, add_option
from rich.console import Console
from rich.table import Table

import opwright
from opwright.convert import to_onnx, to_plain, to_tflite
from opwright_runtime.convert import files
from rnn import GATES, Shape, measure, timer

# Mode, steps, batch, inputs and units.
SHAPES = [
    ("lstm", 50, 1, 64, 128),
    ("lstm", 100, 32, 256, 512),
    ("gru", 100, 32, 128, 256),
]
#: The source and what it is converted to, and the file or folder of each.
COLUMNS = {
    "source": "source",
    "plain": "plain",
    "ONNX": "model.onnx",
    "TFLite loop": "loop.tflite",
    "TFLite fused": "fused.tflite",
}
#: How many times as long as the source plain TensorFlow may take, at what batch.
SLOWEST, BATCH = 1.6, 32


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row")
    parser.add_argument("--threads", type=int, default=2, help="of each runtime")
    parser.add_argument("--check", action="store_true", help="exit with 1 if too slow")
    add_option(parser)
    options = parser.parse_args()
    assert opwright.__version__
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    recorder = Recorder("convert", options.record)
    table = Table("layer", *COLUMNS, "plain / source", "source, of peak")
    peak = fma_peak()
    slow = False
    for shape in SHAPES:
        mode, steps, batch, inputs, units = shape
        name = f"{mode} T{steps} B{batch} in{inputs} units{units}"
        with tempfile.TemporaryDirectory() as folder:
            calls = written(shape, Path(folder), options.threads)
            sizes = {
                column: files.size_of(Path(folder, COLUMNS[column])) for column in calls
            }
            timers = {column: timer(call) for column, call in calls.items()}
            times = measure(timers, options.seconds)
        recorder.add(name, "inference", times, sizes)
        middle = {column: float(np.median(each)) for column, each in times.items()}
        cells = [
            (
                f"{1e3 * middle[column]:.2f} ms, {sizes[column] / 1e6:.2f} MB"
                if column in middle
                else "-"
            )
            for column in COLUMNS
        ]
        ratio = middle["plain"] / middle["source"]
        slow |= batch == BATCH and ratio > SLOWEST
        work = Shape("", steps, batch, inputs, units).operations(mode)
        of_peak = share(work / middle["source"], peak)
        table.add_row(name, *cells, f"{ratio:.2f}", of_peak)
    recorder.save()
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    return 1 if slow and options.check else 0


def written(
    shape: tuple[str, int, int, int, int], folder: Path, threads: int
) -> dict[str, Callable[[], Any]]:
    """Converts a layer in all ways; returns the calls to time."""
    mode, steps, batch, inputs, units = shape
    module = model(mode, steps, batch, inputs, units)
    tf.saved_model.save(module, str(folder / "source"), signatures=module.serve)
    x = np.random.default_rng(0).standard_normal((steps, batch, inputs), np.float32)
    given = tf.constant(x)
    source = folder / "source"
    to_plain(source, folder / "plain")
    to_onnx(source, folder / "model.onnx")
    to_tflite(source, folder / "loop.tflite", fused=False)
    calls = {
        "source": served(source, given),
        "plain": served(folder / "plain", given),
        "ONNX": onnx_run(folder / "model.onnx", x, threads),
        "TFLite loop": tflite_run(folder / "loop.tflite", x, threads),
    }
    if mode == "lstm":
        to_tflite(source, folder / "fused.tflite", fused=True)
        calls["TFLite fused"] = tflite_run(folder / "fused.tflite", x, threads)
    return calls


def model(mode: str, steps: int, batch: int, inputs: int, units: int) -> Any:
    size = GATES[mode] * units * (inputs + units + 2)
    module: Any = tf.Module()
    module.params = tf.Variable(tf.random.stateless_normal([size], [1, 2], stddev=0.05))
    zeros = tf.zeros([1, batch, units])

    def serve(x: Any) -> Any:
        return tf.raw_ops.CudnnRNN(
            input=x,
            input_h=zeros,
            input_c=zeros if mode == "lstm" else tf.zeros([]),
            params=module.params,
            rnn_mode=mode,
            is_training=False,
        )[0]

    spec = tf.TensorSpec([steps, batch, inputs], name="x")
    module.serve = tf.function(serve, input_signature=[spec], autograph=False)
    return module


def served(folder: Path, given: Any) -> Callable[[], Any]:
    loaded = tf.saved_model.load(str(folder))
    function = loaded.signatures["serving_default"]
    # A function holds the variables of its model weakly.
    return lambda: (loaded, function(x=given))


def onnx_run(file: Path, x: Any, threads: int) -> Callable[[], Any]:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), settings)
    return lambda: session.run(None, {"x": x})


def tflite_run(file: Path, x: Any, threads: int) -> Callable[[], Any]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(file), num_threads=threads)
    runner = interpreter.get_signature_runner("serving_default")
    return lambda: runner(x=x)


if __name__ == "__main__":
    sys.exit(main())
