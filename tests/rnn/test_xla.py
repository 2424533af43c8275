"""CudnnRNN ops compiled by XLA give the results of the CPU kernels."""

from __future__ import annotations

import random
import textwrap
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opwright import Scope
from opwright.nn import (
    CudnnRNN,
    CudnnRNNV2,
    CudnnRNNV3,
    cudnn_rnn_canonical_to_params,
    cudnn_rnn_params_size,
    cudnn_rnn_params_to_canonical,
    cudnn_rnn_v3,
)
from rnn.support import reference
from rnn.support.bad_calls import BACKWARD, FORWARD, backward, call, forward
from rnn.support.cases import (
    DTYPES,
    MODES,
    SHAPES,
    TOLERANCE,
    Case,
    Run,
    Values,
    cases,
    check,
    draw_values,
    error,
    expect,
    options,
    run,
    run_compiled,
    wide,
    with_lengths,
)
from support.processes import run_code

CHOICES: dict[str, tuple[Any, ...]] = {
    "mode": MODES,
    "dtype": DTYPES,
    "layers": (1, 2),
    "bidirectional": (False, True),
    "input_mode": ("linear_input", "skip_input", "auto_select"),
    "projected": (False, True),  # LSTM only.
    "time_major": (False, True),
    "lengths": ("full", "known", "given"),
}
Row = tuple[Any, ...]


def triples(row: Row) -> set[tuple[tuple[int, Any], ...]]:
    return set(combinations(enumerate(row), 3))


@cache
def covering() -> list[Row]:
    """Rows of choices, such that any three choices meet in one of them."""
    rng = random.Random(0)
    left = {
        ((i, a), (j, b), (k, c))
        for (i, first), (j, second), (k, third) in combinations(
            enumerate(CHOICES.values()), 3
        )
        for a in first
        for b in second
        for c in third
    }
    rows = []
    while left:
        # A row with a missing triple that covers the most other missing triples.
        fixed = dict(min(left, key=repr))
        candidates = [
            tuple(
                fixed.get(i, rng.choice(values))
                for i, values in enumerate(CHOICES.values())
            )
            for _ in range(60)
        ]
        best = max(candidates, key=lambda row: len(triples(row) & left))
        left -= triples(best)
        rows.append(best)
    return rows


def run_and_compare(known: bool) -> Run:
    """Runs a case compiled, and compares it with the CPU kernels."""

    def compiled(case: Case, inputs: Values, gradients: Values) -> dict[str, tf.Tensor]:
        found = run_compiled(case, inputs, gradients, known=known)
        for name, value in run(case, inputs, gradients).items():
            worst = error(found[name], wide(value))
            assert worst <= TOLERANCE[case.dtype], f"{name}: {worst:.2g} in {case}"
        return found

    return compiled


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_xla_any_three_choices_match_cpu(mode: str, dtype: tf.DType) -> None:
    for seed, row in enumerate(covering()):
        choice = dict(zip(CHOICES, row, strict=True))
        if (choice["mode"], choice["dtype"]) != (mode, dtype):
            continue
        case = Case(
            mode,
            dtype,
            layers=choice["layers"],
            units=5,
            input_size=3 if choice["input_mode"] == "linear_input" else 5,
            batch=4,
            bidirectional=choice["bidirectional"],
            input_mode=choice["input_mode"],
            projection=2 if mode == "lstm" and choice["projected"] else 0,
            time_major=choice["time_major"],
            seed=seed,
        )
        if choice["lengths"] != "full":
            case = with_lengths(case)
        check(case, run_and_compare(known=choice["lengths"] != "given"))


