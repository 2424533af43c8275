"""Minibatches of a chip's batch, in Python's numbers.

Nothing here is the library's: the fuzzer holds its calls against it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

DIVISIONS = 64
PAD = np.iinfo(np.int32).max
Array = np.ndarray[Any, Any]
# A number that no batch reaches.
NONE = 2**62


class Chip(NamedTuple):
    """The sizes of a chip's batch."""

    samples: int
    cores: int
    replicas: int
    vocabulary: int

    @property
    def shards(self) -> int:
        return self.replicas * self.cores

    @property
    def each(self) -> int:
        """The samples of a SparseCore."""
        return self.samples // self.cores

    def division(self, row: int) -> int:
        return row // -(-self.vocabulary // DIVISIONS)


class Cut(NamedTuple):
    """What GetMinibatchSplitsWithPhysicalReplica returns."""

    samples: list[int]
    rows: list[int]
    gains: list[float]
    splits: int
    id_counts: list[int]
    max_ids: int
    max_uniques: int


def _middles() -> list[int]:
    """The middle of each part of the divisions, level by level."""
    parts, middles = [range(DIVISIONS)], []
    for part in parts:
        if len(part) > 1:
            half = len(part) // 2
            middles.append(part[half])
            parts += [part[:half], part[half:]]
    return middles


MIDDLES = _middles()


def mask_of(cuts: set[int]) -> int:
    return sum(1 << bit for bit, middle in enumerate(MIDDLES) if middle in cuts)


def ends_of(mask: int) -> list[int]:
    """The ends of the minibatches."""
    cuts = {middle for bit, middle in enumerate(MIDDLES) if mask >> bit & 1}
    return [*sorted(cuts), DIVISIONS]


def cut(
    chip: Chip, batch: Sequence[Array], limits: tuple[int, int] = (NONE, NONE)
) -> Cut:
    """Sorts and cuts samples, rows and gains.

    `limits` are of ids and of distinct rows.
    """
    merged: dict[tuple[int, int, int, int], float] = {}
    for sample, row, gain in zip(*(one.tolist() for one in batch), strict=True):
        key = (sample // chip.each, row % chip.shards, row, sample)
        merged[key] = merged.get(key, 0) + gain
    order = sorted(merged)
    counts = [0] * (chip.cores * chip.shards * DIVISIONS + 1)
    # By SparseCore and shard: the rows of each division, with repetitions.
    requested: dict[tuple[int, int], list[list[int]]] = {}
    for core, shard, row, _ in order:
        division = chip.division(row)
        counts[(core * chip.shards + shard) * DIVISIONS + division + 1] += 1
        empty: list[list[int]] = [[] for _ in range(DIVISIONS)]
        requested.setdefault((core, shard), empty)[division].append(row)
    halved: set[tuple[int, int]] = set()
    cuts: set[int] = set()
    for pair in sorted(requested):
        cuts |= _cuts_of(requested[pair], limits, halved)
    every = [[row for part in parts for row in part] for parts in requested.values()]
    return Cut(
        [sample % chip.each for *_, sample in order],
        [row // chip.shards for _, _, row, _ in order],
        [merged[key] for key in order],
        mask_of(cuts),
        list(accumulate(counts)),
        max(map(len, every), default=0),
        max((len(set(one)) for one in every), default=0),
    )


def _cuts_of(
    parts: list[list[int]], limits: tuple[int, int], halved: set[tuple[int, int]]
) -> set[int]:
    """Where a shard's minibatches begin. Remembers which parts were too large."""

    def fits(begin: int, end: int) -> bool:
        found = [row for part in parts[begin:end] for row in part]
        return len(found) <= limits[0] and len(set(found)) <= limits[1]

    pending = [(0, DIVISIONS)]
    while pending:
        begin, end = pending.pop()
        if end - begin == 1 or ((begin, end) not in halved and fits(begin, end)):
            continue
        halved.add((begin, end))
        middle = (begin + end) // 2
        pending += [(begin, middle), (middle, end)]
    edges = sorted({0, DIVISIONS, *((begin + end) // 2 for begin, end in halved)})
    cuts, begin = set(), 0
    for last, end in pairwise(edges):
        # A cut parts ids from ids.
        if any(parts[begin:last]) and any(parts[last:end]) and not fits(begin, end):
            cuts.add(last)
            begin = last
    return cuts


def wrong_buffers(
    chip: Chip, mask: int, given: list[Array], outputs: list[Array]
) -> str | None:
    """What is wrong with buffers.

    Args:
        chip: the sizes.
        mask: the cuts, joined.
        given: the sorted samples, rows, gains, and the counts.
        outputs: what GetMinibatchesInCsrWithPhysicalReplica returns.
    """
    pointers, *columns, pointers_used, used, minibatches = outputs
    ends, counts = ends_of(mask), given[3].tolist()
    if int(minibatches) != len(ends):
        return f"there must be {len(ends)} minibatches, are {minibatches}"
    stride = -(-chip.shards // 8) * 8
    if int(pointers_used) != chip.cores * len(ends) * stride:
        return f"row_pointers_unpadded_size is {pointers_used}"
    at = number = 0
    for core in range(chip.cores):
        for begin, end in pairwise([0, *ends]):
            for shard in range(stride):
                run = slice(0, 0)
                if shard < chip.shards:
                    first = (core * chip.shards + shard) * DIVISIONS
                    run = slice(counts[first + begin], counts[first + end])
                stop = at + run.stop - run.start
                if int(pointers[number]) != stop:
                    return f"row_pointers[{number}] is {pointers[number]}, not {stop}"
                for column, numbers in zip(columns, given[:3], strict=True):
                    if column[at:stop].tolist() != numbers[run].tolist():
                        return f"the run that ends at {stop} has {column[at:stop]}"
                pads = slice(stop, -(-stop // 8) * 8)
                for column in columns:
                    if set(column[pads].tolist()) - {PAD, float(np.float32(PAD))}:
                        return f"the padding after {stop} is {column[pads]}"
                at, number = pads.stop, number + 1
    if int(used) != at:
        return f"ids_unpadded_size must be {at}, is {used}"
    return None
