"""Times of full steps of the CUDA store: many tables, ids from the host, by kernel.

tools/gpu_check.py runs this before embedding_times. A step is what TensorFlow's ops
do: a batch of ids is enqueued in the memory of the host and copied to the GPU, all
tables are looked up, and all are updated. Batches are enqueued ahead, so that the GPU
is timed and not the host. The time that the host needs to enqueue one is printed too.

A lookup moves 4 * D bytes for each id and output. An update moves 4 * D for each id,
whose gradient is read. It also moves every row that is met, with its accumulator, once
from and once to memory. Percents compare these bytes with those that a copy within the
GPU moves in the same time.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from embedding_times import milliseconds
from numpy.typing import NDArray

from gpu.support.backend import DEVICE, Library

_P = ctypes.c_void_p
# Of the copy's bytes a second, for 26 tables with D >= 64: by ids a sample.
TARGETS = {20: {"lookup": 0.75, "step": 0.6}, 1: {"lookup": 0.45, "step": 0.45}}
# What work is for, by a part of the profiler's name for it: kernels as C++ writes them,
# "void opwright::embedding::cuda::Run<opwright::embedding::cuda::Lookup<true> >(...)",
# and "Memcpy HtoD (Pinned -> Device)".
KINDS = {
    "::Lookup<": "lookup",
    "::CheckGradients": "check",
    "::Expand": "expand",
    "::DeviceRadixSort": "sort",
    "::Update": "update",
    "::Combine": "combine",
    "Memcpy HtoD": "copy of ids",
}


@dataclass(frozen=True)
class Workload:
    tables: int
    samples: int
    ids_per_sample: int
    dimension: int
    rows: int

    @property
    def name(self) -> str:
        return f"{self.tables} tables, L = {self.ids_per_sample}, D {self.dimension}"

    @property
    def count(self) -> int:
        """Ids of one table."""
        return self.samples * self.ids_per_sample


WORKLOADS = tuple(
    Workload(tables, samples, length, dimension, 1 << 20)
    for dimension in (64, 128)
    for tables, samples in ((26, 65536), (200, 8192))
    for length in (20, 1)
)


class Steps:
    """An engine with its tables on the current device, on torch's current stream."""

    def __init__(self, library: Library, workload: Workload) -> None:
        self.library, self.workload = library, workload
        self.handle = _P()
        stream = 0 if DEVICE == "cpu" else torch.cuda.current_stream().cuda_stream
        shape = (workload.tables, workload.rows, workload.dimension, workload.samples)
        self._call(
            "create",
            *shape,
            workload.ids_per_sample,
            stream,
            ctypes.byref(self.handle),
        )
        size = (workload.tables, workload.samples, workload.dimension)
        self.outputs = torch.empty(size, device=DEVICE)
        self.gradients = torch.randn(size, device=DEVICE) / 16
        random = np.random.default_rng(workload.tables)
        self.batches = [
            random.integers(0, workload.rows, (workload.tables, workload.count))
            for _ in range(3)
        ]

    def _call(self, name: str, *arguments: object) -> None:
        self.library.call(name, *arguments, of="steps")

    def _with_arrays(self, name: str, addresses: list[int]) -> None:
        self._call(name, self.handle, (_P * len(addresses))(*addresses))

    def enqueue(self, number: int) -> None:
        batch = self.batches[number % len(self.batches)]
        self._with_arrays("enqueue", [table.ctypes.data for table in batch])

    def receive(self) -> None:
        self._with_arrays("receive", [table.data_ptr() for table in self.outputs])

    def send(self) -> None:
        self._with_arrays("send", [table.data_ptr() for table in self.gradients])

    def step(self) -> None:
        self.receive()
        self.send()

    def close(self) -> None:
        self.library.native.opwright_steps_destroy(self.handle)


def settle() -> None:
    if DEVICE != "cpu":
        torch.cuda.synchronize()


