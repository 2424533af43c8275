"""Lookups outside training steps: for serving, for evaluation, to inspect tables."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from opwright_runtime import native
from opwright_runtime._internals import (
    EAGER,
    context,
    contexts,
    graphs,
    in_xla_context,
    ops,
    pywrap_tfe,
)

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
    combiners: Sequence[Combiner] = (),
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
        combiners: how the rows of a bag are combined, for each table in the order of
            the configuration: their sum, their mean over the weights, or the sum
            divided by the root of the sum of squared weights. An empty bag gives zeros.
            If empty, all tables use sums.

    Returns:
        [samples, columns], float32: the features side by side, each as wide as its
        table's dimension; `tf.split(embeddings, dimensions, axis=1)` separates them.
        The result has no gradient. Training goes through `enqueue` instead.

    Raises:
        NativeLibraryError: the native kernels are not built.
        FailedPreconditionError: no embeddings are configured.
        InvalidArgumentError: ids that are not rows of their table, invalid row splits,
            weights that are not finite, or sizes that do not fit each other.
        NotImplementedError: the call is in a function with `jit_compile=True`.
        UnimplementedError: the tables are on a GPU, or are shared by several hosts.
    """
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
            "to the function that XLA compiles; or leave jit_compile away."
        )
    if row_splits is None:
        row_splits = _NO_SPLITS
    if weights is None:
        weights = _NO_WEIGHTS
    lookup = native.ops().opwright_embedding_lookup
    found: Output[TFloat32] = lookup(ids, row_splits, weights, combiners)
    return found


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
