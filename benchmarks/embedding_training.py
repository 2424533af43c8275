"""Complete training steps of a DLRM on the CPU: data, towers and embedding tables.

benchmarks/embedding.py times what the tables cost; this is the program around them: a
batch from a pipeline, a tower for dense features, the tables, the dot products of all
pairs, a tower on top, the loss, and Adagrad for everything. All contenders start with
the same weights, get the same batches and are compared by their losses. Every round
times each of them once; what is printed is medians over the rounds, and the quartiles.

opwright: TPUEmbedding under software_strategy; towers in plain TensorFlow.
sparse_cores: the same with TPUEmbeddingV2, for SparseCores; no peer.
tensorflow: the same towers; gather, segment_sum, ResourceSparseApplyAdagradV2.
tf_keras, keras: layers and the optimizer of Keras 2 and 3, a step of fit without its
    callbacks. Of an id that is there twice Keras 3 sums the squares: its loss is held
    to the others' with a larger tolerance.
torch: nn.EmbeddingBag with sparse gradients and torch.optim.Adagrad.

Two parts of opwright's step are timed too: towers, the program around bags that are
always the same, and tables, the three ops that enqueue, look up and update, eagerly.
The time of the step above the sum of the two is the cost of combining them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
import tf_keras
import torch
from numpy.typing import NDArray
from results import Recorder, add_option
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from embedding import apply_adagrad, measure, spread
from opwright import tpu
from opwright_runtime import native

DENSE = 13
BATCHES = 8
RATE, ACCUMULATOR = 0.01, 0.1
SPARSE_CORES = 4
STEPS = 5  # Whose losses are compared.

Floats = NDArray[np.float32]
Step = Callable[[], Any]  # The loss of a step.


@dataclass(frozen=True)
class Workload:
    name: str
    tables: int
    rows: int
    dim: int
    bag: int
    batch: int

    @property
    def bottom(self) -> list[int]:
        return [DENSE, 128, self.dim]

    @property
    def top(self) -> list[int]:
        return [self.dim + (self.tables + 1) * self.tables // 2, 256, 64, 1]

    def table(self, i: int) -> Floats:
        rng = np.random.default_rng(i)
        return (rng.random((self.rows, self.dim), np.float32) - np.float32(0.5)) / 4

    def towers(self) -> list[Floats]:
        """Kernels and biases, of the bottom and then of the top."""
        rng = np.random.default_rng(99)
        weights = []
        for sizes in (self.bottom, self.top):
            for rows, columns in pairwise(sizes):
                kernel = rng.standard_normal((rows, columns)) / np.sqrt(rows)
                weights.append(kernel.astype(np.float32))
                weights.append(np.zeros([columns], np.float32))
        return weights

    def data(self) -> tuple[Floats, NDArray[np.int32], Floats]:
        """Batches of dense features, of ids, [batch, table, bag], and of labels."""
        rng = np.random.default_rng(7)
        shape = (BATCHES, self.batch)
        return (
            rng.standard_normal((*shape, DENSE), np.float32),
            rng.integers(0, self.rows, (*shape, self.tables, self.bag), np.int32),
            rng.integers(0, 2, (*shape, 1)).astype(np.float32),
        )

    def pipeline(self) -> Iterator[Any]:
        data = tf.data.Dataset.from_tensor_slices(self.data())
        return iter(data.repeat().prefetch(2))

    def __str__(self) -> str:
        ids = "one-hot" if self.bag == 1 else f"bags of {self.bag}"
        return f"{self.name}: {self.tables} x {self.rows // 1000}k x {self.dim}, {ids}"


WORKLOADS = (
    Workload("H", 26, 100_000, 16, 1, 2048),
    Workload("B", 8, 100_000, 32, 20, 2048),
)


def pairs(workload: Workload) -> NDArray[np.int32]:
    """Where the dot products of all pairs lie in a flattened [tables + 1]^2."""
    rows, columns = np.tril_indices(workload.tables + 1, -1)
    return (rows * (workload.tables + 1) + columns).astype(np.int32)


def score(weights: list[Any], workload: Workload, dense: Any, bags: list[Any]) -> Any:
    """The model without its tables, in TensorFlow."""

    def tower(x: Any, weights: list[Any]) -> Any:
        for i in range(0, len(weights), 2):
            x = tf.nn.bias_add(x @ weights[i], weights[i + 1])
            if i + 2 < len(weights):
                x = tf.nn.relu(x)
        return x

    bottom = 2 * (len(workload.bottom) - 1)
    x = tower(dense, weights[:bottom])
    all_bags = tf.stack([x, *bags], axis=1)
    products = tf.matmul(all_bags, all_bags, transpose_b=True)
    products = tf.reshape(products, [workload.batch, (workload.tables + 1) ** 2])
    inputs = tf.concat([x, tf.gather(products, pairs(workload), axis=1)], axis=1)
    return tower(inputs, weights[bottom:])


def cross_entropy(labels: Any, scores: Any) -> Any:
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, scores)
    return tf.reduce_mean(losses)


class Towers:
    """Variables and slots of the dense part, for contenders in plain TensorFlow."""

    def __init__(self, workload: Workload) -> None:
        self.weights = [tf.Variable(one) for one in workload.towers()]
        self.slots = [tf.Variable(tf.fill(v.shape, ACCUMULATOR)) for v in self.weights]

    def apply(self, gradients: list[Any]) -> None:
        for variable, slot, gradient in zip(
            self.weights, self.slots, gradients, strict=True
        ):
            tf.raw_ops.ResourceApplyAdagradV2(
                var=variable.handle,
                accum=slot.handle,
                lr=RATE,
                epsilon=0.0,
                grad=gradient,
            )


def features_of(workload: Workload, shards: int = 1) -> list[Any]:
    """The features of a workload, for batches of its size a core.

    Row r of TPUEmbeddingV2 is in the shard r % shards. TensorFlow initializes each
    shard with the next rows of the initializer.
    """
    embedding = tf.tpu.experimental.embedding

    def rows(i: int) -> Floats:
        by_shard = workload.table(i).reshape(-1, shards, workload.dim).swapaxes(0, 1)
        return by_shard.reshape(workload.rows, workload.dim)

    return [
        embedding.FeatureConfig(
            embedding.TableConfig(
                workload.rows,
                workload.dim,
                initializer=tf_keras.initializers.Constant(rows(i)),
                combiner="sum",
                name=f"table{i}",
            ),
            output_shape=[workload.batch],
        )
        for i in range(workload.tables)
    ]


def optimizer_of_tables() -> Any:
    return tf.tpu.experimental.embedding.Adagrad(
        RATE, initial_accumulator_value=ACCUMULATOR
    )


def tables_of(workload: Workload) -> Any:
    """The TPUEmbedding of a workload."""
    return tf.tpu.experimental.embedding.TPUEmbedding(
        features_of(workload), optimizer_of_tables()
    )


def inputs_of(workload: Workload, ids: Any) -> list[Any]:
    """A batch of ids, [batch, table, bag], by feature."""
    parts = tf.unstack(ids, axis=1)
    if workload.bag == 1:
        return [tf.reshape(one, [workload.batch]) for one in parts]
    splits = tf.range(0, workload.batch * workload.bag + 1, workload.bag)
    return [
        tf.RaggedTensor.from_row_splits(tf.reshape(one, [-1]), splits, validate=False)
        for one in parts
    ]


def opwright_step(workload: Workload) -> Step:
    strategy = tpu.software_strategy()
    with strategy.scope():
        tables = tables_of(workload)
        towers = Towers(workload)
    tables.build()
    data = workload.pipeline()

    @tf.function(autograph=False)
    def step(data: Any) -> Any:
        dense, ids, labels = next(data)

        def run(dense: Any, labels: Any) -> Any:
            bags = tables.dequeue()
            with tf.GradientTape() as tape:
                tape.watch(bags)
                loss = cross_entropy(
                    labels, score(towers.weights, workload, dense, bags)
                )
            of_bags, gradients = tape.gradient(loss, (bags, towers.weights))
            tables.apply_gradients(of_bags)
            towers.apply(gradients)
            return loss

        tables.enqueue(inputs_of(workload, ids))
        return strategy.run(run, args=(dense, labels))

    return lambda: step(data)


def sparse_cores_step(workload: Workload) -> Step:
    batches = tf.data.Dataset.from_tensor_slices(workload.data())
    limits = tpu.sparsecore_limits(
        # A data set has tuples in place of lists.
        batches.map(lambda _, ids, __: tuple(inputs_of(workload, ids))),
        tuple(features_of(workload)),
        optimizer_of_tables(),
        cores=1,
        sparse_cores_per_chip=SPARSE_CORES,
        progress=False,
    )
    strategy = tpu.software_strategy(
        embedding_feature="v2", sparse_cores_per_chip=SPARSE_CORES
    )
    with strategy.scope():
        tables = tf.tpu.experimental.embedding.TPUEmbeddingV2(
            features_of(workload, SPARSE_CORES),
            optimizer_of_tables(),
            sparse_core_embedding_config=limits,
        )
        towers = Towers(workload)
    data = workload.pipeline()

    @tf.function(autograph=False)
    def step(data: Any) -> Any:
        dense, ids, labels = next(data)

        def run(dense: Any, labels: Any, ids: Any) -> Any:
            bags, preserved = tables(ids)
            with tf.GradientTape() as tape:
                tape.watch(bags)
                loss = cross_entropy(
                    labels, score(towers.weights, workload, dense, bags)
                )
            of_bags, gradients = tape.gradient(loss, (bags, towers.weights))
            tables.apply_gradients(of_bags, preserved)
            towers.apply(gradients)
            return loss

        return strategy.run(run, args=(dense, labels, inputs_of(workload, ids)))

    return lambda: step(data)


def towers_step(workload: Workload) -> Step:
    towers = Towers(workload)
    bags = [tf.ones([workload.batch, workload.dim])] * workload.tables
    data = workload.pipeline()

    @tf.function(autograph=False)
    def step(data: Any) -> Any:
        dense, _, labels = next(data)
        with tf.GradientTape() as tape:
            tape.watch(bags)
            loss = cross_entropy(labels, score(towers.weights, workload, dense, bags))
        of_bags, gradients = tape.gradient(loss, (bags, towers.weights))
        towers.apply(gradients)
        return loss, of_bags

    return lambda: step(data)[0]


def tables_step(workload: Workload) -> Step:
    """With the tables of opwright_step, which is made first."""
    splits = tf.range(0, workload.batch * workload.bag + 1, workload.bag)
    kinds = [splits if workload.bag > 1 else splits[:0]] * workload.tables
    no_weights = [tf.zeros([0])] * workload.tables
    _, ids, _ = workload.data()
    batches = [
        [tf.constant(batch[:, i].reshape(-1)) for i in range(workload.tables)]
        for batch in ids
    ]
    gradients = [tf.ones([workload.batch, workload.dim])] * workload.tables
    at = 0

    def step() -> float:
        nonlocal at
        at += 1
        tpu.enqueue_tpu_embedding_arbitrary_tensor_batch(
            kinds, batches[at % BATCHES], no_weights, "train"
        )
        tpu.recv_tpu_embedding_activations(workload.tables, b"")
        tpu.send_tpu_embedding_gradients(gradients, [], b"")
        return 0.0

    return step


def tensorflow_step(workload: Workload) -> Step:
    tables = [tf.Variable(workload.table(i)) for i in range(workload.tables)]
    slots = [tf.Variable(tf.fill(v.shape, ACCUMULATOR)) for v in tables]
    towers = Towers(workload)
    segments = tf.repeat(tf.range(workload.batch), workload.bag)
    data = workload.pipeline()

    def look_up(table: Any, ids: Any) -> Any:
        rows = tf.gather(table, tf.reshape(ids, [-1]))
        return rows if workload.bag == 1 else tf.math.segment_sum(rows, segments)

    @tf.function(autograph=False)
    def step(data: Any) -> Any:
        dense, ids, labels = next(data)
        with tf.GradientTape() as tape:
            bags = [
                tf.ensure_shape(look_up(table, one), [workload.batch, workload.dim])
                for table, one in zip(tables, tf.unstack(ids, axis=1), strict=True)
            ]
            loss = cross_entropy(labels, score(towers.weights, workload, dense, bags))
        of_tables, gradients = tape.gradient(loss, (tables, towers.weights))
        towers.apply(gradients)
        for table, slot, gradient in zip(tables, slots, of_tables, strict=True):
            apply_adagrad(table, slot, gradient, RATE)
        return loss

    return lambda: step(data)


def keras_model(library: Any, workload: Workload) -> Any:
    """The same model of layers, in Keras 2 or 3."""
    constant = library.initializers.Constant
    weights = iter(workload.towers())

    def tower(sizes: list[int]) -> list[Any]:
        return [
            library.layers.Dense(
                columns,
                activation="relu" if columns != sizes[-1] else None,
                kernel_initializer=constant(next(weights)),
                bias_initializer=constant(next(weights)),
            )
            for columns in sizes[1:]
        ]

    bottom, top = tower(workload.bottom), tower(workload.top)
    tables = [
        library.layers.Embedding(
            workload.rows, workload.dim, constant(workload.table(i))
        )
        for i in range(workload.tables)
    ]
    where = pairs(workload)

    class Model(library.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bottom, self.top, self.tables = bottom, top, tables

        def call(self, inputs: Any) -> Any:
            x, ids = inputs
            for layer in self.bottom:
                x = layer(x)
            bags = [
                tf.reduce_sum(table(one), axis=1)
                for table, one in zip(self.tables, tf.unstack(ids, axis=1), strict=True)
            ]
            bags = tf.stack([x, *bags], axis=1)
            products = tf.matmul(bags, bags, transpose_b=True)
            products = tf.reshape(
                products, [workload.batch, (workload.tables + 1) ** 2]
            )
            x = tf.concat([x, tf.gather(products, where, axis=1)], axis=1)
            for layer in self.top:
                x = layer(x)
            return x

        def train_step(self, data: Any) -> Any:
            """As theirs, but for the loss, which is this step's and no mean of all."""
            dense, ids, labels = data
            with tf.GradientTape() as tape:
                loss = cross_entropy(labels, self((dense, ids)))
            weights = self.trainable_variables
            if library is keras:
                weights = [one.value for one in weights]
            gradients = tape.gradient(loss, weights)
            pairs = zip(gradients, self.trainable_variables, strict=True)
            self.optimizer.apply_gradients(pairs)
            return {"loss": loss}

    return Model()


