"""What rows of narrow dtypes gain: lookups and updates, against float32, interleaved.

Each dtype has a process of its own, which waits while others are timed. Every round
times each of them once, on the same ids. The tables have the same weights, and are far
larger than the largest cache. A call is `opwright.tpu.embedding_lookup` of bags whose
rows are summed, or a step with gradients of ones, which looks up and updates.

In a virtual machine the same table may be read 1.4 times as fast in one part of the
memory as in another. All processes are therefore started anew in each of three passes,
and the middle pass of each dtype counts.

What is printed is medians over the rounds with their quartiles, how many times as fast
as float32 each dtype is by them, and the bytes of rows that a second of lookups reads,
also as a share of what the cores reach for random rows of that size (random_rows.cc).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from limits import RandomRows, share
from numpy.typing import NDArray
from results import Recorder, add_option
from rich.console import Console
from rich.table import Table
from timed_process import TimedProcess

DTYPES = ("float32", "float16", "bfloat16", "int8")
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
WHAT = ("lookup", "step")
# As many batches take turns as look up this many bytes in float32.
BATCHES_BYTES = 2**29


@dataclass(frozen=True)
class Workload:
    dim: int
    bag: int
    batch: int
    table_bytes: int

    @property
    def rows(self) -> int:
        return self.table_bytes // (4 * self.dim)

    @property
    def ids(self) -> int:
        return self.bag * self.batch

    def row_bytes(self, dtype: str) -> int:
        """The bytes that a lookup of a row reads."""
        return BYTES[dtype] * self.dim + (8 if dtype == "int8" else 0)

    def __str__(self) -> str:
        return f"{self.rows / 1e6:.1f} M rows of {self.dim}, bags of {self.bag}"


def work(dtype: str, workload: Workload) -> None:
    """Times as many calls as each line of the input says, and answers the seconds."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Logs are no results.
    import tensorflow as tf

    from opwright import tpu
    from opwright_runtime import native

    films = tpu.EmbeddingTable(
        "films",
        workload.rows,
        workload.dim,
        tpu.RowWiseAdagrad(0.01, 0.1),
        row_dtype=dtype,
    )
    feature = tpu.EmbeddingFeature("seen", films, [workload.batch])
    config = tpu.EmbeddingConfig([films], [feature]).message.SerializeToString()
    tpu.configure_distributed_tpu()
    tpu.configure_tpu_embedding(config)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((workload.rows, workload.dim), np.float32)
    slots = np.full((workload.rows, 1), 0.1, np.float32)
    native.ops().opwright_load_embedding_table(
        parameters=weights, slots=[slots], table_id=0, num_shards=1, shard_id=0
    )
    del weights
    count = max(8, BATCHES_BYTES // (4 * workload.dim * workload.ids))
    batches = [
        tf.constant(rng.integers(0, workload.rows, workload.ids), tf.int64)
        for _ in range(count)
    ]
    splits = tf.range(0, workload.ids + 1, workload.bag, tf.int64)
    gradients = tf.ones([workload.batch, workload.dim])
    nothing = tf.zeros([0])

    def lookup(ids: Any) -> None:
        tpu.embedding_lookup(ids, splits)

    def step(ids: Any) -> None:
        tpu.enqueue_tpu_embedding_arbitrary_tensor_batch(
            [splits], [ids], [nothing], "train", combiners=["sum"]
        )
        tpu.recv_tpu_embedding_activations(1, config)
        tpu.send_tpu_embedding_gradients([gradients], [], config)

    calls: dict[str, Callable[[Any], None]] = {"lookup": lookup, "step": step}
    for call in calls.values():
        call(batches[0])
    done = 0
    print("ready", file=answers)
    for line in sys.stdin:
        what, times = line.split()
        start = time.perf_counter()
        for _ in range(int(times)):
            calls[what](batches[done % count])
            done += 1
        print((time.perf_counter() - start) / int(times), file=answers)


class Worker(TimedProcess):
    """A process with the table of one dtype. Its first answer is that it is ready."""

    def __init__(self, dtype: str, workload: Workload) -> None:
        numbers = (workload.dim, workload.bag, workload.batch, workload.table_bytes)
        super().__init__(dtype, [__file__, "--work", dtype, *map(str, numbers)])

    def time(self, what: str, times: int) -> float:
        return float(self.ask(f"{what} {times}"))


def measure(
    what: str, workers: dict[str, Worker], rounds: int
) -> dict[str, NDArray[np.float64]]:
    """Seconds of a call in each round. The order changes from round to round."""
    once = workers["float32"].time(what, 3)
    times = max(1, round(0.1 / once))
    found: dict[str, list[float]] = {name: [] for name in workers}
    names = list(workers)
    for _ in range(rounds):
        names.append(names.pop(0))
        for name in names:
            found[name].append(workers[name].time(what, times))
    return {name: np.array(each) for name, each in found.items()}


Times: TypeAlias = dict[str, NDArray[np.float64]]


def one_pass(workload: Workload, options: argparse.Namespace) -> dict[str, Times]:
    """The times of each call, by dtype, in processes that end afterwards."""
    workers = {}
    for dtype in options.dtypes:
        workers[dtype] = Worker(dtype, workload)
        workers[dtype].answer()  # One after the other, as each needs all cores.
    found = {what: measure(what, workers, options.rounds) for what in options.what}
    for worker in workers.values():
        worker.end()
    return found


def middle_pass(passes: list[Times]) -> Times:
    """Of each dtype its middle pass, by their medians."""
    return {
        name: sorted((one[name] for one in passes), key=np.median)[
            (len(passes) - 1) // 2
        ]
        for name in passes[0]
    }


def compare(
    workload: Workload,
    random_rows: RandomRows,
    options: argparse.Namespace,
    recorder: Recorder,
) -> list[Table]:
    passes = [one_pass(workload, options) for _ in range(options.passes)]
    tables = []
    for what in options.what:
        times = middle_pass([one[what] for one in passes])
        recorder.add(str(workload), what, times)
        table = Table("rows", "ms: median (quartiles)", "faster", "GB/s", "of limit")
        table.title = f"{what.capitalize()}: {workload}"
        for dtype, seconds in times.items():
            low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75]) * 1e3
            ratio = float(np.median(times["float32"]) / np.median(seconds))
            speed, of_limit = "", ""
            if what == "lookup":
                row = workload.row_bytes(dtype)
                rate = row * workload.ids / float(np.median(seconds))
                limit = random_rows.speed(row, row * workload.rows, workload.ids)
                speed, of_limit = f"{rate / 1e9:.2f}", share(rate, limit)
            spread = f"{middle:.3g} ({low:.3g}-{high:.3g})"
            table.add_row(dtype, spread, f"{ratio:.2f} x", speed, of_limit)
        tables.append(table)
    return tables


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dims", nargs="+", type=int, default=[32, 64, 128, 256])
    parser.add_argument("--bag", type=int, default=40)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument(
        "--megabytes", type=int, default=1024, help="of a table in float32"
    )
    parser.add_argument("--what", nargs="+", default=list(WHAT), choices=WHAT)
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--rounds", type=int, default=11, help="of each pass")
    parser.add_argument(
        "--passes", type=int, default=3, help="in how many all tables are made anew"
    )
    add_option(parser)
    options = parser.parse_args()
    if "float32" not in options.dtypes:
        parser.error("float32 must be among --dtypes: the others are compared with it")
    console = Console(width=None if sys.stdout.isatty() else 100)
    recorder = Recorder("embedding_narrow", options.record)
    random_rows = RandomRows()
    for dim in options.dims:
        table_bytes = options.megabytes << 20
        workload = Workload(dim, options.bag, options.batch, table_bytes)
        for table in compare(workload, random_rows, options, recorder):
            console.print(table)
    recorder.save()
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], Workload(*map(int, sys.argv[3:])))
    else:
        sys.exit(main())
