"""Drawn damage of the ops that cut minibatches: calls are refused, or computed right.

Run as a program, with the number of calls and the seed, it makes them in this process:

    PYTHONPATH=tests python -m sparsecore.support.hostile_minibatches 20000 0
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from sparsecore.support.hostile_combiners import REFUSALS, SIZES, damaged
from sparsecore.support.lookups import Array, raw
from sparsecore.support.minibatch_calls import batch_of, packed, splits, store
from sparsecore.support.minibatches import Chip, cut, wrong_buffers

SPLIT_ATTRS = ("sample_count", "num_replica", "num_sc_per_chip", "table_vocab_size")
PACK_ATTRS = (*SPLIT_ATTRS, "max_minibatches_per_sc", "max_ids_per_chip_per_sample")
KEYS: list[Any] = [[""], ["a", "b"], "", [["k"]], np.array([], object)]
INPUTS = ("row_ids", "col_ids", "gains")


def changes_of(
    rng: np.random.Generator, inputs: dict[str, Array], attrs: tuple[str, ...]
) -> dict[str, Any]:
    """Other inputs and attrs; sometimes none."""
    found: dict[str, Any] = {}
    for _ in range(rng.integers(0, 3)):
        kind = rng.random()
        if kind < 0.25:
            name = str(rng.choice(attrs))
            found[name] = int(rng.choice(np.array(SIZES, object)))
        elif kind < 0.35:
            found["program_key"] = KEYS[rng.integers(len(KEYS))]
        else:
            name = str(rng.choice(list(inputs)))
            found[name] = damaged(rng, inputs[name])
    return found


def sizes_of(chip: Chip, changes: dict[str, Any]) -> Chip:
    """The chip that the attrs describe."""
    return Chip(
        changes.get("sample_count", chip.samples),
        changes.get("num_sc_per_chip", chip.cores),
        changes.get("num_replica", chip.replicas),
        changes.get("table_vocab_size", chip.vocabulary),
    )


def call(rng: np.random.Generator) -> None:
    """A batch, damaged or not, through all three ops."""
    cores = int(rng.choice([1, 2, 4]))
    chip = Chip(cores * 4, cores, int(rng.integers(1, 4)), int(rng.integers(1, 200)))
    raw.ShutdownDistributedTPU()
    limits = (int(rng.integers(1, 9)), int(rng.integers(1, 9)))
    store(chip, *limits)
    inputs = dict(zip(INPUTS, batch_of(rng, chip), strict=True))
    changes = changes_of(rng, inputs, SPLIT_ATTRS) if rng.random() < 0.5 else {}
    found = splits(chip, *inputs.values(), **changes)
    chip = sizes_of(chip, changes)
    given = [np.asarray(changes.get(name, inputs[name])) for name in INPUTS]
    expected = cut(chip, given, limits)
    assert found.sorted_row_ids.numpy().tolist() == expected.samples
    assert found.sorted_col_ids.numpy().tolist() == expected.rows
    assert found.id_counts.numpy().tolist() == expected.id_counts
    assert int(found.splits) == expected.splits
    sorted_ = {
        "row_ids": found.sorted_row_ids.numpy(),
        "col_ids": found.sorted_col_ids.numpy(),
        "gains": found.sorted_gains.numpy(),
        "id_counts": found.id_counts.numpy(),
        "splits": np.array([found.splits, rng.integers(0, 8)], np.int64),
    }
    changes = {} if changes else changes_of(rng, sorted_, PACK_ATTRS)
    one = SimpleNamespace(**{f"sorted_{key}": x for key, x in sorted_.items()})
    one.id_counts = sorted_["id_counts"]
    masks = changes.pop("splits", sorted_["splits"])
    buffers = packed(chip, one, masks, **changes)
    mask = int(np.bitwise_or.reduce(masks))
    names = (*INPUTS, "id_counts")
    given = [np.asarray(changes.get(name, sorted_[name])) for name in names]
    arrays = [np.array(x) for x in buffers]
    wrong = wrong_buffers(sizes_of(chip, changes), mask, given, arrays)
    assert wrong is None or np.isnan(given[2]).any(), wrong


def run(calls: int, seed: int) -> int:
    """Makes calls, and returns how many were refused."""
    refused = 0
    for number in range(calls):
        try:
            call(np.random.default_rng([seed, number]))
        except REFUSALS:
            refused += 1
    return refused


if __name__ == "__main__":
    COUNT, SEED = int(sys.argv[1]), int(sys.argv[2])
    print(f"{run(COUNT, SEED)} of {COUNT} calls were refused")
