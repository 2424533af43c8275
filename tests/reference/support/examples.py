"""Examples of opdefs: doctests that are run, and what their ops were given and gave."""

from __future__ import annotations

import doctest
import importlib
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

import opwright
from opwright_codegen import naming
from opwright_codegen import shapes as notation
from opwright_codegen.model import Op
from opwright_notation.evaluation import Facts, Tensor
from opwright_notation.sizes import MisfitError, Row
from opwright_runtime._binding import dispatch
from opwright_runtime._binding.matching import match
from reference.support.inference import agrees, as_row, plain, shown_row
from support.equivalence.registry import is_removed, op_def, ops_with_cpu_kernel
from support.notation import fits, shapes
from support.places import own_folder

#: Lines of code, and how wide they are at most.
LINES = 6
WIDTH = 80
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Call:
    """One call of an op: inputs and attrs as they were given, outputs."""

    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[Any, ...]


@dataclass
class Outcome:
    """What became of an example.

    Attributes:
        failures: what doctest reports.
        wrong: where shapes are not those of the notation.
        calls: the op's own calls.
        tried: whether there was one, which may have been refused.
        determined: whether an output had a rank or size that the notation says.
    """

    failures: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    tried: bool = False
    determined: bool = False


def parsed(op: Op) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(op.example or "")


def in_form(op: Op) -> Iterator[str]:
    """What is wrong with how an example is written."""
    if op.example is None:
        yield "has no example"
        return
    examples = parsed(op)
    lines = [line for one in examples for line in one.source.splitlines()]
    if not 1 <= len(lines) <= LINES:
        yield f"its example has {len(lines)} lines of code, not 1 to {LINES}"
    wide = [row for row in op.example.splitlines() if len(row) > WIDTH]
    if wide:
        yield f"its example has a row of more than {WIDTH} columns: {wide[0]}"
    names = {naming.function_name(op.name), naming.class_name(op.name)}
    replacement = op.deprecation.replacement if op.deprecation is not None else None
    if replacement is not None:
        names |= {naming.function_name(replacement), naming.class_name(replacement)}
    words = {name for line in lines for name in _identifiers(line)}
    if not names & words:
        yield f"its example calls none of {', '.join(sorted(names))}"
    if runs(op) and not any(one.want for one in examples) and op.outputs:
        yield "its example shows no output"


def runs(op: Op) -> bool:
    """Whether the op has a kernel here that its example can use."""
    return op.name in ops_with_cpu_kernel()


def is_gone(op: Op) -> bool:
    return is_removed(op_def(op.name))


def run(op: Op) -> Outcome:
    """Runs the example of an op, in a namespace and a folder of its own."""
    outcome = Outcome()
    test = doctest.DocTest(parsed(op), namespace(op), op.name, op.source, 0, op.example)
    report = _Report(optionflags=FLAGS)
    with recorded(op, outcome), own_folder():
        tf.random.set_seed(0)
        report.run(test, out=lambda text: None, clear_globs=True)
    outcome.failures = report.problems
    _compare(op, outcome)
    return outcome


def output(op: Op) -> str:
    """The example with what it prints here."""
    rows: list[str] = []
    report = _Report(optionflags=FLAGS)
    examples = parsed(op)
    test = doctest.DocTest(examples, namespace(op), op.name, op.source, 0, op.example)
    with own_folder():
        tf.random.set_seed(0)
        report.run(test, out=lambda text: None, clear_globs=True)
    for number, one in enumerate(examples):
        lines = one.source.rstrip("\n").split("\n")
        rows += [
            f"{'>>>' if not at else '...'} {row}".rstrip()
            for at, row in enumerate(lines)
        ]
        got = report.got.get(number, "")
        rows += got.rstrip("\n").split("\n") if got.strip() else []
    return "\n".join(rows)


def namespace(op: Op) -> dict[str, Any]:
    """What an example may use without importing it."""
    cls = opwright.op_class(op.name)
    module = importlib.import_module(cls.__module__)
    function = naming.function_name(op.name)
    return {
        "np": np,
        "tf": tf,
        "opwright": opwright,
        "Scope": opwright.Scope,
        cls.__name__: cls,
        function: getattr(module, function),
    }


def source(op: Op) -> str:
    """The example as a function in a module, for type checkers."""
    function = naming.function_name(op.name)
    cls = opwright.op_class(op.name)
    imports = (
        "import numpy as np",
        "import tensorflow as tf",
        "import opwright",
        "from opwright import Scope",
        f"from opwright.{op.group} import {cls.__name__}, {function}",
    )
    rows = [row for one in parsed(op) for row in one.source.rstrip("\n").split("\n")]
    body = textwrap.indent("\n".join((*imports, *rows)), "    ")
    return f"def {function}_example() -> None:\n{body}\n"


