"""The checks of the CUDA backend, against float64: what gpu_check.py runs on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from embedding.support import reference
from gpu.support.backend import (
    DEVICE,
    INVALID_ARGUMENT,
    OUT_OF_MEMORY,
    Bags,
    Library,
    RefusedError,
    Settings,
    Table,
)

# The backend has no rules whose slots are one value a row.
RULES = {name: one for name, one in reference.RULES.items() if not one.row_wise}
# Of the checks, in the order in which they run.
NAMES = (
    "lookups",
    "updates",
    "the same bits",
    "bad input, out of memory",
    "shards",
    "2^32 rows",
)
DIMENSIONS = [1, 2, 3, 4, 7, 16, 31, 64, 100, 128, 129, 512, 1023, 1024]


def gpu(values: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values).to(DEVICE)


def unaligned(values: NDArray[Any]) -> torch.Tensor:
    """The same values, one float behind where a vector could begin."""
    buffer = torch.empty(values.size + 1, device=DEVICE)
    buffer[1:] = gpu(values.ravel())
    return buffer[1:].view(values.shape)


def coefficients(bags: Bags) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of each id: its bag, and what its row is multiplied by."""
    starts = bags.starts.cpu().numpy()
    bag = np.repeat(np.arange(bags.samples), np.diff(starts))
    factor = np.ones(len(bag), np.float32)
    if bags.scales is not None:
        factor = bags.scales.cpu().numpy()[bag]
    if bags.weights is not None:
        factor = factor * bags.weights.cpu().numpy()
    return bag, factor.astype(np.float64)


def near(got: torch.Tensor, expected: NDArray[Any], tolerance: float = 2e-4) -> bool:
    difference = np.abs(got.cpu().numpy() - expected)
    return bool(np.all(difference <= tolerance * (1 + np.abs(expected))))


def step_reference(
    settings: Settings,
    hyper: dict[str, float],
    state: list[NDArray[Any]],
    sources: list[tuple[Bags, torch.Tensor]],
    rate: float,
) -> None:
    """The state's rows after a step, in place, in float64."""
    h = SimpleNamespace(**hyper)
    rule = RULES[settings.optimizer].update
    ids, all_gradients = [], []
    for bags, given in sources:
        bag, factor = coefficients(bags)
        ids.append(bags.ids.cpu().numpy())
        all_gradients.append(factor[:, None] * given.cpu().numpy().astype(float)[bag])
    at, gradients = np.concatenate(ids), np.concatenate(all_gradients)

    def update(rows: NDArray[Any], g: NDArray[Any]) -> None:
        w, *slots = (part[rows] for part in state)
        parts = rule(h, rate, g, w - settings.decay * w, *slots)
        for part, values in zip(state, parts, strict=True):
            part[rows] = values

    if not settings.accumulate:
        for i in range(len(at)):
            update(at[i : i + 1], gradients[i : i + 1])
        return
    rows = np.arange(settings.rows) if settings.every_row else np.unique(at)
    sums = np.zeros((len(rows), gradients.shape[1]))
    np.add.at(sums, np.searchsorted(rows, at), gradients)
    update(rows, sums)


def refusal(call: Callable[[], object]) -> tuple[int, str]:
    try:
        call()
    except RefusedError as error:
        return error.status, str(error)
    return 0, ""


