"""Limits of TPUEmbeddingV2: refused and dropped ids, and the limits of a data set.

The drawn batches are in tests/embedding/support/sparse_core_limits.py.
"""

from __future__ import annotations

import dataclasses
import io
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.sparse_core_limits import Batch, Drawn
from opwright import tpu
from opwright_runtime import native
from opwright_runtime.embedding import sparse_core_limits
from support.processes import run_program

if tf.__version__ < "2.21":
    pytest.skip("TPUEmbeddingV2 runs with TensorFlow 2.21", allow_module_level=True)

embedding = tf.tpu.experimental.embedding
BATCH, ROWS = 8, 64


@pytest.mark.equivalence
def test_sparse_core_limits_on_200_drawn_batches_match_reference() -> None:
    name = "embedding.support.sparse_core_limits"
    done = run_program(name, "20", "10", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "done" in done.stdout


def features(tables: int = 1, combiner: str = "sum") -> dict[str, Any]:
    """A feature for each table. TensorFlow stacks the tables."""
    return {
        name: embedding.FeatureConfig(
            embedding.TableConfig(ROWS, 8, combiner=combiner, name=name),
            output_shape=[BATCH],
        )
        for name in ("films", "people")[:tables]
    }


class Setup:
    """Lookups and updates of tables on one core with four SparseCores."""

    def __init__(self, tables: int = 1, **limits: Any) -> None:
        self.strategy = tpu.software_strategy(embedding_feature="v2")
        self.names = list(features(tables))
        with self.strategy.scope():
            self.made = embedding.TPUEmbeddingV2(
                features(tables),
                embedding.SGD(1.0),
                sparse_core_embedding_config=embedding.SparseCoreEmbeddingConfig(
                    **limits
                ),
            )
        self.made.build()

    @tf.function
    def step(self, *ids: Any) -> Any:
        def step(*ids: Any) -> Any:
            found, kept = self.made(dict(zip(self.names, ids, strict=True)))
            ones = {name: tf.ones_like(one) for name, one in found.items()}
            self.made.apply_gradients(ones, kept)
            return found

        return self.strategy.run(step, args=ids)


def ragged(ids: list[list[int]]) -> tf.RaggedTensor:
    return tf.ragged.constant(ids, tf.int64, ragged_rank=1)


FEW = [[i] for i in range(BATCH)]
#: Of SparseCore 1, six ids of five rows in shard 0.
MANY = [[0], [1], [0, 4, 8, 12, 16], [8], [2], [3], [5], [6]]


@pytest.mark.parametrize("drop", [False, True])
def test_ids_beyond_max_ids_per_table_error_names_numbers_to_set(drop: bool) -> None:
    limits = {"films_people": 5}
    setup = Setup(
        2,
        max_ids_per_table=limits,
        max_unique_ids_per_table=limits,
        allow_id_dropping=drop,
    )
    setup.step(ragged(FEW), ragged(FEW))
    before = tpu.table("films").rows
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        setup.step(ragged(MANY), ragged([[]] * BATCH))
    said = raised.value.message
    for words in (
        "max_ids_per_table: is 5 for the stack films_people of the tables films, ",
        "SparseCore 1 requests 6 ids of shard 0. Set SparseCoreEmbeddingConfig(",
        "max_ids_per_table={'films_people': 6}, ",
        "max_unique_ids_per_table={'films_people': 5}); opwright.tpu.sparsecore_limits",
    ):
        assert words in said
    beyond = "allow_id_dropping=True drops only the ids beyond max_ids_per_chip"
    assert (beyond in said) == drop
    np.testing.assert_array_equal(tpu.table("films").rows, before)
    enough = Setup(
        2,
        max_ids_per_table={"films_people": 6},
        max_unique_ids_per_table={"films_people": 5},
    )
    enough.step(ragged(MANY), ragged([[]] * BATCH))


def test_ids_beyond_max_unique_ids_per_table_error_names_numbers_to_set() -> None:
    setup = Setup(max_ids_per_table={"films": 9}, max_unique_ids_per_table={"films": 4})
    words = (
        r"max_unique_ids_per_table: is 4 for the table films; SparseCore 1 requests 5 "
        r"distinct ids of shard 0\. Set SparseCoreEmbeddingConfig\(max_ids_per_table="
        r"{'films': 9}, max_unique_ids_per_table={'films': 5}\)"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        setup.step(ragged(MANY))


def test_ids_beyond_space_of_chip_error_names_number_to_set() -> None:
    setup = Setup(max_ids_per_chip_per_sample=1)
    words = (
        "max_ids_per_chip_per_sample: is 1, which gives the table films space for 8 "
        r"ids, padding included; this batch needs (\d+)\. "
        r"Set SparseCoreEmbeddingConfig\(max_ids_per_chip_per_sample=(\d+)\), or drop"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=words) as raised:
        setup.step(ragged(MANY))
    found = re.search(words, raised.value.message)
    assert found
    enough = Setup(max_ids_per_chip_per_sample=int(found[2]))
    enough.step(ragged(MANY))
    fewer = Setup(max_ids_per_chip_per_sample=int(found[2]) - 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="chip_per_sample: is"):
        fewer.step(ragged(MANY))


def test_dropped_ids_are_counted_and_not_trained() -> None:
    setup = Setup(max_ids_per_chip_per_sample=1, allow_id_dropping=True)
    before = tpu.table("films").rows.numpy()
    # The space is that of one run, of SparseCore 0 and shard 0.
    found = setup.step(ragged([[0, 4, 1], *[[8, 5]] * (BATCH - 1)]))["films"]
    np.testing.assert_allclose(found[0], before[0] + before[4], rtol=1e-6)
    np.testing.assert_allclose(found[1], before[8], rtol=1e-6)
    np.testing.assert_array_equal(found[2:], np.zeros((BATCH - 2, 8)))
    changed = np.any(tpu.table("films").rows.numpy() != before, axis=1)
    assert np.flatnonzero(changed).tolist() == [0, 4, 8]
    # Each SparseCore needs two runs of at most 8 ids.
    want = tpu.sparsecore_dropped_ids()["films"]
    assert want == (2 + 2 * (BATCH - 2), 1, 8)
    assert want == tpu.DroppedIds(14, 1, max_ids_per_chip_per_sample=8)


def test_dropped_ids_of_constant_ids_are_counted_in_each_step() -> None:
    setup = Setup(max_ids_per_chip_per_sample=1, allow_id_dropping=True)

    @tf.function
    def run() -> Any:
        ids = {"films": tf.constant(list(range(BATCH)), tf.int64)}
        return setup.strategy.run(lambda: setup.made(ids)[0])

    for steps in (1, 2, 3):
        run()
        counted = tpu.sparsecore_dropped_ids()["films"]
        assert (counted.ids, counted.batches) == (7 * steps, steps)


def test_dropped_ids_of_new_embedding_begin_at_0() -> None:
    first = Setup(max_ids_per_chip_per_sample=1, allow_id_dropping=True)
    first.step(ragged(MANY))
    assert tpu.sparsecore_dropped_ids()["films"].batches == 1
    second = Setup()
    second.step(ragged(MANY))
    assert tpu.sparsecore_dropped_ids() == {"films": (0, 0, 0)}
    tpu.software_strategy()
    with pytest.raises(RuntimeError, match="sparsecore_dropped_ids: no embeddings"):
        tpu.sparsecore_dropped_ids()


@pytest.mark.rotating
def test_dropped_ids_are_said_once_a_table() -> None:
    name = "embedding.support.sparse_core_limits"
    done = run_program(name, "warnings", afresh=True, TF_CPP_MIN_LOG_LEVEL="0")
    assert done.returncode == 0, done.stderr
    said = re.findall(r"table (\w+): a batch dropped (.*)", done.stderr)
    assert sorted(name for name, _ in said) == ["films", "people"]
    for _, text in said:
        # 16 runs of 8 ids, in the space of 4 runs.
        assert text.startswith("96 ids, because max_ids_per_chip_per_sample=4 gives it")
        assert "This batch fits with max_ids_per_chip_per_sample=16." in text
        assert "opwright.tpu.sparsecore_dropped_ids()" in text


@pytest.mark.parametrize("counts", [[1, 2], [0, 4], [2], [], [0, 2, 1]])
def test_sparse_core_limits_op_bad_counts_are_refused(counts: list[int]) -> None:
    words = r"id_counts_list\[0\]: .* ascend from 0 to at most .* which is 3"
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        native.ops().opwright_sparse_core_limits(
            [tf.constant([1, 2, 3])],
            [tf.constant(counts, tf.int32)],
            samples=8,
            max_ids=9,
            max_unique_ids=9,
            max_ids_per_chip_per_sample=9,
            allow_id_dropping=False,
            stack="films",
            where="the table films",
        )


def test_native_dropped_ids_of_unknown_stack_are_0() -> None:
    assert native.sparse_core_dropped_ids("no such stack") == [0, 0, 0]


# ---- The limits of a data set.


def joined(drawn: Drawn, batches: list[Batch]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ids and weights of several cores, one after another."""
    whole = Batch(
        *(
            [
                [bag for batch in batches for bag in batch[k][i]]
                for i, _ in enumerate(part)
            ]
            for k, part in enumerate(batches[0])
        )
    )
    return drawn.inputs(whole)


def brute_force(drawn: Drawn, made: Any, batches: list[Batch]) -> dict[str, Any]:
    ids: dict[str, int] = {}
    distinct: dict[str, int] = {}
    spaces = []
    for stack in drawn.stacks(made):
        needs = [stack.needs(stack.runs(b, drawn.sparse_cores)) for b in batches]
        ids[stack.name], distinct[stack.name] = (
            max(1, *(need[k] for need in needs)) for k in range(2)
        )
        spaces.append((max(need[2] for need in needs), stack.all_samples))
    per_sample = next(
        n
        for n in range(1, 10_000)
        if all(n * count >= most and n * count % 8 == 0 for most, count in spaces)
    )
    return {
        "max_ids_per_table": ids,
        "max_unique_ids_per_table": distinct,
        "max_ids_per_chip_per_sample": per_sample,
    }


def dataset_of(drawn: Drawn, steps: list[list[Batch]]) -> tf.data.Dataset:
    """Of ids and weights; an element has the samples of all cores."""
    specs: dict[str, Callable[[tf.DType], Any]] = {
        "dense": lambda dtype: tf.TensorSpec([None], dtype),
        "ragged": lambda dtype: tf.RaggedTensorSpec([None, None], dtype),
        "sparse": lambda dtype: tf.SparseTensorSpec([None, None], dtype),
    }
    signature = tuple(
        {f"f{i}": specs[one.form](dtype) for i, one in enumerate(drawn.features)}
        for dtype in (tf.int64, tf.float32)
    )
    elements = [joined(drawn, step) for step in steps]
    return tf.data.Dataset.from_generator(lambda: elements, output_signature=signature)


@pytest.mark.rotating
@pytest.mark.parametrize("cores", [1, 2, 8])
@pytest.mark.parametrize("seed", range(4))
def test_sparsecore_limits_match_brute_force(seed: int, cores: int) -> None:
    """Of dense, ragged and sparse features, with and without weights."""
    drawn = Drawn(seed, cores)
    # An element has the samples of some of the cores.
    steps = [[drawn.batch() for _ in range(1 + n % 2)] for n in range(6)]
    numbers = {"cores": cores, "sparse_cores_per_chip": drawn.sparse_cores}
    got = tpu.sparsecore_limits(
        dataset_of(drawn, steps),
        drawn.config(),
        drawn.optimizer,
        **numbers,
        progress=False,
    )
    layouts = sparse_core_limits._planned_layout(
        drawn.config(), drawn.optimizer, cores, drawn.sparse_cores, None
    ).stacking.table_to_layout
    placed = SimpleNamespace(embedding_layouts=layouts)
    want = brute_force(drawn, placed, [batch for step in steps for batch in step])
    assert {name: getattr(got, name) for name in want} == want


@pytest.mark.rotating
def test_sparsecore_limits_of_embedding_are_taken_by_it_and_keep_its_settings() -> None:
    drawn = Drawn(5, 1)
    steps = [[drawn.batch()] for _ in range(6)]
    dataset = dataset_of(drawn, steps)
    strategy = tpu.software_strategy(
        embedding_feature="v2", sparse_cores_per_chip=drawn.sparse_cores
    )
    config = embedding.SparseCoreEmbeddingConfig(disable_table_stacking=True)

    def make(limits: Any) -> Any:
        with strategy.scope():
            return embedding.TPUEmbeddingV2(
                drawn.config(), drawn.optimizer, sparse_core_embedding_config=limits
            )

    limits = tpu.sparsecore_limits(dataset, make(config), progress=False)
    assert limits.disable_table_stacking
    with strategy.scope():
        same = tpu.sparsecore_limits(
            dataset,
            drawn.config(),
            drawn.optimizer,
            sparse_core_embedding_config=config,
            progress=False,
        )
    assert same == limits

    def look_up(limits: Any) -> None:
        made = make(limits)
        made.build()
        run = tf.function(lambda *both: strategy.run(made, args=both)[0])
        for ids, weights in dataset:
            run(ids, weights)

    look_up(limits)
    fullest = max(limits.max_ids_per_table, key=limits.max_ids_per_table.__getitem__)
    fewer = limits.max_ids_per_table | {fullest: limits.max_ids_per_table[fullest] - 1}
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_ids_per_table"):
        look_up(dataclasses.replace(limits, max_ids_per_table=fewer))


def planned(dataset: Any, *arguments: Any, **changes: Any) -> Any:
    numbers = {"cores": 1, "sparse_cores_per_chip": 4} | changes
    arguments = arguments or (features(),)
    return tpu.sparsecore_limits(dataset, *arguments, **numbers)


def test_sparsecore_limits_show_lines_without_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = tf.data.Dataset.from_tensors({"films": tf.range(BATCH)}).repeat(3)
    planned(dataset)
    assert capsys.readouterr().err == ""  # It takes less than ten seconds.
    monkeypatch.setattr(sparse_core_limits, "_SECONDS", 0.0)
    found = planned(dataset)
    assert found.max_ids_per_table == {"films": 1}
    said = capsys.readouterr().err.splitlines()
    assert said == [f"sparsecore_limits: {n} of 3 batches" for n in (1, 2, 3)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_sparsecore_limits_show_bar_in_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    planned(tf.data.Dataset.from_tensors({"films": tf.range(BATCH)}).repeat(3))
    shown = terminal.getvalue()
    assert "sparsecore_limits: batches" in shown and "100%" in shown


def test_sparsecore_limits_without_ids_are_at_least_1() -> None:
    empty = ragged([[]] * BATCH)
    found = planned(tf.data.Dataset.from_tensors({"films": empty}), progress=False)
    assert found.max_ids_per_table == found.max_unique_ids_per_table == {"films": 1}
    assert found.max_ids_per_chip_per_sample == 1


def dataset(ids: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors({"films": ids})


@pytest.mark.parametrize(
    ("given", "changes", "error", "words"),
    [
        ([1, 2], {}, TypeError, "must be a tf.data.Dataset, not list"),
        (dataset(tf.range(8)).repeat(), {}, ValueError, "infinite; pass .*take"),
        (dataset(tf.range(8)).take(0), {}, ValueError, "has no batches"),
        (dataset(tf.ones([8])), {}, ValueError, "'films' must be of int32 or int64"),
        (tf.data.Dataset.range(8), {}, ValueError, r"features of .*\(films\), or"),
        (dataset(tf.range(8)), {"cores": 3}, ValueError, "cores must be a power of"),
        (dataset(tf.range(8)), {"cores": None}, ValueError, "no TPU strategy here"),
        (
            dataset(tf.range(8)),
            {"sparse_cores_per_chip": 3},
            ValueError,
            "sparse_cores_per_chip must be 1, 2",
        ),
        (
            dataset(tf.range(9)),
            {},
            tf.errors.InvalidArgumentError,
            "must have 8 samples of the feature at ",
        ),
        (
            dataset(tf.range(60, 68)),
            {},
            tf.errors.InvalidArgumentError,
            "features at 'films': ids must be .* 64 rows of table films; .* 4 is 64",
        ),
    ],
)
def test_sparsecore_limits_bad_arguments_are_refused(
    given: Any, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        planned(given, progress=False, **changes)


def test_sparsecore_limits_of_embedding_and_numbers_are_refused() -> None:
    setup = Setup()
    with pytest.raises(ValueError, match="leave these arguments out"):
        planned(dataset(tf.range(8)), setup.made)
