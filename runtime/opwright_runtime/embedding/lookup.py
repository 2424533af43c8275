"""Lookups outside training steps: for serving, for evaluation, to inspect tables."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
import tensorflow as tf

from opwright_runtime import errors, native
from opwright_runtime._internals import (
    EAGER,
    TPUEmbeddingConfiguration,
    context,
    contexts,
    graphs,
    in_xla_context,
    ops,
    pywrap_tfe,
)
from opwright_runtime.embedding.steps import NOT_CONFIGURED
from opwright_runtime.errors import OpAttrError, OpInputError, bad_argument

if TYPE_CHECKING:
    from opwright_runtime.types import Operand, Output, TFloat32, TInt32, TInt64

    Integers: TypeAlias = Operand[TInt32] | Operand[TInt64]

Combiner: TypeAlias = Literal["sum", "mean", "sqrtn"]
_COMBINERS = frozenset(get_args(Combiner))
_NO_SPLITS = np.zeros(0, np.int32)
_NO_WEIGHTS = np.zeros(0, np.float32)

# Functions of Python's C API for the capsules that carry DLPack tensors.
_POINTER = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_CAPSULE = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
_NAME = b"dltensor"  # A capsule keeps this pointer, so the bytes must stay alive.


def embedding_lookup(
    ids: Integers,
    row_splits: Integers | None = None,
    weights: Operand[TFloat32] | None = None,
    *,
    combiners: Sequence[Combiner] | Mapping[str, Combiner] = (),
) -> Output[TFloat32]:
    """The embeddings of samples, in the tables as they are now.

    In a function or a graph a lookup is one op. An eager call with tensors runs no op.
    A lookup does not use the queues of training steps: it enqueues nothing, trains
    nothing, and takes any number of samples. It sees every update that was sent before.
    All ids are in one tensor, packed as in FBGEMM and torchrec: first the ids of the
    configuration's first feature, sample after sample, then those of the next feature.
    Bag b belongs to feature `b // samples` and sample `b % samples`. It has the ids
    from `row_splits[b]` up to, but without, `row_splits[b + 1]`.

    Args:
        ids: int32 or int64, [ids]: rows of each feature's table.
        row_splits: int32 or int64, [features * samples + 1], from 0 to the number of
            ids, not descending. None: one id a bag.
        weights: float32, [ids], by which rows are multiplied. None: ones.
        combiners: how the rows of a bag are combined: their sum, their mean over the
            weights, or the sum divided by the root of the sum of squared weights. An
            empty bag gives zeros. A dict has one combiner for each table, by the
            table's name. In a function, it needs tables that exist when the function is
            traced. A list has one for each table in the order of the configuration.
            `TPUEmbedding` sorts a dict of features by name, and orders the tables by
            the first feature of each. Without combiners, all tables use sums: the
            combiner of a `TableConfig` has no effect on this function.

    Returns:
        [samples, columns], float32: the features side by side, each as wide as its
        table's dimension; `tf.split(embeddings, dimensions, axis=1)` separates them.
        The result has no gradient. Training goes through `enqueue` instead.

    Raises:
        NativeLibraryError: the native kernels are not built.
        FailedPreconditionError: no embeddings are configured.
        InvalidArgumentError: ids that are not rows of their table, invalid row splits,
            weights that are not finite, or sizes that do not fit each other.
        OpInputError: ids, row splits or weights that are ragged, sparse or a dict.
        OpAttrError: combiners that are text, or a dict that does not fit the tables.
        NotImplementedError: the call is in a function with `jit_compile=True`.
        UnimplementedError: the tables are on a GPU, or are shared by several hosts.
    """
    if isinstance(combiners, Mapping):
        combiners = _in_order_of_tables(combiners)
    if contexts[EAGER] and not graphs.stack:
        try:
            at_once = _find_at_once(ids, row_splits, weights, combiners)
        except Exception:
            # The attempt changes nothing. The op below accepts other arguments, or
            # raises an error that explains the problem.
            at_once = None
        if at_once is not None:
            return at_once
    if graphs.stack and in_xla_context(ops.get_default_graph()):
        raise NotImplementedError(
            "embedding_lookup stands in a tf.function with jit_compile=True, and XLA "
            "cannot reach the tables. Look up outside of it, and hand the embeddings "
            "to the function that XLA compiles; or leave jit_compile out."
        )
    _check_kinds(ids, row_splits, weights, combiners)
    if row_splits is None:
        row_splits = _NO_SPLITS
    if weights is None:
        weights = _NO_WEIGHTS
    lookup = native.ops().opwright_embedding_lookup
    try:
        found: Output[TFloat32] = lookup(ids, row_splits, weights, combiners)
    except tf.errors.FailedPreconditionError as error:
        if "no embeddings are configured" in error.message:
            raise _not_configured() from error
        raise
    return found


def _in_order_of_tables(combiners: Mapping[str, Combiner]) -> list[Combiner]:
    """The combiners of all tables, in the order of the configuration."""
    tables = _names_of_tables(native.embedding_configuration())
    if not tables:
        raise _not_configured()
    if set(tables) != set(combiners):
        allowed = (
            f"a dict with one combiner for each table: {', '.join(map(repr, tables))}"
        )
        raise bad_argument(
            OpAttrError, "embedding_lookup", "combiners", dict(combiners), allowed
        )
    return [combiners[name] for name in tables]


@functools.lru_cache(maxsize=1)
def _names_of_tables(configuration: bytes) -> tuple[str, ...]:
    message = TPUEmbeddingConfiguration.FromString(configuration)
    return tuple(descriptor.name for descriptor in message.table_descriptor)


def _not_configured() -> tf.errors.FailedPreconditionError:
    text = f"embedding_lookup: {NOT_CONFIGURED}"
    return tf.errors.FailedPreconditionError(None, None, text)


def _check_kinds(
    ids: object, row_splits: object, weights: object, combiners: object
) -> None:
    """Refuses values that are not packed, with an error that says how to pack them."""
    for argument, given in (
        ("ids", ids),
        ("row_splits", row_splits),
        ("weights", weights),
    ):
        remedy = _how_to_pack(given)
        if remedy:
            allowed = "a tensor of rank 1"
            kind = type(given).__name__
            raise errors.make(
                OpInputError,
                "embedding_lookup",
                f"embedding_lookup: {argument} must be {allowed}, not a {kind}. "
                f"{remedy}",
                argument=argument,
                given=given,
                allowed=allowed,
            )
    if isinstance(combiners, str):
        allowed = "a dict of combiners by the names of tables, or a list"
        raise bad_argument(
            OpAttrError, "embedding_lookup", "combiners", combiners, allowed
        )


def _how_to_pack(given: object) -> str:
    """Text that says how to pack such a value; empty for any other value."""
    ragged = (
        "Of a RaggedTensor, pass ids.values as ids and ids.row_splits as row_splits. "
        "Weights are the values of a RaggedTensor with the same row splits."
    )
    if isinstance(given, tf.RaggedTensor):
        return ragged
    if isinstance(given, tf.SparseTensor):
        return f"Convert it with tf.RaggedTensor.from_sparse(ids). {ragged}"
    if isinstance(given, Mapping):
        return (
            "Concatenate the features in the order of their names: "
            f"tf.concat([ids[name] for name in sorted(ids)], 0). {ragged}"
        )
    return ""


def _find_at_once(
    ids: object,
    row_splits: object | None,
    weights: object | None,
    combiners: Sequence[str],
) -> Output[TFloat32] | None:
    """Looks up by a direct call of the native library. None: the op is needed.

    This avoids the overhead of running a TensorFlow op, which takes longer than a small
    lookup. After a large lookup the overhead is greater, because rows have replaced
    TensorFlow's code and data in the CPU caches.

    Raises:
        Exception: the arguments cannot be passed directly, for example because one is
            not an eager tensor. The class depends on the cause.
    """
    handle = context.context()._handle
    executor = pywrap_tfe.TFE_ContextGetExecutorForThread(handle)
    waits = pywrap_tfe.TFE_ExecutorIsAsync(executor)
    pywrap_tfe.TFE_DeleteExecutor(executor)
    # An asynchronous executor may not have run earlier steps yet.
    if waits or not _COMBINERS.issuperset(combiners):
        return None
    # The capsules keep the tensors alive during the call.
    to_dlpack = pywrap_tfe.TFE_ToDlpackCapsule
    of_ids, of_splits, of_weights = to_dlpack(ids), None, None
    splits_at = weights_at = None
    if row_splits is not None:
        of_splits = to_dlpack(row_splits)
        splits_at = _POINTER(of_splits, _NAME)
    if weights is not None:
        of_weights = to_dlpack(weights)
        weights_at = _POINTER(of_weights, _NAME)
    library = native.library()
    lent = library.opwright_embedding_lookup(
        _POINTER(of_ids, _NAME),
        splits_at,
        weights_at,
        ",".join(combiners).encode() if combiners else None,
    )
    if lent is None:
        return None
    try:
        found: Output[TFloat32] = pywrap_tfe.TFE_FromDlpackCapsule(
            _CAPSULE(lent, _NAME, None), handle
        )
        return found
    except BaseException:
        library.opwright_release(lent)
        raise
