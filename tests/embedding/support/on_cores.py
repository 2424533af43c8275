"""Programs under `software_strategy(cores=...)`, a case each; run by test_cores.py.

In a process of its own: the CPU is divided into logical devices before the first op.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

from embedding.support.program import row_wise_optimizers
from opwright import tpu

embedding = tf.tpu.experimental.embedding
ON_HOST = tf.distribute.InputOptions(experimental_fetch_to_device=False)
BATCH, ROWS, WIDTH, LENGTH = 16, 40, 6, 3
OPTIMIZERS = {
    "sgd": embedding.SGD(0.1),
    "adagrad": embedding.Adagrad(0.1, clipvalue=1.0),
    "momentum": embedding.AdagradMomentum(0.1, momentum=0.9),
    "adam": embedding.Adam(lambda: 0.01),
    "ftrl": embedding.FTRL(0.1, l1_regularization_strength=0.01),
    **row_wise_optimizers(0.1),
}


def table(name: str, weights: Any, **changes: Any) -> Any:
    return embedding.TableConfig(
        *weights.shape,
        initializer=lambda shape, dtype: tf.constant(weights, dtype, shape),
        name=name,
        **changes,
    )


class Training:
    """Steps with given gradients: a table for each optimizer, ids in several forms."""

    def __init__(
        self, cores: int, pipelined: bool = False, dtype: str = "float32"
    ) -> None:
        rng = np.random.default_rng(1)
        row_dtypes = dict.fromkeys(OPTIMIZERS, dtype)
        self.strategy = tpu.software_strategy(cores=cores, row_dtypes=row_dtypes)
        features = {}
        for name, optimizer in OPTIMIZERS.items():
            weights = rng.normal(size=[ROWS, WIDTH]).astype(np.float32)
            of = table(name, weights, optimizer=optimizer, combiner="mean")
            features[name] = embedding.FeatureConfig(of)
            features[f"{name}/bags"] = embedding.FeatureConfig(of)
        features["sgd/bags"] = embedding.FeatureConfig(
            features["sgd"].table, max_sequence_length=LENGTH
        )
        with self.strategy.scope():
            self.embedding = embedding.TPUEmbedding(
                features, None, pipeline_execution_with_tensor_core=pipelined
            )

    def data(self, steps: int, seed: int) -> Any:
        """Ids and gradients of global batches, distributed."""
        rng = np.random.default_rng(seed)
        count = steps * BATCH
        ids, gradients = {}, {}
        for name in OPTIMIZERS:
            lengths = rng.integers(0, 6, count)
            ids[name] = rng.integers(0, ROWS, count)
            ids[f"{name}/bags"] = tf.RaggedTensor.from_row_lengths(
                rng.integers(0, ROWS, lengths.sum()), lengths
            )
            for feature in (name, f"{name}/bags"):
                shape = [count, WIDTH]
                if feature == "sgd/bags":
                    shape.insert(1, LENGTH)
                gradients[feature] = rng.normal(size=shape).astype(np.float32)
        made = tf.data.Dataset.from_tensor_slices((ids, gradients))
        return self.strategy.experimental_distribute_dataset(
            made.batch(BATCH, drop_remainder=True), options=ON_HOST
        )

    @tf.function
    def step(self, ids: Any, gradients: Any) -> Any:
        def train(gradients: Any) -> Any:
            activations = self.embedding.dequeue()
            self.embedding.apply_gradients(gradients)
            return activations

        self.embedding.enqueue(ids, training=True)
        return self.strategy.run(train, args=(gradients,))

    def train(self, steps: int, seed: int) -> dict[str, Any]:
        """Tables and slots after it, and the last activations of the global batch."""
        found = None
        for ids, gradients in self.data(steps, seed):
            found = self.step(ids, gradients)
        made = {
            feature: np.concatenate(self.strategy.experimental_local_results(one))
            for feature, one in (found or {}).items()
        }
        for name in OPTIMIZERS:
            rows, slots = tpu.table(name)
            made |= {f"{name}: rows": rows.numpy()}
            made |= {f"{name}: {slot}": slots[slot].numpy() for slot in slots}
        return made


def equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for what, values in expected.items():
        assert np.array_equal(found[what], values), (
            what,
            np.abs(found[what] - values).max(),
        )


def same_tables(cores: int, pipelined: bool = False, dtype: str = "float32") -> None:
    """Bit for bit: gradients of a row are summed in double."""
    tpu.software_strategy(cores=cores)  # There are as many devices from now on.
    expected = Training(1, pipelined, dtype).train(6, seed=2)
    equal(Training(cores, pipelined, dtype).train(6, seed=2), expected)


def checkpoints() -> None:
    """What four cores saved two go on with, and serving looks up."""
    tpu.software_strategy(cores=4)
    whole = Training(1)
    whole.train(3, seed=2)
    expected = whole.train(3, seed=3)
    with tempfile.TemporaryDirectory() as folder:
        first = Training(4)
        saved = first.train(3, seed=2)
        path = tf.train.Checkpoint(tables=first.embedding).save(f"{folder}/tables")
        second = Training(2)
        # Its own initial values would do no harm unseen.
        second.train(1, seed=7)
        tf.train.Checkpoint(tables=second.embedding).restore(path)
        equal(second.train(3, seed=3), expected)
        features = first.embedding._feature_config
        serving = embedding.TPUEmbeddingForServing(features, optimizer=None)
        tf.train.Checkpoint(tables=serving).restore(path).expect_partial()
        for of, variable in serving.embedding_tables.items():
            assert np.array_equal(variable.numpy(), saved[f"{of.name}: rows"])


def values() -> None:
    """What a program does with replicas other than tables."""
    strategy = tpu.software_strategy(cores=4)
    assert isinstance(strategy, tf.distribute.TPUStrategy)
    assert strategy.num_replicas_in_sync == 4
    assert strategy.extended.num_hosts == 1
    assert strategy.extended.num_replicas_per_host == 4
    assert [one[-5:] for one in strategy.extended.worker_devices] == [
        f"TPU:{core}" for core in range(4)
    ]
    with strategy.scope():
        mirrored = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
        count = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    devices = [one.device[-5:] for one in strategy.experimental_local_results(mirrored)]
    assert devices == [f"CPU:{core}" for core in range(4)]

    def replica(x: tf.Tensor) -> Any:
        context = tf.distribute.get_replica_context()
        core = tf.cast(context.replica_id_in_sync_group, tf.float32)
        mirrored.assign_add(core)
        count.assign_add(tf.reduce_sum(x))
        if core > 2.5:  # AutoGraph's, where a function is traced.
            x += 1.0
        return x + core, context.all_reduce("mean", core), core * tf.ones([2])

    of_function = tf.function(replica)

    @tf.function
    def around(x: Any) -> Any:
        return strategy.run(replica, args=(x,))

    by_core = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(10.0 * context.replica_id_in_sync_group)
    )
    ways: dict[str, Callable[[], Any]] = {
        "in a function": lambda: around(by_core),
        "a function": lambda: strategy.run(of_function, args=(by_core,)),
        "eagerly": lambda: strategy.run(replica, args=(by_core,)),
    }
    for i, (way, run) in enumerate(ways.items()):
        sums, mean, vectors = run()
        got = strategy.experimental_local_results(sums)
        assert [float(one) for one in got] == [0.0, 11.0, 22.0, 34.0], way
        assert float(strategy.reduce("SUM", sums, axis=None)) == 67.0
        assert float(strategy.reduce("MEAN", vectors, axis=0)) == 1.5
        assert strategy.gather(vectors, axis=0).shape == [8]
        for one in strategy.experimental_local_results(mean):
            assert float(one) == 1.5, way
        for one in strategy.experimental_local_results(mirrored):
            assert float(one) == 1.0 + 6.0 * (i + 1), way
        assert float(count.read_value()) == 60.0 * (i + 1)

    def made(context: tf.distribute.InputContext) -> tf.data.Dataset:
        assert context.num_replicas_in_sync == 4
        batch = context.get_per_replica_batch_size(16)
        return tf.data.Dataset.range(32).batch(batch, drop_remainder=True)

    data = {
        "from function": strategy.distribute_datasets_from_function(made),
        "whole": strategy.experimental_distribute_dataset(
            tf.data.Dataset.range(32).batch(16, drop_remainder=True)
        ),
    }
    for name, one in data.items():
        batches = [strategy.experimental_local_results(batch) for batch in one]
        assert [len(batch) for batch in batches] == [4, 4], name
        order = np.concatenate([np.concatenate(batch) for batch in batches])
        assert list(order) == list(range(32)), name
    try:
        tpu.software_strategy(cores=5)
    except RuntimeError as error:
        for word in ("5 cores", "there are 4", "set_logical_device_configuration"):
            assert word in str(error), error
    else:
        raise AssertionError("there are four devices only")


class Exact:
    """SGD by integers: row 0 of each feature's id moves by its gradient."""

    def __init__(self, cores: int, **options: Any) -> None:
        self.cores = cores
        self.strategy = tpu.software_strategy(cores=cores, **options)
        films = table("films", np.zeros([ROWS, 2], np.float32))
        with self.strategy.scope():
            self.embedding = embedding.TPUEmbedding(
                {"seen": embedding.FeatureConfig(films, output_shape=[1])},
                embedding.SGD(1.0),
            )
        self.embedding.build()

    def of(self, values: Any) -> Any:
        """A value for each core."""
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(values[context.replica_id_in_sync_group])
        )

    def rows(self) -> list[float]:
        found: list[float] = tpu.table("films").rows[:, 0].numpy().tolist()
        return found


