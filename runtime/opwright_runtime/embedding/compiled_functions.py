"""Functions with `jit_compile=True` that use tables of SparseCores.

XLA compiles such a function on a TPU. Here the tables are variables on the host's
device that one op updates in place, which XLA's code cannot do. So the function runs as
it does without `jit_compile`. Functions that it calls are still compiled if they use no
tables.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from opwright_runtime._internals import in_xla_context, ops
from opwright_runtime._patches import wrap_function_creation

Function: TypeAlias = Callable[..., Any]

_MUST_COMPILE = "_XlaMustCompile"  # The attribute of a function with jit_compile=True.
_with_tables: weakref.WeakSet[Any] = weakref.WeakSet()  # Graphs of functions.


def adapt_compiled_functions() -> None:
    """Makes TensorFlow leave functions uncompiled that `keep_from_xla` names."""
    wrap_function_creation(_checked)


def keep_from_xla() -> None:
    """Keeps XLA from compiling the functions that are being traced.

    Does nothing if none of them has `jit_compile=True`.
    """
    graph = ops.get_default_graph()
    if not in_xla_context(graph):
        return
    while graph is not None:
        _with_tables.add(graph)
        graph = getattr(graph, "outer_graph", None)


def is_kept_from_xla(graph: object) -> bool:
    """Whether the function of a graph uses tables, so that XLA does not compile it."""
    return graph in _with_tables


def _checked(create: Function) -> Function:
    @functools.wraps(create)
    def from_func_graph(
        graph: Any,
        function_type: object,
        attrs: Mapping[str, object] | None,
        *args: object,
        **kwargs: object,
    ) -> Any:
        if attrs and attrs.get(_MUST_COMPILE) and is_kept_from_xla(graph):
            attrs = {**attrs, _MUST_COMPILE: False}
            warnings.warn(
                f"TPUEmbeddingV2 is used in the tf.function {graph.name!r}, which has "
                "jit_compile=True. XLA does not compile this function here, because it "
                "cannot reach the tables. The results are the same. To compile dense "
                "layers, put jit_compile=True on a function of the activations.",
                stacklevel=2,
            )
        return create(graph, function_type, attrs, *args, **kwargs)

    return from_func_graph
