"""Ops around recurrent layers that ONNX and TFLite lack: searches, ragged tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from convert.support.models import run_onnx, run_tflite
from opwright.convert import ConvertError, check, to_onnx, to_tflite

FORMATS: list[Any] = [(to_onnx, run_onnx), (to_tflite, run_tflite)]
VALUES = np.random.default_rng(0).standard_normal((7, 2)).astype("float32")
SPLITS = np.array([0, 3, 3, 7], "int64")
IDS = np.array([0, 0, 0, 2, 2, 2, 2], "int64")
VALUES_SPEC = tf.TensorSpec([None, 2], name="values")
ROWS_SPEC = tf.TensorSpec([None], tf.int64, "rows")


def ragged(values: Any, rows: Any, by: str) -> Any:
    """A ragged tensor of three rows."""
    if by == "splits":
        return tf.RaggedTensor.from_row_splits(values, rows)
    return tf.RaggedTensor.from_value_rowids(values, rows, 3)


def check_same(function: Any, given: Any, formats: Any, folder: Path) -> None:
    convert, run_of = formats
    convert(function, folder / "model", samples=given)
    outputs = run_of(folder / "model")(given)
    for name, wanted in function(**given).items():
        np.testing.assert_allclose(outputs[name], wanted, atol=2e-6)


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("by", ["splits", "ids"])
def test_convert_of_layers_on_ragged_sequences_gives_equal_numbers(
    by: str, formats: Any, tmp_path: Path
) -> None:
    @tf.function(input_signature=[VALUES_SPEC, ROWS_SPEC], autograph=False)
    def serve(values: Any, rows: Any) -> Any:
        sequences = ragged(values, rows, by)
        x = sequences.to_tensor()
        states = tf.zeros([tf.shape(x)[0], 1, 3])
        y, h, _, _, _ = tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=states,
            input_c=states,
            params=tf.linspace(-1.0, 1.0, 84),
            sequence_lengths=tf.cast(sequences.row_lengths(), tf.int32),
            time_major=False,
        )
        return {"y": y, "h": h}

    rows = SPLITS if by == "splits" else IDS
    check_same(serve, {"values": VALUES, "rows": rows}, formats, tmp_path)


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("shape", [[None, 5, 2], [None, 2, 2], [2, None, 2], [5, 1, 2]])
def test_convert_of_a_ragged_tensor_with_a_shape_gives_equal_numbers(
    shape: list[int | None], formats: Any, tmp_path: Path
) -> None:
    @tf.function(input_signature=[VALUES_SPEC, ROWS_SPEC], autograph=False)
    def serve(values: Any, rows: Any) -> Any:
        return {"y": ragged(values, rows, "splits").to_tensor(7.0, shape=shape)}

    check_same(serve, {"values": VALUES, "rows": SPLITS}, formats, tmp_path)


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_convert_of_a_binary_search_gives_equal_numbers(
    side: Any, formats: Any, tmp_path: Path
) -> None:
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], name="x"),
            tf.TensorSpec([None, None], name="of"),
        ],
        autograph=False,
    )
    def serve(x: Any, of: Any) -> Any:
        return {"y": tf.searchsorted(x, of, side)}

    x = np.array([[1, 2, 2, 5], [0, 0, 3, 4]], "float32")
    of = np.array([[2, 9, 0], [0, 3, 3.5]], "float32")
    check_same(serve, {"x": x, "of": of}, formats, tmp_path)


def test_check_counts_the_ragged_ops_that_are_replaced() -> None:
    @tf.function(input_signature=[VALUES_SPEC, ROWS_SPEC], autograph=False)
    def serve(values: Any, rows: Any) -> Any:
        return ragged(values, rows, "splits").to_tensor()

    plain, onnx, tflite = check(serve).verdicts
    assert plain.barred == {}
    assert onnx.barred == tflite.barred == {"RaggedTensorToTensor": 1}
    assert onnx.works and tflite.works


def test_to_tflite_of_several_ragged_dimensions_names_the_op(tmp_path: Path) -> None:
    @tf.function(
        input_signature=[VALUES_SPEC, ROWS_SPEC, tf.TensorSpec([None], tf.int64, "of")],
        autograph=False,
    )
    def serve(values: Any, rows: Any, of: Any) -> Any:
        inner = tf.RaggedTensor.from_row_splits(values, rows)
        return tf.RaggedTensor.from_row_splits(inner, of).to_tensor()

    with pytest.raises(ConvertError, match="RaggedTensorToTensor"):
        to_tflite(serve, tmp_path / "model", check=False)
    assert not [*tmp_path.iterdir()]