def ways_to_enqueue() -> None:
    """Outside of run, for each core by its device, within run, and eagerly in part."""
    made = Exact(4)
    strategy, tables = made.strategy, made.embedding

    def train(gradient: Any) -> Any:
        activations = tables.dequeue()
        tables.apply_gradients({"seen": tf.fill([1, 2], gradient)})
        return activations["seen"][0, 0]

    @tf.function
    def outside(ids: Any, gradients: Any) -> Any:
        tables.enqueue({"seen": ids}, training=True)
        return strategy.run(train, args=(gradients,))

    @tf.function
    def each(ids: Any, gradients: Any) -> Any:
        by_core = strategy.experimental_local_results(ids)

        def enqueue(context: Any) -> None:
            core = context.replica_id_in_sync_group
            device = strategy.extended.worker_devices[core]
            tables.enqueue({"seen": by_core[core]}, device=device)

        strategy.experimental_distribute_values_from_function(enqueue)
        return strategy.run(train, args=(gradients,))

    def whole(ids: Any, gradient: Any) -> Any:
        tables.enqueue({"seen": ids}, training=True, name="seen")
        activations = tables.dequeue(name="seen")
        tables.apply_gradients({"seen": tf.fill([1, 2], gradient)}, name="seen")
        return activations["seen"][0, 0]

    @tf.function
    def within(ids: Any, gradients: Any) -> Any:
        return strategy.run(whole, args=(ids, gradients))

    @tf.function
    def twice(ids: Any, gradients: Any) -> Any:
        """Two steps of each core, one after the other in its trace."""
        tables.enqueue({"seen": ids}, training=True)
        tables.enqueue({"seen": ids}, training=True)
        return strategy.run(lambda one: (train(one), train(one))[1], args=(gradients,))

    @tf.function
    def only_enqueue(ids: Any) -> None:
        tables.enqueue({"seen": ids}, training=True)

    def eagerly(ids: Any, gradients: Any) -> Any:
        with tpu.embedding_step():
            only_enqueue(ids)
            return strategy.run(train, args=(gradients,))

    expected = np.zeros(ROWS)
    for step, (way, times) in enumerate(
        {outside: 1, each: 1, within: 1, twice: 2, eagerly: 1}.items()
    ):
        rows = (np.arange(4) + step) % 5
        rows[3] = rows[0]  # Two cores have one row.
        gradients = np.arange(1.0, 5.0, dtype=np.float32)
        ids = made.of([np.array([row]) for row in rows])
        for _ in range(2):
            found = strategy.experimental_local_results(way(ids, made.of(gradients)))
            for _ in range(times):
                before = expected.copy()
                np.subtract.at(expected, rows, gradients)
            assert [float(one) for one in found] == before[rows].tolist(), step
            assert made.rows() == expected.tolist(), step
    assert tpu.embedding_step_count() == 12


