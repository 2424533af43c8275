"""SparseCore ops on the CPU, against their definitions in NumPy and tf.nn's lookups."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import embedding_reference as reference
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.tpu_embedding_v3 import TPUEmbeddingV2

import opwright  # noqa: F401 (brings the kernels)

raw = tf.raw_ops
PAD = np.iinfo(np.int32).max
DIVISIONS = 64
COMBINERS = ["sum", "mean", "sqrtn"]
Bags = list[list[int]]
Array = np.ndarray[Any, Any]
Triple = tuple[int, int, float]


# ---- Features, and what TensorFlow makes of them.


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
    """One feature of one table on a device that is a whole system."""
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


def close(got: Any, expected: Array, error: float = 1e-6) -> None:
    got = np.asarray(got, np.float64)
    assert got.shape == expected.shape
    scale = max(np.abs(expected).max(initial=0), 1e-30)
    assert np.abs(got - expected).max(initial=0) <= error * scale


# ---- From features to triples.


def coo(feature: Any, ids: Any, weights: Any, samples: int, combiner: str) -> Any:
    return raw.ConvertToCooTensor(
        indices_or_row_splits=np.asarray(feature, np.int32),
        values=np.asarray(ids, np.int32),
        weights=np.asarray(weights, np.float32),
        sample_count=samples,
        combiner=combiner,
    )


def coo_reference(
    bags: Bags, weights: Array, combiner: str
) -> tuple[list[int], list[int], list[float]]:
    samples, ids = flat(bags)
    gains = reference.scales(combiner, samples, weights.astype(np.float64), len(bags))
    triples: list[list[Any]] = []
    for sample, id_, gain in zip(samples, ids, gains, strict=True):
        if triples and triples[-1][:2] == [sample, id_]:
            triples[-1][2] += gain
        else:
            triples.append([sample, id_, gain])
    return tuple(list(x) for x in zip(*triples, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("combiner", COMBINERS)
def test_coo_of_every_form(combiner: str) -> None:
    rng = np.random.default_rng(1)
    bags = bags_of(rng, 40, 6)
    weights = rng.uniform(0.5, 2, sum(map(len, bags))).astype(np.float32)
    values = flat(bags)[1].astype(np.int32)
    expected = coo_reference(bags, weights, combiner)
    assert len(expected[0]) < len(values), "some ids are to repeat"
    for form in (splits_of(bags), indices_of(bags)):
        got = coo(form, values, weights, 40, combiner)
        assert got.row_ids.numpy().tolist() == expected[0]
        assert got.col_ids.numpy().tolist() == expected[1]
        close(got.gains, np.array(expected[2]))
    # One id a sample: the combiner leaves nothing of positive weights but with a sum.
    ids = rng.integers(0, 9, 40).astype(np.int32)
    dense = rng.uniform(0.5, 2, 40).astype(np.float32)
    got = coo([], ids, dense, 40, combiner)
    assert got.row_ids.numpy().tolist() == list(range(40))
    assert got.col_ids.numpy().tolist() == ids.tolist()
    close(got.gains, dense if combiner == "sum" else np.ones(40))


@pytest.mark.parametrize("combiner", COMBINERS)
def test_coo_with_one_weight_and_with_none_that_counts(combiner: str) -> None:
    ids = np.array([3, 3, 5, 1], np.int32)
    splits = np.array([0, 3, 3, 4], np.int32)
    for weight in (2.0, 0.0):
        got = coo(splits, ids, weight, 3, combiner)
        expected = coo_reference([[3, 3, 5], [], [1]], np.full(4, weight), combiner)
        assert got.col_ids.numpy().tolist() == [3, 5, 1]
        close(got.gains, np.array(expected[2]))
    # Weights whose sum is 0 leave gains of 0 to a mean, and to it alone.
    got = coo([0, 2], [1, 2], [1, -1], 1, combiner)
    scale = {"sum": 1, "mean": 0, "sqrtn": 2**-0.5}[combiner]
    close(got.gains, np.array([scale, -scale]))


@pytest.mark.parametrize("combiner", COMBINERS)
def test_list_of_coo_tensors(combiner: str) -> None:
    rng = np.random.default_rng(2)
    cores, replicas, samples, offset, stacked = 4, 2, 24, 8, 48
    shards = cores * replicas
    bags = bags_of(rng, samples, 64)
    weights = rng.uniform(0.5, 2, sum(map(len, bags))).astype(np.float32)
    got = listed(
        bags,
        weights,
        cores,
        row_offset=offset,
        col_offset=128,
        col_shift=3,
        num_sc_shards=shards,
        stacked_table_sample_count=stacked,
        combiner=combiner,
    )
    rows, ids, gains = map(np.array, coo_reference(bags, weights, combiner))
    each = samples // cores
    for core in range(cores):
        mine = rows // each == core
        expected = rows[mine] % each + offset // cores + core * stacked // cores
        assert got.row_ids_list[core].numpy().tolist() == expected.tolist()
        v = ids[mine]
        expected = (v + 3) % shards + v - v % shards + 128
        assert got.col_ids_list[core].numpy().tolist() == expected.tolist()
        close(got.gains_list[core], gains[mine])


# ---- Sorting, statistics.


def sorted_reference(
    features: list[tuple[Array, Array, Array]], offsets: list[int], shards: int
) -> list[list[Triple]]:
    """For each shard its triples (sample, row, gain), tables in order, by row."""
    result: list[list[Triple]] = [[] for _ in range(shards)]
    for offset in sorted(set(offsets)):
        merged: dict[tuple[int, int], float] = {}
        for (rows, cols, gains), at in zip(features, offsets, strict=True):
            if at == offset:
                for row, col, gain in zip(rows, cols, gains, strict=True):
                    merged[col, row] = merged.get((col, row), 0) + gain
        for (col, row), gain in sorted(merged.items(), key=lambda item: item[0][0]):
            result[col % shards].append((row, col, gain))
    return result


@pytest.mark.parametrize(("replicas", "cores"), [(1, 1), (1, 4), (4, 2), (16, 4)])
def test_sort_and_statistics(replicas: int, cores: int) -> None:
    rng = np.random.default_rng(replicas + cores)
    shards = replicas * cores
    offsets, counts = [64, 0, 64], [8, 4, 8]
    features, begin = [], 0
    for offset, count in zip(offsets, counts, strict=True):
        n = int(rng.integers(20, 60))
        rows = np.sort(rng.integers(begin, begin + count, n))
        cols = rng.integers(offset, offset + 64, n)
        gains = rng.uniform(-1, 1, n).astype(np.float32)
        features.append((rows.astype(np.int32), cols.astype(np.int32), gains))
        begin += count
    expected = sorted_reference(features, offsets, shards)
    lists = dict(
        zip(
            ("row_ids_list", "col_ids_list", "gains_list"),
            map(list, zip(*features, strict=True)),
            strict=True,
        )
    )
    shared = {
        **lists,
        "sample_count_list": counts,
        "col_offset_list": offsets,
        "num_replica": replicas,
        "table_vocab_size": 128,
        "feature_width": 4,
        "num_sc_per_chip": cores,
        "table_name": "the_table",
    }
    ids = [len(shard) for shard in expected]
    distinct = [len({col for _, col, _ in shard}) for shard in expected]
    stats = raw.GetStatsFromListOfSparseCoreCooTensors(**shared)
    assert int(stats.max_ids_per_sparse_core) == max(ids)
    assert int(stats.max_unique_ids_per_sparse_core) == max(distinct)
    got = raw.SortListOfSparseCoreCooTensors(
        **shared,
        max_ids_per_sparse_core=max(ids),
        max_unique_ids_per_sparse_core=max(distinct),
    )
    assert got.id_counts.numpy().tolist() == np.cumsum([0, *ids]).tolist()
    triples = [triple for shard in expected for triple in shard]
    # All samples are the SparseCore's own, of which it has 20.
    assert got.sorted_row_ids.numpy().tolist() == [row % 20 for row, _, _ in triples]
    assert got.sorted_col_ids.numpy().tolist() == [c // shards for _, c, _ in triples]
    close(got.sorted_gains, np.array([gain for _, _, gain in triples]))
    for name, limit in (
        ("max_ids_per_sparse_core", max(ids)),
        ("max_unique_ids_per_sparse_core", max(distinct)),
    ):
        limits = {
            "max_ids_per_sparse_core": 10_000,
            "max_unique_ids_per_sparse_core": 10_000,
            name: limit - 1,
        }
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name}: is"):
            raw.SortListOfSparseCoreCooTensors(**shared, **limits)


def test_rows_of_any_size_are_sorted() -> None:
    rng = np.random.default_rng(3)
    cols = rng.integers(0, 2**31 - 1, 5000).astype(np.int32)
    got = raw.SortListOfSparseCoreCooTensors(
        row_ids_list=[np.arange(5000, dtype=np.int32)],
        col_ids_list=[cols],
        gains_list=[cols.astype(np.float32)],
        sample_count_list=[5000],
        col_offset_list=[0],
        num_replica=1,
        table_vocab_size=2**31 - 1,
        feature_width=4,
        num_sc_per_chip=1,
        max_ids_per_sparse_core=5000,
        max_unique_ids_per_sparse_core=5000,
        table_name="the_table",
    )
    order = np.argsort(cols, kind="stable")
    assert got.sorted_row_ids.numpy().tolist() == order.tolist()
    assert got.sorted_col_ids.numpy().tolist() == cols[order].tolist()


# ---- Buffers.


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


@pytest.mark.parametrize(("replicas", "cores"), [(1, 1), (1, 4), (2, 8), (3, 3)])
@pytest.mark.parametrize(
    ("splits", "cuts"),
    # Node n of a level halves its part: the root cuts at 32, its children at 16 and 48.
    [
        (0, []),
        (1, [32]),
        (0b101, [32, 48]),
        (0b1010, [8, 16]),
        (0b10010, [16, 24]),
        (2**62, [63]),
    ],
)
def test_buffers(replicas: int, cores: int, splits: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(splits % 1000 + cores)
    shards = replicas * cores
    sources = [divided(rng, shards, 4) for _ in range(cores)]
    csr = wrapped(
        [source for source, _ in sources],
        8,
        # Several are joined by or.
        splits=np.array([splits, splits & 1], np.int64),
        num_replica=replicas,
        max_ids_per_chip_per_sample=2048,
    )
    ends = [0, *cuts, DIVISIONS]
    assert int(csr.num_minibatches_per_sc) == len(ends) - 1
    stride = -(-shards // 8) * 8
    assert csr.row_pointers.shape == [3 * cores * stride]
    assert int(csr.row_pointers_unpadded_size) == (len(ends) - 1) * cores * stride
    used = int(csr.ids_unpadded_size)
    last = int(csr.row_pointers[int(csr.row_pointers_unpadded_size) - 1])
    assert used == -(-last // 8) * 8
    got = read_buffers(buffers(csr), cores, shards)
    for core, (_, runs) in enumerate(sources):
        for batch, (begin, end) in enumerate(pairwise(ends)):
            for shard in range(shards):
                expected = [t for part in runs[shard][begin:end] for t in part]
                assert got[core][batch][shard] == expected
    # Nothing undefined behind what is used.
    assert set(csr.sorted_token_ids.numpy()[used:]) <= {PAD}


def test_ids_that_do_not_fit() -> None:
    source = SimpleNamespace(
        sorted_row_ids=np.arange(20, dtype=np.int32) % 4,
        sorted_col_ids=np.arange(20, dtype=np.int32),
        sorted_gains=np.ones(20, np.float32),
        id_counts=np.array([0, 10, 20], np.int32),
    )
    shape: dict[str, Any] = {
        "num_replica": 2,
        "max_minibatches_per_sc": 1,
        "max_ids_per_chip_per_sample": 6,
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match="10 of 20 do not fit"):
        wrapped([source], 4, **shape)
    csr = wrapped([source], 4, **shape, allow_id_dropping=True)
    assert int(csr.ids_unpadded_size) == 24
    (((first, second),),) = read_buffers(buffers(csr), 1, 2)
    assert [token for _, token, _ in first] == list(range(10))
    assert [token for _, token, _ in second] == list(range(10, 18))
    # What lies on nobody's way is dropped whole.
    csr = wrapped(
        [source],
        4,
        **shape | {"max_ids_per_chip_per_sample": 2},
        allow_id_dropping=True,
    )
    (((first, second),),) = read_buffers(buffers(csr), 1, 2)
    assert [token for _, token, _ in first] == list(range(8))
    assert second == []


# ---- The whole way.


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("cores", [1, 2, 4, 16])
def test_lookup(cores: int, combiner: str) -> None:
    rng = np.random.default_rng(cores)
    samples, vocabulary, width = 48, 80, 5
    bags = bags_of(rng, samples, vocabulary)
    weights = rng.uniform(0.5, 2, sum(map(len, bags))).astype(np.float32)
    table = rng.standard_normal((vocabulary, width))
    csr = csr_of(bags, weights, combiner, cores, vocabulary)
    got = lookup(csr, dealt(table, cores).astype("f4"), samples, cores)
    close(got, looked_up(table.astype("f4").astype("f8"), bags, weights, combiner))
    static = raw.XlaSparseDenseMatmulWithStaticBufferSize(
        **csr,
        embedding_table=dealt(table, cores).astype("f4"),
        input_size=samples,
        quantization_config_low=0.0,
        quantization_config_high=0.0,
        quantization_config_num_buckets=0,
        max_ids_per_sparse_core=1000,
        max_unique_ids_per_sparse_core=1000,
        table_name="the_table",
        num_sparsecores_per_device=cores,
    )
    np.testing.assert_array_equal(static, got)
    if cores == 4:
        np.testing.assert_array_equal(
            lookup(csr, dealt(table, 4).astype("f4"), samples, -1), got
        )


def test_stacked_tables() -> None:
    """Two tables and three features share one stack, as TPUEmbeddingV2 lays it out."""
    rng = np.random.default_rng(7)
    cores, width = 4, 3
    tables = [rng.standard_normal((n, width)).astype("f4") for n in (32, 16)]
    # Table, samples, combiner, rotation of the table.
    features = [(0, 16, "mean", 0), (1, 8, "sum", 1), (0, 24, "sqrtn", 0)]
    col_offsets = [0, 32]
    stacked = sum(samples for _, samples, _, _ in features)
    lists, all_bags, row_offset = [], [], 0
    for which, samples, combiner, shift in features:
        bags = bags_of(rng, samples, len(tables[which]))
        all_bags.append(bags)
        lists.append(
            listed(
                bags,
                1.0,
                cores,
                row_offset=row_offset,
                col_offset=col_offsets[which],
                col_shift=shift,
                stacked_table_sample_count=stacked,
                combiner=combiner,
            )
        )
        row_offset += samples
    shared = {
        "sample_count_list": [samples // cores for _, samples, _, _ in features],
        "col_offset_list": [col_offsets[which] for which, _, _, _ in features],
        "num_sc_per_chip": cores,
        "table_vocab_size": 48,
    }
    csr = wrapped(
        [sort_lists(lists, core, **shared) for core in range(cores)], stacked // cores
    )
    shards = [
        np.roll(dealt(table, cores).reshape(cores, -1, width), shift, 0)
        for table, shift in zip(tables, (0, 1), strict=True)
    ]
    stack = np.concatenate(shards, 1).reshape(-1, width)
    got = lookup(buffers(csr), stack, stacked, cores).reshape(cores, -1, width)
    begin = 0
    for (which, samples, combiner, _), bags in zip(features, all_bags, strict=True):
        each = samples // cores
        mine = got[:, begin : begin + each].reshape(samples, width)
        begin += each
        ones = np.ones(sum(map(len, bags)))
        close(mine, looked_up(tables[which].astype("f8"), bags, ones, combiner))


def test_minibatches_are_looked_up() -> None:
    rng = np.random.default_rng(8)
    cores, rows = 4, DIVISIONS * 4
    sources = [divided(rng, cores, 4) for _ in range(cores)]
    csr = wrapped(
        [source for source, _ in sources],
        8,
        splits=np.int64(0b101),
        max_ids_per_chip_per_sample=2048,
    )
    table = rng.standard_normal((cores * rows, 6)).astype(np.float32)
    expected = np.zeros((cores * 8, 6))
    for core, (_, runs) in enumerate(sources):
        for shard, parts in enumerate(runs):
            for sample, token, gain in (t for part in parts for t in part):
                expected[core * 8 + sample] += gain * table[shard * rows + token]
    close(lookup(buffers(csr), table, cores * 8, cores), expected)


def test_quantized_lookup() -> None:
    rng = np.random.default_rng(9)
    table = rng.uniform(-3, 3, (16, 7)).astype(np.float32)
    bags = bags_of(rng, 8, 16)
    csr = csr_of(bags, 1.0, "mean", 2, 16)
    got = lookup(
        csr,
        dealt(table, 2),
        8,
        2,
        quantization_config_low=-1.5,
        quantization_config_high=2.5,
        quantization_config_num_buckets=9,
    )
    step = 4 / 8
    quantized = (
        np.floor((np.clip(table.astype("f8"), -1.5, 2.5) + 1.5) / step + 0.5) * step
        - 1.5
    )
    assert len(np.unique(quantized)) == 9
    ones = np.ones(sum(map(len, bags)))
    close(got, looked_up(quantized, bags, ones, "mean"))


def test_integer_table() -> None:
    rng = np.random.default_rng(10)
    table = rng.integers(-(2**30), 2**30, (16, 7)).astype(np.int32)
    bags = bags_of(rng, 8, 16)
    csr = csr_of(bags, 3.0, "sum", 2, 16)
    got = lookup(csr, tf.constant(dealt(table, 2)), 8, 2)
    samples, ids = flat(bags)
    expected = np.zeros((8, 7), np.int32)
    np.add.at(expected, samples, np.int32(3) * table[ids])
    np.testing.assert_array_equal(got, expected)
    with pytest.raises(tf.errors.InvalidArgumentError, match="sorted_gains: "):
        lookup(csr_of(bags, 0.5, "sum", 2, 16), tf.constant(dealt(table, 2)), 8, 2)


def test_empty_batches_and_tables() -> None:
    csr = csr_of([[], [], [], []], 1.0, "mean", 2, 16)
    assert not lookup(csr, np.ones((16, 3), "f4"), 4, 2).any()
    assert lookup(csr, np.ones((16, 0), "f4"), 4, 2).shape == (4, 0)
    assert lookup(csr, np.ones((0, 3), "f4"), 0, 2).shape == (0, 3)
    triples = coo(np.empty((0, 2)), [], [], 3, "mean")
    assert [x.shape[0] for x in triples] == [0, 0, 0]
    table = np.ones((16, 3), np.float32)
    updated = raw.XlaSparseCoreSgd(
        indices=np.empty(0, "i4"),
        gradient=np.empty((0, 3), "f4"),
        learning_rate=1.0,
        embedding_table=table,
        feature_width=3,
    )
    np.testing.assert_array_equal(updated, table)


def test_statistics_of_tpu_embedding() -> None:
    """TensorFlow's own preprocessing runs over these kernels as it is."""
    embedding = tf.tpu.experimental.embedding
    rng = np.random.default_rng(11)
    table = embedding.TableConfig(vocabulary_size=64, dim=8, combiner="sum", name="t")
    config = [
        embedding.FeatureConfig(table=table, output_shape=[16], name=f"f{i}")
        for i in range(2)
    ]
    both = [bags_of(rng, 16, 64) for _ in range(2)]
    ragged = [tf.ragged.constant(bags, dtype=tf.int32) for bags in both]
    most, distinct = TPUEmbeddingV2.compute_sparse_core_stats(
        ragged, config, num_tpu_chips=2, optimizer=embedding.SGD(0.1)
    )
    counts = np.zeros((4, 8)), np.zeros((4, 8))
    for core in range(4):
        # Samples of the two features are told apart, rows are not.
        pairs = {
            (feature, sample, id_)
            for feature in range(2)
            for sample in range(4 * core, 4 * core + 4)
            for id_ in both[feature][sample]
        }
        for _, _, id_ in pairs:
            counts[0][core, id_ % 8] += 1
        for id_ in {id_ for _, _, id_ in pairs}:
            counts[1][core, id_ % 8] += 1
    (name,) = most
    assert int(most[name]) == counts[0].max()
    assert int(distinct[name]) == counts[1].max()


