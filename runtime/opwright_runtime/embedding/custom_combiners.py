"""Custom combiners of TPUEmbeddingV2, as `CustomCombiner` of TensorFlow defines them.

Each position of a sample is looked up as a sample of its own, with the combiner sum. So
lookups give the rows of a sample in order. A function combines them, and its gradients
are those of the positions.

TensorFlow's own TPUEmbeddingV2 takes no custom combiners up to version 2.21: its
`enqueue` passes them to an op, which takes a name.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import nest, plain_variable
from opwright_runtime.embedding.stacked_tables import TPUEmbeddingV2
from opwright_runtime.errors import OpAttrError, OpInputError, bad_argument

# TensorFlow has no types for its classes, nor for nested features and gradients.
Untyped: TypeAlias = Any
FeatureConfig: TypeAlias = Untyped
TableConfig: TypeAlias = Untyped
Nested: TypeAlias = Untyped
Batches: TypeAlias = Mapping[str, Untyped]

_RaggedTensor: Untyped = tf.RaggedTensor
# A TensorFlow without the class has no value of it.
CustomCombiner: Untyped = getattr(tf.tpu.experimental.embedding, "CustomCombiner", ())
# What batches hold beside stacks of tables. No table has this name.
_KEPT = "opwright: custom combiners"
_CLASS = "TPUEmbeddingV2"


class _Kept(NamedTuple):
    """What the backward pass takes of a feature: of [samples, max_valency] positions.

    Attributes:
        valencies: the number of ids of each sample, [samples], int32.
        vectors: the rows of the positions, [samples, max_valency, dimension].
        weights: the weights that the lookup used, [num_weights].
    """

    valencies: tf.Tensor
    vectors: tf.Tensor
    weights: tf.Tensor


def separate(feature_config: Nested) -> Nested:
    """The features that are looked up: a position of a sample is a sample of its own.

    A feature keeps the combiner of its table as the attribute `custom_combiner`.
    """
    tables: dict[int, TableConfig] = {}

    def of_feature(feature: FeatureConfig) -> FeatureConfig:
        combiner = feature.table.combiner
        if not isinstance(combiner, CustomCombiner):
            return feature
        if id(feature.table) not in tables:
            tables[id(feature.table)] = table = copy.copy(feature.table)
            table.combiner = "sum"
        changed = copy.copy(feature)
        changed.table = tables[id(feature.table)]
        changed.custom_combiner = combiner
        changed.output_shape = feature.output_shape.concatenate(combiner.max_valency)
        return changed

    return nest.map_structure(of_feature, feature_config)


def combiner_of(feature: FeatureConfig) -> Untyped:
    """The custom combiner of a feature, or None."""
    return getattr(feature, "custom_combiner", None)


def samples_of(feature: FeatureConfig) -> int:
    """The number of samples of a core's batch."""
    count: int = feature.output_shape.num_elements()
    combiner = combiner_of(feature)
    return count if combiner is None else count // combiner.max_valency