def by_kernel(call: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of the GPU's work by what it is for; empty on a CPU."""
    if DEVICE == "cpu":
        return {}
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    # What is profiled first pays for the profiler's own start.
    for _ in range(2):
        settle()
        with torch.profiler.profile(activities=kinds) as profile:
            call()
            settle()
    return by_kind(profile.events() or [])


def kind_of(name: str) -> str:
    return next((kind for part, kind in KINDS.items() if part in name), "other")


def by_kind(events: Iterable[Any]) -> dict[str, float]:
    """Milliseconds of a profile's work on the device, by what it is for.

    The profiler tells of the host's calls of CUDA's runtime too: they are no work of
    the device, and some have the time of the kernel that they launch.
    """
    found: dict[str, float] = {}
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kind = kind_of(event.name)
            took = event.time_range.elapsed_us() / 1e3
            found[kind] = found.get(kind, 0.0) + took
    return found


@dataclass(frozen=True)
class Result:
    """Milliseconds: of lookup and step by round, of the host, of one step's kernels.

    `met` is how many rows of all tables a batch has, `copied` the bytes of its ids.
    """

    workload: Workload
    times: dict[str, NDArray[np.float64]]
    host: float
    kernels: dict[str, float] = field(default_factory=dict)
    met: float = 0.0

    @property
    def copied(self) -> int:
        """Of ids; and of offsets, which a sample with one id has not."""
        length, samples = self.workload.ids_per_sample, self.workload.samples
        offsets = 0 if length == 1 else samples + 1
        return 4 * self.workload.tables * (samples * length + offsets)

    def share(self, what: str, copy: float) -> float:
        """Of the copy's bytes a second."""
        one, row = self.workload, 4.0 * self.workload.dimension
        moved = one.tables * (one.count + one.samples) * row
        if what == "step":
            moved += one.tables * one.count * row + self.met * row * 4
        return moved / (float(np.median(self.times[what])) / 1e3) / copy

    def limit(self) -> str:
        """What takes the time of a step, in a sentence."""
        step = float(np.median(self.times["step"]))
        if self.host > step:
            return (
                f"The host limits {self.workload.name}: it takes {self.host:.2f} ms to "
                f"enqueue what the GPU is done with in {step:.2f} ms."
            )
        if not self.kernels:
            return f"The profile of {self.workload.name} has no times of kernels."
        work = dict(self.kernels)
        copy = work.pop("copy of ids", 0.0)
        if copy > step:
            return (
                f"The copy of ids limits {self.workload.name}: it takes {copy:.2f} ms, "
                f"the rest of a step {step:.2f} ms."
            )
        busy = sum(work.values())
        ranked = sorted(work.items(), key=lambda item: -item[1])
        parts = ", ".join(f"{kind} {took / busy:.0%}" for kind, took in ranked[:3])
        idle = max(0.0, 1 - busy / step)
        return f"The GPU limits {self.workload.name}: {parts}; it waits {idle:.0%}."


def measure(library: Library, workload: Workload, rounds: int) -> Result:
    steps = Steps(library, workload)
    try:
        ahead = 2
        for number in range(ahead):
            steps.enqueue(number)
        times: dict[str, list[float]] = {"lookup": [], "step": []}
        host: list[float] = []
        for number in range(rounds + 3):
            settle()
            lookup = milliseconds(steps.receive)
            update = milliseconds(steps.send)
            began = time.perf_counter()
            steps.enqueue(number + ahead)
            if number >= 3:  # By then nothing is made or allocated for the first time.
                host.append((time.perf_counter() - began) * 1e3)
                times["lookup"].append(lookup)
                times["step"].append(lookup + update)

        def profiled() -> None:
            steps.enqueue(0)
            steps.step()

        kernels = by_kernel(profiled)
    finally:
        steps.close()
    met = np.mean([sum(len(np.unique(t)) for t in batch) for batch in steps.batches])
    arrays = {what: np.asarray(values) for what, values in times.items()}
    return Result(workload, arrays, float(np.median(host)), kernels, float(met))


def lines(results: list[Result], copy: float) -> list[str]:
    """A table in Markdown, and what limits."""
    if not results:
        return []
    kinds = list(dict.fromkeys(KINDS.values()))
    header = ["tables", "samples", "L", "D", "MB of ids", "enqueued in", "lookup", "%"]
    header += ["step", "%", *kinds]
    table = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for one in results:
        workload = one.workload
        shape = (
            workload.tables,
            workload.samples,
            workload.ids_per_sample,
            workload.dimension,
        )
        cells = [*map(str, shape), f"{one.copied / 1e6:.1f}", f"{one.host:.2f}"]
        for what in ("lookup", "step"):
            took = float(np.median(one.times[what]))
            cells += [f"{took:.3f}", f"{one.share(what, copy):.0%}"]
        cells += [
            f"{one.kernels[kind]:.3f}" if kind in one.kernels else "" for kind in kinds
        ]
        table.append(f"| {' | '.join(cells)} |".replace("|  ", "| "))
    return [
        "Steps of many tables with Adagrad, milliseconds (medians); then of one step's "
        "kernels and copies:",
        "",
        *table,
        "",
        *(f"- {one.limit()}" for one in results),
        "",
    ]


def targets(results: list[Result], copy: float) -> Iterator[tuple[str, bool, str]]:
    """What is to be reached, whether it is, and the worst of all workloads."""
    for length, shares in TARGETS.items():
        of_length = [
            one
            for one in results
            if one.workload.tables == 26
            and one.workload.ids_per_sample == length
            and one.workload.dimension >= 64
        ]
        for what, least in shares.items():
            if of_length:
                share = min(one.share(what, copy) for one in of_length)
                name = f"{what} of 26 tables, L = {length}: {least:.0%} of the copy"
                yield name, share >= least, f"at least {share:.0%}"


def all_times(
    library: Library,
    workloads: tuple[Workload, ...] = WORKLOADS,
    rounds: int = 10,
    deadline: float = float("inf"),
    failed: Callable[[str], object] = print,
) -> list[Result]:
    """All workloads until the deadline, by time.monotonic(); `failed` gets errors."""
    results = []
    for workload in workloads:
        if time.monotonic() > deadline:
            failed(f"{workload.name}: no time was left")
            continue
        try:
            results.append(measure(library, workload, rounds))
        except Exception as error:  # Memory that runs out ends one workload.
            failed(f"{workload.name}: {type(error).__name__}: {error}")
        if DEVICE != "cpu":
            torch.cuda.empty_cache()
    return results
