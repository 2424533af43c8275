"""Drawn trainings: configurations, batches, and what a reference makes of them.

The reference is tests/embedding/support/reference.py: NumPy, float64, no engine.
Arguments that TensorFlow leaves away from TPUEmbeddingV2 are those of one optimizer
here, and of no other: a configuration has an expectation for each class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.tpu.optimization_parameters_pb2 import (
    OptimizationParameters,
)

from embedding.support import reference

embedding = tf.tpu.experimental.embedding
Array = np.ndarray[Any, Any]
# The ids of a sample, and their weights.
Bag = tuple[list[int], list[float]]
# Of a table, its rows and slots by name.
State = dict[str, Array]

BATCH, STEPS = 16, 5  # The batch of all cores.
RATE = 0.25
NAMES = ("sgd", "adagrad", "adagrad_momentum", "adam", "ftrl")
CLASSES = {
    "sgd": embedding.SGD,
    "adagrad": embedding.Adagrad,
    "adagrad_momentum": embedding.AdagradMomentum,
    "adam": embedding.Adam,
    "ftrl": embedding.FTRL,
}


def hyperparameters(rng: np.random.Generator, name: str) -> dict[str, Any]:
    """Arguments of an optimizer's class, with numbers that float32 holds."""
    flag = bool(rng.random() < 0.5)
    half = float(rng.choice([0.25, 0.5]))
    drawn: dict[str, dict[str, Any]] = {
        "sgd": {},
        "adagrad": {},
        "adagrad_momentum": {
            "momentum": half,
            "use_nesterov": flag,
            "exponent": float(rng.choice([2.0, 3.0])),
            "beta2": float(rng.choice([0.75, 1.0])),
            "epsilon": 0.125,
        },
        "adam": {
            "beta_1": half,
            "beta_2": 0.75,
            "epsilon": 0.125,
            "sum_inside_sqrt": flag,
        },
        "ftrl": {
            "learning_rate_power": float(rng.choice([-0.5, -0.75])),
            "l1_regularization_strength": 0.0625 * float(rng.integers(2)),
            "l2_regularization_strength": 0.125 * float(rng.integers(2)),
            "beta": half,
            "multiply_linear_by_learning_rate": flag,
        },
    }
    return drawn[name]


def v1_arguments(rng: np.random.Generator, name: str) -> dict[str, Any]:
    """Arguments that only TPUEmbedding knows; often none."""
    drawn: dict[str, Any] = {}
    if rng.random() < 0.3:
        drawn["clip_weight_min"], drawn["clip_weight_max"] = -1.0, 1.5
    if rng.random() < 0.3:
        drawn["clipvalue"] = (-0.5, 0.75)
    if rng.random() < 0.3:
        drawn["weight_decay_factor"] = 0.0625
        drawn["multiply_weight_decay_factor_by_learning_rate"] = bool(
            rng.random() < 0.5
        )
    if name == "adam" and rng.random() < 0.5:
        drawn["lazy_adam"] = False
    return drawn


class Optimizer:
    """An optimizer of either class of embedding, and its parameters."""

    def __init__(self, rng: np.random.Generator, name: str) -> None:
        self.name = name
        self.arguments = hyperparameters(rng, name)
        self.of_v1 = v1_arguments(rng, name)
        dynamic = bool(rng.random() < 0.4)
        #: By step.
        self.rates = [
            RATE / 2 ** int(rng.integers(4) if dynamic else 0) for _ in range(STEPS)
        ]
        self.rate = tf.Variable(RATE) if dynamic else None

    def made(self, feature: str) -> Any:
        arguments = dict(self.arguments)
        if feature == "v1":
            arguments |= self.of_v1
        else:
            # TensorFlow refuses a decay, and leaves these away.
            decays = [name for name in self.of_v1 if "weight_decay" not in name]
            arguments |= {name: self.of_v1[name] for name in decays}
        rate = RATE if self.rate is None else self.rate.read_value
        return CLASSES[self.name](rate, **arguments)

    def parameters(self, feature: str) -> OptimizationParameters:
        """What the reference reads, in float32."""
        found = OptimizationParameters()
        arguments = self.arguments | (self.of_v1 if feature == "v1" else {})
        CLASSES[self.name](RATE, **arguments)._set_optimization_parameters(found)
        return found

    @property
    def rule(self) -> reference.Rule:
        return reference.rule(self.parameters("v2"))

    def begin(self, step: int) -> None:
        if self.rate is not None:
            self.rate.assign(self.rates[step])


@dataclass
class Table:
    name: str
    rows: int
    width: int
    combiner: str
    optimizer: int
    start: State

    @property
    def values(self) -> State:
        """The rows and slots that it begins with, in float64."""
        return {name: value.astype(np.float64) for name, value in self.start.items()}


