"""Tables in variables: lookups over devices, and updates in place."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support import reference
from sparsecore.support.lookups import COMBINERS, Array, Bags, bags_of, close, flat
from sparsecore.support.updates import CASES, expected_update, state_of
from sparsecore.support.variables import (
    csr_of_device,
    lookup,
    table_of,
    update,
    variables_of,
)

CORES, SAMPLES, ROWS, WIDTH = 4, 16, 64, 9


def gradient_of_rows(
    bags: list[Bags], gradients: list[Array], combiner: str
) -> tuple[Array, Array]:
    """The rows that devices look up, and the sum of the gradients of each."""
    rows = np.unique(np.concatenate([flat(one)[1] for one in bags]))
    g = np.zeros((len(rows), WIDTH))
    for one, gradient in zip(bags, gradients, strict=True):
        tags, ids = flat(one)
        gains = reference.scales(combiner, tags, np.ones(len(tags)), SAMPLES)
        np.add.at(g, np.searchsorted(rows, ids), gains[:, None] * gradient[tags])
    return rows, g


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_variable_lookup_devices_match_reference(combiner: str, devices: int) -> None:
    rng = np.random.default_rng(devices)
    table = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    variables = variables_of(table, CORES, devices)
    for _ in range(devices):
        bags = bags_of(rng, SAMPLES, ROWS)
        tags, ids = flat(bags)
        gains = reference.scales(combiner, tags, np.ones(len(tags)), SAMPLES)
        expected = np.zeros((SAMPLES, WIDTH))
        np.add.at(expected, tags, gains[:, None] * table[ids])
        csr = csr_of_device(bags, combiner, CORES, devices, ROWS)
        close(lookup(csr, variables, SAMPLES, CORES), expected)


@pytest.mark.rotating
@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("name", CASES)
def test_variable_update_optimizer_matches_reference(name: str, devices: int) -> None:
    case = CASES[name]
    rng = np.random.default_rng(devices)
    state = [
        variables_of(part, CORES, devices)
        for part in state_of(case, rng, (ROWS, WIDTH))
    ]
    for _ in range(5):
        bags = [bags_of(rng, SAMPLES, ROWS) for _ in range(devices)]
        csrs = [csr_of_device(one, "mean", CORES, devices, ROWS) for one in bags]
        gradients = [
            rng.standard_normal((SAMPLES, WIDTH)).astype(np.float32) for _ in bags
        ]
        before = [table_of(part, CORES) for part in state]
        rows, g = gradient_of_rows(bags, gradients, "mean")
        expected = expected_update(case, before, rows, g)
        update([case], [csrs], [gradients], [state], CORES)
        others = np.setdiff1d(np.arange(ROWS), rows)
        for part, want, old in zip(state, expected, before, strict=True):
            got = table_of(part, CORES)
            close(got, want)
            np.testing.assert_array_equal(got[others], old[others])


def test_variable_update_in_function_keeps_order_of_ops() -> None:
    case = CASES["sgd"]
    (table,) = [variables_of(np.ones((ROWS, WIDTH), "f4"), CORES, 1)]
    csr = csr_of_device([[i] for i in range(SAMPLES)], "sum", CORES, 1, ROWS)

    @tf.function
    def step(gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        before = lookup(csr, table, SAMPLES, CORES)
        update([case], [[csr]], [[gradient]], [[table]], CORES)
        return before, lookup(csr, table, SAMPLES, CORES)

    before, after = step(tf.ones([SAMPLES, WIDTH]))
    assert before.shape == after.shape == (SAMPLES, WIDTH)
    np.testing.assert_array_equal(before, np.ones((SAMPLES, WIDTH)))
    np.testing.assert_array_equal(after, np.full((SAMPLES, WIDTH), 0.75))


def test_variable_update_read_before_keeps_its_values() -> None:
    case = CASES["sgd"]
    (table,) = variables_of(np.ones((ROWS, WIDTH), "f4"), CORES, 1)
    csr = csr_of_device([[3]] * SAMPLES, "sum", CORES, 1, ROWS)
    gradient = np.ones((SAMPLES, WIDTH), "f4")
    for _ in range(2):
        read = table.read_value()
        before = read.numpy().copy()
        update([case], [[csr]], [[gradient]], [[[table]]], CORES)
        np.testing.assert_array_equal(read, before)
        assert np.count_nonzero(table.numpy() != before) == WIDTH


def bytes_in_huge_pages() -> int:
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * int(rollup.split("AnonHugePages:")[1].split()[0])


def kernel_replaces_small_pages() -> bool:
    """Whether Linux makes a huge page of small ones on request: from 6.1 on."""
    size = 4 << 20
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:] = bytes(size)
        try:
            memory.madvise(25)  # MADV_COLLAPSE
        except OSError:
            return False
    return True


def test_variable_update_large_table_is_in_huge_pages() -> None:
    if not kernel_replaces_small_pages():
        pytest.skip("this kernel makes no huge page of small ones")
    rows = 1 << 18
    case = CASES["sgd"]
    bags = bags_of(np.random.default_rng(0), SAMPLES, ROWS)
    csr = csr_of_device(bags, "sum", CORES, 1, rows)
    state = [[[tf.Variable(tf.ones([rows, 16]))]]]
    gradient = np.ones((SAMPLES, 16), np.float32)
    before = bytes_in_huge_pages()
    update([case], [[csr]], [[gradient]], state, CORES)
    assert bytes_in_huge_pages() - before >= 12 << 20  # The variable has 16 MiB.


def test_variable_update_assigned_tensor_keeps_its_values() -> None:
    case = CASES["sgd"]
    (table,) = variables_of(np.zeros((ROWS, WIDTH), "f4"), CORES, 1)
    csr = csr_of_device([[3]] * SAMPLES, "sum", CORES, 1, ROWS)
    for _ in range(2):
        value = tf.ones([ROWS, WIDTH])
        table.assign(value)
        gradient = np.ones((SAMPLES, WIDTH), "f4")
        update([case], [[csr]], [[gradient]], [[[table]]], CORES)
        np.testing.assert_array_equal(value, np.ones((ROWS, WIDTH)))
        assert np.count_nonzero(table.numpy() != 1) == WIDTH


# ---- Refused calls change nothing.


def put(array: Any, at: Any, value: float) -> Array:
    changed = np.array(array)
    changed[at] = value
    return changed


class TwoTables:
    """A step of two tables on two devices, with one thing changed."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.cases = [CASES["adagrad"], CASES["adam"]]
        self.state = [
            [variables_of(x, CORES, 2) for x in state_of(case, rng, (ROWS, WIDTH))]
            for case in self.cases
        ]
        self.csrs = [
            [
                csr_of_device(bags_of(rng, SAMPLES, ROWS), "sum", CORES, 2, ROWS)
                for _ in range(2)
            ]
            for _ in self.cases
        ]
        shape = (SAMPLES, WIDTH)
        self.gradients = [
            [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]
            for _ in self.cases
        ]

    def values(self) -> list[Array]:
        return [one.numpy() for table in self.state for part in table for one in part]

    def update(self, **changes: Any) -> None:
        update(self.cases, self.csrs, self.gradients, self.state, CORES, **changes)

    def check_refused(self, *words: str, **changes: Any) -> None:
        before = self.values()
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            self.update(**changes)
        for word in words:
            assert word in raised.value.message, raised.value.message
        for got, want in zip(self.values(), before, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["sorted_token_ids", "sorted_sample_ids"])
