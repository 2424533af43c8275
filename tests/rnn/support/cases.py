"""A call of CudnnRNNV3: drawn, run through its class, and by the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st
from numpy.typing import NDArray

from opwright.nn import cudnn_rnn_v3
from rnn.support import reference

MODES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
DTYPES = (tf.float32, tf.float64, tf.half, tf.bfloat16)
TOLERANCE = {tf.float32: 1e-5, tf.float64: 1e-12, tf.half: 2e-2, tf.bfloat16: 2e-2}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    mode: str
    dtype: tf.DType
    layers: int = 1
    units: int = 3
    input_size: int = 2
    time: int = 3
    batch: int = 2
    bidirectional: bool = False
    input_mode: str = "linear_input"
    projection: int = 0
    time_major: bool = True
    lengths: tuple[int, ...] | None = None
    seed: int = 0

    @property
    def shape(self) -> reference.Shape:
        skip = self.input_mode == "skip_input" or (
            self.input_mode == "auto_select" and self.input_size == self.units
        )
        return reference.Shape(
            self.mode,
            self.layers,
            self.units,
            self.input_size,
            self.time,
            self.batch,
            self.bidirectional,
            skip,
            self.projection,
        )

    @property
    def options(self) -> dict[str, Any]:
        return {
            "rnn_mode": self.mode,
            "input_mode": self.input_mode,
            "direction": "bidirectional" if self.bidirectional else "unidirectional",
            "num_proj": self.projection,
            "time_major": self.time_major,
        }


@st.composite
def cases(draw: st.DrawFn, mode: str, dtype: tf.DType) -> Case:
    """Any case of a mode and dtype: sizes around every vector's width."""
    units = draw(st.integers(1, 40))
    input_mode = draw(st.sampled_from(["linear_input", "skip_input", "auto_select"]))
    same = input_mode == "skip_input" or draw(st.booleans())
    time, batch = draw(st.integers(1, 7)), draw(st.integers(1, 13))
    lengths = st.tuples(*[st.integers(0, time)] * batch)
    return Case(
        mode=mode,
        dtype=dtype,
        layers=draw(st.integers(1, 3)),
        units=units,
        input_size=units if same else draw(st.integers(1, 70)),
        time=time,
        batch=batch,
        bidirectional=draw(st.booleans()),
        input_mode=input_mode,
        projection=draw(st.integers(0, units)) if mode == "lstm" else 0,
        time_major=draw(st.booleans()),
        lengths=draw(st.none() | lengths),
        seed=draw(st.integers(0, 2**31)),
    )


@dataclass(frozen=True)
class Values:
    """Arrays in the case's dtype, time-major; what a case reads, or what comes out."""

    input: Any
    input_h: Any
    input_c: Any
    params: Any


def draw_values(case: Case) -> tuple[Values, Values]:
    """Inputs, and gradients of output, output_h and output_c (params: None)."""
    rng = np.random.default_rng(case.seed)
    shape = case.shape

    def normal(*size: int, scale: float = 1.0) -> tf.Tensor:
        return tf.cast(rng.standard_normal(size) * scale, case.dtype)

    states = (shape.layers * shape.dirs, case.batch)
    gain = 1 / np.sqrt(max(case.units, case.input_size))
    inputs = Values(
        normal(case.time, case.batch, case.input_size),
        normal(*states, shape.hidden, scale=0.5),
        normal(*states, case.units, scale=0.5),
        normal(reference.params_size(shape), scale=gain),
    )
    gradients = Values(
        normal(case.time, case.batch, shape.dirs * shape.hidden),
        normal(*states, shape.hidden),
        normal(*states, case.units),
        None,
    )
    return inputs, gradients


def sequence(case: Case, x: tf.Tensor) -> tf.Tensor:
    """Between the case's layout and time-major, either way."""
    return x if case.time_major else tf.transpose(x, [1, 0, 2])


def state(case: Case, x: tf.Tensor) -> tf.Tensor:
    """The same for a state, whose shape is swapped but not its elements."""
    if case.time_major:
        return x
    return tf.reshape(x, [x.shape[1], x.shape[0], x.shape[2]])


