"""CudnnRNN on the CPU against torch, Keras and onnxruntime, in one interleaved run.

Each contender is a process of its own, which is stopped while the others are timed, so
that its threads do not wait for work on their cores. Every round times each contender
once on the same shape, so that a slow spell of the machine hits all of them; what is
printed is medians over the rounds, and the spread from the first to the third quartile.
A training step is a forward and a backward pass for all gradients: opwright's two ops,
one after the other; torch's module and its autograd; Keras's layers and
`tf.GradientTape` in a `tf.function`. onnxruntime has inference only.

A step of one sequence is compared with the bare dispatch of an op that does almost no
work. The memory that a forward pass keeps for the backward pass is compared with that
of torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import torch
from limits import fma_peak, share
from results import Recorder, add_option
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from timed_process import TimedProcess

from opwright import Scope
from opwright.nn import (
    CudnnRNNBackpropV3,
    CudnnRNNV3,
    cudnn_rnn_params_size,
    cudnn_rnn_v3,
)
from opwright_runtime import native

Call = Callable[[], object]
#: Makes so many calls, after one that is not timed, and returns the seconds of each.
Timer = Callable[[int], float]

WHAT = ("inference", "training")
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1}
# How many times as fast as a peer: on the geometric mean. On every shape: 1.
TARGETS = {"torch": 1.3, "keras": 1.5, "onnxruntime": 1.0}
STREAMING_TARGET = 2.0
# One sample: long enough that what threads do between calls is what they do at work.
SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Shape:
    name: str
    time: int
    batch: int
    inputs: int
    units: int
    layers: int = 1
    bidirectional: bool = False

    @property
    def dirs(self) -> int:
        return 1 + self.bidirectional

    @property
    def direction(self) -> str:
        return "bidirectional" if self.bidirectional else "unidirectional"

    def params_size(self, mode: str) -> tf.Tensor:
        return cudnn_rnn_params_size(
            self.layers,
            self.units,
            self.inputs,
            tf.float32,
            tf.int32,
            rnn_mode=mode,
            direction=self.direction,
        )

    def torch_module(self, mode: str) -> torch.nn.Module:
        kind = torch.nn.LSTM if mode == "lstm" else torch.nn.GRU
        return kind(
            self.inputs, self.units, self.layers, bidirectional=self.bidirectional
        )

    def operations(self, mode: str, what: str = "inference") -> float:
        """Multiplications and additions; training has those of three forward passes."""
        gates = GATES[mode] * (1 if what == "inference" else 3)
        widths = [self.inputs] + [self.dirs * self.units] * (self.layers - 1)
        weights = sum(gates * self.units * (w + self.units) for w in widths)
        return 2.0 * self.time * self.batch * self.dirs * weights

    def __str__(self) -> str:
        more = f", {self.layers} layers" if self.layers > 1 else ""
        more += ", bidirectional" if self.bidirectional else ""
        sizes = f"T{self.time} B{self.batch} I{self.inputs} H{self.units}"
        return f"{self.name}: {sizes}{more}"


SHAPES = (
    Shape("A", 100, 32, 128, 256),
    Shape("B", 100, 64, 512, 512, layers=2, bidirectional=True),
    Shape("C", 20, 1, 64, 64),
    Shape("D", 512, 16, 256, 256),
    Shape("E", 50, 128, 64, 128),
    Shape("F", 32, 8, 1024, 1024),
    Shape("G", 200, 4, 80, 320, bidirectional=True),
    Shape("H", 10, 256, 300, 100),
)


def opwright_calls(shape: Shape, mode: str) -> tuple[Call, Call]:
    states = [shape.layers * shape.dirs, shape.batch, shape.units]
    x = tf.random.normal([shape.time, shape.batch, shape.inputs])
    params = tf.random.normal(shape.params_size(mode)) * 0.05
    h, c = tf.zeros(states), tf.zeros(states)
    lengths = tf.fill([shape.batch], shape.time)

    settings = {"rnn_mode": mode, "direction": shape.direction}
    inferring = CudnnRNNV3.Options(**settings, is_training=False)
    training = CudnnRNNV3.Options(**settings)
    backward = CudnnRNNBackpropV3.Options(**settings)
    scope = Scope.current()

    def infer() -> object:
        return CudnnRNNV3.create(scope, x, h, c, params, lengths, inferring)

    def train() -> object:
        rnn = CudnnRNNV3.create(scope, x, h, c, params, lengths, training)
        return CudnnRNNBackpropV3.create(
            scope,
            x,
            h,
            c,
            params,
            lengths,
            rnn.output,
            rnn.output_h,
            rnn.output_c,
            rnn.output,
            h,
            c if mode == "lstm" else rnn.output_c,
            rnn.reserve_space,
            rnn.host_reserved,
            backward,
        )

    return infer, train


def torch_calls(shape: Shape, mode: str) -> tuple[Call, Call]:
    module = shape.torch_module(mode)
    x = torch.randn(shape.time, shape.batch, shape.inputs)
    leaf = x.clone().requires_grad_()

    def infer() -> object:
        with torch.no_grad():
            return module(x)

    def train() -> object:
        module.zero_grad()
        leaf.grad = None
        y, _ = module(leaf)
        y.backward(y.detach())
        return leaf.grad

    return infer, train


def calls_of(model: Any, x: tf.Tensor, weights: Sequence[Any]) -> tuple[Call, Call]:
    """Of a model of Keras's: inference, and training with all gradients."""

    @tf.function(autograph=False)
    def infer(x: tf.Tensor) -> tf.Tensor:
        return model(x, training=False)

    @tf.function(autograph=False)
    def train(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x, training=True)
        return tape.gradient(y, [x, *weights], y)

    return lambda: infer(x), lambda: train(x)


