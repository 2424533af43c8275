"""tpu.embedding_lookup, of no step: against doubles, and against the ops of a step."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from embedding.support.program import Program, rows, table, tpu_embedding
from opwright import OpAttrError, OpInputError, tpu
from opwright_runtime import native
from opwright_runtime._internals import context as tf_context
from opwright_runtime.embedding import lookup
from support.processes import run_program
from support.usage import resident

Floats = NDArray[np.float32]
Combiner = Literal["sum", "mean", "sqrtn"]
COMBINERS: tuple[Combiner, ...] = ("sum", "mean", "sqrtn")
FILMS = np.random.default_rng(7).normal(size=(12, 5)).astype(np.float32)
PEOPLE = np.random.default_rng(8).normal(size=(6, 3)).astype(np.float32)
ONES = np.ones((4, 2), np.float32)


def program(pipelined: bool = False) -> Program:
    """Features "friends", of people, and "liked" and "seen", of films."""
    films, people = table(FILMS, "films"), table(PEOPLE, "people")
    features = {
        "seen": tpu_embedding.FeatureConfig(films, output_shape=[2]),
        "liked": tpu_embedding.FeatureConfig(films, output_shape=[2]),
        "friends": tpu_embedding.FeatureConfig(people, output_shape=[2]),
    }
    return build(Program(features, tpu_embedding.SGD(0.5), pipelined))


def build(made: Program) -> Program:
    with made.strategy.scope():
        made.embedding.build()
    return made


def order() -> list[Floats]:
    """By feature, as the configuration has them, the rows that it is looked up in."""
    config = tpu.TPUEmbeddingConfiguration.FromString(native.embedding_configuration())
    by_name = {"films": FILMS, "people": PEOPLE}
    names = [one.name for one in config.table_descriptor]
    return [by_name[names[one.table_id]] for one in config.feature_descriptor]


@pytest.mark.rotating
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("split", [False, True], ids=["single", "bags"])
def test_any_number_of_samples(split: bool, weighted: bool, combiner: Combiner) -> None:
    program()
    rng = np.random.default_rng(split + 2 * weighted)
    for samples in (0, 1, 2, 7, 3000):
        ids, lengths, weights, expected = [], [], [], []
        for rows_of_table in order():
            columns = np.zeros((samples, rows_of_table.shape[1]))
            for sample in range(samples):
                length = rng.integers(0, 5) if split else 1
                one = rng.integers(0, len(rows_of_table), length)
                by = rng.uniform(0.5, 2, length).astype(np.float32)
                by = by if weighted else np.ones_like(by)
                divisor = {
                    "sum": 1.0,
                    "mean": by.sum(dtype=np.float64),
                    "sqrtn": np.sqrt(np.square(by, dtype=np.float64).sum()),
                }[combiner]
                if length:
                    columns[sample] = (
                        by.astype(np.float64) @ rows_of_table[one] / divisor
                    )
                ids.append(one)
                lengths.append(length)
                weights.append(by)
            expected.append(columns)
        splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        for dtype in (np.int32, np.int64):
            found = tpu.embedding_lookup(
                np.concatenate([np.zeros(0, dtype), *ids]).astype(dtype),
                splits.astype(dtype) if split else None,
                (
                    np.concatenate([np.zeros(0, np.float32), *weights])
                    if weighted
                    else None
                ),
                combiners=(combiner, combiner),
            )
            assert found.dtype == tf.float32
            np.testing.assert_allclose(found, np.hstack(expected), rtol=2e-6, atol=2e-6)


def test_packed_lookup_equals_op() -> None:
    """A call that is no op's finds what the op finds, on the CPU, and lets go of it."""
    program()
    rng = np.random.default_rng(3)
    samples = 700
    lengths = rng.integers(0, 5, (3, samples))
    of_rows = [len(rows_of) for rows_of in order()]
    ids = np.concatenate(
        [
            rng.integers(0, rows_of, count.sum())
            for rows_of, count in zip(of_rows, lengths, strict=True)
        ]
    )
    splits = np.concatenate([[0], np.cumsum(lengths.ravel())])
    by = tf.constant(rng.uniform(0.5, 2, len(ids)), tf.float32)
    op = native.ops().opwright_embedding_lookup
    for of_ids in (tf.int32, tf.int64):
        for of_splits in (tf.int32, tf.int64):
            for weights in (None, by):
                for combiners in ((), ("mean", "sqrtn")):
                    bags = tf.constant(ids, of_ids), tf.constant(splits, of_splits)
                    at_once = lookup._find_at_once(*bags, weights, combiners)
                    assert at_once is not None
                    found = op(*bags, [] if weights is None else weights, combiners)
                    np.testing.assert_array_equal(at_once, found)
                    assert at_once.device == found.device
                    assert at_once.shape == found.shape == [samples, 13]
    no_bags = tf.zeros([0], tf.int64), tf.zeros([1], tf.int64)
    at_once = lookup._find_at_once(*no_bags, None, ())
    assert at_once is not None
    assert at_once.shape == [0, 13]
    before = resident()
    for _ in range(2000):
        assert at_once is not None
        at_once = tf.identity(lookup._find_at_once(*bags, None, ()))
    assert resident() - before < 2000 * samples * 13 * 4 / 4


