"""CudnnRNN's forward pass and all its gradients are those of the formulas."""

from __future__ import annotations

from itertools import product

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rnn.support.cases import DTYPES, MODES, Case, cases, check, with_lengths
from support.tiers import FULL

EVERY = [(mode, dtype) for mode in MODES for dtype in DTYPES]


@pytest.mark.rotating
@pytest.mark.parametrize(("mode", "dtype"), EVERY)
def test_cudnn_rnn_every_combination_matches_reference(
    mode: str, dtype: tf.DType
) -> None:
    for seed, (layers, bidirectional, input_mode, time_major, lengths) in enumerate(
        product(
            (1, 2),
            (False, True),
            ("linear_input", "skip_input", "auto_select"),
            (False, True),
            (False, True),
        )
    ):
        case = Case(
            mode,
            dtype,
            layers=layers,
            units=5,
            input_size=5 if input_mode != "linear_input" else 3,
            batch=4,
            bidirectional=bidirectional,
            input_mode=input_mode,
            time_major=time_major,
            projection=2 if mode == "lstm" and seed % 3 == 0 else 0,
            seed=seed,
        )
        check(with_lengths(case) if lengths else case)


@pytest.mark.partial
@pytest.mark.parametrize(("mode", "dtype"), EVERY)
def test_cudnn_rnn_random_case_matches_reference(
    isa: str, mode: str, dtype: tf.DType
) -> None:
    @settings(
        max_examples=12 if FULL else 4,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        check(data.draw(cases(mode, dtype)))

    draw()


@pytest.mark.rotating
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_cudnn_rnn_work_in_chunks_matches_reference(
    isa: str, mode: str, bidirectional: bool
) -> None:
    """Large enough for several threads and several chunks of steps."""
    check(
        Case(
            mode,
            tf.float32,
            layers=2,
            units=72,
            input_size=40,
            time=30,
            batch=70,
            bidirectional=bidirectional,
            projection=50 if mode == "lstm" else 0,
            lengths=tuple((7 * b) % 31 for b in range(70)),
        )
    )


@pytest.mark.rotating
@pytest.mark.parametrize(("mode", "dtype"), EVERY)
@pytest.mark.parametrize(("time", "batch"), [(1, 1), (2, 1), (1, 2)])
def test_cudnn_rnn_streaming_matches_reference(
    isa: str, mode: str, dtype: tf.DType, time: int, batch: int
) -> None:
    """With so little work the kernel uses the weights unpacked."""
    for units, input_size, layers in ((1, 1, 1), (37, 18, 2), (64, 64, 1), (70, 3, 1)):
        if units == 1 and dtype.size == 2:
            continue  # The only gradient is 1 - y * y of a rounded y.
        for lengths in (None, (0,) * batch):
            check(
                Case(
                    mode,
                    dtype,
                    units=units,
                    input_size=input_size,
                    layers=layers,
                    time=time,
                    batch=batch,
                    bidirectional=layers > 1,
                    lengths=lengths,
                )
            )


@pytest.mark.parametrize(
    ("mode", "units"), [("lstm", 380), ("gru", 430), ("rnn_tanh", 720)]
)
def test_cudnn_rnn_single_sequence_on_all_threads_matches_reference(
    mode: str, units: int
) -> None:
    """The work of one step is large enough for several threads."""
    check(Case(mode, tf.float32, units=units, input_size=units, time=4, batch=1))
    check(Case(mode, tf.float32, units=units, input_size=8, time=1, batch=2))


def test_cudnn_rnn_padding_is_not_read() -> None:
    from rnn.support.cases import draw_values, error, expect, run

    case = with_lengths(Case("gru", tf.float32, layers=2, batch=4, bidirectional=True))
    inputs, gradients = draw_values(case)
    clean = expect(case, inputs, gradients)
    assert case.lengths is not None
    mask = tf.sequence_mask(case.lengths, case.time)
    mask = tf.transpose(mask)[:, :, None]
    poisoned = type(inputs)(
        tf.where(mask, inputs.input, float("nan")),
        inputs.input_h,
        inputs.input_c,
        inputs.params,
    )
    for name, found in run(case, poisoned, gradients).items():
        assert error(found, clean[name]) <= 1e-5, name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cudnn_rnn_nan_and_infinity_propagate(mode: str, dtype: tf.DType) -> None:
    from rnn.support.cases import draw_values, run, wide

    case = Case(mode, dtype)
    inputs, gradients = draw_values(case)
    for value in ("nan", "inf", "-inf"):
        x = tf.tensor_scatter_nd_update(
            inputs.input, [[1, 0, 0]], tf.cast([float(value)], dtype)
        )
        found = run(
            case,
            type(inputs)(x, inputs.input_h, inputs.input_c, inputs.params),
            gradients,
        )
        y = wide(found["output"])
        assert not (y[0] != y[0]).any()
        assert not (y[:, 1] != y[:, 1]).any()
        if value == "nan":
            assert (y[1:, 0] != y[1:, 0]).all()
