"""Models with CudnnRNN nodes, and how to run what they are converted to."""

from __future__ import annotations

import random
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
from rnn.support.cases import (
    MODES,
    Case,
    Values,
    all_lengths,
    draw_values,
    expect,
    sequence,
    state,
)

#: Those to ONNX and TFLite need packages of their own.
CONVERSIONS = [
    to_plain,
    pytest.param(to_onnx, marks=pytest.mark.convert),
    pytest.param(to_tflite, marks=pytest.mark.convert),
]
#: What a model has its parameters from.
PARAMS = ("variable", "constant", "made in the graph")

Outputs = dict[str, Any]
Run = Callable[[Outputs], Outputs]


class Drawn:
    """A call of a CudnnRNN op as a model, drawn from a seed.

    Attributes:
        case: what is computed.
        version: of the op.
        params: one of `PARAMS`.
        masked: whether the lengths are the sums of a mask.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.version = rng.choice([1, 2, 3, 3])
        mode = MODES[seed % len(MODES)]
        units, time, batch = rng.randint(1, 9), rng.randint(1, 6), rng.randint(1, 4)
        input_mode = rng.choice(["linear_input", "skip_input", "auto_select"])
        third = self.version == 3
        lengths = tuple(rng.randint(0, time) for _ in range(batch))
        projected = mode == "lstm" and third and rng.random() < 0.2
        self.case = Case(
            mode,
            rng.choice([tf.float32] * 4 + [tf.float64, tf.half]),
            rng.randint(1, 3),
            units,
            units if input_mode == "skip_input" else rng.randint(1, 9),
            time,
            batch,
            rng.random() < 0.5,
            input_mode,
            rng.randint(1, units) if projected else 0,
            not third or rng.random() < 0.5,
            lengths if third else None,
            seed,
        )
        self.params = rng.choice(PARAMS)
        self.masked = third and rng.random() < 0.3
        self.training = rng.random() < 0.5

    def __str__(self) -> str:
        return f"{self.case}, version {self.version}, params {self.params}"

    def values(self) -> tuple[Outputs, Outputs]:
        """The inputs in the model's layout, and what the reference gives."""
        case = self.case
        inputs, gradients = draw_values(case)
        wanted = expect(case, inputs, gradients)
        given = {
            "x": sequence(case, inputs.input),
            "h": state(case, inputs.input_h),
            "n": tf.constant(all_lengths(case), tf.int32),
        }
        if self.masked:
            given["n"] = tf.sequence_mask(given["n"], case.time)
        found = {"y": wanted["output"], "last_h": wanted["output_h"]}
        if case.mode == "lstm":
            given["c"] = state(case, inputs.input_c)
            found["last_c"] = wanted["output_c"]
        return given, found

    def time_major(self, outputs: Outputs) -> Outputs:
        """Outputs of a model, as the reference has them."""
        as_reference = {"y": sequence, "last_h": state, "last_c": state}
        return {
            name: as_reference[name](self.case, tf.constant(np.asarray(value)))
            for name, value in outputs.items()
        }

    def module(self) -> Any:
        """The model; its function is `serve`."""
        inputs, _ = draw_values(self.case)
        module: Any = tf.Module()
        module.params = tf.Variable(inputs.params)
        module.serve = tf.function(
            self._function(module, inputs),
            input_signature=self._signature(),
            autograph=False,
        )
        return module

    def save(self, folder: Path) -> None:
        module = self.module()
        tf.saved_model.save(module, str(folder), signatures=module.serve)

    def _signature(self) -> list[tf.TensorSpec]:
        case, shape = self.case, self.case.shape
        cells = shape.layers * shape.dirs

        def spec(first: int | None, last: int, name: str) -> tf.TensorSpec:
            dims = [first, None, last] if case.time_major else [None, first, last]
            return tf.TensorSpec(dims, case.dtype, name)

        steps = tf.TensorSpec([None, None], tf.bool, "n")
        lengths = tf.TensorSpec([None], tf.int32, "n")
        found = [
            spec(None, case.input_size, "x"),
            spec(cells, shape.hidden, "h"),
            steps if self.masked else lengths,
        ]
        if case.mode == "lstm":
            found.append(spec(cells, case.units, "c"))
        return found

    def _function(self, module: Any, inputs: Values) -> Callable[..., Outputs]:
        case = self.case
        options = {k: v for k, v in case.options.items() if k != "time_major"}
        projection = options.pop("num_proj")
        if self.version == 3:
            options |= {"num_proj": projection, "time_major": case.time_major}
        op = getattr(
            tf.raw_ops, ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")[self.version - 1]
        )

        def params() -> Any:
            if self.params == "constant":
                return tf.constant(inputs.params.numpy(), case.dtype)
            if self.params == "variable":
                return module.params
            half = inputs.params.shape[0] // 2
            return tf.concat([module.params[:half], module.params[half:]], axis=0)

        def serve(x: Any, h: Any, n: Any, c: Any = None) -> Outputs:
            more = {}
            if self.version == 3:
                lengths = tf.reduce_sum(tf.cast(n, tf.int32), 1) if self.masked else n
                more["sequence_lengths"] = lengths
            outputs = op(
                input=x,
                input_h=h,
                input_c=tf.zeros([], case.dtype) if c is None else c,
                params=params(),
                is_training=self.training,
                **options,
                **more,
            )
            results = {"y": outputs[0], "last_h": outputs[1]}
            if case.mode == "lstm":
                results["last_c"] = outputs[2]
            return results

        return serve


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
