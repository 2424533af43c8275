"""What an op costs before TensorFlow runs it: eager calls, graph building, imports.

Compares opwright with tf.raw_ops and, for eager calls, with the bare fast path, as
TensorFlow's own module wraps it. All variants of a case run in turns within each round.
The CPU time of the calling thread counts, so other work of the machine hardly affects
it.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "runtime"), str(ROOT / "generated")]

import numpy as np
import tensorflow as tf
from results import Recorder, add_option
from rich.console import Console
from rich.table import Table

from opwright import Scope, TInt32, raw_ops
from opwright.array import ConcatV2, concat_v2
from opwright.dtypes import Cast, cast
from opwright.linalg import MatMul, mat_mul
from opwright.math import AddV2, add_v2
from opwright_runtime._internals import context, execute

OPTIONS = MatMul.Options(transpose_a=True)

#: The most of tf.raw_ops' overhead that classes and functions may have, eagerly, and of
#: its time, in a graph, on the geometric mean over the cases. None may take as long.
EAGER_TARGETS = {"class": 0.6, "function": 0.35, "raw op": 0.4}
GRAPH_TARGETS = {"class": 0.5, "function": 0.45, "raw op": 0.5}
IMPORT_TARGET_MS = 20.0


@dataclass(frozen=True)
class Case:
    """One op, made in five ways of a tensor, an index and a scope.

    Those of opwright are called as they are declared, tf.raw_ops by keyword, which it
    requires, and the functions likewise.
    """

    name: str
    bare: Callable[[Any, Any, Any], Any]
    raw: Callable[[Any, Any, Any], Any]
    ours: Mapping[str, Callable[[Any, Any, Any], Any]]


def bare_add(x: Any, index: Any, scope: Scope) -> Any:
    return execute(context._context, "AddV2", None, x, x)


def bare_concat(x: Any, index: Any, scope: Scope) -> Any:
    return execute(context._context, "ConcatV2", None, [x, x], index)


# fmt: off
def bare_mat_mul(x: Any, index: Any, scope: Scope) -> Any:
    return execute(
        context._context, "MatMul", None, x, x, "transpose_a", False,
        "transpose_b", False, "grad_a", False, "grad_b", False,
    )


def bare_transposed(x: Any, index: Any, scope: Scope) -> Any:
    return execute(
        context._context, "MatMul", None, x, x, "transpose_a", True,
        "transpose_b", False, "grad_a", False, "grad_b", False,
    )


def bare_cast(x: Any, index: Any, scope: Scope) -> Any:
    return execute(
        context._context, "Cast", None, x, "DstT", tf.int32, "Truncate", False
    )
# fmt: on


CASES = (
    Case(
        "AddV2: no attrs",
        bare_add,
        lambda x, i, s: tf.raw_ops.AddV2(x=x, y=x),
        {
            "class": lambda x, i, s: AddV2.create(s, x, x),
            "function": lambda x, i, s: add_v2(x=x, y=x),
            "raw op": lambda x, i, s: raw_ops.AddV2(x=x, y=x),
        },
    ),
    Case(
        "MatMul: four attrs",
        bare_mat_mul,
        lambda x, i, s: tf.raw_ops.MatMul(a=x, b=x),
        {
            "class": lambda x, i, s: MatMul.create(s, x, x),
            "function": lambda x, i, s: mat_mul(a=x, b=x),
            "raw op": lambda x, i, s: raw_ops.MatMul(a=x, b=x),
        },
    ),
    Case(
        "MatMul: one given",
        bare_transposed,
        lambda x, i, s: tf.raw_ops.MatMul(a=x, b=x, transpose_a=True),
        {
            "class": lambda x, i, s: MatMul.create(s, x, x, OPTIONS),
            "function": lambda x, i, s: mat_mul(a=x, b=x, transpose_a=True),
            "raw op": lambda x, i, s: raw_ops.MatMul(a=x, b=x, transpose_a=True),
        },
    ),
    Case(
        "ConcatV2: a list",
        bare_concat,
        lambda x, i, s: tf.raw_ops.ConcatV2(values=[x, x], axis=i),
        {
            "class": lambda x, i, s: ConcatV2.create(s, [x, x], i),
            "function": lambda x, i, s: concat_v2(values=[x, x], axis=i),
            "raw op": lambda x, i, s: raw_ops.ConcatV2(values=[x, x], axis=i),
        },
    ),
    Case(
        "Cast: a dtype",
        bare_cast,
        lambda x, i, s: tf.raw_ops.Cast(x=x, DstT=tf.int32),
        {
            "class": lambda x, i, s: Cast.create(s, x, TInt32),
            "function": lambda x, i, s: cast(x=x, DstT=tf.int32),
            "raw op": lambda x, i, s: raw_ops.Cast(x=x, DstT=tf.int32),
        },
    ),
)


def timed(run: Callable[[], Any], number: int) -> float:
    """Microseconds of this thread for one of `number` runs."""
    start = time.thread_time_ns()
    for _ in range(number):
        run()
    return (time.thread_time_ns() - start) / number / 1e3


def in_turns(variants: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """The measures of each variant: one a round, the order shuffled in each."""
    found: list[list[float]] = [[] for _ in variants]
    order = list(range(len(variants)))
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            random.shuffle(order)
            for index in order:
                found[index].append(variants[index]())
    finally:
        gc.enable()
    return found


def spread(values: Sequence[float]) -> str:
    low, _, high = quantiles(values, n=4)
    return f"{median(values):.2f} ({low:.2f}-{high:.2f})"


def verdict(ratio: float, target: float) -> str:
    return f"[green]<= {target}[/]" if ratio <= target else f"[red]> {target}[/]"


def summarise(
    table: Table, ratios: Mapping[str, list[float]], targets: Mapping[str, float]
) -> bool:
    """Adds the geometric mean of each way's ratios; whether it, and each, is met."""
    table.add_section()
    for way, target in targets.items():
        mean = geometric_mean(ratios[way])
        unused = [""] * (len(table.columns) - 4)
        table.add_row(
            "geometric mean", way, *unused, f"{mean:.2f} x", verdict(mean, target)
        )
    return all(
        geometric_mean(ratios[way]) <= target and max(ratios[way]) < 1
        for way, target in targets.items()
    )


