"""The way of ids through the SparseCore ops, and what it is held against."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

import opwright  # noqa: F401 (brings the kernels)

raw = tf.raw_ops
PAD = np.iinfo(np.int32).max
DIVISIONS = 64
COMBINERS = ["sum", "mean", "sqrtn"]
Bags = list[list[int]]
Array = np.ndarray[Any, Any]
Triple = tuple[int, int, float]


# ---- Features, and the results of TensorFlow for them.


def bags_of(rng: np.random.Generator, samples: int, vocabulary: int) -> Bags:
    """Some bags are empty; ids repeat, now and then next to each other."""
    sizes = rng.integers(0, 6, samples)
    return [np.sort(rng.integers(0, vocabulary, n)).tolist() for n in sizes]


def flat(bags: Bags) -> tuple[Array, Array]:
    """The bag of each id, and the id."""
    rows = [np.full(len(bag), i) for i, bag in enumerate(bags)]
    return np.concatenate(rows).astype(np.int64), np.concatenate(
        [np.asarray(bag, np.int64) for bag in bags]
    )


def splits_of(bags: Bags) -> Array:
    return np.cumsum([0, *map(len, bags)]).astype(np.int32)


def indices_of(bags: Bags) -> Array:
    return np.array(
        [(i, k) for i, bag in enumerate(bags) for k in range(len(bag))], np.int32
    ).reshape(-1, 2)


def looked_up(table: Array, bags: Bags, weights: Array, combiner: str) -> Array:
    """What tf.nn says; a bag without ids, or of weights that cancel, is zeros."""
    _, ids = flat(bags)
    shape = [len(bags), 9]
    sp_ids, sp_weights = (
        tf.SparseTensor(indices_of(bags).astype(np.int64), x, shape)
        for x in (ids, weights.astype(table.dtype))
    )
    found: Array = tf.nn.safe_embedding_lookup_sparse(
        table, sp_ids, sp_weights, combiner, allow_fast_lookup=True
    ).numpy()
    return found


# ---- The pipeline.


def dealt(table: Array, shards: int) -> Array:
    """Row r at r // shards of shard r % shards, the shards one after another."""
    return np.concatenate([table[s::shards] for s in range(shards)])


def gathered(table: Array, shards: int) -> Array:
    """The inverse of dealt."""
    result = np.empty_like(table)
    for s, shard in enumerate(np.split(table, shards)):
        result[s::shards] = shard
    return result


def listed(bags: Bags, weights: Array | float, cores: int, **changes: Any) -> Any:
    arguments = {
        "indices_or_row_splits": splits_of(bags),
        "values": flat(bags)[1].astype(np.int32),
        "weights": np.float32(weights),
        "sample_count": len(bags),
        "num_sc_per_chip": cores,
        "row_offset": 0,
        "col_offset": 0,
        "col_shift": 0,
        "num_sc_shards": cores,
        "stacked_table_sample_count": len(bags),
        "combiner": "sum",
    }
    return raw.ConvertToListOfSparseCoreCooTensors(**(arguments | changes))


def sort_lists(lists: list[Any], core: int, **changes: Any) -> Any:
    """Sorts what the features `lists` have for a SparseCore."""
    arguments = {
        "row_ids_list": [x.row_ids_list[core] for x in lists],
        "col_ids_list": [x.col_ids_list[core] for x in lists],
        "gains_list": [x.gains_list[core] for x in lists],
        "num_replica": 1,
        "feature_width": 4,
        "max_ids_per_sparse_core": 10_000,
        "max_unique_ids_per_sparse_core": 10_000,
        "table_name": "the_table",
    }
    return raw.SortListOfSparseCoreCooTensors(**(arguments | changes))


def wrapped(sorted_: list[Any], samples: int, **changes: Any) -> Any:
    """Buffers of `samples` samples of a SparseCore."""
    arguments = {
        "sorted_row_ids_list": [x.sorted_row_ids for x in sorted_],
        "sorted_col_ids_list": [x.sorted_col_ids for x in sorted_],
        "sorted_gains_list": [x.sorted_gains for x in sorted_],
        "id_counts_list": [x.id_counts for x in sorted_],
        "splits": np.int64(0),
        "sample_count_per_sc": samples,
        "num_replica": 1,
        "max_minibatches_per_sc": 3,
        "max_ids_per_chip_per_sample": 64,
        "table_vocab_size": 64,
        "feature_width": 4,
        "table_name": "the_table",
        "allow_id_dropping": False,
    }
    return raw.ConvertToSparseCoreCsrWrappedCooTensor(**(arguments | changes))


