"""Changes of TensorFlow's class TPUEmbedding under opwright's strategies.

TensorFlow has no interface for such changes, so methods of the class are wrapped. Under
any other strategy the wrapped methods call TensorFlow's methods unchanged.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._internals import nest
from opwright_runtime._patches import wrap_tpu_embedding
from opwright_runtime.embedding.feature_checks import check_features
from opwright_runtime.embedding.hosts import Host, OneHost
from opwright_runtime.embedding.keras_layers import adapt_layers
from opwright_runtime.embedding.row_dtypes import check_tables, serialized_row_dtype
from opwright_runtime.embedding.run_context import enclosing_run
from opwright_runtime.embedding.steps import queued_batches
from opwright_runtime.embedding.tpu_system import TPUSystem
from opwright_runtime.errors import OpInputError, OpModeError, bad_argument

#: For how many seconds an eager dequeue waits for the batch of another thread.
EAGER_TIMEOUT = 10.0

TPUEmbedding: TypeAlias = Any
Method: TypeAlias = Callable[..., Any]


def adapt_tpu_embedding() -> None:
    """Wraps the methods of TPUEmbedding, for objects under opwright's strategies."""
    methods = (
        __init__,
        build,
        _create_config_proto,
        _check_output_shapes,
        _raise_error_for_incorrect_control_flow_context,
        _raise_error_for_non_direct_inputs,
        enqueue,
        dequeue,
        apply_gradients,
    )
    wrap_tpu_embedding(methods, wrapped)


def wrapped(original: Method, method: Method) -> Method:
    """A method that runs `method` under opwright's strategies, else `original`."""

    @functools.wraps(original)
    def call(self: TPUEmbedding, *args: Any, **kwargs: Any) -> Any:
        # During `__init__` the object has no attribute `_strategy` yet. Variables call
        # theirs _distribute_strategy.
        known = vars(self)
        strategy = known.get("_strategy") or known.get("_distribute_strategy")
        strategy = strategy or tf.distribute.get_strategy()
        if isinstance(strategy.extended, TPUSystem):
            return method(self, functools.partial(original, self), *args, **kwargs)
        return original(self, *args, **kwargs)

    return call


# Each of these functions replaces the method of TPUEmbedding of the same name.
# `original` is TensorFlow's method.


def __init__(  # noqa: N807
    self: TPUEmbedding,
    original: Method,
    feature_config: object,
    optimizer: object,
    *args: object,
    **kwargs: object,
) -> None:
    check_features(feature_config, optimizer)
    adapt_layers()
    original(feature_config, optimizer, *args, **kwargs)
    if isinstance(self._strategy.extended, Host):
        # With the strategy of all hosts, TPUEmbedding would enqueue for all their
        # replicas. This process only has batches of its own replica.
        self._strategy = OneHost(self._strategy)


def build(
    self: TPUEmbedding, original: Method, *args: object, **kwargs: object
) -> None:
    try:
        original(*args, **kwargs)
    except RuntimeError as error:
        if "already initialized for embeddings" not in str(error):
            raise
        raise RuntimeError(
            f"{error}. A TPU system has one TPUEmbedding. To use another one, call "
            "opwright.tpu.software_strategy() again, which clears the tables, and "
            "create it in the scope of the new strategy."
        ) from error


def _create_config_proto(self: TPUEmbedding, original: Method) -> Any:
    """Names the features that have no name, by their paths in the feature config.

    It also sets the dtypes of rows that the strategy was given.
    """
    config = original()
    paths = nest.flatten_with_joined_string_paths(self._feature_config)
    for descriptor, (path, _) in zip(config.feature_descriptor, paths, strict=True):
        descriptor.name = descriptor.name or path
    tables = {table.name: table for table in config.table_descriptor}
    row_dtypes = self._strategy.extended.row_dtypes
    check_tables(row_dtypes, tables)
    for name, dtype in row_dtypes.items():
        tables[name].MergeFromString(serialized_row_dtype(dtype))
    return config


