"""Calls of the ops with custom combiners, and what they are held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sparsecore.support.lookups import Array, Bags, raw
from sparsecore.support.updates import Case

RATE = 0.125


class Shape(NamedTuple):
    """The sizes of a lookup."""

    samples: int
    max_valency: int
    width: int
    weights: int


class Combiner(NamedTuple):
    """A combiner of one sample, and its reference in NumPy.

    Attributes:
        function: takes the valency, the rows and, if there are any, the weights.
        combine: the reference of the same.
        differentiate: takes the gradient too; returns those of the rows and weights.
    """

    function: Callable[..., tf.Tensor]
    combine: Callable[..., Array]
    differentiate: Callable[..., tuple[Array, Array]]


def _mask(valency: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    within = tf.range(vectors.shape[0]) < valency
    return tf.where(within[:, None], vectors, tf.zeros_like(vectors))


def _sum(valency: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(_mask(valency, vectors), axis=0)


def _weighted(valency: tf.Tensor, vectors: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Weights by position, squares, and the valency itself."""
    vectors = _mask(valency, vectors)
    return tf.cast(valency, tf.float32) * tf.linalg.matvec(
        vectors + vectors**2, weights, transpose_a=True
    )


COMBINERS = {
    "sum": Combiner(
        _sum,
        lambda rows: rows.sum(0),
        lambda rows, g: (np.tile(g, (len(rows), 1)), np.zeros(0)),
    ),
    "weighted": Combiner(
        _weighted,
        lambda rows, w: len(rows) * (w[: len(rows), None] * (rows + rows**2)).sum(0),
        lambda rows, w, g: (
            len(rows) * w[: len(rows), None] * (1 + 2 * rows) * g,
            np.pad(len(rows) * (rows + rows**2) @ g, (0, len(w) - len(rows))),
        ),
    ),
}


# ---- Functions of all samples, as the ops take them.


def _batched(function: Callable[..., tf.Tensor], *arguments: tf.Tensor) -> tf.Tensor:
    return tf.vectorized_map(lambda one: function(*one), arguments)


def _specs(shape: Shape, *more: tf.TensorSpec) -> list[tf.TensorSpec]:
    specs = [
        tf.TensorSpec([shape.samples], tf.int32),
        tf.TensorSpec([shape.samples, shape.max_valency, shape.width]),
    ]
    if shape.weights:
        specs.append(tf.TensorSpec([shape.samples, shape.weights]))
    return [*specs, *more]


def concrete(function: Callable[..., Any], specs: list[tf.TensorSpec]) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def forward_function(combiner: Combiner, shape: Shape) -> Any:
    return concrete(
        lambda *arguments: _batched(combiner.function, *arguments), _specs(shape)
    )


def vjp_functions(combiner: Combiner, shape: Shape) -> dict[str, Any]:
    def vjp(of: int) -> Any:
        def function(*arguments: tf.Tensor) -> tf.Tensor:
            *inputs, gradient = arguments
            with tf.GradientTape() as tape:
                tape.watch(inputs[of])
                activations = _batched(combiner.function, *inputs)
            return tape.gradient(activations, inputs[of], gradient)

        gradient = tf.TensorSpec([shape.samples, shape.width])
        return concrete(function, _specs(shape, gradient))

    return {
        "combiner_table_vjp_computation": vjp(1),
        # It is not called where there are no weights.
        "combiner_weights_vjp_computation": vjp(2 if shape.weights else 1),
    }


# ---- Calls.


def common(shape: Shape, cores: int) -> dict[str, Any]:
    return {
        "max_valency": shape.max_valency,
        "num_weights": shape.weights,
        "table_name": "the_table",
        "num_sparsecores_per_device": cores,
    }


def combined_lookup(
    csr: dict[str, Array],
    table: Array,
    weights: Array,
    function: Any,
    shape: Shape,
    cores: int,
    **changes: Any,
) -> Any:
    arguments = {
        "embedding_table": table,
        "weights": weights,
        "input_size": shape.samples,
        "combiner_computation": function,
        "quantization_config_low": 0.0,
        "quantization_config_high": 0.0,
        "quantization_config_num_buckets": 0,
    }
    return raw.XlaSparseDenseMatmulCustomCombinerOnTcWithCsrInput(
        **(csr | common(shape, cores) | arguments | changes)
    )


def preserved(found: Any, weights: Array) -> dict[str, Any]:
    """What the backward pass takes of the lookup."""
    return {
        "preserved_valencies": found.preserved_valencies,
        "preserved_vectors": found.preserved_vectors,
        "preserved_weights": weights,
        "weights": weights,
    }


def combined_update(
    case: Case,
    csr: dict[str, Array],
    saved: dict[str, Any],
    functions: dict[str, Any],
    gradients: Array,
    state: list[Any],
    shape: Shape,
    cores: int,
    **changes: Any,
) -> list[Any]:
    """Returns the updated table, slots and weights."""
    arguments = {
        "activation_gradients": gradients,
        "learning_rate": 0.25,
        "combiner_weights_learning_rate": RATE,
        **dict(zip(["embedding_table", *case.slots], state, strict=True)),
    }
    op = f"XlaSparseDenseMatmulCustomCombinerOnTcGradWith{case.op}AndCsrInput"
    return list(
        getattr(raw, op)(
            **(
                csr
                | saved
                | functions
                | common(shape, cores)
                | arguments
                | case.hyper
                | changes
            )
        )
    )


def expected_gradients(
    combiner: Combiner, bags: Bags, table: Array, weights: Array, gradients: Array
) -> tuple[Array, Array, Array]:
    """The distinct rows, the sums of their gradients, and those of the weights."""
    rows = np.unique(np.concatenate([np.asarray(bag, np.int64) for bag in bags]))
    sums, of_weights = np.zeros((len(rows), table.shape[1])), np.zeros(len(weights))
    arguments = (weights,) if len(weights) else ()
    for bag, gradient in zip(bags, gradients, strict=True):
        of_rows, of_these = combiner.differentiate(
            table[bag], *arguments, gradient.astype(np.float64)
        )
        np.add.at(sums, np.searchsorted(rows, bag), of_rows)
        of_weights += of_these
    return rows, sums, of_weights