PLACES = ("bad id", "nan", "before", "between", "sent", None)


def failures() -> None:
    """One core fails somewhere and the others do not: a counted step is complete."""
    made = Exact(4)
    strategy, tables = made.strategy, made.embedding
    rng = np.random.default_rng(5)

    def stop(fails: Any, place: str) -> list[Any]:
        def check(fails: Any) -> Any:
            if fails == PLACES.index(place):
                raise ValueError(f"stopped {place}")
            return np.int32(0)

        return [tf.numpy_function(check, [fails], tf.int32)]

    def train(gradient: Any, fails: Any) -> Any:
        with tf.control_dependencies(stop(fails, "before")):
            activations = tables.dequeue()
        with tf.control_dependencies(stop(fails, "between")):
            gradient = tf.fill([1, 2], gradient) + 0 * activations["seen"]
        tables.apply_gradients({"seen": gradient})
        # Runs when others have not yet sent theirs, or have.
        with tf.control_dependencies(stop(fails, "sent")):
            return tf.identity(activations["seen"])

    @tf.function
    def step(ids: Any, gradients: Any, fails: Any) -> Any:
        tables.enqueue({"seen": ids}, training=True)
        return strategy.run(train, args=(gradients, fails))

    expected, counted, failed = np.zeros(ROWS), 0, 0
    for _ in range(80):
        place = PLACES[rng.integers(len(PLACES))]
        core = int(rng.integers(4))
        rows = rng.integers(0, ROWS, 4)
        gradients = rng.integers(-9, 9, 4).astype(np.float32)
        moved = expected.copy()
        np.subtract.at(moved, rows, gradients)
        fails = np.full(4, -1)
        if place == "bad id":
            rows[core] = ROWS
        elif place == "nan":
            gradients[core] = np.nan
        elif place:
            fails[core] = PLACES.index(place)
        try:
            ids = made.of([np.array([row]) for row in rows])
            step(ids, made.of(gradients), made.of(fails))
        except tf.errors.OpError as error:
            failed += 1
            assert place, error
            if place in ("bad id", "nan"):
                assert isinstance(error, tf.errors.InvalidArgumentError)
                assert f"core {core}: " in error.message, error.message
                assert "films" in error.message and "seen" in error.message
            else:
                assert f"stopped {place}" in error.message
        else:
            assert place is None
        # All may have sent before the last place fails one; no other has that choice.
        if tpu.embedding_step_count() > counted:
            assert place in (None, "sent")
            counted, expected = counted + 1, moved
        assert tpu.embedding_step_count() == counted
        assert made.rows() == expected.tolist(), place
    assert failed > 40 and counted > 5


