"""Compiles a few programs for TPUs on this machine and prints what comes of it.

python examples/tpu_check.py            print the tables
python examples/tpu_check.py --write    and put them into docs/reference/tpu_check.md

The CudnnRNN ops compile with the native library, which `make native` builds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias

import keras
import tensorflow as tf
from rich.console import Console

from opwright import check_tpu
from opwright.linalg import mat_mul
from opwright.nn import CudnnRNNV3, cudnn_rnn_params_size, cudnn_rnn_v3, relu
from opwright_runtime.tpu_check.tables import count, size

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "tpu_check.md"
BEGIN, END = "<!-- begin table -->\n", "<!-- end table -->\n"
RNN_BEGIN, RNN_END = "<!-- begin rnn table -->\n", "<!-- end rnn table -->\n"

CHIPS = ("v5e", "v5p", "v6e")

COLUMNS = (
    "program",
    "chip",
    "compiles",
    "arguments",
    "outputs",
    "temporaries",
    "code",
    "FLOPs",
    "bytes accessed",
)


def dense(x: tf.Tensor, w: tf.Tensor) -> Any:
    return relu(mat_mul(x, w))


def power(x: tf.Tensor) -> tf.Tensor:
    y = x
    for _ in tf.range(10):
        y = tf.tanh(y @ x)
    return y


def training_step() -> Callable[..., Any]:
    model = keras.Sequential(
        [
            keras.Input([784]),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.Adam()
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x: tf.Tensor, labels: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss: Any = entropy(labels, model(x))
        weights = model.trainable_variables
        optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return loss

    return step


def spell(x: tf.Tensor) -> tf.Tensor:
    lengths: tf.Tensor = tf.strings.length(tf.strings.as_string(x))
    return lengths


def programs() -> Iterator[tuple[str, Callable[..., Any], list[tf.TensorSpec]]]:
    yield (
        "matmul and relu, 1024 x 4096 x 4096, bfloat16",
        dense,
        [
            tf.TensorSpec([1024, 4096], tf.bfloat16),
            tf.TensorSpec([4096, 4096], tf.bfloat16),
        ],
    )
    yield "ten products in a loop, 512 x 512", power, [tf.TensorSpec([512, 512])]
    yield (
        "Keras: 784-512-10, batch of 128, training step with Adam",
        training_step(),
        [tf.TensorSpec([128, 784]), tf.TensorSpec([128], tf.int64)],
    )
    yield "lengths of numbers as text", spell, [tf.TensorSpec([128])]


Cell: TypeAlias = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
Direction: TypeAlias = Literal["unidirectional", "bidirectional"]

TIME, BATCH, INPUT_SIZE, UNITS = 16, 8, 64, 128


@dataclass(frozen=True)
class Rnn:
    """A mode of CudnnRNNV3."""

    cell: Cell
    direction: Direction = "unidirectional"
    num_proj: int = 0
    lengths: bool = False
    layers: int = 1
    dropout: float = 0.0
    dtype: tf.DType = tf.float32

    @property
    def title(self) -> str:
        more = {
            "lengths": self.lengths,
            f"num_proj {self.num_proj}": self.num_proj,
            f"{self.layers} layers": self.layers > 1,
            f"dropout {self.dropout}": self.dropout,
            self.dtype.name: self.dtype != tf.float32,
        }
        return ", ".join(
            [self.cell, self.direction, *(word for word, said in more.items() if said)]
        )

    def training_step(self) -> tuple[Callable[..., Any], list[tf.TensorSpec]]:
        """The op and its gradient, and what they are called with."""
        options = CudnnRNNV3.Options(
            rnn_mode=self.cell,
            direction=self.direction,
            num_proj=self.num_proj,
            dropout=self.dropout,
        )

        def step(x: tf.Tensor, h: tf.Tensor, c: tf.Tensor, *rest: tf.Tensor) -> Any:
            params, lengths = (*rest, tf.fill([BATCH], TIME))[:2]
            given = [x, h, *([c] if self.cell == "lstm" else []), params]
            with tf.GradientTape() as tape:
                tape.watch(given)
                rnn = cudnn_rnn_v3(x, h, c, params, lengths, **options.as_dict())
                made = [rnn.output, rnn.output_h, rnn.output_c]
                made = made if self.cell == "lstm" else made[:2]
            return made, tape.gradient(made, given)

        (size,) = cudnn_rnn_params_size(
            self.layers,
            UNITS,
            INPUT_SIZE,
            self.dtype,
            tf.int32,
            rnn_mode=self.cell,
            direction=self.direction,
            num_proj=self.num_proj,
        ).numpy()
        stacked = self.layers * (2 if self.direction == "bidirectional" else 1)
        cells = [stacked, BATCH, UNITS] if self.cell == "lstm" else []
        shapes = (
            [TIME, BATCH, INPUT_SIZE],
            [stacked, BATCH, self.num_proj or UNITS],
            cells,
            [size],
        )
        specs = [tf.TensorSpec(shape, self.dtype) for shape in shapes]
        if self.lengths:
            specs.append(tf.TensorSpec([BATCH], tf.int32))
        return step, specs

    def row(self, notify: Callable[[str], None] | None = None) -> str:
        step, specs = self.training_step()
        report = check_tpu(step, *specs, chips=CHIPS, notify=notify)
        if report.blockers:
            why = f"no: {report.blockers[0].op}: {report.blockers[0].reason}"
            return row(self.title, *[why] * len(CHIPS))
        cells = [
            (
                f"yes: {size(each.temporary_bytes)}, {size(each.code_bytes)}"
                if each.compiles
                else f"no: {each.error}"
            )
            for each in report.compilations
        ]
        return row(self.title, *cells)


DIRECTIONS: tuple[Direction, ...] = ("unidirectional", "bidirectional")
CELLS: tuple[Cell, ...] = ("lstm", "gru", "rnn_tanh", "rnn_relu")
MODES = (
    *(Rnn(cell, direction) for cell, direction in product(CELLS, DIRECTIONS)),
    *(Rnn(cell, "bidirectional", lengths=True) for cell in CELLS),
    Rnn("lstm", num_proj=64),
    Rnn("lstm", "bidirectional", num_proj=64, lengths=True),
    Rnn("lstm", "bidirectional", layers=2, dropout=0.1, dtype=tf.bfloat16),
    Rnn("gru", lengths=True, layers=2, dropout=0.1, dtype=tf.half),
)


def rows(console: Console) -> Iterator[str]:
    for title, function, specs in programs():
        with console.status(title) as status:
            report = check_tpu(function, *specs, notify=status.update)
        for blocker in report.blockers[:1]:
            why = f"no: {blocker.op}: {blocker.reason}"
            yield row(title, "all", why, *[""] * 6)
        for each in report.compilations:
            figures = (
                size(each.argument_bytes),
                size(each.output_bytes),
                size(each.temporary_bytes),
                size(each.code_bytes),
                count(each.flops),
                size(each.bytes_accessed),
            )
            why = "yes" if each.compiles else f"no: {each.error}"
            yield row(title, each.chip, why, *figures)


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def rnn_rows(console: Console) -> Iterator[str]:
    for mode in MODES:
        with console.status(mode.title) as status:
            yield mode.row(status.update)


def table(console: Console) -> str:
    made = ", ".join(f"{name} {version(name)}" for name in ("tensorflow", "libtpu"))
    header = row(*COLUMNS) + row(*["---"] * len(COLUMNS))
    return f"\nMade with {made}.\n\n{header}{''.join(rows(console))}\n"


def rnn_table(console: Console) -> str:
    columns = ("mode", *CHIPS)
    header = row(*columns) + row(*["---"] * len(columns))
    return f"\n{header}{''.join(rnn_rows(console))}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.name}")
    options = parser.parse_args()
    for begin, end, make in ((BEGIN, END, table), (RNN_BEGIN, RNN_END, rnn_table)):
        fresh = make(Console(stderr=True))
        print(fresh)
        if options.write:
            before, _, rest = PAGE.read_text("utf-8").partition(begin)
            _, _, after = rest.partition(end)
            PAGE.write_text(f"{before}{begin}{fresh}{end}{after}", "utf-8")


if __name__ == "__main__":
    main()