# ---- Updates.


class Case(SimpleNamespace):
    """An optimizer as these ops name it, and its rule in the reference."""

    op: str
    rule: Callable[..., Any]
    # By the names of the gradient ops, and how the ops on rows call them where they
    # differ; which of them those take as inputs.
    slots: list[str]
    hyper: dict[str, Any]
    renamed: dict[str, str]
    inputs: list[str]

    @property
    def facts(self) -> SimpleNamespace:
        """Hyperparameters under the names of OptimizationParameters, as float32."""
        names = {
            "beta1": "momentum" if self.op == "AdagradMomentum" else "beta1",
            "l1_regularization_strength": "l1",
            "l2_regularization_strength": "l2",
            "learning_rate_power": "lr_power",
            "multiply_linear_by_learning_rate": "multiply_linear_by_lr",
        }
        return SimpleNamespace(
            **{
                names.get(k, k): v if isinstance(v, bool) else float(np.float32(v))
                for k, v in self.hyper.items()
            },
        )


def case(op: str, slots: str = "", **more: Any) -> Case:
    renamed = more.pop("renamed", {})
    inputs = more.pop("inputs", [])
    rules: dict[str, Any] = {
        "Sgd": reference.sgd,
        "Adagrad": reference.adagrad,
        "AdagradMomentum": reference.adagrad_momentum,
        "Adam": reference.adam,
        "Ftrl": reference.ftrl,
    }
    return Case(
        op=op,
        rule=rules[op],
        slots=slots.split(),
        hyper=more,
        renamed=renamed,
        inputs=inputs,
    )


