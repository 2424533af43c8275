"""Updates of SparseCores match the optimizers' rules and TensorFlow's own ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support import reference
from sparsecore.support.lookups import bags_of, close, csr_of, flat, gathered, raw
from sparsecore.support.updates import (
    CASES,
    expected_update,
    gradient_op,
    rows_op,
    state_of,
)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_dense_matmul_grad_optimizer_matches_reference(name: str, static: bool) -> None:
    """Several steps, each one against the reference from the state before it."""
    case, cores, samples, vocabulary, width = CASES[name], 4, 32, 64, 9
    rng = np.random.default_rng(len(name))
    state: list[Any] = state_of(case, rng, (vocabulary, width))
    for _ in range(5):
        bags = bags_of(rng, samples, vocabulary)
        weights = rng.uniform(0.5, 2, sum(map(len, bags))).astype(np.float32)
        csr = csr_of(bags, weights, "mean", cores, vocabulary)
        gradients = rng.standard_normal((samples, width)).astype(np.float32)
        tags, ids = flat(bags)
        gains = reference.scales("mean", tags, weights.astype("f8"), samples)
        rows = np.unique(ids)
        g = np.zeros((len(rows), width))
        np.add.at(g, np.searchsorted(rows, ids), gains[:, None] * gradients[tags])
        before = [gathered(np.asarray(x), cores) for x in state]
        expected = expected_update(case, before, rows, g)
        kept = [np.array(x) for x in state]
        new = gradient_op(
            case,
            static,
            csr,
            state,
            activation_gradients=gradients,
            num_sparsecores_per_device=cores,
        )
        for x, y in zip(state, kept, strict=True):
            np.testing.assert_array_equal(x, y)
        for got, want, old in zip(new, expected, before, strict=True):
            close(gathered(got.numpy(), cores), want)
            untouched = np.setdiff1d(np.arange(vocabulary), rows)
            np.testing.assert_array_equal(
                gathered(got.numpy(), cores)[untouched], old[untouched]
            )
        state = new


@pytest.mark.parametrize("name", CASES)
def test_sparse_core_update_optimizer_matches_reference(name: str) -> None:
    case = CASES[name]
    rng = np.random.default_rng(len(name))
    state: list[Any] = state_of(case, rng, (50, 6))
    for _ in range(5):
        rows = rng.permutation(50)[:20].astype(np.int32)
        gradient = rng.standard_normal((20, 6)).astype(np.float32)
        expected = expected_update(case, [np.asarray(x) for x in state], rows, gradient)
        state = rows_op(case, state, indices=rows, gradient=gradient)
        for got, want in zip(state, expected, strict=True):
            close(got, want)


def test_sparse_core_update_equal_indices_keep_the_last_row() -> None:
    gradient = np.array([[1], [2], [4]], np.float32)
    table, accumulator = rows_op(
        CASES["adagrad"],
        [np.zeros((3, 1), "f4"), np.ones((3, 1), "f4")],
        indices=np.array([1, 0, 1], np.int32),
        gradient=gradient,
    )
    assert accumulator.numpy().ravel().tolist() == [5, 17, 1]
    close(table, np.array([[-0.5 / 5**0.5], [-1 / 17**0.5], [0]]))


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam", "ftrl", "ftrl multiply"])
def test_sparse_core_update_matches_resource_apply_ops(name: str) -> None:
    """Compares with the ops for resource variables that have the same rule."""
    case = CASES[name]
    rng = np.random.default_rng(5)
    state = state_of(case, rng, (30, 8))
    rows = rng.permutation(30)[:12].astype(np.int32)
    g = rng.standard_normal((12, 8)).astype(np.float32)
    variables = [tf.Variable(x) for x in state]
    handles = [variable.handle for variable in variables]
    hyper = case.hyper
    if case.op == "Sgd":
        raw.ResourceScatterSub(resource=handles[0], indices=rows, updates=0.25 * g)
    elif case.op == "Adagrad":
        raw.ResourceSparseApplyAdagrad(
            var=handles[0], accum=handles[1], lr=0.25, grad=g, indices=rows
        )
    elif name == "adam":
        # No decay so far, so that there is no bias to correct, on the rows alone.
        parts = [tf.Variable(x[rows]) for x in state]
        raw.ResourceApplyAdam(
            **dict(zip(("var", "m", "v"), (x.handle for x in parts), strict=True)),
            beta1_power=0.0,
            beta2_power=0.0,
            lr=0.25,
            beta1=hyper["beta1"],
            beta2=hyper["beta2"],
            epsilon=hyper["epsilon"],
            grad=g,
        )
        for variable, part in zip(variables, parts, strict=True):
            variable.scatter_update(tf.IndexedSlices(part, rows))
    else:
        # TensorFlow has no beta; half of it per rate is what l2 adds to the divisor.
        lr = 1 if hyper["multiply_linear_by_learning_rate"] else 0.25
        multiplied = 0.25 if hyper["multiply_linear_by_learning_rate"] else 1
        raw.ResourceSparseApplyFtrlV2(
            var=handles[0],
            accum=handles[1],
            linear=handles[2],
            grad=g,
            indices=rows,
            lr=0.25,
            l1=hyper["l1_regularization_strength"],
            l2=hyper["l2_regularization_strength"]
            + hyper["beta"] / (2 * lr * multiplied),
            l2_shrinkage=0.0,
            lr_power=hyper["learning_rate_power"],
            multiply_linear_by_lr=hyper["multiply_linear_by_learning_rate"],
        )
    got = rows_op(case, list(state), indices=rows, gradient=g)
    for x, variable in zip(got, variables, strict=True):
        close(x, variable.numpy().astype("f8"), 5e-6)


def test_dense_matmul_grad_clips_updated_rows_only() -> None:
    csr = csr_of([[0], [1]], 1.0, "sum", 1, 4)
    (got,) = gradient_op(
        CASES["sgd"],
        False,
        csr,
        [np.full((4, 1), 9, np.float32)],
        activation_gradients=np.array([[40.0], [-40.0]], np.float32),
        clip_weight_min=0.5,
        clip_weight_max=2.0,
        num_sparsecores_per_device=1,
    )
    assert got.numpy().ravel().tolist() == [0.5, 2, 9, 9]


def test_dense_matmul_grad_in_graph_keeps_shared_buffer() -> None:
    """The kernel may reuse a buffer only if no other op needs it."""
    csr = csr_of([[0], [1]], 1.0, "sum", 1, 4)
    gradients = np.ones((2, 3), np.float32)

    @tf.function(autograph=False)
    def step(table: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        held = table + 1
        new = table + 1
        for _ in range(3):
            (new,) = gradient_op(
                CASES["sgd"],
                False,
                csr,
                [new],
                activation_gradients=gradients,
                num_sparsecores_per_device=1,
            )
        (other,) = gradient_op(
            CASES["sgd"],
            False,
            csr,
            [held],
            activation_gradients=gradients,
            num_sparsecores_per_device=1,
        )
        return new, held + 0 * other

    new, held = step(tf.zeros((4, 3)))
    assert new.numpy()[:, 0].tolist() == [0.25, 0.25, 1, 1]
    assert (held.numpy() == 1).all()
