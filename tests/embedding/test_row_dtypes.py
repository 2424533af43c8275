"""Tables whose rows are stored in float16, bfloat16 or int8."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from embedding.support.cases import configure
from embedding.support.program import table, tpu_embedding
from opwright import OpAttrError, TBfloat16, TInt8, tpu
from opwright_runtime import native
from support.processes import run_program

NARROW = ("float16", "bfloat16", "int8")
LARGEST = {"float16": 65504.0, "bfloat16": 2.0**128 - 2.0**120, "int8": 2.0**126}

Array = NDArray[np.float32]


def stored(weights: Array, dtype: str) -> NDArray[np.float64]:
    """The numbers that rows have when these weights were loaded."""
    limit = np.float32(LARGEST.get(dtype, np.inf))
    weights = np.clip(weights, -limit, limit)
    if dtype != "int8":
        narrow: Any = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        numbers: NDArray[np.float64] = weights.astype(narrow).astype(np.float64)
        return numbers
    low, high = weights.min(axis=1), weights.max(axis=1)
    scale = ((high - low) / np.float32(255)).astype(np.float64)[:, None]
    offset = low.astype(np.float64)[:, None]
    codes: NDArray[np.float64] = np.rint(
        (weights - offset) / np.where(scale > 0, scale, 1)
    )
    decoded: NDArray[np.float64] = codes * scale + offset
    return decoded


class Films:
    """One configured table, with an optimizer of opwright's."""

    def __init__(
        self,
        weights: Array,
        dtype: Any,
        features: Sequence[int] = (4,),
        optimizer: Any = None,
    ) -> None:
        optimizer = optimizer or tpu_embedding.SGD(0.5)
        rows, dim = weights.shape
        films = tpu.EmbeddingTable("films", rows, dim, optimizer, row_dtype=dtype)
        made = [
            tpu.EmbeddingFeature(f"feature{i}", films, [samples])
            for i, samples in enumerate(features)
        ]
        self.config: bytes = tpu.EmbeddingConfig([films], made).message
        configure(self.config)
        self.load(weights)

    def load(self, weights: Array) -> None:
        native.ops().opwright_load_embedding_table(
            parameters=weights,
            slots=[],
            table_name="films",
            num_shards=1,
            shard_id=0,
            config="",
        )

    def rows(self) -> Array:
        found = native.ops().opwright_retrieve_embedding_table(
            N=0, num_shards=1, shard_id=0, config="", table_id=0
        )
        rows: Array = found.parameters.numpy()
        return rows

    def step(self, ids: Any, gradients: Any) -> None:
        none = tf.zeros([0])
        tpu.enqueue_tpu_embedding_arbitrary_tensor_batch(
            [tf.zeros([0], tf.int64)], [tf.constant(ids, tf.int64)], [none], "train"
        )
        tpu.recv_tpu_embedding_activations(1, self.config)
        tpu.send_tpu_embedding_gradients([gradients], [], config=self.config)


def close(found: Any, expected: Any, size: float = 1.0) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6 * size)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("dim", [1, 7, 16, 50, 64, 129])
def test_lookups_are_those_of_the_stored_rows(dtype: str, dim: int) -> None:
    """Bags with weights, against float64."""
    rng = np.random.default_rng(dim)
    weights = rng.normal(size=(40, dim)).astype(np.float32)
    Films(weights, dtype)
    numbers = stored(weights, dtype)
    for samples in (1, 3, 200):
        lengths = rng.integers(0, 30, samples)
        splits = np.concatenate([[0], np.cumsum(lengths)])
        ids = rng.integers(0, 40, splits[-1])
        by = rng.uniform(0.5, 2, len(ids)).astype(np.float32)
        bags = np.repeat(np.arange(samples), lengths)
        expected = np.zeros((samples, dim))
        np.add.at(expected, bags, by.astype(np.float64)[:, None] * numbers[ids])
        found = tpu.embedding_lookup(
            tf.constant(ids), tf.constant(splits), tf.constant(by)
        )
        close(found, expected, size=30)
    close(tpu.embedding_lookup(tf.range(40)), numbers)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", NARROW)
def test_retrieved_rows_are_those_that_lookups_have(dtype: str) -> None:
    weights = np.random.default_rng(0).normal(size=(50, 33)).astype(np.float32)
    films = Films(weights, dtype)
    close(films.rows(), stored(weights, dtype))
    np.testing.assert_array_equal(films.rows(), tpu.embedding_lookup(tf.range(50)))
    before = films.rows()
    films.load(before)
    if dtype == "int8":  # The last bits of scales may differ.
        close(films.rows(), before)
    else:
        np.testing.assert_array_equal(films.rows(), before)


