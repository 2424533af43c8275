"""The error for an op without a gradient. It names the op and a remedy.

TensorFlow looks up the gradient function when it differentiates, and a program may
register one at any time before. This module therefore reads the registry at that time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from opwright_runtime import errors
from opwright_runtime._internals import (
    gradient_function,
    gradient_registry,
    op_def_registry,
    ops,
)
from opwright_runtime._patches import (
    replace_gradient_function,
    wrap_gradient_lookup,
)

# A node of a graph, and the gradients of its outputs or inputs.
_Node: TypeAlias = Any
_Gradients: TypeAlias = Any
_Lookup: TypeAlias = Callable[[_Node], Callable[..., _Gradients]]

#: Backward ops of recurrent layers, which TensorFlow's own gradients add to graphs.
_RECURRENT = re.compile(r"CudnnRNNBackprop(V[23])?")


def explain_on_tapes() -> None:
    """Makes gradient tapes raise the error, also for ops that opwright did not run.

    A tape passes on only an op's name. So this module cannot tell which ops opwright
    ran. In graphs, the same holds for the backward ops of recurrent layers.
    """
    replace_gradient_function(_gradient_on_tape)
    wrap_gradient_lookup(_explained)


def _explained(lookup: _Lookup) -> _Lookup:
    """A lookup that gives recurrent backward ops a gradient that raises the error.

    TensorFlow replaces an error of the lookup itself.
    """

    def refuse(operation: _Node, *gradients: _Gradients) -> _Gradients:
        raise _missing(operation.type)

    def find(operation: _Node) -> Callable[..., _Gradients]:
        try:
            return lookup(operation)
        except LookupError:
            if operation is not None and _RECURRENT.fullmatch(operation.type):
                return refuse
            raise

    return find


def explain_in_graph(operation: Any) -> None:
    """Makes gradients in a graph raise the error, if `operation` has none yet."""
    if operation._gradient_function is None and not _is_registered(operation.type):
        operation._gradient_function = _gradient_in_graph


def _gradient_on_tape(op_name: str, *arguments: Any) -> Any:
    try:
        return gradient_function(op_name, *arguments)
    except LookupError:
        # A registered gradient may raise a LookupError itself.
        if _is_registered(op_name):
            raise
        raise _missing(op_name) from None


def _gradient_in_graph(operation: Any, *gradients: Any) -> Any:
    operation._gradient_function = None
    try:
        # TensorFlow looks up the op's name, or the name in `gradient_override_map`.
        function = ops.get_gradient_function(operation)
    except LookupError:
        operation._gradient_function = _gradient_in_graph
        raise _missing(operation.type) from None
    return None if function is None else function(operation, *gradients)


def _is_registered(op_name: str) -> bool:
    return op_name in gradient_registry.list()


def _missing(op_name: str) -> errors.OpError:
    if _RECURRENT.fullmatch(op_name):
        return errors.make(
            errors.OpGradientError,
            op_name,
            f"{op_name}: it computes a gradient, and has no gradient itself. Gradients "
            "of gradients and forward-mode differentiation of recurrent layers need "
            "plain ops: use_cudnn=False in a layer of Keras, or the model that "
            "opwright.convert.to_plain writes; tf.stop_gradient around the first "
            "gradient takes it for a constant",
        )
    others = [*_versions(op_name)]
    has = f"; {' and '.join(others)} has one" if others else ""
    computing = f"{op_name}Grad"
    if op_def_registry.get(computing) is not None:
        has += f"; {computing} computes it"
    from opwright_runtime import runs_on  # Only the error needs its data.

    if runs_on.is_known(op_name):
        whose = "TensorFlow registers no gradient of it"
        todo = (
            "call it within tf.custom_gradient, or register one: "
            f"tf.RegisterGradient({op_name!r})"
        )
    else:
        whose = "its library registers no gradient of it"
        todo = (
            f"register one, tf.RegisterGradient({op_name!r}), in a module that its "
            "package imports: opwright-codegen generate --gradients MODULE"
        )
    return errors.make(
        errors.OpGradientError,
        op_name,
        f"{op_name}: {whose}{has}. To differentiate it, {todo}; "
        "tf.stop_gradient around it takes it for a constant",
        allowed=tuple(others) or None,
    )


def _versions(op_name: str) -> Iterator[str]:
    """Other versions of an op that have a gradient, the latest first."""
    family = re.sub(r"V\d+\Z", "", op_name)
    same = re.compile(rf"{re.escape(family)}(?:V\d+)?")
    for name in sorted(gradient_registry.list(), key=lambda one: (len(one), one))[::-1]:
        if same.fullmatch(name) and gradient_registry.lookup(name) is not None:
            yield name
