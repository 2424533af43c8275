"""software_strategy(): what programs for TPUs do with a strategy works on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import opwright
from embedding.support.program import Program, rows, table, tpu_embedding
from opwright import tpu
from opwright_runtime import native

WEIGHTS = np.arange(40, dtype=np.float32).reshape(10, 4)
ON_HOST = tf.distribute.InputOptions(experimental_fetch_to_device=False)


class Setup:
    """A strategy and an embedding of one feature, with SGD(1.0)."""

    def __init__(self) -> None:
        self.strategy = tpu.software_strategy()
        feature = tpu_embedding.FeatureConfig(table(WEIGHTS, "films", combiner="sum"))
        with self.strategy.scope():
            self.embedding = tpu_embedding.TPUEmbedding(feature, tpu_embedding.SGD(1.0))

    def weights(self) -> Any:
        self.embedding._retrieve_variables()
        return self.embedding._variables["films"]["parameters"].variables[0].numpy()


def batches() -> Iterator[Any]:
    """Three batches of four samples, their ids and a label each."""
    for bag in ([[1], [2, 2], [], [3]], [[4], [4], [4], [4]], [[9], [1], [0], [2, 5]]):
        yield rows(*bag), tf.constant([[1.0], [2.0], [3.0], [4.0]])


def expected_weights(steps: int = 3) -> Any:
    """After steps whose gradient is each sample's label."""
    weights = WEIGHTS.copy()
    for ids, labels in list(batches())[:steps]:
        for bag, label in zip(ids.to_list(), labels.numpy(), strict=True):
            for one in bag:
                weights[one] -= label
    return weights


def dataset(context: Any = None) -> tf.data.Dataset:
    spec = (
        tf.RaggedTensorSpec([4, None], tf.int64),
        tf.TensorSpec([4, 1], tf.float32),
    )
    return tf.data.Dataset.from_generator(batches, output_signature=spec)


def test_software_strategy_is_tpu_strategy_of_one_core() -> None:
    strategy = tpu.software_strategy()
    assert isinstance(strategy, tf.distribute.TPUStrategy)
    assert strategy.num_replicas_in_sync == 1
    assert strategy.extended.num_hosts == 1
    feature = strategy.extended.tpu_hardware_feature.embedding_feature
    assert feature == tf.tpu.experimental.HardwareFeature.EmbeddingFeature.V1
    with strategy.scope():
        assert tf.distribute.get_strategy() is strategy
        variable = tf.Variable(1.0)
    assert variable.device.endswith("CPU:0")


@pytest.mark.rotating
@pytest.mark.parametrize("how", ["from_function", "dataset"])
def test_tpu_embedding_documented_loop_trains(how: str) -> None:
    """Enqueue outside of run, in a loop within a tf.function."""
    made = Setup()
    strategy, embedding = made.strategy, made.embedding
    if how == "dataset":
        data = strategy.experimental_distribute_dataset(dataset(), options=ON_HOST)
    else:
        data = strategy.distribute_datasets_from_function(dataset, options=ON_HOST)

    @tf.function
    def training_step(iterator: Any, num_steps: int) -> tf.Tensor:
        def tpu_step(labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                activations = embedding.dequeue()
                tape.watch(activations)
                loss = tf.reduce_sum(activations * labels)
            embedding.apply_gradients(tape.gradient(loss, activations))
            return loss

        total = tf.constant(0.0)
        for _ in tf.range(num_steps):
            ids, labels = next(iterator)
            embedding.enqueue(ids, training=True)
            loss = strategy.run(tpu_step, args=(labels,))
            total += strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None)
        return total

    iterator = iter(data)
    # The first step builds the embedding; a loop's body must not.
    first = training_step(iterator, tf.constant(1))
    rest = training_step(iterator, tf.constant(2))
    np.testing.assert_array_equal(made.weights(), expected_weights())
    total = 0.0
    for step, (ids, labels) in enumerate(batches()):
        for bag, label in zip(ids.to_list(), labels.numpy(), strict=True):
            total += (expected_weights(step)[bag] * label).sum()
    assert float(first + rest) == total