class Feature(NamedTuple):
    """A feature, and how its ids are given.

    Attributes:
        form: `ragged`, `sparse` or `dense` have a bag for each sample of the batch. A
            `sequence` has up to `positions` ids in a sample: there is an activation for
            each, and zeros after the last one. A `matrix` is dense, and has all. For
            TPUEmbedding, both are sequences.
    """

    table: int
    form: str
    weighted: bool
    positions: int


class Drawn:
    """A configuration, and its batches and gradients."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.seed = seed
        self.sparse_cores = int(rng.choice([1, 2, 4]))
        self.stacking = bool(rng.random() < 0.7)
        self.pipelining = bool(rng.random() < 0.3)
        # Few optimizers and widths, so that TensorFlow stacks tables.
        names = [NAMES[seed % len(NAMES)]]
        names += [str(rng.choice(NAMES))] * int(rng.random() < 0.3)
        self.optimizers = [Optimizer(rng, name) for name in names]
        widths = [int(rng.integers(1, 20)) for _ in range(rng.integers(1, 3))]
        self.tables = [
            self._table(f"t{i}", int(rng.choice(widths)))
            for i in range(rng.integers(1, 6))
        ]
        self.features = [self._feature() for _ in range(rng.integers(1, 5))]
        #: By step and feature, for each sample and position.
        self.bags = [[self._bags(one) for one in self.features] for _ in range(STEPS)]
        self.targets = [
            [
                rng.standard_normal(
                    (BATCH * one.positions, self.tables[one.table].width)
                ).astype(np.float32)
                for one in self.features
            ]
            for _ in range(STEPS)
        ]

    def _table(self, name: str, width: int) -> Table:
        rng = self.rng
        rows = int(rng.choice([rng.integers(1, 30), rng.integers(30, 400)]))
        optimizer = int(rng.integers(len(self.optimizers)))
        start = self.optimizers[optimizer].rule.draw(rng, rows, width)
        return Table(
            name,
            rows,
            width,
            str(rng.choice(["sum", "mean", "sqrtn"])),
            optimizer,
            {part: value.astype(np.float32) for part, value in start.items()},
        )

    def _feature(self) -> Feature:
        rng = self.rng
        form = str(rng.choice(["ragged", "sparse", "dense", "matrix", "sequence"]))
        weighted = form in ("ragged", "sparse") and bool(rng.random() < 0.5)
        positions = int(rng.integers(2, 4)) if form in ("matrix", "sequence") else 1
        return Feature(int(rng.integers(len(self.tables))), form, weighted, positions)

    def _bags(self, feature: Feature) -> list[Bag]:
        rng = self.rng
        rows = self.tables[feature.table].rows
        counts = np.ones(BATCH * feature.positions, np.int64)
        if feature.form in ("ragged", "sparse"):
            most = int(rng.choice([1, 3, 9]))  # Sometimes, all samples have no ids.
            counts = rng.integers(0, most, BATCH)
        elif feature.form == "sequence":
            lengths = rng.integers(0, feature.positions + 1, (BATCH, 1))
            counts = (np.arange(feature.positions) < lengths).reshape(-1).astype(int)
        weights = [0.0, 0.5, 1.0, 2.0] if feature.weighted else [1.0]
        return [
            (
                # Some rows are looked up more often than others.
                [int(x) for x in rows * rng.random(count) ** 2],
                [float(x) for x in rng.choice(weights, count)],
            )
            for count in counts
        ]

    def used(self) -> list[Table]:
        return [
            table
            for i, table in enumerate(self.tables)
            if any(feature.table == i for feature in self.features)
        ]

    def config(self, feature: str, cores: int) -> dict[str, Any]:
        optimizers = [one.made(feature) for one in self.optimizers]
        tables = [
            embedding.TableConfig(
                table.rows,
                table.width,
                optimizer=optimizers[table.optimizer],
                combiner=table.combiner,
                name=table.name,
            )
            for table in self.tables
        ]
        return {
            f"f{i}": self._feature_config(tables[one.table], one, feature, cores)
            for i, one in enumerate(self.features)
        }

    @staticmethod
    def _feature_config(table: Any, one: Feature, feature: str, cores: int) -> Any:
        if feature == "v1":
            length = one.positions if one.positions > 1 else 0
            return embedding.FeatureConfig(table, max_sequence_length=length)
        shape = [BATCH // cores, one.positions]
        return embedding.FeatureConfig(
            table, output_shape=shape[: 2 if one.positions > 1 else 1]
        )


class Training(NamedTuple):
    """Activations by step and feature, and the tables after the last step."""

    activations: list[list[Array]]
    tables: dict[str, State]


def expected(drawn: Drawn, feature: str) -> Training:
    """What a class of embedding has to compute; the loss is half a square."""
    state = {table.name: table.values for table in drawn.used()}
    parameters = [one.parameters(feature) for one in drawn.optimizers]
    found = []
    for step in range(STEPS):
        given: dict[str, list[tuple[Array, Array]]] = {name: [] for name in state}
        activations = []
        for i, one in enumerate(drawn.features):
            table, bags = drawn.tables[one.table], drawn.bags[step][i]
            tags = np.repeat(np.arange(len(bags)), [len(ids) for ids, _ in bags])
            ids = np.array([x for bag, _ in bags for x in bag], np.int64)
            weights = np.array([x for _, bag in bags for x in bag])
            gains = reference.scales(table.combiner, tags, weights, len(bags))
            rows = state[table.name]["parameters"]
            looked_up = reference.looked_up(rows, tags, ids, gains, len(bags))
            activations.append(looked_up)
            error = looked_up - drawn.targets[step][i]
            given[table.name].append((ids, gains[:, None] * error[tags]))
        found.append(activations)
        for table in drawn.used():
            ids, gradients = (
                np.concatenate(parts) for parts in zip(*given[table.name], strict=True)
            )
            state[table.name] = reference.apply(
                parameters[table.optimizer],
                drawn.optimizers[table.optimizer].rates[step],
                state[table.name],
                ids,
                gradients,
            )
    return Training(found, state)


def check_equal(got: Training, wanted: Training, what: str) -> None:
    """Every number, to 1e-5 of the largest one of its tensor."""

    def check(some: Array, others: Array, where: str) -> None:
        assert some.shape == others.shape, f"{what}, {where}"
        scale = max(1.0, float(np.abs(others).max(initial=0)))
        error = float(np.abs(some - others).max(initial=0)) / scale
        assert error < 1e-5, f"{what}, {where}: {error}"

    for step, both in enumerate(zip(got.activations, wanted.activations, strict=True)):
        for i, (one, other) in enumerate(zip(*both, strict=True)):
            check(one, other, f"step {step}, feature {i}")
    assert got.tables.keys() == wanted.tables.keys()
    for name, parts in wanted.tables.items():
        assert got.tables[name].keys() == parts.keys(), f"{what}, table {name}"
        for part, values in parts.items():
            check(got.tables[name][part], values, f"table {name}, {part}")


class Lists:
    """Lists of each step, core and sample, in tensors; a function is traced once."""

    def __init__(self, of_steps: list[list[list[list[Any]]]], dtype: tf.DType) -> None:
        samples = [one for step in of_steps for core in step for one in core]
        self.values = tf.constant([x for one in samples for x in one], dtype)
        shape = len(of_steps), len(of_steps[0]), len(of_steps[0][0])
        lengths = np.array([len(one) for one in samples], np.int64).reshape(shape)
        counts = lengths.sum(axis=2)
        ends = np.cumsum(counts).reshape(counts.shape)
        self.lengths, self.first = tf.constant(lengths), tf.constant(ends - counts)
        self.end = tf.constant(ends)

    def of(self, step: tf.Tensor, core: int) -> tf.RaggedTensor:
        values = self.values[self.first[step, core] : self.end[step, core]]
        return tf.RaggedTensor.from_row_lengths(
            values, self.lengths[step, core], validate=False
        )


Make = Callable[[tf.Tensor, int], Any]


def inputs(drawn: Drawn, feature: str, cores: int) -> tuple[dict[str, Make], ...]:
    """By feature, its ids and weights of a step and a core. Some have no weights."""
    made: tuple[dict[str, Make], ...] = ({}, {})
    for i, one in enumerate(drawn.features):
        bags = [divided(step[i], cores) for step in drawn.bags]
        if one.positions > 1 and feature == "v1":
            bags = [[sequences(core, one) for core in step] for step in bags]
        for k, dtype in enumerate((tf.int64, tf.float32)):
            if k == 1 and not one.weighted:
                continue
            lists = Lists([[[b[k] for b in c] for c in step] for step in bags], dtype)
            made[k][f"f{i}"] = formed(lists, one, feature, BATCH // cores)
    return made


def divided(values: Any, cores: int) -> list[Any]:
    count = len(values) // cores
    return [values[core * count : (core + 1) * count] for core in range(cores)]


def sequences(bags: list[Bag], feature: Feature) -> list[Bag]:
    """The ids of all positions of a sample. A full one goes on, and is cut."""
    found: list[Bag] = []
    for at in range(0, len(bags), feature.positions):
        ids = [x for bag, _ in bags[at : at + feature.positions] for x in bag]
        more = [0] * ((at // feature.positions) % 3) * (len(ids) == feature.positions)
        found.append((ids + more, []))
    return found


def formed(lists: Lists, one: Feature, feature: str, batch: int) -> Make:
    def make(step: tf.Tensor, core: int) -> Any:
        ragged = lists.of(step, core)
        if one.form == "sparse":
            return ragged.to_sparse()
        if one.form == "dense":
            return tf.reshape(ragged.values, [batch])
        if one.form == "matrix" and feature == "v2":
            return tf.reshape(ragged.values, [batch, one.positions])
        return ragged

    return make