def buffers(csr: Any) -> dict[str, Any]:
    """What lookups and updates take of them."""
    return {
        "row_pointers": csr.row_pointers,
        "sorted_sample_ids": csr.sorted_sample_ids,
        "sorted_token_ids": csr.sorted_token_ids,
        "sorted_gains": csr.sorted_gains,
        "num_minibatches_per_physical_sparse_core": csr.num_minibatches_per_sc,
    }


def csr_of(
    bags: Bags, weights: Array | float, combiner: str, cores: int, vocabulary: int
) -> dict[str, Any]:
    """One feature of one table on a system of one device."""
    lists = listed(bags, weights, cores, combiner=combiner)
    samples = len(bags) // cores
    return buffers(
        wrapped(
            [
                sort_lists(
                    [lists],
                    core,
                    sample_count_list=[samples],
                    col_offset_list=[0],
                    num_sc_per_chip=cores,
                    table_vocab_size=vocabulary,
                )
                for core in range(cores)
            ],
            samples,
        )
    )


def lookup(
    csr: dict[str, Any], table: Array, samples: int, cores: int, **changes: Any
) -> Array:
    arguments = {
        "embedding_table": table,
        "input_size": samples,
        "quantization_config_low": 0.0,
        "quantization_config_high": 0.0,
        "quantization_config_num_buckets": 0,
        "table_name": "the_table",
        "num_sparsecores_per_device": cores,
    }
    result: Array = raw.XlaSparseDenseMatmulWithCsrInput(
        **(csr | arguments | changes)
    ).numpy()
    return result


def close(
    got: Any, expected: Array, error: float = 1e-6, terms: tuple[Array, ...] = ()
) -> None:
    """The error is relative to the expected values, and to terms that they sum.

    Terms that cancel out leave their rounding to the sum.
    """
    got = np.asarray(got, np.float64)
    assert got.shape == expected.shape
    scale = max(1e-30, *(np.abs(x).max(initial=0) for x in (expected, *terms)))
    assert np.abs(got - expected).max(initial=0) <= error * scale


def coo(feature: Any, ids: Any, weights: Any, samples: int, combiner: str) -> Any:
    return raw.ConvertToCooTensor(
        indices_or_row_splits=np.asarray(feature, np.int32),
        values=np.asarray(ids, np.int32),
        weights=np.asarray(weights, np.float32),
        sample_count=samples,
        combiner=combiner,
    )


# ---- What it leaves.


def read_buffers(
    csr: dict[str, Any], cores: int, shards: int
) -> list[list[list[list[Triple]]]]:
    """[core][minibatch][shard] -> triples, read as the format is defined."""
    pointers, samples, tokens, gains, minibatches = (np.array(x) for x in csr.values())
    stride = -(-shards // 8) * 8
    result: list[list[list[list[Triple]]]] = []
    begin = k = 0
    for _ in range(cores):
        result.append([])
        for _ in range(int(minibatches)):
            runs = []
            for shard in range(stride):
                end = int(pointers[k])
                k += 1
                if shard < shards:
                    run = slice(begin, end)
                    runs.append(
                        list(zip(samples[run], tokens[run], gains[run], strict=True))
                    )
                    begin = -(-end // 8) * 8
                    assert set(samples[end:begin]) | set(tokens[end:begin]) <= {PAD}
                else:
                    assert end == begin
            result[-1].append(runs)
    return result


def divided(
    rng: np.random.Generator, shards: int, division: int
) -> tuple[SimpleNamespace, list[list[list[Triple]]]]:
    """Random sorted triples and their counts, and the same as [shard][division]."""
    runs = [
        [
            [
                (int(rng.integers(0, 8)), d * division + i, float(rng.integers(1, 9)))
                for i in range(int(rng.integers(0, 3)))
            ]
            for d in range(DIVISIONS)
        ]
        for _ in range(shards)
    ]
    everything = [t for shard in runs for part in shard for t in part]
    sizes = [len(part) for shard in runs for part in shard]
    columns = list(zip(*everything, strict=True))
    return (
        SimpleNamespace(
            sorted_row_ids=np.array(columns[0], np.int32),
            sorted_col_ids=np.array(columns[1], np.int32),
            sorted_gains=np.array(columns[2], np.float32),
            id_counts=np.cumsum([0, *sizes]).astype(np.int32),
        ),
        runs,
    )