@pytest.mark.rotating
def test_large_activations_are_their_callers() -> None:
    """Released memory is reused; memory that a caller still holds is unchanged."""
    weights = np.random.default_rng(9).normal(size=(1000, 64)).astype(np.float32)
    feature = tpu_embedding.FeatureConfig(table(weights, "wide"), output_shape=[2])
    build(Program({"all": feature}, tpu_embedding.SGD(0.5)))
    first, second, third = (
        tf.random.stateless_uniform([160_000], (seed, 0), 0, 1000, tf.int32)
        for seed in range(3)
    )
    kept = tpu.embedding_lookup(first)
    for ids in (second, third, second):
        found = tpu.embedding_lookup(ids)
        np.testing.assert_array_equal(found, weights[ids])
        del found
    np.testing.assert_array_equal(kept, weights[first])


@pytest.mark.rotating
def test_large_activations_take_no_new_pages() -> None:
    """Where TensorFlow pools no memory: without oneDNN, as on processors of AMD."""
    done = run_program(
        "embedding.support.large_lookups",
        timeout=120,
        afresh=True,
        TF_ENABLE_ONEDNN_OPTS="0",
    )
    first, *others = (int(line) for line in done.stdout.split())
    assert first > 10_000, done.stdout + done.stderr
    assert len(others) == 3
    assert max(others) < first / 10


def test_only_what_is_plain_is_found_at_once() -> None:
    """All else an op finds, or refuses."""
    program()
    ids = tf.constant([0, 1, 2, 3, 0, 1])
    found = tpu.embedding_lookup(ids)
    assert lookup._find_at_once(ids, None, None, ()) is not None
    for wrong in (
        tf.constant([0.0] * 6),
        tf.constant([0] * 6, tf.int16),
        ids[None],
        ids[0],
        ids[:5],
        ids + 12,
    ):
        assert lookup._find_at_once(wrong, None, None, ()) is None
    assert lookup._find_at_once(ids, ids, None, ()) is None
    assert lookup._find_at_once(ids, None, ids, ()) is None
    assert lookup._find_at_once(ids, None, tf.ones([5]), ()) is None
    for combiners in (["max"] * 2, ["sum"], ["sum,mean"], ["sum", "mean\0"]):
        assert lookup._find_at_once(ids, None, None, combiners) is None
    # Steps may be waiting there to be run.
    with tf_context.execution_mode(tf_context.ASYNC):
        assert lookup._find_at_once(ids, None, None, ()) is None
        np.testing.assert_array_equal(tpu.embedding_lookup(ids), found)
    for taken in (ids.numpy(), ids.numpy().tolist(), tf.Variable(ids)):
        np.testing.assert_array_equal(tpu.embedding_lookup(taken), found)


