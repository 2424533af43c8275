"""EmbeddingConfig: the message that it builds, the tags it assigns, what it refuses."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

import opwright
from embedding.support import reference
from embedding.support.cases import OP_NAMES, TRAITS
from opwright import OpAttrError, Scope, tpu
from opwright.tpu import EmbeddingConfig, EmbeddingFeature, EmbeddingTable
from opwright_runtime import embedding

tpu_embedding = tf.tpu.experimental.embedding


def slow() -> float:
    return 0.25


def fast() -> float:
    return 0.5


def table(name: str = "films", **changes: Any) -> EmbeddingTable:
    values = {"vocabulary_size": 10, "dimension": 4, "optimizer": tpu_embedding.SGD()}
    return EmbeddingTable(name, **{**values, **changes})


def config(
    *tables: EmbeddingTable, shape: tuple[int, ...] = (8,), **changes: Any
) -> EmbeddingConfig:
    """A feature for each table."""
    features = [EmbeddingFeature(f"{one.name}_id", one, shape) for one in tables]
    return EmbeddingConfig(tables, features, **changes)


def parsed(text: str) -> Any:
    return text_format.Parse(text, tpu.TPUEmbeddingConfiguration())


# What the messages should be was written by hand, from their definition.


def test_embedding_config_features_are_in_message() -> None:
    films = EmbeddingTable("films", 5_000_000_000, 16, tpu_embedding.SGD(0.5))
    people = EmbeddingTable("people", 3, 8, tpu_embedding.Adagrad(fast))
    made = EmbeddingConfig(
        [films, people],
        [
            EmbeddingFeature("friends", people, [32, 7]),
            EmbeddingFeature("seen", films, [32]),
            EmbeddingFeature("liked", films, (32,)),
        ],
        num_hosts=2,
        num_tensor_cores=4,
        pipelined=True,
        mode="inference",
        sharding="mod",
    )
    assert made.message == parsed("""
        table_descriptor {
          name: "films" vocabulary_size: 5000000000 dimension: 16
          optimization_parameters {
            learning_rate { constant: 0.5 }
            gradient_accumulation_status: ENABLED
            stochastic_gradient_descent {}
          }
        }
        table_descriptor {
          name: "people" vocabulary_size: 3 dimension: 8
          optimization_parameters {
            learning_rate { dynamic {} }
            gradient_accumulation_status: ENABLED
            adagrad {}
          }
        }
        feature_descriptor { name: "friends" table_id: 1 input_shape: [32, 7] }
        feature_descriptor { name: "seen" table_id: 0 input_shape: [32] }
        feature_descriptor { name: "liked" table_id: 0 input_shape: [32] }
        mode: INFERENCE
        num_hosts: 2
        num_tensor_cores: 4
        sharding_strategy: MOD
        pipeline_execution_with_tensor_core: true
        """)


def test_embedding_config_without_features_counts_them() -> None:
    tables = [table("a", num_features=2), table("b", num_features=1)]
    made = EmbeddingConfig(tables, batch_size=32).message
    assert (made.batch_size_per_tensor_core, len(made.feature_descriptor)) == (32, 0)
    assert [one.num_features for one in made.table_descriptor] == [2, 1]


def test_optimizer_common_arguments_are_in_message() -> None:
    optimizer = tpu.Momentum(
        0.1,
        momentum=0.75,
        use_nesterov=True,
        use_gradient_accumulation=True,
        clip_weight_min=-2.0,
        clip_weight_max=2.0,
        weight_decay_factor=0.25,
        multiply_weight_decay_factor_by_learning_rate=True,
        clipvalue=(None, 0.5),
        low_dimensional_packing_status=True,
    )
    quantization = tpu_embedding.QuantizationConfig(16, -1.0, 1.0)
    made = config(table(optimizer=optimizer, quantization=quantization)).message
    assert made.table_descriptor[0].optimization_parameters == text_format.Parse(
        """
        learning_rate { constant: 0.1 }
        clipping_limits { lower { value: -2 } upper { value: 2 } }
        gradient_clipping_limits { upper { value: 0.5 } }
        weight_decay_factor: 0.25
        multiply_weight_decay_factor_by_learning_rate: true
        gradient_accumulation_status: ENABLED
        low_dimensional_packing_status: ENABLED
        simulated_quantization {
          enabled: true
          num_buckets: 16
          clipping_limits { lower { value: -1 } upper { value: 1 } }
        }
        momentum { momentum: 0.75 use_nesterov: true }
        """,
        type(made.table_descriptor[0].optimization_parameters)(),
    )


# The classes of opwright, by the name in the optimizer registry.
CLASSES = {
    cls.FIELD: cls
    for cls in (getattr(embedding, name) for name in embedding.optimizers.__all__)
}


def tame(field: str) -> Any:
    """An optimizer with hyperparameters that are not its defaults."""
    cls, values = CLASSES[field], reference.RULES[field].tame
    return cls(fast, **values) if field == "frequency_estimator" else cls(**values)


def test_optimizer_registry_has_a_class_for_each_rule() -> None:
    theirs = ("SGD", "Adagrad", "AdagradMomentum", "Adam", "FTRL")
    found = set(CLASSES)
    for name in theirs:
        made = config(table(optimizer=getattr(tpu_embedding, name)()))
        parameters = made.message.table_descriptor[0].optimization_parameters
        found.add(reference.name_of(parameters))
    assert found == set(reference.RULES)


@pytest.mark.parametrize("field", CLASSES)
def test_optimizer_message_has_hyperparameters(field: str) -> None:
    message = config(table(optimizer=tame(field), dimension=1)).message
    parameters = message.table_descriptor[0].optimization_parameters
    assert reference.name_of(parameters) == field
    expected = type(parameters)()
    reference.set_optimizer(expected, field, **reference.RULES[field].tame)
    found = reference.hyperparameters(parameters)
    assert found == reference.hyperparameters(expected)


@pytest.mark.parametrize("field", CLASSES)
def test_configure_tpu_embedding_takes_optimizer_and_defaults(field: str) -> None:
    given = tame(field)
    default = given if field == "frequency_estimator" else type(given)()
    tables = [
        table(name, optimizer=one, dimension=1)
        for name, one in (("given", given), ("default", default))
    ]
    message = config(*tables).message
    tpu.software_strategy()
    tpu.configure_tpu_embedding(message)
    there = tpu.is_tpu_embedding_initialized(config=message)
    assert bool(there.numpy())


@pytest.mark.parametrize("field", CLASSES)
def test_optimizer_slots_equal_those_of_the_registry(field: str) -> None:
    """TPUEmbedding passes slots by name, and takes them by position."""
    optimizer = tame(field)
    assert optimizer._slot_names() == TRAITS[field]["slots"]
    assert len(optimizer._slot_initializers()) == len(TRAITS[field]["slots"])
    assert TRAITS[field]["row_wise"] == optimizer.ROW_WISE


@pytest.mark.parametrize("field", [name for name in CLASSES if name in OP_NAMES])
def test_optimizer_slots_equal_those_of_its_ops(field: str) -> None:
    optimizer = tame(field)
    load = opwright.op_class(f"LoadTPUEmbedding{OP_NAMES[field]}Parameters")
    retrieve = opwright.op_class(f"RetrieveTPUEmbedding{OP_NAMES[field]}Parameters")
    slots = ("parameters", *optimizer._slot_names())
    assert tuple(arg.name for arg in load.op_def.inputs) == slots
    assert tuple(arg.name for arg in retrieve.op_def.outputs) == slots
    assert optimizer._load().__name__ == f"load_tpu_embedding_{field}_parameters"
    name = optimizer._retrieve().__name__
    assert name == f"retrieve_tpu_embedding_{field}_parameters"


def test_optimizers_of_equal_arguments_are_equal() -> None:
    """As TensorFlow's are: equal, and hashed, by what they were given."""
    assert tpu.Momentum(0.1) == tpu.Momentum(0.1)
    assert hash(tpu.Momentum(0.1)) == hash(tpu.Momentum(0.1))
    assert tpu.Momentum(0.1) != tpu.Momentum(0.1, momentum=0.8)
    assert tpu.ProximalAdagrad() != tpu.ProximalAdagrad(initial_accumulator_value=1.0)


