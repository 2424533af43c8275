"""Sizes and times of converted models.

python benchmarks/convert.py            prints a table

Each row is one layer. Times are the fastest of several calls, in milliseconds. Plain
TensorFlow is held against the kernels in one process, and so are the other runtimes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

import opwright
from opwright.convert import to_onnx, to_plain, to_tflite
from opwright_runtime.convert import files

# Mode, steps, batch, inputs and units.
SHAPES = [
    ("lstm", 50, 1, 64, 128),
    ("lstm", 100, 32, 256, 512),
    ("gru", 100, 32, 128, 256),
]
GATES = {"lstm": 4, "gru": 3}
COLUMNS = ("kernel", "plain", "ONNX", "TFLite loop", "TFLite fused")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="for each number")
    options = parser.parse_args()
    assert opwright.__version__
    table = Table("layer", *COLUMNS)
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            table.add_row(*row(shape, Path(folder), options.seconds))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0


def row(
    shape: tuple[str, int, int, int, int], folder: Path, seconds: float
) -> list[str]:
    mode, steps, batch, inputs, units = shape
    serve = model(mode, steps, batch, inputs, units)
    x = np.random.default_rng(0).standard_normal((steps, batch, inputs), np.float32)
    to_plain(serve, folder / "plain")
    to_onnx(serve, folder / "m.onnx")
    to_tflite(serve, folder / "loop.tflite", fused=False)
    cells = [timed(lambda: serve(tf.constant(x)), seconds)]
    loaded = tf.saved_model.load(str(folder / "plain"))
    plain = loaded.signatures["serving_default"]
    cells.append(timed(lambda: plain(x=tf.constant(x)), seconds))
    cells.append(timed(onnx_run(folder / "m.onnx", x), seconds))
    cells.append(timed(tflite_run(folder / "loop.tflite", x), seconds))
    files_of = [folder / "plain", folder / "m.onnx", folder / "loop.tflite"]
    if mode == "lstm":
        to_tflite(serve, folder / "fused.tflite", fused=True)
        cells.append(timed(tflite_run(folder / "fused.tflite", x), seconds))
        files_of.append(folder / "fused.tflite")
    sizes = ["", *(f", {files.size_of(one) / 1e6:.2f} MB" for one in files_of)]
    found = [a + b for a, b in zip(cells, sizes, strict=True)]
    found += ["-"] * (len(COLUMNS) - len(found))
    return [f"{mode} T{steps} B{batch} in{inputs} units{units}", *found]


def model(mode: str, steps: int, batch: int, inputs: int, units: int) -> Any:
    size = GATES[mode] * units * (inputs + units + 2)
    params = tf.random.stateless_normal([size], [1, 2], stddev=0.05)
    zeros = tf.zeros([1, batch, units])

    def serve(x: Any) -> Any:
        return tf.raw_ops.CudnnRNN(
            input=x,
            input_h=zeros,
            input_c=zeros if mode == "lstm" else tf.zeros([]),
            params=params,
            rnn_mode=mode,
            is_training=False,
        )[0]

    spec = tf.TensorSpec([steps, batch, inputs], name="x")
    return tf.function(serve, input_signature=[spec], autograph=False)


def onnx_run(file: Path, x: Any) -> Callable[[], Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file))
    return lambda: session.run(None, {"x": x})


def tflite_run(file: Path, x: Any) -> Callable[[], Any]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(file), num_threads=2)
    runner = interpreter.get_signature_runner("serving_default")
    return lambda: runner(x=x)


def timed(run: Callable[[], Any], seconds: float) -> str:
    run()
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return f"{1000 * min(times):.2f} ms"


if __name__ == "__main__":
    sys.exit(main())
