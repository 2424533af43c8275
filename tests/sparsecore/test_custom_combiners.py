"""Lookups with custom combiners and their updates match NumPy and plain combiners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sparsecore.support.combiners import (
    COMBINERS,
    RATE,
    Combiner,
    Shape,
    combined_lookup,
    combined_update,
    concrete,
    expected_gradients,
    forward_function,
    preserved,
    vjp_functions,
)
from sparsecore.support.lookups import (
    Array,
    Bags,
    close,
    csr_of,
    dealt,
    gathered,
    lookup,
    raw,
)
from sparsecore.support.ordered import ordered_csr
from sparsecore.support.updates import (
    CASES,
    expected_update,
    gradient_op,
    state_of,
)

VOCABULARY = 32


def drawn_bags(rng: np.random.Generator, shape: Shape) -> Bags:
    """Unsorted ids that repeat; some samples are empty, some full."""
    sizes = rng.integers(0, shape.max_valency + 1, shape.samples)
    return [rng.integers(0, VOCABULARY, n).tolist() for n in sizes]


def drawn(
    name: str, seed: int
) -> tuple[Combiner, Shape, int, Bags, Array, np.random.Generator]:
    """A combiner, sizes, SparseCores, ids and weights."""
    rng = np.random.default_rng([len(name), seed])
    cores, valency = 2 ** int(rng.integers(0, 4)), int(rng.integers(1, 6))
    samples = cores * int(rng.integers(1, 5))
    weighted = name == "weighted"
    shape = Shape(samples, valency, int(rng.integers(1, 9)), valency if weighted else 0)
    weights = rng.standard_normal(shape.weights).astype(np.float32)
    return COMBINERS[name], shape, cores, drawn_bags(rng, shape), weights, rng


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", COMBINERS)
def test_combined_lookup_of_drawn_sizes_matches_reference(name: str, seed: int) -> None:
    combiner, shape, cores, bags, weights, rng = drawn(name, seed)
    table = rng.standard_normal((VOCABULARY, shape.width)).astype(np.float32)
    found = combined_lookup(
        ordered_csr(bags, cores),
        dealt(table, cores),
        weights,
        forward_function(combiner, shape),
        shape,
        cores,
    )
    arguments = (weights.astype(np.float64),) if shape.weights else ()
    rows = table.astype(np.float64)
    close(
        found.activations,
        np.array([combiner.combine(rows[bag], *arguments) for bag in bags]),
    )
    assert found.preserved_valencies.numpy().tolist() == [len(bag) for bag in bags]
    for bag, vectors in zip(bags, found.preserved_vectors.numpy(), strict=True):
        np.testing.assert_array_equal(vectors[: len(bag)], table[bag])
        assert not vectors[len(bag) :].any()


@pytest.mark.parametrize("optimizer", CASES)
@pytest.mark.parametrize("name", COMBINERS)
def test_combined_update_of_drawn_sizes_matches_reference(
    name: str, optimizer: str
) -> None:
    """Several steps, each one against the reference from the state before it."""
    case = CASES[optimizer]
    combiner, shape, cores, _, weights, rng = drawn(name, len(optimizer))
    state: list[Any] = state_of(case, rng, (VOCABULARY, shape.width))
    forward, functions = (
        make(combiner, shape) for make in (forward_function, vjp_functions)
    )
    for _ in range(3):
        bags = drawn_bags(rng, shape)
        csr = ordered_csr(bags, cores)
        gradients = rng.standard_normal((shape.samples, shape.width)).astype(np.float32)
        found = combined_lookup(csr, state[0], weights, forward, shape, cores)
        before = [gathered(np.asarray(x, np.float64), cores) for x in state]
        rows, sums, of_weights = expected_gradients(
            combiner, bags, before[0], weights.astype(np.float64), gradients
        )
        *state, updated = combined_update(
            case,
            csr,
            preserved(found, weights),
            functions,
            gradients,
            state,
            shape,
            cores,
        )
        expected = expected_update(case, before, rows, sums)
        for got, want, old in zip(state, expected, before, strict=True):
            close(gathered(got.numpy(), cores), want, 2e-6)
            untouched = np.setdiff1d(np.arange(VOCABULARY), rows)
            np.testing.assert_array_equal(
                gathered(got.numpy(), cores)[untouched], old[untouched]
            )
        close(updated, weights - RATE * of_weights, 2e-6)
        weights = updated.numpy()


def test_combined_update_of_sums_matches_the_plain_op() -> None:
    """No ids repeat in a sample."""
    case, cores, rng = CASES["adagrad"], 4, np.random.default_rng(3)
    shape = Shape(16, 5, 7, 0)
    bags = [
        rng.permutation(VOCABULARY)[: rng.integers(0, 6)].tolist()
        for _ in range(shape.samples)
    ]
    state = state_of(case, rng, (VOCABULARY, shape.width))
    gradients = rng.standard_normal((shape.samples, shape.width)).astype(np.float32)
    csr = ordered_csr(bags, cores)
    found = combined_lookup(
        csr,
        state[0],
        np.zeros(0, "f4"),
        forward_function(COMBINERS["sum"], shape),
        shape,
        cores,
    )
    plain = csr_of(bags, 1.0, "sum", cores, VOCABULARY)
    close(found.activations, lookup(plain, state[0], shape.samples, cores), 1e-6)
    *combined, weights = combined_update(
        case,
        csr,
        preserved(found, np.zeros(0, "f4")),
        vjp_functions(COMBINERS["sum"], shape),
        gradients,
        state,
        shape,
        cores,
    )
    assert weights.shape == [0]
    expected = gradient_op(
        case,
        False,
        plain,
        state,
        activation_gradients=gradients,
        num_sparsecores_per_device=cores,
    )
    for got, want in zip(combined, expected, strict=True):
        close(got, want.numpy(), 1e-6)


def test_combined_lookup_in_graphs_and_control_flow_matches_eager() -> None:
    combiner, shape, cores, bags, weights, rng = drawn("weighted", 1)
    table = dealt(rng.standard_normal((VOCABULARY, shape.width)).astype("f4"), cores)
    function, csr = forward_function(combiner, shape), ordered_csr(bags, cores)

    def call(table: tf.Tensor) -> tf.Tensor:
        found = combined_lookup(csr, table, weights, function, shape, cores)
        return found.activations

    @tf.function
    def loop(table: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([shape.samples, shape.width])
        for i in tf.range(3):
            total += tf.cast(i, tf.float32) * call(table)
        return total

    expected = call(table)
    graph = tf.function(call, autograph=False)(table)
    np.testing.assert_array_equal(graph, expected)
    np.testing.assert_allclose(loop(table), 3 * expected, rtol=1e-6)


def test_combined_lookup_quantizes_rows_before_the_function() -> None:
    shape = Shape(1, 2, 1, 0)
    found = combined_lookup(
        ordered_csr([[1, 0]], 1),
        np.array([[0.3], [9.0]], np.float32),
        np.zeros(0, "f4"),
        forward_function(COMBINERS["sum"], shape),
        shape,
        1,
        quantization_config_low=0.0,
        quantization_config_high=1.0,
        quantization_config_num_buckets=3,
    )
    assert found.preserved_vectors.numpy().ravel().tolist() == [1, 0.5]
    assert found.activations.numpy().tolist() == [[1.5]]


def test_combined_lookup_without_samples_or_positions_is_empty() -> None:
    for samples, valency in ((0, 3), (2, 0)):
        shape = Shape(samples, valency, 4, 0)
        found = combined_lookup(
            ordered_csr([[]] * samples, 2),
            np.ones((4, 4), np.float32),
            np.zeros(0, "f4"),
            concrete(
                lambda valencies, vectors: tf.reduce_sum(vectors, 1),
                forward_function(COMBINERS["sum"], shape).structured_input_signature[0],
            ),
            shape,
            2,
        )
        assert found.preserved_vectors.shape == [samples, valency, 4]
        np.testing.assert_array_equal(found.activations, np.zeros((samples, 4)))


def test_combined_update_of_unused_weights_returns_zeros() -> None:
    """TensorFlow's kernel returns zeros where the function has no result."""
    shape, bags = Shape(2, 2, 1, 3), [[0], [1, 0]]
    functions = vjp_functions(COMBINERS["weighted"], Shape(2, 2, 1, 2))
    specs = [
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec([2, 2, 1]),
        tf.TensorSpec([2, 3]),
        tf.TensorSpec([2, 1]),
    ]
    functions["combiner_table_vjp_computation"] = concrete(
        lambda valencies, vectors, weights, g: tf.tile(g[:, None], [1, 2, 1]), specs
    )
    functions["combiner_weights_vjp_computation"] = concrete(lambda *_: [], specs)
    csr, table = ordered_csr(bags, 1), np.zeros((2, 1), np.float32)
    saved = {
        "preserved_valencies": np.array([1, 2], np.int32),
        "preserved_vectors": np.zeros((2, 2, 1), np.float32),
        "preserved_weights": np.ones(3, np.float32),
        "weights": np.ones(3, np.float32),
    }
    gradients = np.array([[1], [2]], np.float32)
    new, weights = combined_update(
        CASES["sgd"], csr, saved, functions, gradients, [table], shape, 1
    )
    assert new.numpy().ravel().tolist() == [-0.75, -0.5]
    assert weights.numpy().tolist() == [0, 0, 0]


