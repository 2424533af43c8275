"""TensorFlow's side: CudnnRNNV3 and the TPU-embedding ops on a device that is named.

The device is a parameter: `make test` runs it on "/CPU:0", gpu_check.py on "/GPU:0".
Needs TensorFlow, opwright and its native library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # The one way to see where nodes ran.

from embedding.support.cases import (
    Feature,
    Lookup,
    System,
    Table,
    configured,
    deviation,
    draw_gradients,
    load,
    optimizer,
    retrieve,
)
from gpu.support.report import FAILED, OK
from gpu.support.rnn_core import MODES, Layers
from opwright import Scope
from opwright.nn import (
    cudnn_rnn_canonical_to_params_v2,
    cudnn_rnn_params_size,
    cudnn_rnn_params_to_canonical_v2,
    cudnn_rnn_v3,
)
from opwright.tpu import (
    EnqueueTPUEmbeddingArbitraryTensorBatch,
    RecvTPUEmbeddingActivations,
    SendTPUEmbeddingGradients,
)
from rnn.support import reference

# Of the largest error over the largest value, as in the tests of the CPU kernels.
RNN_TOLERANCE, EMBEDDING_TOLERANCE = 1e-5, 1e-6
TIME, BATCH, STEPS = 7, 5, 4
# What a step is made of; each is to be found on the device.
STEP_OPS = (
    "EnqueueTPUEmbeddingArbitraryTensorBatch",
    "RecvTPUEmbeddingActivations",
    "SendTPUEmbeddingGradients",
)
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "stochastic_gradient_descent": {},
    "adagrad": {},
    "adam": {"beta1": 0.9, "beta2": 0.99, "epsilon": 0.01},
    "ftrl": {"l1": 0.01, "l2": 0.02, "lr_power": -0.5},
}
Arrays = dict[str, np.ndarray[Any, Any]]


def on(device: str, tensor: tf.Tensor) -> bool:
    return bool(tensor.device.endswith(device.strip("/")))


def options(layers: Layers) -> dict[str, Any]:
    return {
        "rnn_mode": layers.mode,
        "direction": "bidirectional" if layers.bidirectional else "unidirectional",
        "num_proj": layers.projection,
    }


def shape_of(layers: Layers) -> reference.Shape:
    return reference.Shape(
        layers.mode,
        layers.layers,
        layers.units,
        layers.input_size,
        TIME,
        BATCH,
        layers.bidirectional,
        projection=layers.projection,
    )


def rnn(
    device: str, layers: Layers, lengths: list[int], given: Arrays, back: Arrays
) -> Arrays:
    """Outputs and gradients of CudnnRNNV3, from a tf.function on the device."""
    lstm = layers.mode == "lstm"

    @tf.function(autograph=False)
    def both(x: Any, h: Any, c: Any, params: Any, *wanted: Any) -> dict[str, tf.Tensor]:
        inputs = [x, h, c, params]
        with tf.device(device), tf.GradientTape() as tape:
            tape.watch(inputs)
            ran = cudnn_rnn_v3(*inputs, tf.constant(lengths), **options(layers))
            outputs = [ran.output, ran.output_h, *([ran.output_c] if lstm else [])]
        with tf.device(device):
            slopes = tape.gradient(outputs, inputs, list(wanted[: len(outputs)]))
        found = dict(zip(("output", "h", "c"), outputs, strict=False))
        names = ("d input", "d h", "d c", "d params")
        found.update(zip(names, slopes, strict=True))
        if not lstm:
            del found["d c"]
        return found

    with tf.device(device):
        tensors = {
            name: tf.constant(value, tf.float32) for name, value in given.items()
        }
        if not lstm:
            tensors["c"] = tf.constant(0.0)
        wanted = [tf.constant(value, tf.float32) for value in back.values()]
        found = both(*tensors.values(), *wanted)
    if not on(device, found["output"]):
        raise RuntimeError(f"ran on {found['output'].device}, not on {device}")
    return {name: tensor.numpy() for name, tensor in found.items()}


def exact_rnn(
    layers: Layers, lengths: list[int], given: Arrays, back: Arrays
) -> Arrays:
    ran = reference.forward(shape_of(layers), *given.values(), lengths)
    slopes = ran.back(*back.values())
    found = {"output": ran.y, "h": ran.h, "c": ran.c}
    names = ("d input", "d h", "d c", "d params")
    found.update(zip(names, slopes, strict=True))
    return found


def compare_rnn(device: str, layers: Layers, lengths: list[int]) -> tuple[str, str]:
    """Verdict and note: the device's numbers, the CPU's, and those in float64."""
    random = np.random.default_rng(layers.units)
    stacked = layers.layers * layers.dirs
    states = {
        "h": (stacked, BATCH, layers.hidden),
        "c": (stacked, BATCH, layers.units),
    }

    def draw(sizes: dict[str, tuple[int, ...]]) -> Arrays:
        values = {name: random.standard_normal(size) for name, size in sizes.items()}
        return {k: v.astype(np.float32).astype(float) for k, v in values.items()}

    given = draw({"x": (TIME, BATCH, layers.input_size), **states})
    size = reference.params_size(shape_of(layers))
    gain = 1 / np.sqrt(max(layers.units, layers.input_size))
    given |= {"params": gain * draw({"params": (size,)})["params"]}
    given["params"] = given["params"].astype(np.float32).astype(float)
    back = draw({"y": (TIME, BATCH, layers.dirs * layers.hidden), **states})
    exact = exact_rnn(layers, lengths, given, back)
    worst = {}
    for where in (device, "/CPU:0"):
        found = rnn(where, layers, lengths, given, back)
        errors = {
            name: np.abs(values - exact[name]).max() / (np.abs(exact[name]).max() or 1)
            for name, values in found.items()
        }
        name = max(errors, key=lambda name: errors[name])
        worst[where] = (float(errors[name]), name)
    note = ", ".join(f"{w}: {off:.1g} ({name})" for w, (off, name) in worst.items())
    good = all(off <= RNN_TOLERANCE for off, _ in worst.values())
    return OK if good else FAILED, f"largest error {note}"


def compare_params(device: str, layers: Layers) -> tuple[str, str]:
    """Sizes and both conversions of the packed vector: the device's and the CPU's."""
    sizes = (layers.layers, layers.units, layers.input_size)
    stacked = layers.layers * layers.dirs
    biases = stacked * 2 * layers.gates
    weights = biases + stacked * bool(layers.projection)
    found = []
    for where in (device, "/CPU:0"):
        with tf.device(where):
            size = cudnn_rnn_params_size(
                *sizes, tf.float32, tf.int32, **options(layers)
            )
            params = tf.range(tf.cast(size[0], tf.float32), dtype=tf.float32)
            parts = cudnn_rnn_params_to_canonical_v2(
                *sizes, params, weights, biases, **options(layers)
            )
            again = cudnn_rnn_canonical_to_params_v2(
                *sizes, parts.weights, parts.biases, **options(layers)
            )
        if not on(where, again):
            raise RuntimeError(f"ran on {again.device}, not on {where}")
        found.append([t.numpy() for t in (size, *parts.weights, *parts.biases, again)])
    if found[0][0] != found[1][0]:
        return FAILED, f"{found[0][0]} parameters on {device}, {found[1][0]} on the CPU"
    # A GPU gives a matrix of [units, inputs] or a flat one: the elements count.
    wrong = [
        i
        for i, (here, there) in enumerate(zip(*found, strict=True))
        if not np.array_equal(np.ravel(here), np.ravel(there))
    ]
    if wrong:
        return (
            FAILED,
            f"{len(wrong)} of {len(found[0])} tensors differ, first {wrong[0]}",
        )
    return OK, f"{found[0][0][0]} parameters, {weights + biases} tensors"


def placed(
    call: Callable[[], Any], ops: tuple[str, ...]
) -> tuple[Any, dict[str, set[str]]]:
    """What a tf.function returns, and on which devices its nodes of some ops ran."""
    context.enable_run_metadata()
    try:
        returned = call()
        metadata = context.export_run_metadata()
    finally:
        context.disable_run_metadata()
    found: dict[str, set[str]] = {op: set() for op in ops}
    for function in metadata.function_graphs:
        for graph in function.partition_graphs:
            for node in graph.node:
                if node.op in found:
                    found[node.op].add(node.device)
    return returned, found


def train(
    device: str, name: str, hyper: dict[str, Any], ids_on: str | None = None
) -> tuple[str, str]:
    """Some steps in a tf.function, from configuring to retrieving on the device.

    Ids are enqueued there too, or where TensorFlow puts an op that names no device:
    that is to be `ids_on`.
    """
    random = np.random.default_rng(3)
    parameters = optimizer(name, **hyper)
    system = System(
        [Table(50, 16, parameters, "mean"), Table(30, 5, parameters)],
        [
            Feature(0, (12,), weighted=True),
            Feature(1, (9,), "dense"),
            Feature(0, (4, 3), "sparse"),
        ],
    )
    tables = [table.draw(random) for table in system.tables]
    expected, worst = tables, 0.0

    @tf.function(autograph=False)
    def step(
        where: Any, ids: Any, weights: Any, gradients: Any, proto: Any
    ) -> list[tf.Tensor]:
        scope = Scope.current()
        enqueue = EnqueueTPUEmbeddingArbitraryTensorBatch
        combiners = enqueue.Options(combiners=[t.combiner for t in system.tables])
        with tf.device(None if ids_on else device):
            enqueue.create(scope, where, ids, weights, "train", combiners)
        with tf.device(device):
            got = RecvTPUEmbeddingActivations.create(scope, len(system.features), proto)
            SendTPUEmbeddingGradients.create(scope, gradients, [], proto)
        return list(got.outputs)

    def arguments(lookups: list[Lookup], gradients: list[Any]) -> list[list[tf.Tensor]]:
        shaped = [
            tf.constant(np.reshape(g, (*feature.shape, -1)), tf.float32)
            for feature, g in zip(system.features, gradients, strict=True)
        ]
        return [*map(list, zip(*(one.tensors for one in lookups), strict=True)), shaped]

    with tf.device(device), configured(system) as proto:
        load(system, tables, proto)
        for number in range(STEPS):
            lookups, gradients = system.draw(random), draw_gradients(system, random)
            run = partial(step, *arguments(lookups, gradients), proto)
            got, devices = (run(), {}) if number else placed(run, STEP_OPS)
            for op, where in devices.items():
                there = ids_on if ids_on and op.startswith("Enqueue") else device
                if not where or not all(d.endswith(there.strip("/")) for d in where):
                    found = " and ".join(sorted(where)) or "no device"
                    return FAILED, f"{op} ran on {found}, not on {there}"
            for tensor, wanted_values in zip(
                got, system.expected(expected, lookups), strict=True
            ):
                if not on(device, tensor):
                    return FAILED, f"activations are on {tensor.device}"
                shaped = np.reshape(tensor.numpy(), wanted_values.shape)
                scale = np.abs(wanted_values).max() or 1
                worst = max(worst, float(np.abs(shaped - wanted_values).max() / scale))
            expected = system.updated(expected, lookups, gradients)
        learned = retrieve(system, proto)
    for now, wanted_table, before in zip(learned, expected, tables, strict=True):
        for slot, values in now.items():
            off = deviation(values, wanted_table[slot], before[slot])
            worst = max(worst, off)
    return (
        OK if worst <= STEPS * EMBEDDING_TOLERANCE else FAILED,
        f"{STEPS} steps, largest error {worst:.1g}",
    )


def refuses(device: str, bad_id: bool) -> tuple[str, str]:
    """A bad id or gradient is refused, if later, and changes no row.

    After a bad id the next step is as if it had not been there. After a bad gradient a
    CPU waits for a better one, while a GPU has found it too late for that.
    """
    system = System([Table(20, 8, optimizer("adagrad"))], [Feature(0, (6,), "dense")])
    random = np.random.default_rng(4)
    tables = [table.draw(random) for table in system.tables]
    with tf.device(device), configured(system) as proto:
        load(system, tables, proto)

        def train_once(ids: list[int], slope: float) -> None:
            EnqueueTPUEmbeddingArbitraryTensorBatch.create(
                Scope.current(),
                [tf.zeros([0], tf.int32)],
                [tf.constant(ids)],
                [tf.zeros([0])],
                "train",
            )
            (got,) = RecvTPUEmbeddingActivations.create(
                Scope.current(), 1, proto
            ).outputs
            gradient = tf.fill(got.shape, slope)
            SendTPUEmbeddingGradients.create(Scope.current(), [gradient], [], proto)

        words = ""
        try:
            train_once([1, 2, 20 if bad_id else 19, 3, 4, 5], 1.0 if bad_id else np.nan)
            retrieve(system, proto)
        except tf.errors.InvalidArgumentError as error:
            words = " ".join(str(error).split())
        if not words:
            return FAILED, "it was taken"
        (after,) = retrieve(system, proto)
        if any(not np.array_equal(after[k], tables[0][k]) for k in after):
            return FAILED, f"rows have changed; refused was: {words}"
        if bad_id:
            train_once([1, 2, 19, 3, 4, 5], 1.0)
            (after,) = retrieve(system, proto)
            if np.array_equal(after["parameters"], tables[0]["parameters"]):
                return FAILED, "a good step after a refused one changed nothing"
    return OK, words


def too_large(device: str) -> tuple[str, str]:
    """Tables that no memory holds are refused with their bytes; small ones follow."""
    words = ""
    with tf.device(device):
        try:
            with configured(
                System([Table(1 << 36, 1024)], [Feature(0, (6,), "dense")])
            ):
                return FAILED, "a table of 256 TiB was made"
        except tf.errors.ResourceExhaustedError as error:
            words = " ".join(str(error).split())
        with configured(System([Table(8, 4)], [Feature(0, (6,), "dense")])):
            return OK, words


def recurrent_draws() -> list[tuple[Layers, list[int]]]:
    full, some = [TIME] * BATCH, [TIME, 1, 3, TIME - 1, 2]
    draws = []
    for mode in MODES:
        for bidirectional in (False, True):
            draws.append((Layers(mode, 13, 9, 2, bidirectional), full))
    draws += [(replace(one, units=24), some) for one, _ in list(draws)]
    draws.append((Layers("lstm", 12, 7, 2, True, 5), full))
    draws.append((Layers("gru", 12, 7), [TIME, 0, 3, TIME, 1]))
    return draws


def rows(device: str) -> list[tuple[str, Callable[[], tuple[str, str]]]]:
    """What there is to check, and how: verdict and note, or an exception."""
    found: list[tuple[str, Callable[[], tuple[str, str]]]] = []
    for layers in (Layers("lstm", 13, 9, 2, True), Layers("gru", 8, 8, 3)):
        what = f"parameters of {layers}"
        found.append((what, partial(compare_params, device, layers)))
    for layers, lengths in recurrent_draws():
        kind = "" if len(set(lengths)) == 1 else f", lengths {lengths}"
        what = f"CudnnRNNV3, {layers}{kind}"
        found.append((what, partial(compare_rnn, device, layers, lengths)))
    for name, hyper in OPTIMIZERS.items():
        what = f"TPU embeddings, {name}"
        found.append((what, partial(train, device, name, hyper)))
    what = "TPU embeddings, ids enqueued by the host"
    found.append((what, partial(train, device, "adagrad", {}, ids_on="/CPU:0")))
    for what, bad_id in (("id", True), ("gradient", False)):
        name = f"TPU embeddings, a bad {what}"
        found.append((name, partial(refuses, device, bad_id)))
    found.append(("TPU embeddings, a table too large", partial(too_large, device)))
    return found