def measure_eager(rounds: int, number: int, recorder: Recorder) -> tuple[Table, bool]:
    """Overhead over the bare fast path, as a part of tf.raw_ops' overhead over it."""
    table = Table(title="Eager call, microseconds: median (quartiles)")
    for column in (
        "case",
        "as",
        "bare",
        "tf.raw_ops",
        "opwright",
        "overhead",
        "target",
    ):
        text = column in ("case", "as")
        table.add_column(column, justify="left" if text else "right")
    x, index, scope = (
        tf.constant([[1.0, 2.0], [3.0, 4.0]]),
        tf.constant(0),
        Scope.current(),
    )
    ratios: dict[str, list[float]] = {way: [] for way in EAGER_TARGETS}
    for case in CASES:
        variants = [
            lambda make=make: timed(lambda: make(x, index, scope), number)
            for make in (case.bare, case.raw, *case.ours.values())
        ]
        in_turns(variants, 10)
        bare, raw, *found = in_turns(variants, rounds)
        micro = dict(
            zip(("bare", "tf.raw_ops", *case.ours), (bare, raw, *found), strict=True)
        )
        recorder.add(
            case.name, "eager", {k: np.asarray(v) * 1e-6 for k, v in micro.items()}
        )
        # Paired within rounds: the difference is far below what a machine drifts.
        theirs = median(r - b for r, b in zip(raw, bare, strict=True))
        for way, ours in zip(case.ours, found, strict=True):
            extra = median(o - b for o, b in zip(ours, bare, strict=True))
            ratios[way].append(extra / theirs)
            table.add_row(
                case.name,
                way,
                spread(bare),
                spread(raw),
                spread(ours),
                f"{extra / theirs:.2f} x",
                verdict(extra / theirs, 1),
            )
    return table, summarise(table, ratios, EAGER_TARGETS)


def in_graph(make: Callable[[Any, Any, Any], Any], number: int) -> float:
    with tf.Graph().as_default():
        x, index = tf.compat.v1.placeholder(tf.float32, [2, 2]), tf.constant(0)
        scope = Scope.current()
        return timed(lambda: make(x, index, scope), number)


