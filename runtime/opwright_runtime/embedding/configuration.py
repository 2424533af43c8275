"""Configurations of TPU embeddings from typed Python objects.

A configuration is checked when it is built, by the rules of ConfigureTPUEmbedding. An
error therefore names the table or feature, and its traceback shows where it is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from numbers import Integral
from typing import Any, Literal, Protocol, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import (
    OptimizerDynamicInput,
    TPUEmbeddingConfiguration,
)
from opwright_runtime.embedding.optimizers import (
    OptimizerLike,
    Rate,
    optimizer_wanted,
    rate_wanted,
)
from opwright_runtime.embedding.row_dtypes import row_dtype_wanted, serialized_row_dtype
from opwright_runtime.errors import OpAttrError, bad_argument, format_allowed
from opwright_runtime.types import AnyDTypeLike

DynamicLearningRate = OptimizerDynamicInput
"""A learning rate that SendTPUEmbeddingGradients is given anew each step, by `tag`.

TensorFlow calls the message `OptimizerDynamicInput` since 2.19.
"""

_refused = partial(bad_argument, OpAttrError, "ConfigureTPUEmbedding")
_INT32 = 2**31 - 1
_INT64 = 2**63 - 1
_NO_FEATURES = " where there are no features"

Mode: TypeAlias = Literal["training", "inference", "backward_pass_only"]
Sharding: TypeAlias = Literal["div", "mod"]


class Quantization(Protocol):
    """The attributes of `tf.tpu.experimental.embedding.QuantizationConfig`."""

    num_buckets: int
    lower: float
    upper: float

    def _set_optimization_parameters(self, parameters: object) -> None: ...


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """A table of the configuration.

    Attributes:
        name: its name, which the ops that load and retrieve it use.
        vocabulary_size: rows.
        dimension: columns.
        optimizer: of `tf.tpu.experimental.embedding` or of `opwright.tpu`. Tables whose
            optimizers have the same function as learning rate share its tag.
        num_features: how many features look up in the table, if the configuration has
            no `features`; otherwise 0.
        quantization: a `tf.tpu.experimental.embedding.QuantizationConfig`: lookups
            return weights clipped to its bounds and rounded to `num_buckets` values.
            None is no quantization.
        row_dtype: the dtype in which the CPU stores the rows: float32, float16,
            bfloat16 or int8. Load, retrieve and lookups have float32 with any of them:
            docs/how-to/embedding_narrow.md.
    """

    name: str
    vocabulary_size: int
    dimension: int
    optimizer: OptimizerLike
    num_features: int = 0
    quantization: Quantization | None = None
    row_dtype: AnyDTypeLike = "float32"


@dataclass(frozen=True, eq=False)
class EmbeddingFeature:
    """A feature of the configuration: one list of ids, and one output.

    Attributes:
        name: its name, which appears in errors.
        table: the table in which its ids are looked up.
        shape: shape of its output without the table's dimension: [batch], or
            [batch, length] for a sequence.
    """

    name: str
    table: EmbeddingTable
    shape: Sequence[int]


@dataclass(frozen=True, eq=False)
class EmbeddingConfig:
    """A configuration of tables and features.

    Pass `message` as the argument `config` of an op, and `current_learning_rates()` to
    SendTPUEmbeddingGradients.

    Attributes:
        tables: the tables; their positions are the ops' `table_id`.
        features: the features, in the order of the ops' inputs and outputs. A
            configuration without features has the older form: `batch_size` and each
            table's `num_features` give the shapes, and each table has one output.
        batch_size: examples in a step of one core, in a configuration without features;
            otherwise 0.
        num_hosts: the number of hosts. Each host has one shard of every table.
        num_tensor_cores: the number of TensorCores of all hosts together; each host has
            the same number.
        pipelined: whether a step's lookup may run before the update of the step before.
        mode: whether gradients are expected.
        sharding: how rows are distributed over hosts.

    Raises:
        OpAttrError: a value breaks one of the rules of a configuration. It names the
            table or feature, what was given and what is allowed.
    """

    tables: Sequence[EmbeddingTable]
    features: Sequence[EmbeddingFeature] = ()
    batch_size: int = field(default=0, kw_only=True)
    num_hosts: int = field(default=1, kw_only=True)
    num_tensor_cores: int = field(default=1, kw_only=True)
    pipelined: bool = field(default=False, kw_only=True)
    mode: Mode = field(default="training", kw_only=True)
    sharding: Sharding = field(default="div", kw_only=True)

    def __post_init__(self) -> None:
        _integer("num_hosts", self.num_hosts, 1, _INT32)
        _integer("num_tensor_cores", self.num_tensor_cores, 1, _INT32)
        if self.num_tensor_cores % self.num_hosts != 0:
            allowed = f"a multiple of num_hosts, which is {self.num_hosts}"
            raise _refused("num_tensor_cores", self.num_tensor_cores, allowed)
        _one_of("mode", self.mode, _MODES)
        _one_of("sharding", self.sharding, _SHARDINGS)
        if not self.tables:
            raise _refused("tables", self.tables, "at least one table")
        names: list[str] = []
        for index, table in enumerate(self.tables):
            _check_table(f"tables[{index}]", table, names, self.num_hosts)
            names.append(table.name)
        if self.features:
            self._check_features()
        else:
            self._check_without_features()

    @cached_property
    def learning_rates(self) -> tuple[Rate, ...]:
        """The distinct functions that are learning rates. A tag is an index in it."""
        found: list[Rate] = []
        for table in self.tables:
            rate = table.optimizer.learning_rate
            if callable(rate) and rate not in found:
                found.append(rate)
        return tuple(found)

    def current_learning_rates(self) -> list[tf.Tensor]:
        """Each function's value now, a float32 scalar, by tag."""
        return [tf.cast(rate(), tf.float32) for rate in self.learning_rates]

    @cached_property
    def message(self) -> Any:
        """The TPUEmbeddingConfiguration."""
        config = TPUEmbeddingConfiguration(
            mode=_MODES[self.mode],
            batch_size_per_tensor_core=self.batch_size,
            num_hosts=self.num_hosts,
            num_tensor_cores=self.num_tensor_cores,
            sharding_strategy=_SHARDINGS[self.sharding],
            pipeline_execution_with_tensor_core=self.pipelined,
        )
        for table in self.tables:
            descriptor = config.table_descriptor.add(
                name=table.name,
                vocabulary_size=table.vocabulary_size,
                dimension=table.dimension,
                num_features=table.num_features,
            )
            descriptor.MergeFromString(serialized_row_dtype(table.row_dtype))
            parameters = descriptor.optimization_parameters
            rate = table.optimizer.learning_rate
            if callable(rate):
                # Otherwise a tag of 0, which is the default of the field, would leave
                # the message `dynamic` unset.
                parameters.learning_rate.dynamic.SetInParent()
                tag = self.learning_rates.index(rate)
                parameters.learning_rate.dynamic.tag = tag
            else:
                parameters.learning_rate.constant = rate
            for part in (table.optimizer, table.quantization):
                if part is not None:
                    part._set_optimization_parameters(parameters)
        tables = list(self.tables)
        for feature in self.features:
            config.feature_descriptor.add(
                name=feature.name,
                table_id=tables.index(feature.table),
                input_shape=feature.shape,
            )
        return config

    def _check_features(self) -> None:
        if self.batch_size != 0:
            allowed = "0 where there are features: their shapes have the batch in them"
            raise _refused("batch_size", self.batch_size, allowed)
        for table in self.tables:
            if table.num_features != 0:
                what = f"num_features of table {table.name!r}"
                allowed = "0 where there are features"
                raise _refused(what, table.num_features, allowed)
        for index, feature in enumerate(self.features):
            if not isinstance(feature, EmbeddingFeature):
                raise _refused(f"features[{index}]", feature, "an EmbeddingFeature")
            what = f"of feature {feature.name!r}"
            if not any(feature.table is table for table in self.tables):
                names = tuple(table.name for table in self.tables)
                allowed = f"a table of the configuration ({format_allowed(names)})"
                name = getattr(feature.table, "name", feature.table)
                raise _refused(f"table {what}", name, allowed)
            if not feature.shape:
                allowed = "at least one dimension, the batch"
                raise _refused(f"shape {what}", feature.shape, allowed)
            for size in feature.shape:
                _integer(f"shape {what}", size, 1, _INT32, " in each dimension")
        for table in self.tables:
            if not any(feature.table is table for feature in self.features):
                found = tuple(feature.name for feature in self.features)
                allowed = f"such that table {table.name!r} has one"
                raise _refused("features", found, allowed)

    def _check_without_features(self) -> None:
        _integer("batch_size", self.batch_size, 1, _INT32, _NO_FEATURES)
        for table in self.tables:
            what = f"num_features of table {table.name!r}"
            _integer(what, table.num_features, 1, _INT32, _NO_FEATURES)


