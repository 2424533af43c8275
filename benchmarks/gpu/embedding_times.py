"""Times of the CUDA backend, torch's EmbeddingBag and FBGEMM's, interleaved.

tools/gpu_check.py runs this after its checks. Every round times each contender once,
so that a slow spell hits all of them. The output has medians over the rounds and the
spread from the first to the third quartile. Batches take turns, so that no call
finds its rows in the cache because of the one before.

opwright: a lookup; a step is a lookup and an update.
torch: nn.EmbeddingBag with sparse gradients and SGD, Adagrad or SparseAdam.
FBGEMM: SplitTableBatchedEmbeddingBagsCodegen on the device with EXACT_SGD,
    EXACT_ADAGRAD or ADAM, in float32, without its check of bounds; opwright makes one.

All have float32 tables of the same weights and sum the rows of a bag; lookups after a
step are compared, but not those of Adam: torch and FBGEMM correct its bias in the
kernel, opwright by its learning rate.

Percents compare the bytes that must move with those that a copy moves in the same time.
A lookup moves 4 * D bytes for each id and output, and 8 for each id and bag. An update
moves 4 * D + 8 bytes for each id, whose gradient is read. It also moves every row that
is met, with its slots, once from and once to memory. Gradients and rows that many ids
share come from the cache, so there can be more than 100 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpu.support.backend import DEVICE, Bags, Library, Settings, Table

BATCHES = 4
RATE, ACCUMULATOR = 0.01, 0.1
# Floats of a row's slots, and the hyperparameters that opwright takes.
SLOTS = {"stochastic_gradient_descent": 0, "adagrad": 1, "adam": 2}
HYPER = {"adam": [0.9, 0.999, 1e-8, 0, 0]}
NAMES = {"adagrad": "Adagrad", "stochastic_gradient_descent": "SGD", "adam": "Adam"}
PEERS = ("torch", "FBGEMM")
# Of the copy's bytes a second.
TARGETS = {"lookup": 0.75, "step": 0.6}


@dataclass(frozen=True)
class Sizes:
    """What is timed: enough to fill a GPU."""

    samples: int = 65536
    ids_per_sample: int = 10
    table_bytes: int = 2 << 30
    most_rows: int = 8 << 20
    dimensions: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    # Of the optimizers other than Adagrad.
    other_dimensions: tuple[int, ...] = (64, 256)
    rounds: int = 15
    copied: int = 1 << 30

    @property
    def count(self) -> int:
        return self.samples * self.ids_per_sample

    def rows(self, dimension: int) -> int:
        return min(self.most_rows, self.table_bytes // (dimension * 4))


@dataclass(frozen=True)
class Workload:
    sizes: Sizes
    dimension: int
    kind: str
    optimizer: str

    @property
    def rows(self) -> int:
        return self.sizes.rows(self.dimension)


@dataclass(frozen=True)
class Contender:
    """Calls that take the number of a batch; `forward` returns [samples, dimension]."""

    forward: Callable[[int], torch.Tensor]
    step: Callable[[int], object]
    close: Callable[[], object] = lambda: None


def milliseconds(call: Callable[[], object]) -> float:
    """Of one call: on a GPU between two events on its stream."""
    if DEVICE == "cpu":
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3
    first, last = (
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2)
    )
    first.record()
    call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last))


def copy_bandwidth(sizes: Sizes) -> float:
    """Bytes a second that a copy reads and writes."""
    half = torch.zeros(sizes.copied, dtype=torch.uint8, device=DEVICE)
    other = torch.empty_like(half)
    times = [milliseconds(lambda: other.copy_(half)) for _ in range(sizes.rounds + 3)]
    return 2e3 * len(half) / float(np.median(times[3:]))


def draw_ids(workload: Workload, batch: int) -> torch.Tensor:
    random = np.random.default_rng([2, batch])
    if workload.kind == "uniform":
        ids = random.integers(0, workload.rows, workload.sizes.count)
    else:
        drawn = np.minimum(random.zipf(1.15, workload.sizes.count), 1 << 62)
        # Hot rows lie anywhere in a table.
        spread = drawn.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        ids = (spread % np.uint64(workload.rows)).astype(np.int64)
    return torch.from_numpy(ids).to(DEVICE)


def ours(
    library: Library,
    workload: Workload,
    weights: torch.Tensor,
    batches: list[Bags],
    gradient: torch.Tensor,
) -> Contender:
    hyper = HYPER.get(workload.optimizer, [])
    settings = Settings(workload.rows, workload.dimension, workload.optimizer, hyper)
    table = Table(library, settings)
    table.write(-1, weights)
    if workload.optimizer == "adagrad":
        table.write(0, torch.full_like(weights, ACCUMULATOR))
    out = torch.empty_like(gradient)

    def step(batch: int) -> None:
        table.lookup(batches[batch], out)
        table.update([(batches[batch], gradient)], RATE)

    def close() -> None:
        table.check()
        table.close()

    return Contender(lambda i: table.lookup(batches[i], out), step, close)


def with_torch(
    workload: Workload,
    weights: torch.Tensor,
    batches: list[Bags],
    gradient: torch.Tensor,
) -> Contender:
    layer = torch.nn.EmbeddingBag.from_pretrained(
        weights.clone(), freeze=False, mode="sum", sparse=True
    )
    optimizer: Any
    if workload.optimizer == "adagrad":
        optimizer = torch.optim.Adagrad(
            layer.parameters(), RATE, initial_accumulator_value=ACCUMULATOR, eps=0
        )
    elif workload.optimizer == "adam":
        optimizer = torch.optim.SparseAdam(list(layer.parameters()), RATE)
    else:
        optimizer = torch.optim.SGD(layer.parameters(), RATE)
    offsets = [bags.starts[:-1] for bags in batches]

    def forward(i: int) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = layer(batches[i].ids, offsets[i])
        return found

    def step(i: int) -> None:
        optimizer.zero_grad()
        layer(batches[i].ids, offsets[i]).backward(gradient)
        optimizer.step()

    return Contender(forward, step)


def with_fbgemm(
    workload: Workload,
    weights: torch.Tensor,
    batches: list[Bags],
    gradient: torch.Tensor,
) -> Contender:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
        BoundsCheckMode,
        EmbeddingLocation,
    )
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    rule = {"stochastic_gradient_descent": "EXACT_SGD", "adagrad": "EXACT_ADAGRAD"}
    cpu = DEVICE == "cpu"
    place = EmbeddingLocation.HOST if cpu else EmbeddingLocation.DEVICE
    device = ComputeDevice.CPU if cpu else ComputeDevice.CUDA
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(workload.rows, workload.dimension, place, device)],
        optimizer=EmbOptimType[rule.get(workload.optimizer, "ADAM")],
        learning_rate=RATE,
        eps=1e-8 if workload.optimizer == "adam" else 0.0,
        stochastic_rounding=False,
        bounds_check_mode=BoundsCheckMode.NONE,
    )
    module.split_embedding_weights()[0].copy_(weights)
    if workload.optimizer == "adagrad":
        module.split_optimizer_states()[0][0].fill_(ACCUMULATOR)

    def forward(i: int) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = module(batches[i].ids, batches[i].starts)
        return found

    return Contender(
        forward, lambda i: module(batches[i].ids, batches[i].starts).backward(gradient)
    )


def agree(workload: Workload, contenders: dict[str, Contender]) -> list[str]:
    """Who looks up something else after a step, readable."""
    if workload.optimizer == "adam":
        return []
    found = {}
    for name, contender in contenders.items():
        contender.step(0)
        found[name] = contender.forward(0).clone()
    first = found["opwright"]
    return [
        f"{name} is {float((values - first).abs().max()):.2g} off"
        for name, values in found.items()
        if not torch.allclose(values, first, 1e-4, 1e-4)
    ]


@dataclass(frozen=True)
class Result:
    """Milliseconds by (contender, "lookup" or "step") and round; rows of a batch."""

    workload: Workload
    times: dict[tuple[str, str], NDArray[np.float64]]
    rows_met: float
    wrong: list[str]

    def share(self, what: str, copy: float) -> float:
        """Of the copy's bytes a second, by opwright."""
        sizes, row = self.workload.sizes, 4 * self.workload.dimension
        moved = (sizes.count + sizes.samples) * (row + 8.0)
        if what == "step":
            moved += sizes.count * (row + 8.0)
            moved += self.rows_met * row * 2 * (1 + SLOTS[self.workload.optimizer])
        median = float(np.median(self.times["opwright", what]))
        return moved / (median / 1e3) / copy

    def ratio(self, what: str) -> float:
        """How many times as fast as the fastest peer opwright is."""
        of = {name: np.median(t) for (name, w), t in self.times.items() if w == what}
        mine = float(of.pop("opwright"))
        return min(map(float, of.values()), default=float("inf")) / mine

    def cell(self, name: str, what: str) -> str:
        times = self.times.get((name, what))
        if times is None:
            return ""
        low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
        return f"{middle:.3f} ({low:.3f}-{high:.3f})"

    def line(self, copy: float) -> str:
        cells = [str(self.workload.dimension), self.workload.kind]
        for what in ("lookup", "step"):
            cells += [self.cell("opwright", what), f"{self.share(what, copy):.0%}"]
            cells += [self.cell(peer, what) for peer in PEERS]
        return f"| {' | '.join(cells)} |".replace("|  ", "| ")