def in_function(make: Callable[[Any, Any, Any], Any], number: int) -> float:
    found = []

    def body(x: tf.Tensor) -> tf.Tensor:
        index, scope = tf.constant(0), Scope.current()
        found.append(timed(lambda: make(x, index, scope), number))
        return x

    traced = tf.function(body, autograph=False)
    traced.get_concrete_function(tf.TensorSpec([2, 2]))
    return found[0]


def measure_graph(rounds: int, number: int, recorder: Recorder) -> tuple[Table, bool]:
    """Time to add an op to a graph, as a part of tf.raw_ops' time."""
    table = Table(title="Graph building, microseconds an op: median (quartiles)")
    for column in ("case", "as", "in a", "tf.raw_ops", "opwright", "ratio", "target"):
        text = column in ("case", "as", "in a")
        table.add_column(column, justify="left" if text else "right")
    ratios: dict[str, list[float]] = {way: [] for way in GRAPH_TARGETS}
    for where, build in (("tf.Graph", in_graph), ("tf.function", in_function)):
        for case in CASES:
            variants = [
                lambda make=make, build=build: build(make, number)
                for make in (case.raw, *case.ours.values())
            ]
            in_turns(variants, 2)
            raw, *found = in_turns(variants, rounds)
            micro = dict(zip(("tf.raw_ops", *case.ours), (raw, *found), strict=True))
            recorder.add(
                case.name, where, {k: np.asarray(v) * 1e-6 for k, v in micro.items()}
            )
            for way, ours in zip(case.ours, found, strict=True):
                ratio = median(o / r for o, r in zip(ours, raw, strict=True))
                ratios[way].append(ratio)
                table.add_row(
                    case.name,
                    way,
                    where,
                    spread(raw),
                    spread(ours),
                    f"{ratio:.2f} x",
                    verdict(ratio, 1),
                )
    return table, summarise(table, ratios, GRAPH_TARGETS)


PROGRAM = """
import time
import tensorflow as tf
start = time.thread_time_ns()
import opwright
from opwright.linalg import MatMul
print((time.thread_time_ns() - start) / 1e6)
"""


def measure_import(runs: int, recorder: Recorder) -> tuple[Table, bool]:
    """Time of `import opwright` and one op in a process that has TensorFlow."""
    table = Table(
        title="Import after TensorFlow's own, milliseconds: median (quartiles)"
    )
    for column in ("what", "time", "target"):
        table.add_column(column, justify="left" if column == "what" else "right")
    with tempfile.TemporaryDirectory() as cache:
        # An installed package has its bytecode; here the first run writes it.
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONPYCACHEPREFIX": cache,
            "PYTHONDONTWRITEBYTECODE": "",
        }
        times = [
            float(
                subprocess.run(
                    [sys.executable, "-c", PROGRAM],
                    env=environment,
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for _ in range(runs + 1)
        ][1:]
    found = median(times)
    recorder.add(
        "opwright and MatMul", "import", {"opwright": np.asarray(times) * 1e-3}
    )
    table.add_row(
        "opwright and MatMul", spread(times), verdict(found, IMPORT_TARGET_MS)
    )
    return table, found <= IMPORT_TARGET_MS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--part",
        action="append",
        choices=["eager", "graph", "import"],
        help="what to measure, given once or more; everything by default",
    )
    parser.add_argument(
        "--rounds", type=int, default=600, help="rounds of eager calls (default: 600)"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a target is missed"
    )
    add_option(parser)
    arguments = parser.parse_args()
    recorder = Recorder("dispatch", arguments.record)
    parts = arguments.part or ["eager", "graph", "import"]
    console = Console(width=110)
    holds = True
    for part, measure in (
        ("eager", lambda: measure_eager(arguments.rounds, 50, recorder)),
        ("graph", lambda: measure_graph(max(arguments.rounds // 20, 5), 100, recorder)),
        ("import", lambda: measure_import(7, recorder)),
    ):
        if part in parts:
            table, held = measure()
            console.print(table)
            holds &= held
    recorder.save()
    return 0 if holds or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