def check_combiner(table: TableConfig) -> None:
    """Refuses a custom combiner whose parts cannot be used."""
    combiner = table.combiner
    if not isinstance(combiner, CustomCombiner):
        return

    def refuse(what: str, value: object, allowed: str) -> None:
        what = f"{what} of the combiner of table {table.name!r}"
        raise bad_argument(OpAttrError, _CLASS, what, value, allowed)

    if not callable(combiner.combiner_computation):
        refuse(
            "combiner_computation",
            combiner.combiner_computation,
            "a function of one sample, such as a tf.function",
        )
    for name, least in (("max_valency", 1), ("num_weights", 0)):
        value = getattr(combiner, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            refuse(name, value, f"a whole number of at least {least}")


def make_weights(self: TPUEmbeddingV2) -> None:
    """Makes the variables of weights, by the name of the table.

    They are the attribute `custom_combiner_variables`, which checkpoints contain.
    """
    self.custom_combiner_variables = {}
    for name, combiner in _weighted(self).items():
        (initializer,) = combiner._slot_initializers()
        self.custom_combiner_variables[name] = plain_variable(
            functools.partial(initializer, (combiner.num_weights,), tf.float32),
            f"{name}/{CustomCombiner.CUSTOM_COMBINER_SLOT_NAME}",
        )


def positions_of_ids(
    where: str, feature: FeatureConfig, ids: Untyped
) -> tf.RaggedTensor:
    """The ids of a batch by sample and position: a row for each position.

    When the op runs, it refuses a sample with more ids than max_valency.
    """
    most = combiner_of(feature).max_valency
    samples = samples_of(feature)
    if isinstance(ids, tf.SparseTensor):
        ids = _RaggedTensor.from_value_rowids(
            ids.values,
            tf.ensure_shape(ids.indices, [None, 2])[:, 0],
            tf.maximum(ids.dense_shape[0], samples),
        )
    if isinstance(ids, tf.RaggedTensor):
        values, counts = ids.values, ids.row_lengths()
    else:
        values = tf.reshape(ids, [-1])
        counts = tf.ones_like(values)
    counts = tf.cast(counts, tf.int32)
    words = (
        f"{_CLASS}.enqueue: {where}, of table {feature.table.name}: max_valency of its "
        f"combiner is {most}; its largest number of ids, and the sample with them, are"
    )
    check = tf.debugging.Assert(
        tf.reduce_all(counts <= most),
        # Assert writes a backslash before each quote.
        [words.replace("'", ""), tf.reduce_max(counts), tf.argmax(counts)],
    )
    with tf.control_dependencies([check] if check is not None else []):
        taken = tf.sequence_mask(counts, most, tf.int32)
    return _RaggedTensor.from_row_lengths(
        values, tf.reshape(taken, [-1]), validate=False
    )


def check_weights(
    features: Sequence[tuple[str, FeatureConfig]], weights: Nested
) -> None:
    """Refuses weights of ids of a table with a custom combiner."""
    if weights is None:
        return
    for (path, feature), given in zip(features, nest.flatten(weights), strict=True):
        if combiner_of(feature) is not None and given is not None:
            raise bad_argument(
                OpInputError,
                f"{_CLASS}.enqueue",
                f"weights at {path!r}, of table {feature.table.name!r},",
                given,
                "None: a custom combiner takes no weights of ids",
            )


def keep_valencies(
    self: TPUEmbeddingV2, rows: Sequence[Untyped], batches: Batches
) -> Batches:
    """Adds the numbers of ids of samples to a batch."""
    valencies = [
        tf.reduce_sum(
            tf.reshape(
                tf.cast(ids.row_lengths(), tf.int32),
                [samples_of(feature), combiner_of(feature).max_valency],
            ),
            axis=1,
        )
        for (_, feature), ids in zip(self._flat_features, rows, strict=True)
        if combiner_of(feature) is not None
    ]
    return with_kept(batches, valencies)


def with_kept(batches: Batches, kept: list[Untyped]) -> Batches:
    """A batch's stacks, and what it holds for custom combiners, if that is anything."""
    return {**batches, _KEPT: kept} if kept else batches


def take_kept(batches: Batches) -> tuple[dict[str, Untyped], list[Untyped]]:
    """A batch's stacks, and what it holds for custom combiners."""
    stacks = dict(batches)
    return stacks, stacks.pop(_KEPT, [])


def combine(
    self: TPUEmbeddingV2, activations: Nested, valencies: Sequence[tf.Tensor]
) -> tuple[Nested, list[_Kept]]:
    """The activations of samples, of those of positions."""
    flat = nest.flatten(activations)
    kept: list[_Kept] = []
    for at, (_, feature) in enumerate(self._flat_features):
        combiner = combiner_of(feature)
        if combiner is None:
            continue
        samples, width = samples_of(feature), flat[at].shape[-1]
        of_feature = _Kept(
            valencies[len(kept)],
            tf.reshape(flat[at], [samples, combiner.max_valency, width]),
            _weights(self, feature),
        )
        kept.append(of_feature)
        shape = [*feature.output_shape[:-1], width]
        flat[at] = tf.reshape(_combined(feature, of_feature), shape)
    return nest.pack_sequence_as(activations, flat), kept


def differentiate(
    self: TPUEmbeddingV2, gradients: Nested, kept: Sequence[_Kept]
) -> tuple[Nested, list[tf.Tensor]]:
    """The gradients of positions, of those of samples; and those of the weights.

    The weights' are in the order of `custom_combiner_variables`.
    """
    flat, left = nest.flatten(gradients), list(kept)
    of_weights = {
        name: tf.zeros_like(variable)
        for name, variable in self.custom_combiner_variables.items()
    }
    for at, (_, feature) in enumerate(self._flat_features):
        if combiner_of(feature) is None:
            continue
        of_feature = left.pop(0)
        if flat[at] is None:
            continue
        _, vectors, weights = of_feature
        tape: Untyped = tf.GradientTape()
        with tape:
            tape.watch([vectors, weights])
            combined = _combined(feature, of_feature)
        found, of_these = tape.gradient(
            combined,
            [vectors, weights],
            tf.reshape(flat[at], combined.shape),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        # Positions without ids have any gradient, such as one that is not finite.
        taken = tf.sequence_mask(of_feature.valencies, vectors.shape[1])
        found = tf.where(taken[..., None], found, tf.zeros_like(found))
        flat[at] = tf.reshape(found, [*feature.output_shape, found.shape[-1]])
        name = feature.table.name
        if name in of_weights:
            of_weights[name] += tf.debugging.check_numerics(
                of_these,
                f"{_CLASS}.apply_gradients: the gradient of the weights of the "
                f"combiner of table {name!r}",
            )
    return nest.pack_sequence_as(gradients, flat), list(of_weights.values())


def move_weights(
    self: TPUEmbeddingV2, gradients: Sequence[Sequence[tf.Tensor]], after: Untyped
) -> None:
    """Moves the weights against their gradients, which are by table, and then by core.

    It happens after the op `after`, which None stands for where there is no graph.
    """
    with tf.control_dependencies([] if after is None else [after]):
        for (name, variable), of_cores in zip(
            self.custom_combiner_variables.items(), gradients, strict=True
        ):
            given: Untyped = _weighted(self)[name].combiner_weights_learning_rate
            rate: Untyped = given() if callable(given) else given
            variable.assign_sub(tf.cast(rate, tf.float32) * tf.add_n(list(of_cores)))


def _weighted(self: TPUEmbeddingV2) -> dict[str, Untyped]:
    """The custom combiners that have weights, by the name of the table."""
    return {
        feature.table.name: combiner_of(feature)
        for _, feature in self._flat_features
        if combiner_of(feature) is not None and combiner_of(feature).num_weights
    }


def _weights(self: TPUEmbeddingV2, feature: FeatureConfig) -> tf.Tensor:
    variable = self.custom_combiner_variables.get(feature.table.name)
    return tf.zeros([0]) if variable is None else variable.read_value()


def _combined(feature: FeatureConfig, kept: _Kept) -> tf.Tensor:
    """Calls the function for every sample: [samples, dimension]."""
    combiner = combiner_of(feature)
    computation: Callable[..., Untyped] = combiner.combiner_computation
    more = (kept.weights,) if combiner.num_weights else ()
    found = tf.vectorized_map(
        lambda one: computation(*one, *more), (kept.valencies, kept.vectors)
    )
    samples, _, width = kept.vectors.shape
    if (
        not isinstance(found, tf.Tensor)
        or found.dtype != tf.float32
        or not found.shape.is_compatible_with([samples, width])
    ):
        raise bad_argument(
            OpAttrError,
            _CLASS,
            f"what combiner_computation of table {feature.table.name!r} returns",
            found,
            f"a tensor of float32, [{width}], the combined row of a sample",
        )
    return tf.ensure_shape(found, [samples, width])
