"""One huge TPU-embedding table on the CPU: memory and the cost of a step.

A table of 100 million rows of 16 float32, trained by Adagrad, is loaded in shards,
trained and retrieved in shards through the generated classes. Another thread samples
the memory of the process. It must never be more than the sum of: tables and slots, and
1 % of them; the tensors that Load takes and Retrieve returns; and the memory after the
same run with a hundredth of the rows in shards as large. Every retrieved row is
compared with what was loaded and learned.

The cost of a step is compared with that of the same step on a table of a hundredth of
the rows: once with the same ids, where the number of rows must not matter, and once
with ids from all rows, which no cache holds.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

from opwright import Scope
from opwright.tpu import (
    EnqueueTPUEmbeddingArbitraryTensorBatch,
    LoadTPUEmbeddingAdagradParameters,
    RecvTPUEmbeddingActivations,
    RetrieveTPUEmbeddingAdagradParameters,
    SendTPUEmbeddingGradients,
    configure_distributed_tpu,
    configure_tpu_embedding,
    shutdown_distributed_tpu,
)
from opwright_runtime import native

RATE, ACCUMULATOR = 0.5, 0.25
BATCH, BAG = 2048, 20
LIBC = ctypes.CDLL(None)
PAGE = os.sysconf("SC_PAGE_SIZE")
# A step with the same ids may cost this much more in the larger table: noise.
SAME_IDS = 1.5


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def settled() -> int:
    """What the process has when what it freed is given back."""
    LIBC.malloc_trim(0)
    return resident()


@dataclass
class Memory:
    """Samples what the process has, less what it had, while `watch` is entered."""

    start: int = field(default_factory=settled)
    worst: dict[str, int] = field(default_factory=dict)
    samples: int = 0

    @contextmanager
    def watch(self, what: str, tensors: int = 0) -> Iterator[None]:
        """The most, less `tensors` bytes that are the caller's."""
        settled()
        done = threading.Event()

        def sample() -> None:
            while True:
                used = resident() - self.start - tensors
                self.worst[what] = max(used, self.worst.get(what, 0))
                self.samples += 1
                if done.wait(0.002):
                    return

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@dataclass(frozen=True)
class Scale:
    rows: int
    dim: int
    shards: int

    @property
    def table_bytes(self) -> int:
        """Of weights and accumulators."""
        return 2 * 4 * self.rows * self.dim

    @property
    def shard_bytes(self) -> int:
        """Of the weights of the smallest shard."""
        return 4 * (self.rows // self.shards) * self.dim

    @property
    def config(self) -> bytes:
        config = TPUEmbeddingConfiguration(
            mode=TPUEmbeddingConfiguration.TRAINING, num_hosts=1, num_tensor_cores=1
        )
        table = config.table_descriptor.add(
            name="table", vocabulary_size=self.rows, dimension=self.dim
        )
        table.optimization_parameters.adagrad.SetInParent()
        table.optimization_parameters.learning_rate.constant = RATE
        config.feature_descriptor.add(name="feature", table_id=0, input_shape=[BATCH])
        return bytes(config.SerializeToString())

    def shard(self, shard: int) -> tuple[int, int]:
        """The first row of a shard and how many it has."""
        each, more = divmod(self.rows, self.shards)
        return shard * each + min(shard, more), each + (shard < more)

    def weights(self, first: int, count: int) -> NDArray[np.float32]:
        """Every row has values of its own."""
        ids = np.arange(first, first + count, dtype=np.int64)
        columns = np.arange(self.dim, dtype=np.int64) * 7919
        return ((ids[:, None] * 31 + columns) % 65521).astype(np.float32) / np.float32(
            65521
        )


def load(scale: Scale, memory: Memory) -> None:
    for shard in range(scale.shards):
        weights = tf.constant(scale.weights(*scale.shard(shard)))
        accumulators = tf.fill(weights.shape, ACCUMULATOR)
        with memory.watch("load", 2 * scale.shard_bytes):
            LoadTPUEmbeddingAdagradParameters.create(
                Scope.current(),
                weights,
                accumulators,
                scale.shards,
                shard,
                LoadTPUEmbeddingAdagradParameters.Options(
                    table_id=0, config=scale.config
                ),
            )


@dataclass
class Steps:
    """Steps with gradients of ones."""

    scale: Scale
    config: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.config = self.scale.config
        self.splits = tf.range(0, BATCH * BAG + 1, BAG, tf.int64)
        self.gradient = tf.ones([BATCH, self.scale.dim])
        self.none = tf.zeros([0])

    def step(self, ids: tf.Tensor) -> tf.Tensor:
        scope = Scope.current()
        EnqueueTPUEmbeddingArbitraryTensorBatch.create(
            scope, [self.splits], [ids], [self.none], "train"
        )
        (found,) = RecvTPUEmbeddingActivations.create(scope, 1, self.config).outputs
        SendTPUEmbeddingGradients.create(scope, [self.gradient], [], self.config)
        return found


def draw(rows: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, rows, BATCH * BAG)


def timed(steps: Steps, rows: int, count: int) -> float:
    """Seconds of a step with ids below `rows`, the first quartile."""
    batches = [tf.constant(draw(rows, seed)) for seed in range(count)]
    times = []
    for ids in batches:
        start = time.perf_counter()
        steps.step(ids)
        times.append(time.perf_counter() - start)
    return float(np.quantile(times, 0.25))


def learned(scale: Scale, steps: Steps, memory: Memory) -> dict[int, int]:
    """Makes two steps from the freshly loaded table; how often each row was met."""
    ids = draw(scale.rows, 12345)
    ids[:4] = scale.rows - 1, scale.rows - 1, 0, scale.rows // 2
    tensor = tf.constant(ids)
    with memory.watch("step"):
        found = steps.step(tensor)
    bags = ids.reshape(BATCH, BAG)
    for bag in (0, BATCH // 2, BATCH - 1):
        rows = np.concatenate([scale.weights(int(i), 1) for i in bags[bag]])
        np.testing.assert_allclose(found[bag], rows.sum(0), 1e-5)
    rows, counts = np.unique(ids, return_counts=True)
    return dict(zip(rows.tolist(), counts.tolist(), strict=True))


def check(scale: Scale, met: dict[int, int], memory: Memory) -> None:
    """Retrieves the table in shards: the rows that were met have learned."""
    for shard in range(scale.shards):
        first, count = scale.shard(shard)
        with memory.watch("retrieve", 2 * scale.shard_bytes):
            found = RetrieveTPUEmbeddingAdagradParameters.create(
                Scope.current(),
                scale.shards,
                shard,
                RetrieveTPUEmbeddingAdagradParameters.Options(
                    table_id=0, config=scale.config
                ),
            )
        weights = scale.weights(first, count)
        accumulators = np.full_like(weights, ACCUMULATOR)
        for row in (row for row in met if first <= row < first + count):
            g = np.float32(met[row])
            accumulators[row - first] += g * g
            weights[row - first] -= RATE * g / np.sqrt(accumulators[row - first])
        np.testing.assert_allclose(found.accumulators, accumulators, 1e-6)
        np.testing.assert_allclose(found.parameters, weights, 1e-5, 1e-6)
        del found


def use(scale: Scale, memory: Memory) -> tuple[Steps, float]:
    """Configures, loads, trains and retrieves; the seconds that loading took."""
    shutdown_distributed_tpu()
    configure_distributed_tpu()
    with memory.watch("configure"):
        configure_tpu_embedding(scale.config)
    begun = time.perf_counter()
    load(scale, memory)
    loading = time.perf_counter() - begun
    steps = Steps(scale)
    check(scale, learned(scale, steps, memory), memory)
    return steps, loading


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--shards", type=int, default=200, help="a multiple of 100")
    parser.add_argument(
        "--steps", type=int, default=100, help="of each timing; with 0 nothing is timed"
    )
    parser.add_argument(
        "--spare", type=float, default=0.01, help="memory beside tables and slots"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a target is missed"
    )
    options = parser.parse_args()

    native.load()
    console = Console(width=None if sys.stdout.isatty() else 100)
    scale = Scale(options.rows, options.dim, options.shards)
    few = Scale(options.rows // 100, options.dim, options.shards // 100)
    steps, _ = use(few, Memory())
    before = timed(steps, few.rows, options.steps) if options.steps else 0.0
    shutdown_distributed_tpu()

    memory = Memory()
    steps, loading = use(scale, memory)
    table = Table(
        title=f"{scale.rows:,} x {scale.dim}: {scale.table_bytes / 2**20:,.0f} MiB"
    )
    for column in ("while", "most memory, MiB", "of tables and slots"):
        table.add_column(column, justify="right")
    for what, used in memory.worst.items():
        table.add_row(what, f"{used / 2**20:,.0f}", f"{used / scale.table_bytes:.2%}")
    console.print(table)
    console.print(f"{memory.samples} samples; loaded in {loading:.1f} s")
    fine = max(memory.worst.values()) <= (1 + options.spare) * scale.table_bytes

    if options.steps:
        same_ids = timed(steps, few.rows, options.steps)
        every_id = timed(steps, scale.rows, options.steps)
        # Once more, in case the machine has become slower meanwhile.
        after = timed(use(few, Memory())[0], few.rows, options.steps)
        console.print(
            f"a step: {before * 1e3:.2f} and {after * 1e3:.2f} ms with {few.rows:,} "
            f"rows, {same_ids * 1e3:.2f} ms with {scale.rows:,} and the same ids, "
            f"{every_id * 1e3:.2f} ms with ids of all of them"
        )
        fine &= same_ids <= SAME_IDS * max(before, after)
    shutdown_distributed_tpu()
    return 0 if fine or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
