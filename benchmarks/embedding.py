"""TPU embeddings on the CPU against FBGEMM, torch and TensorFlow, interleaved.

Every round times each contender once on the same set-up, so that a slow spell of the
machine hits all of them; what is printed is medians over the rounds, and the spread
from the first to the third quartile. All look up the same ids in tables of the same
weights, sum the rows of a bag, and update by Adagrad with an accumulator for each
weight, in float32: their activations are compared after the first step. Batches take
turns, so that no step finds its rows in the cache because of the one before.

opwright: the generated classes, eagerly: EnqueueTPUEmbeddingArbitraryTensorBatch with
    row splits, RecvTPUEmbeddingActivations, and in a step SendTPUEmbeddingGradients.
fbgemm: SplitTableBatchedEmbeddingBagsCodegen, all tables in one, EXACT_ADAGRAD.
rowwise: the same with EXACT_ROWWISE_ADAGRAD, whose one accumulator for a row halves the
    bytes: for information where it is asked for, no peer.
torch: nn.EmbeddingBag with sparse gradients and torch.optim.Adagrad.
tensorflow: gather, segment_sum, tf.GradientTape, the gradients of a row added up, and
    ResourceSparseApplyAdagradV2 in a tf.function. embedding_lookup_sparse is slower.

The bytes that must move are 4 * D for each id forwards, and in the update 16 * D for
each row that is met. GB/s is how fast opwright moves them, stream how fast all cores
read a large array in the same rounds.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

from opwright import Scope
from opwright.tpu import (
    EnqueueTPUEmbeddingArbitraryTensorBatch,
    LoadTPUEmbeddingAdagradParameters,
    RecvTPUEmbeddingActivations,
    SendTPUEmbeddingGradients,
    configure_distributed_tpu,
    configure_tpu_embedding,
    shutdown_distributed_tpu,
)
from opwright_runtime import native

WHAT = ("forward", "step")
PEERS = ("fbgemm", "torch", "tensorflow")
# How many times as fast as the best peer: a step, on the geometric mean. Everywhere: 1.
TARGET = 2.0
# One sample: long enough that what threads do between calls is what they do at work.
SAMPLE_SECONDS = 0.1
BATCHES = 8
STREAM = 2**29
RATE, ACCUMULATOR = 0.01, 0.1

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Setup:
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

    def weights(self, table: int) -> Floats:
        rng = np.random.default_rng(table)
        return rng.random((self.rows, self.dim), np.float32) - np.float32(0.5)

    def draw(self, seed: int) -> Ids:
        """[tables, ids]: of one batch."""
        rng = np.random.default_rng([seed])
        if not self.zipf:
            return rng.integers(0, self.rows, (self.tables, self.ids))
        shares = np.cumsum(np.arange(1, self.rows + 1.0) ** -1.05)
        ranks = np.searchsorted(
            shares, rng.random((self.tables, self.ids)) * shares[-1]
        )
        # Which rows are frequent has nothing to do with where they lie.
        return np.random.default_rng(0).permutation(self.rows)[ranks]

    def gradients(self) -> Floats:
        """[tables, batch, dim]"""
        rng = np.random.default_rng(1)
        return rng.standard_normal((self.tables, self.batch, self.dim), np.float32)

    def __str__(self) -> str:
        rows = (
            f"{self.rows // 1000}k" if self.rows < 10**6 else f"{self.rows // 10**6}M"
        )
        more = ", Zipf" if self.zipf else ""
        return f"{self.name}: {self.tables} x {rows} x {self.dim}, L={self.bag}{more}"


SETUPS = (
    Setup("A", 4, 1_000_000, 128, 20),
    Setup("B", 4, 1_000_000, 128, 20, zipf=True),
    Setup("C", 1, 10_000_000, 32, 20),
    Setup("D", 26, 100_000, 16, 1),
    Setup("E", 4, 1_000_000, 8, 20),
    Setup("F", 4, 200_000, 512, 20),
    Setup("G", 4, 1_000_000, 128, 1),
)


@dataclass(frozen=True)
class Contender:
    """Calls that take the number of a batch; `forward` returns [tables, batch, dim]."""

    forward: Callable[[int], Any]
    step: Callable[[int], object]
    activations: Callable[[int], Floats]

    def call(self, what: str) -> Callable[[int], object]:
        return self.forward if what == "forward" else self.step


def opwright_contender(setup: Setup, batches: list[Ids]) -> Contender:
    config = TPUEmbeddingConfiguration(
        mode=TPUEmbeddingConfiguration.TRAINING, num_hosts=1, num_tensor_cores=1
    )
    for i in range(setup.tables):
        table = config.table_descriptor.add(
            name=f"table{i}", vocabulary_size=setup.rows, dimension=setup.dim
        )
        table.optimization_parameters.adagrad.SetInParent()
        table.optimization_parameters.learning_rate.constant = RATE
        config.feature_descriptor.add(
            name=f"feature{i}", table_id=i, input_shape=[setup.batch]
        )
    proto = config.SerializeToString()
    shutdown_distributed_tpu()
    configure_distributed_tpu()
    configure_tpu_embedding(proto)
    scope = Scope.current()
    accumulators = tf.fill([setup.rows, setup.dim], ACCUMULATOR)
    for i in range(setup.tables):
        LoadTPUEmbeddingAdagradParameters.create(
            scope,
            *(setup.weights(i), accumulators),
            *(1, 0),
            LoadTPUEmbeddingAdagradParameters.Options(table_id=i, config=proto),
        )
    splits = tf.range(0, setup.ids + 1, setup.bag, tf.int64)
    kinds = [splits if setup.bag > 1 else splits[:0]] * setup.tables
    ids = [[tf.constant(one) for one in batch] for batch in batches]
    no_weights = [tf.zeros([0])] * setup.tables
    gradients = [tf.constant(one) for one in setup.gradients()]
    training, inference = tf.constant("train"), tf.constant("inference")

    def lookup(i: int, mode: tf.Tensor) -> list[tf.Tensor]:
        EnqueueTPUEmbeddingArbitraryTensorBatch.create(
            scope, kinds, ids[i], no_weights, mode
        )
        return RecvTPUEmbeddingActivations.create(scope, setup.tables, proto).outputs

    def step(i: int) -> None:
        lookup(i, training)
        SendTPUEmbeddingGradients.create(scope, gradients, [], proto)

    return Contender(
        lambda i: lookup(i, inference),
        step,
        lambda i: np.stack([one.numpy() for one in lookup(i, inference)]),
    )


def fbgemm_contender(
    setup: Setup, batches: list[Ids], optimizer: str = "EXACT_ADAGRAD"
) -> Contender:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    spec = (setup.rows, setup.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [spec] * setup.tables,
        optimizer=EmbOptimType[optimizer],
        learning_rate=RATE,
        eps=0.0,
        stochastic_rounding=False,
    )
    for i, table in enumerate(module.split_embedding_weights()):
        table.copy_(torch.from_numpy(setup.weights(i)))
    for (accumulators,) in module.split_optimizer_states():
        accumulators.fill_(ACCUMULATOR)
    ids = [torch.from_numpy(batch.reshape(-1)) for batch in batches]
    offsets = torch.arange(0, setup.tables * setup.ids + 1, setup.bag)
    gradient = torch.from_numpy(setup.gradients()).transpose(0, 1)
    gradient = gradient.reshape(setup.batch, -1).contiguous()

    def forward(i: int) -> torch.Tensor:
        with torch.no_grad():
            return module(ids[i], offsets)

    return Contender(
        forward,
        lambda i: module(ids[i], offsets).backward(gradient),
        lambda i: np.stack(np.split(forward(i).numpy(), setup.tables, 1)),
    )


def rowwise_contender(setup: Setup, batches: list[Ids]) -> Contender:
    return fbgemm_contender(setup, batches, "EXACT_ROWWISE_ADAGRAD")


def torch_contender(setup: Setup, batches: list[Ids]) -> Contender:
    modules = [
        torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(setup.weights(i)), freeze=False, mode="sum", sparse=True
        )
        for i in range(setup.tables)
    ]
    optimizer = torch.optim.Adagrad(
        [module.weight for module in modules],
        RATE,
        initial_accumulator_value=ACCUMULATOR,
        eps=0,
    )
    ids = [[torch.from_numpy(one) for one in batch] for batch in batches]
    offsets = torch.arange(0, setup.ids, setup.bag)
    gradients = [torch.from_numpy(one) for one in setup.gradients()]

    def lookup(i: int) -> list[torch.Tensor]:
        return [
            module(one, offsets) for module, one in zip(modules, ids[i], strict=True)
        ]

    def forward(i: int) -> list[torch.Tensor]:
        with torch.no_grad():
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


def tensorflow_contender(setup: Setup, batches: list[Ids]) -> Contender:
    variables = [tf.Variable(setup.weights(i)) for i in range(setup.tables)]
    accumulators = [tf.Variable(tf.fill(v.shape, ACCUMULATOR)) for v in variables]
    ids = [[tf.constant(one) for one in batch] for batch in batches]
    gradients = [tf.constant(one) for one in setup.gradients()]
    segments = tf.repeat(tf.range(setup.batch), setup.bag)

    def lookup(ids: list[tf.Tensor]) -> list[tf.Tensor]:
        rows = [tf.gather(v, one) for v, one in zip(variables, ids, strict=True)]
        if setup.bag == 1:
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
    found.pop("rowwise", None)
    first = next(iter(found.values()), np.zeros(0))
    for name, activations in found.items():
        if not np.allclose(activations, first, 1e-4, 1e-4):
            worst = np.abs(activations - first).max()
            raise SystemExit(f"{name} computes something else, {worst} off")


def timed(call: Callable[[int], object], first: int, calls: int) -> float:
    start = time.perf_counter()
    for i in range(first, first + calls):
        call(i % BATCHES)
    return (time.perf_counter() - start) / calls


def measure(
    calls: dict[str, Callable[[int], object]], seconds: float
) -> dict[str, NDArray[np.float64]]:
    """Seconds a call by contender and round."""
    once = {name: timed(call, 0, 2) for name, call in calls.items()}
    counts = {name: max(1, int(SAMPLE_SECONDS / t)) for name, t in once.items()}
    a_round = sum((counts[name] + 1) * once[name] for name in calls)
    rounds = int(min(60, max(5, seconds / a_round)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    at = 0
    for _ in range(rounds):
        for name, call in calls.items():
            # Threads of the one before stop spinning for work, those of this one wake.
            time.sleep(0.01)
            call(at % BATCHES)
            samples[name].append(timed(call, at + 1, counts[name]))
        at += 3
    return {name: np.asarray(times) for name, times in samples.items()}


def reader() -> Callable[[int], object]:
    """All cores read STREAM bytes together."""
    array = torch.ones(STREAM // 4)
    return lambda i: array.sum()


def bytes_moved(setup: Setup, batches: list[Ids], what: str) -> float:
    lookups = 4.0 * setup.dim * setup.tables * setup.ids
    if what == "forward":
        return lookups
    rows = np.mean([sum(len(np.unique(one)) for one in batch) for batch in batches])
    return lookups + 16.0 * setup.dim * float(rows)


def spread(samples: NDArray[np.float64], unit: float) -> str:
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75]) / unit
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


@dataclass(frozen=True)
class Result:
    """Seconds a call by contender and round, "stream" among them; bytes of a call."""

    times: dict[str, NDArray[np.float64]]
    bytes: float

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
            self.best_peer()[0],
            f"{self.ratio():.2f} x",
        ]


def time_setup(setup: Setup, options: argparse.Namespace) -> dict[str, Result]:
    """Makes the tables of all contenders, times them, and lets go of the tables."""
    batches = [setup.draw(seed) for seed in range(BATCHES)]
    made = {name: CONTENDERS[name](setup, batches) for name in options.only}
    agree(made)
    results = {}
    for what in options.what:
        calls = {name: one.call(what) for name, one in made.items()}
        times = measure({**calls, "stream": reader()}, options.seconds)
        results[what] = Result(times, bytes_moved(setup, batches, what))
    return results


def compare(
    console: Console, setups: list[Setup], options: argparse.Namespace
) -> dict[str, list[float]]:
    """How many times as fast as the best peer, by what is done."""
    isa = f"{native.isa()}, " if "opwright" in options.only else ""
    console.print(f"{isa}{os.cpu_count()} cores")
    columns = ["MB", *options.only, "GB/s", "stream", "best peer", "faster"]
    tables = {}
    for what in options.what:
        tables[what] = Table(title=f"{what.capitalize()}, ms: median (quartiles)")
        tables[what].add_column("set-up")
        for column in columns:
            tables[what].add_column(column, justify="right")
    ratios: dict[str, list[float]] = {what: [] for what in options.what}
    with Progress(console=console, transient=True) as progress:
        for setup in progress.track(setups, description="Timing"):
            for what, result in time_setup(setup, options).items():
                tables[what].add_row(str(setup), *result.row(options.only))
                ratios[what].append(result.ratio())
            # A contender may hold itself in a cycle.
            gc.collect()
    for table in tables.values():
        console.print(table)
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setups", default="ABCDEFG", help="letters of set-ups")
    parser.add_argument("--what", nargs="+", default=list(WHAT), choices=WHAT)
    parser.add_argument(
        "--only", nargs="+", default=["opwright", *PEERS], choices=list(CONTENDERS)
    )
    parser.add_argument(
        "--shrink", type=int, default=1, help="divide the rows of all tables"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a target is missed"
    )
    options = parser.parse_args()

    if "opwright" in options.only:
        native.load()
    torch.set_num_threads(os.cpu_count() or 1)
    console = Console(width=None if sys.stdout.isatty() else 170)
    setups = [
        replace(setup, rows=setup.rows // options.shrink)
        for setup in SETUPS
        if setup.name in options.setups
    ]
    fine = True
    for what, values in compare(console, setups, options).items():
        if not values or "opwright" not in options.only:
            continue
        mean = float(np.exp(np.mean(np.log(values))))
        target = TARGET if what == "step" else 1.0
        fine &= mean >= target and min(values) >= 1
        console.print(
            f"{what}: {mean:.2f} x as fast as the best peer on the geometric mean "
            f"(target {target}), {min(values):.2f} x at least (target 1)"
        )
    return 0 if fine or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