# Learning rates.


def tags(made: EmbeddingConfig) -> list[int | None]:
    """Each table's tag, None for a constant, from the serialized message."""
    message = tpu.TPUEmbeddingConfiguration.FromString(made.message.SerializeToString())
    rates = [t.optimization_parameters.learning_rate for t in message.table_descriptor]
    return [
        rate.dynamic.tag if rate.WhichOneof("learning_rate") == "dynamic" else None
        for rate in rates
    ]


def test_tables_share_the_tag_of_a_learning_rate() -> None:
    made = config(
        table("a", optimizer=tpu_embedding.SGD(slow)),
        table("b", optimizer=tpu_embedding.SGD(0.1)),
        table("c", optimizer=tpu_embedding.Adam(fast)),
        table("d", optimizer=tpu.RMSProp(slow)),
    )
    assert tags(made) == [0, None, 1, 0]
    assert made.learning_rates == (slow, fast)


def test_learning_rates_come_in_the_order_of_tags() -> None:
    step = tf.Variable(3.0)

    def decayed() -> tf.Tensor:
        return tf.constant(1, tf.float64) / tf.cast(step, tf.float64)

    made = config(
        table("a", optimizer=tpu_embedding.SGD(decayed)),
        table("b", optimizer=tpu_embedding.SGD(fast)),
    )
    rates = made.current_learning_rates()
    assert [rate.dtype for rate in rates] == [tf.float32] * 2
    np.testing.assert_array_equal(rates, np.array([1 / 3, 0.5], np.float32))
    step.assign(4.0)
    assert float(made.current_learning_rates()[0]) == 0.25


