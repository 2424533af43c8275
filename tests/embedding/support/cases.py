"""Configurations, batches and steps of the tests of TPU embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.tpu.optimization_parameters_pb2 import (
    ClippingLimits,
    OptimizationParameters,
)
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

import opwright
from embedding.support import reference
from embedding.support.reference import Array, Ids
from opwright import Scope
from opwright.tpu import (
    EnqueueTPUEmbeddingArbitraryTensorBatch,
    LoadAllTPUEmbeddingParameters,
    RecvTPUEmbeddingActivations,
    RetrieveAllTPUEmbeddingParameters,
    SendTPUEmbeddingGradients,
    configure_distributed_tpu,
    configure_tpu_embedding,
    shutdown_distributed_tpu,
)
from opwright_runtime import native

TRAITS = {one["field"]: one for one in native.embedding_optimizers()}
# What the Load and Retrieve ops of an optimizer with a rule are called.
OP_NAMES = {
    name: one["op_name"]
    for name, one in TRAITS.items()
    if one["op_name"] and one["formula"]
}
MAX_SLOTS = 7


def optimizer(name: str, rate: float | None = 0.125, **values: Any) -> Any:
    """OptimizationParameters; no rate means the dynamic one of tag 0."""
    parameters = OptimizationParameters()
    if rate is None:
        parameters.learning_rate.dynamic.tag = 0
    else:
        parameters.learning_rate.constant = rate
    reference.set_optimizer(parameters, name, **values)
    return parameters


SGD = optimizer("stochastic_gradient_descent")


def limits(low: float | None, high: float | None) -> ClippingLimits:
    result = ClippingLimits()
    if low is not None:
        result.lower.value = low
    if high is not None:
        result.upper.value = high
    return result


@dataclass(frozen=True)
class Table:
    rows: int
    dim: int
    parameters: Any = field(default_factory=lambda: SGD)
    combiner: str = "sum"

    @property
    def optimizer(self) -> str:
        return reference.name_of(self.parameters)

    def draw(self, rng: np.random.Generator) -> dict[str, Array]:
        """Weights and slots as after some steps, of float32 values."""
        table = reference.RULES[self.optimizer].draw(rng, self.rows, self.dim)
        return {
            name: value.astype(np.float32).astype(np.float64)
            for name, value in table.items()
        }


@dataclass(frozen=True)
class Feature:
    table: int
    shape: tuple[int, ...]
    # dense: one id a sample. sparse, ragged: a bag of ids a sample.
    kind: str = "ragged"
    weighted: bool = False
    longest: int = 6

    @property
    def samples(self) -> int:
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class Lookup:
    """A step's ids of one feature: what they mean, and the tensors that say it."""

    bags: Ids
    ids: Ids
    weights: Array
    tensors: tuple[Any, Any, Any]


def draw_lookup(
    feature: Feature,
    rows: int,
    rng: np.random.Generator,
    ids_dtype: tf.DType = tf.int32,
    weights_dtype: tf.DType = tf.float32,
) -> Lookup:
    """Random ids, some more than once, and bags of which some are empty."""
    none = tf.zeros([0], weights_dtype)
    where: Any
    if feature.kind == "dense":
        bags = np.arange(feature.samples)
        where = tf.zeros([0], tf.int32)
    else:
        lengths = rng.integers(0, feature.longest + 1, feature.samples)
        bags = np.repeat(np.arange(feature.samples), lengths)
        splits = np.concatenate([[0], np.cumsum(lengths)])
        where = tf.constant(splits, tf.int32)
    ids = rng.integers(0, rows, len(bags))
    ids = np.where(rng.random(len(ids)) < 0.2, ids % 3 % rows, ids)
    weights = np.ones(len(ids))
    if feature.weighted:
        weights = rng.uniform(0.25, 2, len(ids)).astype(np.float32).astype(np.float64)
    if feature.kind == "sparse":
        places = np.arange(len(bags)) - np.repeat(splits[:-1], lengths)
        samples = np.stack([*np.unravel_index(bags, feature.shape), places], 1)
        where = tf.constant(samples, tf.int32)
    given = tf.constant(weights, weights_dtype) if feature.weighted else none
    return Lookup(bags, ids, weights, (where, tf.constant(ids, ids_dtype), given))


