"""Lookups of SparseCores, and the ops before them, match a NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.tpu_embedding_v3 import TPUEmbeddingV2

from sparsecore.support.lookups import (
    COMBINERS,
    DIVISIONS,
    bags_of,
    buffers,
    close,
    coo,
    csr_of,
    dealt,
    divided,
    flat,
    listed,
    looked_up,
    lookup,
    raw,
    sort_lists,
    wrapped,
)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("cores", [1, 2, 4, 16])
def test_dense_matmul_lookup_matches_reference(cores: int, combiner: str) -> None:
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


def test_dense_matmul_stacked_tables_match_reference() -> None:
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


def test_dense_matmul_minibatches_match_reference() -> None:
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


def test_dense_matmul_quantized_lookup_matches_reference() -> None:
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


def test_dense_matmul_integer_table_matches_reference() -> None:
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


def test_sparse_core_ops_empty_batch_and_table_give_empty_results() -> None:
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


def test_tpu_embedding_v2_sparse_core_stats_match_reference() -> None:
    """TensorFlow's own preprocessing runs on these kernels."""
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
        # The two features have samples of their own, and share rows.
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