def test_combined_update_ignores_gradients_beyond_the_ids_of_a_sample() -> None:
    shape, bags = Shape(2, 3, 1, 0), [[0], []]
    functions = vjp_functions(COMBINERS["sum"], shape)
    functions["combiner_table_vjp_computation"] = concrete(
        lambda *_: tf.constant([[[1.0], [np.nan], [np.inf]], [[np.nan]] * 3]),
        functions["combiner_table_vjp_computation"].structured_input_signature[0],
    )
    csr, table = ordered_csr(bags, 1), np.zeros((2, 1), np.float32)
    found = combined_lookup(
        csr,
        table,
        np.zeros(0, "f4"),
        forward_function(COMBINERS["sum"], shape),
        shape,
        1,
    )
    new, _ = combined_update(
        CASES["sgd"],
        csr,
        preserved(found, np.zeros(0, "f4")),
        functions,
        np.ones((2, 1), np.float32),
        [table],
        shape,
        1,
    )
    assert new.numpy().ravel().tolist() == [-0.25, 0]


def test_combined_update_by_a_function_matches_the_op_of_the_rule() -> None:
    case, cores, rng = CASES["adagrad"], 2, np.random.default_rng(7)
    shape = Shape(6, 3, 5, 3)
    combiner, bags = COMBINERS["weighted"], drawn_bags(rng, shape)
    weights = rng.standard_normal(3).astype(np.float32)
    state = state_of(case, rng, (VOCABULARY, shape.width))
    gradients = rng.standard_normal((shape.samples, shape.width)).astype(np.float32)
    csr, functions = ordered_csr(bags, cores), vjp_functions(combiner, shape)
    found = combined_lookup(
        csr, state[0], weights, forward_function(combiner, shape), shape, cores
    )
    saved = preserved(found, weights)

    def adagrad(g: tf.Tensor, w: tf.Tensor, a: tf.Tensor, rate: tf.Tensor) -> Any:
        a += g**2
        return w - rate * g / tf.sqrt(a), a

    kept = [x.copy() for x in state]
    result = raw.XlaSparseDenseMatmulCustomCombinerOnTcGradWithCsrInput(
        **csr,
        **saved,
        **functions,
        activation_gradients=gradients,
        tables=state,
        hyperparameters=[np.float32(0.25)],
        combiner_weights_learning_rate=RATE,
        max_valency=shape.max_valency,
        num_weights=shape.weights,
        optimizer_custom_computation=concrete(
            adagrad, [tf.TensorSpec([1, shape.width])] * 4
        ),
        table_name="the_table",
        num_sparsecores_per_device=cores,
    )
    expected = combined_update(
        case, csr, saved, functions, gradients, state, shape, cores
    )
    for got, want in zip(
        [*result.updated_tables, result.updated_weights], expected, strict=True
    ):
        close(got, want.numpy(), 1e-6)
    for x, y in zip(state, kept, strict=True):
        np.testing.assert_array_equal(x, y)
