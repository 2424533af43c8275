"""The library of native kernels: checks its version, and loads it.

The wheel of opwright has one library for each minor version of TensorFlow. For other
versions, `python -m opwright build-native` builds one. In a source tree, `make native`
builds it against the environment's TensorFlow. `import opwright` loads the library if
there is one for the installed TensorFlow. It registers kernels for ops that TensorFlow
has already, so that graphs and SavedModels with those ops run without any other change.

The environment variable OPWRIGHT_LIBRARY names another library. The library's stamp, a
file with facts about its build, is in the same folder. It has the same name with the
suffix .json. OPWRIGHT_WEIGHT_CACHE_BYTES sets the limit of the packed-weight cache, as
`set_weight_cache_limit` does.
"""

from __future__ import annotations

import ctypes
import json
import os
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypedDict

import tensorflow as tf

from opwright_runtime import _native_library
from opwright_runtime._native_library import advice as advice

__all__ = [
    "KERNEL_PRIORITY",
    "LIBRARY",
    "NativeLibraryError",
    "OptimizerTraits",
    "WeightCacheUsage",
    "cuda",
    "embedding_configuration",
    "embedding_optimizers",
    "forget_sparse_core_dropped_ids",
    "forget_sparse_core_values",
    "isa",
    "library",
    "library_path",
    "load",
    "load_if_present",
    "loaded",
    "ops",
    "sent_by_embeddings",
    "set_weight_cache_limit",
    "sparse_core_dropped_ids",
    "use_isa",
    "use_own_threads",
    "weight_cache_usage",
]

LIBRARY = _native_library.find()
# The priority of the library's kernels, below that of TensorFlow's own, which is 0.
KERNEL_PRIORITY = -1

_loaded = False


class NativeLibraryError(ImportError):
    """The library of native kernels is missing, or is not for this TensorFlow."""


def load() -> None:
    """Loads the library; a second call does nothing.

    Raises:
        NativeLibraryError: it is missing, cannot be read, or was built for another
            minor version of TensorFlow.
    """
    global _loaded
    if _loaded:
        return
    library_path()
    limit = _limit_of_environment()
    try:
        # Unlike `load_op_library`, it generates no functions, which takes 10 ms.
        tf.load_library(str(LIBRARY))
    except (tf.errors.OpError, OSError) as error:
        message = getattr(error, "message", error)
        raise NativeLibraryError(
            f"{LIBRARY} does not load: {message}; {advice()}"
        ) from error
    _loaded = True
    if limit is not None:
        set_weight_cache_limit(limit)


def library_path() -> Path:
    """The path of the library, for programs without Python: docs/how-to/serving.md.

    Raises:
        NativeLibraryError: it is missing, or was built for another minor version of
            TensorFlow.
    """
    if not LIBRARY.exists():
        raise NativeLibraryError(
            f"no library of native kernels for TensorFlow {tf.__version__} at "
            f"{LIBRARY}; {advice()}"
        )
    if misfit := _stamp().misfit():
        raise NativeLibraryError(f"{LIBRARY} {misfit}; {advice()}")
    return LIBRARY


def load_if_present() -> None:
    """Loads the library if it exists. Warns if it does not fit this TensorFlow."""
    if LIBRARY.exists():
        try:
            load()
        except NativeLibraryError as error:
            warnings.warn(f"opwright runs without it: {error}", stacklevel=2)


def loaded() -> bool:
    """Whether the native kernels are registered."""
    return _loaded


@cache
def ops() -> ModuleType:
    """Functions for the library's own ops, which TensorFlow generates.

    Raises:
        NativeLibraryError: the library is missing or does not fit.
    """
    load()
    found: ModuleType = tf.load_op_library(str(LIBRARY))
    return found


def cuda() -> str | None:
    """The version of CUDA with which the kernels for GPUs were built; None without any.

    Raises:
        NativeLibraryError: the library is missing or does not fit.
    """
    load()
    return _stamp().cuda