def _check_output_shapes(
    self: TPUEmbedding, original: Method, incoming_output_shapes: Any
) -> None:
    try:
        original(incoming_output_shapes)
    except ValueError as error:
        if "Inconsistent shape" not in str(error):
            raise
        if _has_larger_batch(self._output_shapes, incoming_output_shapes):
            remedy = (
                "This batch is larger. With several cores, enqueue batches of a "
                "distributed data set, which divides them among the cores. Otherwise "
                "call build(size) before the first step, with the size of all batches."
            )
        else:
            remedy = (
                "Where the last batch of the data is smaller, leave it out: "
                "dataset.batch(size, drop_remainder=True); or fill it with samples "
                "without ids, whose loss has the weight 0."
            )
        raise ValueError(
            f"{error}. A feature has one shape in all steps, that of one core's batch. "
            f"{remedy}"
        ) from error


def _has_larger_batch(stored: Any, incoming: Any) -> bool:
    """Whether a feature's batch is larger than in the steps before."""
    pairs = zip(map(_batch_size, stored), map(_batch_size, incoming), strict=True)
    return any(old and new and new > old for old, new in pairs)


def _batch_size(shape: tf.TensorShape) -> int | None:
    """The first dimension of a feature's output; None if it is not known."""
    size: int | None = shape[0] if shape.rank else None
    return size


def _raise_error_for_incorrect_control_flow_context(
    self: TPUEmbedding, original: Method
) -> bool:
    """Whether `enqueue` is called for one replica. Otherwise it is for all cores."""
    run = enclosing_run()
    in_run: bool = original() if run is None or run.strict else True
    return in_run and not replicas_meet(self)


def _raise_error_for_non_direct_inputs(
    self: TPUEmbedding, original: Method, features: object
) -> None:
    run = enclosing_run()
    if run is None or run.strict:
        original(features)


def enqueue(
    self: TPUEmbedding,
    original: Method,
    features: object,
    weights: object = None,
    training: bool = True,
    name: str | None = None,
    device: str | None = None,
) -> None:
    if tf.executing_eagerly():
        raise RuntimeError(
            "TPUEmbedding.enqueue was called eagerly. Call it in a tf.function: "
            "decorate the step that enqueues with @tf.function, and leave "
            "run_eagerly=True away from Keras's compile()."
        )
    run = enclosing_run()
    in_run = run is not None and not replicas_meet(self)
    if in_run and device is not None:
        raise bad_argument(
            OpInputError,
            "TPUEmbedding.enqueue",
            "device",
            device,
            "left out in strategy.run, where each replica enqueues for its own core",
        )
    check_batch(self, features, weights, in_run)
    if run is not None and not in_run:
        self._raise_error_for_non_direct_inputs(features)
    original(features, weights, training, name, device)


def dequeue(self: TPUEmbedding, original: Method, name: str | None = None) -> object:
    _need_replica(self, "dequeue", name)
    if tf.executing_eagerly():
        _need_batch(self)
    return original(name)


def apply_gradients(
    self: TPUEmbedding, original: Method, gradients: object, name: str | None = None
) -> None:
    _need_replica(self, "apply_gradients", name)
    try:
        original(gradients, name)
    except tf.errors.FailedPreconditionError as error:
        if "awaits gradients" not in error.message:
            raise
        raise errors.make(
            OpModeError,
            "TPUEmbedding.apply_gradients",
            "TPUEmbedding.apply_gradients was called eagerly, and no batch awaits "
            "gradients. Enqueue a batch for training and dequeue it first; or put "
            "enqueue, dequeue and apply_gradients into one step, which is a "
            "tf.function.",
            cause=error,
        ) from error


def _need_batch(self: TPUEmbedding) -> None:
    """Refuses an eager call for which no batch is enqueued, and none will be.

    Only another thread can enqueue meanwhile. If there are other threads, this function
    first waits up to EAGER_TIMEOUT seconds for a batch.
    """
    core = 0
    if self._strategy.extended.num_replicas_per_host > 1:
        core = int(tf.distribute.get_replica_context().replica_id_in_sync_group)
    is_alone = threading.active_count() == 1
    end = time.monotonic() + (0.0 if is_alone else EAGER_TIMEOUT)
    while queued_batches(core) == 0:
        if time.monotonic() >= end:
            waited = "" if is_alone else f" within {EAGER_TIMEOUT:g} s"
            raise RuntimeError(
                "TPUEmbedding.dequeue was called eagerly, and no batch was enqueued"
                f"{waited}. Call enqueue before it, in a tf.function; or put enqueue, "
                "dequeue and apply_gradients into one step, which is a tf.function."
            )
        time.sleep(0.001)


