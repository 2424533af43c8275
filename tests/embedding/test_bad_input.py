"""A wrong call is refused by an error that names what is wrong, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from embedding.support.cases import (
    OP_NAMES,
    TRAITS,
    Feature,
    System,
    Table,
    configure,
    configured,
    draw_gradients,
    enqueue,
    f32,
    limits,
    load,
    optimizer,
    receive,
    retrieve,
    send,
)
from embedding.support.reference import Array
from opwright import Scope
from opwright.tpu import (
    EnqueueTPUEmbeddingArbitraryTensorBatch,
    EnqueueTPUEmbeddingIntegerBatch,
    EnqueueTPUEmbeddingRaggedTensorBatch,
    EnqueueTPUEmbeddingSparseBatch,
    EnqueueTPUEmbeddingSparseTensorBatch,
    LoadTPUEmbeddingAdagradParameters,
    RecvTPUEmbeddingActivations,
    RetrieveTPUEmbeddingAdagradParameters,
    SendTPUEmbeddingGradients,
    configure_distributed_tpu,
    configure_tpu_embedding,
    is_tpu_embedding_initialized,
    shutdown_distributed_tpu,
)
from opwright_runtime import native

Invalid = tf.errors.InvalidArgumentError
Precondition = tf.errors.FailedPreconditionError
Unimplemented = tf.errors.UnimplementedError

# Table 1 has the dynamic learning rate of tag 0.
SYSTEM = System(
    [Table(10, 4, optimizer("adagrad")), Table(6, 3, optimizer("adagrad", None))],
    [Feature(0, (5,)), Feature(1, (5,), "sparse"), Feature(1, (5,), "dense")],
)


def num_features() -> Any:
    """Without feature descriptors: 2 features of table 0, 1 of table 1, 5 samples."""
    config = SYSTEM.config
    del config.feature_descriptor[:]
    config.batch_size_per_tensor_core = 5
    config.table_descriptor[0].num_features = 2
    config.table_descriptor[1].num_features = 1
    return config


def raises(error: type[Exception], call: Callable[[], object], *words: str) -> None:
    with pytest.raises(error) as raised:
        call()
    for word in words:
        assert word in str(raised.value), (word, str(raised.value))


Change = Callable[[Any], object]


def tables(config: Any) -> Any:
    return config.table_descriptor


def learning(config: Any, table: int = 0) -> Any:
    return config.table_descriptor[table].optimization_parameters


# How a rule is broken, and words that the refusal has.
DESCRIBED: list[tuple[Change, tuple[str, ...]]] = [
    (lambda c: c.ClearField("table_descriptor"), ("table",)),
    (lambda c: setattr(tables(c)[1], "vocabulary_size", 0), ("table1", "vocab", "0")),
    (lambda c: setattr(tables(c)[1], "vocabulary_size", -5), ("table1", "-5")),
    (lambda c: setattr(tables(c)[0], "vocabulary_size", 2**62), ("table0",)),
    (lambda c: setattr(tables(c)[0], "dimension", 0), ("table0", "dimension", "0")),
    (lambda c: setattr(tables(c)[0], "dimension", -1), ("table0", "-1")),
    (lambda c: setattr(tables(c)[1], "name", "table0"), ("table0",)),
    (lambda c: setattr(tables(c)[1], "num_features", 3), ("table1", "num_fea", "3")),
    (lambda c: setattr(c, "batch_size_per_tensor_core", 8), ("batch_size", "8")),
    (lambda c: setattr(c, "num_hosts", 0), ("num_hosts", "0")),
    (lambda c: setattr(c, "num_tensor_cores", 0), ("num_tensor_cores", "0")),
    (lambda c: setattr(c, "num_tensor_cores", -2), ("num_tensor_cores", "-2")),
    (lambda c: setattr(c, "num_tensor_cores", 2**30), ("num_tensor_cores",)),
    (lambda c: setattr(c.feature_descriptor[1], "table_id", 2), ("feature1", "2")),
    (lambda c: setattr(c.feature_descriptor[1], "table_id", -1), ("feature1", "-1")),
    (lambda c: c.feature_descriptor[0].ClearField("input_shape"), ("feature0",)),
    (lambda c: c.feature_descriptor[0].input_shape.append(0), ("feature0", "0")),
    (lambda c: c.feature_descriptor[0].input_shape.append(-3), ("feature0", "-3")),
    (
        lambda c: c.feature_descriptor[0].input_shape.extend([2**31 - 1] * 3),
        ("feature0",),
    ),
    (lambda c: c.feature_descriptor.pop(0), ("table0", "feature")),
    (lambda c: learning(c).ClearField("parameters"), ("table0",)),
    (lambda c: setattr(learning(c).learning_rate, "constant", np.nan), ("table0",)),
    (
        lambda c: setattr(learning(c, 1).learning_rate.dynamic, "tag", -1),
        ("table1", "-1", "tag"),
    ),
    (
        lambda c: setattr(learning(c, 1).learning_rate.dynamic, "tag", 1),
        ("table1", "1", "tag"),
    ),
    (
        lambda c: setattr(learning(c, 0).learning_rate.dynamic, "tag", 2),
        ("table0", "2", "tag"),
    ),
    (
        lambda c: learning(c).clipping_limits.CopyFrom(limits(2, 1)),
        ("table0", "clipping_limits", "2", "1"),
    ),
    (
        lambda c: learning(c).gradient_clipping_limits.CopyFrom(limits(0, -3)),
        ("table0", "gradient_clipping_limits", "-3"),
    ),
    (
        lambda c: learning(c).clipping_limits.CopyFrom(limits(np.nan, 1)),
        ("table0", "clipping_limits"),
    ),
    (
        lambda c: setattr(learning(c), "weight_decay_factor", np.inf),
        ("table0", "weight_decay_factor", "inf"),
    ),
    (
        lambda c: learning(c).CopyFrom(optimizer("adam", beta1=np.nan)),
        ("table0", "beta1", "nan"),
    ),
    (
        lambda c: learning(c).CopyFrom(optimizer("adagrad_momentum", exponent=0)),
        ("table0", "exponent", "0"),
    ),
    (
        lambda c: learning(c).CopyFrom(optimizer("ftrl", lr_power=0.5)),
        ("table0", "lr_power", "0.5"),
    ),
    (
        lambda c: learning(c).CopyFrom(optimizer("frequency_estimator", tau=0.5)),
        ("table0", "frequency_estimator", "rate"),
    ),
    (lambda c: quantize(c, 1, 0, 1), ("table0", "num_buckets", "1")),
    (lambda c: quantize(c, 16, 1, 1), ("table0", "clipping_limits")),
    (lambda c: quantize(c, 16, None, 1), ("table0", "clipping_limits")),
]
LEGACY: list[tuple[Change, tuple[str, ...]]] = [
    (lambda c: setattr(c, "batch_size_per_tensor_core", 0), ("batch_size", "0")),
    (lambda c: setattr(c, "batch_size_per_tensor_core", -1), ("batch_size", "-1")),
    (lambda c: setattr(tables(c)[1], "num_features", 0), ("table1", "num_fea", "0")),
    (lambda c: setattr(tables(c)[0], "num_features", -2), ("table0", "-2")),
]


def quantize(config: Any, buckets: int, low: float | None, high: float | None) -> None:
    quantization = learning(config).simulated_quantization
    quantization.enabled = True
    quantization.num_buckets = buckets
    quantization.clipping_limits.CopyFrom(limits(low, high))


@pytest.mark.parametrize("which", range(len(DESCRIBED)))
def test_configure_broken_rule_is_refused(which: int) -> None:
    change, words = DESCRIBED[which]
    refused_configuration(SYSTEM.config, change, words)


@pytest.mark.parametrize("which", range(len(LEGACY)))
def test_configure_legacy_broken_rule_is_refused(which: int) -> None:
    change, words = LEGACY[which]
    refused_configuration(num_features(), change, words)


def refused_configuration(config: Any, change: Change, words: tuple[str, ...]) -> None:
    configure(config.SerializeToString())
    change(config)
    shutdown_distributed_tpu()
    configure_distributed_tpu()
    raises(
        Invalid,
        lambda: configure_tpu_embedding(config.SerializeToString()),
        "ConfigureTPUEmbedding",
        *words,
    )
    assert not bool(is_tpu_embedding_initialized())
    shutdown_distributed_tpu()


@pytest.mark.parametrize("config", [b"", b"no message", b"\x0a\xff\xff\xff\xff\x0f"])
def test_configure_bytes_without_message_are_refused(config: bytes) -> None:
    shutdown_distributed_tpu()
    configure_distributed_tpu()
    raises(Invalid, lambda: configure_tpu_embedding(config), "config")
    shutdown_distributed_tpu()


State = list[dict[str, Array]]


@pytest.fixture
def before() -> Iterator[State]:
    """The system configured, tables loaded, nothing enqueued: and so it stays."""
    rng = np.random.default_rng(0)
    with configured(SYSTEM):
        state = [table.draw(rng) for table in SYSTEM.tables]
        load(SYSTEM, state)
        yield state
        unchanged(state)
        # A good step works as if nothing had been.
        lookups = SYSTEM.draw(rng)
        gradients = draw_gradients(SYSTEM, rng)
        enqueue(SYSTEM, lookups)
        expected = SYSTEM.expected(state, lookups)
        found = receive(SYSTEM, SYSTEM.proto)
        for one, values in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, values, 1e-5, 1e-5)
        send(SYSTEM, SYSTEM.proto, gradients, [0.25])
        after = SYSTEM.updated(state, lookups, gradients, [0.25])
        for now, table in zip(retrieve(SYSTEM), after, strict=True):
            np.testing.assert_allclose(
                now["parameters"], table["parameters"], 1e-4, 1e-5
            )


def unchanged(state: State) -> None:
    for found, expected in zip(retrieve(SYSTEM), state, strict=True):
        for slot, values in expected.items():
            assert (found[slot] == values).all(), slot


def ints(*values: Any) -> tf.Tensor:
    return tf.constant(np.array(values, np.int32))


EMPTY = tf.zeros([0], tf.int32)
NO_WEIGHTS = tf.zeros([0])
RAGGED = (ints(0, 1, 1, 2, 3, 4), ints(0, 9, 3, 3), NO_WEIGHTS)
SPARSE = (ints((0, 0), (2, 0), (4, 1)), ints(0, 5, 1), tf.ones([3]))
DENSE = (EMPTY, ints(0, 1, 2, 5, 5), NO_WEIGHTS)
GOOD = (RAGGED, SPARSE, DENSE)
Tensors = tuple[tf.Tensor, tf.Tensor, tf.Tensor]

# The feature, its tensors, and words of the error other than the feature's name.
LOOKUPS: list[tuple[int, Tensors, tuple[str, ...]]] = [
    (0, (RAGGED[0], ints(0, 10, 3, 3), NO_WEIGHTS), ("table0", "10")),
    (0, (RAGGED[0], ints(0, -1, 3, 3), NO_WEIGHTS), ("table0", "-1")),
    (0, (RAGGED[0], ints(0, 2**31 - 1, 3, 3), NO_WEIGHTS), ("2147483647",)),
    (0, (RAGGED[0], RAGGED[1], tf.ones([3])), ("3", "4", "weights")),
    (0, (RAGGED[0], RAGGED[1], tf.constant([1, 1, np.nan, 1])), ("nan", "weight")),
    (0, (RAGGED[0], RAGGED[1], tf.constant([1, 1, -np.inf, 1])), ("inf", "weight")),
    (0, (ints(0, 1, 1, 2, 4), RAGGED[1], NO_WEIGHTS), ("5", "4", "rows")),
    (0, (ints(0, 1, 1, 2, 3, 5), RAGGED[1], NO_WEIGHTS), ("5", "4", "split")),
    (0, (ints(0, 1, 1, 2, 3, 3), RAGGED[1], NO_WEIGHTS), ("3", "4", "split")),
    (0, (ints(1, 1, 1, 2, 3, 4), RAGGED[1], NO_WEIGHTS), ("1", "split")),
    (0, (ints(0, 2, 1, 2, 3, 4), RAGGED[1], NO_WEIGHTS), ("1", "2", "split")),
    (0, (ints(0, -1, 1, 2, 3, 4), RAGGED[1], NO_WEIGHTS), ("-1", "split")),
    (1, (ints((0, 0), (5, 0), (4, 1)), SPARSE[1], NO_WEIGHTS), ("5",)),
    (1, (ints((0, 0), (-1, 0), (4, 1)), SPARSE[1], NO_WEIGHTS), ("-1",)),
    (1, (ints((0, 0, 0, 0)), ints(1), NO_WEIGHTS), ("4",)),
    (1, (SPARSE[0], ints(0, 6, 1), NO_WEIGHTS), ("table1", "6")),
    (2, (EMPTY, ints(0, 1, 2, 5), NO_WEIGHTS), ("4", "5")),
    (2, (EMPTY, ints(0, 1, 2, 5, 5, 5), NO_WEIGHTS), ("6", "5")),
    (2, (EMPTY, ints(0, 1, 2, 5, 6), NO_WEIGHTS), ("table1", "6")),
]

# The same for tensors that cannot be of any feature: the argument is named.
SHAPES: list[tuple[int, Tensors, tuple[str, ...]]] = [
    (0, (RAGGED[0], RAGGED[1][None], NO_WEIGHTS), ("embedding_indices[0]", "[1,4]")),
    (0, (RAGGED[0], ints(3)[0], NO_WEIGHTS), ("embedding_indices[0]", "[]")),
    (0, (*RAGGED[:2], tf.ones([2, 2])), ("aggregation_weights[0]", "[2,2]")),
    (1, (SPARSE[0][:2], SPARSE[1], NO_WEIGHTS), ("row_splits[1]", "[2,2]", "3")),
    (2, (tf.zeros([1, 1, 1], tf.int32), *DENSE[1:]), ("row_splits[2]", "[1,1,1]")),
    (2, (tf.constant(0), *DENSE[1:]), ("row_splits[2]", "[]")),
]


def arbitrary(
    tensors: Any,
    mode: Any = "train",
    **options: Any,
) -> None:
    op = EnqueueTPUEmbeddingArbitraryTensorBatch
    where, ids, weights = (list(column) for column in zip(*tensors, strict=True))
    op.create(Scope.current(), where, ids, weights, mode, op.Options(**options))


@pytest.mark.parametrize("which", range(len(LOOKUPS) + len(SHAPES)))
@pytest.mark.parametrize("wide", [False, True])
def test_enqueue_bad_lookup_is_refused(before: State, which: int, wide: bool) -> None:
    feature, tensors, words = [*LOOKUPS, *SHAPES][which]
    if which < len(LOOKUPS):
        words = (f"feature{feature}", *words)
    every = [*GOOD[:feature], tensors, *GOOD[feature + 1 :]]
    if wide:
        every = [
            (tf.cast(w, tf.int64), tf.cast(i, tf.int64), tf.cast(f, tf.float64))
            for w, i, f in every
        ]
    raises(Invalid, lambda: arbitrary(every), *words)


def test_ids_beyond_32_bits_are_not_cut(before: State) -> None:
    for id_ in (2**32, 2**32 + 1, -(2**32), 2**63 - 1, -(2**63)):
        ids = tf.constant([0, id_, 3, 3], tf.int64)
        rest = [(w, tf.cast(i, tf.int64), f) for w, i, f in GOOD[1:]]
        every = [(RAGGED[0], ids, NO_WEIGHTS), *rest]
        raises(Invalid, partial(arbitrary, every), str(id_), "feature0")


def test_enqueue_bad_option_is_refused(before: State) -> None:
    raises(Invalid, lambda: arbitrary(GOOD, "backwards"), "mode_override", "backwards")
    raises(Invalid, lambda: arbitrary(GOOD, ""), "mode_override")
    raises(
        Invalid, lambda: arbitrary(GOOD, tf.constant(["train"] * 2)), "mode_override"
    )
    raises(Invalid, lambda: arbitrary(GOOD, device_ordinal=1), "device", "1")
    raises(Invalid, lambda: arbitrary(GOOD, device_ordinal=-2), "device", "-2")
    raises(
        Invalid, lambda: arbitrary(GOOD, combiners=["sum", "max"]), "combiner", "max"
    )
    raises(Invalid, lambda: arbitrary(GOOD, combiners=["sum"]), "combiner", "1", "2")
    raises(Invalid, lambda: arbitrary(GOOD[:2]), "2", "3")
    raises(Invalid, lambda: arbitrary([*GOOD, DENSE]), "4", "3")


def test_receive_bad_argument_is_refused(before: State) -> None:
    scope, op = Scope.current(), RecvTPUEmbeddingActivations
    # One that is not refused would wait for a batch for ever.
    arbitrary(GOOD, "inference")
    raises(Invalid, lambda: op.create(scope, 2, SYSTEM.proto), "num_outputs", "2", "3")
    other = SYSTEM.config
    other.table_descriptor[0].dimension = 5
    for config in (b"no message", other.SerializeToString()):
        raises(Invalid, partial(op.create, scope, 3, config), "config")
    receive(SYSTEM, SYSTEM.proto)


def test_send_without_receive(before: State) -> None:
    gradients = [np.ones((5, 4)), np.ones((5, 3)), np.ones((5, 3))]
    name = "SendTPUEmbeddingGradients"
    raises(Precondition, lambda: send(SYSTEM, SYSTEM.proto, gradients, [0.5]), name)
    arbitrary(GOOD, "inference")
    receive(SYSTEM, SYSTEM.proto)
    raises(Precondition, lambda: send(SYSTEM, SYSTEM.proto, gradients, [0.5]), name)


GRADIENTS = (tf.ones([5, 4]), tf.ones([5, 3]), tf.ones([5, 3]))


def nan_at(shape: list[int], value: float = np.nan) -> tf.Tensor:
    gradient = np.ones(shape, np.float32)
    gradient[-1, -1] = value
    return tf.constant(gradient)


# Gradients, learning rates, words of the refusal.
SENDS: list[tuple[Any, Any, tuple[str, ...]]] = [
    ((*GRADIENTS[:2], tf.ones([5, 4])), [f32(0.5)], ("feature2", "[5,4]", "[5,3]")),
    ((*GRADIENTS[:2], tf.ones([4, 3])), [f32(0.5)], ("feature2", "[4,3]", "[5,3]")),
    ((*GRADIENTS[:2], tf.ones([15])), [f32(0.5)], ("feature2", "[15]")),
    ((*GRADIENTS[:2], tf.ones([5, 3, 1])), [f32(0.5)], ("feature2", "[5,3,1]")),
    ((GRADIENTS[1], GRADIENTS[0], GRADIENTS[2]), [f32(0.5)], ("feature0",)),
    (GRADIENTS[:2], [f32(0.5)], ("2", "3")),
    ((*GRADIENTS, GRADIENTS[0]), [f32(0.5)], ("4", "3")),
    (GRADIENTS, [], ("0", "1", "learning")),
    (GRADIENTS, [f32(0.5)] * 2, ("2", "1", "learning")),
    (GRADIENTS, [f32([0.5])], ("learning", "[1]")),
    (GRADIENTS, [f32(np.nan)], ("learning", "nan", "table1")),
    (GRADIENTS, [f32(np.inf)], ("learning", "inf", "table1")),
    ((nan_at([5, 4]), *GRADIENTS[1:]), [f32(0.5)], ("feature0", "nan")),
    ((*GRADIENTS[:2], nan_at([5, 3], np.inf)), [f32(0.5)], ("feature2", "inf")),
    ((*GRADIENTS[:2], nan_at([5, 3], -np.inf)), [f32(0.5)], ("feature2", "-inf")),
]


@pytest.mark.parametrize("which", range(len(SENDS)))
def test_send(before: State, which: int) -> None:
    """What was received still waits for its gradients."""
    gradients, rates, words = SENDS[which]
    scope = Scope.current()
    arbitrary(GOOD)
    receive(SYSTEM, SYSTEM.proto)

    def wrong(config: bytes = SYSTEM.proto) -> None:
        SendTPUEmbeddingGradients.create(scope, gradients, rates, config)

    raises(Invalid, wrong, "SendTPUEmbeddingGradients", *words)
    raises(Invalid, lambda: wrong(b"no message"), "config")
    unchanged(before)
    # Gradients of nothing change nothing, and end the step.
    zeros = [tf.zeros_like(gradient) for gradient in GRADIENTS]
    SendTPUEmbeddingGradients.create(scope, zeros, [f32(0.5)], SYSTEM.proto)


def load_first(
    weights: Any, slots: Any, shards: int = 1, shard: int = 0, **options: Any
) -> None:
    op = LoadTPUEmbeddingAdagradParameters
    op.create(Scope.current(), weights, slots, shards, shard, op.Options(**options))


def test_load_bad_argument_is_refused(before: State) -> None:
    good = tf.ones([10, 4])
    here: dict[str, Any] = {"table_id": 0, "config": SYSTEM.proto}
    raises(Invalid, lambda: load_first(tf.ones([9, 4]), good, **here), "table0", "9")
    raises(Invalid, lambda: load_first(good, tf.ones([10, 5]), **here), "accumulators")
    raises(Invalid, lambda: load_first(tf.ones([40]), good, **here), "table0", "[40]")
    raises(Invalid, lambda: load_first(good, tf.ones([0]), **here), "accumulators")
    raises(Invalid, lambda: load_first(good, good, 1, 1, **here), "shard_id", "1")
    raises(Invalid, lambda: load_first(good, good, 1, -1, **here), "shard_id", "-1")
    raises(Invalid, lambda: load_first(good, good, 0, 0, **here), "num_shards", "0")
    raises(Invalid, lambda: load_first(good, good, 11, 10, **here), "11", "table0")
    raises(Invalid, lambda: load_first(good, good, 2, 0, **here), "[5,4]")
    both: dict[str, Any] = {
        "table_id": 0,
        "table_name": "table0",
        "config": SYSTEM.proto,
    }
    raises(Invalid, lambda: load_first(good, good, **both), "table_name")
    raises(Invalid, lambda: load_first(good, good, config=SYSTEM.proto), "table_id")
    raises(Invalid, lambda: load_first(good, good, table_id=2), "table_id", "2")
    raises(Invalid, lambda: load_first(good, good, table_name="x"), "'x'")


@pytest.mark.parametrize("name", [n for n in OP_NAMES if n != "adagrad"])
def test_another_optimizer_s_ops(before: State, name: str) -> None:
    op: Any = opwright.op_class(f"LoadTPUEmbedding{OP_NAMES[name]}Parameters")
    tensors = [tf.ones([10, 4])] * (1 + len(TRAITS[name]["slots"]))
    options = op.Options(table_id=0, config=SYSTEM.proto)
    scope = Scope.current()
    raises(Invalid, lambda: op.create(scope, *tensors, 1, 0, options), "adagrad", name)
    op = opwright.op_class(f"RetrieveTPUEmbedding{OP_NAMES[name]}Parameters")
    options = op.Options(table_id=0, config=SYSTEM.proto)
    raises(Invalid, lambda: op.create(scope, 1, 0, options), "adagrad", name)


def retrieve_first(shards: int = 1, shard: int = 0, **options: Any) -> None:
    op = RetrieveTPUEmbeddingAdagradParameters
    op.create(Scope.current(), shards, shard, op.Options(**options))


def test_retrieve_bad_argument_is_refused(before: State) -> None:
    raises(Invalid, lambda: retrieve_first(table_id=7), "table_id", "7")
    raises(Invalid, lambda: retrieve_first(table_name="unknown"), "unknown")
    raises(Invalid, lambda: retrieve_first(1, 3, table_id=0), "shard_id", "3")
    raises(Invalid, lambda: retrieve_first(-4, 0, table_id=0), "num_shards", "-4")
    raises(Invalid, retrieve_first, "table_id")


def test_before_anything_is_configured() -> None:
    shutdown_distributed_tpu()
    assert not bool(is_tpu_embedding_initialized())
    lookups = SYSTEM.draw(np.random.default_rng(0))
    proto, scope = SYSTEM.proto, Scope.current()
    calls: list[Callable[[], object]] = [
        lambda: enqueue(SYSTEM, lookups),
        lambda: receive(SYSTEM, proto),
        lambda: SendTPUEmbeddingGradients.create(scope, GRADIENTS, [f32(1)], proto),
        lambda: retrieve(SYSTEM),
        lambda: load_first(tf.ones([10, 4]), tf.ones([10, 4]), table_id=0),
    ]
    for call in calls:
        raises(Precondition, call, "TPUEmbedding", "ConfigureTPUEmbedding")


def test_optimizer_without_formula_refuses_updates_only() -> None:
    traits = native.embedding_optimizers()
    field = next(one["field"] for one in traits if not one["formula"])
    parameters = optimizer("stochastic_gradient_descent")
    getattr(parameters, field).SetInParent()
    system = System([Table(4, 2, parameters)], [Feature(0, (3,), "dense")])
    lookups = system.draw(np.random.default_rng(0))
    with configured(system) as proto:
        enqueue(system, lookups)
        (found,) = receive(system, proto)
        assert found.shape == (3, 2)
        raises(
            Unimplemented,
            lambda: send(system, proto, [np.ones((3, 2))]),
            field,
            "table0",
        )


def test_table_without_learning_rate_refuses_updates_only() -> None:
    parameters = optimizer("adagrad")
    parameters.ClearField("learning_rate")
    system = System([Table(4, 2, parameters)], [Feature(0, (3,), "dense")])
    with configured(system) as proto:
        enqueue(system, system.draw(np.random.default_rng(0)))
        (found,) = receive(system, proto)
        assert found.shape == (3, 2)
        raises(
            Precondition,
            lambda: send(system, proto, [np.ones((3, 2))]),
            "learning_rate",
            "table0",
        )


SUM = ["sum", "sum"]


def test_num_features_configuration_refuses_other_enqueue_ops() -> None:
    """Table 0 has 2 features and so 10 samples, table 1 has 5."""
    config = num_features().SerializeToString()
    configure(config)
    scope = Scope.current()
    ten, five = ints(*range(10)), ints(*range(5))

    def integers(*batch: tf.Tensor) -> None:
        EnqueueTPUEmbeddingIntegerBatch.create(scope, batch, "inference")

    raises(Invalid, lambda: integers(ten), "1", "2")
    raises(Invalid, lambda: integers(ten, ten), "table1", "10", "5")
    raises(Invalid, lambda: integers(ten, five + 2), "table1", "6")
    raises(Invalid, lambda: integers(ten - 1, five), "table0", "-1")

    def sparse(where: tf.Tensor, ids: tf.Tensor, combiners: list[str] = SUM) -> None:
        op = EnqueueTPUEmbeddingSparseBatch
        op.create(
            scope,
            [where, five],
            [ids, five],
            [NO_WEIGHTS] * 2,
            "inference",
            op.Options(combiners=combiners),
        )

    raises(Invalid, lambda: sparse(ints(0, 10), ints(1, 1)), "table0", "10")
    raises(Invalid, lambda: sparse(ints(0, -1), ints(1, 1)), "table0", "-1")
    raises(Invalid, lambda: sparse(ints(0), ints(1, 1)), "indices[0]", "1", "2")
    raises(Invalid, lambda: sparse(ints(0, 1), ints(1, 10)), "table0", "10")

    def sparse_tensors(where: tf.Tensor, ids: tf.Tensor, table_ids: list[int]) -> None:
        EnqueueTPUEmbeddingSparseTensorBatch.create(
            scope,
            [where, EMPTY, EMPTY][: len(table_ids)],
            [ids, EMPTY, EMPTY][: len(table_ids)],
            [NO_WEIGHTS] * len(table_ids),
            "inference",
            table_ids,
        )

    raises(Invalid, lambda: sparse_tensors(five, five, [0, 0, 2]), "table_ids", "2")
    raises(Invalid, lambda: sparse_tensors(five, five, [0, -1, 1]), "table_ids", "-1")
    raises(Invalid, lambda: sparse_tensors(five + 1, five, [0, 0, 1]), "table0", "5")
    raises(Invalid, lambda: sparse_tensors(five, five, [0, 1]), "table0")

    def ragged(splits: tf.Tensor, ids: tf.Tensor, table_ids: list[int]) -> None:
        EnqueueTPUEmbeddingRaggedTensorBatch.create(
            scope,
            [splits, tf.zeros([6], tf.int32), tf.zeros([6], tf.int32)],
            [ids, EMPTY, EMPTY],
            [NO_WEIGHTS] * 3,
            "inference",
            table_ids,
        )

    splits = ints(0, 1, 2, 3, 4, 5)
    raises(Invalid, lambda: ragged(splits[:-1], five, [0, 0, 1]), "table0")
    raises(Invalid, lambda: ragged(splits, five + 6, [0, 0, 1]), "table0", "10")
    raises(Invalid, lambda: ragged(splits, five, [0, 0, 5]), "table_ids", "5")
    # After all that, a good batch is looked up.
    integers(ten, five)
    outputs = RecvTPUEmbeddingActivations.create(scope, 2, config).outputs
    assert [tuple(one.shape) for one in outputs] == [(10, 4), (5, 3)]
    shutdown_distributed_tpu()