@pytest.mark.parametrize("pipelined", [False, True])
def test_graph_loop_keeps_steps_apart(pipelined: bool) -> None:
    """Row k gets the gradient of step k: no step takes ids that are another's."""
    steps = 200
    features = {
        "row": tpu_embedding.FeatureConfig(
            table(np.zeros([steps, 2], np.float32), "rows"), output_shape=[4]
        )
    }
    program = Program(features, tpu_embedding.SGD(1.0), pipelined)
    strategy, embedding = program.strategy, program.embedding
    embedding.build()

    @tf.function
    def train(iterator: Any) -> None:
        def step(number: tf.Tensor) -> None:
            activations = embedding.dequeue()["row"]
            gradient = tf.zeros_like(activations) - tf.cast(number, tf.float32)
            embedding.apply_gradients({"row": gradient})

        for _ in tf.range(steps):
            number = next(iterator)
            embedding.enqueue({"row": tf.fill([4], number)}, training=True)
            strategy.run(step, args=(number,))

    data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(steps))
    train(iter(data))
    expected = 4 * np.arange(steps, dtype=np.float32)
    np.testing.assert_array_equal(program.tables()["rows"][:, 0], expected)


def test_enqueue_within_run_trains() -> None:
    """Enqueue, dequeue and gradients in the function that strategy.run calls."""
    made = Setup()
    data = made.strategy.experimental_distribute_dataset(dataset(), options=ON_HOST)

    def step(ids: Any, labels: tf.Tensor) -> None:
        made.embedding.enqueue(ids, training=True)
        activations = made.embedding.dequeue()
        made.embedding.apply_gradients(tf.zeros_like(activations) + labels)

    @tf.function
    def train(ids: Any, labels: tf.Tensor) -> None:
        made.strategy.run(step, args=(ids, labels))

    for ids, labels in data:
        train(ids, labels)
    np.testing.assert_array_equal(made.weights(), expected_weights())


def test_enqueue_for_each_core() -> None:
    """The finer-grained form, with a device for each core."""
    made = Setup()
    strategy, embedding = made.strategy, made.embedding
    embedding.build([tf.TensorShape([4, 1])])

    @tf.function
    def step(ids: Any, labels: tf.Tensor) -> tf.Tensor:
        per_core = strategy.experimental_local_results(ids)

        def enqueue(context: Any) -> None:
            core = context.replica_id_in_sync_group
            device = strategy.extended.worker_devices[core]
            embedding.enqueue(per_core[core], device=device)

        strategy.experimental_distribute_values_from_function(enqueue)

        def tpu_step(labels: tf.Tensor) -> tf.Tensor:
            activations = embedding.dequeue()
            embedding.apply_gradients(tf.zeros_like(activations) + labels)
            return tf.distribute.get_replica_context().all_reduce("sum", labels)

        return strategy.run(tpu_step, args=(labels,))

    for ids, labels in batches():
        np.testing.assert_array_equal(step(ids, labels), labels)
    np.testing.assert_array_equal(made.weights(), expected_weights())


