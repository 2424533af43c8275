"""Whether gradients through opwright are those through TensorFlow's wrappers."""

import traceback
from dataclasses import dataclass
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from support.equivalence.calls import Call, call_tensorflow
from support.equivalence.modes import DIFFERENTIABLE, EAGER, Program, Run, fresh_start
from support.equivalence.results import CALLS, same
from support.equivalence.samples import sample_named


@dataclass(frozen=True)
class Gradients:
    """The gradients of all outputs of a program with respect to its inputs.

    Attributes:
        values: by input; None where TensorFlow knows no way back from the outputs.
        ran: the ops of the program.
        asked: the ops whose entry in the gradient registry was asked on the way.
    """

    values: list[np.ndarray | None]
    ran: frozenset[str]
    asked: frozenset[str]


@dataclass(frozen=True)
class Comparison:
    """The ops that gradients were taken of, and how opwright's differ, if they do.

    No op, where TensorFlow has no gradient for a sample.
    """

    ran: frozenset[str]
    asked: frozenset[str]
    difference: str | None


def compare_gradients(name: str, mode: str) -> Comparison:
    """Takes the gradients of the sample of that name through both."""
    program = sample_named(name).program
    expected = _attempt(program, call_tensorflow, mode)
    actual = _attempt(program, CALLS[mode], mode)
    if isinstance(expected, Exception):
        # An error of opwright is also one of the kind that TensorFlow raises.
        alike = isinstance(actual, type(expected))
        unlike = None if alike else f"{expected!r} and {actual!r}"
        return Comparison(frozenset(), frozenset(), unlike)
    if isinstance(actual, Exception):
        unlike = "".join(traceback.format_exception(actual))
    else:
        unlike = difference(expected, actual)
    return Comparison(expected.ran, expected.asked, unlike)


def _attempt(program: Program, call: Call, mode: str) -> Gradients | Exception:
    try:
        return gradients(program, call, mode)
    except Exception as error:
        return error


def gradients(program: Program, call: Call, mode: str) -> Gradients:
    """Runs a program under a tape, and gives its gradients.

    The gradients that come in from above are the same for outputs of the same shape.
    """
    known: list[bool] = []
    ran: set[str] = set()

    def body() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            run = Run(call, tape=tape)
            program(run)
        targets = [
            value
            for each in run.log
            for value in each.values
            if value.dtype in DIFFERENTIABLE
        ]
        upstream = [_upstream(target) for target in targets]
        found = tape.gradient(targets, run.watched, output_gradients=upstream)
        ran.update(each.op for each in run.log)
        known[:] = [gradient is not None for gradient in found]
        return [tf.convert_to_tensor(each) for each in found if each is not None]

    registry = ops.gradient_registry
    lookup = type(registry).lookup
    with (
        fresh_start(),
        mock.patch.object(
            type(registry), "lookup", autospec=True, side_effect=lookup
        ) as looked_up,
    ):
        made = body() if mode == EAGER else tf.function(body, autograph=False)()
    arrays = iter(np.asarray(each) for each in made)
    return Gradients(
        [next(arrays) if each else None for each in known],
        frozenset(ran),
        frozenset(
            name for (asked, name), _ in looked_up.call_args_list if asked is registry
        ),
    )


def _upstream(target: tf.Tensor) -> tf.Tensor:
    size = tf.size(target)
    steps = tf.range(1, size + 1) / (size + 1)
    return tf.cast(tf.reshape(steps + 0.5, tf.shape(target)), target.dtype)


def difference(expected: Gradients, actual: Gradients) -> str | None:
    """Says what differs first between two programs' gradients, if anything does."""
    if (expected.ran, expected.asked) != (actual.ran, actual.asked):
        return f"gradients of other ops: {expected} and {actual}"
    for index, (a, b) in enumerate(zip(expected.values, actual.values, strict=True)):
        alike = a is b if a is None or b is None else same(a, b)
        if not alike:
            return f"gradient {index}: {a!r} and {b!r}"
    return None
