"""to_onnx: files that onnxruntime loads, with one node a layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import opwright.keras
from convert.support.models import (
    onnx_model,
    onnx_ops,
    run_onnx,
    saved_on_a_gpu,
    text_model,
)
from opwright.convert import ConvertError, to_onnx

WORDS = np.array([[3, 1, 2, 0], [4, 5, 0, 0]], "int32")


@pytest.mark.parametrize("mask", [False, True])
def test_to_onnx_of_a_gpu_model_has_one_node_a_layer(
    mask: bool, tmp_path: Path
) -> None:
    source = saved_on_a_gpu(tmp_path / "source", mask=mask)
    report = to_onnx(source, tmp_path / "model.onnx")
    ops = onnx_ops(tmp_path / "model.onnx")
    # Keras runs both directions of a Bidirectional as layers of their own.
    assert (ops.count("LSTM"), ops.count("GRU"), ops.count("Loop")) == (3, 1, 0)
    assert report.difference is not None and report.difference <= 2e-6
    loaded = tf.saved_model.load(str(source))
    wanted = loaded.serve(WORDS)
    (found,) = run_onnx(tmp_path / "model.onnx")({"words": WORDS}).values()
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_to_onnx_weights_are_initializers(tmp_path: Path) -> None:
    to_onnx(saved_on_a_gpu(tmp_path / "source"), tmp_path / "model.onnx")
    graph = onnx_model(tmp_path / "model.onnx").graph
    known = {one.name for one in graph.initializer}
    for node in graph.node:
        if node.op_type in ("LSTM", "GRU"):
            assert {*node.input[1:4]} <= known, node.name


def test_to_onnx_of_opwright_keras_has_one_node_a_layer(tmp_path: Path) -> None:
    made = text_model(opwright.keras)
    to_onnx(made, tmp_path / "model.onnx")
    ops = onnx_ops(tmp_path / "model.onnx")
    assert (ops.count("LSTM"), ops.count("GRU"), ops.count("Loop")) == (3, 1, 0)
    (found,) = run_onnx(tmp_path / "model.onnx")({"words": WORDS}).values()
    np.testing.assert_allclose(found, made(WORDS), atol=2e-6)


def test_to_onnx_of_layers_of_keras_leaves_them_as_they_were(tmp_path: Path) -> None:
    made = text_model(keras.layers)
    kinds = [type(layer) for layer in made._flatten_layers()]
    to_onnx(made, tmp_path / "model.onnx")
    assert [type(layer) for layer in made._flatten_layers()] == kinds
    ops = onnx_ops(tmp_path / "model.onnx")
    assert (ops.count("LSTM"), ops.count("GRU"), ops.count("Loop")) == (3, 1, 0)


def test_to_onnx_both_directions_are_one_node(tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, None, 3], name="x")])
    def serve(x: Any) -> Any:
        states = tf.zeros([4, tf.shape(x)[1], 2])
        params = tf.linspace(-1.0, 1.0, 240)
        lengths = tf.fill([tf.shape(x)[1]], tf.shape(x)[0])
        return tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=states,
            input_c=states,
            params=params,
            sequence_lengths=lengths,
            direction="bidirectional",
        )[0]

    to_onnx(serve, tmp_path / "model.onnx")
    nodes = onnx_model(tmp_path / "model.onnx").graph.node
    directions = [
        attribute.s
        for node in nodes
        for attribute in node.attribute
        if node.op_type == "LSTM" and attribute.name == "direction"
    ]
    assert directions == [b"bidirectional"] * 2


@pytest.mark.parametrize("opset", [13, 15, 18])
def test_to_onnx_opset_is_that_of_the_file(opset: int, tmp_path: Path) -> None:
    to_onnx(text_model(), tmp_path / "model.onnx", opset=opset)
    (version,) = [
        one.version
        for one in onnx_model(tmp_path / "model.onnx").opset_import
        if one.domain == ""
    ]
    assert version == opset


@pytest.mark.parametrize("opset", [12, 20])
def test_to_onnx_other_opsets_are_refused(opset: int, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=f"between 13 and 18, not {opset}"):
        to_onnx(text_model(), tmp_path / "model.onnx", opset=opset)
    assert not [*tmp_path.iterdir()]


def in_while(x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        states = tf.zeros([1, tf.shape(x)[1], 3])
        found = tf.raw_ops.CudnnRNN(
            input=x + y,
            input_h=states,
            input_c=states,
            params=tf.linspace(-1.0, 1.0, 96),
        )[0]
        return i + 1, tf.ensure_shape(found, [None, None, 3])

    return tf.while_loop(lambda i, y: i < 3, body, (tf.constant(0), tf.zeros_like(x)))[
        1
    ]


def test_to_onnx_of_a_node_in_a_loop_gives_equal_numbers(tmp_path: Path) -> None:
    spec = tf.TensorSpec([None, None, 3], name="x")
    function = tf.function(in_while, input_signature=[spec], autograph=False)
    to_onnx(function, tmp_path / "model.onnx")
    x = np.random.default_rng(0).standard_normal((5, 2, 3)).astype("float32")
    (found,) = run_onnx(tmp_path / "model.onnx")({"x": x}).values()
    np.testing.assert_allclose(found, function(x), atol=2e-6)
    assert "Loop" in onnx_ops(tmp_path / "model.onnx")


def test_to_onnx_an_op_that_onnx_lacks_is_named(tmp_path: Path) -> None:
    spec = tf.TensorSpec([None], tf.string, "x")
    function = tf.function(
        lambda x: tf.raw_ops.StringToHashBucketFast(input=x, num_buckets=3),
        input_signature=[spec],
        autograph=False,
    )
    (tmp_path / "model.onnx").write_bytes(b"kept")
    with pytest.raises(ConvertError, match="StringToHashBucketFast"):
        to_onnx(function, tmp_path / "model.onnx", overwrite=True)
    assert (tmp_path / "model.onnx").read_bytes() == b"kept"
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]


def test_to_onnx_too_small_a_tolerance_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="differs from the source by up to"):
        to_onnx(text_model(), tmp_path / "model.onnx", tolerance=1e-15)
    assert not [*tmp_path.iterdir()]
