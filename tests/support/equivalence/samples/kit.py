"""What the sample tables are written with."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import tensorflow as tf

from support.equivalence.calls import Call
from support.equivalence.modes import GRAPH, MODES, Logged, Program, Run, run
from support.equivalence.registry import has_refs, is_removed, op_def


def real(
    *shape: int, dtype: type = np.float32, low: float = -2, high: float = 2
) -> Any:
    """Numbers of either sign without a pattern, the same ones for the same shape."""
    return np.random.RandomState(7).uniform(low, high, shape).astype(dtype)


def positive(*shape: int, dtype: type = np.float32) -> Any:
    return real(*shape, dtype=dtype, low=0.2, high=3)


def integers(*shape: int, dtype: type = np.int32, low: int = 0, high: int = 9) -> Any:
    return np.random.RandomState(7).randint(low, high, shape).astype(dtype)


def complexes(*shape: int, dtype: type = np.complex64) -> Any:
    parts = real(2, *shape, dtype=np.float64)
    return (parts[0] + 1j * parts[1]).astype(dtype)


def tensor(value: Any, dtype: tf.DType | None = None) -> Any:
    """An input that must be a tensor of its own dtype before the call is made."""
    return partial(tf.constant, value, dtype)


@dataclass(frozen=True)
class Sample:
    """A program that calls an op or more, and the modes in which TensorFlow runs it."""

    name: str
    program: Program
    modes: tuple[str, ...] = MODES
    ordered: bool = True
    old: bool = False

    def run(self, call: Call, mode: str) -> list[Logged]:
        return run(self.program, call, mode, ordered=self.ordered, old=self.old)


@dataclass
class Samples:
    """A table of samples."""

    rows: list[Sample] = field(default_factory=list)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.rows)

    def each(self, ops: str, /, *inputs: Any, **arguments: Any) -> None:
        """Adds a call with the same arguments for each of `ops`."""
        for op in ops.split():
            self.add(op, *inputs, **arguments)

    def add(
        self,
        op: str,
        /,
        *inputs: Any,
        modes: tuple[str, ...] | None = None,
        **arguments: Any,
    ) -> None:
        """Adds a program of a single call."""

        def program(run: Run) -> None:
            run(op, *inputs, **arguments)

        definition = op_def(op)
        removed = is_removed(definition)
        if modes is None:
            modes = (GRAPH,) if removed or has_refs(definition) else MODES
        earlier = sum(row.name.split("/")[0] == op for row in self.rows)
        name = f"{op}/{earlier + 1}" if earlier else op
        self.rows.append(Sample(name, program, modes, old=removed))

    def program(self, **settings: Any) -> Callable[[Program], Program]:
        """Adds the decorated function, named after itself."""

        def add(program: Program) -> Program:
            self.rows.append(Sample(program.__name__, program, **settings))
            return program

        return add


def function(*inputs: tf.DType | tf.TensorSpec) -> Callable[[Callable[..., Any]], Any]:
    """Turns the decorated function into a value for an attr of kind func.

    It takes scalars of these dtypes or inputs of these specs, and is traced when it is
    first used.
    """
    specs = [
        each if isinstance(each, tf.TypeSpec) else tf.TensorSpec([], each)
        for each in inputs
    ]

    def decorate(python_function: Callable[..., Any]) -> Any:
        @cache
        def trace() -> Any:
            with tf.init_scope():
                function = tf.function(python_function, autograph=False)
                return function.get_concrete_function(*specs)

        return partial(trace)

    return decorate
