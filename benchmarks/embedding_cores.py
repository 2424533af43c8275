"""What several cores cost: CPU time of a global batch, by software_strategy(cores=...).

The program is that of embedding_training.py: a tower for dense features, the tables,
dot products of all pairs, a tower on top, Adagrad for everything. Each number of cores
has a process of its own, which waits while others are timed; every round times each of
them once. CPU time is that of all threads of the process. What is printed is medians
over the rounds, the ratios to one core, round by round, with their quartiles, and how
far the losses are from one core's.

Next to it stands the same program without tables, its bags always the same, under
TensorFlow's own strategies: the cost of replicas as such. The rest of the step is the
tables' part.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from results import Recorder, add_option
from timed_process import TimedProcess

CORES = (1, 2, 4, 8)
STEPS = 5  # Whose losses are compared.


def work(cores: int, name: str, batch: int) -> None:
    """Times as many steps as each line of the input says."""
    # Logs of TensorFlow and other libraries are no results.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import numpy as np
    import tensorflow as tf
    from embedding_training import (
        WORKLOADS,
        Towers,
        cross_entropy,
        score,
        tables_of,
    )

    from opwright import tpu

    workload = next(one for one in WORKLOADS if one.name == name)
    workload = replace(workload, batch=batch)
    a_core = workload.batch // cores
    part = replace(workload, batch=a_core)
    splits = np.arange(0, a_core * workload.bag + 1, workload.bag, np.int32)

    def inputs(ids: Any) -> Any:
        if workload.bag == 1:
            return tf.reshape(ids, [a_core])
        values = tf.reshape(ids, [a_core * workload.bag])
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def inputs_of_tables(ids: Any) -> Any:
        return [inputs(one) for one in tf.unstack(ids, axis=1)]

    def program(strategy: Any, has_tables: bool) -> Callable[[], Any]:
        """A step, which returns its loss."""
        with strategy.scope():
            tables = tables_of(part) if has_tables else None
            towers = Towers(workload)
        if tables:
            tables.build()

        def same() -> list[Any]:  # On each core: they are not sent to it.
            return [
                tf.fill([a_core, workload.dim], 0.1) for _ in range(workload.tables)
            ]

        def replica(dense: Any, labels: Any) -> Any:
            bags = tables.dequeue() if tables else same()
            with tf.GradientTape() as tape:
                tape.watch(bags)
                scores = score(towers.weights, part, dense, bags)
                loss = cross_entropy(labels, scores) / cores
            of_bags, gradients = tape.gradient(loss, (bags, towers.weights))
            if tables:
                tables.apply_gradients(of_bags)
            context = tf.distribute.get_replica_context()
            towers.apply(context.all_reduce("sum", gradients))
            return loss

        batches = tf.data.Dataset.from_tensor_slices(workload.data()).repeat()
        on_host = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        data = iter(strategy.experimental_distribute_dataset(batches, options=on_host))

        @tf.function(autograph=False)
        def step(data: Any) -> Any:
            dense, ids, labels = next(data)
            if tables:  # Once for all cores, on the host, where ids are.
                of_cores = strategy.experimental_local_results(ids)

                def of_core(context: Any) -> Any:
                    return inputs_of_tables(of_cores[context.replica_id_in_sync_group])

                ids = strategy.experimental_distribute_values_from_function(of_core)
                tables.enqueue(ids, training=True)
            loss = strategy.run(replica, args=(dense, labels))
            return strategy.reduce("SUM", loss, axis=None)

        return lambda: step(data)

    # Ids are cut out of a batch within the step, which a TPU would refuse.
    programs = [program(tpu.software_strategy(cores=cores, strict=False), True)]
    cpus = [f"/cpu:{core}" for core in range(cores)]
    if cores == 1:
        alike = tf.distribute.OneDeviceStrategy(cpus[0])
    else:
        reduces = tf.distribute.ReductionToOneDevice()
        alike = tf.distribute.MirroredStrategy(cpus, cross_device_ops=reduces)
    programs.append(program(alike, False))
    print(*[float(programs[0]()) for _ in range(STEPS)], file=answers)
    for line in sys.stdin:
        times = []
        for step in programs:
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(int(line)):
                step()
            times += [time.process_time() - cpu, time.perf_counter() - wall]
        print(*[one / int(line) for one in times], file=answers)
    # TensorFlow's iterators for several devices may wait for themselves when they end.
    os._exit(0)


class Worker:
    """A process with a program of so many cores. Its first answer is the losses."""

    def __init__(self, cores: int, workload: str, batch: int, threads: int) -> None:
        limited = threads and cores > 1
        self.process = TimedProcess(
            f"the worker of {cores} cores",
            [__file__, "--worker", str(cores), workload, str(batch)],
            {"TF_NUM_INTRAOP_THREADS": str(threads)} if limited else {},
        )
        self.end = self.process.end

    def losses(self) -> list[float]:
        return _numbers(self.process.answer())

    def time(self, steps: int) -> list[float]:
        """CPU and wall time of a step, and of one without tables, in seconds."""
        return _numbers(self.process.ask(str(steps)))


def _numbers(line: str) -> list[float]:
    return [float(one) for one in line.split()]


def measure(
    workload: str,
    batch: int,
    rounds: int,
    steps: int,
    threads: int,
    recorder: Recorder,
) -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    workers = {cores: Worker(cores, workload, batch, threads) for cores in CORES}
    losses = {cores: one.losses() for cores, one in workers.items()}
    samples = np.empty([rounds, len(CORES), 4])
    for one in workers.values():
        one.time(steps)  # Threads and caches are warm.
    for i in range(rounds):
        for j, one in enumerate(workers.values()):
            samples[i, j] = one.time(steps)
    for one in workers.values():
        one.end()
    for what, index in (("CPU time", 0), ("CPU time without tables", 2)):
        seconds = {str(c): samples[:, j, index] for j, c in enumerate(CORES)}
        recorder.add(workload, what, seconds)
    table = Table(title=f"{workload}, {batch}: {rounds} rounds of {steps} steps")
    for heading in (
        "cores",
        "CPU ms",
        "of one core's",
        "wall ms",
        "loss off by",
        "without tables: CPU ms",
        "of one core's",
    ):
        table.add_column(heading, justify="right")
    for j, cores in enumerate(CORES):
        cpu, wall, around, _ = np.median(samples[:, j], axis=0) * 1e3
        off = max(
            abs(a - b) for a, b in zip(losses[cores], losses[CORES[0]], strict=True)
        )
        whole, without = (
            "{1:.3f} ({0:.3f} to {2:.3f})".format(
                *np.quantile(samples[:, j, k] / samples[:, 0, k], [0.25, 0.5, 0.75])
            )
            for k in (0, 2)
        )
        table.add_row(
            str(cores),
            f"{cpu:.2f}",
            whole,
            f"{wall:.2f}",
            f"{off:.1e}",
            f"{around:.2f}",
            without,
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default="HB", help="of embedding_training.py")
    parser.add_argument("--batch", type=int, default=2048, help="of all cores")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=20, help="a round")
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="of an op under several cores, instead of those that the strategy chooses",
    )
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    add_option(parser)
    options = parser.parse_args()
    if options.worker:
        cores, workload, batch = options.worker
        work(int(cores), workload, int(batch))
        return
    recorder = Recorder("embedding_cores", options.record)
    for workload in options.workloads:
        measure(
            workload,
            options.batch,
            options.rounds,
            options.steps,
            options.threads,
            recorder,
        )
    recorder.save()


if __name__ == "__main__":
    main()
