"""Which ops TensorFlow's public functions run: each is called, and its ops recorded.

The examples of its docstring call a function. One without examples is tried with the
arguments of `_values`. Two calls may run different ops: `tf.linalg.matmul` runs MatMul
or BatchMatMulV2.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial, wraps
from itertools import islice, product
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

#: A call's distinct ops, in the order in which they run.
Way = tuple[str, ...]

#: What stands for the arguments, and for their conversion.
_ARGUMENTS = {"Const", "Placeholder", "ReadVariableOp"}
#: Seconds for an example, and for one call of a function without examples.
_TIMEOUT = 4
#: How many lists of arguments a function is tried with.
_TRIES = 1000
#: How many ways a function keeps, of those that its examples show.
_WAYS = 4


class Recorder:
    """The ops that each wrapped function runs, by the function's name."""

    def __init__(self) -> None:
        self.ways: dict[str, list[Way]] = {}
        self._running: list[str] | None = None
        op_callbacks.add_op_callback(self._ran)

    def has_ops(self, name: str) -> bool:
        return any(self.ways.get(name, ()))

    def close(self) -> None:
        op_callbacks.remove_op_callback(self._ran)

    def _ran(self, op_type: str | bytes, *_: object, **__: object) -> None:
        if self._running is not None:
            name = op_type if isinstance(op_type, str) else op_type.decode()
            self._running.append(name)

    def wrapped(self, names: Sequence[str], function: Callable[..., Any]) -> Any:
        """`function`, which records its outermost calls under all of `names`."""

        @wraps(function)
        def recorded(*arguments: Any, **keywords: Any) -> Any:
            # A function that is given runs ops of its own.
            given = (*arguments, *keywords.values())
            if self._running is not None or any(map(inspect.isroutine, given)):
                return function(*arguments, **keywords)
            self._running = []
            try:
                result = function(*arguments, **keywords)
                way = tuple(dict.fromkeys(self._running))
            finally:
                self._running = None
            for name in names:
                self.ways.setdefault(name, []).append(way)
            return result

        return recorded


def ways(
    functions: Mapping[str, Callable[..., Any]], known: Set[str]
) -> dict[str, list[Way]]:
    """How each function runs `known` ops, by its name; without those that run none."""
    aliases: dict[int, list[str]] = {}
    for name, function in functions.items():
        aliases.setdefault(id(function), []).append(name)
    distinct = {id(function): function for function in functions.values()}
    recorder = Recorder()
    here = os.getcwd()
    with contextlib.ExitStack() as stack:
        stack.callback(recorder.close)
        # Some examples write files.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.callback(os.chdir, here)
        os.chdir(folder)
        recorded = {
            key: recorder.wrapped(aliases[key], function)
            for key, function in distinct.items()
        }
        for name, function in functions.items():
            stack.enter_context(_replaced(name, recorded[id(function)]))
        for key, function in distinct.items():
            _run_examples(function, recorded[key])
        for key, function in recorded.items():
            _try(function, partial(recorder.has_ops, aliases[key][0]))
    kept = {name: _telling(several, known) for name, several in recorder.ways.items()}
    return {name: several for name, several in kept.items() if several}


def _telling(several: Iterable[Way], known: Set[str]) -> list[Way]:
    """The ways that differ, without those that do what another does and more.

    What is more converts an argument: `tf.identity` of a variable reads it first.
    """
    distinct: dict[frozenset[str], Way] = {}
    for way in several:
        left = tuple(op for op in way if op in known and op not in _ARGUMENTS)
        if left:
            distinct.setdefault(frozenset(left), left)
    least = [way for ops, way in distinct.items() if not any(o < ops for o in distinct)]
    return least[:_WAYS]


@contextlib.contextmanager
def _replaced(dotted: str, function: Any) -> Iterator[None]:
    owner: Any = tf
    *parents, last = dotted.split(".")[1:]
    for part in parents:
        owner = getattr(owner, part)
    before = getattr(owner, last)
    setattr(owner, last, function)
    try:
        yield
    finally:
        setattr(owner, last, before)


class _TooLongError(Exception):
    pass


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Stops what takes too long, prints nothing, and goes on after any error."""

    def stop(*_: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_TIMEOUT)
    silent = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(silent),
            contextlib.redirect_stderr(silent),
            contextlib.suppress(Exception, SystemExit),
        ):
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _run_examples(function: Callable[..., Any], recorded: Callable[..., Any]) -> None:
    """Runs the examples; some of them call the function by its bare name."""
    try:
        examples = doctest.DocTestParser().get_examples(function.__doc__ or "")
    except ValueError:
        return
    names = {function.__name__: recorded, "tf": tf, "np": np}
    for example in examples:
        with _bounded():
            exec(compile(example.source, "<example>", "single"), names)


def _values() -> list[Any]:
    """Arguments of most kinds, the likeliest first."""
    matrix = tf.constant([[4.0, 1.0], [1.0, 3.0]])
    return [
        matrix,
        tf.constant([1.0, 2.0]),
        1,
        tf.constant([0, 1]),
        0.5,
        tf.constant(["a", "b"]),
        [2, 2],
        tf.constant([True, False]),
        tf.cast(matrix, tf.complex64),
        tf.ones([1, 4, 4, 3]),
        [matrix, matrix],
        tf.constant("a"),
        tf.sparse.eye(2),
        tf.ones([4, 4, 3]),
        tf.float32,
        [1, 1, 1, 1],
        "SAME",
    ]


def _try(function: Callable[..., Any], has_ops: Callable[[], bool]) -> None:
    """Calls a function with one list of arguments after another until it runs an op."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [
        one for one in parameters if one.kind in kinds and one.default is one.empty
    ]
    # In a graph no kernel runs, which arguments that make no sense could break.
    with tf.Graph().as_default():
        for arguments in islice(product(_values(), repeat=len(required)), _TRIES):
            if has_ops():
                return
            with _bounded():
                function(*arguments)
