"""The only module that replaces attributes of other libraries' classes and modules.

Each patch states the versions of TensorFlow that it is for. If the version is another
one, or the attribute is missing, the patch cannot be applied. If results depend on the
patch, an error is raised then. If it only improves an error message or saves time, it
does nothing then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import (
    autograph_config,
    branch_or_loop_graph,
    concrete_function_class,
    ops,
    pywrap_tfe,
    resource_variable,
    sparse_core_embedding,
    tpu_embedding_class,
)

Function: TypeAlias = Callable[..., Any]


class Versions:
    """TensorFlow from `first` to `last`, both (major, minor); None: any later one."""

    def __init__(
        self, first: tuple[int, int], last: tuple[int, int] | None = None
    ) -> None:
        self.first = first
        self.last = last

    def __contains__(self, version: str) -> bool:
        major, minor, *_ = version.split(".")
        found = int(major), int(minor)
        return self.first <= found and (self.last is None or found <= self.last)

    def __str__(self) -> str:
        first = ".".join(map(str, self.first))
        return (
            f"{first} to {'.'.join(map(str, self.last))}"
            if self.last
            else f"{first} and later"
        )


#: The versions with which the replaced methods are tested. The replacements pass on
#: arguments, which may be others in a later version.
TESTED = Versions((2, 18), (2, 22))
#: The versions whose TPUEmbeddingV2 has the attributes that opwright uses.
SPARSE_CORES = Versions((2, 21), (2, 22))
#: All versions from 2.18 on, for attributes that have not changed since. A patch for
#: these checks that the attribute exists.
STABLE = Versions((2, 18))


def keep_from_autograph(package: str) -> None:
    """Keeps AutoGraph from rewriting `package`'s code in the bodies of tf.functions."""
    rules = getattr(autograph_config, "CONVERSION_RULES", None)
    if rules is not None and tf.__version__ in STABLE:
        rule = autograph_config.DoNotConvert(package)
        autograph_config.CONVERSION_RULES = (rule, *rules)


def replace_gradient_function(function: Function) -> None:
    """Makes all gradient tapes call `function`, also for ops that opwright did not run.

    The first argument of `function` is the op's name.
    """
    register = getattr(pywrap_tfe, "TFE_Py_RegisterGradientFunction", None)
    if register is not None and tf.__version__ in STABLE:
        register(function)


def wrap_gradient_lookup(wrapped: Callable[[Function], Function]) -> None:
    """Replaces what gradients in graphs find an op's gradient with, once.

    The function takes the node of the op, and raises a LookupError if it has none.
    """
    if tf.__version__ in STABLE:
        wrap_if_present(ops, "get_gradient_function", wrapped)


def replace_call_time_values(function: Function) -> None:
    """Replaces the method by which branches and loops capture call-time values.

    Raises:
        RuntimeError: TensorFlow is none of `TESTED`.
    """
    _replace(branch_or_loop_graph, "capture_call_time_value", lambda _: function)


def wrap_function_creation(wrapped: Callable[[Function], Function]) -> None:
    """Replaces what makes a function of a graph, a type and attributes, once.

    Raises:
        RuntimeError: TensorFlow is not of `SPARSE_CORES`.
    """
    _replace(concrete_function_class, "from_func_graph", wrapped, SPARSE_CORES)


def wrap_variable_conversion(wrapped: Callable[[Function], Function]) -> None:
    """Replaces the method by which variables become tensors for ops, once.

    Raises:
        RuntimeError: TensorFlow is none of `TESTED`.
    """
    _replace(resource_variable, "_dense_var_to_tensor", wrapped)


def wrap_tpu_embedding(
    methods: Iterable[Function], wrapped: Callable[..., Function]
) -> None:
    """Replaces methods of TPUEmbedding by `wrapped(original, method=method)`, once.

    Raises:
        RuntimeError: TensorFlow is none of `TESTED`.
    """
    _wrap_methods(tpu_embedding_class, methods, wrapped, TESTED)


def wrap_sparse_core_embedding(
    methods: Iterable[Function],
    of_variables: Iterable[Function],
    wrapped: Callable[..., Function],
) -> None:
    """Replaces methods of TPUEmbeddingV2 and of its variables, once.

    Each is replaced by `wrapped(original, method=method)`.

    Raises:
        RuntimeError: TensorFlow is not of `SPARSE_CORES`.
    """
    for owner, of_owner in (
        (sparse_core_embedding.TPUEmbeddingV2, methods),
        (sparse_core_embedding.TPUEmbeddingShardedVariable, of_variables),
    ):
        _wrap_methods(owner, of_owner, wrapped, SPARSE_CORES)


def wrap_if_present(
    owner: object, name: str, wrapped: Callable[[Function], Function]
) -> None:
    """Replaces a function of a library by `wrapped(original)`.

    Does nothing if the library's version lacks it, or if it is replaced already.
    """
    original = getattr(owner, name, None)
    if original is not None and not _is_ours(original):
        setattr(owner, name, _mark(wrapped(original)))


def _wrap_methods(
    owner: type,
    methods: Iterable[Function],
    wrapped: Callable[..., Function],
    versions: Versions,
) -> None:
    for method in methods:
        make = functools.partial(wrapped, method=method)
        _replace(owner, method.__name__, make, versions)


def _replace(
    owner: Any,
    name: str,
    make: Callable[[Function], Function],
    versions: Versions = TESTED,
) -> None:
    original = getattr(owner, name, None)
    if original is None or tf.__version__ not in versions:
        raise RuntimeError(
            f"opwright replaces {owner.__name__}.{name} of TensorFlow {versions}; "
            f"TensorFlow {tf.__version__} is installed"
            f"{' and has none' if original is None else ''}. Install one of those: "
            f"pip install 'tensorflow=={'.'.join(map(str, versions.first))}.*'"
        )
    if not _is_ours(original):
        setattr(owner, name, _mark(make(original)))


def _mark(function: Function) -> Function:
    vars(function)["_opwright_patch"] = True
    return function


def _is_ours(function: Function) -> bool:
    return "_opwright_patch" in getattr(function, "__dict__", {})
