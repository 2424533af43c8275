"""The library of native kernels: where it is, whether it fits, loading it.

`make native` builds it against the TensorFlow of the environment, and `import opwright`
loads it if it is there. Loading it registers its kernels for ops that TensorFlow has
already, so graphs and SavedModels with those ops run with no other change.

The environment variable OPWRIGHT_LIBRARY names another one, whose stamp (the same name
with the suffix .json) lies beside it.
"""

from __future__ import annotations

import ctypes
import json
import os
import warnings
from pathlib import Path
from typing import TypedDict

import tensorflow as tf

LIBRARY = Path(
    os.environ.get("OPWRIGHT_LIBRARY")
    or Path(__file__).with_name("_lib") / "libopwright.so"
)
# What the library registers its kernels with: below TensorFlow's own, which have 0.
KERNEL_PRIORITY = -1

_BUILD = "build it with `make native` in opwright's source tree"
_loaded = False


class NativeLibraryError(ImportError):
    """The library of native kernels is missing, or does not fit this TensorFlow."""


def load() -> None:
    """Loads the library; a second call does nothing.

    Raises:
        NativeLibraryError: it is missing, cannot be read, or was built for another
            version of TensorFlow.
    """
    global _loaded
    if _loaded:
        return
    if not LIBRARY.exists():
        raise NativeLibraryError(f"no library of native kernels at {LIBRARY}; {_BUILD}")
    built_for = _stamp()["tensorflow"]
    if built_for != tf.__version__:
        raise NativeLibraryError(
            f"{LIBRARY} was built for TensorFlow {built_for}, this is TensorFlow "
            f"{tf.__version__}; {_BUILD}"
        )
    try:
        tf.load_op_library(str(LIBRARY))
    except tf.errors.OpError as error:
        raise NativeLibraryError(
            f"{LIBRARY} does not load: {error.message}; {_BUILD}"
        ) from error
    _loaded = True


def load_if_present() -> None:
    """Loads the library if it is there; one that does not fit is a warning."""
    if LIBRARY.exists():
        try:
            load()
        except NativeLibraryError as error:
            warnings.warn(f"opwright runs without it: {error}", stacklevel=2)


def loaded() -> bool:
    """Whether the native kernels are registered."""
    return _loaded


def cuda() -> str | None:
    """The version of CUDA that the kernels for GPUs were built with; None without any.

    Raises:
        NativeLibraryError: the library is missing or does not fit.
    """
    load()
    return _stamp()["cuda"]


def isa() -> str:
    """The instruction set that the kernels use: "avx512", "avx2" or "portable"."""
    load()
    library = ctypes.CDLL(str(LIBRARY))
    library.opwright_isa.restype = ctypes.c_char_p
    name: bytes = library.opwright_isa()
    return name.decode()


def use_isa(name: str) -> None:
    """Makes the kernels use another instruction set, "" the best; for tests.

    The environment variable OPWRIGHT_ISA does so from the start.

    Raises:
        ValueError: there is no such, or this processor lacks it.
    """
    load()
    library = ctypes.CDLL(str(LIBRARY))
    library.opwright_use_isa.restype = ctypes.c_bool
    if not library.opwright_use_isa(name.encode()):
        raise ValueError(f"this processor has no kernels for {name!r}")


class OptimizerFacts(TypedDict):
    """What the kernels know of an optimizer of embedding tables.

    Attributes:
        field: its name in OptimizationParameters.
        op_name: its name in LoadTPUEmbedding...Parameters; None if it has no such ops.
        slots: as those ops name them, in their order.
        hyper: fields of its message that the update reads.
        formula: the update; None if tables are only stored.
        source: where the update is published; None without one.
    """

    field: str
    op_name: str | None
    slots: list[str]
    hyper: list[str]
    formula: str | None
    source: str | None


def embedding_optimizers() -> list[OptimizerFacts]:
    """The optimizers of embedding tables."""
    load()
    library = ctypes.CDLL(str(LIBRARY))
    library.opwright_embedding_optimizers.restype = ctypes.c_char_p
    facts: list[OptimizerFacts] = json.loads(library.opwright_embedding_optimizers())
    return facts


class _Stamp(TypedDict):
    """What the build says of the library."""

    tensorflow: str
    cuda: str | None


def _stamp() -> _Stamp:
    path = LIBRARY.with_suffix(".json")
    try:
        read = json.loads(path.read_text())
        return {"tensorflow": str(read["tensorflow"]), "cuda": read.get("cuda")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NativeLibraryError(
            f"{path} does not say which TensorFlow {LIBRARY.name} is for; {_BUILD}"
        ) from error