def momentum_case(nesterov: bool, beta2: float, exponent: float) -> Case:
    return case(
        "AdagradMomentum",
        "accumulator momenta",
        use_nesterov=nesterov,
        exponent=exponent,
        beta1=0.9,
        beta2=beta2,
        epsilon=1e-3,
        renamed={"beta1": "beta_1", "beta2": "beta_2", "momenta": "momentum"},
        inputs=["beta_1", "epsilon"],
    )


def adam_case(inside: bool) -> Case:
    return case(
        "Adam",
        "momenta velocity",
        use_sum_inside_sqrt=inside,
        beta1=0.9,
        beta2=0.99,
        epsilon=1e-2,
        renamed={"beta1": "beta_1", "beta2": "beta_2", "momenta": "momentum"},
        inputs=["beta_1", "beta_2", "epsilon"],
    )


def ftrl_case(multiply: bool, power: float, l1: float) -> Case:
    return case(
        "Ftrl",
        "accumulator linear",
        multiply_linear_by_learning_rate=multiply,
        beta=0.3,
        learning_rate_power=power,
        l1_regularization_strength=l1,
        l2_regularization_strength=0.02,
        inputs=["beta", "learning_rate_power", "l2_regularization_strength"],
    )


CASES = {
    "sgd": case("Sgd"),
    "adagrad": case("Adagrad", "accumulator"),
    "momentum": momentum_case(False, 1.0, 2.0),
    "nesterov": momentum_case(True, 0.95, 3.0),
    "adam": adam_case(False),
    "adam inside": adam_case(True),
    "ftrl": ftrl_case(False, -0.5, 0.01),
    "ftrl multiply": ftrl_case(True, -0.7, 0.0),
}