def test_dense_layers_of_keras() -> None:
    """A model and its optimizer, made in the scope, train with the tables."""
    made = Setup()
    strategy, embedding = made.strategy, made.embedding
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
        model.build([None, 4])
        optimizer = keras.optimizers.SGD(0.125)

    @tf.function
    def step(ids: Any, labels: tf.Tensor) -> tf.Tensor:
        def tpu_step(labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                activations = embedding.dequeue()
                tape.watch(activations)
                loss = tf.reduce_sum(model(activations) * labels) / 64
            gradients, kernels = tape.gradient(
                loss, (activations, model.trainable_variables)
            )
            embedding.apply_gradients(gradients)
            optimizer.apply_gradients(
                zip(kernels, model.trainable_variables, strict=True)
            )
            return loss

        embedding.enqueue(ids, training=True)
        return strategy.run(tpu_step, args=(labels,))

    ids, labels = next(batches())
    step(ids, labels)
    # Sums of small integers over 64: exact.
    bags = np.stack([WEIGHTS[bag].sum(axis=0) for bag in ids.to_list()])
    kernel, bias = (variable.numpy() for variable in model.trainable_variables)
    gradient = (bags * labels.numpy()).sum(axis=0) / 64
    np.testing.assert_array_equal(kernel[:, 0], 1 - 0.125 * gradient)
    np.testing.assert_array_equal(bias, [-0.125 * 10 / 64])
    moved = WEIGHTS - (WEIGHTS - expected_weights(1)) / 64
    np.testing.assert_array_equal(made.weights(), moved)


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_fit_of_a_model_that_has_tables(library: Any) -> None:
    """A model whose train_step enqueues: Keras calls it by way of strategy.run."""
    strategy = tpu.software_strategy()

    class Model(library.Model):  # type: ignore[misc]
        def __init__(self, embedding: Any) -> None:
            super().__init__()
            self.embedding = embedding
            self.dense = library.layers.Dense(1)

        def call(self, activations: tf.Tensor) -> tf.Tensor:
            return self.dense(activations)

        def train_step(self, data: Any) -> dict[str, tf.Tensor]:
            ids, labels = data
            self.embedding.enqueue(ids, training=True)
            with tf.GradientTape() as tape:
                activations = self.embedding.dequeue()
                tape.watch(activations)
                loss = tf.reduce_mean((self(activations) - labels) ** 2)
            kernels = self.trainable_variables
            gradients, others = tape.gradient(loss, (activations, kernels))
            self.embedding.apply_gradients(gradients)
            self.optimizer.apply_gradients(zip(others, kernels, strict=True))
            return {"error": loss}

    with strategy.scope():
        feature = tpu_embedding.FeatureConfig(table(WEIGHTS / 40, "films"))
        model = Model(tpu_embedding.TPUEmbedding(feature, tpu_embedding.Adagrad(0.1)))
        model(tf.zeros([5, 4]))
        model.compile(library.optimizers.SGD(0.01))
    ids = np.arange(50) % 10
    labels = (ids[:, None] % 2).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((ids, labels)).batch(5, True).repeat()
    data = strategy.experimental_distribute_dataset(data, options=ON_HOST)
    history = model.fit(data, epochs=4, steps_per_epoch=10, verbose=0).history
    errors = history["error"]
    assert errors[-1] < errors[0] / 2


@pytest.mark.parametrize("dtype", [tf.float32, tf.int64])
def test_variable_in_run_casts_itself_for_op_of_other_dtype(dtype: tf.DType) -> None:
    """Variables of a TPUStrategy do so, in the function that `run` calls only."""
    strategy = tpu.software_strategy()
    with strategy.scope():
        count = tf.Variable(3)

    @tf.function
    def program(x: tf.Tensor) -> Any:
        return strategy.run(lambda x: x * count, args=(x,))

    found = program(tf.constant([2, 4], dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [6, 12])
    with pytest.raises(TypeError, match="int32"):
        tf.function(lambda x: x * count)(tf.constant([2, 4], dtype))


def test_functions_are_traced_by_their_arguments() -> None:
    strategy = tpu.software_strategy()
    traced = []

    @tf.function
    def double(x: tf.Tensor) -> tf.Tensor:
        traced.append(x.shape)
        return 2 * x

    for size in (2, 2, 3):
        result = strategy.run(double, args=(tf.ones([size]),))
        np.testing.assert_array_equal(result, [2.0] * size)
    assert strategy.run(double, kwargs={"x": tf.ones([3])}).shape == [3]
    assert traced == [[2], [3]]


def test_another_strategy_is_another_system() -> None:
    ids, _ = next(batches())

    def look_up(setup: Setup) -> Any:
        @tf.function
        def step(ids: Any) -> Any:
            setup.embedding.enqueue(ids, training=False)
            return setup.strategy.run(setup.embedding.dequeue)

        return step(ids)

    first = Setup()
    look_up(first)
    with first.strategy.scope():
        feature = tpu_embedding.FeatureConfig(table(WEIGHTS, "more"))
        more = tpu_embedding.TPUEmbedding(feature, tpu_embedding.SGD())
    # As on a TPU: one embedding a system.
    with pytest.raises(
        RuntimeError, match=r"already initialized .*software_strategy\(\) again"
    ):
        more.build([tf.TensorShape([4, 1])])
    np.testing.assert_array_equal(look_up(Setup())[1], WEIGHTS[[2, 2]].sum(axis=0))


def test_mistakes_name_the_table_and_the_feature() -> None:
    films = table(WEIGHTS, "films", combiner="sum")
    features = {"seen": tpu_embedding.FeatureConfig(films, name="seen")}
    program = Program(features, tpu_embedding.SGD(1.0))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        program.look_up({"seen": tf.constant([0, 10])})
    for word in ("films", "seen", "10"):
        assert word in str(caught.value)
    # Nothing came of it: the next step is as if it had not been.
    np.testing.assert_array_equal(
        program.look_up({"seen": tf.constant([0, 9])})["seen"], WEIGHTS[[0, 9]]
    )


def test_software_strategy_without_soft_placement_raises() -> None:
    tf.config.set_soft_device_placement(False)
    try:
        with pytest.raises(RuntimeError, match="set_soft_device_placement"):
            tpu.software_strategy()
    finally:
        tf.config.set_soft_device_placement(True)


def test_gpus_that_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """One GPU, one core, one host; and a library with kernels for it."""
    with pytest.raises(ValueError, match="must be '/cpu:0' or '/gpu:0', not '/gpu:1'"):
        tpu.software_strategy(device="/gpu:1")
    with pytest.raises(ValueError, match="a GPU is one core, not 2"):
        tpu.software_strategy(device="/gpu:0", cores=2)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": ["localhost:1"]}), "worker", 0
    )
    with pytest.raises(ValueError, match="not shared out over hosts"):
        tpu.software_strategy(resolver, device="/gpu:0")
    monkeypatch.setattr(native, "cuda", lambda: None)
    with pytest.raises(RuntimeError, match="make native CUDA=ON"):
        tpu.software_strategy(device="/gpu:0")
    monkeypatch.setattr(native, "cuda", lambda: "13.0")
    gpus: list[str] = []
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    with pytest.raises(RuntimeError, match="sees no GPU"):
        tpu.software_strategy(device="/gpu:0")
    gpus += ["a GPU", "another"]
    with pytest.raises(RuntimeError, match="lie on one GPU, and TensorFlow sees 2"):
        tpu.software_strategy(device="/gpu:0")
    with pytest.raises(RuntimeError, match="say device='/gpu:0'"):
        tpu.software_strategy()


def test_software_strategy_in_graph_raises() -> None:
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="eagerly"):
        tpu.software_strategy()