@pytest.mark.parametrize("value", [-1, ROWS // 8, 2**31 - 1, -(2**31)])
def test_variable_update_id_out_of_range_is_refused(name: str, value: int) -> None:
    step = TwoTables()
    csr = step.csrs[1][1]
    csr[name] = put(csr[name], 0, value)
    step.check_refused(name, "table t1", str(value))


def test_variable_update_bad_row_pointers_are_refused() -> None:
    step = TwoTables()
    csr = step.csrs[1][0]
    good = csr["row_pointers"]
    for value in (-8, 2**31 - 1):
        csr["row_pointers"] = put(good, 3, value)
        step.check_refused("row_pointers", "table t1", str(value))
    csr["row_pointers"] = np.zeros((2, 2), np.int32)
    step.check_refused("row_pointers[2]", "rank 1")
    csr["row_pointers"] = np.zeros(0, np.int32)
    step.check_refused("num_minibatches_per_physical_sparse_core", "table t1")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_variable_update_gradient_not_finite_is_refused(value: float) -> None:
    step = TwoTables()
    step.gradients[1][1] = put(step.gradients[1][1], (7, 2), value)
    step.check_refused("activation_gradients[3]", "table t1", "sample 7, column 2")


def test_variable_update_bad_slot_in_last_table_is_refused() -> None:
    step = TwoTables()
    velocities = step.state[1][2]
    for one in velocities:
        one.assign(put(one.numpy(), (slice(None), 4), -0.5))
    step.check_refused("table t1", "velocities", "column 4 is -0.5")
    step.state[0][0][1].assign(np.full((ROWS // 2, WIDTH), np.nan))
    step.check_refused("table t0", "weights", "nan")


def write_by_training(variable: tf.Variable, values: Array) -> None:
    tf.raw_ops.ResourceApplyGradientDescent(
        var=variable.handle, alpha=1.0, delta=variable.numpy() - values
    )


def write_rows(variable: tf.Variable, values: Array) -> None:
    variable.scatter_nd_update(np.arange(len(values))[:, None], values)


def write_rows_again(variable: tf.Variable, values: Array) -> None:
    """From the second time on, TensorFlow writes rows into the variable's memory."""
    write_rows(variable, variable.numpy())
    write_rows(variable, values)


WRITERS: dict[str, Callable[[tf.Variable, Array], object]] = {
    "assign": lambda variable, values: variable.assign(values),
    "assign_add": lambda variable, values: variable.assign_add(values - variable),
    "training": write_by_training,
    "rows": write_rows,
    "rows_again": write_rows_again,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_variable_update_value_written_between_steps_is_refused(writer: str) -> None:
    step = TwoTables()
    step.update()
    for at, words in (((0, 0), ("table t0", "nan")), ((1, 2), ("table t1", "nan"))):
        variable = step.state[at[0]][at[1]][1]
        good = variable.numpy()
        for _ in range(2):
            WRITERS[writer](variable, np.full_like(good, np.nan))
            step.check_refused(*words)
            step.check_refused(*words)
            variable.assign(good)
            step.update()
            good = variable.numpy()


def test_variable_update_values_in_other_rows_are_not_checked() -> None:
    case = CASES["sgd"]
    (table,) = variables_of(put(np.ones((ROWS, WIDTH), "f4"), 5, np.nan), CORES, 1)
    gradient = np.ones((SAMPLES, WIDTH), "f4")
    csrs = {
        row: csr_of_device([[row]] * SAMPLES, "sum", CORES, 1, ROWS) for row in (3, 5)
    }
    for step in range(1, 3):
        update([case], [[csrs[3]]], [[gradient]], [[[table]]], CORES)
        got = table_of([table], CORES)
        np.testing.assert_allclose(got[3], 1 - 0.25 * SAMPLES * step)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is nan"):
        update([case], [[csrs[5]]], [[gradient]], [[[table]]], CORES)


def test_variable_update_bad_arguments_are_refused() -> None:
    step = TwoTables()
    rates = [0.25, np.inf]
    step.check_refused("learning_rates", "table t1", learning_rates=rates)
    step.check_refused("optimizers", "lion", optimizers=["adagrad", "lion"])
    hyper = [0.0] * 6 + [2.0] + [0.0] * 5
    step.check_refused("hyperparameters", "beta1", hyperparameters=hyper)
    step.check_refused("table_names", table_names=["t"])
    step.check_refused("max_ids_per_sparse_core", "table t0", max_ids=[1, 9])
    step.check_refused("num_sparsecores_per_device", num_sparsecores_per_device=3)
    handles = [one.handle for table in step.state for part in table for one in part]
    step.check_refused("variables", variables=handles[:-1])
    step.check_refused("variables", "the same", variables=[*handles[:-1], handles[0]])
    other = tf.Variable(tf.zeros([ROWS // 2, WIDTH + 1]))
    step.check_refused("variables[9]", variables=[*handles[:-1], other.handle])
    whole = tf.Variable(tf.zeros([ROWS // 2, WIDTH], tf.float64))
    step.check_refused("variables[9]", variables=[*handles[:-1], whole.handle])
    step.gradients[0][1] = step.gradients[0][1][:8]
    step.check_refused("activation_gradients[1]", "[16,9]")


def test_variable_lookup_bad_arguments_are_refused() -> None:
    csr = csr_of_device([[1], [2], [3], [4]], "sum", CORES, 2, ROWS)
    variables = variables_of(np.ones((ROWS, WIDTH), "f4"), CORES, 2)
    lookup(csr, variables, 4, CORES)

    def check(word: str, csr: Any = csr, tables: Any = variables, **more: Any) -> None:
        with pytest.raises(tf.errors.InvalidArgumentError, match=word):
            lookup(csr, tables, more.pop("samples", 4), CORES, **more)

    check("input_size", samples=5)
    check("sorted_token_ids", csr | {"sorted_token_ids": put([9] * 512, 0, 9)})
    check("belongs to shard", tables=variables[:1])
    check("num_sparsecores_per_device", num_sparsecores_per_device=5)
    buckets = {"quantization_config_num_buckets": 1}
    check("quantization_config_num_buckets", **buckets)
    vectors = [tf.Variable(tf.zeros([ROWS])), variables[1]]
    check("matrix of float32", tables=vectors)
    uneven = [tf.Variable(tf.zeros([6, WIDTH])), tf.Variable(tf.zeros([6, WIDTH]))]
    check("multiple of the device's SparseCores", tables=uneven)
