"""Changes of TensorFlow's class TPUEmbeddingV2 under opwright's strategies.

TensorFlow's class reads and assigns whole tables in each step, because on a TPU they
are on the device and XLA updates them in place. Here, one op for each lookup and one op
for all updates take the variables themselves. Preprocessing is TensorFlow's own.

All shards of a table are variables on the first CPU device, whatever the number of
cores, so that a core's lookup can read the rows of the others.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from opwright_runtime import native
from opwright_runtime._internals import (
    nest,
    register_read_only_op,
    sparse_core_embedding,
)
from opwright_runtime._patches import wrap_sparse_core_embedding
from opwright_runtime.embedding import tpu_embedding
from opwright_runtime.embedding.compiled_functions import (
    adapt_compiled_functions,
    keep_from_xla,
)
from opwright_runtime.embedding.custom_combiners import (
    CustomCombiner,
    check_combiner,
    check_weights,
    combine,
    differentiate,
    keep_valencies,
    make_weights,
    move_weights,
    samples_of,
    separate,
    take_kept,
    with_kept,
)
from opwright_runtime.embedding.feature_checks import check_features
from opwright_runtime.embedding.keras_layers import adapt_layers
from opwright_runtime.embedding.live_tables import show_tables_of
from opwright_runtime.embedding.run_context import enclosing_run
from opwright_runtime.embedding.sparse_core_limits import (
    FeatureConfig,
    Limits,
    layout_of,
    place_of,
    rows_of_ids,
    sort_ids,
)
from opwright_runtime.embedding.stacked_tables import (
    PARAMETERS,
    ShardedVariable,
    TPUEmbeddingV2,
)
from opwright_runtime.embedding.tpu_embedding import (
    Method,
    check_batch,
    replicas_meet,
    wrapped,
)
from opwright_runtime.errors import OpAttrError, OpInputError, bad_argument

# The tensors of a batch after preprocessing, and an optimizer, which have no types.
Batch: TypeAlias = Any
Optimizer: TypeAlias = Any
_optimizers = tf.tpu.experimental.embedding

_LOOKUP = "OpwrightSparseCoreLookup"
# Variables are on this device, and so are the ops that take their handles.
_DEVICE = "/cpu:0"


class _Rule(NamedTuple):
    """How the update op and TPUEmbeddingV2 call an optimizer, its slots and numbers.

    Attributes:
        field: the optimizer's field in OptimizationParameters.
        slots: the names of its variables.
        numbers: its attributes, in the order of the op's hyperparameters; "" is unused.
    """

    field: str
    slots: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()


_RULES = {
    _optimizers.SGD: _Rule("stochastic_gradient_descent"),
    _optimizers.Adagrad: _Rule("adagrad", ("accumulators",)),
    _optimizers.AdagradMomentum: _Rule(
        "adagrad_momentum",
        ("accumulators", "momenta"),
        ("momentum", "use_nesterov", "exponent", "beta2", "epsilon"),
    ),
    _optimizers.Adam: _Rule(
        "adam",
        ("momenta", "velocities"),
        ("beta_1", "beta_2", "epsilon", "", "sum_inside_sqrt"),
    ),
    _optimizers.FTRL: _Rule(
        "ftrl",
        ("accumulators", "linears"),
        (
            "l1_regularization_strength",
            "l2_regularization_strength",
            "learning_rate_power",
            "beta",
            "multiply_linear_by_learning_rate",
        ),
    ),
}
_NUMBERS = 6  # The op has so many for each table.
# Attributes of optimizers that TensorFlow does not pass to the ops of SparseCores, and
# the arguments that set them.
_IGNORED = {
    "clip_weight_min": "clip_weight_min",
    "clip_weight_max": "clip_weight_max",
    "clip_gradient_min": "clipvalue",
    "clip_gradient_max": "clipvalue",
}


def adapt_sparse_core_embedding() -> None:
    """Wraps the methods of TPUEmbeddingV2, for objects under opwright's strategies."""
    methods = (
        __init__,
        tpu_embedding._raise_error_for_incorrect_control_flow_context,
        enqueue,
        _sort_list_of_coo_tensors,
        dequeue,
        apply_gradients,
    )
    wrap_sparse_core_embedding(methods, (assign_on_device, read_from_device), wrapped)
    adapt_compiled_functions()
    register_read_only_op(_LOOKUP)


