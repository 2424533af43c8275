"""TensorFlow's fast path, and functions of an extension module for calls of it.

The extension module, of runtime/native/calls, has functions that take the place of
functions of Python, and take less time. It may be missing, and another TensorFlow may
lack what it calls. Then all functions are those of Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import tensorflow as tf

from opwright_runtime import _internals
from opwright_runtime._internals import CURRENT, EAGER, contexts, graphs, ops

F = TypeVar("F", bound="Callable[..., object]")

EagerTensor: Any = ops.EagerTensor
"""The class of the tensors of eager execution; it has no subclasses."""

#: The libraries of TensorFlow that may have the functions, in its folder `python`.
_LIBRARIES = ("lib_pywrap_tensorflow_common.so", "_pywrap_tensorflow_internal.so")
# The mangled names of TFE_Py_FastPathExecute_C(PyObject*), which TensorFlow's module
# wraps with pybind11, and of EagerTensor_Handle(const PyObject*). The order is that of
# `Functions` in bindings.h.
_FUNCTIONS = (
    "_Z24TFE_Py_FastPathExecute_CP7_object",
    "_Z18EagerTensor_HandlePK7_object",
    "TFE_TensorHandleNumElements",
    "TFE_TensorHandleNumDims",
    "TFE_TensorHandleDim",
    "TFE_TensorHandleResolve",
    "TF_TensorType",
    "TF_TensorByteSize",
    "TF_TensorData",
    "TF_DeleteTensor",
    "TF_NewStatus",
    "TF_DeleteStatus",
)


def _extension() -> ModuleType | None:
    """The extension module, set up; None if it cannot be used."""
    folder = Path(tf.__file__).parent / "python"
    try:
        found = import_module("opwright_runtime._lib.fast_path")
        path, *_ = (folder / one for one in _LIBRARIES if (folder / one).exists())
        library = ctypes.CDLL(str(path))
        functions = tuple(
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in _FUNCTIONS
        )
        objects = (contexts, CURRENT, EAGER, graphs, "stack", EagerTensor)
        found.set_up(functions, *objects)
    # A TypeError: it was built from other sources.
    except (ImportError, OSError, AttributeError, TypeError, ValueError):
        return None
    return found


_EXTENSION = _extension()

is_native: bool = _EXTENSION is not None
"""Whether functions are those of the extension module."""


def native(function: F, name: str | None = None, cls: type | None = None) -> F:
    """The extension module's function of this name, or `function` if it has none.

    Args:
        function: a function that does the same. The other one calls it, too, for values
            that it does not know.
        name: the name of the function of the extension module; the default is that of
            `function`.
        cls: the class that `function` is a method of. The other one gets the class, and
            calls its method of this name.
    """
    if _EXTENSION is None:
        return function
    try:
        made: F = _EXTENSION.native(
            name or function.__name__, cls or function, __name__
        )
    except KeyError:
        return function
    return made


@native
def execute(op_name: str, name: str | None, *arguments: object) -> Any:
    """Runs an op at once, with TensorFlow's fast path.

    It raises an error if inputs must be converted to tensors first.

    Args:
        arguments: the inputs, then for each attr its name and its value.
    """
    return _internals.execute(contexts[CURRENT], op_name, name, *arguments)


@native
def is_eager(*values: object) -> bool:
    """Whether the thread executes eagerly, builds no graph, and values are tensors."""
    for value in values:  # all() would take longer.
        if type(value) is not EagerTensor:
            return False
    return bool(contexts[EAGER]) and not graphs.stack


@native
def can_broadcast(*values: object) -> bool:
    """`is_eager`, and whether TensorFlow can count the elements of a result.

    The product of their numbers of elements is from 1 to 2**63 - 1. It is no less than
    the number of elements of the result, however the tensors broadcast.
    """
    return (
        is_eager(*values) and 0 < prod(map(EagerTensor._num_elements, values)) < 2**63
    )
