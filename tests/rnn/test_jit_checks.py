"""What jit_compile checks less: each row of the tables in rnn_kernels.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from rnn.support.bad_calls import H, N, T, backward, call, forward
from support.places import ROOT

PAGE = (ROOT / "docs/reference/rnn_kernels.md").read_text("utf-8")
_, SECTION = PAGE.split("checks less\n", 1)
ROWS = re.findall(r"^\| (?!op \||-)(.*) \|$", SECTION.split("\n## ")[0], re.MULTILINE)

RNG = np.random.default_rng(0)
WRONG, RIGHT = [-3, T + 5], [0, T]
REFUSED = tf.errors.InvalidArgumentError


def drawn(like: Any) -> Any:
    """Random values in the place of zeros, but for integers."""
    if like.dtype != np.float32:
        return tf.constant(like)
    return tf.constant(RNG.standard_normal(like.shape) * 0.3, tf.float32)


def run(function: Callable[..., Any], *given: Any, compiled: bool) -> list[Any]:
    """The outputs of a function of tensors, compiled or not."""
    traced = tf.function(function, jit_compile=compiled, autograph=False)
    return tf.nest.flatten(traced(*map(tf.constant, given)))


def assert_same(found: Iterable[Any], wanted: Iterable[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


FORWARD = {name: drawn(value) for name, value in forward().items()}
KERAS = {
    name: drawn(np.zeros(shape, np.float32))
    for name, shape in {
        "input": (2, T, N),
        "input_h": (2, H),
        "input_c": (2, H),
        "kernel": (N, 4 * H),
        "recurrent_kernel": (H, 4 * H),
        "bias": (1, 4 * H),
    }.items()
}


def forward_call(lengths: Any) -> Any:
    return call({**FORWARD, "sequence_lengths": lengths})[:3]


def backward_call(lengths: Any) -> Any:
    """The backward op, with outputs and reserve of a call with right lengths."""
    given = {**FORWARD, "sequence_lengths": tf.constant(RIGHT)}
    output, output_h, output_c, reserve, host = call(given)
    return tf.raw_ops.CudnnRNNBackpropV3(
        **{**given, "sequence_lengths": lengths},
        output=output,
        output_h=output_h,
        output_c=output_c,
        output_backprop=tf.ones_like(output),
        output_h_backprop=tf.ones_like(output_h),
        output_c_backprop=tf.ones_like(output_c),
        reserve_space=reserve,
        host_reserved=host,
    )


def keras_call(lengths: Any) -> Any:
    op = opwright.native.ops().opwright_keras_rnn
    return op(**KERAS, sequence_lengths=lengths, rnn_mode="lstm")


LENGTHS = [forward_call, backward_call, keras_call]


@pytest.mark.parametrize("function", LENGTHS)
def test_jit_compile_constant_lengths_out_of_range_are_refused(
    function: Callable[[Any], Any],
) -> None:
    for wrong in WRONG:
        for compiled in (False, True):
            with pytest.raises(REFUSED, match="sequence_lengths: each must lie"):
                run(lambda w=wrong: function(tf.constant([w, T])), compiled=compiled)


@pytest.mark.rotating
@pytest.mark.parametrize("function", LENGTHS)
def test_jit_compile_tensor_lengths_out_of_range_are_clipped(
    function: Callable[[Any], Any],
) -> None:
    with pytest.raises(REFUSED, match="sequence_lengths: each must lie"):
        run(function, WRONG, compiled=False)
    found = run(function, WRONG, compiled=True)
    assert_same(found, run(function, RIGHT, compiled=False))


@pytest.mark.rotating
@pytest.mark.parametrize("version", ["", "V2", "V3"])
@pytest.mark.parametrize("other", ["zeros", "dropout", "seed"])
def test_jit_compile_reserve_of_other_call_is_not_refused(
    version: str, other: str
) -> None:
    given = dict(FORWARD)
    if version != "V3":
        del given["sequence_lengths"]
    options = {"dropout": 0.5, "seed": 3}
    made = getattr(tf.raw_ops, f"CudnnRNN{version}")(**given, **options)
    for name in ("output", "output_h", "output_c"):
        given[name] = getattr(made, name)
        given[f"{name}_backprop"] = tf.ones_like(given[name])
    if version:
        given["host_reserved"] = made.host_reserved

    def gradients(reserve: Any, **changes: Any) -> Any:
        op = getattr(tf.raw_ops, f"CudnnRNNBackprop{version}")
        return op(**given, reserve_space=reserve, **{**options, **changes})

    changes = {"zeros": {}, "dropout": {"dropout": 0.25}, "seed": {"seed": 4}}[other]
    reserve = made.reserve_space
    if other == "zeros":
        reserve = tf.zeros_like(reserve)

    def wrong(reserve: Any) -> Any:
        return gradients(reserve, **changes)

    with pytest.raises(REFUSED, match="reserve_space: "):
        run(wrong, reserve, compiled=False)
    found = run(wrong, reserve, compiled=True)
    right = run(gradients, made.reserve_space, compiled=True)
    assert_same(right, run(gradients, made.reserve_space, compiled=False))
    assert not np.allclose(found[3], right[3], 1e-3, 1e-3)


SIZES: dict[str, Callable[..., Any]] = {
    "CudnnRNNParamsSize": lambda **sizes: tf.raw_ops.CudnnRNNParamsSize(
        **sizes, T=tf.float32, S=tf.int32
    ),
    "CudnnRNNCanonicalToParams": lambda **sizes: tf.raw_ops.CudnnRNNCanonicalToParams(
        **sizes, weights=[tf.zeros([2, 2])] * 8, biases=[tf.zeros([2])] * 8
    ),
    "CudnnRNNParamsToCanonical": lambda **sizes: tf.raw_ops.CudnnRNNParamsToCanonical(
        **sizes, params=tf.zeros([48]), num_params=8
    ),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("argument", ["num_layers", "num_units", "input_size"])
@pytest.mark.parametrize("compiled", [False, True])
def test_jit_compile_nonpositive_sizes_are_refused(
    name: str, argument: str, compiled: bool
) -> None:
    sizes = {"num_layers": 1, "num_units": 2, "input_size": 2, argument: 0}

    def call_with_sizes(*given: Any) -> Any:
        return SIZES[name](**dict(zip(sizes, given, strict=True)))

    with pytest.raises(REFUSED, match=f"{argument}: "):
        run(call_with_sizes, *sizes.values(), compiled=compiled)


def asserted(x: Any) -> Any:
    with tf.control_dependencies([tf.debugging.assert_less(x, 2.0)]):
        return tf.identity(x)


THREE = [1.0, 2.0, 3.0]
#: By the op as the table names it: a call, its arguments, what XLA gives.
OF_TENSORFLOW: dict[str, list[tuple[Callable[..., Any], list[Any], Any]]] = {
    "`tf.debugging.assert_less` and the like": [(asserted, [THREE], THREE)],
    "`tf.debugging.check_numerics`": [
        (lambda x: tf.debugging.check_numerics(tf.math.log(x), ""), [[0.0]], [-np.inf])
    ],
    "`tf.gather`, `tf.nn.embedding_lookup`": [
        (tf.gather, [THREE, [0, 3, -1]], [1.0, 3.0, 1.0]),
        (tf.nn.embedding_lookup, [THREE, [0, 3, -1]], [1.0, 3.0, 1.0]),
    ],
    "`tf.tensor_scatter_nd_update`": [
        (tf.tensor_scatter_nd_update, [THREE, [[0], [3]], [9.0, 9.0]], [9.0, 2.0, 3.0])
    ],
    "`tf.math.unsorted_segment_sum`": [
        (
            lambda x, at: tf.math.unsorted_segment_sum(x, at, 2),
            [THREE, [0, 2, 1]],
            [1.0, 3.0],
        )
    ],
    "`tf.nn.sparse_softmax_cross_entropy_with_logits`": [
        (
            tf.nn.sparse_softmax_cross_entropy_with_logits,
            [[5], [[1.0, 2.0]]],
            [np.nan],
        )
    ],
    "`//` of integers": [(lambda a, b: a // b, [[1], [0]], [-1])],
}


@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_jit_compile_drops_checks_of_tensorflow(name: str) -> None:
    for function, given, wanted in OF_TENSORFLOW[name]:
        with pytest.raises(REFUSED):
            run(function, *given, compiled=False)
        np.testing.assert_array_equal(run(function, *given, compiled=True), [wanted])


def test_rnn_page_jit_tables_have_the_tested_rows() -> None:
    ours = [
        "CudnnRNNV3, CudnnRNNBackpropV3, OpwrightKerasRNN",
        "the same",
        "CudnnRNNBackprop, V2, V3",
        ", ".join(SIZES),
    ]
    assert [row.split(" | ")[0] for row in ROWS] == [*ours, *OF_TENSORFLOW]


def test_rnn_page_jit_tables_have_every_op_with_xla_kernel() -> None:
    """CudnnRNN and V2 have no lengths; a second version has the first one's checks."""
    known = {"CudnnRNN", "CudnnRNNV2", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"}
    known |= {"CudnnRNNCanonicalToParamsV2", "CudnnRNNParamsToCanonicalV2"}
    named = set(re.findall(r"\b(?:Cudnn|Opwright)\w+", " ".join(ROWS)))
    compiled = {
        path.stem
        for path in (ROOT / "opdefs").rglob("CudnnRNN*.yaml")
        if "XLA: opwright" in path.read_text("utf-8")
    }
    assert compiled - known == named - known - {"OpwrightKerasRNN"}


def test_cudnn_rnn_backprop_v3_right_call_is_accepted() -> None:
    """The tests above change one argument of this call."""
    tf.raw_ops.CudnnRNNBackpropV3(**backward())