def test_equal_rates_of_different_functions_are_two() -> None:
    optimizers = [tpu_embedding.SGD(lambda: 0.1), tpu_embedding.SGD(lambda: 0.1)]
    tables = [table(str(i), optimizer=one) for i, one in enumerate(optimizers)]
    assert tags(config(*tables)) == [0, 1]


def test_constants_need_no_learning_rates() -> None:
    assert config(table()).learning_rates == ()
    assert config(table()).current_learning_rates() == []


def test_dynamic_learning_rate_sets_tag_of_message() -> None:
    rate = tpu.DynamicLearningRate(tag=7)
    message = config(table()).message
    learning_rate = message.table_descriptor[0].optimization_parameters.learning_rate
    learning_rate.dynamic.CopyFrom(rate)
    assert learning_rate.dynamic.tag == 7


def test_configure_tpu_embedding_op_takes_message() -> None:
    made = config(table())
    with tf.Graph().as_default():
        op = tpu.ConfigureTPUEmbedding.create(Scope.current(), made.message)
        assert tpu.TPUEmbeddingConfiguration.FromString(op.inputs.config) == (
            made.message
        )


# What breaks a rule. Each names the table or feature, the value and what is allowed.

FILMS = table()
STRANGER = table("strangers")
NO_FEATURES = " where there are no features"

