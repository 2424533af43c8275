"""The packed vector: its size, and its conversion from and to single matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import reference
import tensorflow as tf
from cases import DTYPES, MODES, Case

from opwright.nn import (
    cudnn_rnn_canonical_to_params,
    cudnn_rnn_canonical_to_params_v2,
    cudnn_rnn_params_size,
    cudnn_rnn_params_to_canonical,
    cudnn_rnn_params_to_canonical_v2,
)

SHAPES = [
    replace(Case(mode, tf.float32, layers=layers, units=4, input_size=i), **more)
    for mode in MODES
    for layers in (1, 3)
    for i, more in (
        (3, {}),
        (3, {"bidirectional": True}),
        (4, {"input_mode": "skip_input", "bidirectional": True}),
        (4, {"input_mode": "auto_select"}),
        *([(3, {"projection": 2})] if mode == "lstm" else []),
    )
]


def options(case: Case) -> dict[str, object]:
    kept = {k: v for k, v in case.options.items() if k != "time_major"}
    if not case.projection:
        del kept["num_proj"]
    return kept


def test_known_size() -> None:
    """TensorFlow's own test of the ops reports this number."""
    size = cudnn_rnn_params_size(
        3, 143, 143, tf.float32, tf.int32, direction="bidirectional"
    ).params_size
    assert size.numpy().tolist() == [1315600]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_size(case: Case) -> None:
    for dtype in (tf.int32, tf.int64):
        size = cudnn_rnn_params_size(
            case.layers, case.units, case.input_size, tf.float32, dtype, **options(case)
        ).params_size
        assert size.dtype == dtype
        assert size.numpy().tolist() == [reference.params_size(case.shape)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_there_and_back(case: Case, dtype: tf.DType) -> None:
    shape, gates = case.shape, reference.GATES[case.mode]
    size = reference.params_size(shape)
    values = np.arange(size) % 251
    params = tf.cast(values, dtype)
    sizes = (case.layers, case.units, case.input_size)
    stacked = shape.layers * shape.dirs
    biases = stacked * 2 * gates
    if case.projection:
        made = cudnn_rnn_params_to_canonical_v2(
            *sizes, params, biases + stacked, biases, **options(case)
        )
    else:
        made = cudnn_rnn_params_to_canonical(*sizes, params, biases, **options(case))

    cells = reference.unpack(shape, values.astype(np.float64))
    columns = np.zeros((gates, shape.units, 0))
    weights = [
        matrix
        for cell in cells
        for matrix in (
            *cell.get("W", columns),
            *cell["R"],
            *([cell["P"]] if "P" in cell else []),
        )
    ]
    vectors = [vector for cell in cells for vector in (*cell["bW"], *cell["bR"])]
    for found, wanted in zip(
        (*made.weights, *made.biases), (*weights, *vectors), strict=True
    ):
        np.testing.assert_array_equal(tf.cast(found, tf.float64), wanted)

    back = (
        cudnn_rnn_canonical_to_params_v2
        if case.projection
        else cudnn_rnn_canonical_to_params
    )
    again = back(*sizes, made.weights, made.biases, **options(case)).params
    np.testing.assert_array_equal(tf.cast(again, tf.float64), values)