def measure(library: Library, workload: Workload, missing: dict[str, str]) -> Result:
    """One workload; a peer that is not there or has no such optimizer is left out.

    `missing` says why, and it is not tried again.
    """
    starts = torch.arange(0, workload.sizes.count + 1, workload.sizes.ids_per_sample)
    starts = starts.to(DEVICE)
    batches = [Bags(starts, draw_ids(workload, i)) for i in range(BATCHES)]
    weights = torch.rand(workload.rows, workload.dimension, device=DEVICE) - 0.5
    gradient = torch.randn(workload.sizes.samples, workload.dimension, device=DEVICE)
    contenders = {"opwright": ours(library, workload, weights, batches, gradient)}
    makers = {"torch": with_torch, "FBGEMM": with_fbgemm}
    for name, make in makers.items():
        of_optimizer = f"{name}'s {NAMES[workload.optimizer]}"
        if missing.keys() & {name, of_optimizer}:
            continue
        try:
            contenders[name] = make(workload, weights, batches, gradient)
            contenders[name].forward(0)
        except Exception as error:
            contenders.pop(name, None)
            what = name if isinstance(error, ImportError) else of_optimizer
            words = (str(error).splitlines() or [""])[0].rstrip(".")
            missing[what] = f"{type(error).__name__}: {words}"
    wrong = agree(workload, contenders)
    times: dict[tuple[str, str], list[float]] = {
        (name, what): [] for name in contenders for what in ("lookup", "step")
    }
    turn = 0
    for number in range(workload.sizes.rounds + 2):
        for name, contender in contenders.items():
            for what, call in (("lookup", contender.forward), ("step", contender.step)):
                call(turn % BATCHES)
                took = milliseconds(partial(call, (turn + 1) % BATCHES))
                if (
                    number >= 2
                ):  # By then nothing is made or allocated for the first time.
                    times[name, what].append(took)
                turn += 2
    for contender in contenders.values():
        contender.close()
    met = float(np.mean([len(torch.unique(bags.ids)) for bags in batches]))
    arrays = {key: np.asarray(values) for key, values in times.items()}
    return Result(workload, arrays, met, wrong)