@pytest.mark.rotating
@pytest.mark.parametrize("mode", MODES)
def test_xla_random_case_matches_cpu(mode: str) -> None:
    @settings(
        max_examples=2,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        dtype = data.draw(st.sampled_from(DTYPES))
        known = data.draw(st.booleans())
        check(data.draw(cases(mode, dtype)), run_and_compare(known))

    draw()


@pytest.mark.rotating
@pytest.mark.parametrize("mode", MODES)
def test_xla_single_step_matches_cpu(mode: str) -> None:
    for lengths in (None, (0,)):
        case = Case(mode, tf.float32, time=1, batch=1, bidirectional=True)
        check(replace(case, lengths=lengths), run_and_compare(known=False))


NAMES = ["output", "output_h", "output_c"]
NAMES += [f"{name}_backprop" for name in ("input", "input_h", "input_c", "params")]


@pytest.mark.rotating
@pytest.mark.parametrize("op", [CudnnRNN, CudnnRNNV2, CudnnRNNV3])
@pytest.mark.parametrize("inside", [False, True])
def test_xla_versions_with_tape_inside_or_outside_match_reference(
    op: type, inside: bool
) -> None:
    case = Case("lstm", tf.float32, units=9, input_size=5, time=6, batch=4)
    inputs, gradients = draw_values(case)
    expected = expect(case, inputs, gradients)

    def outputs(*given: tf.Tensor) -> list[tf.Tensor]:
        more = [[case.time] * case.batch] if op is CudnnRNNV3 else []
        rnn = op.create(Scope.current(), *given, *more, op.Options(rnn_mode="lstm"))
        if op is not CudnnRNN:
            shape = [2] if op is CudnnRNNV2 else []
            tf.ensure_shape(rnn.host_reserved, shape)
        return [rnn.output, rnn.output_h, rnn.output_c]

    def step(*given: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(given)
            made = layers(*given)
        back = [gradients.input, gradients.input_h, gradients.input_c]
        return [*made, *tape.gradient(made, given, back)]

    layers = outputs if inside else tf.function(outputs, jit_compile=True)
    whole = tf.function(step, jit_compile=True, autograph=False) if inside else step
    given = [inputs.input, inputs.input_h, inputs.input_c, inputs.params]
    for name, found in zip(NAMES, whole(*given), strict=True):
        assert error(found, expected[name]) <= 1e-5, name


@pytest.mark.rotating
def test_xla_padding_is_not_read() -> None:
    for mode in ("lstm", "gru"):
        case = Case(mode, tf.float32, layers=2, batch=4, bidirectional=True)
        case = replace(with_lengths(case), projection=2 if mode == "lstm" else 0)
        inputs, gradients = draw_values(case)
        clean = expect(case, inputs, gradients)
        mask = tf.transpose(tf.sequence_mask(case.lengths, case.time))[:, :, None]
        poisoned = replace(inputs, input=tf.where(mask, inputs.input, float("nan")))
        for name, found in run_compiled(case, poisoned, gradients).items():
            assert error(found, clean[name]) <= 1e-5, name


@pytest.mark.rotating
@pytest.mark.parametrize("mode", MODES)
def test_xla_nan_propagates(mode: str) -> None:
    case = Case(mode, tf.float32)
    inputs, gradients = draw_values(case)
    x = tf.tensor_scatter_nd_update(inputs.input, [[1, 0, 0]], [float("nan")])
    found = run_compiled(case, replace(inputs, input=x), gradients)
    y = wide(found["output"])
    assert not np.isnan(y[0]).any() and not np.isnan(y[:, 1]).any()
    assert np.isnan(y[1:, 0]).all()


def test_xla_lengths_are_clipped_to_the_range() -> None:
    case = Case("lstm", tf.float32, batch=4, lengths=(0, 3, 3, 1))
    inputs, gradients = draw_values(case)
    expected = expect(case, inputs, gradients)
    wrong = replace(case, lengths=(-5, 4, 2**31 - 1, 1))
    for name, found in run_compiled(wrong, inputs, gradients).items():
        assert error(found, expected[name]) <= 1e-5, name


@pytest.mark.parametrize(("argument", "changes"), FORWARD)
def test_xla_forward_bad_argument_is_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    arguments = forward(**changes)
    lengths = arguments.pop("sequence_lengths")
    given = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
    rest = {k: v for k, v in arguments.items() if k not in given}
    unknown = [tf.TensorSpec(None, tf.float32)] * len(given)

    @tf.function(input_signature=unknown, jit_compile=True, autograph=False)
    def compiled(*tensors: tf.Tensor) -> Any:
        arrays = dict(zip(given, tensors, strict=True))
        return call({**arrays, **rest, "sequence_lengths": lengths})

    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as raised:
        compiled(*given.values())
    message = str(raised.value)
    assert f"{argument}: " in message or "rank" in message, message


def test_xla_bounded_dynamic_shape_is_refused() -> None:
    @tf.function(jit_compile=True, autograph=False)
    def compiled(x: tf.Tensor, mask: tf.Tensor) -> Any:
        return call(forward(input=tf.boolean_mask(x, mask)))

    # Unimplemented: with automatic clustering TensorFlow then runs it without XLA.
    with pytest.raises(tf.errors.UnimplementedError, match=r"input: .* static shape"):
        compiled(forward()["input"], tf.constant([True, False, True]))


@pytest.mark.parametrize(
    ("argument", "changes"),
    # The content of a reserve is not known when XLA compiles.
    [
        (argument, changes)
        for argument, changes in BACKWARD
        if not {"dropout", "seed"} & set(changes)
        and not callable(changes.get("reserve_space"))
    ],
)
def test_xla_backward_bad_argument_is_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    @tf.function(jit_compile=True, autograph=False)
    def compiled(replaced: dict[str, Any]) -> Any:
        return tf.raw_ops.CudnnRNNBackpropV3(**{**backward(), **replaced})

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        compiled(changes)
    assert f"{argument}: " in raised.value.message


@pytest.mark.rotating
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("forward_compiled", [False, True])
def test_xla_and_cpu_backward_take_the_reserve_of_either(
    mode: str, forward_compiled: bool
) -> None:
    """The reserve and the dropout masks are the same with XLA and on the CPU."""
    case = Case(mode, tf.float32, layers=2, batch=4, units=5, bidirectional=True)
    case = replace(with_lengths(case), projection=2 if mode == "lstm" else 0)
    given, gradients = draw_values(case)
    lstm = mode == "lstm"
    inputs = {
        "input": given.input,
        "input_h": given.input_h,
        "input_c": given.input_c if lstm else tf.constant(0.0),
        "params": given.params,
        "sequence_lengths": tf.constant(case.lengths),
    }
    options = {**case.options, "dropout": 0.5, "seed": 7}

    def forwards(**tensors: tf.Tensor) -> Any:
        return tf.raw_ops.CudnnRNNV3(**tensors, **options)

    def backwards(**tensors: tf.Tensor) -> Any:
        return tf.raw_ops.CudnnRNNBackpropV3(**tensors, **options)

    def compiled(function: Any) -> Any:
        return tf.function(function, jit_compile=True, autograph=False)

    made = (compiled(forwards) if forward_compiled else forwards)(**inputs)
    names = ("output", "output_h", "output_c", "reserve_space", "host_reserved")
    outputs = dict(zip(names, made, strict=True))
    back = {
        "output_backprop": gradients.input,
        "output_h_backprop": gradients.input_h,
        "output_c_backprop": gradients.input_c if lstm else tf.constant(0.0),
    }
    arguments = {**inputs, **outputs, **back}
    for one, other in zip(
        backwards(**arguments), compiled(backwards)(**arguments), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.rotating
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("case", SHAPES[::3], ids=str)
def test_xla_params_ops_match_cpu(case: Case, given: bool) -> None:
    """The sizes are constants, or arguments, of which XLA makes constants."""
    shape = replace(case.shape, projection=0)
    case = replace(case, projection=0)
    stacked = shape.layers * shape.dirs
    count = stacked * 2 * reference.GATES[case.mode]
    size = reference.params_size(shape)
    params = tf.range(size, dtype=tf.float32)
    sizes = (case.layers, case.units, case.input_size)

    @tf.function(jit_compile=True, autograph=False)
    def compiled(params: tf.Tensor, *sizes: Any) -> Any:
        total = cudnn_rnn_params_size(*sizes, tf.float32, tf.int64, **options(case))
        made = cudnn_rnn_params_to_canonical(*sizes, params, count, **options(case))
        back = cudnn_rnn_canonical_to_params(
            *sizes, made.weights, made.biases, **options(case)
        )
        return total, made.weights, made.biases, back

    total, weights, biases, back = compiled(
        params, *(map(tf.constant, sizes) if given else sizes)
    )
    assert total.numpy().tolist() == [size]
    np.testing.assert_array_equal(back, params)
    eager = cudnn_rnn_params_to_canonical(*sizes, params, count, **options(case))
    for found, wanted in zip(
        (*weights, *biases), (*eager.weights, *eager.biases), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("argument", "sizes"),
    [
        ("num_layers", (0, 2, 3)),
        ("num_units", (1, 2**31 - 1, 2**31 - 1)),
        ("num_units", (2**31 - 1, 1, 1)),
    ],
)
def test_xla_params_size_bad_sizes_are_refused(
    argument: str, sizes: tuple[Any, ...]
) -> None:
    @tf.function(jit_compile=True, autograph=False)
    def compiled(*sizes: Any) -> tf.Tensor:
        return cudnn_rnn_params_size(*sizes, tf.float32, tf.int32)

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        compiled(*map(tf.constant, sizes))
    assert f"{argument}: " in raised.value.message


@pytest.mark.rotating
def test_xla_library_loaded_after_first_compilation_compiles() -> None:
    program = """
        import tensorflow as tf

        tf.function(lambda x: x + 1, jit_compile=True)(1.0)
        from opwright.nn import cudnn_rnn_params_size, cudnn_rnn_v3

        @tf.function(jit_compile=True)
        def step(layers):
            h = tf.ones([1, 2, 3])
            y = cudnn_rnn_v3(tf.ones([2, 2, 4]), h, h, tf.ones([108]), [2, 1]).output
            return y, cudnn_rnn_params_size(layers, 3, 4, tf.float32, tf.int32)

        y, size = step(tf.constant(1))
        assert size.numpy() == 108
        assert y.shape == [2, 2, 3] and not y[1, 1].numpy().any()
    """
    done = run_code(textwrap.dedent(program))
    assert done.returncode == 0, done.stderr


def test_xla_training_step_loss_falls() -> None:
    """Variables, an optimizer's update, several steps: the loss falls."""
    rng = np.random.default_rng(0)
    x = tf.constant(rng.standard_normal([8, 5, 3]), tf.float32)
    wanted = tf.reduce_sum(x, axis=[0, 2])
    params = tf.Variable(
        rng.standard_normal(4 * 6 * (3 + 6 + 2)) * 0.3, dtype="float32"
    )
    last = tf.Variable(tf.ones([6]))
    state = tf.zeros([1, 5, 6])

    @tf.function(jit_compile=True, autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            h = cudnn_rnn_v3(x, state, state, params, [8] * 5).output_h
            loss = tf.reduce_mean((tf.linalg.matvec(h[0], last) - wanted) ** 2)
        for variable, gradient in zip(
            (params, last), tape.gradient(loss, (params, last)), strict=True
        ):
            variable.assign_sub(0.05 * gradient)
        return loss

    losses = [float(step()) for _ in range(60)]
    assert losses[-1] < 0.2 * losses[0]
