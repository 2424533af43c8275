"""Buffers of a lookup with the positions of ids, which no public op makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsecore.support.minibatches import PAD

Array = np.ndarray[Any, Any]


def ordered_csr(bags: list[list[int]], cores: int) -> dict[str, Array]:
    """One feature of one table on one device, with the positions of ids in samples."""
    pointers: list[int] = []
    columns: tuple[list[int], list[int], list[int]] = ([], [], [])
    each = len(bags) // cores
    for core in range(cores):
        for shard in range(-(-cores // 8) * 8):
            for sample in range(each):
                for position, row in enumerate(bags[core * each + sample]):
                    if row % cores == shard:
                        for column, x in zip(
                            columns, (sample, row // cores, position), strict=True
                        ):
                            column.append(x)
            pointers.append(len(columns[0]))
            for column in columns:
                column += [PAD] * (-len(column) % 8)
    names = ("sorted_sample_ids", "sorted_token_ids", "sorted_pos_ids")
    return {
        "row_pointers": np.array(pointers, np.int32),
        **dict(zip(names, (np.array(x, np.int32) for x in columns), strict=True)),
        "sorted_gains": np.ones(len(columns[0]), np.float32),
    }
