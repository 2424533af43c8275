"""Makes bent calls of one op, and judges what is said of those that are refused.

Run by diagnosis.py, as worker.py is by main.py: `python -m fuzz.diagnosis_worker
DESCRIPTOR`.
"""

from __future__ import annotations

import json
import os
import random
import resource
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Otherwise an allocation that fails is tried again for ten seconds.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._binding import diagnosis
from support.equivalence.calls import call_opwright_function, call_tensorflow

from . import bends, claims
from .bends import Arguments, Bent
from .worker import Reports, serve

#: What a call may have beyond what the process has at first.
MOST_MEMORY = 4 << 30

Call = Callable[[str, Arguments], Any]


def refusal(call: Call, bent: Bent, arguments: Arguments) -> Exception | None:
    """What a call raises: run at once, or added to a function's graph."""
    given = tensors(arguments)
    if bent.way == "eager":
        try:
            call(bent.op, given)
        except Exception as error:
            return error
        return None
    raised: list[Exception] = []

    def body() -> None:
        try:
            call(bent.op, given)
        except Exception as error:
            raised.append(error)

    tf.function(body, autograph=False).get_concrete_function()
    return raised[0] if raised else None


def tensors(arguments: Arguments) -> dict[str, Any]:
    return {
        name: bends.each(
            value, lambda v: tf.constant(v) if isinstance(v, np.ndarray) else v
        )
        for name, value in arguments.items()
    }


def answer(bent: Bent, arguments: Arguments) -> str | None:
    """What TensorFlow's own wrapper says to a call; None if it takes it.

    What a graph takes, its kernel may still refuse.
    """
    error = refusal(call_tensorflow, bent, arguments)
    if error is None and bent.way == "graph":
        error = refusal(call_tensorflow, replace(bent, way="eager"), arguments)
    return None if error is None else str(error)


def judged(bent: Bent) -> tuple[str, str | None, str]:
    """What became of a call; what is wrong with that, if anything; in which words."""
    error = refusal(call_opwright_function, bent, bent.arguments)
    if error is None:
        claim = claimed(bent) if bent.way == "eager" else None
        return "ran", claim and "a rule that TensorFlow does not hold", claim or ""
    kind = type(error).__name__
    if not isinstance(error, errors.OpError):
        return kind, f"{kind}, no OpError", str(error)
    why = claims.false(bent, error, lambda arguments: answer(bent, arguments))
    if why is None and not has_handles(bent) and answer(bent, bent.arguments) is None:
        why = "TensorFlow takes the call"
    return kind, why, str(error)


def claimed(bent: Bent) -> str | None:
    """What would be said of the shapes in a call that TensorFlow takes."""
    info = bends.info_of(bent.op)
    inputs = [tensors(bent.arguments)[arg.name] for arg in info.inputs]
    names = {arg.name for arg in info.inputs}
    attrs = {n: value for n, value in bent.arguments.items() if n not in names}
    refused = tf.errors.InvalidArgumentError(None, None, "")
    found = diagnosis._FailedCall(info, inputs, attrs, None, refused).sizes()
    return None if found is None else str(found)


def has_handles(bent: Bent) -> bool:
    """Whether calls change what others meet."""
    info = bends.info_of(bent.op)
    return info.stateful or any(
        arg.dtype in (tf.resource, tf.variant) for arg in info.inputs
    )


def described(bent: Bent) -> str:
    return ", ".join(
        f"{name}={bends.each(value, word)}" for name, value in bent.arguments.items()
    )


def word(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return errors.repr_short(value)
    return f"{value.dtype}{list(value.shape)}" + (
        f" {value.tolist()}" if value.size <= 8 else ""
    )


def obey(command: Mapping[str, Any], report: Reports) -> None:
    name = command["op"]
    os.chdir(command["folder"])  # Where files go.
    shown = bends.examples(name)
    # A second time it may wait for others, and is ended.
    report("s", -1)
    report("c", -1, name, "bent", "good")
    fitting = [one for one in shown if is_taken(name, one)]
    report("d")
    if not fitting:
        return
    limit_memory()
    for number in range(command["first"], command["end"]):
        report("s", number)
        drawing = random.Random(f"{command['seed']} {name} {number}")
        chosen = drawing.choice(fitting)
        other = bends.retyped(bends.info_of(name), chosen, drawing)
        if not is_taken(name, other):
            other = chosen
        bent = bends.draw(name, other, drawing)
        report("c", number, name, "bent", "bad")
        try:
            outcome, why, words = judged(bent)
        except Exception as error:
            outcome, why, words = "unjudged", f"unjudged, {error!r}", ""
        if why is not None:
            told = f"{why}: {words[:400]} <- {bent.way}, {described(bent)[:600]}"
            report("f", json.dumps([number, "false", told]))
        report("r", outcome)
        report("d")


def is_taken(name: str, arguments: Arguments) -> bool:
    bent = Bent(name, arguments, arguments, "eager")
    return refusal(call_opwright_function, bent, arguments) is None


def limit_memory() -> None:
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    tf.constant  # noqa: B018  Loaded before the first fork.
    serve(obey)