# Each of these functions replaces the method of TPUEmbeddingV2 of the same name.
# `original` is TensorFlow's method.


def __init__(  # noqa: N807
    self: TPUEmbeddingV2,
    original: Method,
    feature_config: object,
    optimizer: Optimizer = None,
    *args: object,
    **kwargs: object,
) -> None:
    check_features(feature_config, optimizer, (CustomCombiner,))
    extended = tf.distribute.get_strategy().extended
    sparse_cores = extended.tpu_hardware_feature.num_embedding_devices_per_chip
    for path, feature in nest.flatten_with_joined_string_paths(feature_config):
        _check_feature(path, feature, optimizer, sparse_cores)
    adapt_layers()
    original(separate(feature_config), optimizer, *args, **kwargs)
    make_weights(self)
    native.forget_sparse_core_dropped_ids()
    # What updates know of tables holds their memory until then.
    finalizer = weakref.finalize(self, native.forget_sparse_core_values)
    finalizer.atexit = False
    show_tables_of(self)


def enqueue(
    self: TPUEmbeddingV2,
    original: Method,
    features: object,
    weights: object = None,
    device: str | None = None,
) -> object:
    keep_from_xla()
    check_batch(self, features, weights, in_run=True)
    flat = nest.flatten(features)
    layout = layout_of(self)
    # Keras traces it outside `run`, to infer the shapes of outputs. Sparse inputs are
    # dense there, and the function does not run. The ops check the sizes too.
    if enclosing_run() is not None or device is not None:
        for (path, feature), ids in zip(layout.features, flat, strict=True):
            _check_samples(place_of(path), feature, ids)
    check_weights(layout.features, weights)
    rows = rows_of_ids(layout, flat)
    batches = original(nest.pack_sequence_as(features, rows), weights, device)
    return keep_valencies(self, rows, batches)


def _sort_list_of_coo_tensors(
    self: TPUEmbeddingV2,
    original: Method,
    num_replicas_in_sync: int,
    table_to_list_of_coos: Mapping[str, Batch],
    *_: object,
) -> dict[str, Batch]:
    del original, num_replicas_in_sync
    layout, config = layout_of(self), self._sparse_core_embedding_config
    return {
        stack: sort_ids(
            layout,
            stack,
            triples,
            Limits(
                self._table_to_max_ids_per_sparse_core[stack],
                self._table_to_max_unique_ids_per_sparse_core[stack],
                self.max_ids_per_chip_per_sample,
                config.allow_id_dropping,
            ),
        )[0]
        for stack, triples in table_to_list_of_coos.items()
    }


def _check_samples(where: str, feature: FeatureConfig, ids: Batch) -> None:
    """Refuses a batch that has another size than output_shape, if its size is known.

    A sparse batch may have fewer samples: those that it lacks have no ids.
    """
    wanted = samples_of(feature)
    given = None
    if isinstance(ids, tf.RaggedTensor):
        given = ids.shape[0] if ids.shape.rank else None
    elif isinstance(ids, tf.Tensor):
        given = ids.shape.num_elements() or None  # Without ids, no sample has any.
    if given in (None, wanted):
        return
    remedy = (
        "where the last batch of the data is smaller, leave it out with "
        "dataset.batch(size, drop_remainder=True), or fill it with samples without ids"
        if given < wanted
        else "with several cores, take batches of a distributed data set, which "
        "divides them among the cores"
    )
    raise bad_argument(
        OpInputError,
        "TPUEmbeddingV2.enqueue",
        f"the number of samples of {where}, of table {feature.table.name!r},",
        given,
        f"{wanted}, as output_shape says",
        remedy=remedy,
    )


def dequeue(
    self: TPUEmbeddingV2, original: Method, partitioned_tensors: Batch
) -> object:
    del original
    keep_from_xla()
    stacks, valencies = take_kept(partitioned_tensors)
    with _Pipelining(self, "forward"):
        batches = self._copy_tensors_to_device(stacks)
        found = {
            name: _lookup(self, name, batches[name])
            for name in self._stacked_table_to_tables
        }
    activations, kept = combine(self, self._unstack_activations(found), valencies)
    return activations, with_kept(batches, kept)