def eager_failures() -> None:
    """A replica's function raises in Python: its core's batch, and the others', go."""
    made = Exact(4)
    strategy, tables = made.strategy, made.embedding

    @tf.function
    def enqueue(ids: Any) -> None:
        tables.enqueue({"seen": ids}, training=True)

    def train(core_that_fails: int) -> None:
        tables.dequeue()
        context = tf.distribute.get_replica_context()
        if context.replica_id_in_sync_group == core_that_fails:
            raise ValueError("stopped")
        tables.apply_gradients({"seen": tf.ones([1, 2])})

    def step(rows: list[int], core_that_fails: int) -> None:
        with tpu.embedding_step():
            enqueue(made.of([np.array([row]) for row in rows]))
            strategy.run(train, args=(core_that_fails,))

    for core in range(4):
        try:
            step([5, 6, 7, 8], core)
        except ValueError as error:
            assert str(error) == "stopped"
        else:
            raise AssertionError("it should have been told")
        assert tpu.embedding_step_count() == core
        step([0, 1, 2, 0], -1)
        assert made.rows()[:4] == [-2.0 * (core + 1), -core - 1, -core - 1, 0.0]
        assert made.rows()[5:9] == [0.0] * 4


def refusals() -> None:
    """As with one core, and as on a TPU."""
    made = Exact(4)

    @tf.function
    def computed(ids: Any) -> None:
        def step(ids: Any) -> None:
            made.embedding.enqueue({"seen": ids + 1}, training=False)

        made.strategy.run(step, args=(ids,))

    @tf.function
    def fetched(iterator: Any) -> None:
        made.embedding.enqueue({"seen": next(iterator)}, training=False)

    data = tf.data.Dataset.from_tensor_slices(tf.zeros([8], tf.int32))
    data = made.strategy.experimental_distribute_dataset(data.batch(4, True))
    ids = made.of([np.array([1])] * 4)
    replicate = made.strategy.experimental_replicate_to_logical_devices
    for call, words in (
        (lambda: replicate(tf.ones([2])), "Several cores a replica"),
        (lambda: computed(ids), "_tpu_input_identity"),
        (lambda: fetched(iter(data)), "which is on a TPU input device"),
    ):
        try:
            call()
        except (ValueError, NotImplementedError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)