def run(
    case: Case, inputs: Values, gradients: Values, lengths: Any = None
) -> dict[str, tf.Tensor]:
    """Outputs and gradients by name, time-major, by way of TensorFlow's gradient."""
    lstm = case.mode == "lstm"
    if lengths is None:
        lengths = all_lengths(case)
    given = [
        sequence(case, inputs.input),
        state(case, inputs.input_h),
        state(case, inputs.input_c) if lstm else tf.zeros([], case.dtype),
        inputs.params,
    ]
    with tf.GradientTape() as tape:
        for tensor in given:
            tape.watch(tensor)
        rnn = cudnn_rnn_v3(*given, lengths, **case.options)
        outputs = [rnn.output, rnn.output_h, *([rnn.output_c] if lstm else [])]
    back = [sequence(case, gradients.input), state(case, gradients.input_h)]
    if lstm:
        back.append(state(case, gradients.input_c))
    dx, dh, dc, dparams = tape.gradient(outputs, given, back)
    inference = cudnn_rnn_v3(*given, lengths, is_training=False, **case.options)
    assert inference.reserve_space.shape.is_compatible_with([])
    found = {
        "output": sequence(case, rnn.output),
        "output_h": state(case, rnn.output_h),
        "output in inference": sequence(case, inference.output),
        "output_h in inference": state(case, inference.output_h),
        "input_backprop": sequence(case, dx),
        "input_h_backprop": state(case, dh),
        "params_backprop": dparams,
    }
    if lstm:
        found["output_c"] = state(case, rnn.output_c)
        found["input_c_backprop"] = state(case, dc)
    return found


Run = Callable[[Case, Values, Values], dict[str, tf.Tensor]]


def all_lengths(case: Case) -> tuple[int, ...]:
    return case.lengths or (case.time,) * case.batch


def run_compiled(
    case: Case, inputs: Values, gradients: Values, *, known: bool = False
) -> dict[str, tf.Tensor]:
    """The same compiled by XLA; `known`: lengths are constants of the program."""

    @tf.function(jit_compile=True, autograph=False)
    def compiled(
        given: tuple[tf.Tensor, ...], back: tuple[tf.Tensor, ...], lengths: Any = None
    ) -> dict[str, tf.Tensor]:
        return run(case, Values(*given), Values(*back, None), lengths)

    given = (inputs.input, inputs.input_h, inputs.input_c, inputs.params)
    back = (gradients.input, gradients.input_h, gradients.input_c)
    if known:
        return compiled(given, back)
    return compiled(given, back, tf.constant(all_lengths(case)))


def wide(x: Any) -> Array:
    return np.asarray(tf.cast(x, tf.float64))


def expect(case: Case, inputs: Values, gradients: Values) -> dict[str, Array]:
    """The same from the reference."""
    done = reference.forward(
        case.shape,
        wide(inputs.input),
        wide(inputs.input_h),
        wide(inputs.input_c),
        wide(inputs.params),
        list(case.lengths) if case.lengths else None,
        stored=lambda y: wide(tf.cast(y, case.dtype)),
    )
    dx, dh, dc, dparams = done.back(
        wide(gradients.input), wide(gradients.input_h), wide(gradients.input_c)
    )
    return {
        "output": done.y,
        "output_h": done.h,
        "output_c": done.c,
        "output in inference": done.y,
        "output_h in inference": done.h,
        "input_backprop": dx,
        "input_h_backprop": dh,
        "input_c_backprop": dc,
        "params_backprop": dparams,
    }


def error(found: Any, expected: Array, least_scale: float = 0.0) -> float:
    """max |found - expected| / max |expected|, or / `least_scale` if that is larger."""
    values = wide(found)
    assert values.shape == expected.shape
    scale = np.abs(expected).max(initial=least_scale)
    return float(np.abs(values - expected).max(initial=0.0) / (scale or 1.0))


def check(case: Case, run: Run = run) -> None:
    inputs, gradients = draw_values(case)
    expected = expect(case, inputs, gradients)
    # The gradient of an input of few elements may be near 0, as a sum of many products
    # that have errors of 16 bits. That of the state is a sum of as many.
    scales = {}
    if case.dtype in (tf.half, tf.bfloat16):
        scales["input_backprop"] = np.abs(expected["input_h_backprop"]).max(initial=0.0)
    for name, found in run(case, inputs, gradients).items():
        worst = error(found, expected[name], scales.get(name, 0.0))
        assert worst <= TOLERANCE[case.dtype], f"{name}: {worst:.2g} in {case}"


def with_lengths(case: Case) -> Case:
    """Some of each kind: none, one, all."""
    some = (0, case.time, 1, case.time - 1)
    return replace(case, lengths=tuple(some[b % 4] for b in range(case.batch)))


# Stacks of layers whose parameters lie in every way there is.
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
    """Of the ops that say where parameters lie."""
    kept = {k: v for k, v in case.options.items() if k != "time_major"}
    if not case.projection:
        del kept["num_proj"]
    return kept
