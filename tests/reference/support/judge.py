"""All that is asked of the shapes and the example of one op."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tensorflow as tf

import opwright
from opwright_codegen import load, naming
from opwright_codegen import shapes as notation
from opwright_codegen.model import Op
from opwright_notation.evaluation import Facts, Tensor
from opwright_notation.sizes import MisfitError
from opwright_runtime._binding.matching import match
from reference.support import examples, inference
from support.notation import shapes

#: Seconds that a call which does not fit may take.
TIMEOUT = 20


@dataclass(frozen=True)
class Judgement:
    """What the checks found of an op's shapes.

    Attributes:
        wrong: what is to be mended.
        hints: what the notation might say as well.
        counts: whether its shapes count as checked.
        by: what they were checked by.
        missing: why they do not count.
    """

    op: str
    wrong: tuple[str, ...]
    hints: tuple[str, ...]
    counts: bool
    by: str
    missing: str | None


def judge(op: Op, *, thorough: bool = False) -> Judgement:
    """Checks the shapes of an op, and runs its example where inference does not do.

    Args:
        thorough: whether to run it in any case, and to look for all that TensorFlow
            takes and the notation does not.
    """
    verdict = inference.check(op, misfits=inference.MISFITS if thorough else 0)
    wrong, by, missing = list(verdict.wrong), "inference", verdict.missing
    if op.unchecked is not None and verdict.wrong and verdict.missing is not None:
        wrong = []  # An attr that cannot be drawn to fit decides what is refused.
    if thorough or missing is not None:
        outcome = ran(op)
        wrong += [*outcome.failures, *outcome.wrong]
        if not wrong and missing is not None:
            determined = verdict.determined or outcome.determined
            refused = not verdict.constrained or verdict.refused[0] > 0
            if determined and not refused and outcome.calls:
                refused = _refused_elsewhere(op)
            if determined and refused:
                by, missing = "its example", None
    counts = missing is None and not wrong
    if op.unchecked is not None and counts:
        wrong.append("is 'unchecked', but its shapes can be checked: take that out")
    elif op.unchecked is None and not counts and not wrong and op.outputs:
        wrong.append(f"its shapes are not checked: {missing}; or say 'unchecked', why")
    return Judgement(
        op.name,
        tuple(dict.fromkeys(wrong)),
        tuple(verdict.lax),
        counts and op.unchecked is None,
        by,
        missing if op.outputs else "has no outputs",
    )


def ran(op: Op) -> examples.Outcome:
    """What became of an op's example; nothing, if it cannot run here."""
    if op.example is None or not examples.runs(op):
        return examples.Outcome()
    return examples.run(op)


# A kernel may end its process where it gets what does not fit, or wait forever. So the
# next one is forked from a process that has imported this, and called nothing.
_pool: ProcessPoolExecutor | None = None


def _refused_elsewhere(op: Op) -> bool:
    """Whether the kernel refuses the example's call with another shape."""
    global _pool
    if _pool is None:
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        _pool = ProcessPoolExecutor(1, context)
    try:
        return _pool.submit(refuses, op.source).result()
    except BrokenProcessPool:
        _pool = None
        return False


def refuses(source: str) -> bool:
    """Whether a kernel refuses what does not fit: its process may not survive that."""
    path = Path(source)
    op, _ = load.load_text(path.read_bytes(), path)
    assert op is not None
    outcome = examples.run(op)
    signal.alarm(TIMEOUT)
    found, _ = notation.read(op)
    try:
        return any(
            _refused(op, found, call, position, other)
            for call in outcome.calls
            if not _of_graph(call)
            for position, other in _changed(op, call)
        )
    finally:
        signal.alarm(0)


def _of_graph(call: examples.Call) -> bool:
    """Whether inputs are of a graph, which is gone: they cannot be given once more."""
    return any(map(tf.is_symbolic_tensor, tf.nest.flatten(list(call.inputs))))


def _changed(op: Op, call: examples.Call) -> Iterator[tuple[int, Any]]:
    """Inputs of other shapes, made of those that were given."""
    for position, (arg, given) in enumerate(zip(op.inputs, call.inputs, strict=True)):
        if not arg.is_list:
            yield from ((position, other) for other in _reshaped(given))
        elif len(given):
            for other in _reshaped(given[0]):
                yield position, [other, *given[1:]]


def _reshaped(given: Any) -> Iterator[tf.Tensor]:
    if tf.is_symbolic_tensor(given):
        return
    tensor = tf.convert_to_tensor(given)
    if tensor.shape.rank is None or not tf.is_tensor(tensor):
        return
    yield tf.stack([tensor, tensor])
    if tensor.shape.rank:
        yield tf.concat([tensor, tensor], 0)
        yield tf.concat([tensor, tensor], -1)
        if tensor.shape[0]:
            yield tensor[0]


def _refused(
    op: Op, found: notation.Shapes, call: examples.Call, position: int, other: Any
) -> bool:
    inputs = [*call.inputs]
    inputs[position] = other
    changed = examples.Call(tuple(inputs), call.attrs, call.outputs)
    facts, tensors = examples.facts_of(op, found, changed)
    if _fits(op, found, facts, tensors):
        return False
    cls: Any = opwright.op_class(op.name)
    module = importlib.import_module(cls.__module__)
    function = getattr(module, naming.function_name(op.name))
    attrs = {
        naming.argument(attr.name): call.attrs[attr.name]
        for attr in op.given
        if call.attrs.get(attr.name) is not None
    }
    names = [naming.argument(arg.name) for arg in op.inputs]
    try:
        function(**dict(zip(names, inputs, strict=True)), **attrs)
    except Exception:
        return True
    return False


def _fits(op: Op, found: notation.Shapes, facts: Facts, tensors: list[Tensor]) -> bool:
    try:
        match(found.inputs, tensors, facts)
        for arg in op.outputs:
            if arg.name in found.outputs:
                shapes(found.outputs[arg.name], facts, 0)
    except MisfitError:
        return False
    return True
