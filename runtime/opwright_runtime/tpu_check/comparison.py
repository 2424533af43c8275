"""Whether a program gives the same values eagerly, in a graph and compiled by XLA."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from opwright_runtime.tpu_check.findings import Comparison, Difference, TpuCheckError
from opwright_runtime.tpu_check.lowering import graph_of

#: What kernels may differ by, relative to the largest value of a tensor.
TOLERANCES: Mapping[str, float] = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}
#: Of the narrow floats.
_COARSE = 0.25
#: XLA draws other random numbers.
_RANDOM = re.compile(
    r"Random|Multinomial|TruncatedNormal|Shuffle|Rng|Stochastic"
    r"|Stateful(Uniform|StandardNormal)"
)
#: Dtypes without values that can be compared.
_OPAQUE = ("resource", "variant", "string")

# A tensor, what holds tensors, or a graph: TensorFlow's own types are not known.
_Value: TypeAlias = Any
_Run = Callable[[], list[_Value]]


@dataclass(frozen=True)
class Program:
    """What is compared.

    Attributes:
        function: the program in Python; None for a SavedModel.
        concrete: its trace.
        args: example arguments of the function.
        kwargs: the same, by name.
        place: gives file and line of an op, and the text of the line.
    """

    function: Callable[..., _Value] | None
    concrete: _Value
    args: Sequence[_Value]
    kwargs: Mapping[str, _Value]
    place: Callable[[_Value], tuple[str | None, str | None]]


def compare(program: Program) -> Comparison:
    """Runs the program in each mode, and compares what it returns.

    Variables have their values again after each run.

    Raises:
        TpuCheckError: an example has no values.
    """
    given = _tensors(program)
    outputs = list(program.concrete.outputs)
    runs: dict[str, _Run] = {}
    if (function := program.function) is not None:
        runs["eager"] = partial(_eager, function, program.args, program.kwargs)
    runs["graph"] = lambda: _flat(_replayed(program, given, outputs, jit=False))
    runs["XLA"] = lambda: _flat(_replayed(program, given, outputs, jit=True))
    errors: dict[str, str | None] = {}
    values: dict[str, list[_Value]] = {}
    for mode, run in runs.items():
        with _kept(program.concrete.variables):
            try:
                values[mode], errors[mode] = run(), None
            except (tf.errors.OpError, ValueError, TypeError) as error:
                errors[mode] = _short(str(error))
    drawn = _drawn(program.concrete.graph)
    return Comparison(
        errors=errors,
        difference=_difference(program, given, values, drawn),
        random_outputs=sum(one.op in drawn for one in outputs),
    )


def _tensors(program: Program) -> list[tf.Tensor]:
    given = tf.nest.flatten([list(program.args), dict(program.kwargs)])
    if any(isinstance(one, (tf.TensorSpec, tf.TensorShape)) for one in given):
        raise TpuCheckError(
            "compare=True runs the program: give tensors or arrays as examples, in"
            " place of tf.TensorSpec and shapes"
        )
    passed = program.concrete.inputs
    count = len(passed) - len(program.concrete.captured_inputs)
    arrays = [one for one in given if tf.is_tensor(one) or isinstance(one, np.ndarray)]
    if len(arrays) != count:
        raise TpuCheckError(
            f"compare=True takes a tensor or array for each of the {count} inputs"
        )
    return [
        tf.convert_to_tensor(one, like.dtype)
        for one, like in zip(arrays, passed, strict=False)
    ]


def _eager(
    function: Callable[..., _Value],
    args: Sequence[_Value],
    kwargs: Mapping[str, _Value],
) -> list[_Value]:
    args, kwargs = tf.nest.map_structure(
        lambda one: tf.convert_to_tensor(one) if isinstance(one, np.ndarray) else one,
        (list(args), dict(kwargs)),
    )
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        made = function(*args, **kwargs)
    finally:
        tf.config.run_functions_eagerly(before)
    return _flat(tf.nest.flatten(made, expand_composites=True))


def _flat(tensors: Sequence[_Value]) -> list[_Value]:
    return [np.asarray(one) for one in tensors if one is not None]


def _replayed(
    program: Program, given: Sequence[tf.Tensor], wanted: Sequence[_Value], *, jit: bool
) -> list[tf.Tensor]:
    """The values of some tensors of the graph."""
    concrete = program.concrete
    graph_def = concrete.graph.as_graph_def()
    # XLA has no kernel of the placeholders, which the arguments replace.
    nodes = [node for node in graph_def.node if node.op != "Placeholder"]
    del graph_def.node[:]
    graph_def.node.extend(nodes)
    names = [one.name for one in wanted]
    placeholders = [one.name for one in concrete.inputs]

    def replay(*arguments: tf.Tensor) -> list[tf.Tensor]:
        graph = tf.compat.v1.get_default_graph()
        passed = [*arguments, *map(graph.capture, concrete.captured_inputs)]
        made: list[tf.Tensor] = tf.graph_util.import_graph_def(
            graph_def,
            input_map=dict(zip(placeholders, passed, strict=True)),
            return_elements=names,
            name="",
        )
        return made

    function = tf.function(replay, jit_compile=jit, autograph=False)
    return list(function(*given))


@contextmanager
def _kept(variables: Sequence[tf.Variable]) -> Iterator[None]:
    before = [one.read_value() for one in variables]
    try:
        yield
    finally:
        for one, value in zip(variables, before, strict=True):
            one.assign(value)


def _drawn(graph: _Value) -> set[_Value]:
    """The ops whose results random numbers decide."""
    found: set[_Value] = set()
    for op in graph.get_operations():
        called = [graph_of(graph, v.func.name) for v in op.node_def.attr.values()]
        if (
            _RANDOM.search(op.type)
            or any(tensor.op in found for tensor in op.inputs)
            or any(one is not None and _drawn(one) for one in called)
        ):
            found.add(op)
    return found


def _difference(
    program: Program,
    given: Sequence[tf.Tensor],
    values: Mapping[str, list[_Value]],
    drawn: set[_Value],
) -> Difference | None:
    """The first op that differs, between the first two modes whose outputs do."""
    outputs = program.concrete.outputs
    modes = list(values)
    for one, other in pairwise(modes):
        rows = list(zip(outputs, values[one], values[other], strict=False))
        if len(values[one]) != len(values[other]):
            continue
        for tensor, left, right in rows:
            if tensor.op in drawn:
                continue
            if (error := _error(left, right)) is not None:
                found = None
                if other == "XLA":
                    found = _first(program, given, drawn)
                return found or _made(program, tensor, (one, other), error)
    return None


def _first(
    program: Program, given: Sequence[tf.Tensor], drawn: set[_Value]
) -> Difference | None:
    """The first op whose values differ between the graph and XLA."""
    tensors = [
        tensor
        for op in program.concrete.graph.get_operations()
        if op.type not in ("Placeholder", "Const") and op not in drawn
        for tensor in op.outputs
        if tensor.dtype.name not in _OPAQUE
    ]
    with _kept(program.concrete.variables):
        plain = _flat(_replayed(program, given, tensors, jit=False))
    with _kept(program.concrete.variables):
        compiled = _flat(_replayed(program, given, tensors, jit=True))
    for tensor, left, right in zip(tensors, plain, compiled, strict=True):
        if (error := _error(left, right)) is not None:
            return _made(program, tensor, ("graph", "XLA"), error)
    return None


def _made(
    program: Program, tensor: _Value, modes: tuple[str, str], error: float
) -> Difference:
    where, code = program.place(tensor.op)
    allowed = _tolerance(tensor.dtype.name)
    return Difference(
        tensor.op.type, tensor.op.name, modes, error, allowed, where, code
    )


def _tolerance(dtype: str) -> float:
    return TOLERANCES.get(dtype, _COARSE if dtype.startswith("float8") else 0.0)


def _error(left: _Value, right: _Value) -> float | None:
    """The largest difference relative to the largest value; None if it is allowed."""
    if left.shape != right.shape:
        return float("inf")
    allowed = _tolerance(left.dtype.name)
    if not left.size or np.array_equal(left, right):
        return None
    if not allowed:
        changed = left.astype(np.float64) - right.astype(np.float64)
        return float(np.abs(changed).max() or 1.0)
    wide = np.complex128 if np.iscomplexobj(left) else np.float64
    left, right = left.astype(wide), right.astype(wide)
    finite = np.isfinite(left)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True) or not (
        np.isfinite(right[finite]).all()
    ):
        return float("inf")
    if not finite.any():
        return None
    largest: float = np.abs(left[finite]).max() or 1.0
    error = float(np.abs(left[finite] - right[finite]).max()) / largest
    return error if error > allowed else None


def _short(text: str) -> str:
    """The line of a message that says why; a graph's message has its place first."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("[[")]
    if not lines:
        return "no reason was given"
    line = lines[-1] if lines[0].startswith("Graph execution error") else lines[0]
    line = re.sub(r"\{\{\w*node [^}]*\}\}:? ?", "", line)
    return re.sub(r" ?\[Op:\w+\]( name:.*)?$", "", line).strip()