class Checks:
    """Draws, and what failed of them; `quick`: a few small ones, for a sanitizer."""

    def __init__(self, library: Library, quick: bool = False) -> None:
        self.library, self.quick = library, quick
        self.random = np.random.default_rng(1)
        self.failures: list[str] = []
        # An odd one, one of vectors, one of several blocks.
        self.dimensions = [7, 64, 512] if quick else DIMENSIONS

    def draw(self, rows: int, samples: int, combiner: str, hot: float = 0.0) -> Bags:
        lengths = self.random.integers(0, 9, samples)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        ids = self.random.integers(0, rows, starts[-1])
        ids[self.random.random(len(ids)) < hot] = rows // 2
        weights = self.random.uniform(0.5, 2, len(ids)).astype(np.float32)
        bag = np.repeat(np.arange(samples), lengths)
        scales = None
        if combiner != "sum":
            power = 1 if combiner == "mean" else 2
            total: NDArray[Any] = np.bincount(bag, weights**power, samples)
            total = total if combiner == "mean" else np.sqrt(total)
            scales = gpu(reference.quotient(np.ones(samples), total).astype(np.float32))
        return Bags(gpu(starts), gpu(ids), gpu(weights), scales)

    def expect(self, what: str, good: bool) -> None:
        if not good:
            self.failures.append(what)
            print("FAILED:", what)

    def all(self) -> dict[str, Callable[[], str]]:
        """Each returns how much it checked; what is wrong is in `failures`."""
        checks = (
            lambda: f"{self.lookups()} lookups",
            lambda: f"{self.updates()} updates",
            self.determinism,
            self.refusals,
            self.shards,
            self.many_rows,
        )
        return dict(zip(NAMES, checks, strict=True))

    def lookups(self) -> int:
        draws = 0
        for dimension in self.dimensions:
            for combiner in ("sum", "mean", "sqrtn"):
                for quantization in (None, (-0.9, 0.9, 33)):
                    rows = int(self.random.integers(1, 3000))
                    settings = Settings(rows, dimension, quantization=quantization)
                    settings.chunk_bytes = int(self.random.integers(1, 1 << 18))
                    table = Table(self.library, settings)
                    values = self.random.uniform(-1, 1, (rows, dimension))
                    values = values.astype(np.float32)
                    table.write(-1, gpu(values))
                    bags = self.draw(rows, 301, combiner)
                    seen = values.astype(np.float64)
                    if quantization:
                        low, high, buckets = quantization
                        width = (high - low) / (buckets - 1)
                        place = (np.clip(seen, low, high) - low) / width + 0.5
                        # Rounding decides these: they become what is in no doubt.
                        doubt = np.abs(place - np.round(place)) < 1e-3
                        seen = np.floor(place) * width + low
                        values[doubt] = seen[doubt] = np.float32(low)
                        table.write(-1, gpu(values))
                    bag, factor = coefficients(bags)
                    expected = reference.looked_up(
                        seen, bag, bags.ids.cpu().numpy(), factor, bags.samples
                    )
                    what = f"lookup of D {dimension}, {combiner}, {quantization}"
                    self.expect(what, near(table.lookup(bags), expected))
                    out = unaligned(np.zeros_like(expected, dtype=np.float32))
                    self.expect(
                        what + ", unaligned", near(table.lookup(bags, out), expected)
                    )
                    table.check()
                    table.close()
                    draws += 2
        return draws

    def updates(self) -> int:
        draws = 0
        for optimizer, rule in RULES.items():
            for draw_number in range(2 if self.quick else 8):
                hyper = rule.draw_hyper(self.random)
                dimension = int(self.random.choice(self.dimensions))
                settings = Settings(
                    int(self.random.integers(1, 2000)),
                    dimension,
                    optimizer,
                    list(hyper.values()),
                    decay=0.01 * (draw_number % 2),
                    accumulate=draw_number % 4 != 3,
                    every_row=optimizer in ("adam", "lion") and draw_number % 4 == 1,
                    chunk_bytes=int(self.random.integers(1, 1 << 20)),
                )
                table = Table(self.library, settings)
                shape = (settings.rows, dimension)
                slots = len(rule.slots)
                state = []
                for slot in range(-1, slots):
                    values = self.random.uniform(0.5, 1.5, shape).astype(np.float32)
                    if optimizer == "centered_rms_prop" and slot == 2:
                        values /= 10  # The square of a mean is below that of squares.
                    table.write(slot, gpu(values))
                    state.append(values.astype(np.float64))
                for step in range(3):
                    sources = []
                    for _ in range(2):
                        hot = 0.9 if draw_number % 3 == 0 else 0.0
                        samples = 60 if not settings.accumulate else 600
                        bags = self.draw(settings.rows, samples, "mean", hot)
                        g = self.random.uniform(-1, 1, (samples, dimension))
                        place = unaligned if draw_number == 5 else gpu
                        sources.append((bags, place(g.astype(np.float32))))
                    rate = 20.0 + step if optimizer == "frequency_estimator" else 0.05
                    table.update(sources, rate)
                    step_reference(settings, hyper, state, sources, rate)
                table.check()
                for slot in range(-1, slots):
                    good = near(table.read(slot), state[slot + 1], 2e-3)
                    # Where a threshold or a sign decides, a rounding may tip it.
                    if not good and optimizer in ("lion", "frequency_estimator"):
                        off = table.read(slot).cpu().numpy() - state[slot + 1]
                        good = bool(np.mean(np.abs(off) > 2e-3) < 1e-3)
                    self.expect(
                        f"update {draw_number} by {optimizer}, slot {slot}", good
                    )
                table.close()
                draws += 1
        return draws

    def determinism(self) -> str:
        """Hot rows of every length: twice the same step leaves the same bits."""
        bits = []
        rows, dimension, samples = 5000, 96, 2000 if self.quick else 40000
        ids = (self.random.zipf(1.2, samples * 4) % rows).astype(np.int64)
        starts = np.arange(0, samples * 4 + 1, 4, dtype=np.int64)
        bags = Bags(gpu(starts), gpu(ids))
        g = torch.randn(samples, dimension, device=DEVICE)
        for _ in range(3):
            table = Table(self.library, Settings(rows, dimension, "adagrad"))
            for _ in range(3):
                table.update([(bags, g)], 0.1)
            table.check()
            bits.append(torch.cat([table.read(-1), table.read(0)]))
            table.close()
        self.expect(
            "the same bits", all(torch.equal(bits[0], other) for other in bits[1:])
        )
        return f"3 times 3 steps of {len(ids)} ids"

    def refusals(self) -> str:
        table = Table(self.library, Settings(100, 8, "adagrad"))
        table.write(-1, torch.ones(100, 8, device=DEVICE))
        good = self.draw(100, 50, "sum")
        g = torch.ones(50, 8, device=DEVICE)
        for value in (-1, 100, 1 << 40):
            bad = Bags(good.starts, good.ids.clone(), good.weights)
            bad.ids[17] = value
            bad.ids[33] = value
            table.lookup(bad)
            status, words = refusal(table.check)
            found = status == INVALID_ARGUMENT and "17 of source 0" in words
            self.expect(f"id {value} in a lookup: {words}", found)
            table.update([(good, g), (bad, g)], 0.1)
            status, words = refusal(table.check)
            found = status == INVALID_ARGUMENT and "17 of source 1" in words
            self.expect(f"id {value} in an update: {words}", found)
        for bad_value in (float("nan"), float("inf")):
            broken = g.clone()
            broken[7, 3] = bad_value
            table.update([(good, broken)], 0.1)
            status, words = refusal(table.check)
            found = status == INVALID_ARGUMENT and "59 of source 0" in words
            self.expect(f"gradient {bad_value}: {words}", found)
        falling = Bags(good.starts.flip(0).contiguous(), good.ids, good.weights)
        table.update([(falling, g)], 0.1)
        self.expect("starts that fall", refusal(table.check)[0] == INVALID_ARGUMENT)
        self.expect("a refused step changes nothing", bool((table.read(-1) == 1).all()))
        large = Settings(1 << 40, 64, "adam")
        status, words = refusal(lambda: Table(self.library, large))
        self.expect(f"out of memory: {words}", status == OUT_OF_MEMORY)
        table.update([(good, g)], 0.1)
        table.check()
        self.expect("a good step after all", not bool((table.read(-1) == 1).all()))
        table.close()
        return words

    def shards(self) -> str:
        for dimension in (1, 5, 64):
            settings = Settings(1000, dimension, "adam", chunk_bytes=9000)
            table = Table(self.library, settings)
            values = torch.rand(1000, dimension, device=DEVICE)  # Velocities.
            for shard in range(3):
                table.write(1, values[shard::3].contiguous(), shard, 3)
            self.expect(f"shards of D {dimension}", torch.equal(table.read(1), values))
            part = table.read(1, 333, 2, 3)[:100]
            self.expect(
                f"a shard of D {dimension}", torch.equal(part, values[2::3][:100])
            )
            self.expect("another slot", not bool(table.read(0).any()))
            table.close()
        return "3 tables"

    def many_rows(self) -> str:
        """More rows than 32 bits can number, in several allocations."""
        rows = (1 << 32) + 1000
        if self.quick or DEVICE == "cpu":
            return "not checked"
        if torch.cuda.mem_get_info()[0] < rows * 4 + (4 << 30):
            return "not checked: too little memory"
        table = Table(self.library, Settings(rows, 1))
        ids = torch.tensor([0, 1 << 31, 999, rows - 1, 1 << 32], device=DEVICE)
        bags = Bags(torch.arange(6, device=DEVICE), ids)
        g = torch.arange(1.0, 6.0, device=DEVICE)[:, None].contiguous()
        table.update([(bags, g)], 1.0)
        self.expect("2^32 rows", torch.equal(table.lookup(bags), -g))
        table.check()
        table.close()
        return f"{rows} rows"
