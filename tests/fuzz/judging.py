"""Judges bent calls: what opwright says of them, held against TensorFlow's answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._binding import diagnosis
from support.equivalence.calls import call_opwright_function, call_tensorflow

from . import bends, claims
from .bends import Arguments, Bent

Call = Callable[[str, Arguments], Any]


def refusal(call: Call, bent: Bent, arguments: Arguments) -> Exception | None:
    """What a call raises: run at once, or added to the graph of a function."""
    given = tensors(arguments)
    try:
        if bent.way == "eager":
            with tf.init_scope():
                call(bent.op, given)
        else:
            call(bent.op, given)
    except Exception as error:
        return error
    return None


def tensors(arguments: Arguments) -> dict[str, Any]:
    with tf.init_scope():
        return {name: bends.each(value, tensor) for name, value in arguments.items()}


def tensor(value: Any) -> Any:
    if isinstance(value, bends.Plain):
        return value.value
    return tf.constant(value) if isinstance(value, np.ndarray) else value


def answer(bent: Bent, arguments: Arguments) -> str | None:
    """What TensorFlow's own wrapper says to a call; None if it takes it.

    What a graph takes, its kernel may still refuse.
    """
    error = refusal(call_tensorflow, bent, arguments)
    if error is None and bent.way == "graph":
        error = refusal(call_tensorflow, replace(bent, way="eager"), arguments)
    return None if error is None else str(error)


Verdict = tuple[str, "str | None", str]


def judged(bent: Bent) -> Verdict:
    """What became of a call; what is wrong with that, if anything; in which words."""
    if bent.way == "eager":
        return judged_here(bent)
    found: list[Verdict] = []
    traced = tf.function(lambda: found.append(judged_here(bent)), autograph=False)
    traced.get_concrete_function()
    return found[0]


def judged_here(bent: Bent) -> Verdict:
    error = refusal(call_opwright_function, bent, bent.arguments)
    if error is None and bent.unheld:
        return "ran", "a number is cut", ""
    if error is None:
        claim = claimed(bent) if bent.way == "eager" else None
        return "ran", claim and "a rule that TensorFlow does not hold", claim or ""
    kind = type(error).__name__
    if not isinstance(error, errors.OpError):
        return kind, f"{kind}, no OpError", str(error)
    if bent.unheld:
        return "OpInputError, of a number", None, str(error)
    why = claims.false(bent, error, lambda arguments: answer(bent, arguments))
    if why is not None or has_handles(bent) or claims.is_refused_before(bent, error):
        return kind, why, str(error)
    if answer(bent, bent.arguments) is None:
        why = "TensorFlow takes the call"
    return kind, why, str(error)


def claimed(bent: Bent) -> str | None:
    """What would be said of the shapes in a call that TensorFlow takes."""
    found = misfit(bent)
    if found is None:
        return None
    # A kernel may return at an empty tensor, before it looks at others.
    blamed = claims.place(bent.op, found.argument or "")
    full = filled(bent.arguments, blamed.name if blamed else "")
    if full is not None and answer(bent, full) is not None:
        return None
    # A kernel may also return at a scalar; graphs refuse what inference compares.
    return None if is_refused_in_a_graph(bent) else str(found)


def is_refused_in_a_graph(bent: Bent) -> bool:
    """Whether TensorFlow's inference refuses a call."""
    found: list[Exception | None] = []
    call, built = call_tensorflow, replace(bent, way="graph")
    traced = tf.function(
        lambda: found.append(refusal(call, built, bent.arguments)), autograph=False
    )
    traced.get_concrete_function()
    return found[0] is not None


def filled(arguments: Arguments, blamed: str) -> Arguments | None:
    """The arguments without empty tensors, but for `blamed`; None if there are none."""
    others = {name: v for name, v in arguments.items() if name != blamed}
    if not any(map(is_empty, tf.nest.flatten([*others.values()]))):
        return None
    changed = {name: bends.each(v, with_elements) for name, v in others.items()}
    return {**arguments, **changed}


def is_empty(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not value.size


def with_elements(value: Any) -> Any:
    if not is_empty(value):
        return value
    for axis in range(value.ndim):
        value = bends.resized(value, axis, value.shape[axis] or 1)
    return value


def misfit(bent: Bent) -> errors.OpError | None:
    info = bends.info_of(bent.op)
    inputs = [tensors(bent.arguments)[arg.name] for arg in info.inputs]
    others = {arg.name for arg in info.inputs} | info.absent.keys()
    attrs = {n: value for n, value in bent.arguments.items() if n not in others}
    refused = tf.errors.InvalidArgumentError(None, None, "")
    return diagnosis._FailedCall(info, inputs, attrs, None, refused).sizes()


def has_handles(bent: Bent) -> bool:
    """Whether calls change what others meet, which a name may give them too."""
    info = bends.info_of(bent.op)
    return (
        info.stateful
        or any(attr.name == "shared_name" for attr in info.attrs)
        or any(arg.dtype in (tf.resource, tf.variant) for arg in info.inputs)
    )