def state_of(
    case: Case, rng: np.random.Generator, shape: tuple[int, int]
) -> list[Array]:
    """A table and its slots; what is under a root is positive."""
    state = [rng.standard_normal(shape)]
    for name in case.slots:
        slot = rng.standard_normal(shape)
        state.append(np.abs(slot) if name in ("accumulator", "velocity") else slot)
    return [x.astype(np.float32) for x in state]


def gradient_op(
    case: Case, static: bool, csr: dict[str, Any], state: list[Any], **more: Any
) -> list[Any]:
    limits = {"max_ids_per_sparse_core": 999, "max_unique_ids_per_sparse_core": 999}
    kind = "StaticBufferSize" if static else "CsrInput"
    results = getattr(raw, f"XlaSparseDenseMatmulGradWith{case.op}And{kind}")(
        **(
            csr
            | {"learning_rate": 0.25, "table_name": "the_table"}
            | dict(zip(["embedding_table", *case.slots], state, strict=True))
            | case.hyper
            | (limits if static else {})
            | more
        )
    )
    return list(results) if case.slots else [results]


def rows_op(case: Case, state: list[Any], **more: Any) -> list[Any]:
    """Outputs in the order of the slots: Adam has them in another."""
    rename = {**{name: name for name in case.slots}, **case.renamed}
    names = ["embedding_table", *(rename[name] for name in case.slots)]
    hyper = {case.renamed.get(name, name): x for name, x in case.hyper.items()}
    results = getattr(raw, f"XlaSparseCore{case.op}")(
        **(
            {"learning_rate": 0.25, "feature_width": state[0].shape[1]}
            | dict(zip(names, state, strict=True))
            | hyper
            | more
        )
    )
    if not case.slots:
        return [results]
    return [getattr(results, f"updated_{name}") for name in names]


