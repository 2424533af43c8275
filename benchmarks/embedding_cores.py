"""What several cores cost: CPU time of a global batch, by software_strategy(cores=...).

The program is that of embedding_training.py: a tower for dense features, the tables,
dot products of all pairs, a tower on top, Adagrad for everything. Each number of cores
has a process of its own, which waits while others are timed; every round times each of
them once. CPU time is that of all threads of the process. What is printed is medians
over the rounds, the ratios to one core, round by round, with their quartiles, and how
far the losses are from one core's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

CORES = (1, 2, 4, 8)
STEPS = 5  # Whose losses are compared.


def work(cores: int, name: str) -> None:
    """Times as many steps as each line of the input says."""
    # What TensorFlow and its neighbours say on the way is nobody's answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import tensorflow as tf
    from embedding_training import (
        SETUPS,
        Towers,
        cross_entropy,
        score,
        tables_of,
    )

    from opwright import tpu

    setup = next(one for one in SETUPS if one.name == name)
    a_core = setup.batch // cores
    part = replace(setup, batch=a_core)
    # Ids are cut out of a batch within the step, which a TPU would refuse.
    strategy = tpu.software_strategy(cores=cores, strict=False)
    with strategy.scope():
        tables = tables_of(part)
        towers = Towers(setup)
    tables.build()
    splits = tf.range(0, a_core * setup.bag + 1, setup.bag)

    def inputs(ids: Any) -> Any:
        if setup.bag == 1:
            return tf.reshape(ids, [a_core])
        values = tf.reshape(ids, [a_core * setup.bag])
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def inputs_of_tables(ids: Any) -> Any:
        return [inputs(one) for one in tf.unstack(ids, axis=1)]

    def replica(dense: Any, labels: Any) -> Any:
        bags = tables.dequeue()
        with tf.GradientTape() as tape:
            tape.watch(bags)
            scores = score(towers.weights, part, dense, bags)
            loss = cross_entropy(labels, scores) / cores
        of_bags, gradients = tape.gradient(loss, (bags, towers.weights))
        tables.apply_gradients(of_bags)
        context = tf.distribute.get_replica_context()
        towers.apply(context.all_reduce("sum", gradients))
        return loss

    data = tf.data.Dataset.from_tensor_slices(setup.data()).repeat()
    on_host = tf.distribute.InputOptions(experimental_fetch_to_device=False)
    data = iter(strategy.experimental_distribute_dataset(data, options=on_host))

    @tf.function(autograph=False)
    def step(data: Any) -> Any:
        dense, ids, labels = next(data)
        # Once for all cores.
        tables.enqueue(strategy.run(inputs_of_tables, args=(ids,)), training=True)
        loss = strategy.run(replica, args=(dense, labels))
        return strategy.reduce("SUM", loss, axis=None)

    print(*[float(step(data)) for _ in range(STEPS)], file=answers)
    for line in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(int(line)):
            step(data)
        times = time.process_time() - cpu, time.perf_counter() - wall
        print(*[one / int(line) for one in times], file=answers)


class Worker:
    def __init__(self, cores: int, setup: str) -> None:
        command = [sys.executable, str(Path(__file__)), "--worker", str(cores), setup]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self) -> list[float]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a worker has ended")
        return [float(one) for one in line.split()]

    def time(self, steps: int) -> tuple[float, float]:
        """CPU time and wall time of a step, in seconds."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        cpu, wall = self.answer()
        return cpu, wall

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(setup: str, rounds: int, steps: int) -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    workers = {cores: Worker(cores, setup) for cores in CORES}
    losses = {cores: one.answer() for cores, one in workers.items()}
    samples = np.empty([rounds, len(CORES), 2])
    for one in workers.values():
        one.time(steps)  # Threads and caches are warm.
    for i in range(rounds):
        for j, one in enumerate(workers.values()):
            samples[i, j] = one.time(steps)
    for one in workers.values():
        one.end()
    table = Table(title=f"{setup}: {rounds} rounds of {steps} steps")
    for heading in ("cores", "CPU ms", "of one core's", "wall ms", "loss off by"):
        table.add_column(heading, justify="right")
    ratios = samples[:, :, 0] / samples[:, :1, 0]
    for j, cores in enumerate(CORES):
        low, middle, high = np.quantile(ratios[:, j], [0.25, 0.5, 0.75])
        cpu, wall = np.median(samples[:, j], axis=0) * 1e3
        off = max(
            abs(a - b) for a, b in zip(losses[cores], losses[CORES[0]], strict=True)
        )
        ratio = f"{middle:.3f} ({low:.3f} to {high:.3f})"
        table.add_row(str(cores), f"{cpu:.2f}", ratio, f"{wall:.2f}", f"{off:.1e}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setups", default="HB", help="of embedding_training.py")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20, help="a round")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(int(options.worker[0]), options.worker[1])
        return
    for setup in options.setups:
        measure(setup, options.rounds, options.steps)


if __name__ == "__main__":
    main()