def workloads(sizes: Sizes) -> Iterator[Workload]:
    """What decides comes first."""
    for optimizer, dimensions in (
        ("adagrad", sizes.dimensions),
        ("stochastic_gradient_descent", sizes.other_dimensions),
        ("adam", sizes.other_dimensions),
    ):
        for dimension in dimensions:
            for kind in ("uniform", "Zipf"):
                yield Workload(sizes, dimension, kind, optimizer)


@dataclass(frozen=True)
class Measured:
    sizes: Sizes
    copy: float  # Bytes a second that a copy reads and writes.
    results: list[Result]
    missing: dict[str, str]  # Peers that were not timed, and why.
    left_out: int  # Workloads for which there was no time.

    def lines(self) -> list[str]:
        """Tables in Markdown."""
        sizes = self.sizes
        lines = [
            f"Copy: {self.copy / 1e9:.0f} GB/s. {sizes.samples} samples of "
            f"{sizes.ids_per_sample} ids; milliseconds, medians (and quartiles) of "
            f"{sizes.rounds} rounds; % of the copy's bytes a second.",
            *(f"{name} is not timed: {why}." for name, why in self.missing.items()),
        ]
        if self.left_out:
            lines.append(f"{self.left_out} workloads are left out: no time was left.")
        header = ["D", "ids"]
        for what in ("lookup", "step"):
            header += [what, "%", *(f"{peer}'s {what}" for peer in PEERS)]
        for optimizer, name in NAMES.items():
            rows = [
                r.line(self.copy)
                for r in self.results
                if r.workload.optimizer == optimizer
            ]
            if rows:
                lines += ["", f"{name}:", "", f"| {' | '.join(header)} |"]
                lines += ["|---" * len(header) + "|", *rows]
        return lines

    def targets(self) -> dict[str, tuple[bool, str]]:
        """What is to be reached: whether it is, and the worst of all workloads."""
        found: dict[str, tuple[bool, str]] = {}
        for what, least in TARGETS.items():
            wide = [r for r in self.results if r.workload.dimension >= 64]
            if wide:
                share = min(r.share(what, self.copy) for r in wide)
                name = f"{what}, D >= 64: {least:.0%} of the copy"
                found[name] = share >= least, f"at least {share:.0%}"
            ratio = min((r.ratio(what) for r in self.results), default=float("inf"))
            if ratio < float("inf"):
                ran = {name for r in self.results for name, w in r.times if w == what}
                peers = " and ".join(peer for peer in PEERS if peer in ran)
                name = f"{what}: ahead of {peers}"
                found[name] = ratio >= 1, f"at least {ratio:.2f} times as fast"
        return found


def all_times(
    library: Library,
    sizes: Sizes | None = None,
    deadline: float = float("inf"),
    told: Callable[[str, list[str]], object] = lambda what, wrong: None,
) -> Measured:
    """All workloads until the deadline, by time.monotonic().

    `told` is called with the name of each one and what is wrong with it.
    """
    sizes = sizes or Sizes()
    copy, missing = copy_bandwidth(sizes), dict[str, str]()
    results: list[Result] = []
    left_out = 0
    for workload in workloads(sizes):
        if time.monotonic() > deadline:
            left_out += 1
            continue
        name = f"{NAMES[workload.optimizer]}, D {workload.dimension}, {workload.kind}"
        try:
            results.append(measure(library, workload, missing))
        except Exception as error:  # Memory that runs out ends one workload.
            told(name, [f"{type(error).__name__}: {error}"])
        else:
            told(name, results[-1].wrong)
        if DEVICE != "cpu":
            torch.cuda.empty_cache()
    return Measured(sizes, copy, results, missing, left_out)
