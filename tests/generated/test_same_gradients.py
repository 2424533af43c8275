"""Gradients through the classes are exactly those through TensorFlow's own wrappers."""

from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

import opwright
from support.equivalence import calls
from support.equivalence.gradients import (
    Comparison,
    compare_gradients,
    difference,
    gradients,
)
from support.equivalence.modes import EAGER, FUNCTION
from support.equivalence.registry import (
    differentiable_ops,
    has_default,
    op_def,
    ops_with_gradient,
)
from support.equivalence.samples import by_table, every_sample
from support.equivalence.workers import Ahead
from support.grouped import check_each
from support.tiers import part_of

MODES = (EAGER, FUNCTION)
RUNS = part_of(
    [
        (sample.name, mode)
        for sample in every_sample()
        for mode in MODES
        if mode in sample.modes
    ]
)
TABLES = by_table(RUNS)


@pytest.fixture(scope="module")
def comparisons(pool: ProcessPoolExecutor) -> Ahead[Comparison]:
    return Ahead(pool, compare_gradients, RUNS)


@pytest.mark.partial
@pytest.mark.parametrize("runs", TABLES.values(), ids=TABLES.keys())
def test_gradients_match_tensorflow_wrappers(
    comparisons: Ahead[Comparison], runs: list[tuple[str, str]]
) -> None:
    def check(run: tuple[str, str]) -> None:
        unlike = comparisons[run].difference
        assert unlike is None, unlike

    check_each(runs, check)


@pytest.mark.full_matrix
def test_gradients_compared_cover_most_ops_with_options(
    comparisons: Ahead[Comparison], pool: ProcessPoolExecutor
) -> None:
    ran, asked = ({mode: set() for mode in MODES} for _ in range(2))
    for run in RUNS:
        if (comparison := comparisons[run]).difference is None:
            ran[run[1]] |= comparison.ran
            asked[run[1]] |= comparison.asked
    # Asked in the pool, where nothing else has registered gradients.
    registered = pool.submit(ops_with_gradient).result()
    registered &= frozenset(opwright.op_names())
    optional = {op for op in registered if any(map(has_default, op_def(op).attr))}
    assert len(optional) == 314
    assert len(optional.intersection(*ran.values())) >= 250
    # Of the 314, 199 have a gradient function; the rest are known to have none.
    optional &= pool.submit(differentiable_ops).result()
    assert len(optional) == 199
    assert len(optional.intersection(*asked.values())) >= 165


@pytest.mark.parametrize("mode", MODES)
def test_difference_finds_other_gradients(mode: str) -> None:
    def program(run: Any) -> None:
        run.LeakyRelu(np.float32([-1, 2]), alpha=0.5)

    def with_other_slope(op: str, arguments: calls.Arguments) -> calls.Called:
        return calls.call_tensorflow(op, {**arguments, "alpha": 0.25})

    def with_other_op(op: str, arguments: calls.Arguments) -> calls.Called:
        return calls.call_tensorflow("Relu", {"features": arguments["features"]})

    right = gradients(program, calls.call_tensorflow, mode)
    again = gradients(program, calls.call_tensorflow, mode)
    assert difference(right, again) is None
    for wrong in (with_other_slope, with_other_op):
        assert difference(right, gradients(program, wrong, mode)) is not None