def keras_step_of(library: Any, optimizer: Callable[..., Any]) -> Callable[..., Step]:
    def make(workload: Workload) -> Step:
        model = keras_model(library, workload)
        model.compile(
            optimizer(RATE, initial_accumulator_value=ACCUMULATOR, epsilon=1e-12),
            jit_compile=False,
        )
        dense, ids, _ = workload.data()
        model((dense[0], ids[0]))
        model.make_train_function()
        data = workload.pipeline()
        return lambda: model.train_function(data)["loss"]

    return make


def torch_step(workload: Workload) -> Step:
    tables = [
        torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(workload.table(i)), freeze=False, mode="sum", sparse=True
        )
        for i in range(workload.tables)
    ]
    towers = [torch.from_numpy(one).requires_grad_() for one in workload.towers()]
    optimizer = torch.optim.Adagrad(
        [*towers, *(table.weight for table in tables)],
        RATE,
        initial_accumulator_value=ACCUMULATOR,
        eps=0,
    )
    where = torch.from_numpy(pairs(workload)).long()
    loss_of = torch.nn.BCEWithLogitsLoss()
    batches = [
        [torch.from_numpy(part) for part in batch]
        for batch in zip(*workload.data(), strict=True)
    ]
    at = 0

    def tower(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        for i in range(0, len(weights), 2):
            x = torch.addmm(weights[i + 1], x, weights[i])
            if i + 2 < len(weights):
                x = torch.relu(x)
        return x

    def step() -> torch.Tensor:
        nonlocal at
        # A copy, as a pipeline makes one.
        dense, ids, labels = (part.clone() for part in batches[at % BATCHES])
        at += 1
        optimizer.zero_grad()
        bottom = 2 * (len(workload.bottom) - 1)
        x = tower(dense, towers[:bottom])
        bags = [table(one) for table, one in zip(tables, ids.unbind(1), strict=True)]
        all_bags = torch.stack([x, *bags], 1)
        products = torch.bmm(all_bags, all_bags.transpose(1, 2)).flatten(1)
        inputs = torch.cat([x, products.index_select(1, where)], 1)
        loss = loss_of(tower(inputs, towers[bottom:]), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


CONTENDERS: dict[str, Callable[[Workload], Step]] = {
    # Its strategy comes first: a new one ends the configuration of TPUEmbedding.
    "sparse_cores": sparse_cores_step,
    "opwright": opwright_step,
    "tensorflow": tensorflow_step,
    "tf_keras": keras_step_of(tf_keras, tf_keras.optimizers.legacy.Adagrad),
    "keras": keras_step_of(keras, keras.optimizers.Adagrad),
    "torch": torch_step,
}
# How many times opwright's time a contender may take for `--check`. Peers take longer.
ALLOWED = {"sparse_cores": (0.0, 1.5)}
PEER = (1.0, np.inf)
# Of opwright's step.
PARTS: dict[str, Callable[[Workload], Step]] = {
    "towers": towers_step,
    "tables": tables_step,
}


def agree(steps: dict[str, Step]) -> None:
    """Fails unless all have the same losses."""
    losses = {
        name: np.array([float(step()) for _ in range(STEPS)])
        for name, step in steps.items()
    }
    first = next(iter(losses.values()))
    for name, found in losses.items():
        if not np.allclose(found, first, 1e-2 if name == "keras" else 1e-4):
            raise SystemExit(f"{name} computes something else: {found}, not {first}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default="HB", help="letters of workloads")
    parser.add_argument(
        "--only", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS)
    )
    parser.add_argument(
        "--shrink", type=int, default=1, help="divide the rows of all tables"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="for each workload")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a target is missed"
    )
    add_option(parser)
    options = parser.parse_args()
    recorder = Recorder("embedding_training", options.record)
    torch.set_num_threads(os.cpu_count() or 1)
    console = Console(width=None if sys.stdout.isatty() else 150)
    if "opwright" in options.only:
        console.print(f"{native.isa()}, {os.cpu_count()} cores")
    table = Table(title="A training step of a DLRM, ms: median (quartiles)")
    table.add_column("workload")
    parts = PARTS if "opwright" in options.only else {}
    for name in (*options.only, *parts):
        table.add_column(name, justify="right")
    over: list[float] = []
    ratios: dict[str, list[float]] = {}
    with Progress(console=console, transient=True) as progress:
        chosen = [one for one in WORKLOADS if one.name in options.workloads]
        for workload in progress.track(chosen, description="Timing"):
            small = replace(workload, rows=workload.rows // options.shrink)
            steps = {name: CONTENDERS[name](small) for name in options.only}
            agree(steps)
            steps.update({name: make(small) for name, make in parts.items()})
            calls = {
                name: lambda i, step=step: float(step()) for name, step in steps.items()
            }
            times = measure(calls, options.seconds, BATCHES)
            recorder.add(str(small), "training", times)
            table.add_row(str(small), *(spread(one, 1e-3) for one in times.values()))
            ours = float(np.median(times.get("opwright", np.nan)))
            for name in options.only:
                if name != "opwright":
                    ratio = float(np.median(times[name])) / ours
                    ratios.setdefault(name, []).append(ratio)
            over.append(ours - sum(float(np.median(times[name])) for name in parts))
    recorder.save()
    console.print(table)
    if "opwright" not in options.only:
        return 0
    for name, found in ratios.items():
        listed = ", ".join(f"{ratio:.2f} x" for ratio in found)
        console.print(f"program: {listed} as fast as {name}")
    listed = ", ".join(f"{seconds * 1e3:.2f} ms" for seconds in over)
    console.print(f"program: {listed} over its towers and its tables")
    behind = False
    for name, found in ratios.items():
        least, most = ALLOWED.get(name, PEER)
        behind |= not all(least <= ratio <= most for ratio in found)
    return 1 if behind and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
