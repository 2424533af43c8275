"""TPUEmbeddingV2 under software_strategy(embedding_feature="v2").

The programs on several cores are in tests/embedding/support/sparse_cores.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpAttrError, OpInputError, tpu
from opwright_runtime.embedding import stacked_tables
from support.processes import run_program

embedding = tf.tpu.experimental.embedding
BATCH, ROWS, WIDTH = 8, 32, 6
IDS = [[1, 2], [], [3], [4, 4, 5], [6], [], [7, 31], [0]]

if tf.__version__ < "2.21":
    pytest.skip("TPUEmbeddingV2 runs with TensorFlow 2.21", allow_module_level=True)


def check_trainings(first: int, count: int) -> None:
    """Of the drawn trainings with these numbers."""
    name = "embedding.support.sparse_cores"
    done = run_program(name, str(first), str(count), timeout=600 + 120 * count)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.endswith("done\n")


@pytest.mark.equivalence
@pytest.mark.parametrize("first", range(0, 300, 10))
def test_tpu_embedding_v2_300_drawn_trainings_match_v1_and_reference(
    first: int,
) -> None:
    check_trainings(first, 10)


@pytest.mark.rotating
@pytest.mark.parametrize("number", range(300, 310))
def test_tpu_embedding_v2_drawn_training_matches_v1_and_reference(number: int) -> None:
    check_trainings(number, 1)


class Setup:
    """A feature of one table, on one core."""

    def __init__(
        self, optimizer: Any = None, strict: bool = True, **arguments: Any
    ) -> None:
        self.strategy = tpu.software_strategy(strict=strict, embedding_feature="v2")
        table = embedding.TableConfig(
            ROWS,
            WIDTH,
            initializer=tf.keras.initializers.Constant(0.5),
            combiner="sum",
            name="films",
        )
        feature = embedding.FeatureConfig(table, output_shape=[BATCH])
        with self.strategy.scope():
            self.embedding = embedding.TPUEmbeddingV2(
                {"film": feature}, optimizer or embedding.Adagrad(0.25), **arguments
            )

    def step(self, ids: Any, gradient: Any = 1.0) -> tf.Tensor:
        activations, preserved = self.embedding({"film": ids})
        found = activations["film"]
        gradients = {"film": tf.ones_like(found) * gradient}
        self.embedding.apply_gradients(gradients, preserved)
        return found

    @tf.function
    def run(self, ids: Any, gradient: Any = 1.0) -> tf.Tensor:
        return self.strategy.run(self.step, args=(ids, gradient))

    def values(self) -> list[Any]:
        variables = self.embedding.variables
        return [
            part.numpy()
            for slots in variables.values()
            for _, slot in sorted(slots.items())
            for part in slot.values
        ]


def ragged(ids: Any = IDS) -> tf.RaggedTensor:
    return tf.ragged.constant(ids, tf.int64, ragged_rank=1)


@pytest.mark.parametrize("sparse_cores", [1, 2, 4])
def test_software_strategy_v2_has_sparse_cores(sparse_cores: int) -> None:
    strategy = tpu.software_strategy(
        embedding_feature="v2", sparse_cores_per_chip=sparse_cores
    )
    feature = strategy.extended.tpu_hardware_feature
    kinds = tf.tpu.experimental.HardwareFeature.EmbeddingFeature
    assert feature.embedding_feature == kinds.V2
    assert feature.num_embedding_devices_per_chip == sparse_cores


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"embedding_feature": "v3"}, "embedding_feature must be 'v1'.*not 'v3'"),
        ({"sparse_cores_per_chip": 3}, "sparse_cores_per_chip must be 1, 2.*not 3"),
        ({"sparse_cores_per_chip": True}, "sparse_cores_per_chip must be 1"),
        ({"device": "/gpu:0"}, "leave device='/gpu:0' out"),
    ],
)
def test_software_strategy_v2_bad_arguments_are_refused(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        tpu.software_strategy(**({"embedding_feature": "v2"} | arguments))


@pytest.mark.parametrize("strict", [True, False])
def test_tpu_embedding_v2_step_trains_in_place(strict: bool) -> None:
    setup = Setup(embedding.SGD(0.25), strict=strict)
    first = setup.run(ragged())
    counts = np.array([len(one) for one in IDS], np.float32)
    np.testing.assert_allclose(first, 0.5 * counts[:, None] * np.ones((1, WIDTH)))
    second = setup.run(ragged())
    # Row 4 is twice in its sample, so it has twice the gradient.
    np.testing.assert_allclose(second[3], np.full(WIDTH, 0.0 + 0.0 + 0.25))
    np.testing.assert_allclose(second[0], np.full(WIDTH, 0.5))


def test_tpu_embedding_v2_enqueue_and_dequeue_are_separate() -> None:
    setup = Setup(embedding.SGD(0.25))

    @tf.function
    def program(ids: Any) -> Any:
        def step(ids: Any) -> Any:
            batches = setup.embedding.enqueue({"film": ids})
            return setup.embedding.dequeue(batches)[0]["film"]

        return setup.strategy.run(step, args=(ids,))

    setup.embedding.build()
    found = program(tf.range(BATCH, dtype=tf.int64))
    np.testing.assert_allclose(found, np.full((BATCH, WIDTH), 0.5))


def test_tpu_embedding_v2_gradient_not_finite_changes_nothing() -> None:
    setup = Setup()
    setup.run(ragged())
    before = setup.values()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"table films.*finite"):
        setup.run(ragged(), tf.constant(float("nan")))
    for got, want in zip(setup.values(), before, strict=True):
        np.testing.assert_array_equal(got, want)
    setup.run(ragged())


@pytest.mark.parametrize("bad", [-1, ROWS, 2**40])
def test_tpu_embedding_v2_id_out_of_range_changes_nothing(bad: int) -> None:
    setup = Setup()
    setup.run(ragged())
    before = setup.values()
    ids = [[3, bad], *IDS[1:]]
    words = f"features at 'film': .*{ROWS} rows of table films.*position 1 is {bad}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        setup.run(ragged(ids))
    for got, want in zip(setup.values(), before, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (ragged(IDS[:5]), "must be 8, as output_shape says, not 5: .*drop_remainder"),
        (tf.range(5), "must be 8, as output_shape says, not 5: .*drop_remainder"),
        (ragged(IDS * 2), "must be 8, as output_shape says, not 16: .*distributed"),
    ],
    ids=["ragged", "dense", "larger"],
)
def test_tpu_embedding_v2_other_batch_size_is_refused(ids: Any, words: str) -> None:
    setup = Setup()
    with pytest.raises(
        OpInputError, match=f"features at 'film', of table 'films', {words}"
    ):
        setup.run(ids)


@pytest.mark.parametrize("ids", [tf.zeros([BATCH, 3], tf.int64), ragged(IDS * 2)])
def test_tpu_embedding_v2_other_batch_size_outside_run_is_refused_by_op(
    ids: Any,
) -> None:
    """Keras only traces such calls, to infer the shapes of outputs."""
    setup = Setup()
    setup.embedding.build()
    program = tf.function(lambda ids: setup.embedding.enqueue({"film": ids}) and 0)
    traced = program.get_concrete_function(ids)
    with pytest.raises(tf.errors.InvalidArgumentError, match="sample_count"):
        traced(ids)


def test_tpu_embedding_v2_too_many_ids_are_refused() -> None:
    limits = embedding.SparseCoreEmbeddingConfig(
        max_ids_per_table={"films": 4}, max_unique_ids_per_table={"films": 4}
    )
    setup = Setup(sparse_core_embedding_config=limits)
    setup.run(ragged())
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_ids_per_table: is 4"):
        setup.run(ragged([[0, 4, 8, 12, 16, 20], *IDS[1:]]))


@pytest.mark.parametrize("where", ["around_run", "run", "within_run"])
def test_tpu_embedding_v2_in_compiled_function_trains_the_same(where: str) -> None:
    """XLA compiles the dense part, and not the function with the tables."""
    want = Setup()
    expected = [want.run(ragged(), 2.0).numpy() for _ in range(2)]
    setup = Setup(strict=where == "around_run")
    setup.embedding.build()
    double = tf.function(lambda x: 2.0 * x, jit_compile=True)

    def step(ids: Any) -> tf.Tensor:
        return setup.step(ids, double(tf.constant(1.0)))

    compiled = tf.function(step, jit_compile=True)
    called = step if where == "around_run" else compiled

    def program(ids: Any) -> Any:
        return setup.strategy.run(called, args=(ids,))

    if where != "run":
        program = tf.function(program, jit_compile=where == "around_run")
    with pytest.warns(UserWarning, match="XLA does not compile this function here"):
        first = program(ragged())
    np.testing.assert_array_equal([first, program(ragged())], expected)
    for got, one in zip(setup.values(), want.values(), strict=True):
        np.testing.assert_array_equal(got, one)


def test_tpu_embedding_v2_enqueue_in_compiled_function_in_run_is_refused() -> None:
    """TensorFlow refuses it in any function within `run`, as on a TPU."""
    setup = Setup()
    setup.embedding.build()
    compiled = tf.function(setup.step, jit_compile=True)

    @tf.function
    def program(ids: Any) -> Any:
        return setup.strategy.run(compiled, args=(ids,))

    with pytest.raises(NotImplementedError, match="jit_compile"):
        program(tf.range(BATCH, dtype=tf.int64))


def test_tpu_embedding_v2_wrong_features_are_refused() -> None:
    setup = Setup()
    with pytest.raises(OpInputError, match="film"):
        setup.run(tf.ones([BATCH]))

    @tf.function
    def program(ids: Any) -> Any:
        return setup.strategy.run(lambda x: setup.embedding({"actor": x}), args=(ids,))

    with pytest.raises(OpInputError, match="missing: film; not configured: actor"):
        program(ragged())


def check_refused(feature: Any, optimizer: Any, words: str) -> None:
    strategy = tpu.software_strategy(embedding_feature="v2")
    with strategy.scope(), pytest.raises(OpAttrError, match=words):
        embedding.TPUEmbeddingV2(feature, optimizer)


def test_tpu_embedding_v2_bad_configurations_are_refused() -> None:
    table = embedding.TableConfig(ROWS, WIDTH, name="films")
    feature = embedding.FeatureConfig(table, output_shape=[BATCH])
    check_refused(feature, tpu.RowWiseAdagrad(0.1), "optimizer of table 'films'")
    check_refused(feature, None, "optimizer")
    unknown = embedding.FeatureConfig(table)
    check_refused(unknown, embedding.SGD(0.1), "output_shape=")
    uneven = embedding.FeatureConfig(table, output_shape=[BATCH - 1])
    check_refused(uneven, embedding.SGD(0.1), "a multiple of 4 samples")


def test_tpu_embedding_v2_ignored_arguments_are_named() -> None:
    with pytest.warns(UserWarning, match="clip_weight_min, clipvalue of the optimizer"):
        Setup(embedding.SGD(0.1, clip_weight_min=-1.0, clipvalue=2.0))
    with pytest.warns(UserWarning, match="lazy_adam=False"):
        Setup(embedding.Adam(0.1, lazy_adam=False))


def test_tpu_embedding_v2_checkpoint_restores_tables_and_slots(tmp_path: Path) -> None:
    setup = Setup()
    setup.run(ragged())
    want = setup.values()
    path = tf.train.Checkpoint(tables=setup.embedding).save(str(tmp_path / "model"))
    setup.run(ragged())
    other = Setup()
    tf.train.Checkpoint(tables=other.embedding).restore(path)
    other.embedding.build()
    for got, one in zip(other.values(), want, strict=True):
        np.testing.assert_array_equal(got, one)


def test_embedding_table_shards_v2_returns_each_device() -> None:
    setup = Setup()
    ((device, shard),) = setup.embedding.embedding_table_shards["films"]
    assert device.endswith("TPU:0")
    assert shard.shape[1] == 8  # Rows are padded to a multiple of 8 floats.
    table = setup.embedding.embedding_tables["films"]
    table.assign_on_device(device, tf.ones_like(shard))
    assert float(tf.reduce_min(table.read_from_device(device))) == 1.0
    with pytest.raises(ValueError, match="the parts are on"):
        table.read_from_device("/cpu:0")


def test_variable_v2_read_in_a_replica_is_its_part() -> None:
    setup = Setup()
    setup.embedding.build()

    @tf.function
    def program() -> Any:
        table = setup.embedding.embedding_tables["films"]
        return setup.strategy.run(table.read_value)

    assert program().shape == (ROWS, 8)


# ---- Tables as they are, out of their stacks.


def stacked(cores: int = 1, **arguments: Any) -> Any:
    """Two stacked tables whose rows differ, of widths that are padded."""
    strategy = tpu.software_strategy(
        cores=cores, embedding_feature="v2", sparse_cores_per_chip=2
    )
    features = {
        name: embedding.FeatureConfig(
            embedding.TableConfig(rows, 5, name=name, combiner="sum"),
            output_shape=[BATCH],
        )
        for name, rows in (("films", 30), ("people", 13))
    }
    with strategy.scope():
        made = embedding.TPUEmbeddingV2(features, embedding.Adagrad(0.25), **arguments)
    made.build()
    return strategy, made


@pytest.mark.parametrize("disable", [False, True])
def test_table_v2_rows_are_those_that_lookups_return(disable: bool) -> None:
    config = embedding.SparseCoreEmbeddingConfig(disable_table_stacking=disable)
    strategy, made = stacked(sparse_core_embedding_config=config)

    @tf.function
    def look_up(films: Any, people: Any) -> Any:
        ids = {"films": films, "people": people}
        return strategy.run(lambda x: made(x)[0], args=(ids,))

    films, people = tpu.table("films"), tpu.table("people")
    assert films.rows.shape == (30, 5) and people.rows.shape == (13, 5)
    assert films.slots["accumulators"].shape == (30, 5)
    for first in range(0, 32, BATCH):
        ids = np.arange(first, first + BATCH)
        found = look_up(ids % 30, ids % 13)
        np.testing.assert_array_equal(found["films"], films.rows.numpy()[ids % 30])
        np.testing.assert_array_equal(found["people"], people.rows.numpy()[ids % 13])
    with pytest.raises(ValueError, match="there are 'films', 'people'"):
        tpu.table("actors")


def test_write_table_read_again_returns_it_and_keeps_others() -> None:
    _, made = stacked()
    rng = np.random.default_rng(0)
    people = {k: v.copy() for k, v in stacked_tables.read_table(made, "people").items()}
    new = {
        slot: rng.uniform(size=(30, 5)).astype(np.float32)
        for slot in ("parameters", "accumulators")
    }
    stacked_tables.write_table(made, "films", new)
    for name, want in (("films", new), ("people", people)):
        got = stacked_tables.read_table(made, name)
        assert got.keys() == want.keys()
        for slot, values in got.items():
            np.testing.assert_array_equal(values, want[slot])


def test_table_v2_after_another_strategy_is_gone() -> None:
    _, made = stacked()
    tpu.software_strategy()
    with pytest.raises(RuntimeError, match="no embeddings are configured"):
        tpu.table("films")
    del made


# ---- Layers of keras-rs.


def of_keras_rs(sparse_cores: int, start: float) -> Any:
    import keras
    import keras_rs

    strategy = tpu.software_strategy(
        embedding_feature="v2", sparse_cores_per_chip=sparse_cores
    )
    with strategy.scope():
        features = {}
        for name, rows in (("films", 30), ("people", 13)):
            table = keras_rs.layers.TableConfig(
                name=name,
                vocabulary_size=rows,
                embedding_dim=5,
                initializer=keras.initializers.Constant(start),
                optimizer=keras.optimizers.Adagrad(0.25),
                combiner="sum",
            )
            features[name] = keras_rs.layers.FeatureConfig(
                name=name,
                table=table,
                input_shape=(BATCH, 1),
                output_shape=(BATCH, 5),
            )
        layer = keras_rs.layers.DistributedEmbedding(features)
        ids = {
            name: keras.Input((1,), BATCH, dtype="int32", name=name)
            for name in features
        }
        found = keras.layers.Concatenate()(list(layer(ids).values()))
        model = keras.Model(ids, keras.layers.Dense(1)(found))
        model.compile("sgd", "mse")
    return layer, model


@pytest.mark.rotating
def test_distributed_embedding_v2_saved_weights_load_with_other_shards(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    ids = {
        "films": rng.integers(0, 30, (4 * BATCH, 1)).astype(np.int32),
        "people": rng.integers(0, 13, (4 * BATCH, 1)).astype(np.int32),
    }
    data = tf.data.Dataset.from_tensor_slices((ids, rng.uniform(size=4 * BATCH)))
    data = data.batch(BATCH, drop_remainder=True)
    layer, model = of_keras_rs(4, 0.5)
    model.fit(data, verbose=0)
    loss = model.evaluate(data, verbose=0)
    kept = {name: tpu.table(name) for name in ("films", "people")}
    shown = layer.get_embedding_tables()
    for name, table in kept.items():
        np.testing.assert_array_equal(shown[name], table.rows)
    path = str(tmp_path / "model.weights.h5")
    model.save_weights(path)
    _, other = of_keras_rs(2, 0.0)
    other.load_weights(path)
    np.testing.assert_allclose(other.evaluate(data, verbose=0), loss, rtol=1e-6)
    for name, want in kept.items():
        got = tpu.table(name)
        np.testing.assert_array_equal(got.rows, want.rows)
        accumulators = want.slots["accumulators"]
        np.testing.assert_array_equal(got.slots["accumulators"], accumulators)
