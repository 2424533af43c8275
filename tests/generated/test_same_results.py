"""In each mode the classes give exactly the results of TensorFlow's own wrappers."""

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

import opwright
from support.equivalence import calls
from support.equivalence.modes import EAGER, GRAPH, MODES
from support.equivalence.registry import op_def, op_defs, ops_with_cpu_kernel
from support.equivalence.results import Results, compare_results, difference
from support.equivalence.samples import LEFT_OUT, by_table, every_sample
from support.equivalence.samples.kit import Sample
from support.equivalence.workers import Ahead
from support.grouped import check_each
from support.tiers import part_of

RUNS = part_of(
    [(sample.name, mode) for sample in every_sample() for mode in sample.modes]
)
TABLES = by_table(RUNS)


@pytest.fixture(scope="module")
def results(pool: ProcessPoolExecutor) -> Ahead[Results]:
    return Ahead(pool, compare_results, RUNS)


@pytest.fixture(scope="module")
def equal(results: Ahead[Results]) -> dict[str, dict[str, set[str]]]:
    """By mode and op: the attrs given to it in programs with equal results."""
    equal = {mode: defaultdict(set) for mode in MODES}
    for run in RUNS:
        if (result := results[run]).difference is None:
            for op, attrs in result.given.items():
                equal[run[1]][op] |= attrs
    return equal


@pytest.fixture(scope="module")
def with_kernel(pool: ProcessPoolExecutor) -> frozenset[str]:
    """Ops with a CPU kernel, TensorFlow's or opwright's."""
    return pool.submit(ops_with_cpu_kernel).result().intersection(opwright.op_names())


@pytest.mark.partial
@pytest.mark.parametrize("runs", TABLES.values(), ids=TABLES.keys())
def test_results_match_tensorflow_wrappers(
    results: Ahead[Results], runs: list[tuple[str, str]]
) -> None:
    def check(run: tuple[str, str]) -> None:
        unlike = results[run].difference
        assert unlike is None, unlike

    check_each(runs, check)


@pytest.mark.full_matrix
def test_results_compared_cover_most_ops_with_cpu_kernel(
    equal: dict[str, dict[str, set[str]]], with_kernel: frozenset[str]
) -> None:
    compared = {mode: with_kernel.intersection(equal[mode]) for mode in MODES}
    assert len(frozenset.intersection(*compared.values())) >= 1090
    # References and removed ops exist in graphs only.
    assert len(compared[GRAPH]) >= 1265


@pytest.mark.full_matrix
def test_results_not_compared_are_of_left_out_ops(
    equal: dict[str, dict[str, set[str]]], with_kernel: frozenset[str]
) -> None:
    assert len(with_kernel) == 1436
    left_out = {op for ops in LEFT_OUT.values() for op in ops.split()}
    assert with_kernel.difference(*equal.values()) == left_out


@pytest.mark.full_matrix
@pytest.mark.parametrize("mode", MODES)
def test_results_compared_cover_every_attr_type(
    equal: dict[str, dict[str, set[str]]], mode: str
) -> None:
    public = set(opwright.op_names())
    kinds = {attr.type for op in public for attr in op_defs()[op].attr}
    given = {
        attr.type
        for op, attrs in equal[mode].items()
        for attr in op_def(op).attr
        if attr.name in attrs
    }
    # TensorFlow's eager mode takes no attr that is a tensor.
    assert given == kinds - ({"tensor"} if mode == EAGER else set())


# The comparison itself: each of these calls is wrong in one way.
def with_option(op: str, arguments: calls.Arguments) -> calls.Called:
    return calls.call_tensorflow(op, {**arguments, "transpose_a": True})


def with_other_input(op: str, arguments: calls.Arguments) -> calls.Called:
    a = np.nextafter(arguments["a"], np.float32(np.inf))
    return calls.call_tensorflow(op, {**arguments, "a": a})


def with_other_dtype(op: str, arguments: calls.Arguments) -> calls.Called:
    doubles = {name: np.float64(arguments[name]) for name in ("a", "b")}
    return calls.call_tensorflow(op, {**arguments, **doubles})


def without_output(op: str, arguments: calls.Arguments) -> calls.Called:
    called = calls.call_tensorflow(op, arguments)
    return calls.Called(called.operation, [[]])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "wrong", [with_option, with_other_input, with_other_dtype, without_output]
)
def test_difference_finds_wrong_call(wrong: Callable[..., Any], mode: str) -> None:
    def program(run: Any) -> None:
        run.MatMul(np.float32([[1, np.nan], [3, 4]]), np.float32([[5, 6], [7, 8]]))

    def another(run: Any) -> None:
        run.AddV2(np.float32([[1, 2], [3, 4]]), np.float32([[5, 6], [7, 8]]))

    sample = Sample("product", program)
    right = sample.run(calls.call_tensorflow, mode)
    assert difference(right, sample.run(calls.call_tensorflow, mode)) is None
    assert difference(right, sample.run(wrong, mode)) is not None
    other = Sample("sum", another).run(calls.call_tensorflow, mode)
    assert difference(right, other) is not None
