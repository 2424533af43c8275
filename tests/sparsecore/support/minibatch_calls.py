"""Calls of the ops that cut batches into minibatches, and batches for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsecore.support.lookups import Array, raw
from sparsecore.support.minibatches import Chip


def common(chip: Chip) -> dict[str, Any]:
    return {
        "program_key": [""],
        "sample_count": chip.samples,
        "num_replica": chip.replicas,
        "feature_width": 4,
        "num_sc_per_chip": chip.cores,
        "table_name": "the_table",
        "mini_batch_splits": "",
    }


def batch_of(rng: np.random.Generator, chip: Chip) -> list[Array]:
    """Ascending samples, rows that repeat, and gains."""
    samples = np.sort(rng.integers(0, chip.samples, chip.samples * 6))
    # Few rows, of which some are next to each other in a division.
    rows = rng.integers(0, chip.vocabulary, max(1, chip.samples))
    rows = rng.choice(np.concatenate([rows, rows[:3] // 2]), len(samples))
    gains = rng.integers(1, 9, len(samples))
    return [samples.astype("i4"), rows.astype("i4"), gains.astype("f4")]


def splits(chip: Chip, samples: Any, rows: Any, gains: Any, /, **changes: Any) -> Any:
    arguments = common(chip) | {
        "row_ids": samples,
        "col_ids": rows,
        "gains": gains,
        "table_vocab_size": chip.vocabulary,
    }
    return raw.GetMinibatchSplitsWithPhysicalReplica(**(arguments | changes))


def packed(chip: Chip, found: Any, masks: Any, /, **changes: Any) -> Any:
    """The buffers of what `splits` found."""
    arguments = common(chip) | {
        "row_ids": found.sorted_row_ids,
        "col_ids": found.sorted_col_ids,
        "gains": found.sorted_gains,
        "splits": masks,
        "id_counts": found.id_counts,
        "max_minibatches_per_sc": 64,
        "max_ids_per_chip_per_sample": 4096,
        "table_vocab_size": chip.vocabulary,
        "mini_batch_in_csr": "",
    }
    del arguments["mini_batch_splits"]
    return raw.GetMinibatchesInCsrWithPhysicalReplica(**(arguments | changes))


def store(chip: Chip, ids: Any, distinct: Any, /, **changes: Any) -> None:
    arguments = common(chip) | {"max_ids": ids, "max_uniques": distinct}
    raw.StoreMinibatchStatisticsInFdo(**(arguments | changes))
