"""Nodes in loops, branches and compiled functions, in ONNX and TFLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from convert.support.models import (
    BODIES,
    onnx_ops,
    recurrent,
    run_onnx,
    run_tflite,
    tflite_ops,
)
from opwright.convert import to_onnx, to_tflite

PARAMS = np.linspace(-1, 1, 84, dtype="float32")
FUSED = "UNIDIRECTIONAL_SEQUENCE_LSTM"


def serving(of: Any, batch: int | None = None, **options: Any) -> Any:
    spec = tf.TensorSpec([None, batch, 2], name="x")
    return tf.function(
        lambda x: of(x, tf.constant(PARAMS)),
        input_signature=[spec],
        autograph=False,
        **options,
    )


def compiled_inside(x: Any, params: Any) -> Any:
    inner = tf.function(
        lambda x: recurrent(x, params)[0], jit_compile=True, autograph=False
    )
    return inner(x) + inner(-x)


def not_inlined(x: Any, params: Any) -> Any:
    inner = tf.function(
        lambda x: recurrent(x, params)[0],
        autograph=False,
        experimental_attributes={"_noinline": True},
    )
    return inner(x)


#: A body, and whether the function that is called is compiled.
CASES = [(of, False) for of in (*BODIES, compiled_inside, not_inlined)]
CASES += [(of, True) for of in BODIES]


def check_same(run: Any, function: Any) -> None:
    rng = np.random.default_rng(0)
    for time in (5, 3, 5):
        x = rng.standard_normal((time, 2, 2)).astype("float32")
        (found,) = run({"x": x}).values()
        np.testing.assert_allclose(found, function(x), atol=2e-6)


@pytest.mark.parametrize(("of", "compiled"), CASES)
def test_to_onnx_of_a_node_in_another_body_gives_equal_numbers(
    of: Any, compiled: bool, tmp_path: Path
) -> None:
    function = serving(of, jit_compile=compiled or None)
    to_onnx(function, tmp_path / "model.onnx")
    check_same(run_onnx(tmp_path / "model.onnx"), function)
    ops = onnx_ops(tmp_path / "model.onnx")
    if of in (compiled_inside, not_inlined):
        assert "LSTM" in ops and "Loop" not in ops


@pytest.mark.parametrize(("of", "compiled"), CASES)
def test_to_tflite_of_a_node_in_another_body_gives_equal_numbers(
    of: Any, compiled: bool, tmp_path: Path
) -> None:
    function = serving(of, jit_compile=compiled or None)
    to_tflite(function, tmp_path / "model.tflite")
    check_same(run_tflite(tmp_path / "model.tflite"), function)


def test_to_tflite_of_a_compiled_function_is_fused(tmp_path: Path) -> None:
    function = serving(compiled_inside, batch=2, jit_compile=True)
    to_tflite(function, tmp_path / "model.tflite")
    assert tflite_ops(tmp_path / "model.tflite").count(FUSED) == 2
    check_same(run_tflite(tmp_path / "model.tflite"), function)
