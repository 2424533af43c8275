"""Ops that opwright compiles with XLA give the results of TensorFlow's CPU kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opwright
from opwright import check_tpu
from opwright_runtime.kernels import kernels
from support.processes import run_program
from support.tiers import FULL
from xla_ops.support.calls import dtypes, run, split
from xla_ops.support.draws import Draw
from xla_ops.support.every_kind import KINDS

#: Drawn shapes, and drawn values of each.
SHAPES, VALUES = (20, 10) if FULL else (4, 5)
CHIPS = ("v5e", "v5p", "v6e")


def test_compiled_ops_are_those_of_opwright_besides_recurrent_layers() -> None:
    ours = {
        name
        for name in opwright.op_names()
        if not name.startswith("CudnnRNN")
        for row in kernels(name)
        if row.device == "XLA" and row.provider == "opwright"
    }
    assert ours == set(KINDS)


@pytest.mark.rotating
@pytest.mark.partial
@pytest.mark.parametrize("name", KINDS)
def test_compiled_op_random_call_matches_cpu(name: str) -> None:
    program = "xla_ops.support.random_calls"
    done = run_program(program, name, str(SHAPES), str(VALUES), timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) == SHAPES * VALUES * len(dtypes(name))


@pytest.mark.compile_tpu
@pytest.mark.parametrize("name", KINDS)
def test_compiled_op_compiles_for_tpus(name: str) -> None:
    """A program with a call of each dtype."""
    calls = []
    for dtype in dtypes(name):
        rng = np.random.default_rng(0)
        given, rest = split(name, KINDS[name].draw(Draw(rng, dtype))())
        known = {key: given.pop(key).numpy() for key in KINDS[name].known}
        calls.append((given, {**known, **rest}))

    def program(each: list[dict[str, Any]]) -> list[Any]:
        return [
            run(name, {**given, **rest})
            for given, (_, rest) in zip(each, calls, strict=True)
        ]

    report = check_tpu(program, [given for given, _ in calls], chips=CHIPS)
    assert report.compiles, report
