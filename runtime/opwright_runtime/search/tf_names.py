"""Which ops TensorFlow's public functions call: data, read from its sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from opwright_runtime import errors

#: A function that calls more ops says little of each of them.
_TELLING = 4


@cache
def names() -> Mapping[str, tuple[str, ...]]:
    """Ops by public name: `tf.nn.softmax` -> Softmax."""
    text = Path(__file__).with_suffix(".json").read_text("utf-8")
    return {name: tuple(ops) for name, ops in json.loads(text).items()}


@cache
def callers() -> Mapping[str, tuple[str, ...]]:
    """Public names by op, of functions that do little else."""
    found: dict[str, list[str]] = {}
    for name, ops in names().items():
        for op in ops if len(ops) <= _TELLING else ():
            found.setdefault(op, []).append(name)
    return {op: tuple(several) for op, several in found.items()}


def ops_of(name: str) -> tuple[str, ...] | None:
    """The ops behind a name, which may lack its `tf.`; None if it is unknown."""
    name = name.strip().removeprefix("tensorflow.").removeprefix("tf.").rstrip("()")
    return names().get(f"tf.{name}")


def unknown(name: str) -> errors.OpError:
    """The error for a name that nothing is known of."""
    asked = name if name.startswith("tf.") else f"tf.{name}"
    close = get_close_matches(asked, names(), n=3)
    hint = f"; close to it: {', '.join(close)}" if close else ""
    return errors.make(
        errors.OpUnknownError,
        "for_tf",
        f"no function called {name!r} of TensorFlow's calls an op by itself{hint}; "
        "opwright.search() looks ops up by what they do",
        given=name,
        allowed=tuple(close) or None,
    )
