"""Makes bent calls of one op, and judges what is said of those that are refused.

Run by diagnosis.py, as worker.py is by main.py: `python -m fuzz.diagnosis_worker
DESCRIPTOR`.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Otherwise an allocation that fails is tried again for ten seconds.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf

from opwright_runtime import errors
from support.equivalence.calls import call_opwright_function

from . import bends
from .bends import Arguments, Bent
from .diagnosis import EXAMPLE
from .judging import judged, refusal
from .worker import Reports, limit_memory, serve

#: What a call may have beyond what the process has at first.
MOST_MEMORY = 4 << 30


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
