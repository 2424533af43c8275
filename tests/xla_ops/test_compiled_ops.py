"""Ops that opwright compiles with XLA give the results of TensorFlow's CPU kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import check_tpu
from opwright_runtime.kernels import kernels
from support.tiers import FULL
from xla_ops.support.calls import assert_close, dtypes, reference, run, split
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


def compare(name: str, draw: Draw) -> None:
    kind = KINDS[name]
    values = kind.draw(draw)

    @tf.function(jit_compile=True, autograph=False)
    def compiled(given: dict[str, tf.Tensor], rest: dict[str, Any]) -> Any:
        return run(name, {**given, **rest})

    for _ in range(VALUES):
        given, rest = split(name, values())
        wanted = reference(name, {**given, **rest})
        for one, other in zip(compiled(given, rest), wanted, strict=True):
            assert_close(one, other, kind.tolerance)


@pytest.mark.rotating
@pytest.mark.partial
@pytest.mark.parametrize("name", KINDS)
def test_compiled_op_random_call_matches_cpu(name: str) -> None:
    for dtype in dtypes(name):
        for seed in range(SHAPES):
            rng = np.random.default_rng([seed, dtype.as_datatype_enum])
            try:
                compare(name, Draw(rng, dtype))
            except Exception as error:
                error.args = (f"{dtype.name}, seed {seed}: {error}",)
                raise


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