@dataclass(frozen=True)
class System:
    """Tables and features that the engine is configured with."""

    tables: Sequence[Table]
    features: Sequence[Feature]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> Any:
        config = TPUEmbeddingConfiguration(
            mode=TPUEmbeddingConfiguration.TRAINING, num_hosts=1, num_tensor_cores=1
        )
        for i, table in enumerate(self.tables):
            config.table_descriptor.add(
                name=f"table{i}",
                vocabulary_size=table.rows,
                dimension=table.dim,
                optimization_parameters=table.parameters,
            )
        for i, feature in enumerate(self.features):
            config.feature_descriptor.add(
                name=f"feature{i}", table_id=feature.table, input_shape=feature.shape
            )
        for name, value in self.settings.items():
            setattr(config, name, value)
        return config

    @property
    def proto(self) -> bytes:
        return bytes(self.config.SerializeToString())

    def draw(self, rng: np.random.Generator, **dtypes: tf.DType) -> list[Lookup]:
        return [
            draw_lookup(feature, self.tables[feature.table].rows, rng, **dtypes)
            for feature in self.features
        ]

    def expected(
        self, tables: list[dict[str, Array]], lookups: list[Lookup]
    ) -> list[Array]:
        """Activations, [samples, dim] for each feature."""
        return [
            reference.looked_up(
                reference.quantized(
                    tables[feature.table]["parameters"],
                    self.tables[feature.table].parameters.simulated_quantization,
                ),
                lookup.bags,
                lookup.ids,
                self.scale(feature, lookup),
                feature.samples,
            )
            for feature, lookup in zip(self.features, lookups, strict=True)
        ]

    def scale(self, feature: Feature, lookup: Lookup) -> Array:
        combiner = self.tables[feature.table].combiner
        return reference.scales(combiner, lookup.bags, lookup.weights, feature.samples)

    def updated(
        self,
        tables: list[dict[str, Array]],
        lookups: list[Lookup],
        gradients: list[Array],
        rates: Sequence[float] = (),
    ) -> list[dict[str, Array]]:
        """The tables after a step with gradients [samples, dim] of each feature."""
        result = []
        for i, table in enumerate(self.tables):
            rate = table.parameters.learning_rate
            lr = rate.constant
            if rate.HasField("dynamic"):
                lr = rates[rate.dynamic.tag]
            of_table = [
                (lookup, self.scale(feature, lookup), gradient)
                for feature, lookup, gradient in zip(
                    self.features, lookups, gradients, strict=True
                )
                if feature.table == i
            ]
            ids = np.concatenate([lookup.ids for lookup, _, _ in of_table])
            g = np.concatenate(
                [scale[:, None] * g[lookup.bags] for lookup, scale, g in of_table]
            )
            result.append(reference.apply(table.parameters, lr, tables[i], ids, g))
        return result


def configure(config: Any) -> None:
    """Ends what was configured before, and configures anew."""
    shutdown_distributed_tpu()
    configure_distributed_tpu()
    configure_tpu_embedding(config)


@contextmanager
def configured(system: System) -> Iterator[bytes]:
    """The system's serialized configuration, while it is the engine's."""
    proto = system.proto
    configure(proto)
    try:
        yield proto
    finally:
        shutdown_distributed_tpu()


def f32(value: Any) -> tf.Tensor:
    return tf.constant(np.asarray(value), tf.float32)