_MODES = {
    "training": TPUEmbeddingConfiguration.TRAINING,
    "inference": TPUEmbeddingConfiguration.INFERENCE,
    "backward_pass_only": TPUEmbeddingConfiguration.BACKWARD_PASS_ONLY,
}
_SHARDINGS = {
    "div": TPUEmbeddingConfiguration.DIV_DEFAULT,
    "mod": TPUEmbeddingConfiguration.MOD,
}


def _check_table(
    place: str, table: EmbeddingTable, names: Sequence[str], num_hosts: int
) -> None:
    if not isinstance(table, EmbeddingTable):
        raise _refused(place, table, "an EmbeddingTable")
    if not isinstance(table.name, str) or not table.name:
        raise _refused(f"name of {place}", table.name, "text, and not empty")
    if table.name in names:
        allowed = f"another than that of tables[{names.index(table.name)}]"
        raise _refused(f"name of {place}", table.name, allowed)
    what = f"of table {table.name!r}"
    _integer(f"vocabulary_size {what}", table.vocabulary_size, 1, _INT64)
    if table.vocabulary_size < num_hosts:
        allowed = f"at least {num_hosts}, a row for each host"
        raise _refused(f"vocabulary_size {what}", table.vocabulary_size, allowed)
    _integer(f"dimension {what}", table.dimension, 1, _INT32)
    optimizer = table.optimizer
    wanted = optimizer_wanted(optimizer)
    if wanted:
        raise _refused(f"optimizer {what}", optimizer, wanted)
    wanted = rate_wanted(optimizer.learning_rate)
    if wanted:
        raise _refused(f"learning_rate {what}", optimizer.learning_rate, wanted)
    for name in ("weight", "gradient"):
        low, high = (getattr(optimizer, f"clip_{name}_{end}") for end in ("min", "max"))
        if low is not None and high is not None and not low <= high:
            allowed = f"at most clip_{name}_max, which is {high}"
            raise _refused(f"clip_{name}_min {what}", low, allowed)
    wanted = row_dtype_wanted(table.row_dtype)
    if wanted:
        raise _refused(f"row_dtype {what}", table.row_dtype, wanted)
    if isinstance(table.quantization, type):
        allowed = f"an instance, such as {table.quantization.__name__}(...)"
        raise _refused(f"quantization {what}", table.quantization, allowed)
    if table.quantization is not None:
        buckets = table.quantization.num_buckets
        _integer(f"num_buckets of the quantization {what}", buckets, 2, _INT32)
        low, high = table.quantization.lower, table.quantization.upper
        if not low < high:
            allowed = f"less than upper, which is {high}"
            raise _refused(f"lower of the quantization {what}", low, allowed)


def _integer(what: str, value: object, low: int, high: int, where: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _refused(what, value, f"an int{where}")
    if int(value) < low:
        raise _refused(what, value, f"at least {low}{where}")
    if int(value) > high:
        raise _refused(what, value, f"at most {high}{where}")


def _one_of(what: str, value: object, allowed: Mapping[str, object]) -> None:
    if value not in allowed:
        raise _refused(what, value, tuple(allowed))