def apply_gradients(
    self: TPUEmbeddingV2,
    original: Method,
    gradients: object,
    preserved_outputs: Mapping[str, Batch],
) -> None:
    if not self._built:
        original(gradients, preserved_outputs)
        return
    if replicas_meet(self):
        raise RuntimeError(
            "TPUEmbeddingV2.apply_gradients is for one core, and the strategy has "
            f"{_devices(self)}. Call it in the function that strategy.run calls, and "
            "not within merge_call there: each replica calls it for its own core."
        )
    keep_from_xla()
    nest.assert_same_structure(self._feature_config, gradients)
    preserved, kept = take_kept(preserved_outputs)
    of_positions, of_weights = differentiate(self, gradients, kept)
    stacked = self._stack_gradients(of_positions)
    names = list(self._stacked_table_to_tables)
    rates = [_rate(_optimizer(self, name).learning_rate) for name in names]
    # In the order of the op's inputs.
    of_tables = [(*_csr(preserved[name]), stacked[name]) for name in names]
    batches = [list(column) for column in zip(*of_tables, strict=True)]
    with _Pipelining(self, "backward"):
        if _devices(self) == 1:
            _update(
                self,
                [[[one] for one in column] for column in batches],
                rates,
                [[one] for one in of_weights],
            )
            return
        # A step's gradients update the tables once, those of all cores together.
        tf.distribute.get_replica_context().merge_call(
            functools.partial(_update_of_all, self), args=(batches, rates, of_weights)
        )


# Each of these functions replaces the method of TPUEmbeddingShardedVariable of the same
# name. TensorFlow's methods need a variable that has a part on each device.


def assign_on_device(
    self: ShardedVariable, original: Method, device: str, value: tf.Tensor
) -> None:
    del original
    _part(self, device).assign(value)


def read_from_device(self: ShardedVariable, original: Method, device: str) -> tf.Tensor:
    del original
    return _part(self, device).read_value()


def _part(variable: ShardedVariable, device: str) -> tf.Variable:
    """The part of a variable that a core has."""
    cores = variable.distribute_strategy.extended._tpu_devices.flatten().tolist()
    if device not in cores:
        raise ValueError(
            f"{variable.name}: no part of it is on {device!r}; the parts are on "
            f"{', '.join(cores)}"
        )
    part: tf.Variable = variable.values[cores.index(device)]
    return part


def _check_feature(
    path: str, feature: FeatureConfig, optimizer: Optimizer, sparse_cores: int
) -> None:
    where = f"feature_config at {path!r}" if path else "feature_config"
    check_combiner(feature.table)
    used = feature.table.optimizer or optimizer
    if type(used) not in _RULES:
        allowed = ", ".join(one.__name__ for one in _RULES)
        raise bad_argument(
            OpAttrError,
            "TPUEmbeddingV2",
            f"optimizer of table {feature.table.name!r}",
            used,
            f"one of {allowed}, for which SparseCores have updates",
        )
    if not feature.output_shape.is_fully_defined():
        raise bad_argument(
            OpAttrError,
            "TPUEmbeddingV2",
            f"output_shape of {where}",
            feature.output_shape,
            "fully defined: FeatureConfig(table, output_shape=[batch]), with the "
            "number of samples of one core's batch",
        )
    samples = feature.output_shape.num_elements()
    if samples % sparse_cores:
        raise bad_argument(
            OpAttrError,
            "TPUEmbeddingV2",
            f"output_shape of {where}",
            feature.output_shape,
            f"a multiple of {sparse_cores} samples, which a core's SparseCores share",
        )
    ignored = {
        argument: None
        for attribute, argument in _IGNORED.items()
        if getattr(used, attribute, None) is not None
    }
    for name in ("use_gradient_accumulation", "lazy_adam"):
        if getattr(used, name, True) is False:
            ignored[f"{name}=False"] = None
    if ignored:
        warnings.warn(
            f"TPUEmbeddingV2: TensorFlow leaves {', '.join(ignored)} of the optimizer "
            f"of table {feature.table.name!r} away from updates of SparseCores, on a "
            "TPU as here",
            stacklevel=5,
        )