def expected_update(
    case: Case, state: list[Array], rows: Array, g: Array
) -> list[Array]:
    result = [x.astype(np.float64) for x in state]
    updated = case.rule(case.facts, 0.25, g, *(x[rows] for x in result))
    for x, values in zip(result, updated, strict=True):
        x[rows] = values
    return result


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str, static: bool) -> None:
    """Several steps, each one against the reference from the state before it."""
    case, cores, samples, vocabulary, width = CASES[name], 4, 32, 64, 9
    rng = np.random.default_rng(len(name))
    state: list[Any] = state_of(case, rng, (vocabulary, width))
    for _ in range(5):
        bags = bags_of(rng, samples, vocabulary)
        weights = rng.uniform(0.5, 2, sum(map(len, bags))).astype(np.float32)
        csr = csr_of(bags, weights, "mean", cores, vocabulary)
        gradients = rng.standard_normal((samples, width)).astype(np.float32)
        tags, ids = flat(bags)
        gains = reference.scales("mean", tags, weights.astype("f8"), samples)
        rows = np.unique(ids)
        g = np.zeros((len(rows), width))
        np.add.at(g, np.searchsorted(rows, ids), gains[:, None] * gradients[tags])
        before = [gathered(np.asarray(x), cores) for x in state]
        expected = expected_update(case, before, rows, g)
        kept = [np.array(x) for x in state]
        new = gradient_op(
            case,
            static,
            csr,
            state,
            activation_gradients=gradients,
            num_sparsecores_per_device=cores,
        )
        for x, y in zip(state, kept, strict=True):
            np.testing.assert_array_equal(x, y)
        for got, want, old in zip(new, expected, before, strict=True):
            close(gathered(got.numpy(), cores), want)
            untouched = np.setdiff1d(np.arange(vocabulary), rows)
            np.testing.assert_array_equal(
                gathered(got.numpy(), cores)[untouched], old[untouched]
            )
        state = new


@pytest.mark.parametrize("name", CASES)
def test_rows(name: str) -> None:
    case = CASES[name]
    rng = np.random.default_rng(len(name))
    state: list[Any] = state_of(case, rng, (50, 6))
    for _ in range(5):
        rows = rng.permutation(50)[:20].astype(np.int32)
        gradient = rng.standard_normal((20, 6)).astype(np.float32)
        expected = expected_update(case, [np.asarray(x) for x in state], rows, gradient)
        state = rows_op(case, state, indices=rows, gradient=gradient)
        for got, want in zip(state, expected, strict=True):
            close(got, want)


def test_the_last_of_equal_rows_counts() -> None:
    gradient = np.array([[1], [2], [4]], np.float32)
    table, accumulator = rows_op(
        CASES["adagrad"],
        [np.zeros((3, 1), "f4"), np.ones((3, 1), "f4")],
        indices=np.array([1, 0, 1], np.int32),
        gradient=gradient,
    )
    assert accumulator.numpy().ravel().tolist() == [5, 17, 1]
    close(table, np.array([[-0.5 / 5**0.5], [-1 / 17**0.5], [0]]))


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam", "ftrl", "ftrl multiply"])
def test_as_tensorflow_updates(name: str) -> None:
    """The ops for resource variables, where they have the same rule."""
    case = CASES[name]
    rng = np.random.default_rng(5)
    state = state_of(case, rng, (30, 8))
    rows = rng.permutation(30)[:12].astype(np.int32)
    g = rng.standard_normal((12, 8)).astype(np.float32)
    variables = [tf.Variable(x) for x in state]
    handles = [variable.handle for variable in variables]
    hyper = case.hyper
    if case.op == "Sgd":
        raw.ResourceScatterSub(resource=handles[0], indices=rows, updates=0.25 * g)
    elif case.op == "Adagrad":
        raw.ResourceSparseApplyAdagrad(
            var=handles[0], accum=handles[1], lr=0.25, grad=g, indices=rows
        )
    elif name == "adam":
        # No decay so far, so that there is no bias to correct, on the rows alone.
        parts = [tf.Variable(x[rows]) for x in state]
        raw.ResourceApplyAdam(
            **dict(zip(("var", "m", "v"), (x.handle for x in parts), strict=True)),
            beta1_power=0.0,
            beta2_power=0.0,
            lr=0.25,
            beta1=hyper["beta1"],
            beta2=hyper["beta2"],
            epsilon=hyper["epsilon"],
            grad=g,
        )
        for variable, part in zip(variables, parts, strict=True):
            variable.scatter_update(tf.IndexedSlices(part, rows))
    else:
        # TensorFlow has no beta; half of it per rate is what l2 adds to the divisor.
        lr = 1 if hyper["multiply_linear_by_learning_rate"] else 0.25
        multiplied = 0.25 if hyper["multiply_linear_by_learning_rate"] else 1
        raw.ResourceSparseApplyFtrlV2(
            var=handles[0],
            accum=handles[1],
            linear=handles[2],
            grad=g,
            indices=rows,
            lr=0.25,
            l1=hyper["l1_regularization_strength"],
            l2=hyper["l2_regularization_strength"]
            + hyper["beta"] / (2 * lr * multiplied),
            l2_shrinkage=0.0,
            lr_power=hyper["learning_rate_power"],
            multiply_linear_by_lr=hyper["multiply_linear_by_learning_rate"],
        )
    got = rows_op(case, list(state), indices=rows, gradient=g)
    for x, variable in zip(got, variables, strict=True):
        close(x, variable.numpy().astype("f8"), 5e-6)