@cache
def library() -> ctypes.CDLL:
    """The library's functions for Python.

    Raises:
        NativeLibraryError: the library is missing or does not fit.
    """
    load()
    functions = ctypes.CDLL(str(LIBRARY))
    functions.opwright_isa.restype = ctypes.c_char_p
    functions.opwright_use_isa.restype = ctypes.c_bool
    functions.opwright_use_own_threads.argtypes = [ctypes.c_int]
    functions.opwright_use_own_threads.restype = None
    functions.opwright_embedding_optimizers.restype = ctypes.c_char_p
    functions.opwright_embedding_configuration.argtypes = [
        ctypes.POINTER(ctypes.c_int64)
    ]
    functions.opwright_embedding_configuration.restype = ctypes.c_void_p
    functions.opwright_weight_cache_usage.restype = None
    functions.opwright_set_weight_cache_limit.argtypes = [ctypes.c_int64]
    functions.opwright_set_weight_cache_limit.restype = None
    functions.opwright_embedding_begin_step.restype = None
    functions.opwright_embedding_end_step.argtypes = [ctypes.c_bool]
    functions.opwright_embedding_end_step.restype = None
    functions.opwright_embedding_step_of_thread.restype = ctypes.c_int64
    functions.opwright_embedding_join_step.argtypes = [ctypes.c_int64]
    functions.opwright_embedding_join_step.restype = None
    functions.opwright_embedding_leave_step.restype = None
    functions.opwright_embedding_step_count.restype = ctypes.c_int64
    functions.opwright_embedding_queued_batches.argtypes = [ctypes.c_int64]
    functions.opwright_embedding_queued_batches.restype = ctypes.c_int64
    functions.opwright_embedding_set_hosts.argtypes = [
        ctypes.c_char_p,
        ctypes.c_int64,
        ctypes.c_double,
    ]
    functions.opwright_embedding_set_hosts.restype = None
    functions.opwright_embedding_sent.argtypes = [
        ctypes.POINTER(ctypes.c_int64),
        ctypes.c_int64,
    ]
    functions.opwright_embedding_sent.restype = None
    functions.opwright_sparse_core_dropped_ids.argtypes = [
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_int64),
    ]
    functions.opwright_sparse_core_dropped_ids.restype = None
    functions.opwright_sparse_core_forget_dropped_ids.restype = None
    functions.opwright_sparse_core_forget_values.restype = None
    functions.opwright_embedding_lookup.argtypes = [
        *[ctypes.c_void_p] * 3,
        ctypes.c_char_p,
    ]
    functions.opwright_embedding_lookup.restype = ctypes.c_void_p
    functions.opwright_release.argtypes = [ctypes.c_void_p]
    functions.opwright_release.restype = None
    functions.opwright_embedding_abandon.argtypes = [ctypes.c_bool]
    functions.opwright_embedding_abandon.restype = ctypes.c_int64
    return functions


def sent_by_embeddings(count: int) -> list[int]:
    """The first `count` counters of what this host has sent for its tables."""
    numbers = (ctypes.c_int64 * count)()
    library().opwright_embedding_sent(numbers, count)
    return list(numbers)


def sparse_core_dropped_ids(stack: str) -> list[int]:
    """What lookups in a stack dropped: ids, batches, and the ids a sample that fit."""
    numbers = (ctypes.c_int64 * 3)()
    library().opwright_sparse_core_dropped_ids(stack.encode(), numbers)
    return list(numbers)


def forget_sparse_core_dropped_ids() -> None:
    """Sets the counts of dropped ids of all stacks to 0."""
    library().opwright_sparse_core_forget_dropped_ids()


def forget_sparse_core_values() -> None:
    """Drops what updates know of tables, and memory of tables that are gone."""
    library().opwright_sparse_core_forget_values()


def isa() -> str:
    """The instruction set that the kernels use.

    It is "avx512", "avx2" or "portable" on x86-64, and "neon" or "portable" on ARM.
    """
    name: bytes = library().opwright_isa()
    return name.decode()


