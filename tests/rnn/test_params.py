"""The packed vector: its size, and its conversion from and to single matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from opwright.nn import (
    cudnn_rnn_canonical_to_params,
    cudnn_rnn_canonical_to_params_v2,
    cudnn_rnn_params_size,
    cudnn_rnn_params_to_canonical,
    cudnn_rnn_params_to_canonical_v2,
)
from rnn.support import reference
from rnn.support.cases import (
    DTYPES,
    MODES,
    SHAPES,
    TOLERANCE,
    Case,
    draw_values,
    error,
    options,
    run,
    run_compiled,
    wide,
)


def test_cudnn_rnn_params_size_matches_test_of_tensorflow() -> None:
    """TensorFlow's own test of the ops reports this number."""
    size = cudnn_rnn_params_size(
        3, 143, 143, tf.float32, tf.int32, direction="bidirectional"
    )
    assert size.numpy().tolist() == [1315600]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_cudnn_rnn_params_size_matches_reference(case: Case) -> None:
    for dtype in (tf.int32, tf.int64):
        size = cudnn_rnn_params_size(
            case.layers, case.units, case.input_size, tf.float32, dtype, **options(case)
        )
        assert size.dtype == dtype
        assert size.numpy().tolist() == [reference.params_size(case.shape)]


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_cudnn_rnn_params_to_canonical_and_back_round_trip(
    case: Case, dtype: tf.DType
) -> None:
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
    again = back(*sizes, made.weights, made.biases, **options(case))
    np.testing.assert_array_equal(tf.cast(again, tf.float64), values)


@pytest.mark.rotating
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", SHAPES[::4], ids=str)
def test_cudnn_rnn_canonical_to_params_accepts_any_shape(
    case: Case, compiled: bool
) -> None:
    """Only their elements count, as on a GPU."""
    shape, gates = case.shape, reference.GATES[case.mode]
    params = tf.range(reference.params_size(shape), dtype=tf.float32)
    sizes = (case.layers, case.units, case.input_size)
    biases = shape.layers * shape.dirs * 2 * gates
    if case.projection:
        pytest.skip("V1 of the ops has no projection")
    made = cudnn_rnn_params_to_canonical(*sizes, params, biases, **options(case))

    def back(weights: list[tf.Tensor], biases: list[tf.Tensor]) -> tf.Tensor:
        return cudnn_rnn_canonical_to_params(*sizes, weights, biases, **options(case))

    if compiled:
        back = tf.function(back, jit_compile=True, autograph=False)
    for change in ([-1], [1, -1, 1], [-1, 1]):
        weights = [tf.reshape(one, change) for one in made.weights]
        again = back(weights, [tf.reshape(one, change) for one in made.biases])
        np.testing.assert_array_equal(again, params)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"biases\[1\]: .* 4 elem"):
        wrong = [made.biases[0], tf.zeros([5]), *made.biases[2:]]
        back(list(made.weights), wrong)


def test_cudnn_rnn_canonical_to_params_restores_tensorflow_1_checkpoint() -> None:
    """A GRU's as contrib.cudnn_rnn restored it: stitched, split, and flattened.

    In a session, with nodes that are pinned to a GPU.
    """
    units, inputs = 4, 3
    rng = np.random.default_rng(0)
    w = [rng.standard_normal([units, inputs]).astype("f") for _ in range(3)]
    r = [rng.standard_normal([units, units]).astype("f") for _ in range(3)]
    b = [rng.standard_normal([units]).astype("f") for _ in range(6)]
    # In the checkpoint: [inputs + units, units] for each gate.
    saved = [np.concatenate([w[i], r[i]], axis=1).T for i in range(3)]
    with tf.Graph().as_default(), tf.device("/device:GPU:0"):
        restored = [tf.transpose(tf.constant(one)) for one in saved]
        halves = [tf.split(one, [inputs, units], axis=1) for one in restored]
        weights = [half[0] for half in halves] + [half[1] for half in halves]
        packed = tf.raw_ops.CudnnRNNCanonicalToParams(
            num_layers=1,
            num_units=units,
            input_size=inputs,
            weights=[tf.reshape(one, [-1]) for one in weights],
            biases=[tf.constant(one) for one in b],
            rnn_mode="gru",
        )
        options = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        with tf.compat.v1.Session(config=options) as session:
            found = session.run(packed)
    wanted = np.concatenate([one.reshape(-1) for one in (*w, *r, *b)])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.rotating
@pytest.mark.rotating
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_cudnn_rnn_v3_excess_params_are_not_read(
    mode: str, dtype: tf.DType, compiled: bool
) -> None:
    """As on a GPU: the excess is not read, and its gradient is zero."""
    case = Case(mode, dtype, layers=2, bidirectional=True)
    given, gradients = draw_values(case)
    excess = tf.fill([5], tf.cast(float("nan"), dtype))
    longer = replace(given, params=tf.concat([given.params, excess], 0))
    wanted = run(case, given, gradients)
    found = (run_compiled if compiled else run)(case, longer, gradients)
    for name, value in found.items():
        if name == "params_backprop":
            assert value.shape == longer.params.shape
            assert not np.any(wide(value[-5:]))
            value = value[:-5]
        assert error(value, wide(wanted[name])) <= TOLERANCE[dtype], name
    sizes = (case.layers, case.units, case.input_size)
    count = reference.GATES[mode] * 8
    for size in (given.params, longer.params):
        made = cudnn_rnn_params_to_canonical(*sizes, size, count, **options(case))
        np.testing.assert_array_equal(made.biases[-1], given.params[-case.units :])
