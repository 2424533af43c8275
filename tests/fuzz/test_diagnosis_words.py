"""What errors say of bent calls is true; and the judge of that notices what is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpInputError
from opwright_runtime import errors
from support.equivalence.calls import call_tensorflow

from .bends import DTYPES, Bent
from .claims import false
from .diagnosis import names, tally
from .supervisor import processor_time

# Ops that are called in every run, in addition to those of the seed.
ALWAYS = [
    "AddV2",
    "BiasAdd",
    "ConcatV2",
    "Cumsum",
    "FloorDiv",
    "MatMul",
    "StridedSlice",
]


@pytest.mark.rotating
def test_bent_calls_are_refused_in_true_words() -> None:
    chosen = [*names(seed=0)[:30], *ALWAYS]  # The last ones first.
    found = tally(chosen, calls=20 * len(chosen), seed=0, jobs=1, seconds=30)
    assert not found.false, "\n".join(one.words for one in found.false)
    assert found.outcomes["OpInputError"] > 0
    assert found.outcomes["OpInputError, of a number"] > 0
    assert found.outcomes["ran"] > 0
    assert {"eager", "graph"} == found.ways.keys()
    assert set(DTYPES) <= found.dtypes.keys()


def answer(bent: Bent) -> Any:
    def answered(arguments: Any) -> str | None:
        try:
            call_tensorflow(bent.op, arguments)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            return str(error)
        return None

    return answered


def product(a: tuple[int, ...], b: tuple[int, ...]) -> Bent:
    given = {"a": np.ones(a, np.float32), "b": np.ones(b, np.float32)}
    fitting = {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 2), np.float32)}
    return Bent("MatMul", given, fitting, "eager")


def said(words: str, argument: str = "b", **fields: Any) -> errors.OpError:
    text = f"MatMul: {words}"
    return errors.make(OpInputError, "MatMul", text, argument=argument, **fields)


@pytest.mark.parametrize(
    "words",
    [
        "b has 4 rows, a has 3 columns (k)",
        "b has 4 rows, not 3",
        "b has 4 rows, not the 3 that follow from a",
    ],
)
def test_false_true_words_pass(words: str) -> None:
    bent = product((2, 3), (4, 2))
    assert false(bent, said(words), answer(bent)) is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("b has 1 dimension, not 2", "does not have"),
        ("b has 5 rows, not 3", "does not have"),
        ("b has 4 rows, a has 4 columns (k)", "does not have"),
        ("b has 4 rows; it must be k n", "no known form"),
        ("b has 4 rows, not the 3 that follow from c", "no argument 'c'"),
        ("c has 4 rows, not 3", "does not have"),
    ],
)
def test_false_untrue_words_are_noticed(words: str, why: str) -> None:
    bent = product((2, 3), (4, 2))
    found = false(bent, said(words), answer(bent))
    assert found is not None
    assert why in found


def test_false_words_about_a_call_that_fits_are_noticed() -> None:
    bent = product((2, 3), (3, 2))
    found = false(bent, said("b has 3 rows, not 4"), answer(bent))
    assert found == "TensorFlow takes the call"


def test_false_words_that_change_nothing_are_noticed() -> None:
    """The value of an axis is refused, whatever the shape of `x` is."""
    given = {"x": np.int32([1, 2]), "axis": np.int32(7)}
    bent = Bent("Cumsum", given, {**given, "axis": np.int32(0)}, "eager")
    text = "Cumsum: x has 2 elements, not 1"
    error = errors.make(OpInputError, "Cumsum", text, argument="x")
    found = false(bent, error, answer(bent))
    assert found == "TensorFlow's answer does not depend on it"


def test_false_shape_that_fits_with_other_values_is_noticed() -> None:
    """Eagerly, TensorFlow reads axes of any shape. Here one is there twice."""
    given = {"input": np.ones((2, 2), bool), "reduction_indices": np.int32([[0, 0]])}
    fitting = {**given, "reduction_indices": np.int32([0, 1])}
    bent = Bent("All", given, fitting, "eager")
    text = "All: reduction_indices has 2 dimensions, not 0 or 1"
    error = errors.make(OpInputError, "All", text, argument="reduction_indices")
    found = false(bent, error, answer(bent))
    assert found == "TensorFlow takes the shape with other values"


@pytest.mark.rotating
def test_tally_goes_on_after_an_op_that_waits_for_ever() -> None:
    found = tally(["Recv", "AddV2"], calls=20, seed=0, jobs=1, seconds=300)
    assert found.deaths == {"hang": 1}
    assert found.ops == {"AddV2"}
    assert found.calls == 10


def test_processor_time_of_a_process_that_waits_for_a_processor_goes_on() -> None:
    """Two that are at work on one processor; either has half of it."""
    cpu = next(iter(os.sched_getaffinity(0)))
    code = f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    try:
        time.sleep(1)
        before, began = processor_time(both[0].pid), time.monotonic()
        time.sleep(2)
        passed = time.monotonic() - began
        assert processor_time(both[0].pid) - before > 0.8 * passed
    finally:
        for one in both:
            one.kill()
            one.wait()


def test_false_dtypes_are_held_against_the_tensor() -> None:
    bent = product((2, 3), (3, 2))
    wrong = said("b must be int32", given=tf.int64, allowed=(tf.int32,))
    assert "is float32, not int64" in (false(bent, wrong, answer(bent)) or "")
    allowed = said("b must be float32", given=tf.float32, allowed=(tf.float32,))
    assert "which is allowed" in (false(bent, allowed, answer(bent)) or "")
