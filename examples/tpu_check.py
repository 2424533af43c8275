"""Compiles a few programs for TPUs on this machine and prints what comes of it.

python examples/tpu_check.py            print the table
python examples/tpu_check.py --write    and put it into docs/tpu.md
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from rich.console import Console

from opwright import check_tpu
from opwright.linalg import mat_mul
from opwright.nn import relu
from opwright_runtime.tpu_check.tables import count, size

PAGE = Path(__file__).parents[1] / "docs" / "tpu.md"
BEGIN, END = "<!-- begin table -->\n", "<!-- end table -->\n"

COLUMNS = (
    *("program", "chip", "compiles", "arguments", "outputs", "temporaries", "code"),
    *("FLOPs", "bytes accessed"),
)


def dense(x: tf.Tensor, w: tf.Tensor) -> Any:
    return relu(mat_mul(x, w).product).activations


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
            loss = entropy(labels, model(x))
        weights = model.trainable_variables
        optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return loss

    return step


def spell(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(tf.strings.as_string(x))


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


def table(console: Console) -> str:
    made = ", ".join(f"{name} {version(name)}" for name in ("tensorflow", "libtpu"))
    header = row(*COLUMNS) + row(*["---"] * len(COLUMNS))
    return f"\nMade with {made}.\n\n{header}{''.join(rows(console))}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="renew docs/tpu.md")
    options = parser.parse_args()
    fresh = table(Console(stderr=True))
    print(fresh)
    if options.write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}{fresh}{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