def test_weights_are_clipped_where_they_are_updated() -> None:
    csr = csr_of([[0], [1]], 1.0, "sum", 1, 4)
    (got,) = gradient_op(
        CASES["sgd"],
        False,
        csr,
        [np.full((4, 1), 9, np.float32)],
        activation_gradients=np.array([[40.0], [-40.0]], np.float32),
        clip_weight_min=0.5,
        clip_weight_max=2.0,
        num_sparsecores_per_device=1,
    )
    assert got.numpy().ravel().tolist() == [0.5, 2, 9, 9]


def test_a_graph_updates_in_place_and_leaves_others_alone() -> None:
    """A buffer that nobody else holds may be reused, one that is held may not."""
    csr = csr_of([[0], [1]], 1.0, "sum", 1, 4)
    gradients = np.ones((2, 3), np.float32)

    @tf.function(autograph=False)
    def step(table: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        held = table + 1
        new = table + 1
        for _ in range(3):
            (new,) = gradient_op(
                CASES["sgd"],
                False,
                csr,
                [new],
                activation_gradients=gradients,
                num_sparsecores_per_device=1,
            )
        (other,) = gradient_op(
            CASES["sgd"],
            False,
            csr,
            [held],
            activation_gradients=gradients,
            num_sparsecores_per_device=1,
        )
        return new, held + 0 * other

    new, held = step(tf.zeros((4, 3)))
    assert new.numpy()[:, 0].tolist() == [0.25, 0.25, 1, 1]
    assert (held.numpy() == 1).all()


# ---- Bad calls: each one broken on its own.


def floats(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int32)


def check_refused(argument: str, call: Callable[[], Any], error: Any = None) -> None:
    error = error or tf.errors.InvalidArgumentError
    with pytest.raises(error) as raised:
        call()
    assert f"{argument}: " in raised.value.message, raised.value.message


COO: list[tuple[str, dict[str, Any]]] = [
    ("combiner", {"combiner": "max"}),
    ("values", {"values": ints(1, -2, 3)}),
    ("values", {"values": np.zeros((3, 1), "i4")}),
    ("values", {"indices_or_row_splits": ints()}),
    ("weights", {"weights": floats(2)}),
    ("weights", {"weights": floats(3, 1)}),
    ("weights", {"weights": np.array([1, np.nan, 1], np.float32)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 2, 1, 1, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 1, 2, 3, 9)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 9, 9, 9, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(1, 1, 2, 3, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, -1, 2, 3, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 1, 1, 1, 1)}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.zeros((2, 2), "i4")}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.zeros((0, 2), "i4")}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.zeros((3, 3), "i4")}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.zeros((3, 2, 1), "i4")}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.int32(0)}),
    ("indices_or_row_splits", {"indices_or_row_splits": [[0, 0], [4, 0], [4, 1]]}),
    ("indices_or_row_splits", {"indices_or_row_splits": [[-1, 0], [0, 0], [0, 1]]}),
    ("indices_or_row_splits", {"indices_or_row_splits": [[1, 0], [0, 0], [2, 0]]}),
]


@pytest.mark.parametrize(("argument", "changes"), COO)
def test_bad_features(argument: str, changes: dict[str, Any]) -> None:
    good = {
        "indices_or_row_splits": ints(0, 1, 2, 3, 3),
        "values": ints(1, 2, 3),
        "weights": floats(3),
        "sample_count": 4,
        "combiner": "mean",
    }
    raw.ConvertToCooTensor(**good)
    check_refused(argument, lambda: raw.ConvertToCooTensor(**(good | changes)))
    changes = {"weights": floats(3)} | changes
    weights = changes.pop("weights")
    check_refused(argument, lambda: listed([[1], [2], [3], []], weights, 2, **changes))


STACKING = [
    ("num_sc_shards", {"num_sc_shards": 6}),
    ("sample_count", {"num_sc_per_chip": 3}),
    ("stacked_table_sample_count", {"stacked_table_sample_count": 2**31 - 1}),
    ("values", {"col_offset": 2**31 - 2}),
]


@pytest.mark.parametrize(("argument", "changes"), STACKING)
def test_bad_stacking(argument: str, changes: dict[str, Any]) -> None:
    check_refused(argument, lambda: listed([[1], [2], [3], []], 1.0, 2, **changes))


SORT: list[tuple[str, dict[str, Any]]] = [
    ("row_ids_list[1]", {"row_ids_list": [ints(0, 1), ints(0, -1)]}),
    ("col_ids_list[0]", {"col_ids_list": [ints(0, 64), ints(0, 1)]}),
    ("col_ids_list[0]", {"col_ids_list": [ints(0, -1), ints(0, 1)]}),
    ("col_ids_list[1]", {"col_ids_list": [ints(0, 1), ints(0)]}),
    ("gains_list[1]", {"gains_list": [floats(2), floats(3)]}),
    ("gains_list[0]", {"gains_list": [floats(2, 1), floats(2)]}),
    ("sample_count_list", {"sample_count_list": [4]}),
    ("sample_count_list", {"sample_count_list": [0, 0]}),
    ("sample_count_list", {"sample_count_list": [4, -3]}),
    ("col_offset_list", {"col_offset_list": [0, 0, 0]}),
    ("num_replica", {"num_replica": 3}),
    ("num_replica", {"num_replica": 2**30, "num_sc_per_chip": 2**30}),
]


