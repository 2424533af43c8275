"""opwright.tpu.tables_from_checkpoint and load_tables: tables move, or are refused.

The moves themselves are in tests/embedding/support/moved_tables.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.program import Program, tpu_embedding
from opwright import OpInputError, tpu
from opwright_runtime._internals import sparse_core_embedding
from support.processes import run_program

WEIGHTS = np.random.default_rng(2).normal(size=(9, 4)).astype(np.float32)
SLOTS = {"accumulators": np.full((9, 4), 0.25, np.float32)}
WITH_V2 = pytest.mark.skipif(
    tf.__version__ < "2.21", reason="TPUEmbeddingV2 runs with TensorFlow 2.21"
)
SECOND = pytest.mark.rotating


@WITH_V2
@pytest.mark.parametrize(
    "optimizer",
    [
        "adagrad",
        pytest.param("sgd", marks=SECOND),
        pytest.param("adagrad_momentum", marks=SECOND),
        pytest.param("adam", marks=SECOND),
        pytest.param("ftrl", marks=SECOND),
    ],
)
def test_load_tables_of_each_form_trains_on_as_it(optimizer: str) -> None:
    """From TPUEmbedding, TPUEmbeddingV2 on 1, 2 and 4 cores, and forms to each."""
    done = run_program("embedding.support.moved_tables", optimizer, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.endswith("done\n")


@WITH_V2
@SECOND
def test_restore_of_tensorflow_loses_what_the_page_says() -> None:
    done = run_program("embedding.support.restored_tables", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.endswith("done\n")


# ---- Arrays into one embedding.


def features(*names: str) -> dict[str, Any]:
    """A feature for each table. The tables of TPUEmbeddingV2 begin permuted."""

    def initial(shape: Any, dtype: Any) -> tf.Tensor:
        return tf.constant(np.resize(WEIGHTS, shape), dtype)

    return {
        name: tpu_embedding.FeatureConfig(
            tpu_embedding.TableConfig(9, 4, initial, name=name), output_shape=[2]
        )
        for name in names
    }


def built(*names: str, optimizer: Any = None, pipelined: bool = False) -> Program:
    optimizer = optimizer or tpu_embedding.Adagrad(0.5)
    made = Program(features(*names), optimizer, pipelined)
    made.embedding.build()
    return made


def state(made: Program) -> dict[str, Any]:
    return {name: values.copy() for name, values in made.tables().items()}


@pytest.mark.parametrize("pipelined", [False, True])
def test_load_tables_after_steps_replaces_all_updates(pipelined: bool) -> None:
    made = built("films", pipelined=pipelined)
    ids = {"films": tf.constant([1, 3])}
    for _ in range(2):
        made.train(ids, {"films": tf.ones([2, 4])})
    tpu.load_tables(made.embedding, {"films": tpu.TableValues(-WEIGHTS, SLOTS)})
    rows, slots = tpu.table("films")
    np.testing.assert_array_equal(rows, -WEIGHTS)
    np.testing.assert_array_equal(slots["accumulators"], SLOTS["accumulators"])
    np.testing.assert_array_equal(made.look_up(ids)["films"], -WEIGHTS[[1, 3]])


def test_load_tables_live_tables_are_taken() -> None:
    made = built("films", "people")
    tables = {name: tpu.table(name) for name in ("people", "films")}
    tables["people"] = tables["people"]._replace(rows=tf.constant(-WEIGHTS))
    tpu.load_tables(made.embedding, tables)
    np.testing.assert_array_equal(tpu.table("people").rows, -WEIGHTS)
    np.testing.assert_array_equal(tpu.table("films").rows, WEIGHTS)


def test_load_tables_row_wise_slots_have_one_column(tmp_path: Path) -> None:
    made = built("films", optimizer=tpu.RowWiseAdagrad(0.5))
    made.train({"films": tf.constant([1, 3])}, {"films": tf.ones([2, 4])})
    path = tf.train.Checkpoint(made.embedding).save(str(tmp_path / "model"))
    tables = tpu.tables_from_checkpoint(path)
    assert tables["films"].slots["accumulators"].shape == (9, 1)
    want = state(made)
    other = built("films", optimizer=tpu.RowWiseAdagrad(0.5))
    tpu.load_tables(other.embedding, tables)
    for name, values in state(other).items():
        np.testing.assert_array_equal(values, want[name])


def test_load_tables_embedding_without_strategy_takes_them() -> None:
    made = tpu_embedding.TPUEmbedding(features("films"), tpu_embedding.Adagrad(0.5))
    made.build()
    tpu.load_tables(made, {"films": tpu.TableValues(-WEIGHTS, SLOTS)})
    (rows,) = made.embedding_tables.values()
    np.testing.assert_array_equal(rows, -WEIGHTS)


def with_negative(at: tuple[int, int]) -> Any:
    new = SLOTS["accumulators"].copy()
    new[at] = -0.25
    return new


def of_films(values: Any = WEIGHTS, **slots: Any) -> tpu.TableValues:
    return tpu.TableValues(values, slots or SLOTS)


def changed(at: tuple[int, int], value: float) -> Any:
    new = WEIGHTS.copy()
    new[at] = value
    return new


PEOPLE = {"people": of_films()}
REFUSED: dict[str, tuple[Any, str]] = {
    "missing": ({"films": of_films()}, "missing: 'people'$"),
    "unknown": (
        {"film": of_films(), **PEOPLE},
        "missing: 'films'; not configured: 'film'; 'film' may be 'films'",
    ),
    "no mapping": ([of_films()], "tables must be a mapping of names to tables"),
    "array": ({"films": WEIGHTS, **PEOPLE}, r"tables\['films'\] must be TableValues"),
    "rows": (
        {"films": of_films(WEIGHTS[:8]), **PEOPLE},
        r"\['films'\].rows must be an array of float32\[9,4\], not .*float32\[8,4\]",
    ),
    "dtype": (
        {"films": of_films(WEIGHTS.astype(np.float64)), **PEOPLE},
        r"rows must be an array of float32\[9,4\], not an array of float64\[9,4\]",
    ),
    "slot": (
        {"films": tpu.TableValues(WEIGHTS), **PEOPLE},
        r"slots must be those of Adagrad, \['accumulators'\], not \[\]",
    ),
    "other slots": (
        {"films": of_films(momenta=WEIGHTS, velocities=WEIGHTS), **PEOPLE},
        r"\['accumulators'\], not \['momenta', 'velocities'\]",
    ),
    "slot's shape": (
        {"films": of_films(accumulators=SLOTS["accumulators"][:, :1]), **PEOPLE},
        r"slots\['accumulators'\] must be .*\[9,4\], not .*\[9,1\]",
    ),
    "infinite": (
        {"films": of_films(changed((3, 2), np.inf)), **PEOPLE},
        r"rows must be finite throughout, not inf: this is row 3, column 2",
    ),
    "negative slot": (
        {"films": of_films(accumulators=with_negative((0, 1))), **PEOPLE},
        r"slots\['accumulators'\] must be finite and at least 0 .* row 0, column 1",
    ),
}


@pytest.mark.parametrize(("tables", "words"), REFUSED.values(), ids=list(REFUSED))
def test_load_tables_wrong_tables_change_no_table(tables: Any, words: str) -> None:
    made = built("films", "people")
    made.train(
        {name: tf.constant([1, 3]) for name in ("films", "people")},
        {name: tf.ones([2, 4]) for name in ("films", "people")},
    )
    before = state(made)
    if isinstance(tables, dict):  # The table at fault comes last.
        tables = dict(sorted(tables.items(), reverse=True))
    with pytest.raises(OpInputError, match=words):
        tpu.load_tables(made.embedding, tables)
    for name, values in state(made).items():
        np.testing.assert_array_equal(values, before[name])


@WITH_V2
def test_load_tables_v2_wrong_tables_change_no_table() -> None:
    strategy = tpu.software_strategy(embedding_feature="v2", sparse_cores_per_chip=2)
    with strategy.scope():
        made = sparse_core_embedding.TPUEmbeddingV2(
            features("films", "people"), tpu_embedding.Adagrad(0.5)
        )
    with pytest.raises(RuntimeError, match=r"TPUEmbeddingV2 has no tables yet.*build"):
        tpu.load_tables(made, {})
    made.build()
    before = {name: tpu.table(name) for name in ("films", "people")}
    for tables, words in REFUSED.values():
        with pytest.raises(OpInputError, match=words):
            tpu.load_tables(made, tables)
    for name, (rows, slots) in before.items():
        np.testing.assert_array_equal(tpu.table(name).rows, rows)
        np.testing.assert_array_equal(
            tpu.table(name).slots["accumulators"], slots["accumulators"]
        )


def test_load_tables_into_other_objects_raises() -> None:
    with pytest.raises(OpInputError, match="embedding must be a TPUEmbedding, a"):
        tpu.load_tables(tf.Module(), {})
    made = Program(features("films"), tpu_embedding.SGD(0.5))
    with pytest.raises(RuntimeError, match="TPUEmbedding has no tables yet"):
        tpu.load_tables(made.embedding, {"films": of_films()})
    made.embedding.build()
    with pytest.raises(OpInputError, match=r"those of SGD, \[\], not \['accumul"):
        tpu.load_tables(made.embedding, {"films": of_films()})

    @tf.function
    def traced() -> None:
        tpu.load_tables(made.embedding, {"films": tpu.TableValues(WEIGHTS)})

    with pytest.raises(RuntimeError, match="call it eagerly"):
        traced()


# ---- Checkpoints that are refused.


def saved(folder: Path, **objects: Any) -> str:
    path: str = tf.train.Checkpoint(**objects).save(str(folder / "model"))
    return path


def served(*names: str) -> Any:
    made = tpu_embedding.TPUEmbeddingForServing(features(*names), None)
    made.build()
    return made


def check_refused(path: Any, words: str) -> None:
    with pytest.raises(OpInputError, match=words) as raised:
        tpu.tables_from_checkpoint(path)
    assert repr(str(path)) in str(raised.value)


def test_tables_from_checkpoint_folder_is_its_latest(tmp_path: Path) -> None:
    made = served("films")
    checkpoint = tf.train.Checkpoint(tables=made)
    first = checkpoint.save(str(tmp_path / "model"))
    tpu.load_tables(made, {"films": tpu.TableValues(-WEIGHTS)})
    checkpoint.save(str(tmp_path / "model"))
    found = tpu.tables_from_checkpoint(tmp_path)
    np.testing.assert_array_equal(found["films"].rows, -WEIGHTS)
    assert found["films"].slots == {}
    found = tpu.tables_from_checkpoint(first)
    np.testing.assert_array_equal(found["films"].rows, WEIGHTS)


def test_tables_from_checkpoint_several_embeddings_have_all_tables(
    tmp_path: Path,
) -> None:
    both = {"one": served("films"), "other": served("people")}
    assert tpu.tables_from_checkpoint(saved(tmp_path, **both)).keys() == {
        "films",
        "people",
    }
    path = saved(tmp_path, one=served("films"), other=served("films"))
    check_refused(path, "several embeddings with a table 'films'; save each")


def test_tables_from_checkpoint_other_files_are_refused(tmp_path: Path) -> None:
    check_refused(tmp_path, "the folder has no checkpoint")
    check_refused(tmp_path / "model-1", "there is no file .*model-1.index")
    (tmp_path / "text.index").write_text("no checkpoint")
    check_refused(tmp_path / "text", "text.index is damaged")
    path = saved(tmp_path, step=tf.Variable(1), weights=tf.Variable(WEIGHTS))
    check_refused(path, "it has no tables; build the embedding before")
    path = saved(
        tmp_path, tables=tpu_embedding.TPUEmbeddingForServing(features("films"), None)
    )
    check_refused(path, "it has no tables; build the embedding before")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("films", initializer=WEIGHTS)
        session.run(tf.compat.v1.global_variables_initializer())
        path = tf.compat.v1.train.Saver().save(session, str(tmp_path / "saver"))
    check_refused(path, "it is not of tf.train.Checkpoint")


def test_tables_from_checkpoint_damaged_files_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, tables=served("films"))
    data = Path(f"{path}.data-00000-of-00001")
    whole = data.read_bytes()
    at = whole.index(WEIGHTS.tobytes())
    data.write_bytes(whole[: at + 8])
    check_refused(path, "is damaged")
    flipped = bytearray(whole)
    flipped[at] ^= 1
    data.write_bytes(bytes(flipped))
    check_refused(path, "films.* cannot be read: .*[Cc]hecksum")
    data.unlink()
    check_refused(path, "is damaged: .* cannot be read")
    index = Path(f"{path}.index")
    index.write_bytes(index.read_bytes()[:-9])
    check_refused(path, "index is damaged")


def test_tables_from_checkpoint_parts_missing_are_refused(tmp_path: Path) -> None:
    """The file has 9 rows, of as many as no memory has."""
    path = saved(tmp_path, tables=served("films"))
    graph = tf.train.load_checkpoint(path).get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "part"),
        tensor_names=[
            "_CHECKPOINTABLE_OBJECT_GRAPH",
            "tables/films/.ATTRIBUTES/VARIABLE_VALUE",
        ],
        shape_and_slices=["", f"{1 << 50} 4 0,9:0,4"],
        tensors=[tf.constant(graph), tf.constant(WEIGHTS)],
    )
    check_refused(tmp_path / "part", f"the tables take {1 << 54} bytes, and its files")


def with_layouts(change: Callable[[Any], None], folder: Path) -> str:
    """A checkpoint of stacked tables, after a change of their layouts."""
    strategy = tpu.software_strategy(embedding_feature="v2", sparse_cores_per_chip=2)
    with strategy.scope():
        made = sparse_core_embedding.TPUEmbeddingV2(
            features("films", "people"), tpu_embedding.Adagrad(0.5)
        )
    made.build()
    layouts = sparse_core_embedding.sparse_core_layout_pb2.SparseCoreTableLayouts()
    layouts.tables.extend(made.embedding_layouts.values())
    change(layouts)
    made._track_trackable(
        sparse_core_embedding.tpu_embedding_v3_utils.SparseCoreLayoutsTrackable(
            tf.constant(layouts.SerializeToString())
        ),
        "_sparse_core_table_layouts",
        overwrite=True,
    )
    return saved(folder, tables=made)


def of_people(**fields: Any) -> Callable[[Any], None]:
    def change(layouts: Any) -> None:
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(layouts.tables[1], name)[:] = value
            else:
                setattr(layouts.tables[1], name, value)

    return change


@WITH_V2
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_people(stacked_table_name="films"), "stack 'films' of table 'people' is"),
        (of_people(table_name="films"), "a table is there more than once"),
        (of_people(num_sparse_cores=0), "'people' has 0 shards"),
        (of_people(sparse_core_shard_rotation=2), "with a rotation of 2"),
        (of_people(sparse_core_shard_rotation=-1), "with a rotation of -1"),
        (of_people(num_sparse_cores=1 << 30), "'people' has 1073741824 shards of"),
        (of_people(unsharded_shape=[9]), r"'people' is \[9\]"),
        (of_people(unsharded_shape=[9, 9]), r"'people' is \[9, 9\]"),
        (of_people(unsharded_shape=[1 << 40, 4]), "has rows 8 to 5497"),
        (of_people(sparse_core_shard_row_offset=4), "has rows 4 to 9 of"),
        (of_people(sparse_core_shard_row_offset=-1), "has rows -1 to 4 of"),
        (lambda layouts: layouts.tables.__delitem__(slice(2)), "there is no table"),
    ],
)
def test_tables_from_checkpoint_wrong_layouts_are_refused(
    change: Callable[[Any], None], words: str, tmp_path: Path
) -> None:
    check_refused(with_layouts(change, tmp_path), f"it is damaged: .*{words}")