def keras_calls(shape: Shape, mode: str) -> tuple[Call, Call]:
    kind = tf.keras.layers.LSTM if mode == "lstm" else tf.keras.layers.GRU
    layers = []
    for _ in range(shape.layers):
        layer = kind(shape.units, return_sequences=True)
        layers.append(
            tf.keras.layers.Bidirectional(layer) if shape.bidirectional else layer
        )
    model = tf.keras.Sequential(layers)
    x = tf.random.normal([shape.batch, shape.time, shape.inputs])
    model(x)
    return calls_of(model, x, model.trainable_variables)


#: In which order ONNX has the gates, by their numbers in torch.
ONNX_GATES = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2]}


def onnx_weights(module: Any, mode: str, kind: str, layer: int) -> np.ndarray:
    """Those of all directions of a layer, such as the biases of kind "bias_hh"."""
    directions = ("", "_reverse") if module.bidirectional else ("",)
    found = []
    for direction in directions:
        values = getattr(module, f"{kind}_l{layer}{direction}").detach().numpy()
        gates = np.split(values, len(ONNX_GATES[mode]))
        found.append(np.concatenate([gates[gate] for gate in ONNX_GATES[mode]]))
    return np.stack(found)


def onnx_model(shape: Shape, mode: str, module: Any) -> bytes:
    """The layers of a module of torch as a serialized ModelProto."""
    import onnx
    from onnx import helper, numpy_helper

    nodes, weights = [], {"rows": np.int64([0, 0, -1])}
    name = "x"
    for layer in range(shape.layers):
        biases = [
            onnx_weights(module, mode, kind, layer) for kind in ("bias_ih", "bias_hh")
        ]
        mine = {
            f"W{layer}": onnx_weights(module, mode, "weight_ih", layer),
            f"R{layer}": onnx_weights(module, mode, "weight_hh", layer),
            f"B{layer}": np.concatenate(biases, 1),
        }
        weights |= mine
        attrs: dict[str, Any] = {"hidden_size": shape.units}
        attrs["direction"] = "bidirectional" if shape.bidirectional else "forward"
        if mode == "gru":
            attrs["linear_before_reset"] = 1
        y, moved, out = (f"{one}{layer}" for one in ("y", "moved", "out"))
        nodes += [
            helper.make_node(mode.upper(), [name, *mine], [y], **attrs),
            # From [time, directions, batch, units] to the next layer's input.
            helper.make_node("Transpose", [y], [moved], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [moved, "rows"], [out]),
        ]
        name = out
    sizes = [shape.time, shape.batch, shape.inputs]
    graph = helper.make_graph(
        nodes,
        "rnn",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(one, key) for key, one in weights.items()],
    )
    opset = helper.make_operatorsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    serialized: bytes = model.SerializeToString()
    return serialized


def onnxruntime_calls(shape: Shape, mode: str) -> tuple[Call, None]:
    """Inference with the weights of torch, whose results it has to give."""
    import onnxruntime

    module = shape.torch_module(mode)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = os.cpu_count() or 1
    session = onnxruntime.InferenceSession(
        onnx_model(shape, mode, module), settings, ["CPUExecutionProvider"]
    )
    x = torch.randn(shape.time, shape.batch, shape.inputs)
    given = {"x": x.numpy()}
    with torch.no_grad():
        expected = module(x)[0].numpy()
    np.testing.assert_allclose(session.run(None, given)[0], expected, 1e-3, 1e-4)
    return lambda: session.run(None, given), None