class _Report(doctest.DocTestRunner):
    """Keeps what a test printed, and what was wrong."""

    def __init__(self, optionflags: int) -> None:
        super().__init__(verbose=False, optionflags=optionflags)
        self.problems: list[str] = []
        self.got: dict[int, str] = {}
        self._number = -1

    def report_start(self, out: Any, test: Any, example: Any) -> None:
        self._number += 1

    def report_success(self, out: Any, test: Any, example: Any, got: str) -> None:
        self.got[self._number] = got

    def report_failure(self, out: Any, test: Any, example: Any, got: str) -> None:
        self.got[self._number] = got
        self.problems.append(
            f"{example.source.strip()}\n  prints   {got.strip()!r}\n"
            f"  and not  {example.want.strip()!r}"
        )

    def report_unexpected_exception(
        self, out: Any, test: Any, example: Any, exc_info: Any
    ) -> None:
        error = exc_info[1]
        self.got[self._number] = f"Traceback (most recent call last):\n{error!r}"
        self.problems.append(f"{example.source.strip()}\n  raises   {error!r}")


@contextmanager
def recorded(op: Op, outcome: Outcome) -> Iterator[None]:
    """Writes down every call of an op."""
    cls: Any = opwright.op_class(op.name)
    module: Any = sys.modules[cls.__module__]
    execute, make = module.execute, dispatch.make
    count = len(op.inputs)

    def executed(name: str, given: Any, *rest: Any) -> Any:
        outcome.tried |= name == op.name
        result = execute(name, given, *rest)
        if name == op.name:
            attrs = dict(zip(rest[count::2], rest[count + 1 :: 2], strict=True))
            several = len(op.outputs) > 1
            outputs = tuple(result) if several else (result,)[: len(op.outputs)]
            outcome.calls.append(Call(rest[:count], attrs, outputs))
        return result

    def made(info: Any, scope: Any, inputs: Any, attrs: Any, error: Any) -> Any:
        outcome.tried |= info.name == op.name
        operation, outputs = make(info, scope, inputs, attrs, error)
        if info.name == op.name:
            outcome.calls.append(Call(tuple(inputs), dict(attrs), tuple(outputs)))
        return operation, outputs

    module.execute = executed
    dispatch.make = made
    try:
        yield
    finally:
        module.execute = execute
        dispatch.make = make


def _compare(op: Op, outcome: Outcome) -> None:
    """Holds the shapes of what an example did against the notation."""
    found, _ = notation.read(op)
    for call in outcome.calls:
        facts, tensors = facts_of(op, found, call)
        try:
            match(found.inputs, tensors, facts)
        except MisfitError as error:
            outcome.wrong.append(f"the example's inputs do not fit: {error}")
            continue
        for arg, value in zip(op.outputs, call.outputs, strict=True):
            text = found.outputs.get(arg.name)
            if text is None:
                continue
            values = value if arg.is_list else [value]
            for index, one in enumerate(values):
                at = index if arg.is_list else None
                actual: Row = as_row(tf.TensorShape(one.shape))
                try:
                    expected = shapes(text, facts, at)
                except MisfitError as error:
                    outcome.wrong.append(f"{arg.name} ran, although {error}")
                    continue
                if not any(fits(actual, row) for row in expected):
                    said = " or ".join(map(shown_row, expected))
                    outcome.wrong.append(
                        f"{arg.name} is {shown_row(actual)}, not {said}"
                    )
                elif all(agrees(actual, row) for row in expected):
                    outcome.determined = True


def facts_of(op: Op, found: notation.Shapes, call: Call) -> tuple[Facts, list[Tensor]]:
    """What shapes depend on in a call, and the tensors whose shape is known."""
    attrs: dict[str, Any] = {name: plain(value) for name, value in call.attrs.items()}
    tensors = []
    values: dict[str, Any] = dict.fromkeys(found.values)
    for arg, given in zip(op.inputs, call.inputs, strict=True):
        if arg.is_list:
            given = list(given)
            if arg.count is not None:
                attrs[arg.count] = len(given)
            else:
                attrs[arg.type_list_attr or ""] = ("",) * len(given)
        for index, one in enumerate(given if arg.is_list else [given]):
            has = hasattr(one, "shape")
            shape = tf.TensorShape(one.shape if has else np.shape(one))
            if shape.rank is not None:
                at = index if arg.is_list else None
                tensors.append(Tensor(arg.name, arg.name, tuple(shape.as_list()), at))
        if arg.name in values and not arg.is_list:
            values[arg.name] = _value(given)
    for attr in op.attrs:
        attrs.setdefault(attr.name, None)
    return Facts(attrs, values), tensors


def _value(given: Any) -> Any:
    """What an input holds, as far as that is known."""
    try:
        return plain(np.asarray(given).tolist())
    except (TypeError, ValueError, NotImplementedError):
        return None


def _identifiers(line: str) -> Sequence[str]:
    return "".join(c if c.isidentifier() or c.isdigit() else " " for c in line).split()