# The ops, through their classes and with a configuration of typed objects.


def test_op_functions_step_updates_tables() -> None:
    def rate() -> float:
        return 0.5

    tpu.software_strategy()
    films = tpu.EmbeddingTable("films", 10, 4, tpu_embedding.SGD(rate))
    people = tpu.EmbeddingTable("people", 10, 4, tpu.Momentum(rate))
    config = tpu.EmbeddingConfig(
        [films, people],
        [
            tpu.EmbeddingFeature("seen", films, [3]),
            tpu.EmbeddingFeature("friends", people, [3]),
        ],
    )
    assert not bool(tpu.is_tpu_embedding_initialized())
    tpu.configure_tpu_embedding(config.message)
    assert bool(tpu.is_tpu_embedding_initialized(config=config.message).numpy())
    message = config.message
    tpu.load_tpu_embedding_stochastic_gradient_descent_parameters(
        WEIGHTS, 1, 0, table_name="films", config=message
    )
    tpu.load_tpu_embedding_momentum_parameters(
        WEIGHTS, WEIGHTS * 0, 1, 0, table_name="people"
    )
    nothing = tf.zeros([0], tf.int32)
    tpu.enqueue_tpu_embedding_arbitrary_tensor_batch(
        [nothing, nothing],
        [tf.constant([1, 2, 1]), tf.constant([0, 0, 3])],
        [tf.zeros([0]), tf.zeros([0])],
        "train",
        device_ordinal=0,
    )
    activations = tpu.recv_tpu_embedding_activations(2, message)
    np.testing.assert_array_equal(activations[0], WEIGHTS[[1, 2, 1]])
    ones = [tf.ones_like(one) for one in activations]
    rates = config.current_learning_rates()
    tpu.send_tpu_embedding_gradients(ones, rates, message)
    found = tpu.retrieve_tpu_embedding_momentum_parameters(1, 0, table_name="people")
    np.testing.assert_array_equal(found.momenta[:4, 0], [2.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(found.parameters[0], WEIGHTS[0] - 1.0)


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ([0, 2], ("2",)),
        ([-1, 0], ("-1",)),
        ([1, 1], ("1",)),
        ([0, 7], ("7",)),
    ],
)
def test_tags_of_a_message_by_hand(tags: list[int], words: tuple[str, ...]) -> None:
    tpu.software_strategy()
    tables = [
        tpu.EmbeddingTable(name, 10, 4, tpu_embedding.SGD()) for name in ("a", "b")
    ]
    features = [tpu.EmbeddingFeature(one.name, one, [3]) for one in tables]
    message = tpu.EmbeddingConfig(tables, features).message
    for descriptor, tag in zip(message.table_descriptor, tags, strict=True):
        rate = descriptor.optimization_parameters.learning_rate
        rate.dynamic.CopyFrom(tpu.DynamicLearningRate(tag=tag))
    with pytest.raises(opwright.OpError) as caught:
        tpu.configure_tpu_embedding(message)
    assert isinstance(caught.value, tf.errors.InvalidArgumentError)
    for word in ("tag", *words):
        assert word in str(caught.value)
    assert not bool(tpu.is_tpu_embedding_initialized().numpy())
