"""Trainings that the tests of checkpoints continue, or kill, in processes of their own.

trainings.py continue <folder> <pipelined>...   restores, trains on, writes the tables
trainings.py save <folder>                      trains and saves until it is killed
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embedding.support.program import Program, own_optimizers, table, tpu_embedding

STEPS, SAVED = 8, 5


def optimizers() -> dict[str, Any]:
    """All kinds of slots, with a learning rate that is a function."""
    return {
        "sgd": tpu_embedding.SGD(0.1),
        "adagrad": tpu_embedding.Adagrad(lambda: 0.1),
        "adagrad_momentum": tpu_embedding.AdagradMomentum(0.1, momentum=0.9),
        "adam": tpu_embedding.Adam(0.1, lazy_adam=False),
        "ftrl": tpu_embedding.FTRL(0.1, l1_regularization_strength=0.01),
        **own_optimizers(0.1),
    }


class Training:
    """A table for each optimizer; a step's number settles its ids and gradients."""

    def __init__(self, pipelined: bool) -> None:
        generator = np.random.default_rng(1)

        def start(name: str) -> Any:
            return generator.normal(size=(30, 5)).astype(np.float32)

        features = {
            name: tpu_embedding.FeatureConfig(
                table(start(name), name, optimizer=optimizer, combiner="sum")
            )
            for name, optimizer in optimizers().items()
        }
        self.program = Program(features, None, pipelined)
        self.names = tuple(features)
        self.step = tf.Variable(0)
        self.checkpoint = tf.train.Checkpoint(
            embedding=self.program.embedding, step=self.step
        )

    def train(self, until: int) -> None:
        while int(self.step) < until:
            generator = np.random.default_rng(100 + int(self.step))
            ids = {n: tf.constant(generator.integers(0, 30, 16)) for n in self.names}
            gradients = {
                name: tf.constant(generator.normal(size=(16, 5)).astype(np.float32))
                for name in self.names
            }
            self.program.train(ids, gradients)
            self.step.assign_add(1)


def go_on(folder: Path, pipelined: bool) -> None:
    training = Training(pipelined)
    # Before the first step: the restored values are what the engine is loaded with.
    path = tf.train.latest_checkpoint(folder / str(pipelined))
    training.checkpoint.restore(path)
    assert int(training.step) == SAVED
    training.train(STEPS)
    np.savez(folder / f"{pipelined}.npz", **training.program.tables())


ROWS, COLUMNS = 300_000, 32


def counted() -> tuple[Program, tf.Variable, tf.train.CheckpointManager]:
    """A table whose every weight, and so its checkpoint, is the number of steps."""
    feature = tpu_embedding.FeatureConfig(
        table(np.zeros([ROWS, COLUMNS], np.float32), "count")
    )
    program = Program({"all": feature}, tpu_embedding.SGD(1.0))
    step = tf.Variable(0)
    return program, step, tf.train.Checkpoint(embedding=program.embedding, step=step)


def save_until_killed(folder: Path) -> None:
    program, step, checkpoint = counted()
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)
    ids, gradients = tf.range(ROWS), -tf.ones([ROWS, COLUMNS])
    while True:
        program.train({"all": ids}, {"all": gradients})
        step.assign_add(1)
        print(f"saving {int(step)}", flush=True)
        manager.save()
        print(f"saved {int(step)}", flush=True)


if __name__ == "__main__":
    command, place, *flags = sys.argv[1:]
    if command == "continue":
        for flag in flags:
            go_on(Path(place), flag == "True")
    else:
        save_until_killed(Path(place))
