"""Calls ops with integers that differ by 2**32, and says where TensorFlow ignores that.

Run by truncation.py, as worker.py is by main.py: `python -m fuzz.truncation_worker
DESCRIPTOR`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Otherwise an allocation that fails is tried again for ten seconds.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf

from support.equivalence import calls
from support.equivalence.registry import op_def

from . import bends
from .bends import Arguments
from .diagnosis_worker import MOST_MEMORY
from .judging import tensors
from .truncation import PLACES, SEEDS
from .worker import Reports, limit_memory, serve

#: Elements of an input that is a scalar or a short vector, at most.
SHORT = 8
#: Elements of a data set that are compared, at most.
ELEMENTS = 5
PERIODS = (2**32, -(2**32))


@dataclass(frozen=True)
class Place:
    """One integer among the arguments of a call.

    Attributes:
        at: where it stands in its input or its list, flat; None of an attr that is one.
    """

    op: str
    name: str
    at: int | None
    arguments: Arguments

    @property
    def value(self) -> int:
        value = self.arguments[self.name]
        return int(value if self.at is None else np.ravel(value)[self.at])

    def with_value(self, value: int) -> dict[str, Any]:
        """The arguments with another integer there."""
        given = self.arguments[self.name]
        changed: Any = value
        if isinstance(given, np.ndarray):
            changed = given.copy()
            changed.flat[self.at or 0] = value
        elif self.at is not None:
            changed = [*given]
            changed[self.at] = value
        return {**self.arguments, self.name: changed}


def places(op: str, arguments: Arguments) -> Iterator[Place]:
    """The integers of 64 bits that a call may have, except seeds."""
    definition = op_def(op)
    types = {attr.name: attr for attr in definition.attr}
    for arg in definition.input_arg:
        value = arguments[arg.name]
        if arg.number_attr or arg.type_list_attr or not _is_short(value):
            continue
        if arg.name in SEEDS:
            continue
        shares = {arg.name}
        if arg.type_attr:
            allowed = types[arg.type_attr].allowed_values.list.type
            if allowed and tf.int64.as_datatype_enum not in allowed:
                continue
            shares = {
                one.name
                for one in definition.input_arg
                if one.type_attr == arg.type_attr
            }
        elif arg.type != tf.int64.as_datatype_enum:
            continue
        wide = {
            name: bends.each(arguments[name], lambda one: bends.cast(one, "int64"))
            for name in shares
        }
        for at in range(value.size):
            yield Place(op, arg.name, at, {**arguments, **wide})
    for attr in definition.attr:
        given = arguments.get(attr.name)
        if given is None or attr.name in SEEDS:
            continue
        if attr.type == "int":
            yield Place(op, attr.name, None, arguments)
        elif attr.type == "list(int)":
            for at in range(min(len(given), SHORT)):
                yield Place(op, attr.name, at, arguments)


def _is_short(value: Any) -> bool:
    is_integer = isinstance(value, np.ndarray) and value.dtype.kind in "iu"
    return is_integer and value.ndim <= 1 and value.size <= SHORT


def outcome(op: str, arguments: Arguments) -> Any:
    """What a call gives, as plain values; the class of its error if it is refused."""
    try:
        called = calls.call_tensorflow(op, tensors(arguments))
        return [
            bends.each(one, lambda tensor: plain(tensor, arguments))
            for one in called.outputs
        ]
    except Exception as error:
        return type(error).__name__


def plain(tensor: Any, arguments: Arguments) -> Any:
    """A tensor's dtype, shape and values; the elements of a data set."""
    if tensor.dtype == tf.variant and "output_types" in arguments:
        return elements(tensor, arguments)
    if tensor.dtype in (tf.resource, tf.variant):
        return tensor.dtype.name
    array = np.asarray(tensor)
    return (
        array.dtype.str,
        array.shape,
        array.tobytes() if array.dtype != object else [*array.ravel()],
    )


def elements(variant: Any, arguments: Arguments) -> Any:
    types, shapes = arguments["output_types"], arguments["output_shapes"]
    kind = {"output_types": types, "output_shapes": shapes}
    iterator = tf.raw_ops.AnonymousIterator(**kind)
    tf.raw_ops.MakeIterator(dataset=variant, iterator=iterator)
    found = []
    for _ in range(ELEMENTS):
        try:
            row = tf.raw_ops.IteratorGetNext(iterator=iterator, **kind)
        except tf.errors.OutOfRangeError:
            return [*found, "end"]
        found.append([plain(one, {}) for one in row])
    return found


def shape_alone(found: Any) -> Any:
    """An outcome without the values, of what is random."""
    if isinstance(found, list):
        return [shape_alone(one) for one in found]
    return found[:2] if isinstance(found, tuple) else found


def truncates(place: Place) -> str:
    """Whether 2**32 more or less is ignored: "truncated", "kept" or "unknown"."""

    def given(value: int) -> Any:
        return outcome(place.op, place.with_value(value))

    value = place.value
    first = given(value)
    if isinstance(first, str):
        return "unknown"
    again = given(value)
    seen: Callable[[Any], Any] = (lambda one: one) if first == again else shape_alone
    for period in PERIODS:
        if seen(given(value + period)) != seen(first):
            continue
        others = [one for one in (value + 1, value - 1, 0, 1, 2, 3) if one != value]
        near = [(seen(given(one)), seen(given(one + period))) for one in others]
        if any(one != other for one, other in near):
            continue
        # Where nothing depends on the integer, nothing is known.
        differs = any(one != seen(first) for one, _ in near)
        return "truncated" if differs else "unknown"
    return "kept"


def obey(command: Mapping[str, Any], report: Reports) -> None:
    os.chdir(command["folder"])  # Where files go.
    tf.constant(0)  # What TensorFlow needs once is no call's own.
    limit_memory(MOST_MEMORY)
    names, first = command["ops"], command["first"]
    for number in range(first // PLACES, len(names)):
        begin = number * PLACES
        report("s", begin)
        report("c", number, names[number], "bent", "good")
        found = [
            place
            for arguments in bends.examples(names[number])
            for place in places(names[number], arguments)
        ]
        report("r", "ran")
        report("d")
        for at, place in enumerate(found[: PLACES - 1], begin + 1):
            if at < first:
                continue
            report("s", at)
            report("c", at, f"{place.op}.{place.name}", "bent", "bad")
            report("r", truncates(place))
            report("d")


if __name__ == "__main__":
    tf.constant  # noqa: B018  Loaded before the first fork.
    serve(obey)
