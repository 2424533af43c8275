"""Epochs of `fit` of one Keras model: opwright.keras, the backends of Keras, torch.

The model has three convolutions over time, two bidirectional LSTMs and a dense layer.
Each contender is a process of its own, which makes the same data and starts from the
same weights. Every round times one epoch of each that has seconds left. The first
epoch, in which functions are traced and compiled, is timed apart. Its loss shows that
the contenders train the same model; torch draws other first weights. "of peak" is the
share of the multiply-adds that the cores can make in that time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from limits import fma_peak, share
from results import Recorder, add_option
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from timed_process import TimedProcess

ROOT = Path(__file__).resolve().parent.parent
#: By contender, the backend of Keras; None: a program without Keras.
BACKENDS: dict[str, str | None] = {
    "opwright": "tensorflow",
    "keras": "tensorflow",
    "keras_jax": "jax",
    "keras_torch": "torch",
    "torch": None,
}
RATE = 1e-3

# An epoch: trains on all samples once, and returns the loss.
Epoch = Callable[[], float]


@dataclass(frozen=True)
class Size:
    """The size of the model and of its data."""

    samples: int = 512
    batch: int = 32
    steps: int = 128
    features: int = 16
    filters: int = 64
    units: int = 128

    @property
    def operations(self) -> float:
        """Multiplications and additions of an epoch: three times a forward pass."""
        kernels = 3 * self.filters * (self.features + 2 * self.filters)
        inputs = self.filters + 2 * self.units
        lstms = 2 * 4 * self.units * (inputs + 2 * self.units)
        return 3.0 * 2 * self.samples * self.steps * (kernels + lstms)


def data(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Sequences, and what the model learns of each: a mean of its products."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((size.samples, size.steps, size.features), np.float32)
    return x, (x[:, 1:] * x[:, :-1]).mean((1, 2))[:, np.newaxis]


def keras_epoch(contender: str, size: Size) -> Epoch:
    import keras

    lstm = keras.layers.LSTM
    if contender == "opwright":
        sys.path[:0] = [str(ROOT / "runtime"), str(ROOT / "generated")]
        import opwright.keras

        lstm = opwright.keras.LSTM
    layers: list[Any] = [keras.Input((size.steps, size.features))]
    for _ in range(3):
        layers.append(
            keras.layers.Conv1D(size.filters, 3, padding="same", activation="relu")
        )
    for sequences in (True, False):
        inner = lstm(size.units, return_sequences=sequences)
        layers.append(keras.layers.Bidirectional(inner))
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    rng = np.random.default_rng(1)
    # The weights of one backend differ from those of another with the same seed.
    model.set_weights(
        [
            (
                rng.uniform(-1, 1, one.shape) / np.sqrt(one.shape[-1])
                if len(one.shape) > 1
                else np.zeros(one.shape)
            )
            for one in model.get_weights()
        ]
    )
    model.compile(keras.optimizers.Adam(RATE), "mse")
    x, y = data(size)

    def epoch() -> float:
        found = model.fit(x, y, size.batch, epochs=1, shuffle=False, verbose=0)
        return float(found.history["loss"][0])

    return epoch


def torch_epoch(size: Size) -> Epoch:
    import torch
    from torch import nn

    torch.manual_seed(1)
    channels = [size.features, size.filters, size.filters, size.filters]
    convolutions: list[Any] = []
    for before, after in pairwise(channels):
        convolutions += [nn.Conv1d(before, after, 3, padding="same"), nn.ReLU()]
    convolve = nn.Sequential(*convolutions)
    recur = nn.LSTM(size.filters, size.units, 2, batch_first=True, bidirectional=True)
    last = nn.Linear(2 * size.units, 1)
    parameters = [p for one in (convolve, recur, last) for p in one.parameters()]
    optimizer = torch.optim.Adam(parameters, RATE)
    x, y = map(torch.from_numpy, data(size))

    def epoch() -> float:
        losses = []
        for at in range(0, size.samples, size.batch):
            some = slice(at, at + size.batch)
            _, (states, _) = recur(convolve(x[some].transpose(1, 2)).transpose(1, 2))
            found = last(torch.cat([states[-2], states[-1]], 1))
            loss = nn.functional.mse_loss(found, y[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    return epoch


def serve(contender: str, size: Size) -> None:
    """Trains an epoch for each line that comes; prints its seconds and its loss."""
    backend = BACKENDS[contender]
    epoch = torch_epoch(size) if backend is None else keras_epoch(contender, size)
    for _ in sys.stdin:
        start = time.perf_counter()
        loss = epoch()
        print(json.dumps([time.perf_counter() - start, loss]), flush=True)


class Contender:
    """A process that trains epochs."""

    def __init__(self, name: str, size: Size) -> None:
        self.name = name
        self.times: list[float] = []
        backend = BACKENDS[name] or "tensorflow"
        self.process = TimedProcess(
            name,
            [__file__, "--serve", name, json.dumps(asdict(size))],
            {"KERAS_BACKEND": backend},
            quiet=True,
        )

    def train(self) -> tuple[float, float]:
        """Trains an epoch; returns its seconds and its loss."""
        seconds, loss = json.loads(self.process.ask(""))
        return float(seconds), float(loss)


def is_there(contender: str) -> bool:
    package = BACKENDS[contender] or "torch"
    return importlib.util.find_spec(package) is not None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--epochs", type=int, default=9, help="timed, of each at most")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each at most")
    for name, value in asdict(Size()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    add_option(parser)
    options = parser.parse_args()
    if options.only[0] != "opwright":
        parser.error("opwright must be the first of --only: it is compared with others")
    size = Size(**{name: getattr(options, name) for name in asdict(Size())})
    recorder = Recorder("keras_model", options.record)

    contenders: list[Contender] = []
    first: dict[str, tuple[float, float]] = {}
    console = Console(width=None if sys.stdout.isatty() else 100)
    try:
        with Progress(console=console, transient=True) as progress:
            names = [name for name in options.only if is_there(name)]
            task = progress.add_task("", total=len(names) * (options.epochs + 1))
            for name in names:
                progress.update(task, description=f"{name}, first epoch")
                contenders.append(Contender(name, size))
                first[name] = contenders[-1].train()
                progress.advance(task)
            for number in range(options.epochs):
                for one in contenders:
                    if sum(one.times) < options.seconds:
                        words = f"epoch {number + 1}: {one.name}"
                        progress.update(task, description=words)
                        one.times.append(one.train()[0])
                    progress.advance(task)
    finally:
        for one in contenders:
            one.process.end()

    table = Table(title=f"Seconds an epoch of {size.samples} samples")
    table.add_column("")
    for column in (
        "first",
        "later: median (quartiles)",
        "of peak",
        "opwright",
        "first loss",
    ):
        table.add_column(column, justify="right")
    peak = fma_peak()
    ours = np.median(contenders[0].times)
    for one in contenders:
        low, middle, high = np.quantile(one.times, [0.25, 0.5, 0.75])
        table.add_row(
            one.name,
            f"{first[one.name][0]:.1f}",
            f"{middle:.2f} ({low:.2f} to {high:.2f})",
            share(size.operations / middle, peak),
            "" if one is contenders[0] else f"{middle / ours:.2f} x as fast",
            f"{first[one.name][1]:.5f}",
        )
    console.print(table)
    case = (
        f"{size.samples} samples, B{size.batch} T{size.steps} I{size.features} "
        f"F{size.filters} H{size.units}"
    )
    recorder.add(case, "fit", {one.name: one.times for one in contenders})
    recorder.save()
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], Size(**json.loads(sys.argv[3])))
    else:
        sys.exit(main())
