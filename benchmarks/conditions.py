"""What the conditions of an op, `requires`, add to an eager call.

Times the function `_holds` of each generated module on the arguments that the op's
example gives, as tensors. The CPU time of the calling thread counts, the least of
several rounds, in which all ops take turns. The target is for conditions on shapes and
attrs. Conditions on the contents of inputs, or on files, take time for what they read.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from types import CodeType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(ROOT / name) for name in ("runtime", "generated", "codegen", "tests")
]

import tensorflow as tf
from results import Recorder, add_option
from rich.console import Console
from rich.progress import track
from rich.table import Table

import opwright
from opwright_codegen.helpers import OF_FUNCTION
from opwright_notation.conditions import (
    HOLDS,
    JOINT,
    OF_EQUATIONS,
    PROPERTIES,
    TABLE,
    THREADS,
)

# A module of the tests, which type checkers do not find from here.
ending_calls: Any = import_module("generated.support.ending_calls")

#: The most that conditions may cost that read no contents of inputs, in seconds.
TARGET = 2e-6
#: Functions of an equation or of shapes alone.
_OF_SHAPES = OF_EQUATIONS | {"subscripts", "handles"}
_OF_VALUES = {name for name, one in PROPERTIES.items() if one.of_values}
_READERS = {*JOINT, *_OF_VALUES, HOLDS, TABLE, THREADS, "held", "shards"} - _OF_SHAPES
#: The functions in conditions that read the contents of an input, what a handle holds
#: or the folder of a file, or run another op.
READERS = {OF_FUNCTION[name] for name in _READERS}
CALLS = 500
SHOWN = 25


@dataclass(frozen=True)
class Case:
    """The check of an op's conditions."""

    call: Callable[[], object]
    reads: bool  # Whether it reads contents of inputs, or files.


def cases() -> Iterator[tuple[str, Case]]:
    """The ops with conditions whose example calls their function."""
    for name in opwright.op_names():
        cls = opwright.op_class(name)
        holds = getattr(sys.modules[cls.__module__], "_holds", None)
        if holds is None:
            continue
        with ending_calls.own_folder():
            function, _, calls = ending_calls.run_example(name)
        if calls and (values := _values(cls, function, holds, calls[0])) is not None:
            yield name, Case(partial(holds, *values), _reads(holds.__code__))


def _values(
    cls: Any, function: Any, holds: Any, given: dict[str, Any]
) -> list[Any] | None:
    """The arguments of `holds` in a call, or None if it does not hold for them."""
    parameters = inspect.signature(function).parameters
    lists = {
        cls.PYTHON_NAMES.get(arg.name, arg.name): arg.is_list
        for arg in cls.op_def.inputs
    }
    values = []
    for name in inspect.signature(holds).parameters:
        if name not in parameters:
            return None
        value = given.get(name, parameters[name].default)
        if name in lists:
            value = [*map(_tensors, value)] if lists[name] else _tensors(value)
        values.append(value)
    return values if holds(*values) else None


def _tensors(value: Any) -> Any:
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError):
        # The arrays of a list may have several shapes.
        return [*map(_tensors, value)] if isinstance(value, list) else value


def _reads(code: CodeType) -> bool:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return not READERS.isdisjoint(code.co_names) or any(map(_reads, inner))


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call, without those of a call that does nothing."""
    turns = range(CALLS)
    began = time.thread_time()
    for _ in turns:
        call()
    between = time.thread_time()
    for _ in turns:
        _nothing()
    return (between - began - (time.thread_time() - between)) / CALLS


def _nothing() -> None:
    pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--check", action="store_true", help="fail if the target is not reached"
    )
    add_option(parser)
    options = parser.parse_args()
    os.chdir(tempfile.mkdtemp())
    found = dict(cases())
    times: dict[str, list[float]] = {name: [] for name in found}
    console = Console(stderr=True)
    for _ in track(range(options.rounds), "Timing", console=console, transient=True):
        for name, case in found.items():
            times[name].append(timed(case.call))
    least = {name: min(each) for name, each in times.items()}
    recorder = Recorder("conditions", options.record)
    slow = 0
    for reads, what in (
        (False, "shapes and attrs"),
        (True, "contents of inputs, and files"),
    ):
        names = [name for name, case in found.items() if case.reads == reads]
        names.sort(key=lambda name: -least[name])
        over = sum(least[name] > TARGET for name in names)
        middle = median(least[name] for name in names) * 1e6
        title = f"{what}: {len(names)} ops, median {middle:.2f} us, {over} over 2 us"
        table = Table("op", "us", title=title)
        for name in names[:SHOWN]:
            table.add_row(name, f"{least[name] * 1e6:.2f}")
            recorder.add(name, what, {"opwright": times[name]})
        Console().print(table)
        slow += 0 if reads else over
    recorder.save()
    return 1 if options.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