@pytest.mark.parametrize("dtype", ["float32", tf.float32, *NARROW, TBfloat16, TInt8])
def test_dtype_is_named_in_any_way(dtype: Any) -> None:
    weights = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    name = dtype if isinstance(dtype, str) else getattr(dtype, "dtype", dtype).name
    close(Films(weights, dtype).rows(), stored(weights, name))


@pytest.mark.parametrize("dtype", NARROW)
def test_large_weights_become_the_largest_number(dtype: str) -> None:
    most = np.finfo(np.float32).max
    weights = np.array([[most, 1.0], [-most, 0.0], [7.0, 7.0]], np.float32)
    films = Films(weights, dtype)
    found = films.rows()
    assert np.isfinite(found).all()
    np.testing.assert_allclose(
        found[:2, 0], [LARGEST[dtype], -LARGEST[dtype]], rtol=1e-6
    )
    np.testing.assert_array_equal(found[2], [7, 7])
    films.step([0, 1, 2, 2], tf.fill([4, 2], most))
    assert np.isfinite(films.rows()).all()


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_are_refused(dtype: str, value: float) -> None:
    weights = np.ones((3, 2), np.float32)
    films = Films(weights, dtype)
    bad = weights.copy()
    bad[1, 1] = value
    with pytest.raises(tf.errors.InvalidArgumentError, match="row 1, column 1"):
        films.load(bad)
    close(films.rows(), weights)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", NARROW)
def test_training_follows_small_gradients(dtype: str) -> None:
    """Rounding to nearest would not move weights, and random rounding does."""
    rows, steps, change = 2000, 20, 2e-4
    weights = np.tile(np.array([0.0, 0.3, 0.7, 1.0], np.float32), (rows, 1))
    films = Films(weights, dtype, [rows], tpu_embedding.SGD(1.0))
    before = films.rows().astype(np.float64)
    gradients = tf.tile([[0.0, change, -change, 0.0]], [rows, 1])
    for _ in range(steps):
        films.step(range(rows), gradients)
    moved = films.rows() - before
    error = moved.std(axis=0) / np.sqrt(rows) * 5 + 1e-6
    expected = np.array([0, -change, change, 0]) * steps
    assert (np.abs(moved.mean(axis=0) - expected) <= error).all()
    assert len(np.unique(moved[:, 1])) > 1


@pytest.mark.parametrize("dtype", NARROW)
def test_equal_trainings_have_equal_bits(dtype: str) -> None:
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(300, 20)).astype(np.float32)
    gradients = rng.normal(size=(5, 100, 20)).astype(np.float32)
    ids = rng.integers(0, 300, (5, 100))

    def train() -> Array:
        films = Films(weights, dtype, [100])
        for some, gradient in zip(ids, gradients, strict=True):
            films.step(some, tf.constant(gradient))
        return films.rows()

    np.testing.assert_array_equal(train(), train())


class Program:
    """A TPUEmbedding with two tables, of which one is narrow."""

    def __init__(self, dtypes: dict[str, Any], weights: Array) -> None:
        self.strategy = tpu.software_strategy(row_dtypes=dtypes)
        features = {
            name: tpu_embedding.FeatureConfig(
                table(weights, name, combiner="sum"), output_shape=[len(weights)]
            )
            for name in ("films", "people")
        }
        with self.strategy.scope():
            self.embedding = tpu_embedding.TPUEmbedding(
                features, tpu_embedding.Adagrad(0.3)
            )
        self.embedding.build()

    @tf.function
    def train(self, ids: Any, gradients: Any, fails: bool = False) -> None:
        def step(gradients: Any) -> None:
            self.embedding.dequeue()
            if fails:
                tf.debugging.assert_equal(tf.reduce_sum(gradients["films"]), -1e9)
            self.embedding.apply_gradients(gradients)

        self.embedding.enqueue(ids, training=True)
        self.strategy.run(step, args=(gradients,))


WEIGHTS = np.random.default_rng(5).normal(size=(30, 12)).astype(np.float32)
IDS = {name: tf.range(30, dtype=tf.int64) for name in ("films", "people")}
GRADIENTS = {name: tf.ones([30, 12]) for name in ("films", "people")}


@pytest.mark.parametrize("dtype", NARROW)
def test_strategy_gives_tables_their_dtypes(dtype: str) -> None:
    Program({"films": dtype}, WEIGHTS)
    rows, slots = tpu.table("films")
    close(rows, stored(WEIGHTS, dtype))
    np.testing.assert_array_equal(slots["accumulators"], tf.fill([30, 12], 0.1))
    np.testing.assert_array_equal(tpu.table("people").rows, WEIGHTS)
    # The next strategy has none.
    Program({}, WEIGHTS)
    np.testing.assert_array_equal(tpu.table("films").rows, WEIGHTS)