CONTENDERS: dict[str, Callable[[Shape, str], tuple[Call, Call | None]]] = {
    "opwright": opwright_calls,
    "torch": torch_calls,
    "keras": keras_calls,
    "onnxruntime": onnxruntime_calls,
}
INFER_ONLY = {"onnxruntime"}


def timer(call: Call) -> Timer:
    def timed(calls: int) -> float:
        call()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    return timed


class Contender(TimedProcess):
    """The process that makes the calls of a contender."""

    def __init__(self, name: str) -> None:
        super().__init__(name, [__file__, "--answer", name])

    def timer(self, shape: Shape, mode: str, what: str) -> Timer:
        def timed(calls: int) -> float:
            return float(self.ask(json.dumps([shape.name, mode, what, calls])))

        return timed


def answer(name: str) -> None:
    """Makes the calls that each line of the input names, and prints their seconds."""
    shapes = {shape.name: shape for shape in SHAPES}
    torch.set_num_threads(os.cpu_count() or 1)
    made: dict[tuple[str, str], tuple[Call, Call | None]] = {}
    for line in sys.stdin:
        shape, mode, what, calls = json.loads(line)
        if (shape, mode) not in made:
            made = {(shape, mode): CONTENDERS[name](shapes[shape], mode)}
        call = made[shape, mode][WHAT.index(what)]
        assert call is not None, (name, what)
        print(timer(call)(calls), flush=True)


def measure(timers: Mapping[str, Timer], seconds: float) -> dict[str, np.ndarray]:
    """Seconds a call by contender and round."""
    once = {name: timed(1) for name, timed in timers.items()}
    counts = {name: max(1, int(SAMPLE_SECONDS / t)) for name, t in once.items()}
    a_round = sum((counts[name] + 1) * once[name] for name in timers)
    rounds = int(min(60, max(5, seconds / a_round)))
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timed in timers.items():
            # Threads of the one before stop spinning for work.
            time.sleep(0.01)
            samples[name].append(timed(counts[name]))
    return {name: np.asarray(times) for name, times in samples.items()}


def spread(samples: np.ndarray, unit: float) -> str:
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75]) / unit
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


def streaming(console: Console, seconds: float) -> bool:
    """One step of one sequence, against ops of the same family that do nothing."""
    size = cudnn_rnn_params_size(1, 64, 64, tf.float32, tf.int32)
    x, h = tf.zeros([1, 1, 64]), tf.zeros([1, 1, 64])
    params, lengths = tf.random.normal(size), tf.constant([1])
    scope, options = Scope.current(), CudnnRNNV3.Options(is_training=False)
    calls: dict[str, Call] = {
        "step": lambda: CudnnRNNV3.create(scope, x, h, h, params, lengths, options),
        "IdentityN": lambda: tf.raw_ops.IdentityN(input=[x, h, h, params, lengths]),
    }
    times = measure({name: timer(call) for name, call in calls.items()}, seconds)
    ratio = float(np.median(times["step"]) / np.median(times["IdentityN"]))
    table = Table(title="One step of one sequence, LSTM of 64 units, eager, us")
    for column in ("CudnnRNNV3", "IdentityN of the same inputs", "ratio", "target"):
        table.add_column(column, justify="right")
    table.add_row(
        spread(times["step"], 1e-6),
        spread(times["IdentityN"], 1e-6),
        f"{ratio:.2f} x",
        f"<= {STREAMING_TARGET}",
    )
    console.print(table)
    return ratio <= STREAMING_TARGET


def kept_by_opwright(shape: Shape, mode: str) -> int:
    """Bytes that live from the forward to the backward pass: reserve and outputs."""
    states = tf.zeros([shape.layers * shape.dirs, shape.batch, shape.units])
    rnn = cudnn_rnn_v3(
        tf.zeros([shape.time, shape.batch, shape.inputs]),
        states,
        states,
        tf.zeros(shape.params_size(mode)),
        tf.fill([shape.batch], shape.time),
        rnn_mode=mode,
        direction=shape.direction,
    )
    outputs = (rnn.output, rnn.output_h, rnn.output_c, rnn.reserve_space)
    return sum(int(tf.size(output)) * output.dtype.size for output in outputs)


def kept_by_torch(shape: Shape, mode: str) -> int:
    """Bytes of what autograd saves, but for the input and the parameters."""
    module = shape.torch_module(mode)
    x = torch.zeros(shape.time, shape.batch, shape.inputs, requires_grad=True)
    given = {t.untyped_storage().data_ptr() for t in (x, *module.parameters())}
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = module(x)
    kept = sum(storage.nbytes() for storage in saved.values())
    del result
    return kept


