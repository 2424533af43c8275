"""opwright.keras against keras.layers, in one interleaved run: the same layers twice.

The shapes, and how they are timed, are those of benchmarks/rnn.py: every round times
both once, what is printed is medians over the rounds and their quartiles. Inference is
a call of the layers in a `tf.function`, training such a call and all gradients. "of
peak" is the share of the multiply-adds that the cores can make in that time. Where
opwright.keras leaves a call to Keras's own loop there is nothing to compare.
"""

from __future__ import annotations

import argparse
import os
import sys
from types import ModuleType

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from limits import fma_peak, share
from results import Recorder, add_option
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import opwright.keras
from opwright_runtime import native
from opwright_runtime.rnn import keras_layers
from rnn import SHAPES, WHAT, Call, Shape, calls_of, measure, spread, timer

KINDS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "SimpleRNN"}
#: Around where packing the weights takes as long as the kernels save.
FEW_STEPS = [
    Shape(str(units), steps, batch, units, units)
    for units in (128, 512, 1024)
    for steps in (1, 4, 8, 16, 32, 64)
    for batch in (1, 32)
]


def calls(of: ModuleType, shape: Shape, mode: str) -> dict[str, Call]:
    """What is timed, of the layers that are found there."""
    layers = []
    for _ in range(shape.layers):
        layer = getattr(of, KINDS[mode])(shape.units, return_sequences=True)
        both = shape.bidirectional
        layers.append(keras.layers.Bidirectional(layer) if both else layer)
    model = keras.Sequential(layers)
    x = tf.random.normal([shape.batch, shape.time, shape.inputs])
    model(x)
    weights = [variable.value for variable in model.trainable_variables]

    return dict(zip(WHAT, calls_of(model, x, weights), strict=True))


def on_kernels(shape: Shape, mode: str, what: str) -> bool:
    cell = getattr(opwright.keras, KINDS[mode])(shape.units).cell
    cell.build((shape.batch, shape.inputs))
    return keras_layers._is_faster(cell, shape.time, what == "training")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="ABCDEFGH", help="letters of shapes")
    parser.add_argument("--modes", nargs="+", default=["lstm", "gru"], choices=KINDS)
    parser.add_argument("--what", nargs="+", default=list(WHAT), choices=WHAT)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row")
    parser.add_argument(
        "--few-steps",
        action="store_true",
        help="time calls of few steps instead, and all of them on the kernels",
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where Keras is as fast"
    )
    add_option(parser)
    options = parser.parse_args()
    recorder = Recorder("keras_layers", options.record)

    native.load()
    console = Console(width=None if sys.stdout.isatty() else 120)
    shapes = [shape for shape in SHAPES if shape.name in options.shapes]
    if options.few_steps:
        shapes = FEW_STEPS
        keras_layers._FIXED_STEPS = -sys.maxsize
    peak = fma_peak()
    tables = {}
    for what in options.what:
        tables[what] = Table(title=f"{what.capitalize()}, ms: median (quartiles)")
        tables[what].add_column("shape")
        for column in ("mode", "opwright.keras", "of peak", "keras.layers", "faster"):
            tables[what].add_column(column, justify="right")
    ratios: dict[str, list[float]] = {what: [] for what in options.what}
    with Progress(console=console, transient=True) as progress:
        steps = len(shapes) * len(options.modes) * len(options.what)
        task = progress.add_task("Timing", total=steps)
        for shape in shapes:
            for mode in options.modes:
                ours, theirs = (
                    calls(of, shape, mode) for of in (opwright.keras, keras.layers)
                )
                for what in options.what:
                    if not on_kernels(shape, mode, what):
                        tables[what].add_row(str(shape), mode, "Keras's own loop")
                        progress.advance(task)
                        continue
                    progress.update(task, description=f"{shape.name} {mode} {what}")
                    pair = {"ours": ours[what], "theirs": theirs[what]}
                    timers = {name: timer(call) for name, call in pair.items()}
                    times = measure(timers, options.seconds)
                    progress.advance(task)
                    recorder.add(
                        f"{shape}, {mode}",
                        what,
                        {"opwright": times["ours"], "keras": times["theirs"]},
                    )
                    middle = {name: np.median(each) for name, each in times.items()}
                    ratios[what].append(float(middle["theirs"] / middle["ours"]))
                    work = shape.operations(mode, what)
                    tables[what].add_row(
                        str(shape),
                        mode,
                        spread(times["ours"], 1e-3),
                        share(work / middle["ours"], peak),
                        spread(times["theirs"], 1e-3),
                        f"{ratios[what][-1]:.2f} x",
                    )
    recorder.save()
    for what, table in tables.items():
        console.print(table)
        if ratios[what]:
            mean = float(np.exp(np.mean(np.log(ratios[what]))))
            console.print(
                f"{what}: {mean:.2f} x as fast as keras.layers on the geometric mean, "
                f"worst {min(ratios[what]):.2f} x (target 1)"
            )
    fine = all(ratio > 1 for found in ratios.values() for ratio in found)
    return 0 if fine or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