def test_packed_lookup_is_in_profiles(tmp_path: Path) -> None:
    program()
    ids = tf.constant([0, 1, 2, 3, 0, 1])
    tf.profiler.experimental.start(str(tmp_path))
    assert lookup._find_at_once(ids, None, None, ()) is not None
    tf.profiler.experimental.stop()
    (profile,) = tmp_path.rglob("*.xplane.pb")
    assert b"OpwrightEmbeddingLookup" in profile.read_bytes()


def test_as_a_step_looks_up() -> None:
    """The same bits, before an update and after it."""
    made = program()
    ids = {
        "seen": rows([3, 3, 11], []),
        "liked": rows([0], [5, 1]),
        "friends": rows([2], [5]),
    }
    gradients = {name: tf.ones([2, 3 if name == "friends" else 5]) for name in ids}
    packed = tf.concat([ids[name].values for name in sorted(ids)], 0)
    lengths = tf.concat([ids[name].row_lengths() for name in sorted(ids)], 0)
    splits = tf.concat([[0], tf.cumsum(lengths)], 0)
    for _ in range(3):
        made.train(ids, gradients)
        step = made.look_up(ids)
        found = tpu.embedding_lookup(packed, splits, combiners=["mean", "mean"])
        np.testing.assert_array_equal(
            found, tf.concat([step[n] for n in sorted(ids)], 1)
        )


def test_after_every_update_that_was_sent() -> None:
    """Where a step's lookups come before the update of the one before, too."""
    made = program(pipelined=True)
    ids = {
        "seen": tf.constant([0, 1]),
        "liked": tf.constant([2, 3]),
        "friends": tf.constant([0, 1]),
    }
    before = tpu.embedding_lookup([0, 1, 2, 3, 0, 1])
    ones = {name: tf.ones([2, 3 if name == "friends" else 5]) for name in ids}
    for step in range(1, 4):
        made.train(ids, ones)
        found = tpu.embedding_lookup([0, 1, 2, 3, 0, 1])
        np.testing.assert_allclose(found, before - 0.5 * step, rtol=1e-6, atol=1e-6)
    assert tpu.embedding_step_count() == 3


def test_in_functions_and_exports(tmp_path: Path) -> None:
    program()

    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
        def look_up(self, ids: tf.Tensor) -> tf.Tensor:
            return tpu.embedding_lookup(ids)

    ids = tf.constant([3, 0, 11, 11, 5, 1])
    found = Model().look_up(ids)
    np.testing.assert_array_equal(found, tpu.embedding_lookup(ids))
    assert found.shape == [2, 13]
    tf.saved_model.save(Model(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded.look_up(ids), found)


def test_packed_lookup_during_training_sees_whole_updates() -> None:
    """A read while another thread trains sees rows only between complete updates."""
    ones = table(ONES, "ones")
    feature = {"all": tpu_embedding.FeatureConfig(ones, output_shape=[4])}
    made = build(Program(feature, tpu_embedding.SGD(1.0)))
    over = threading.Event()
    wrong: list[Floats] = []
    seen: list[np.float32] = []

    def read() -> None:
        while not over.is_set() or not seen:
            found = tpu.embedding_lookup([0, 1, 2, 3]).numpy()
            seen.append(found[0, 0])
            if (found != found[0, 0]).any():
                wrong.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(50):
            made.train({"all": tf.range(4)}, {"all": tf.ones([4, 2])})
    finally:
        over.set()
        reader.join()
    assert not wrong
    assert sorted(seen, reverse=True) == seen
    assert tpu.embedding_lookup([0, 1, 2, 3])[0, 0] == -49


def test_bad_calls_are_told_what_is_wrong() -> None:
    made = program()
    ids = [0] * 6

    def refused(words: str, *args: Any, **options: Any) -> None:
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            tpu.embedding_lookup(*args, **options)
        assert words in str(error.value)

    allowed = [f"ids must be in [0, {len(rows_of)})" for rows_of in order()]
    numbers = [f"id at position 1 is 12; {text}" for text in allowed]
    for feature, words in enumerate(numbers):
        wrong = list(ids)
        wrong[2 * feature + 1] = 12
        refused(words, wrong)
    refused(
        "ids: must be a multiple of the 3 features of the configuration, are 5", ids[1:]
    )
    refused(
        "row_splits: must be one more than a multiple of the 3 features", ids, [0, 6]
    )
    refused(
        "row_splits: must not descend, the one at position 2 is 1 after 2",
        ids,
        [0, 2, 1, 6],
    )
    refused(
        "row_splits: the last one must be the number of ids, 6, is 5", ids, [0, 2, 4, 5]
    )
    refused("weights: must be as many as ids, 6, or none, are 2", ids, None, [1.0, 1.0])
    refused(
        "weight at position 0 is inf; weights must be finite",
        ids,
        None,
        [np.inf] + [1.0] * 5,
    )
    refused(
        "combiners: must be one for each of the 2 tables or none, are 1",
        ids,
        combiners=["sum"],
    )
    refused(
        "combiners: each must be 'sum', 'mean' or 'sqrtn', one is 'max'",
        ids,
        combiners=["max"] * 2,
    )
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="rank"):
        tpu.embedding_lookup([ids])
    # Nothing has changed by any of them.
    ids_of = {
        "seen": tf.constant([0, 1]),
        "liked": tf.constant([2, 3]),
        "friends": tf.constant([0, 1]),
    }
    found = made.look_up(ids_of)
    np.testing.assert_array_equal(found["friends"], PEOPLE[:2])
    tpu.shutdown_distributed_tpu()
    calls: list[dict[str, Any]] = [{}, {"combiners": {"films": "mean"}}]
    for options in calls:
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match=r"^embedding_lookup: no embeddings are configured; build a TPUEmbedd",
        ):
            tpu.embedding_lookup(ids, **options)