class _Pipelining:
    """TensorFlow's context that marks the ops of a pass.

    TensorFlow does not leave it if an exception is raised.
    """

    def __init__(self, embedding: TPUEmbeddingV2, mode: str) -> None:
        self._context = sparse_core_embedding.EmbeddingPipeliningContext(
            mode, embedding._pipelining
        )

    def __enter__(self) -> None:
        self._context.Enter()

    def __exit__(self, *_: object) -> None:
        self._context.Exit()


def _csr(batch: Batch) -> tuple[tf.Tensor, ...]:
    return (
        batch.row_pointers,
        batch.sorted_sample_ids,
        batch.sorted_token_ids,
        batch.sorted_gains,
        batch.num_minibatches_per_physical_sparse_core,
    )


def _lookup(self: TPUEmbeddingV2, name: str, batch: Batch) -> tf.Tensor:
    quantization = self._quantization_configs[name]
    table = self.variables[name][PARAMETERS]
    with tf.device(_DEVICE):
        return native.ops().opwright_sparse_core_lookup(
            *_csr(batch),
            [part.handle for part in table.values],
            input_size=self._table_to_sample_count[name],
            quantization_config_low=quantization.lower if quantization else 0.0,
            quantization_config_high=quantization.upper if quantization else 0.0,
            quantization_config_num_buckets=(
                quantization.num_buckets if quantization else 0
            ),
            max_ids_per_sparse_core=self._table_to_max_ids_per_sparse_core[name],
            max_unique_ids_per_sparse_core=(
                self._table_to_max_unique_ids_per_sparse_core[name]
            ),
            num_sparsecores_per_device=self._num_sc_per_chip,
        )


def _update_of_all(
    self: TPUEmbeddingV2,
    strategy: tf.distribute.Strategy,
    batches: Sequence[Sequence[object]],
    rates: Sequence[object],
    of_weights: Sequence[object],
) -> None:
    of_cores = strategy.experimental_local_results
    _update(
        self,
        [[list(of_cores(one)) for one in column] for column in batches],
        [of_cores(rate)[0] for rate in rates],
        [of_cores(one) for one in of_weights],
    )


def _update(
    self: TPUEmbeddingV2,
    batches: Sequence[Sequence[list[tf.Tensor]]],
    rates: Sequence[tf.Tensor],
    of_weights: Sequence[Sequence[tf.Tensor]],
) -> None:
    """Updates all tables, and then the weights of custom combiners.

    Each input of the op is by table, and then by core; so are gradients of weights.
    """
    names = list(self._stacked_table_to_tables)
    rules = [_RULES[type(_optimizer(self, name))] for name in names]
    variables = [
        part.handle
        for name, rule in zip(names, rules, strict=True)
        for slot in (PARAMETERS, *rule.slots)
        for part in self.variables[name][slot].values
    ]
    checked = [one for of_cores in of_weights for one in of_cores]
    with tf.device(_DEVICE), tf.control_dependencies(checked):
        updated = native.ops().opwright_sparse_core_update(
            *([one for table in column for one in table] for column in batches),
            rates,
            variables,
            table_names=names,
            optimizers=[rule.field for rule in rules],
            hyperparameters=[
                number for name in names for number in _numbers(_optimizer(self, name))
            ],
            max_ids=[self._table_to_max_ids_per_sparse_core[name] for name in names],
            max_unique_ids=[
                self._table_to_max_unique_ids_per_sparse_core[name] for name in names
            ],
            num_sparsecores_per_device=self._num_sc_per_chip,
        )
    move_weights(self, of_weights, updated)


def _numbers(optimizer: Optimizer) -> list[float]:
    names = _RULES[type(optimizer)].numbers
    numbers = [float(getattr(optimizer, name)) if name else 0.0 for name in names]
    return numbers + [0.0] * (_NUMBERS - len(numbers))


def _optimizer(self: TPUEmbeddingV2, name: str) -> Optimizer:
    return self._stacked_table_to_tables[name][0].optimizer


def _rate(rate: Callable[[], tf.Tensor] | tf.Tensor | float) -> tf.Tensor:
    return tf.cast(rate() if callable(rate) else rate, tf.float32)


def _devices(self: TPUEmbeddingV2) -> int:
    count: int = self._strategy.extended.num_replicas_per_host
    return count
