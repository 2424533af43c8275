"""What a TPUEmbedding is made of and called with: other kinds are named at once."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import opwright
from embedding.support.program import tpu_embedding
from opwright import tpu
from opwright_runtime import embedding, native
from opwright_runtime.embedding import tpu_embedding as tpu_embedding_module

TableConfig, FeatureConfig = tpu_embedding.TableConfig, tpu_embedding.FeatureConfig


def table(**changes: Any) -> Any:
    return TableConfig(10, 4, **{"name": "films", **changes})


class CustomCombiner(tpu_embedding.CustomCombiner):  # type: ignore[misc]
    def __init__(self) -> None:
        """Of no use but its class."""


MADE = {
    "initializer class": (
        lambda: FeatureConfig(table(initializer=tf.initializers.TruncatedNormal)),
        "initializer of table 'films' must be an instance, such as TruncatedNormal",
    ),
    "optimizer class": (
        lambda: FeatureConfig(table(optimizer=tpu_embedding.Adagrad)),
        "optimizer of table 'films' must be one of tf.tpu.experimental.embedding or of "
        "opwright.tpu, an instance: Adagrad(...)",
    ),
    "optimizer of keras": (
        lambda: FeatureConfig(table(optimizer=keras.optimizers.Adagrad())),
        "opwright.tpu: those of Keras are for dense variables",
    ),
    "schedule": (
        lambda: FeatureConfig(
            table(
                optimizer=tpu_embedding.SGD(
                    keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
                )
            )
        ),
        "learning_rate of table 'films' must be a function without arguments",
    ),
    "variable": (
        lambda: FeatureConfig(table(optimizer=tpu_embedding.SGD(tf.Variable(0.1)))),
        "learning_rate of table 'films' must be a finite number, or a function",
    ),
    "combiner": (
        lambda: FeatureConfig(table(combiner=CustomCombiner())),
        "combiner of table 'films' must be one of 'mean', 'sum', 'sqrtn'",
    ),
    "dtype": (
        lambda: FeatureConfig(table(dtype=tf.int32)),
        "dtype of table 'films' must be float32",
    ),
    "quantization class": (
        lambda: FeatureConfig(
            table(quantization_config=tpu_embedding.QuantizationConfig)
        ),
        "quantization_config of table 'films' must be an instance",
    ),
    "name": (
        lambda: FeatureConfig(table(name=7)),
        "name of a table must be text, and not empty, not 7",
    ),
    "table for a feature": (
        lambda: {"seen": table()},
        "feature_config at 'seen' must be a tf.tpu.experimental.embedding."
        "FeatureConfig, such as FeatureConfig(table)",
    ),
    "class for a feature": (
        lambda: {"seen": FeatureConfig},
        "feature_config at 'seen' must be a tf.tpu.experimental.embedding.Feat",
    ),
}


@pytest.mark.parametrize("kind", MADE)
def test_tpu_embedding_made_of_another_kind_names_the_table(kind: str) -> None:
    make, words = MADE[kind]
    with tpu.software_strategy().scope(), pytest.raises(opwright.OpAttrError) as caught:
        tpu_embedding.TPUEmbedding(make(), tpu_embedding.SGD(0.1))
    assert str(caught.value).startswith("TPUEmbedding: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "optimizer", [keras.optimizers.Adagrad(), tpu_embedding.Adagrad, tpu.Momentum]
)
def test_embedding_table_with_another_optimizer_names_the_table(optimizer: Any) -> None:
    made = tpu.EmbeddingTable("films", 10, 4, optimizer)
    with pytest.raises(
        opwright.OpAttrError, match="optimizer of table 'films' must be"
    ):
        tpu.EmbeddingConfig([made], [tpu.EmbeddingFeature("seen", made, [2])])


# Hyperparameters, whose bounds the native library has too.


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tpu.Momentum(momentum=1.9), "Momentum: momentum must be from 0 to 1"),
        (lambda: tpu.RMSProp(rho=-0.1), "RMSProp: rho must be from 0 to 1"),
        (lambda: tpu.Adadelta(epsilon=-1.0), "Adadelta: epsilon must be at least 0"),
        (lambda: tpu.Lion(beta1=math.nan), "Lion: beta1 must be a finite number"),
        (lambda: tpu.ProximalYogi(l1="1"), "ProximalYogi: l1 must be a finite number"),
        (lambda: tpu.Momentum(use_nesterov=1), "use_nesterov must be a bool, not 1"),
        (
            lambda: tpu.ProximalYogi(initial_accumulator_value=-1.0),
            "ProximalYogi: initial_accumulator_value must be at least 0, not -1.0",
        ),
    ],
)
def test_optimizer_with_a_hyperparameter_out_of_bounds_is_refused(
    make: Callable[[], Any], words: str
) -> None:
    with pytest.raises(opwright.OpAttrError, match=words):
        make()


def test_bounds_of_optimizers_are_those_of_the_library() -> None:
    classes = [getattr(tpu, name) for name in embedding.optimizers.__all__]
    made = [
        (
            tpu.FrequencyEstimator(lambda: 1.0, 0.1, 9.0, 9.0)
            if one is tpu.FrequencyEstimator
            else one()
        )
        for one in classes
    ]
    traits = {one["field"]: one for one in native.embedding_optimizers()}
    for optimizer in made:
        of = traits[optimizer.FIELD]
        bounds = dict(zip(of["hyper"], of["hyper_bounds"], strict=True))
        for name, value in optimizer.hyperparameters:
            if isinstance(value, bool) or name not in bounds:
                continue
            for beyond in (-1.0, 2.0):
                allowed = bounds[name] in ("", "at least 0") and (
                    beyond > 0 or not bounds[name]
                )
                assert _takes(optimizer, name, beyond) == allowed, (optimizer, name)


def _takes(optimizer: Any, name: str, value: float) -> bool:
    values = {**dict(optimizer.hyperparameters), name: value}
    estimates = isinstance(optimizer, tpu.FrequencyEstimator)
    first = {"step": lambda: 1.0} if estimates else {}
    try:
        type(optimizer)(**first, **values)
    except opwright.OpAttrError:
        return False
    return True


# Calls.


class Made:
    def __init__(self) -> None:
        self.strategy = tpu.software_strategy()
        features = {"seen": FeatureConfig(table(combiner="sum"))}
        with self.strategy.scope():
            self.tables = tpu_embedding.TPUEmbedding(features, tpu_embedding.SGD(0.1))

    def look_up(self, ids: Any) -> Any:
        @tf.function
        def program(ids: Any) -> Any:
            self.tables.enqueue({"seen": ids}, training=False)
            return self.strategy.run(self.tables.dequeue)["seen"]

        return program(ids)


def test_enqueue_eagerly_says_to_put_it_in_a_function() -> None:
    made = Made()
    with pytest.raises(RuntimeError, match=r"eagerly\. Call it in a tf\.function"):
        made.tables.enqueue({"seen": tf.constant([1, 2])})


def test_dequeue_eagerly_without_a_batch_says_to_enqueue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Made()
    made.look_up(tf.constant([1, 2]))
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    with pytest.raises(RuntimeError, match="no batch was enqueued"):
        made.tables.dequeue()
    with pytest.raises(RuntimeError, match="no batch was enqueued"):
        made.strategy.run(made.tables.dequeue)


def test_dequeue_eagerly_beside_a_thread_that_enqueues_nothing_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Made()
    made.look_up(tf.constant([1, 2]))
    monkeypatch.setattr(tpu_embedding_module, "EAGER_TIMEOUT", 0.1)
    done = threading.Event()
    idle = threading.Thread(target=done.wait)
    idle.start()
    try:
        with pytest.raises(RuntimeError, match=r"was enqueued within 0\.1 s"):
            made.tables.dequeue()
    finally:
        done.set()
        idle.join()


def test_dequeue_eagerly_gets_the_batch_of_another_thread() -> None:
    made = Made()
    made.look_up(tf.constant([1, 2]))

    @tf.function
    def enqueue() -> None:
        made.tables.enqueue({"seen": tf.constant([3, 4])}, training=False)

    other = threading.Timer(0.3, enqueue)
    other.start()
    found = made.tables.dequeue()["seen"]
    other.join()
    np.testing.assert_array_equal(found, tpu.table("films").rows[3:5])
    enqueue()
    np.testing.assert_array_equal(found, made.tables.dequeue()["seen"])


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.bool, tf.uint64])
def test_enqueue_of_ids_that_are_no_integers_is_refused(dtype: tf.DType) -> None:
    made = Made()
    with pytest.raises(opwright.OpInputError, match="features at 'seen' must be integ"):
        made.look_up(tf.cast(tf.constant([1, 2]), dtype))
    assert made.look_up(tf.constant([1, 2])).shape == [2, 4]


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [
        (tf.float32, "cast the ids with tf.cast"),
        (tf.string, "map the texts to ids, such as with keras.layers.StringLookup"),
    ],
)
@pytest.mark.parametrize("kind", ["RaggedTensor", "SparseTensor"])
def test_enqueue_of_several_ids_that_are_no_integers_names_kind_and_dtype(
    kind: str, dtype: tf.DType, remedy: str
) -> None:
    made = Made()
    ids: Any = tf.ragged.constant([[1], [2]], tf.int64)
    values = tf.strings.as_string(ids.values)
    if dtype != tf.string:
        values = tf.cast(ids.values, dtype)
    ids = ids.with_values(values)
    if kind == "SparseTensor":
        ids = ids.to_sparse()
    with pytest.raises(opwright.OpInputError) as caught:
        made.look_up(ids)
    said = f", the rows of the table, not a {kind} of {dtype.name}: {remedy}"
    assert said in str(caught.value)


@pytest.mark.parametrize("dtype", [tf.int8, tf.uint8, tf.int16, tf.uint32, tf.int64])
def test_enqueue_of_every_integer_that_fits_finds_the_rows(dtype: tf.DType) -> None:
    made = Made()
    found = made.look_up(tf.cast(tf.constant([1, 2]), dtype))
    np.testing.assert_array_equal(found, tpu.table("films").rows[1:3])


def test_enqueue_of_an_array_says_what_it_takes() -> None:
    made = Made()

    @tf.function
    def program() -> None:
        made.tables.enqueue({"seen": np.array([1, 2])})

    with pytest.raises(
        opwright.OpInputError, match=r"'seen' must be a tf\.Tensor, tf\.Sp"
    ):
        program()


def test_enqueue_smaller_last_batch_names_feature_and_remedy() -> None:
    made = Made()
    made.look_up(tf.constant([1, 2, 3, 4]))
    with pytest.raises(
        ValueError, match=r"feature seen.*drop_remainder=True"
    ) as caught:
        made.look_up(tf.constant([1, 2]))
    assert "(4,)" in str(caught.value)
    assert made.look_up(tf.constant([1, 2, 3, 4])).shape == [4, 4]


def test_enqueue_larger_batch_names_distributed_data_and_build() -> None:
    made = Made()
    made.look_up(tf.constant([1, 2]))
    with pytest.raises(ValueError, match=r"feature seen.*batch is larger") as error:
        made.look_up(tf.constant([1, 2, 3, 4]))
    assert "distributed data set" in str(error.value)
    assert "call build(size) before the first step" in str(error.value)
    assert "drop_remainder" not in str(error.value)


def test_apply_gradients_eagerly_without_a_batch_says_to_make_a_function() -> None:
    made = Made()
    made.look_up(tf.constant([1, 2]))
    with pytest.raises(
        opwright.OpModeError, match=r"into one step, which is a tf\.function"
    ) as error:
        made.tables.apply_gradients({"seen": tf.ones([2, 4])})
    assert isinstance(error.value, tf.errors.FailedPreconditionError)
    assert "no step of core 0 awaits gradients" in str(error.value.__cause__)


def test_embedding_lookup_in_a_compiled_function_says_what_to_do() -> None:
    made = Made()
    made.tables.build({"seen": tf.TensorShape([2])})

    @tf.function(jit_compile=True)
    def compiled(ids: Any) -> Any:
        return tpu.embedding_lookup(ids) * 2.0

    with pytest.raises(NotImplementedError, match="Look up outside of it"):
        compiled(tf.constant([1, 2]))
