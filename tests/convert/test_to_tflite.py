"""to_tflite: files of builtin operators that give equal numbers at every call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright.keras
from convert.support.models import run_tflite, saved_on_a_gpu, text_model, tflite_ops
from opwright.convert import ConvertError, to_tflite

FUSED = "UNIDIRECTIONAL_SEQUENCE_LSTM"
FIRST = np.array([[3, 1, 2, 0], [4, 5, 0, 0]], "int32")
SECOND = np.array([[7, 8, 9, 1], [2, 0, 0, 0]], "int32")


def check_calls(file: Path, model: Any, *calls: Any) -> None:
    run = run_tflite(file)
    for words in calls:
        (found,) = run({"words": words}).values()
        np.testing.assert_allclose(found, model(words), atol=2e-6)


@pytest.mark.parametrize("mask", [False, True])
def test_to_tflite_takes_any_batch_and_time(mask: bool, tmp_path: Path) -> None:
    source = saved_on_a_gpu(tmp_path / "source", mask=mask)
    to_tflite(source, tmp_path / "model.tflite")
    ops = tflite_ops(tmp_path / "model.tflite")
    assert ops.count("WHILE") == 4
    assert not [op for op in ops if "Flex" in op or op == "CUSTOM"]
    loaded = tf.saved_model.load(str(source))
    larger = np.tile(FIRST, [3, 1])[:, :3]
    check_calls(tmp_path / "model.tflite", loaded.serve, FIRST, SECOND, FIRST, larger)


@pytest.mark.parametrize("mask", [False, True])
def test_to_tflite_fused_calls_do_not_continue_each_other(
    mask: bool, tmp_path: Path
) -> None:
    source = saved_on_a_gpu(tmp_path / "source", mask=mask)
    to_tflite(source, tmp_path / "model.tflite", fused=True, batch=2)
    ops = tflite_ops(tmp_path / "model.tflite")
    # TFLite has no fused GRU. Both directions are operators of their own.
    assert (ops.count(FUSED), ops.count("WHILE")) == (3, 1)
    loaded = tf.saved_model.load(str(source))
    check_calls(tmp_path / "model.tflite", loaded.serve, FIRST, FIRST, SECOND, FIRST)


def test_to_tflite_of_opwright_keras_is_fused(tmp_path: Path) -> None:
    made = text_model(opwright.keras)
    to_tflite(made, tmp_path / "model.tflite", batch=2)
    assert tflite_ops(tmp_path / "model.tflite").count(FUSED) == 3
    check_calls(tmp_path / "model.tflite", made, FIRST, SECOND, FIRST)


@pytest.mark.parametrize("reads_c", [False, True])
def test_to_tflite_initial_states_and_final_ones_are_right(
    reads_c: bool, tmp_path: Path
) -> None:
    """The fused operator writes its states in place, and gives no cell state."""
    state = tf.TensorSpec([1, 2, 4], name="h")
    signature = [tf.TensorSpec([2, 5, 3], name="x"), state]
    signature.append(tf.TensorSpec([2], tf.int32, "n"))
    params = tf.random.stateless_normal([144], [1, 2])

    @tf.function(input_signature=signature, autograph=False)
    def serve(x: Any, h: Any, n: Any) -> Any:
        y, last_h, last_c, _, _ = tf.raw_ops.CudnnRNNV3(
            input=tf.transpose(x, [1, 0, 2]),
            input_h=h,
            input_c=h * 2,
            params=params,
            sequence_lengths=n,
        )
        found = {"y": y, "last": last_h + h}
        return {**found, "c": last_c} if reads_c else found

    rng = np.random.default_rng(0)

    def inputs() -> Any:
        x = rng.standard_normal((2, 5, 3)).astype("float32")
        h = rng.standard_normal((1, 2, 4)).astype("float32")
        return {"x": x, "h": h, "n": np.array([0, 4], "int32")}

    report = to_tflite(serve, tmp_path / "model.tflite", samples=inputs())
    (found,) = report.found
    assert (found.became == FUSED) is not reads_c
    run = run_tflite(tmp_path / "model.tflite")
    for given in (inputs(), inputs()):
        outputs = run(given)
        for name, wanted in serve(**given).items():
            np.testing.assert_allclose(outputs[name], wanted, atol=2e-6)


def test_to_tflite_stores_weights_once(tmp_path: Path) -> None:
    params = tf.random.stateless_normal([4 * 64 * (32 + 64 + 2)], [1, 2], stddev=0.1)
    spec = tf.TensorSpec([4, 50, 32], name="x")

    @tf.function(input_signature=[spec], autograph=False)
    def serve(x: Any) -> Any:
        zeros = tf.zeros([4, 1, 64])
        return tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=zeros,
            input_c=zeros,
            params=params,
            sequence_lengths=tf.fill([4], 50),
            time_major=False,
        )[0]

    for fused in (True, False):
        file = tmp_path / f"{fused}.tflite"
        report = to_tflite(serve, file, fused=fused)
        assert report.result_bytes == file.stat().st_size
        assert report.result_bytes < 1.1 * 4 * params.shape[0] + 10_000


def wide_layer() -> Any:
    """A layer whose weights are large enough for the converter to quantize them."""
    params = tf.random.stateless_normal([4 * 64 * (32 + 64 + 2)], [1, 2], stddev=0.1)

    @tf.function(
        input_signature=[tf.TensorSpec([4, 20, 32], name="x")], autograph=False
    )
    def serve(x: Any) -> Any:
        zeros = tf.zeros([1, 20, 64])
        return tf.raw_ops.CudnnRNN(
            input=x, input_h=zeros, input_c=zeros, params=params
        )[0]

    return serve


@pytest.mark.parametrize(("quantize", "most"), [("dynamic", 0.5), ("float16", 0.7)])
def test_to_tflite_quantized_weights_are_smaller(
    quantize: Any, most: float, tmp_path: Path
) -> None:
    layer = wide_layer()
    full = to_tflite(layer, tmp_path / "full.tflite")
    small = to_tflite(layer, tmp_path / "small.tflite", quantize=quantize)
    assert small.result_bytes < most * full.result_bytes


@pytest.mark.parametrize(
    ("quantize", "remedy"),
    [
        ("dynamic", "8 bits are too coarse: quantize to float16, or not at all"),
        ("float16", "16 bits are too coarse: do not quantize"),
    ],
)
def test_to_tflite_too_coarse_weights_name_the_finer_ones(
    quantize: Any, remedy: str, tmp_path: Path
) -> None:
    target = tmp_path / "model.tflite"
    with pytest.raises(ConvertError, match=remedy):
        to_tflite(wide_layer(), target, quantize=quantize, tolerance=1e-6)
    assert not [*tmp_path.iterdir()]


def test_to_tflite_int8_is_refused_by_name(tmp_path: Path) -> None:
    quantize: Any = "int8"
    with pytest.raises(ConvertError, match=r"int8.*pass 'dynamic' or 'float16'"):
        to_tflite(text_model(), tmp_path / "model.tflite", quantize=quantize)


def test_to_tflite_fused_without_a_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"not fixed; pass batch= .* or fused="):
        to_tflite(text_model(), tmp_path / "model.tflite", fused=True)
    assert not [*tmp_path.iterdir()]


def test_to_tflite_fused_whose_cell_state_is_read_is_refused(tmp_path: Path) -> None:
    states = tf.TensorSpec([1, 2, 4], name="h")

    @tf.function(input_signature=[tf.TensorSpec([5, 2, 3], name="x"), states])
    def serve(x: Any, h: Any) -> Any:
        params = tf.linspace(-1.0, 1.0, 144)
        return tf.raw_ops.CudnnRNN(input=x, input_h=h, input_c=h, params=params)[2]

    with pytest.raises(
        ConvertError, match=r"cell state is read, .* does not give; pass fused='auto'"
    ) as raised:
        to_tflite(serve, tmp_path / "model.tflite", fused=True)
    assert raised.value.op == "CudnnRNN" and "CudnnRNN" in raised.value.node
    assert not [*tmp_path.iterdir()]


def test_to_tflite_an_op_that_tflite_lacks_is_named(tmp_path: Path) -> None:
    function = tf.function(
        lambda x: tf.raw_ops.Cholesky(input=x),
        input_signature=[tf.TensorSpec([2, 2], name="x")],
        autograph=False,
    )
    with pytest.raises(ConvertError, match="Cholesky"):
        to_tflite(function, tmp_path / "model.tflite")
    assert not [*tmp_path.iterdir()]
