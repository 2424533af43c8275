"""Times of the CUDA backend, beside torch's EmbeddingBag and its Adagrad.

tests/gpu/check.py runs this after its checks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from backend import Bags, Library, Settings, Table

DIMENSIONS = [16, 32, 64, 128, 256, 512]
SAMPLES, IDS_PER_SAMPLE = 65536, 10
COUNT = SAMPLES * IDS_PER_SAMPLE
TABLE_BYTES = 4 << 30


def seconds(call: Callable[[], object]) -> float:
    """The median of some runs."""
    for _ in range(3):
        call()
    times = []
    for _ in range(10):
        begin, end = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return float(np.median(times))


def copy_bandwidth() -> float:
    """Bytes a second that a copy reads and writes."""
    half = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(half)
    return 2 * len(half) / seconds(lambda: other.copy_(half))


def draw_ids(kind: str, rows: int) -> torch.Tensor:
    if kind == "uniform":
        return torch.randint(0, rows, (COUNT,), device="cuda")
    drawn = np.minimum(np.random.default_rng(2).zipf(1.15, COUNT), 1 << 62)
    # Hot rows lie anywhere in a table.
    spread = drawn.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return torch.from_numpy((spread % np.uint64(rows)).astype(np.int64)).cuda()


def ours(
    library: Library, rows: int, dimension: int, bags: Bags, g: torch.Tensor
) -> tuple[float, float]:
    """Seconds of a lookup and of an update."""
    table = Table(library, Settings(rows, dimension, "adagrad"))
    out = torch.empty_like(g)
    forward = seconds(lambda: table.lookup(bags, out))
    update = seconds(lambda: table.update([(bags, g)], 0.01))
    table.check()
    table.close()
    return forward, update


def theirs(
    rows: int, dimension: int, bags: Bags, g: torch.Tensor
) -> tuple[float, float]:
    """Seconds of torch's lookup, and of its lookup, backward pass and update."""
    layer = torch.nn.EmbeddingBag(
        rows, dimension, mode="sum", sparse=True, device="cuda"
    )
    adagrad = torch.optim.Adagrad(layer.parameters(), 0.01)
    offsets = bags.starts[:-1]

    def step() -> None:
        adagrad.zero_grad()
        layer(bags.ids, offsets).backward(g)
        adagrad.step()

    with torch.no_grad():
        forward = seconds(lambda: layer(bags.ids, offsets))
    return forward, seconds(step)


def table_of_times(library: Library) -> list[str]:
    """Lines of Markdown."""
    copy = copy_bandwidth()
    lines = [
        f"Copy: {copy / 1e9:.0f} GB/s. {SAMPLES} samples of {IDS_PER_SAMPLE} ids, "
        "Adagrad. %: bytes of rows, ids and outputs a second, of the copy's.",
        "",
        "| D | ids | lookup ms | % | torch ms | update ms | % | step ms | torch ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    starts = torch.arange(0, COUNT + 1, IDS_PER_SAMPLE, device="cuda")
    for dimension in DIMENSIONS:
        rows = min(8 << 20, TABLE_BYTES // (dimension * 4))
        for kind in ("uniform", "Zipf"):
            bags = Bags(starts, draw_ids(kind, rows))
            g = torch.randn(SAMPLES, dimension, device="cuda")
            forward, update = ours(library, rows, dimension, bags, g)
            torch_forward, torch_step = theirs(rows, dimension, bags, g)
            row = dimension * 4
            looked_up = (COUNT + SAMPLES) * (row + 8)
            # Weights and accumulators of each row are read and written once.
            updated = COUNT * (row + 8) + len(torch.unique(bags.ids)) * 4 * row
            cells = [
                str(dimension),
                kind,
                f"{forward * 1e3:.3f}",
                f"{looked_up / forward / copy:.0%}",
                f"{torch_forward * 1e3:.3f}",
                f"{update * 1e3:.3f}",
                f"{updated / update / copy:.0%}",
                f"{(forward + update) * 1e3:.3f}",
                f"{torch_step * 1e3:.3f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return lines