def memory(console: Console, shapes: list[Shape], modes: list[str]) -> bool:
    table = Table(title="Kept from the forward to the backward pass, MiB")
    for column in ("shape", "mode", "opwright", "torch", "ratio"):
        table.add_column(column, justify="left" if column == "shape" else "right")
    fine = True
    for shape in shapes:
        for mode in modes:
            ours, theirs = kept_by_opwright(shape, mode), kept_by_torch(shape, mode)
            fine &= ours <= theirs
            table.add_row(
                str(shape),
                mode,
                f"{ours / 2**20:.2f}",
                f"{theirs / 2**20:.2f}",
                f"{ours / theirs:.2f} x",
            )
    console.print(table)
    return fine


def speed(
    console: Console,
    shapes: list[Shape],
    options: argparse.Namespace,
    recorder: Recorder,
) -> dict[tuple[str, str], list[float]]:
    """How many times as fast as each peer, by what is done and the peer."""
    peak = fma_peak()
    console.print(
        f"{native.isa()}, {os.cpu_count()} cores, FMA peak {peak / 1e9:.0f} GFLOP/s"
    )
    tables = {}
    for what in options.what:
        tables[what] = Table(title=f"{what.capitalize()}, ms: median (quartiles)")
        for column in ("shape", "mode", "opwright", "of peak"):
            tables[what].add_column(
                column, justify="left" if column == "shape" else "right"
            )
        for peer in options.against:
            tables[what].add_column(peer, justify="right")
            tables[what].add_column("faster", justify="right")
    ratios: dict[tuple[str, str], list[float]] = {}
    contenders = {name: Contender(name) for name in ("opwright", *options.against)}
    with Progress(console=console, transient=True) as progress:
        steps = len(shapes) * len(options.modes) * len(options.what)
        task = progress.add_task("Timing", total=steps)
        for shape in shapes:
            for mode in options.modes:
                for what in options.what:
                    progress.update(task, description=f"{shape.name} {mode} {what}")
                    timers = {
                        name: one.timer(shape, mode, what)
                        for name, one in contenders.items()
                        if what == "inference" or name not in INFER_ONLY
                    }
                    times = measure(timers, options.seconds)
                    progress.advance(task)
                    recorder.add(f"{shape}, {mode}", what, times)
                    ours = float(np.median(times["opwright"]))
                    work = shape.operations(mode, what)
                    row = [str(shape), mode, spread(times["opwright"], 1e-3)]
                    row.append(share(work / ours, peak))
                    for peer in options.against:
                        if peer not in times:
                            row += ["", ""]
                            continue
                        ratio = float(np.median(times[peer])) / ours
                        ratios.setdefault((what, peer), []).append(ratio)
                        row += [spread(times[peer], 1e-3), f"{ratio:.2f} x"]
                    tables[what].add_row(*row)
    for one in contenders.values():
        one.end()
    for table in tables.values():
        console.print(table)
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="ABCDEFGH", help="letters of shapes")
    parser.add_argument("--modes", nargs="+", default=["lstm", "gru"])
    parser.add_argument("--what", nargs="+", default=list(WHAT), choices=WHAT)
    peers = [name for name in CONTENDERS if name != "opwright"]
    there = [one for one in peers if importlib.util.find_spec(one) is not None]
    parser.add_argument("--against", nargs="*", default=there, choices=peers)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each row")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a target is missed"
    )
    parser.add_argument("--answer", choices=CONTENDERS, help=argparse.SUPPRESS)
    add_option(parser)
    options = parser.parse_args()
    if options.answer is not None:
        answer(options.answer)
        return 0
    recorder = Recorder("rnn", options.record)

    native.load()
    console = Console(width=None if sys.stdout.isatty() else 140)
    shapes = [shape for shape in SHAPES if shape.name in options.shapes]
    ratios = speed(console, shapes, options, recorder)
    recorder.save()
    fine = True
    for peer in options.against:
        values = [r for (_, of), some in ratios.items() if of == peer for r in some]
        mean = float(np.exp(np.mean(np.log(values))))
        fine &= mean >= TARGETS[peer] and min(values) >= 1
        console.print(
            f"{mean:.2f} x as fast as {peer} on the geometric mean "
            f"(target {TARGETS[peer]}), worst {min(values):.2f} x (target 1)"
        )
    fine &= streaming(console, options.seconds)
    fine &= memory(console, shapes, options.modes)
    return 0 if fine or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
