"""Makes bent calls of one op, and judges what is said of those that are refused.

Run by diagnosis.py, as worker.py is by main.py: `python -m fuzz.diagnosis_worker
DESCRIPTOR`.
"""

from __future__ import annotations

import json
import os
import random
import time
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
from .diagnosis import EXAMPLE
from .worker import Reports, limit_memory, serve

#: What a call may have beyond what the process has at first.
MOST_MEMORY = 4 << 30

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
    if isinstance(value, bends.Plain):
        return repr(value.value)[:100]
    if not isinstance(value, np.ndarray):
        return errors.repr_short(value)
    return f"{value.dtype}{list(value.shape)}" + (
        f" {value.tolist()}" if value.size <= 8 else ""
    )


def obey(command: Mapping[str, Any], report: Reports) -> None:
    os.chdir(command["folder"])  # Where files go.
    tf.constant(0)  # What TensorFlow needs once is no call's own.
    limit_memory(MOST_MEMORY)
    end = time.monotonic() + command["seconds"]
    names, places = command["ops"], command["each"] + 1
    op, first = divmod(command["first"], places)
    for number in range(op, len(names)):
        if time.monotonic() > end:
            return
        calls = range(max(first, 1), places)
        make_calls(names[number], number * places, calls, command["seed"], report)
        first = 0


def make_calls(name: str, place: int, calls: range, seed: int, report: Reports) -> None:
    """Makes the calls of one op, whose example has the number `place`."""
    report("s", place)
    report("c", 0, name, "eager", "none")
    # Called a second time, an op may wait for others, and is ended.
    fitting = [one for one in bends.examples(name) if is_taken(name, one)]
    report("r", EXAMPLE)
    report("d")
    retyped: dict[str, bool] = {}
    for number in calls if fitting else ():
        report("s", place + number)
        drawing = random.Random(f"{seed} {name} {number}")
        at = drawing.randrange(len(fitting))
        other = bends.retyped(bends.info_of(name), fitting[at], drawing)
        key = f"{at} {dtypes(other)}"
        if key not in retyped:
            report("c", number, name, "eager", "none")
            retyped[key] = is_taken(name, other)
        bent = bends.draw(name, other if retyped[key] else fitting[at], drawing)
        report(
            "c", number, name, bent.way, ",".join({*dtypes(bent.arguments)}) or "none"
        )
        try:
            outcome, why, words = judged(bent)
        except Exception as error:
            outcome, why, words = "unjudged", f"unjudged, {error!r}", ""
        if why is not None:
            told = f"{why}: {words[:400]} <- {bent.way}, {described(bent)[:600]}"
            report("f", json.dumps([number, "false", told]))
        report("r", outcome)
        report("d")


def dtypes(arguments: Arguments) -> list[str]:
    """Of the tensors among the arguments, in their order."""
    flat = tf.nest.flatten([*arguments.values()])
    return [one.dtype.name for one in flat if isinstance(one, np.ndarray)]


def is_taken(name: str, arguments: Arguments) -> bool:
    bent = Bent(name, arguments, arguments, "eager")
    return refusal(call_opwright_function, bent, arguments) is None


if __name__ == "__main__":
    tf.constant  # noqa: B018  Loaded before the first fork.
    serve(obey)
