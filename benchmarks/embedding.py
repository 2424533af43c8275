"""TPU embeddings on the CPU against FBGEMM, torch and TensorFlow, interleaved.

Every round times each contender once on the same workload, so that a slow spell of the
machine hits all of them. The output has medians over the rounds, and the spread from
the first to the third quartile.

All look up the same ids in tables of the same weights, and sum the rows of a bag. All
update by Adagrad with an accumulator for each weight, in float32. Their activations are
compared after the first step. Ids are int32, with which all are at their fastest.

Batches take turns, so that no step finds its rows in the cache because of the step
before. There are 8 to 512 of them: as many as look up 512 MiB of rows or twice the size
of the largest cache, whichever is more. Tables that fit that cache may stay there with
any batches, for every contender and for random_rows.cc. Such a workload gets a *.

The place of a table in memory matters too. In a virtual machine the same table may be
read 1.4 times as fast in one part of the memory as in another. So each row has three
passes, in which all make their tables anew, and the middle pass of each contender
counts.

opwright: forward opwright.tpu.embedding_lookup, eagerly. In a step the generated
    functions, eagerly: enqueue_tpu_embedding_arbitrary_tensor_batch with row splits,
    recv_tpu_embedding_activations, send_tpu_embedding_gradients.
queued: forward as in a step, with batches for inference, as a program that trains
    evaluates; on request, for information.
fbgemm: SplitTableBatchedEmbeddingBagsCodegen, all tables in one, EXACT_ADAGRAD.
rowwise: the same with EXACT_ROWWISE_ADAGRAD, whose one accumulator for a row halves the
    bytes; on request, for information. It is no peer.
torch: nn.EmbeddingBag, forward in inference mode, in a step with sparse gradients and
    torch.optim.Adagrad.
tensorflow: gather, segment_sum, tf.GradientTape, the gradients of a row added up, and
    ResourceSparseApplyAdagradV2 in a tf.function. embedding_lookup_sparse is slower.

The bytes that must move are 4 * D for each id forwards, and in the update 16 * D for
each row that is met. GB/s is how fast opwright moves them. stream is how fast all cores
read a large array in the same rounds. rows is how fast they read rows of that size at
random places (random_rows.cc), before and after the rounds.

--held-out 20 draws that many other workloads: 4 to 768 columns, bags of 1 to 200, 1 to
200 tables, one sample to a million ids.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import torch
from limits import RandomRows
from numpy.typing import NDArray
from results import Recorder, add_option
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

from opwright.tpu import (
    configure_distributed_tpu,
    configure_tpu_embedding,
    embedding_lookup,
    enqueue_tpu_embedding_arbitrary_tensor_batch,
    load_tpu_embedding_adagrad_parameters,
    recv_tpu_embedding_activations,
    send_tpu_embedding_gradients,
    shutdown_distributed_tpu,
)
from opwright_runtime import native

WHAT = ("forward", "step")
PEERS = ("fbgemm", "torch", "tensorflow")
# How many times as fast as the best peer, on the geometric mean. Everywhere: 1.
TARGETS = {"forward": 1.5, "step": 2.5}
# One sample: long enough that what threads do between calls is what they do at work.
SAMPLE_SECONDS = 0.1
STREAM = 2**29
# Of workloads drawn at random: how many must be ahead of every peer, and all nearly.
HELD_OUT_SHARE, HELD_OUT_LEAST = 0.9, 0.9
RATE, ACCUMULATOR = 0.01, 0.1

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]


def largest_cache() -> int:
    """Bytes of the first processor's; 0 if Linux does not tell."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(one.read_text().rstrip("K\n")) << 10 for one in sizes), default=0)


CACHE = largest_cache()
BATCHES_BYTES = max(2**29, 2 * CACHE)