def test_packed_lookup_takes_combiners_by_table() -> None:
    """The list follows the features, which are sorted by name: people, then films."""
    program()
    ids = tf.range(5)
    splits = tf.constant([0, 2, 3, 5])
    by_table: dict[str, Combiner] = {"films": "mean", "people": "sum"}
    found = tpu.embedding_lookup(ids, splits, combiners=by_table)
    np.testing.assert_allclose(
        found[0],
        np.concatenate([PEOPLE[0] + PEOPLE[1], FILMS[2], (FILMS[3] + FILMS[4]) / 2]),
        rtol=1e-6,
    )
    as_list = tpu.embedding_lookup(ids, splits, combiners=["sum", "mean"])
    np.testing.assert_array_equal(found, as_list)

    @tf.function
    def traced(ids: tf.Tensor) -> tf.Tensor:
        return tpu.embedding_lookup(ids, splits, combiners=by_table)

    np.testing.assert_array_equal(traced(ids), found)
    wrong: tuple[dict[str, Combiner], ...] = (
        {},
        {"films": "mean"},
        {**by_table, "towns": "sum"},
    )
    for combiners in wrong:
        with pytest.raises(OpAttrError, match="for each table: 'people', 'films', not"):
            tpu.embedding_lookup(ids, splits, combiners=combiners)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_packed_lookup_of_values_that_are_not_packed_says_how(traced: bool) -> None:
    program()
    look_up: Any = tpu.embedding_lookup
    if traced:
        look_up = tf.function(look_up, autograph=False)
    bags = tf.ragged.constant([[0], [1, 2], []])
    with pytest.raises(OpInputError, match=r"ids must.*pass ids\.values as ids"):
        look_up(bags)
    with pytest.raises(OpInputError, match=r"not a SparseTensor.*from_sparse\(ids\)"):
        look_up(bags.to_sparse())
    with pytest.raises(OpInputError, match=r"not a dict.*in the order of their names"):
        look_up({"seen": bags, "liked": bags, "friends": bags})
    with pytest.raises(OpInputError, match="weights must be a tensor of rank 1"):
        look_up(bags.values, bags.row_splits, tf.cast(bags, tf.float32))
    with pytest.raises(OpAttrError, match="by the names of tables, or a list, not 'm"):
        look_up(bags.values, bags.row_splits, combiners="mean")
    found = look_up(bags.values, bags.row_splits)
    np.testing.assert_array_equal(found[0, :3], PEOPLE[0])