def use_isa(name: str) -> None:
    """Makes the kernels use another instruction set, for tests.

    "" stands for the best instruction set of this processor. The environment variable
    OPWRIGHT_ISA sets the instruction set when the library is loaded.

    Raises:
        ValueError: there is no such instruction set, or this processor lacks it.
    """
    if not library().opwright_use_isa(name.encode()):
        raise ValueError(f"this processor has no kernels for {name!r}")


def use_own_threads(count: int) -> None:
    """Makes the library run its ops on `count` threads of its own.

    Otherwise it uses TensorFlow's threads. Only the first call has an effect.
    """
    library().opwright_use_own_threads(count)


class WeightCacheUsage(NamedTuple):
    """Use of the packed-weight cache, which inference of recurrent layers fills.

    Attributes:
        entries: the number of entries: one for each kernel and parameter vector.
        bytes: the size of all entries together.
        limit: the largest size that all entries together may have, in bytes.
    """

    entries: int
    bytes: int
    limit: int


def weight_cache_usage() -> WeightCacheUsage:
    """The packed-weight cache of all kernels of recurrent layers, at present."""
    usage = (ctypes.c_int64 * 3)()
    library().opwright_weight_cache_usage(usage)
    return WeightCacheUsage(*usage)


def set_weight_cache_limit(limit: int) -> None:
    """Limits the packed-weight cache to `limit` bytes; 0 switches it off.

    The default is 1/32 of the machine's memory, at most 512 MiB. The environment
    variable OPWRIGHT_WEIGHT_CACHE_BYTES sets another limit.

    Raises:
        TypeError: it is not an int.
        ValueError: it is negative, or more than any memory has.
    """
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"a limit must be a number of bytes, an int, not {limit!r}")
    if not 0 <= limit < 2**63:
        raise ValueError(f"a limit must lie between 0 and 2**63 - 1, not {limit}")
    library().opwright_set_weight_cache_limit(limit)


def _limit_of_environment() -> int | None:
    text = os.environ.get("OPWRIGHT_WEIGHT_CACHE_BYTES", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) >= 2**63:
        raise NativeLibraryError(
            f"OPWRIGHT_WEIGHT_CACHE_BYTES must be a number of bytes, is {text!r}"
        )
    return int(text)


class OptimizerTraits(TypedDict):
    """The properties of an optimizer of embedding tables.

    Attributes:
        field: the name of its field in OptimizationParameters. An optimizer without a
            field is a user-defined program named `opwright.` plus this name.
        op_name: its name in LoadTPUEmbedding...Parameters; None if it has no such ops.
        slots: the names of the slots in those ops, in the same order.
        slot_bounds: the values that slots may have: "at least 0"; "" is any finite one.
        hyper: the fields of its message that the update reads.
        hyper_bounds: the values that these fields may have, in the same form.
        formula: the update rule; None if tables are only stored.
        source: the publication of the update rule; None without one.
        row_wise: whether a slot has one value for a row, and not one for each weight.
    """

    field: str
    op_name: str | None
    slots: list[str]
    slot_bounds: list[str]
    hyper: list[str]
    hyper_bounds: list[str]
    formula: str | None
    source: str | None
    row_wise: bool


def embedding_optimizers() -> list[OptimizerTraits]:
    """The optimizers of embedding tables."""
    traits: list[OptimizerTraits] = json.loads(
        library().opwright_embedding_optimizers()
    )
    return traits


def embedding_configuration() -> bytes:
    """The serialized TPUEmbeddingConfiguration of the tables; empty without any."""
    size = ctypes.c_int64()
    bytes_at = library().opwright_embedding_configuration(ctypes.byref(size))
    return ctypes.string_at(bytes_at, size.value)


def _stamp() -> _native_library.Stamp:
    try:
        return _native_library.stamp(LIBRARY)
    except ValueError as error:
        raise NativeLibraryError(f"{error}; {advice()}") from error
