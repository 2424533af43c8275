"""The formats of SparseCores, against their definitions in NumPy."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support import reference
from sparsecore.support.lookups import (
    COMBINERS,
    DIVISIONS,
    PAD,
    Array,
    Bags,
    Triple,
    bags_of,
    buffers,
    close,
    coo,
    divided,
    flat,
    indices_of,
    listed,
    raw,
    read_buffers,
    splits_of,
    wrapped,
)

# ---- From features to triples.


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
def test_convert_to_coo_tensor_every_form_matches_reference(combiner: str) -> None:
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
    # One id a sample: the gain is 1, or for the combiner sum the weight.
    ids = rng.integers(0, 9, 40).astype(np.int32)
    dense = rng.uniform(0.5, 2, 40).astype(np.float32)
    got = coo([], ids, dense, 40, combiner)
    assert got.row_ids.numpy().tolist() == list(range(40))
    assert got.col_ids.numpy().tolist() == ids.tolist()
    close(got.gains, dense if combiner == "sum" else np.ones(40))


@pytest.mark.parametrize("combiner", COMBINERS)
def test_convert_to_coo_tensor_scalar_and_zero_weights_match_reference(
    combiner: str,
) -> None:
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
def test_list_of_coo_tensors_matches_reference(combiner: str) -> None:
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
def test_sort_and_stats_of_coo_tensors_match_reference(
    replicas: int, cores: int
) -> None:
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


def test_sort_coo_tensors_large_col_ids_are_sorted() -> None:
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


@pytest.mark.rotating
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
def test_wrapped_csr_buffers_match_reference(
    replicas: int, cores: int, splits: int, cuts: list[int]
) -> None:
    rng = np.random.default_rng(splits % 1000 + cores)
    shards = replicas * cores
    sources = [divided(rng, shards, 4) for _ in range(cores)]
    csr = wrapped(
        [source for source, _ in sources],
        8,
        # The op combines several splits with a bitwise or.
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
    # The rest of the buffer is padding.
    assert set(csr.sorted_token_ids.numpy()[used:]) <= {PAD}


def test_wrapped_csr_ids_beyond_capacity_are_refused_or_dropped() -> None:
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
    with pytest.raises(tf.errors.InvalidArgumentError, match="; 2 of 20 do not fit"):
        wrapped([source], 4, **shape)
    csr = wrapped([source], 4, **shape, allow_id_dropping=True)
    assert int(csr.ids_unpadded_size) == 24
    (((first, second),),) = read_buffers(buffers(csr), 1, 2)
    assert [token for _, token, _ in first] == list(range(10))
    assert [token for _, token, _ in second] == list(range(10, 18))
    # Runs that do not fit at all are dropped completely.
    csr = wrapped(
        [source],
        4,
        **shape | {"max_ids_per_chip_per_sample": 2},
        allow_id_dropping=True,
    )
    (((first, second),),) = read_buffers(buffers(csr), 1, 2)
    assert [token for _, token, _ in first] == list(range(8))
    assert second == []