def check_batch(
    self: TPUEmbedding, features: object, weights: object, in_run: bool
) -> None:
    """Refuses features that are not those of the configuration, or are no ids."""
    for where, ids in _of_a_replica(self, "features", features, in_run):
        _check_ids(where, ids)
    if weights is not None:
        _of_a_replica(self, "weights", weights, in_run)


def replicas_meet(self: TPUEmbedding) -> bool:
    """Whether the current code runs once for several cores, as in `merge_call`."""
    extended = self._strategy.extended
    return extended.num_replicas_per_host > 1 and (
        tf.distribute.in_cross_replica_context()
        or tf.distribute.get_strategy().extended is not extended
    )


def _need_replica(self: TPUEmbedding, method: str, name: str | None) -> None:
    """Refuses a call for one core that is made outside the program of a core.

    A call with a name is not refused here, but when its function runs. Layers of Keras
    pass a name. Keras also calls these layers outside a core's program, to infer the
    shapes of outputs.
    """
    if name is None and replicas_meet(self):
        raise RuntimeError(
            f"TPUEmbedding.{method} is for one core, and the strategy has "
            f"{self._strategy.extended.num_replicas_per_host}. Call it in the function "
            "that strategy.run calls, and not within merge_call there: each replica "
            "calls it for its own core."
        )


def _of_a_replica(
    self: TPUEmbedding, what: str, values: object, in_run: bool
) -> list[tuple[str, Any]]:
    """The values of the first core with their paths, for checks.

    The values of the other cores have the same structure.
    """
    _check_structure(what, self._feature_config, values)
    paths = nest.flatten_with_joined_string_paths(self._feature_config)
    found = []
    for (path, _), value in zip(paths, nest.flatten(values), strict=True):
        where = f"{what} at {path!r}" if path else what
        if isinstance(value, tf.distribute.DistributedValues):
            if in_run:
                raise bad_argument(
                    OpInputError,
                    "TPUEmbedding.enqueue",
                    where,
                    f"the {type(value).__name__} of all replicas",
                    "this replica's, which strategy.run(step, args=(ids,)) hands to it",
                )
            value = value._values[0]
        found.append((where, value))
    return found


def _check_structure(what: str, config: object, values: object) -> None:
    """Refuses values that lack a feature, or have one that is not configured."""
    try:
        nest.assert_same_structure(config, values)
    except (TypeError, ValueError) as error:
        wanted, given = _paths(config), _paths(values)
        missing = [path for path in wanted if path not in given]
        unknown = [path for path in given if path not in wanted]
        if not missing and not unknown:
            raise
        parts = [f"missing: {', '.join(missing)}"] if missing else []
        parts += [f"not configured: {', '.join(unknown)}"] if unknown else []
        raise errors.make(
            OpInputError,
            "TPUEmbedding.enqueue",
            f"TPUEmbedding.enqueue: {what} must be those of feature_config, "
            f"{', '.join(wanted)}; {'; '.join(parts)}",
            argument=what,
            given=values,
            allowed=wanted,
        ) from error


def _paths(structure: object) -> tuple[str, ...]:
    """The paths of the leaves of a structure, such as `films/next`."""
    paths = (path for path, _ in nest.flatten_with_joined_string_paths(structure))
    return tuple(path or "a value without a name" for path in paths)


_TENSORS = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)


def _check_ids(where: str, ids: Any) -> None:
    remedy = ""
    if not isinstance(ids, _TENSORS):
        allowed = "a tf.Tensor, tf.SparseTensor or tf.RaggedTensor"
    elif not ids.dtype.is_integer or ids.dtype == tf.uint64:
        allowed = "integers that fit int64, the rows of the table"
        if ids.dtype.is_floating:
            remedy = (
                "cast the ids with tf.cast, or create the keras.Input with "
                "dtype='int64'"
            )
        elif ids.dtype == tf.string:
            remedy = "map the texts to ids, such as with keras.layers.StringLookup"
    else:
        return
    raise bad_argument(
        OpInputError, "TPUEmbedding.enqueue", where, ids, allowed, remedy=remedy
    )