@pytest.mark.parametrize(("argument", "changes"), SORT)
def test_bad_sort(argument: str, changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "row_ids_list": [ints(0, 1), ints(0, 1)],
        "col_ids_list": [ints(0, 1), ints(0, 1)],
        "gains_list": [floats(2), floats(2)],
        "sample_count_list": [4, 4],
        "col_offset_list": [0, 0],
        "num_replica": 2,
        "table_vocab_size": 64,
        "feature_width": 4,
        "num_sc_per_chip": 2,
        "table_name": "the_table",
    }
    limits = {"max_ids_per_sparse_core": 9, "max_unique_ids_per_sparse_core": 9}
    power = changes == {"num_replica": 3}
    error = tf.errors.FailedPreconditionError if power else None
    raw.SortListOfSparseCoreCooTensors(**good, **limits)
    for op, more in (
        (raw.SortListOfSparseCoreCooTensors, limits),
        (raw.GetStatsFromListOfSparseCoreCooTensors, {}),
    ):
        call = partial(op, **(good | changes | more))
        check_refused(argument, call, error)


CSR: list[tuple[str, dict[str, Any]]] = [
    ("splits", {"splits": np.int64(-1)}),
    ("splits", {"splits": np.int64(0b111)}),
    ("id_counts_list[0]", {"splits": np.int64(1)}),
    ("id_counts_list[0]", {"id_counts_list": [ints(0, 1)]}),
    ("id_counts_list[0]", {"id_counts_list": [ints(0, 1, 4)]}),
    ("id_counts_list[0]", {"id_counts_list": [ints(0, 2, 1)]}),
    ("id_counts_list[0]", {"id_counts_list": [ints(-1, 2, 3)]}),
    ("sorted_col_ids_list[0]", {"sorted_col_ids_list": [ints(0, 1)]}),
    ("sorted_gains_list[0]", {"sorted_gains_list": [floats(3, 1)]}),
    ("max_ids_per_chip_per_sample", {"max_ids_per_chip_per_sample": 3}),
    ("max_ids_per_chip_per_sample", {"max_ids_per_chip_per_sample": 2**31 - 1}),
    ("max_minibatches_per_sc", {"max_minibatches_per_sc": 2**31 - 1}),
    ("num_replica", {"num_replica": 2**33}),
]


@pytest.mark.parametrize(("argument", "changes"), CSR)
def test_bad_buffers(argument: str, changes: dict[str, Any]) -> None:
    source = SimpleNamespace(
        sorted_row_ids=ints(0, 1, 2),
        sorted_col_ids=ints(0, 1, 2),
        sorted_gains=floats(3),
        id_counts=ints(0, 1, 3),
    )
    wrapped([source], 4, num_replica=2)
    call = {"num_replica": 2} | changes
    check_refused(argument, lambda: wrapped([source], 4, **call))


def test_id_counts_of_different_lengths() -> None:
    sources = [
        SimpleNamespace(
            sorted_row_ids=ints(),
            sorted_col_ids=ints(),
            sorted_gains=floats(0),
            id_counts=np.zeros(n, np.int32),
        )
        for n in (3, 2 * DIVISIONS + 1)
    ]
    check_refused("id_counts_list[1]", lambda: wrapped(sources, 4))


LOOKUP: list[tuple[str, dict[str, Any]]] = [
    ("row_pointers", {"row_pointers": ints(-1, *[8] * 7)}),
    ("row_pointers", {"row_pointers": ints(9, *[16] * 7)}),
    # The second run begins at 8.
    ("row_pointers", {"row_pointers": ints(2, 7, *[8] * 6)}),
    ("row_pointers", {"row_pointers": ints(2, *[8] * 6, PAD)}),
    # More shards than the device has.
    ("row_pointers", {"row_pointers": ints(0, 0, 1, 8, 8, 8, 8, 8)}),
    ("row_pointers", {"row_pointers": np.zeros((1, 8), "i4")}),
    ("num_minibatches_per_physical_sparse_core", {"row_pointers": ints(0)}),
    ("num_minibatches_per_physical_sparse_core", {"num_minibatches": 0}),
    ("num_minibatches_per_physical_sparse_core", {"num_minibatches": -1}),
    ("num_minibatches_per_physical_sparse_core", {"num_minibatches": 2}),
    ("num_minibatches_per_physical_sparse_core", {"num_minibatches": [1]}),
    ("sorted_sample_ids", {"sorted_sample_ids": ints(0, 4, *[PAD] * 6)}),
    ("sorted_sample_ids", {"sorted_sample_ids": ints(-1, 1, *[PAD] * 6)}),
    ("sorted_token_ids", {"sorted_token_ids": ints(0, 8, *[PAD] * 6)}),
    ("sorted_token_ids", {"sorted_token_ids": ints(0, -1, *[PAD] * 6)}),
    ("sorted_token_ids", {"sorted_token_ids": ints(0, 1)}),
    ("sorted_gains", {"sorted_gains": floats(9)}),
    ("sorted_gains", {"sorted_gains": np.full(8, np.inf, np.float32)}),
    ("embedding_table", {"embedding_table": floats(8)}),
    ("num_sparsecores_per_device", {"num_sparsecores_per_device": 3}),
    ("num_sparsecores_per_device", {"num_sparsecores_per_device": 0}),
    ("num_sparsecores_per_device", {"num_sparsecores_per_device": -2}),
]


def small(changes: dict[str, Any]) -> dict[str, Any]:
    """Two triples of one SparseCore with four samples and eight rows."""
    arguments: dict[str, Any] = {
        "row_pointers": ints(2, *[8] * 7),
        "sorted_sample_ids": ints(0, 1, *[PAD] * 6),
        "sorted_token_ids": ints(0, 1, *[PAD] * 6),
        "sorted_gains": floats(8),
        "embedding_table": floats(8, 3),
        "num_minibatches": 1,
        "num_sparsecores_per_device": 1,
        "table_name": "the_table",
    } | changes
    name = "num_minibatches_per_physical_sparse_core"
    arguments[name] = np.int32(arguments.pop("num_minibatches"))
    return arguments


QUANTIZATION = {
    "quantization_config_low": -1.0,
    "quantization_config_high": 1.0,
    "quantization_config_num_buckets": 0,
}