@dataclass(frozen=True)
class Workload:
    name: str
    tables: int
    rows: int
    dim: int
    bag: int
    batch: int = 2048
    zipf: bool = False

    @property
    def ids(self) -> int:
        """Of one table and batch."""
        return self.batch * self.bag

    @property
    def lookup_bytes(self) -> int:
        return 4 * self.dim * self.tables * self.ids

    @property
    def random_rows(self) -> tuple[int, int, int]:
        """The bytes of a row and of the tables, and the rows that a lookup reads."""
        row = 4 * self.dim
        return row, row * self.rows * self.tables, self.ids * self.tables

    @property
    def batches(self) -> int:
        return max(8, min(512, -(-BATCHES_BYTES // self.lookup_bytes)))

    @property
    def may_stay_in_cache(self) -> bool:
        return 4 * self.dim * self.rows * self.tables < CACHE

    def weights(self, table: int) -> Floats:
        rng = np.random.default_rng(table)
        return rng.random((self.rows, self.dim), np.float32) - np.float32(0.5)

    def draw(self, seed: int) -> Ids:
        """[tables, ids]: of one batch."""
        rng = np.random.default_rng([seed])
        if not self.zipf:
            return rng.integers(0, self.rows, (self.tables, self.ids), np.int32)
        shares = np.cumsum(np.arange(1, self.rows + 1.0) ** -1.05)
        ranks = np.searchsorted(
            shares, rng.random((self.tables, self.ids)) * shares[-1]
        )
        # Which rows are frequent has nothing to do with where they lie.
        return np.random.default_rng(0).permutation(np.int32(self.rows))[ranks]

    def gradients(self) -> Floats:
        """[tables, batch, dim]"""
        rng = np.random.default_rng(1)
        return rng.standard_normal((self.tables, self.batch, self.dim), np.float32)

    def __str__(self) -> str:
        rows = (
            f"{self.rows // 1000}k" if self.rows < 10**6 else f"{self.rows // 10**6}M"
        )
        more = ", Zipf" if self.zipf else ""
        more += "" if self.batch == Workload.batch else f", {self.batch} samples"
        more += "*" if self.may_stay_in_cache else ""
        return f"{self.name}: {self.tables} x {rows} x {self.dim}, L={self.bag}{more}"


WORKLOADS = (
    Workload("A", 4, 1_000_000, 128, 20),
    Workload("B", 4, 1_000_000, 128, 20, zipf=True),
    Workload("C", 1, 10_000_000, 32, 20),
    Workload("D", 26, 100_000, 16, 1),
    Workload("E", 4, 1_000_000, 8, 20),
    Workload("F", 4, 200_000, 512, 20),
    Workload("G", 4, 1_000_000, 128, 1),
)


def drawn(number: int) -> Workload:
    """Another workload; the same one for the same number."""
    rng = np.random.default_rng([number])

    def between(low: float, high: float) -> int:
        return round(np.exp(rng.uniform(np.log(low), np.log(high))))

    dim, bag, tables = 4 * between(1, 192), between(1, 200), between(1, 200)
    # 10^6 ids, 4 GB of weights and slots.
    batch = between(1, max(1, 10**6 // (tables * bag)))
    rows = between(1000, min(10**6, max(1000, 2**29 // (tables * dim))))
    return Workload(str(number), tables, rows, dim, bag, batch)


@dataclass(frozen=True)
class Contender:
    """Calls that take the number of a batch; `forward` returns [tables, batch, dim]."""

    forward: Callable[[int], Any]
    step: Callable[[int], object]
    activations: Callable[[int], Floats]

    def call(self, what: str) -> Callable[[int], object]:
        return self.forward if what == "forward" else self.step


def opwright_contender(
    workload: Workload, batches: list[Ids], queued: bool = False
) -> Contender:
    config = TPUEmbeddingConfiguration(
        mode=TPUEmbeddingConfiguration.TRAINING, num_hosts=1, num_tensor_cores=1
    )
    for i in range(workload.tables):
        table = config.table_descriptor.add(
            name=f"table{i}", vocabulary_size=workload.rows, dimension=workload.dim
        )
        table.optimization_parameters.adagrad.SetInParent()
        table.optimization_parameters.learning_rate.constant = RATE
        config.feature_descriptor.add(
            name=f"feature{i}", table_id=i, input_shape=[workload.batch]
        )
    proto = config.SerializeToString()
    shutdown_distributed_tpu()
    configure_distributed_tpu()
    configure_tpu_embedding(proto)
    accumulators = tf.fill([workload.rows, workload.dim], ACCUMULATOR)
    for i in range(workload.tables):
        load_tpu_embedding_adagrad_parameters(
            workload.weights(i), accumulators, 1, 0, table_id=i, config=proto
        )
    splits = tf.range(0, workload.ids + 1, workload.bag, tf.int32)
    kinds = [splits if workload.bag > 1 else splits[:0]] * workload.tables
    ids = [[tf.constant(one) for one in batch] for batch in batches]
    no_weights = [tf.zeros([0])] * workload.tables
    gradients = [tf.constant(one) for one in workload.gradients()]
    training, inference = tf.constant("train"), tf.constant("inference")

    packed = [tf.constant(batch.reshape(-1)) for batch in batches]
    ends = workload.tables * workload.ids + 1
    all_splits = tf.range(0, ends, workload.bag, tf.int32) if workload.bag > 1 else None

    def enqueue_and_receive(i: int, mode: tf.Tensor) -> list[tf.Tensor]:
        enqueue_tpu_embedding_arbitrary_tensor_batch(kinds, ids[i], no_weights, mode)
        return list(recv_tpu_embedding_activations(workload.tables, proto))

    def step(i: int) -> None:
        enqueue_and_receive(i, training)
        send_tpu_embedding_gradients(gradients, [], proto)

    def lookup(i: int) -> tf.Tensor:
        return embedding_lookup(packed[i], all_splits)

    def queued_lookup(i: int) -> list[tf.Tensor]:
        return enqueue_and_receive(i, inference)

    if queued:
        return Contender(
            queued_lookup,
            step,
            lambda i: np.stack([one.numpy() for one in queued_lookup(i)]),
        )
    return Contender(
        lookup,
        step,
        lambda i: np.stack(np.split(lookup(i).numpy(), workload.tables, 1)),
    )


def queued_contender(workload: Workload, batches: list[Ids]) -> Contender:
    return opwright_contender(workload, batches, queued=True)


def fbgemm_contender(
    workload: Workload, batches: list[Ids], optimizer: str = "EXACT_ADAGRAD"
) -> Contender:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    spec = (workload.rows, workload.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [spec] * workload.tables,
        optimizer=EmbOptimType[optimizer],
        learning_rate=RATE,
        eps=0.0,
        stochastic_rounding=False,
    )
    for i, table in enumerate(module.split_embedding_weights()):
        table.copy_(torch.from_numpy(workload.weights(i)))
    for (accumulators,) in module.split_optimizer_states():
        accumulators.fill_(ACCUMULATOR)
    ids = [torch.from_numpy(batch.reshape(-1)) for batch in batches]
    end = workload.tables * workload.ids + 1
    offsets = torch.arange(0, end, workload.bag, dtype=torch.int32)
    gradient = torch.from_numpy(workload.gradients()).transpose(0, 1)
    gradient = gradient.reshape(workload.batch, -1).contiguous()

    def forward(i: int) -> torch.Tensor:
        with torch.no_grad():
            return module(ids[i], offsets)

    return Contender(
        forward,
        lambda i: module(ids[i], offsets).backward(gradient),
        lambda i: np.stack(np.split(forward(i).numpy(), workload.tables, 1)),
    )


def rowwise_contender(workload: Workload, batches: list[Ids]) -> Contender:
    return fbgemm_contender(workload, batches, "EXACT_ROWWISE_ADAGRAD")


def torch_contender(workload: Workload, batches: list[Ids]) -> Contender:
    modules = [
        torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(workload.weights(i)), freeze=False, mode="sum", sparse=True
        )
        for i in range(workload.tables)
    ]
    optimizer = torch.optim.Adagrad(
        [module.weight for module in modules],
        RATE,
        initial_accumulator_value=ACCUMULATOR,
        eps=0,
    )
    ids = [[torch.from_numpy(one) for one in batch] for batch in batches]
    offsets = torch.arange(0, workload.ids, workload.bag, dtype=torch.int32)
    gradients = [torch.from_numpy(one) for one in workload.gradients()]

    def lookup(i: int) -> list[torch.Tensor]:
        return [
            module(one, offsets) for module, one in zip(modules, ids[i], strict=True)
        ]

    def forward(i: int) -> list[torch.Tensor]:
        with torch.inference_mode():
            return lookup(i)

    def step(i: int) -> None:
        optimizer.zero_grad()
        torch.autograd.backward(lookup(i), gradients)
        optimizer.step()

    return Contender(
        forward, step, lambda i: np.stack([one.numpy() for one in forward(i)])
    )


def apply_adagrad(variable: Any, accumulator: Any, slices: Any, rate: float) -> None:
    """Of rows, TensorFlow's: the gradients of one are added up first."""
    rows, at = tf.unique(slices.indices)
    tf.raw_ops.ResourceSparseApplyAdagradV2(
        var=variable.handle,
        accum=accumulator.handle,
        lr=rate,
        epsilon=0.0,
        grad=tf.math.unsorted_segment_sum(slices.values, at, tf.size(rows)),
        indices=rows,
    )


def tensorflow_contender(workload: Workload, batches: list[Ids]) -> Contender:
    variables = [tf.Variable(workload.weights(i)) for i in range(workload.tables)]
    accumulators = [tf.Variable(tf.fill(v.shape, ACCUMULATOR)) for v in variables]
    ids = [[tf.constant(one) for one in batch] for batch in batches]
    gradients = [tf.constant(one) for one in workload.gradients()]
    segments = tf.repeat(tf.range(workload.batch), workload.bag)

    def lookup(ids: list[tf.Tensor]) -> list[tf.Tensor]:
        rows = [tf.gather(v, one) for v, one in zip(variables, ids, strict=True)]
        if workload.bag == 1:
            return rows
        return [tf.math.segment_sum(one, segments) for one in rows]

    @tf.function(autograph=False)
    def forward(ids: list[tf.Tensor]) -> list[tf.Tensor]:
        return lookup(ids)

    @tf.function(autograph=False)
    def step(ids: list[tf.Tensor], gradients: list[tf.Tensor]) -> None:
        with tf.GradientTape() as tape:
            activations = lookup(ids)
        slices = tape.gradient(activations, variables, gradients)
        for variable, accumulator, one in zip(
            variables, accumulators, slices, strict=True
        ):
            apply_adagrad(variable, accumulator, one, RATE)

    return Contender(
        lambda i: forward(ids[i]),
        lambda i: step(ids[i], gradients),
        lambda i: np.stack([one.numpy() for one in forward(ids[i])]),
    )


CONTENDERS = {
    "opwright": opwright_contender,
    "queued": queued_contender,
    "fbgemm": fbgemm_contender,
    "rowwise": rowwise_contender,
    "torch": torch_contender,
    "tensorflow": tensorflow_contender,
}


def agree(contenders: dict[str, Contender]) -> None:
    """Fails unless all that have the same rule look up the same after a step."""
    found = {}
    for name, contender in contenders.items():
        contender.step(0)
        found[name] = contender.activations(0)
    for other in ("rowwise", "queued"):  # Another rule; the same tables, twice updated.
        found.pop(other, None)
    first = next(iter(found.values()), np.zeros(0))
    for name, activations in found.items():
        if not np.allclose(activations, first, 1e-4, 1e-4):
            worst = np.abs(activations - first).max()
            raise SystemExit(f"{name} computes something else, {worst} off")


def timed(call: Callable[[int], object], first: int, calls: int, batches: int) -> float:
    start = time.perf_counter()
    for i in range(first, first + calls):
        call(i % batches)
    return (time.perf_counter() - start) / calls


def measure(
    calls: dict[str, Callable[[int], object]], seconds: float, batches: int
) -> dict[str, NDArray[np.float64]]:
    """Seconds a call by contender and round."""
    once = {name: timed(call, 0, 2, batches) for name, call in calls.items()}
    counts = {name: max(1, int(SAMPLE_SECONDS / t)) for name, t in once.items()}
    a_round = sum((counts[name] + 1) * once[name] for name in calls)
    rounds = int(min(60, max(5, seconds / a_round)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    at = 0
    for _ in range(rounds):
        for name, call in calls.items():
            # Threads of the one before stop spinning for work, those of this one wake.
            time.sleep(0.01)
            call(at % batches)
            samples[name].append(timed(call, at + 1, counts[name], batches))
        # Not the batches of the round before, which a cache may hold.
        at += 1 + max(counts.values())
    return {name: np.asarray(times) for name, times in samples.items()}


def reader() -> Callable[[int], object]:
    """All cores read STREAM bytes together."""
    array = torch.ones(STREAM // 4)
    return lambda i: array.sum()


def bytes_moved(workload: Workload, batches: list[Ids], what: str) -> float:
    lookups = float(workload.lookup_bytes)
    if what == "forward":
        return lookups
    rows = np.mean([sum(len(np.unique(one)) for one in batch) for batch in batches])
    return lookups + 16.0 * workload.dim * float(rows)


def spread(samples: NDArray[np.float64], unit: float) -> str:
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75]) / unit
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


@dataclass(frozen=True)
class Result:
    """Seconds a call by contender and round, "stream" among them; bytes of a call, and
    bytes a second of random rows."""

    times: dict[str, NDArray[np.float64]]
    bytes: float
    rows: float

    @property
    def medians(self) -> dict[str, float]:
        return {name: float(np.median(times)) for name, times in self.times.items()}

    def best_peer(self) -> tuple[str, float]:
        return min(
            ((n, t) for n, t in self.medians.items() if n in PEERS),
            key=lambda one: one[1],
            default=("", float("nan")),
        )

    def ratio(self) -> float:
        """How many times as fast as the best peer."""
        return self.best_peer()[1] / self.medians.get("opwright", float("nan"))

    def row(self, names: list[str]) -> list[str]:
        medians = self.medians
        rate = self.bytes / medians.get("opwright", float("nan"))
        return [
            f"{self.bytes / 1e6:.0f}",
            *(spread(self.times[name], 1e-3) for name in names),
            f"{rate / 1e9:.1f}",
            f"{STREAM / medians['stream'] / 1e9:.1f}",
            f"{self.rows / 1e9:.1f}",
            self.best_peer()[0],
            f"{self.ratio():.2f} x",
        ]


def middle(passes: list[Result]) -> Result:
    """Of each contender its middle pass, by their medians."""
    times = {
        name: sorted((one.times[name] for one in passes), key=np.median)[
            (len(passes) - 1) // 2
        ]
        for name in passes[0].times
    }
    return Result(
        times, passes[0].bytes, float(np.median([one.rows for one in passes]))
    )


def time_workload(
    workload: Workload, random_rows: RandomRows, options: argparse.Namespace
) -> dict[str, Result]:
    passes = []
    for _ in range(options.passes):
        passes.append(time_once(workload, random_rows, options))
        gc.collect()  # A contender may hold itself in a cycle.
    return {what: middle([one[what] for one in passes]) for what in options.what}


def time_once(
    workload: Workload, random_rows: RandomRows, options: argparse.Namespace
) -> dict[str, Result]:
    """Makes the tables of all contenders, times them, and lets go of the tables."""
    batches = [workload.draw(seed) for seed in range(workload.batches)]
    made = {name: CONTENDERS[name](workload, batches) for name in options.only}
    agree(made)
    results = {}
    for what in options.what:
        calls = {name: one.call(what) for name, one in made.items()}
        numbers = workload.random_rows
        before = random_rows.speed(*numbers)
        seconds = options.seconds / options.passes
        times = measure({**calls, "stream": reader()}, seconds, len(batches))
        rows = (before + random_rows.speed(*numbers)) / 2
        results[what] = Result(times, bytes_moved(workload, batches, what), rows)
    return results


def compare(
    console: Console,
    workloads: list[Workload],
    options: argparse.Namespace,
    recorder: Recorder,
) -> dict[str, list[float]]:
    """How many times as fast as the best peer, by what is done."""
    isa = f"{native.isa()}, " if "opwright" in options.only else ""
    console.print(f"{isa}{os.cpu_count()} cores")
    columns = ["MB", *options.only, "GB/s", "stream", "rows", "best peer", "faster"]
    tables = {}
    for what in options.what:
        tables[what] = Table(title=f"{what.capitalize()}, ms: median (quartiles)")
        tables[what].add_column("workload")
        for column in columns:
            tables[what].add_column(column, justify="right")
    ratios: dict[str, list[float]] = {what: [] for what in options.what}
    random_rows = RandomRows()
    with Progress(console=console, transient=True) as progress:
        for workload in progress.track(workloads, description="Timing"):
            for what, result in time_workload(workload, random_rows, options).items():
                tables[what].add_row(str(workload), *result.row(options.only))
                recorder.add(str(workload), what, result.times)
                ratios[what].append(result.ratio())
    for table in tables.values():
        console.print(table)
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default="ABCDEFG", help="letters of workloads")
    parser.add_argument("--what", nargs="+", default=list(WHAT), choices=WHAT)
    parser.add_argument(
        "--only", nargs="+", default=["opwright", *PEERS], choices=list(CONTENDERS)
    )
    parser.add_argument(
        "--shrink", type=int, default=1, help="divide the rows of all tables"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row")
    parser.add_argument(
        "--passes", type=int, default=3, help="in how many all tables are made anew"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a target is missed"
    )
    parser.add_argument(
        "--held-out", type=int, default=0, help="time so many drawn workloads instead"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    add_option(parser)
    options = parser.parse_args()
    recorder = Recorder("embedding", options.record)

    if "opwright" in options.only:
        native.load()
    torch.set_num_threads(os.cpu_count() or 1)
    console = Console(width=None if sys.stdout.isatty() else 170)
    workloads = [
        replace(workload, rows=workload.rows // options.shrink)
        for workload in WORKLOADS
        if workload.name in options.workloads
    ]
    if options.held_out:
        workloads = [drawn(options.first + i) for i in range(options.held_out)]
    fine = True
    compared = compare(console, workloads, options, recorder)
    recorder.save()
    for what, values in compared.items():
        if not values or "opwright" not in options.only:
            continue
        if options.held_out:
            ahead = sum(value >= 1 for value in values) / len(values)
            fine &= ahead >= HELD_OUT_SHARE and min(values) >= HELD_OUT_LEAST
            console.print(
                f"{what}: ahead of every peer in {ahead:.0%} of {len(values)} "
                f"workloads (target {HELD_OUT_SHARE:.0%}), worst {min(values):.2f} x "
                f"(target {HELD_OUT_LEAST})"
            )
            continue
        mean = float(np.exp(np.mean(np.log(values))))
        target = TARGETS[what]
        fine &= mean >= target and min(values) >= 1
        console.print(
            f"{what}: {mean:.2f} x as fast as the best peer on the geometric mean "
            f"(target {target}), worst {min(values):.2f} x (target 1)"
        )
    return 0 if fine or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
