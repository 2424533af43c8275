"""Inference keeps packed weights between calls: it must notice every change of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from cases import DTYPES, MODES, Case, draw_values

from opwright.nn import cudnn_rnn_v3

CASE = Case("lstm", tf.float32, layers=2, units=20, input_size=9, time=4, batch=3)


def forward(case: Case, params: object, training: bool) -> list[np.ndarray]:
    inputs, _ = draw_values(case)
    lengths = [case.time] * case.batch
    rnn = cudnn_rnn_v3(
        inputs.input,
        inputs.input_h,
        inputs.input_c if case.mode == "lstm" else 0.0,
        params,
        lengths,
        is_training=training,
        rnn_mode=case.mode,
    )
    return [output.numpy() for output in (rnn.output, rnn.output_h, rnn.output_c)]


def agree(case: Case, params: object) -> None:
    """Inference says what training says, which packs the weights each time."""
    for kept, packed in zip(
        forward(case, params, False), forward(case, params, True), strict=True
    ):
        np.testing.assert_array_equal(kept, packed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_every_change_of_a_variable_is_noticed(
    isa: str, mode: str, dtype: tf.DType
) -> None:
    case = Case(mode, dtype, layers=2, units=20, input_size=9, time=4, batch=3)
    params = tf.Variable(draw_values(case)[0].params)
    rng = np.random.default_rng(0)
    agree(case, params)
    before = forward(case, params, False)
    params.assign_add(tf.ones_like(params))
    agree(case, params)
    assert np.any(forward(case, params, False)[0] != before[0])
    # One value; its sign; two signs at distances at which lanes of vectors meet again.
    for distance in (None, 1, 8, 16, 32, 64, 128):
        values = params.numpy()
        at = int(rng.integers(values.size - 128))
        values[at] = -values[at]
        if distance:
            values[at + distance] = -values[at + distance]
        params.assign(values)
        agree(case, params)


def test_memory_changed_behind_tensorflow_is_noticed() -> None:
    values = draw_values(CASE)[0].params.numpy().copy()
    params = tf.experimental.dlpack.from_dlpack(values.__dlpack__())
    agree(CASE, params)
    before = forward(CASE, params, False)
    values *= 2
    agree(CASE, params)
    assert np.any(forward(CASE, params, False)[0] != before[0])


def test_layers_that_share_a_kernel_keep_their_own() -> None:
    params = [draw_values(CASE)[0].params * scale for scale in np.linspace(0.5, 1, 7)]
    expected = [forward(CASE, one, True) for one in params]

    def call(i: int) -> None:
        for found, right in zip(
            forward(CASE, params[i % 7], False), expected[i % 7], strict=True
        ):
            np.testing.assert_array_equal(found, right)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(280)))