def refused_in_eager_and_graph(
    argument: str, op: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    """TensorFlow's own shape function may be the one to refuse; then it says rank."""
    arrays = {k: x for k, x in arguments.items() if isinstance(x, np.ndarray)}
    rest = {k: x for k, x in arguments.items() if k not in arrays}
    check_refused(argument, lambda: op(**arguments))

    @tf.function(
        input_signature=[tf.TensorSpec(None, x.dtype) for x in arrays.values()],
        autograph=False,
    )
    def graph(*given: tf.Tensor) -> Any:
        return op(**dict(zip(arrays, given, strict=True)), **rest)

    check_refused(argument, lambda: graph(*arrays.values()))


@pytest.mark.parametrize(("argument", "changes"), LOOKUP)
def test_bad_lookup(argument: str, changes: dict[str, Any]) -> None:
    more = QUANTIZATION | {"input_size": 4}
    raw.XlaSparseDenseMatmulWithCsrInput(**small({}), **more)
    refused_in_eager_and_graph(
        argument, raw.XlaSparseDenseMatmulWithCsrInput, small(changes) | more
    )
    gradient = {
        "activation_gradients": floats(4, 3),
        "learning_rate": np.float32(1),
    }
    refused_in_eager_and_graph(
        argument,
        raw.XlaSparseDenseMatmulGradWithSgdAndCsrInput,
        small(changes) | gradient,
    )


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("quantization_config_num_buckets", {"quantization_config_num_buckets": 1}),
        (
            "quantization_config_low",
            {"quantization_config_num_buckets": 2, "quantization_config_high": -1.0},
        ),
        (
            "quantization_config_low",
            {
                "quantization_config_num_buckets": 2,
                "quantization_config_high": float("inf"),
            },
        ),
        (
            "input_size",
            {"num_sparsecores_per_device": 8, "row_pointers": ints(*[0] * 64)},
        ),
        (
            "embedding_table",
            {"num_sparsecores_per_device": 4, "embedding_table": floats(6, 3)},
        ),
        (
            "quantization_config_num_buckets",
            {
                "quantization_config_num_buckets": 2,
                "embedding_table": tf.zeros((8, 3), tf.int32),
            },
        ),
    ],
)
def test_bad_settings(argument: str, changes: dict[str, Any]) -> None:
    arguments = small({}) | QUANTIZATION | {"input_size": 4} | changes
    check_refused(argument, lambda: raw.XlaSparseDenseMatmulWithCsrInput(**arguments))


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("max_ids_per_sparse_core", {"max_ids_per_sparse_core": 1}),
        ("max_unique_ids_per_sparse_core", {"max_unique_ids_per_sparse_core": 1}),
    ],
)
def test_limits(argument: str, changes: dict[str, Any]) -> None:
    limits = {"max_ids_per_sparse_core": 2, "max_unique_ids_per_sparse_core": 2}
    arguments = small({}) | QUANTIZATION | {"input_size": 4} | limits
    op = raw.XlaSparseDenseMatmulWithStaticBufferSize
    op(**arguments)
    check_refused(argument, lambda: op(**(arguments | changes)))


GRADIENT: list[tuple[str, dict[str, Any]]] = [
    ("activation_gradients", {"activation_gradients": floats(4, 2)}),
    ("activation_gradients", {"activation_gradients": floats(4)}),
    ("activation_gradients", {"activation_gradients": floats(4, 3) * np.nan}),
    ("learning_rate", {"learning_rate": floats(1)}),
    ("learning_rate", {"learning_rate": np.float32(np.nan)}),
    ("accumulator", {"accumulator": floats(8, 2)}),
    ("linear", {"linear": floats(7, 3)}),
    ("clip_weight_min", {"clip_weight_min": 2.0, "clip_weight_max": 1.0}),
]


@pytest.mark.parametrize(("argument", "changes"), GRADIENT)
def test_bad_gradient(argument: str, changes: dict[str, Any]) -> None:
    arguments = (
        small({})
        | CASES["ftrl"].hyper
        | {
            "activation_gradients": floats(4, 3),
            "learning_rate": np.float32(1),
            "accumulator": floats(8, 3),
            "linear": floats(8, 3),
        }
    )
    op = raw.XlaSparseDenseMatmulGradWithFtrlAndCsrInput
    op(**arguments)
    refused_in_eager_and_graph(argument, op, arguments | changes)


ROWS: list[tuple[str, dict[str, Any]]] = [
    ("indices", {"indices": ints(0, 8)}),
    ("indices", {"indices": ints(0, -1)}),
    ("indices", {"indices": np.zeros((2, 1), "i4")}),
    ("gradient", {"gradient": floats(3, 3)}),
    ("gradient", {"gradient": floats(2, 4)}),
    ("gradient", {"gradient": np.full((2, 3), -np.inf, np.float32)}),
    ("embedding_table", {"feature_width": 2}),
    ("embedding_table", {"embedding_table": floats(24)}),
    ("velocity", {"velocity": floats(8, 4)}),
    ("momentum", {"momentum": floats(9, 3)}),
    ("beta_1", {"beta_1": floats(1)}),
    ("beta_1", {"beta_1": np.float32(np.inf)}),
    ("learning_rate", {"learning_rate": floats(2)}),
]


@pytest.mark.parametrize(("argument", "changes"), ROWS)
def test_bad_rows(argument: str, changes: dict[str, Any]) -> None:
    arguments = {
        "embedding_table": floats(8, 3),
        "indices": ints(0, 1),
        "gradient": floats(2, 3),
        "learning_rate": np.float32(1),
        "momentum": floats(8, 3),
        "velocity": floats(8, 3),
        "beta_1": np.float32(0.9),
        "beta_2": np.float32(0.9),
        "epsilon": np.float32(0.1),
        "feature_width": 3,
        "use_sum_inside_sqrt": False,
    }
    raw.XlaSparseCoreAdam(**arguments)
    refused_in_eager_and_graph(argument, raw.XlaSparseCoreAdam, arguments | changes)


def test_fuzzed_calls_end_nothing() -> None:
    script = Path(__file__).with_name("sparse_core_fuzz.py")
    done = subprocess.run(
        [sys.executable, script, "500"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