def v0() -> None:
    """Tables in mirrored variables."""
    found = []
    tpu.software_strategy(cores=4)
    for cores in (1, 4):
        strategy = tpu.software_strategy(cores=cores)
        weights = np.arange(2.0 * ROWS, dtype=np.float32).reshape(ROWS, 2)
        with strategy.scope():
            feature = embedding.FeatureConfig(table("films", weights))
            tables = embedding.TPUEmbeddingV0(feature, embedding.SGD(1.0))
            tables.build()
            optimizer = tf_keras.optimizers.legacy.SGD(1.0)
            variables = list(tables.embedding_tables.values())

        @tf.function
        def step(ids: Any, of: Any = (strategy, tables, optimizer, variables)) -> None:
            strategy, tables, optimizer, variables = of

            def train(ids: Any) -> None:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(tables(ids) ** 2) / 64
                gradients = tape.gradient(loss, variables)
                optimizer.apply_gradients(zip(gradients, variables, strict=True))

            strategy.run(train, args=(ids,))

        data = tf.data.Dataset.from_tensor_slices(np.arange(16) % 7).batch(8, True)
        for ids in strategy.experimental_distribute_dataset(data, options=ON_HOST):
            step(ids)
        found.append(variables[0].numpy())
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != weights).any()


def fit(library: Any) -> None:
    """A model whose train_step enqueues; dense layers are mirrored."""
    tpu.software_strategy(cores=4)
    found = []
    for cores in (1, 4):
        strategy = tpu.software_strategy(cores=cores)

        class Model(library.Model):  # type: ignore[misc, name-defined]
            def __init__(self, tables: Any) -> None:
                super().__init__()
                self.tables = tables
                self.dense = library.layers.Dense(1, kernel_initializer="ones")
                self.error = library.metrics.MeanSquaredError(name="error")

            @property
            def metrics(self) -> list[Any]:
                return [self.error]

            def call(self, activations: tf.Tensor) -> tf.Tensor:
                return self.dense(activations)

            def train_step(self, data: Any) -> Any:
                ids, labels = data
                self.tables.enqueue(ids, training=True)
                with tf.GradientTape() as tape:
                    activations = self.tables.dequeue()
                    tape.watch(activations)
                    scores = self(activations)
                    loss = tf.reduce_sum((scores - labels) ** 2) / BATCH
                kernels = self.trainable_variables
                gradients, others = tape.gradient(loss, (activations, kernels))
                self.tables.apply_gradients(gradients)
                self.optimizer.apply_gradients(zip(others, kernels, strict=True))
                self.error.update_state(labels, scores)
                return {"error": self.error.result()}

        weights = np.random.default_rng(3).normal(size=[ROWS, WIDTH]) / 4
        with strategy.scope():
            feature = embedding.FeatureConfig(table("films", weights.astype("f4")))
            model = Model(embedding.TPUEmbedding(feature, embedding.Adagrad(0.1)))
            model(tf.zeros([BATCH // cores, WIDTH]))
            model.compile(library.optimizers.SGD(0.01))
        ids = np.arange(4 * BATCH) % ROWS
        labels = (ids[:, None] % 2).astype(np.float32)
        data = tf.data.Dataset.from_tensor_slices((ids, labels)).batch(BATCH, True)
        data = strategy.experimental_distribute_dataset(data.repeat(), options=ON_HOST)
        history = model.fit(data, epochs=3, steps_per_epoch=4, verbose=0).history
        found.append((history["error"], tpu.table("films").rows.numpy()))
        assert history["error"][-1] < history["error"][0]
    (errors, rows), (of_cores, rows_of_cores) = found
    np.testing.assert_allclose(of_cores, errors, rtol=1e-5)
    np.testing.assert_allclose(rows_of_cores, rows, rtol=1e-5, atol=1e-6)


CASES: dict[str, Callable[[], None]] = {
    "same_tables of 2": lambda: same_tables(2),
    "same_tables of 4": lambda: same_tables(4),
    "same_tables of 8": lambda: same_tables(8),
    "same_tables of 4, pipelined": lambda: same_tables(4, pipelined=True),
    "float16 rows of 4": lambda: same_tables(4, dtype="float16"),
    "bfloat16 rows of 4": lambda: same_tables(4, pipelined=True, dtype="bfloat16"),
    "int8 rows of 4": lambda: same_tables(4, dtype="int8"),
    "checkpoints": checkpoints,
    "values": values,
    "ways_to_enqueue": ways_to_enqueue,
    "failures": failures,
    "eager_failures": eager_failures,
    "refusals": refusals,
    "v0": v0,
    "fit of keras": lambda: fit(keras),
    "fit of tf_keras": lambda: fit(tf_keras),
}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
    print("done")