@pytest.mark.parametrize("dtype", NARROW)
def test_step_that_fails_changes_nothing(dtype: str) -> None:
    """Not even the random numbers of later steps."""
    program = Program({"films": dtype}, WEIGHTS)
    program.train(IDS, GRADIENTS)
    expected = tpu.table("films").rows
    program.train(IDS, GRADIENTS)
    last = tpu.table("films").rows
    again = Program({"films": dtype}, WEIGHTS)
    again.train(IDS, GRADIENTS)
    with pytest.raises(tf.errors.InvalidArgumentError):
        again.train(IDS, GRADIENTS, fails=True)
    np.testing.assert_array_equal(tpu.table("films").rows, expected)
    again.train(IDS, GRADIENTS)
    np.testing.assert_array_equal(tpu.table("films").rows, last)


@pytest.mark.parametrize("dtype", NARROW)
def test_checkpoint_keeps_rows_and_slots(dtype: str, tmp_path: Path) -> None:
    """Into a narrow table, and into one of float32."""
    program = Program({"films": dtype}, WEIGHTS)
    program.train(IDS, GRADIENTS)
    expected = tpu.table("films")
    path = tf.train.Checkpoint(tables=program.embedding).save(tmp_path / "films")
    for after in (dtype, "float32"):
        other = Program({"films": after}, WEIGHTS * 0)
        tf.train.Checkpoint(tables=other.embedding).restore(path)
        found = tpu.table("films")
        close(found.rows, expected.rows, size=2)
        for name, slot in expected.slots.items():
            np.testing.assert_array_equal(found.slots[name], slot)
    values = tpu.tables_from_checkpoint(path)["films"]
    np.testing.assert_array_equal(values.rows, expected.rows)


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_rows_are_the_same_with_any_number_of_cores(dtype: str) -> None:
    done = run_program("embedding.support.on_cores", f"{dtype} rows of 4", timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "done" in done.stdout


@pytest.mark.parametrize("dtype", ["float64", "int4", "", None, 3, 6, True, tf.int32])
def test_unknown_dtype_is_refused(dtype: Any) -> None:
    allowed = "must be one of float32, float16, bfloat16, int8, not"
    with pytest.raises(ValueError, match=rf"row_dtypes\['films'\] {allowed}"):
        tpu.software_strategy(row_dtypes={"films": dtype})
    films = tpu.EmbeddingTable("films", 3, 2, tpu_embedding.SGD(1.0), 1, None, dtype)
    with pytest.raises(OpAttrError, match=f"row_dtype of table 'films' {allowed}"):
        tpu.EmbeddingConfig([films], batch_size=1)


@pytest.mark.parametrize("value", [0, 2, 20, 2**40])
def test_unknown_dtype_in_a_configuration_is_refused(value: int) -> None:
    films = tpu.EmbeddingTable("films", 3, 2, tpu_embedding.SGD(1.0), 1)
    config = tpu.EmbeddingConfig([films], batch_size=1).message
    varint = bytearray()
    while value > 127:
        varint.append(value & 127 | 128)
        value >>= 7
    config.table_descriptor[0].MergeFromString(b"\xc0\x3e" + bytes([*varint, value]))
    words = r"'films'.*bfloat16 \(14\) or int8 \(6\), is "
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        configure(config.SerializeToString())


@pytest.mark.parametrize("dtypes", ["int8", tf.int8, ["films"], 3])
def test_dtypes_without_names_of_tables_are_refused(dtypes: Any) -> None:
    with pytest.raises(TypeError, match="row_dtypes must be a dict of the names of ta"):
        tpu.software_strategy(row_dtypes=dtypes)


def test_dtype_of_a_table_that_is_not_there_is_refused() -> None:
    words = "names a table 'fims', and the tables of this TPUEmbedding are 'films', "
    with pytest.raises(ValueError, match=words):
        Program({"fims": "int8"}, WEIGHTS)


@pytest.mark.parametrize(
    "place", [{"device": "/gpu:0"}, {"embedding_feature": "v2"}], ids=["gpu", "v2"]
)
def test_dtype_of_other_tables_is_refused(place: dict[str, Any]) -> None:
    words = "row_dtypes is for the tables of TPUEmbedding on the CPU; remove"
    with pytest.raises(ValueError, match=words):
        tpu.software_strategy(row_dtypes={"films": "int8"}, **place)
