"""Minibatches of a chip's batch, from its triples to activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sparsecore.support import hostile_minibatches
from sparsecore.support.lookups import (
    Array,
    close,
    dealt,
    lookup,
    raw,
)
from sparsecore.support.minibatch_calls import batch_of, common, packed, splits, store
from sparsecore.support.minibatches import (
    Chip,
    cut,
    ends_of,
    mask_of,
    wrong_buffers,
)

SYSTEMS = [(1, 1), (1, 4), (2, 2), (3, 1), (4, 8), (16, 4)]


@pytest.fixture(autouse=True)
def no_statistics() -> None:
    raw.ShutdownDistributedTPU()


def drawn(seed: int, replicas: int, cores: int, rows: int = 1000) -> tuple[Any, ...]:
    rng = np.random.default_rng([seed, replicas, cores])
    chip = Chip(cores * 6, cores, replicas, rows)
    return chip, *batch_of(rng, chip)


def check_splits(found: Any, expected: Any) -> None:
    assert found.sorted_row_ids.numpy().tolist() == expected.samples
    assert found.sorted_col_ids.numpy().tolist() == expected.rows
    close(found.sorted_gains, np.array(expected.gains))
    assert found.id_counts.numpy().tolist() == expected.id_counts
    assert int(found.splits) == expected.splits
    assert int(found.max_ids) == expected.max_ids
    assert int(found.max_uniques) == expected.max_uniques


def test_reference_mask_numbers_the_tree_level_by_level() -> None:
    assert mask_of({32}) == 1
    assert mask_of({16, 48}) == 0b110
    assert mask_of({63}) == 1 << 62
    assert ends_of(0b1011) == [8, 16, 32, 64]


# ---- Sorting and cuts.


@pytest.mark.parametrize(("replicas", "cores"), SYSTEMS)
def test_splits_without_statistics_match_reference(replicas: int, cores: int) -> None:
    chip, *batch = drawn(1, replicas, cores)
    expected = cut(chip, batch)
    assert expected.splits == 0
    assert len(expected.rows) < len(batch[1]), "some triples are to be equal"
    check_splits(splits(chip, *batch), expected)


@pytest.mark.parametrize(("replicas", "cores"), SYSTEMS)
@pytest.mark.parametrize("limits", [(2, 9), (9, 2), (1, 1), (4, 4), (30, 30)])
def test_splits_within_statistics_match_reference(
    replicas: int, cores: int, limits: tuple[int, int]
) -> None:
    chip, *batch = drawn(2, replicas, cores)
    store(chip, *limits)
    expected = cut(chip, batch, limits)
    check_splits(splits(chip, *batch), expected)
    assert expected.splits or limits > (4, 4)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 2**31 - 1])
def test_splits_vocabularies_of_all_sizes_match_reference(rows: int) -> None:
    chip, *batch = drawn(3, 1, 2, rows)
    batch[1][:] = np.random.default_rng(3).integers(0, rows, len(batch[1]))
    batch[1][-1] = rows - 1
    store(chip, 3, 3)
    check_splits(splits(chip, *batch), cut(chip, batch, (3, 3)))


def test_splits_batch_without_ids_is_not_cut() -> None:
    chip = Chip(4, 2, 1, 10)
    store(chip, 1, 1)
    nothing = (np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    check_splits(splits(chip, *nothing), cut(chip, nothing, (1, 1)))


# ---- Statistics.


def test_statistics_are_the_most_until_the_system_ends() -> None:
    chip, *batch = drawn(4, 1, 2)
    store(chip, 3, 2)
    store(chip, 2, 3)
    assert int(splits(chip, *batch).splits) == cut(chip, batch, (3, 3)).splits
    store(chip, 0, 0)
    assert int(splits(chip, *batch).splits) == cut(chip, batch, (3, 3)).splits
    assert int(splits(chip, *batch, table_name="other").splits) == 0
    raw.ShutdownDistributedTPU()
    assert int(splits(chip, *batch).splits) == 0


def test_statistics_of_a_batch_leave_it_uncut() -> None:
    chip, *batch = drawn(5, 2, 2)
    store(chip, 2, 2)
    found = splits(chip, *batch)
    assert int(found.splits) != 0
    store(chip, found.max_ids, found.max_uniques)
    assert int(splits(chip, *batch).splits) == 0


def test_statistics_of_distinct_rows_alone_do_not_limit_ids() -> None:
    chip, *batch = drawn(6, 1, 1)
    store(chip, 0, 5)
    assert int(splits(chip, *batch).splits) == cut(chip, batch, (2**62, 5)).splits


# ---- Buffers.

MASKS = [[0], [1], [0b101, 0b11], [2**62, 1], [2**63 - 1], [], [0b1010, 1, 0]]


@pytest.mark.parametrize(("replicas", "cores"), SYSTEMS)
@pytest.mark.parametrize("masks", MASKS)
def test_minibatches_of_any_splits_match_reference(
    replicas: int, cores: int, masks: list[int]
) -> None:
    chip, *batch = drawn(7, replicas, cores)
    found = splits(chip, *batch)
    got = packed(chip, found, np.array(masks, np.int64))
    mask = 0
    for one in masks:
        mask |= one
    given = [np.array(x) for x in (*found[:3], found.id_counts)]
    wrong = wrong_buffers(chip, mask, given, [np.array(x) for x in got])
    assert wrong is None, wrong


def activations_of(chip: Chip, batch: list[Array], table: Array) -> Array:
    """Dense, in float64."""
    samples, rows, gains = batch
    result = np.zeros((chip.samples, table.shape[1]))
    np.add.at(result, samples, gains[:, None] * table[rows].astype(np.float64))
    return result


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
@pytest.mark.parametrize("limits", [None, (1, 1), (3, 9), (9, 3)])
def test_activations_of_minibatches_match_reference(
    cores: int, limits: tuple[int, int] | None
) -> None:
    chip, *batch = drawn(8, 1, cores, 64 * 8)
    if limits:
        store(chip, *limits)
    found = splits(chip, *batch)
    rng = np.random.default_rng(8)
    table = rng.standard_normal((chip.vocabulary, 5)).astype(np.float32)
    expected = activations_of(chip, batch, table)
    # Another host's mask joins that of this one.
    for masks in ([found.splits], [found.splits, 0b1001], [2**63 - 1]):
        csr = packed(chip, found, np.array(masks, np.int64))
        one = {
            "row_pointers": csr.row_pointers,
            "sorted_sample_ids": csr.sorted_sample_ids,
            "sorted_token_ids": csr.sorted_token_ids,
            "sorted_gains": csr.sorted_gains,
            "num_minibatches_per_physical_sparse_core": csr[-1],
        }
        got = lookup(one, dealt(table, cores), chip.samples, cores)
        close(got, expected)


def test_activations_of_several_chips_match_reference() -> None:
    """A chip's buffers have rows of the shards of all chips."""
    chip, *batch = drawn(9, 4, 2, 400)
    store(chip, 2, 2)
    found = splits(chip, *batch)
    csr = packed(chip, found, np.array([found.splits], np.int64))
    table = np.random.default_rng(9).standard_normal((chip.vocabulary, 3))
    got = np.zeros((chip.samples, 3))
    pointers, samples, tokens, gains, *_, minibatches = (np.array(x) for x in csr)
    assert minibatches > 1
    at = number = 0
    for core in range(chip.cores):
        for _ in range(int(minibatches)):
            for shard in range(8):
                for i in range(at, pointers[number]):
                    row = table[tokens[i] * chip.shards + shard]
                    got[core * chip.each + samples[i]] += gains[i] * row
                at, number = -(-int(pointers[number]) // 8) * 8, number + 1
    close(got, activations_of(chip, batch, table))


def test_minibatch_ops_run_in_a_graph() -> None:
    chip, *batch = drawn(10, 1, 2)

    @tf.function(autograph=False)
    def graph(samples: tf.Tensor, rows: tf.Tensor, gains: tf.Tensor) -> Any:
        found = splits(chip, samples, rows, gains)
        store(chip, found.max_ids, found.max_uniques)
        return packed(chip, found, tf.stack([found.splits]))

    eager = splits(chip, *batch)
    expected = packed(chip, eager, np.array([0], np.int64))
    for one, other in zip(graph(*batch), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    store(chip, 1, 1)
    assert int(splits(chip, *batch).splits) == 0, "the graph stored more"


# ---- Refusals.

NAN = np.array([np.nan], np.float32)
SPLITS: list[tuple[str, dict[str, Any]]] = [
    ("program_key: must be a vector", {"program_key": "key"}),
    ("program_key: must be a vector", {"program_key": [["key"]]}),
    ("program_key: must be a vector", {"program_key": np.array([], object)}),
    ("row_ids: must be of rank 1", {"row_ids": np.zeros((3, 1), np.int32)}),
    ("row_ids: must be at least 0 and below sample_count", {"row_ids": [0, 1, 4]}),
    ("row_ids: must be at least 0", {"row_ids": [-1, 1, 2]}),
    ("row_ids: must ascend", {"row_ids": [0, 2, 1]}),
    ("col_ids: must be at least 0 and below table_vocab_size", {"col_ids": [0, 9, 1]}),
    ("col_ids: must be at least 0", {"col_ids": [0, -(2**31), 1]}),
    ("col_ids: must have the shape [3], as row_ids", {"col_ids": [0, 1]}),
    ("gains: must be of rank 1", {"gains": np.zeros((3, 1), np.float32)}),
    ("gains: must have the shape [3]", {"gains": NAN}),
    ("sample_count: must be a multiple", {"sample_count": 5}),
    ("num_replica: must be at least 1", {"num_replica": 2**31 - 1}),
    ("num_replica: must be at least 1", {"num_replica": 2**62}),
    (
        "num_replica: must be at least 1",
        {"num_sc_per_chip": 2**30, "sample_count": 2**30},
    ),
    ("table_vocab_size: must be at least 1", {"table_vocab_size": 2**31}),
    ("table_vocab_size: must be at least 1", {"table_vocab_size": 2**63 - 1}),
]


def refused(words: str, call: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call()
    assert words in raised.value.message, raised.value.message


@pytest.mark.parametrize(("words", "changes"), SPLITS)
def test_splits_bad_arguments_are_refused(words: str, changes: dict[str, Any]) -> None:
    chip = Chip(4, 2, 1, 9)
    batch = (np.array([0, 1, 3], np.int32), np.array([0, 8, 1], np.int32), [1.0] * 3)
    splits(chip, *batch)
    refused(words, lambda: splits(chip, *batch, **changes))


IN_CSR: list[tuple[str, dict[str, Any]]] = [
    ("program_key: must be a vector", {"program_key": "key"}),
    ("row_ids: must be at least 0 and below the number of", {"row_ids": [0, 1, 2]}),
    ("row_ids: must be at least 0", {"row_ids": [0, 1, -1]}),
    ("col_ids: must be at least 0 and below the number of", {"col_ids": [0, 5, 0]}),
    ("col_ids: must have the shape [3]", {"col_ids": [0, 4]}),
    ("gains: must have the shape [3]", {"gains": NAN}),
    ("splits: must be of rank 1", {"splits": np.int64(0)}),
    ("splits: must not be negative", {"splits": [-1]}),
    ("splits: make 3 minibatches, max_minibatches_per_sc is 2", {"splits": [3]}),
    (
        "max_minibatches_per_sc to at least 64",
        {"splits": [2**62, 2**62 - 1], "max_minibatches_per_sc": 63},
    ),
    ("id_counts: must have 64 elements", {"id_counts": np.zeros(3, np.int32)}),
    ("id_counts: must be of rank 1", {"id_counts": np.zeros((257, 1), np.int32)}),
    ("id_counts: must begin with 0 and end", {"id_counts": np.zeros(257, np.int32)}),
    ("id_counts: must begin with 0 and end", {"id_counts": np.full(257, 3, np.int32)}),
    ("id_counts: must ascend", {"id_counts": np.full(257, 4, np.int32)}),
    ("id_counts: must ascend", {"id_counts": -np.arange(257, dtype=np.int32)}),
    ("sample_count: must be a multiple", {"sample_count": 5}),
    ("max_ids_per_chip_per_sample: times", {"max_ids_per_chip_per_sample": 3}),
    (
        "max_ids_per_chip_per_sample: makes a buffer too large",
        {"max_ids_per_chip_per_sample": 2**62},
    ),
    ("max_minibatches_per_sc: makes", {"max_minibatches_per_sc": 2**31 - 1}),
    ("num_replica: makes a buffer", {"num_replica": 2**62}),
    ("table_vocab_size: must be", {"table_vocab_size": 2**40}),
    (
        "max_ids_per_chip_per_sample: is 2, which gives a chip space for 8 triples, "
        "padding included; 1 of 3 do not fit. This batch fits with "
        "max_ids_per_chip_per_sample=4",
        {"max_ids_per_chip_per_sample": 2},
    ),
]


@pytest.mark.parametrize(("words", "changes"), IN_CSR)
def test_minibatches_bad_arguments_are_refused(
    words: str, changes: dict[str, Any]
) -> None:
    chip = Chip(4, 2, 1, 9)
    # The run of the second SparseCore begins at the next multiple of 8.
    found = splits(
        chip, np.array([0, 1, 3], np.int32), np.array([0, 8, 0], np.int32), [1.0] * 3
    )
    good = {"max_minibatches_per_sc": 2, "max_ids_per_chip_per_sample": 8}
    packed(chip, found, np.array([0, 1], np.int64), **good)
    call = {"splits": np.array([0, 1], np.int64)} | good | changes
    refused(words, lambda: packed(chip, found, call.pop("splits"), **call))


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("program_key: must be a vector", {"program_key": "key"}),
        ("max_ids: must not be negative", {"max_ids": -1}),
        ("max_ids: must be of rank 0", {"max_ids": [1]}),
        ("max_uniques: must not be negative", {"max_uniques": -(2**31)}),
        ("max_uniques: must be of rank 0", {"max_uniques": [[1]]}),
        ("sample_count: must be a multiple", {"sample_count": 3}),
        ("sample_count: must be a multiple", {"sample_count": 2**62}),
    ],
)
def test_statistics_bad_arguments_are_refused(
    words: str, changes: dict[str, Any]
) -> None:
    chip = Chip(4, 2, 1, 9)
    good: dict[str, Any] = {"max_ids": 1, "max_uniques": 1}
    raw.StoreMinibatchStatisticsInFdo(**common(chip), **good)
    call = common(chip) | good | changes
    refused(words, lambda: raw.StoreMinibatchStatisticsInFdo(**call))


def test_statistics_of_too_many_tables_are_refused() -> None:
    chip = Chip(4, 2, 1, 9)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="table_name: the stat"):
        for number in range(6):
            store(chip, 1, 1, table_name=f"{number}" + "x" * 2**20)


def test_minibatch_ops_drawn_damage_is_refused_or_computed() -> None:
    refused_calls = hostile_minibatches.run(400, 0)
    assert 100 < refused_calls < 400
