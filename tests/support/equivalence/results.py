"""Whether a sample gives the same through opwright as through TensorFlow's wrappers."""

import traceback
from dataclasses import dataclass

import numpy as np

from support.equivalence import calls
from support.equivalence.modes import EAGER, FUNCTION, GRAPH, Logged
from support.equivalence.samples import sample_named

# Functions call the classes through the functions that go with them.
CALLS = {
    EAGER: calls.call_opwright,
    GRAPH: calls.call_opwright,
    FUNCTION: calls.call_opwright_function,
}


@dataclass(frozen=True)
class Results:
    """What a sample calls, and how opwright's results differ from TensorFlow's.

    Attributes:
        given: by op, the attrs that were given to it.
        difference: None where nothing differs.
    """

    given: dict[str, set[str]]
    difference: str | None


def compare_results(name: str, mode: str) -> Results:
    """Runs the sample of that name through both."""
    sample = sample_named(name)
    expected = sample.run(calls.call_tensorflow, mode)
    given: dict[str, set[str]] = {}
    for call in expected:
        given.setdefault(call.op, set()).update(call.attrs)
    try:
        actual = sample.run(CALLS[mode], mode)
    except Exception:
        return Results(given, traceback.format_exc())
    return Results(given, difference(expected, actual))


def difference(expected: list[Logged], actual: list[Logged]) -> str | None:
    """Says what differs first between two logs; None where nothing does."""
    if [each.op for each in expected] != [each.op for each in actual]:
        return f"other calls: {expected} and {actual}"
    for number, (ours, theirs) in enumerate(zip(expected, actual, strict=True)):
        if len(ours.values) != len(theirs.values):
            counts = f"{len(ours.values)} and {len(theirs.values)}"
            return f"call {number}, {ours.op}: {counts} outputs"
        for index, (a, b) in enumerate(zip(ours.values, theirs.values, strict=True)):
            alike = same_kind(a, b) if ours.opaque else same(a, b)
            if not alike:
                return f"call {number}, {ours.op}, output {index}: {a!r} and {b!r}"
    return None


def same_kind(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Exact equality of dtype, shape and every element, NaN being equal to NaN."""
    if not same_kind(a, b):
        return False
    equal = a == b
    if a.dtype.kind not in "OSU":
        equal |= (a != a) & (b != b)
    return bool(np.all(equal))
