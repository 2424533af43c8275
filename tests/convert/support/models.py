"""Models with CudnnRNN nodes, and how to run what they are converted to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from opwright.convert import to_onnx, to_plain, to_tflite

#: Those to ONNX and TFLite need packages of their own.
CONVERSIONS = [
    to_plain,
    pytest.param(to_onnx, marks=pytest.mark.convert),
    pytest.param(to_tflite, marks=pytest.mark.convert),
]

Outputs = dict[str, Any]
Run = Callable[[Outputs], Outputs]


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Within it, layers of Keras are traced as on a GPU: with CudnnRNN nodes."""
    module: Any = sys.modules["keras.src.backend.tensorflow.rnn"]
    before = module._is_gpu_available
    module._is_gpu_available = lambda: True
    try:
        yield
    finally:
        module._is_gpu_available = before


def text_model(layers: Any = keras.layers, *, mask: bool = True) -> Any:
    """A model with all that a recurrent one usually has."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input([None], dtype="int32", name="words"),
            keras.layers.Embedding(20, 8, mask_zero=mask),
            keras.layers.Bidirectional(layers.LSTM(6, return_sequences=True)),
            layers.GRU(5, return_sequences=True),
            layers.LSTM(4),
            keras.layers.Dense(2),
        ]
    )


def saved_on_a_gpu(folder: Path, *, mask: bool = True) -> Path:
    with as_on_a_gpu():
        text_model(mask=mask).export(str(folder), verbose=False)
    return folder


def recurrent(x: Any, params: Any, **options: Any) -> Any:
    """A node for [time, batch, 2] with 3 units, whose parameters are 84 numbers."""
    states = tf.zeros([1, tf.shape(x)[1], 3])
    return tf.raw_ops.CudnnRNNV3(
        input=x,
        input_h=states,
        input_c=states,
        params=params,
        sequence_lengths=tf.fill([tf.shape(x)[1]], tf.shape(x)[0]),
        **options,
    )


def in_while(x: Any, params: Any) -> Any:
    start = (tf.constant(0), tf.zeros([tf.shape(x)[0], tf.shape(x)[1], 3]))
    return tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y + recurrent(x, params)[0]), start
    )[1]


def in_branch(x: Any, params: Any) -> Any:
    positive = tf.reduce_sum(x) > 0
    return tf.cond(
        positive,
        lambda: recurrent(x, params)[0],
        lambda: recurrent(-x, params, rnn_mode="gru")[0],
    )


def in_nested_functions(x: Any, params: Any) -> Any:
    inner = tf.function(lambda x: recurrent(x, params)[0], autograph=False)
    outer = tf.function(lambda x: inner(x) + inner(2 * x), autograph=False)
    return outer(x)


#: Where a node may be, besides the function that is called: each takes x and params.
BODIES = [in_while, in_branch, in_nested_functions]


def save_bodies(folder: Path) -> None:
    """Saves a model with nodes in a loop, in branches and in a training step."""
    module: Any = tf.Module()
    module.params = tf.Variable(tf.random.stateless_normal([84], [1, 2]))

    def serve(x: Any) -> Any:
        y = tf.zeros([tf.shape(x)[0], tf.shape(x)[1], 3])
        _, y = tf.while_loop(
            lambda i, y: i < 3,
            lambda i, y: (i + 1, y + recurrent(x, module.params)[0]),
            (tf.constant(0), y),
        )
        z = tf.cond(
            tf.reduce_sum(x) > 0,
            lambda: recurrent(x, module.params)[0],
            lambda: recurrent(-x, 2 * module.params)[0],
        )
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(recurrent(x, module.params)[0] ** 2)
        gradient = tape.gradient(loss, module.params)
        return {"y": y, "z": z, "gradient": gradient}

    spec = tf.TensorSpec([None, None, 2], name="x")
    module.serve = tf.function(serve, input_signature=[spec], autograph=False)
    tf.saved_model.save(module, str(folder), signatures=module.serve)


def save_branches(folder: Path) -> None:
    """Saves a model with nodes in branches and in nested functions."""
    module: Any = tf.Module()
    module.params = tf.Variable(tf.random.stateless_normal([84], [1, 2]))

    def serve(x: Any) -> Any:
        return {
            "y": in_branch(x, module.params),
            "z": in_nested_functions(x, module.params),
        }

    spec = tf.TensorSpec([None, None, 2], name="x")
    module.serve = tf.function(serve, input_signature=[spec], autograph=False)
    tf.saved_model.save(module, str(folder), signatures=module.serve)


def write_frozen(file: Path) -> Any:
    """Writes a graph of TensorFlow 1, with its node on a GPU; returns the graph."""
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        x = tf.compat.v1.placeholder(tf.float32, [None, None, 2], "x")
        params = tf.constant(np.linspace(-1, 1, 84, dtype="float32"))
        tf.identity(recurrent(x, params)[0], "y")
    file.write_bytes(graph.as_graph_def().SerializeToString())
    return graph.as_graph_def()


def ops_of(folder: Path) -> set[str]:
    """The ops of a SavedModel, in its graph and its functions."""
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel()
    message.ParseFromString((folder / "saved_model.pb").read_bytes())
    found = set()
    for meta in message.meta_graphs:
        graph = meta.graph_def
        found |= {node.op for node in graph.node}
        found |= {n.op for f in graph.library.function for n in f.node_def}
    return found


def barred(ops: set[str]) -> set[str]:
    return {op for op in ops if op.startswith(("Cudnn", "Opwright"))}


def run_onnx(file: Path) -> Run:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(file), settings)
    names = [one.name for one in session.get_outputs()]
    taken = {one.name for one in session.get_inputs()}

    def run(inputs: Outputs) -> Outputs:
        given = {k: np.asarray(v) for k, v in inputs.items() if k in taken}
        return dict(zip(names, session.run(names, given), strict=True))

    return run


def run_tflite(file: Path) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(str(file)).get_signature_runner("serving_default")
    taken = {*runner.get_input_details()}
    return lambda inputs: dict(
        runner(**{k: np.asarray(v) for k, v in inputs.items() if k in taken})
    )


def tflite_ops(file: Path) -> list[str]:
    from ai_edge_litert.interpreter import Interpreter

    details = Interpreter(str(file))._get_ops_details()
    return [one["op_name"] for one in details if one["op_name"] != "DELEGATE"]


def onnx_model(file: Path) -> Any:
    import onnx

    return onnx.load(str(file))


def onnx_ops(file: Path) -> list[str]:
    return [node.op_type for node in onnx_model(file).graph.node]