def load(
    system: System,
    tables: list[dict[str, Array]],
    config: bytes = b"",
    **shard: int,
) -> None:
    """Sets all tables with the ops of their optimizers, or LoadAll if one has no op."""
    config = config or system.proto
    shard = {"num_shards": 1, "shard_id": 0} | shard
    if all(table.optimizer in OP_NAMES for table in system.tables):
        for i, (table, values) in enumerate(zip(system.tables, tables, strict=True)):
            name = f"LoadTPUEmbedding{OP_NAMES[table.optimizer]}Parameters"
            op: Any = opwright.op_class(name)
            tensors = [f32(value) for value in values.values()]
            options = op.Options(table_id=i, config=config)
            op.create(Scope.current(), *tensors, *shard.values(), options)
        return
    columns: list[list[tf.Tensor]] = [[] for _ in range(1 + MAX_SLOTS)]
    for table, values in zip(system.tables, tables, strict=True):
        tensors = [f32(value) for value in values.values()]
        if table.parameters.gradient_accumulation_status != 2:
            tensors.append(tf.zeros_like(tensors[0]))
        tensors += [tf.zeros([0])] * (1 + MAX_SLOTS - len(tensors))
        for column, tensor in zip(columns, tensors, strict=True):
            column.append(tensor)
    op = LoadAllTPUEmbeddingParameters
    arguments: list[Any] = [*columns, config, *shard.values()]
    op.create(Scope.current(), *arguments)


def retrieve(
    system: System, config: bytes = b"", **shard: int
) -> list[dict[str, Array]]:
    """All tables, with the ops of their optimizers or RetrieveAll."""
    config = config or system.proto
    shard = {"num_shards": 1, "shard_id": 0} | shard
    found: list[list[tf.Tensor]] = []
    if all(table.optimizer in OP_NAMES for table in system.tables):
        for i, table in enumerate(system.tables):
            name = f"RetrieveTPUEmbedding{OP_NAMES[table.optimizer]}Parameters"
            op: Any = opwright.op_class(name)
            options = op.Options(table_id=i, config=config)
            one = op.create(Scope.current(), *shard.values(), options)
            slots = reference.RULES[table.optimizer].slots
            found.append([getattr(one, name) for name in ("parameters", *slots)])
    else:
        every = RetrieveAllTPUEmbeddingParameters.create(
            Scope.current(), len(system.tables), config, *shard.values()
        )
        columns = [every.parameters]
        columns += [getattr(every, f"auxiliary{i + 1}") for i in range(MAX_SLOTS)]
        found = [list(row) for row in zip(*columns, strict=True)]
    tables = []
    for table, tensors in zip(system.tables, found, strict=True):
        names = ("parameters", *reference.RULES[table.optimizer].slots)
        values = [tensor.numpy().astype(np.float64) for tensor in tensors[: len(names)]]
        tables.append(dict(zip(names, values, strict=True)))
    return tables


def enqueue(
    system: System, lookups: list[Lookup], mode: str = "train", ordinal: int = -1
) -> None:
    op = EnqueueTPUEmbeddingArbitraryTensorBatch
    where, ids, weights = zip(*(lookup.tensors for lookup in lookups), strict=True)
    # Tensors of one list have one dtype.
    combiners = [table.combiner for table in system.tables]
    options = op.Options(combiners=combiners, device_ordinal=ordinal)
    op.create(Scope.current(), list(where), list(ids), list(weights), mode, options)


def receive(system: System, proto: bytes) -> list[tf.Tensor]:
    outputs = RecvTPUEmbeddingActivations.create(
        Scope.current(), len(system.features), proto
    ).outputs
    return list(outputs)


def send(
    system: System,
    proto: bytes,
    gradients: list[Array],
    rates: Sequence[float] = (),
) -> None:
    """Gradients are [samples, dim]; the op wants the shapes of the activations."""
    shaped = [
        f32(np.reshape(g, (*feature.shape, -1)))
        for feature, g in zip(system.features, gradients, strict=True)
    ]
    SendTPUEmbeddingGradients.create(
        Scope.current(), shaped, [f32(rate) for rate in rates], proto
    )


def draw_gradients(system: System, rng: np.random.Generator) -> list[Array]:
    """Of float32 values."""
    return [
        rng.standard_normal((feature.samples, system.tables[feature.table].dim))
        .astype(np.float32)
        .astype(np.float64)
        for feature in system.features
    ]


def deviation(found: Array, expected: Array, before: Array) -> float:
    """The largest error of a step, over the largest weight or change of one."""
    change = np.abs(expected - before)
    size = np.maximum(np.maximum(np.abs(before), np.abs(expected)), change).max()
    error = np.abs(found - expected).max()
    return float(error / size if size else error)