REFUSED: dict[str, tuple[Callable[[], EmbeddingConfig], str]] = {
    "no tables": (
        lambda: EmbeddingConfig([]),
        "tables must be at least one table, not []",
    ),
    "no table": (
        lambda: EmbeddingConfig(["films"]),  # type: ignore[list-item]
        "tables[0] must be an EmbeddingTable, not 'films'",
    ),
    "no name": (
        lambda: config(table("a"), table("")),
        "name of tables[1] must be text, and not empty, not ''",
    ),
    "a name twice": (
        lambda: config(table("a"), table("b"), table("a")),
        "name of tables[2] must be another than that of tables[0], not 'a'",
    ),
    "no rows": (
        lambda: config(table(vocabulary_size=0)),
        "vocabulary_size of table 'films' must be at least 1, not 0",
    ),
    "too many rows": (
        lambda: config(table(vocabulary_size=2**63)),
        f"vocabulary_size of table 'films' must be at most {2**63 - 1}, not {2**63}",
    ),
    "rows that are no int": (
        lambda: config(table(vocabulary_size=10.0)),
        "vocabulary_size of table 'films' must be an int, not 10.0",
    ),
    "an empty shard": (
        lambda: config(table(vocabulary_size=3), num_hosts=4, num_tensor_cores=4),
        "vocabulary_size of table 'films' must be at least 4, a row for each host, "
        "not 3",
    ),
    "no columns": (
        lambda: config(table(dimension=-1)),
        "dimension of table 'films' must be at least 1, not -1",
    ),
    "no optimizer": (
        lambda: config(table(optimizer="sgd")),
        "optimizer of table 'films' must be one of tf.tpu.experimental.embedding or of "
        "opwright.tpu, not 'sgd'",
    ),
    "a rate that is no number": (
        lambda: config(table(optimizer=tpu_embedding.SGD(math.nan))),
        "learning_rate of table 'films' must be a finite number, or a function that "
        "returns one, not nan",
    ),
    "bounds the wrong way round": (
        lambda: config(
            table(optimizer=tpu_embedding.SGD(clip_weight_min=1, clip_weight_max=0))
        ),
        "clip_weight_min of table 'films' must be at most clip_weight_max, which is 0, "
        "not 1",
    ),
    "a gradient's bounds the wrong way round": (
        lambda: config(table(optimizer=tpu_embedding.SGD(clipvalue=(0.5, -0.5)))),
        "clip_gradient_min of table 'films' must be at most clip_gradient_max, which "
        "is -0.5, not 0.5",
    ),
    "quantized to nothing": (
        lambda: config(table(quantization=tpu_embedding.QuantizationConfig(4, 1, 1))),
        "lower of the quantization of table 'films' must be less than upper, which is "
        "1, not 1",
    ),
    "no batch": (
        lambda: EmbeddingConfig([table(num_features=1)]),
        f"batch_size must be at least 1{NO_FEATURES}, not 0",
    ),
    "no num_features": (
        lambda: EmbeddingConfig([FILMS], batch_size=8),
        f"num_features of table 'films' must be at least 1{NO_FEATURES}, not 0",
    ),
    "features and a batch": (
        lambda: config(FILMS, batch_size=8),
        "batch_size must be 0 where there are features: their shapes have the batch in "
        "them, not 8",
    ),
    "features and num_features": (
        lambda: config(table(num_features=2)),
        "num_features of table 'films' must be 0 where there are features, not 2",
    ),
    "a feature without a table": (
        lambda: EmbeddingConfig([FILMS], [EmbeddingFeature("seen", STRANGER, [8])]),
        "table of feature 'seen' must be a table of the configuration ('films'), not "
        "'strangers'",
    ),
    "a table without a feature": (
        lambda: EmbeddingConfig(
            [FILMS, STRANGER], [EmbeddingFeature("seen", FILMS, [8])]
        ),
        "features must be such that table 'strangers' has one, not ('seen',)",
    ),
    "no shape": (
        lambda: config(FILMS, shape=()),
        "shape of feature 'films_id' must be at least one dimension, the batch, not ()",
    ),
    "an empty dimension": (
        lambda: config(FILMS, shape=(8, 0)),
        "shape of feature 'films_id' must be at least 1 in each dimension, not 0",
    ),
    "no hosts": (
        lambda: config(FILMS, num_hosts=0),
        "num_hosts must be at least 1, not 0",
    ),
    "no cores": (
        lambda: config(FILMS, num_tensor_cores=True),
        "num_tensor_cores must be an int, not True",
    ),
    "cores that hosts do not share": (
        lambda: config(FILMS, num_hosts=2, num_tensor_cores=3),
        "num_tensor_cores must be a multiple of num_hosts, which is 2, not 3",
    ),
    "another mode": (
        lambda: config(FILMS, mode="train"),
        "mode must be one of 'training', 'inference', 'backward_pass_only', not "
        "'train'",
    ),
    "another sharding": (
        lambda: config(FILMS, sharding="range"),
        "sharding must be one of 'div', 'mod', not 'range'",
    ),
}


@pytest.mark.parametrize(("build", "message"), REFUSED.values(), ids=list(REFUSED))
def test_embedding_config_bad_argument_is_refused(
    build: Callable[[], EmbeddingConfig], message: str
) -> None:
    with pytest.raises(OpAttrError) as caught:
        build()
    assert str(caught.value) == f"ConfigureTPUEmbedding: {message}"
    assert caught.value.argument == message.partition(" must be ")[0]


def test_replaced_values_are_checked_too() -> None:
    made = config(FILMS)
    with pytest.raises(OpAttrError, match="num_hosts"):
        dataclasses.replace(made, num_hosts=-1)


def test_frequency_estimator_without_step_function_raises() -> None:
    with pytest.raises(TypeError, match="step must be a function"):
        tpu.FrequencyEstimator(3, 0.5, 100, 5)  # type: ignore[arg-type]
