"""Programs of op calls, and the three modes they run in.

A program is a function that calls ops through the `Run` it is given. It never fetches
anything: each call's outputs are logged, and the mode turns the log into arrays. So one
program runs unchanged in eager mode, in a graph and in a tf.function.
"""

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from support.equivalence.calls import Call
from support.equivalence.registry import op_def

EAGER, GRAPH, FUNCTION = "eager", "graph", "function"
MODES = (EAGER, GRAPH, FUNCTION)

# Handles differ from run to run, or cannot be fetched at all: what they stand for is
# compared through the ops that read it.
HANDLES = (tf.resource, tf.variant, tf.string._as_ref)

# The inputs that gradients are taken with respect to.
DIFFERENTIABLE = (
    tf.bfloat16,
    tf.half,
    tf.float32,
    tf.float64,
    tf.complex64,
    tf.complex128,
)

# Without graph optimizers, every op of a program reaches its kernel.
CONFIG = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True
CONFIG.graph_options.optimizer_options.opt_level = -1
CONFIG.operation_timeout_in_ms = 30_000

# A graph made by a TensorFlow that had not yet removed any op.
OLD_GRAPH = graph_pb2.GraphDef()
OLD_GRAPH.versions.producer = 1

Program = Callable[["Run"], None]

_names = itertools.count()
_directory = tempfile.TemporaryDirectory()


@dataclass
class Logged:
    """One call of a program: which op, which attrs were given, what came of it.

    The values leave out handles. Of opaque ones only dtypes and shapes count.
    """

    op: str
    attrs: frozenset[str]
    values: list[Any]
    opaque: bool


@dataclass
class Run:
    """One run of a program: makes its calls, one after the other, and logs them.

    `run.Name(...)` calls the op `Name`: its inputs in OpDef order or by name, its attrs
    by name. It gives the op's output, or a tuple of them. An argument that is a
    `functools.partial` is made when the call is.

    `run.opaque.Name(...)` is for an op whose values differ from run to run: only their
    dtypes and shapes are compared. `run.unread.Name(...)` is for an op whose outputs
    may not be there to be read.

    Attributes:
        call: makes the calls.
        ordered: whether each call waits for the one before it, in a graph too.
        tape: watches the inputs, where given.
        watched: what it watches.
        last: what the next call waits for.
    """

    call: Call
    ordered: bool = True
    are_opaque: bool = False
    are_unread: bool = False
    tape: tf.GradientTape | None = None
    log: list[Logged] = field(default_factory=list)
    watched: list[tf.Tensor] = field(default_factory=list)
    last: list[tf.Operation] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        """A directory that is empty when the run starts, the same one in every run."""
        return Path(_directory.name)

    @property
    def opaque(self) -> "Run":
        return replace(self, are_opaque=True)

    @property
    def unread(self) -> "Run":
        return replace(self, are_unread=True)

    def unique(self, name: str) -> str:
        """A name no other run has, for resources that outlive an eager run."""
        return f"{name}_{next(_names)}"

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if not op[0].isupper():
            raise AttributeError(op)
        return partial(self.__call__, op)

    def __call__(self, op: str, /, *inputs: Any, **arguments: Any) -> Any:
        names = [arg.name for arg in op_def(op).input_arg]
        arguments.update(zip(names, inputs, strict=False))
        for name, value in arguments.items():
            arguments[name] = tf.nest.map_structure(_made, value)
        if self.tape is not None:
            for name in set(names).intersection(arguments):
                arguments[name] = tf.nest.map_structure(self._watch, arguments[name])
        with tf.control_dependencies(self.last if self.ordered else []):
            called = self.call(op, arguments)
        outputs = tuple(called.outputs)
        if op == "VarHandleOp" and self.tape is not None:
            # The handle stands for the variable.
            self.tape.watch(outputs[0])
            self.watched.append(outputs[0])
        self.last[:] = [called.operation] if called.operation is not None else []
        values = [] if self.are_unread else self._values(outputs)
        attrs = frozenset(arguments).difference(names)
        self.log.append(Logged(op, attrs, values, self.are_opaque))
        return outputs[0] if len(outputs) == 1 else outputs or None

    def _watch(self, value: Any) -> Any:
        if getattr(value, "dtype", None) not in DIFFERENTIABLE:
            return value
        tensor = tf.convert_to_tensor(value)
        self.tape.watch(tensor)
        self.watched.append(tensor)
        return tensor

    def _values(self, outputs: Any) -> list[tf.Tensor]:
        values = [v for v in tf.nest.flatten(outputs) if v.dtype not in HANDLES]
        for index, value in enumerate(values):
            if value.dtype._is_ref_dtype:
                # Copied now, before later calls change what it refers to.
                with tf.control_dependencies(self.last if self.ordered else []):
                    values[index] = tf.raw_ops.DeepCopy(x=value)
                self.last[:] = [values[index].op]
        return values


def run(
    program: Program, call: Call, mode: str, *, ordered: bool = True, old: bool = False
) -> list[Logged]:
    """Runs a program and gives its log, with arrays for tensors.

    A graph's ops run in the program's order unless `ordered` is false, which loops of
    Enter and Exit need. In an `old` graph, removed ops can still be built.
    """
    with fresh_start():
        if mode == EAGER:
            log, values = _run_eagerly(program, call)
        elif mode == GRAPH:
            log, values = _run_in_graph(program, call, ordered, old)
        else:
            log, values = _run_in_function(program, call, ordered)
    rest = iter(values)
    return [
        replace(each, values=[_as_array(next(rest)) for _ in each.values])
        for each in log
    ]


def _run_eagerly(program: Program, call: Call) -> tuple[list[Logged], list[Any]]:
    run = Run(call)
    program(run)
    return run.log, _values(run.log)


def _run_in_graph(
    program: Program, call: Call, ordered: bool, old: bool
) -> tuple[list[Logged], list[Any]]:
    with tf.Graph().as_default() as graph:
        if old:
            tf.import_graph_def(OLD_GRAPH, name="")
        run = Run(call, ordered)
        program(run)
        with tf.compat.v1.Session(graph=graph, config=CONFIG) as session:
            values, _ = session.run([_values(run.log), run.last])
    return run.log, values


def _run_in_function(
    program: Program, call: Call, ordered: bool
) -> tuple[list[Logged], list[Any]]:
    log: list[Logged] = []

    @tf.function(autograph=False)
    def function() -> list[tf.Tensor]:
        run = Run(call, ordered, log=log)
        program(run)
        with tf.control_dependencies(run.last):
            return [tf.identity(value) for value in _values(log)]

    return log, function()


def _made(argument: Any) -> Any:
    return argument() if isinstance(argument, partial) else argument


def _values(log: list[Logged]) -> list[Any]:
    return [value for each in log for value in each.values]


@contextmanager
def fresh_start() -> Iterator[None]:
    """An empty directory, and random kernels that start over."""
    shutil.rmtree(_directory.name, ignore_errors=True)
    Path(_directory.name).mkdir()
    tf.random.set_seed(1)
    yield


def _as_array(value: Any) -> np.ndarray:
    # A session gives a scalar string as bytes, eager mode as an array of objects.
    return np.asarray(value, object if isinstance(value, bytes) else None)
