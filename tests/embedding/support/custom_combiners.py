"""Drawn trainings of TPUEmbeddingV2 with custom combiners, held against NumPy.

custom_combiners.py <first> <count>    checks the configurations of these numbers

In a process of its own: the CPU is divided into logical devices before the first op.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

from embedding.support.sparse_cores import per_core, whole
from opwright import tpu
from sparsecore.support.combiners import (
    COMBINERS,
    RATE,
    Combiner,
    expected_gradients,
)
from sparsecore.support.lookups import Array, Bags, close, flat, indices_of
from sparsecore.support.updates import CASES, Case, expected_update

embedding = tf.tpu.experimental.embedding
BATCH, ROWS, STEPS = 8, 40, 3
SLOTS = {
    "accumulator": "accumulators",
    "momenta": "momenta",
    "velocity": "velocities",
    "linear": "linears",
}


def optimizer_of(case: Case) -> Any:
    """TensorFlow's optimizer of a case."""
    hyper = dict(case.hyper)
    if case.op == "AdagradMomentum":
        hyper["momentum"] = hyper.pop("beta1")
    elif case.op == "Adam":
        hyper["beta_1"], hyper["beta_2"] = hyper.pop("beta1"), hyper.pop("beta2")
        hyper["sum_inside_sqrt"] = hyper.pop("use_sum_inside_sqrt")
    names = {"Sgd": "SGD", "Ftrl": "FTRL"}
    return getattr(embedding, names.get(case.op, case.op))(0.25, **hyper)


class Drawn:
    """Two features of a table with a custom combiner, and one of a plain table."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        names = list(CASES)
        self.case = CASES[names[seed % len(names)]]
        name = ("weighted", "sum")[seed // len(names) % 2]
        self.combiner: Combiner = COMBINERS[name]
        self.valency = int(self.rng.integers(1, 6))
        self.width = int(self.rng.integers(1, 12))
        self.weights = self.valency if name == "weighted" else 0
        # Small numbers, so that gradients of a row that cancel leave little rounding.
        self.start = self.small(self.weights)
        self.rows = {name: self.small(ROWS, self.width) for name in ("custom", "plain")}
        # The rank of the samples of the second feature, which may be a sequence.
        self.sequence = bool(self.rng.integers(2))
        self.sparse = bool(self.rng.integers(2))
        self.stacking = bool(self.rng.integers(2))

    def small(self, *shape: int) -> Array:
        return self.rng.uniform(-0.25, 0.25, shape).astype(np.float32)

    def samples(self, feature: str) -> int:
        """Of one core."""
        return BATCH * (2 if feature == "second" and self.sequence else 1)

    def bags(self, feature: str, cores: int) -> Bags:
        if feature == "dense":
            return [[int(x)] for x in self.rng.integers(0, ROWS, cores * BATCH)]
        sizes = self.rng.integers(0, self.valency + 1, cores * self.samples(feature))
        return [self.rng.integers(0, ROWS, n).tolist() for n in sizes]

    def config(self) -> dict[str, Any]:
        custom = embedding.CustomCombiner(
            tf.function(self.combiner.function),
            self.valency,
            self.weights,
            initializer=lambda shape, dtype: tf.constant(self.start, dtype, shape),
            combiner_weights_learning_rate=RATE,
        )
        tables = {
            name: embedding.TableConfig(
                ROWS,
                self.width,
                optimizer=optimizer_of(self.case),
                combiner=combiner,
                name=name,
            )
            for name, combiner in (("custom", custom), ("plain", "sum"))
        }
        second = [BATCH, 2] if self.sequence else [BATCH]
        return {
            "dense": embedding.FeatureConfig(tables["custom"], output_shape=[BATCH]),
            "second": embedding.FeatureConfig(tables["custom"], output_shape=second),
            "third": embedding.FeatureConfig(tables["plain"], output_shape=[BATCH]),
        }

    def ids(self, feature: str, bags: Bags) -> Any:
        values = flat(bags)[1]
        if feature == "dense":
            return tf.constant(values)
        if self.sparse:
            return tf.SparseTensor(
                indices_of(bags).astype(np.int64), values, [len(bags), self.valency]
            )
        return tf.RaggedTensor.from_row_lengths(values, [len(bag) for bag in bags])


def state_of(case: Case, name: str) -> list[Array]:
    table = tpu.table(name)
    slots = [table.slots[SLOTS[slot]] for slot in case.slots]
    return [np.asarray(x, np.float64) for x in (table.rows, *slots)]


class Program:
    """A training under a strategy."""

    def __init__(self, drawn: Drawn, cores: int) -> None:
        self.drawn, self.cores = drawn, cores
        self.strategy = tpu.software_strategy(
            cores=cores, embedding_feature="v2", sparse_cores_per_chip=4
        )
        with self.strategy.scope():
            self.tables = embedding.TPUEmbeddingV2(
                drawn.config(),
                None,
                sparse_core_embedding_config=embedding.SparseCoreEmbeddingConfig(
                    disable_table_stacking=not drawn.stacking
                ),
            )
        self.tables.build()
        tpu.load_tables(
            self.tables,
            {
                name: tpu.TableValues(rows, tpu.table(name).slots)
                for name, rows in drawn.rows.items()
            },
        )
        self._run = tf.function(
            lambda *arguments: self.strategy.run(self._step, args=arguments)
        )

    def _step(self, ids: Any, gradients: Any) -> Any:
        activations, preserved = self.tables(ids)
        shaped = {
            name: tf.reshape(gradients[name], found.shape)
            for name, found in activations.items()
        }
        self.tables.apply_gradients(shaped, preserved)
        return activations

    def step(self, bags: dict[str, Bags], gradients: dict[str, Array]) -> Any:
        """The activations of all cores, by feature."""

        def of_core(core: int, name: str, values: Any) -> Any:
            count = self.drawn.samples(name)
            return values[core * count : (core + 1) * count]

        def ids(core: int) -> dict[str, Any]:
            return {
                name: self.drawn.ids(name, of_core(core, name, values))
                for name, values in bags.items()
            }

        def targets(core: int) -> dict[str, Any]:
            return {
                name: tf.constant(of_core(core, name, values))
                for name, values in gradients.items()
            }

        found = self._run(
            per_core(self.strategy, ids), per_core(self.strategy, targets)
        )
        return {name: whole(self.strategy, found[name]) for name in bags}

    def weights(self) -> Array:
        variables = self.tables.custom_combiner_variables.values()
        return np.array([x.numpy() for x in variables], np.float64).reshape(-1)


def check(drawn: Drawn, cores: int) -> None:
    """Each step is held against the reference from the state before it."""
    program = Program(drawn, cores)
    tables = {"dense": "custom", "second": "custom", "third": "plain"}
    combiners = {"custom": drawn.combiner, "plain": COMBINERS["sum"]}
    for _ in range(STEPS):
        before = {name: state_of(drawn.case, name) for name in combiners}
        weights = {"custom": program.weights(), "plain": np.zeros(0)}
        bags = {name: drawn.bags(name, cores) for name in tables}
        gradients = {
            name: drawn.rng.standard_normal((len(one), drawn.width)).astype("f4")
            for name, one in bags.items()
        }
        found = program.step(bags, gradients)
        for table, combiner in combiners.items():
            rows = before[table][0]
            more = (weights[table],) if len(weights[table]) else ()
            of_table = [name for name in tables if tables[name] == table]
            for name in of_table:
                wanted = [combiner.combine(rows[bag], *more) for bag in bags[name]]
                close(found[name], np.array(wanted), 4e-6)
            updated, sums, of_weights = expected_gradients(
                combiner,
                [bag for name in of_table for bag in bags[name]],
                rows,
                weights[table],
                np.concatenate([gradients[name] for name in of_table]),
            )
            expected = expected_update(drawn.case, before[table], updated, sums)
            for got, want in zip(state_of(drawn.case, table), expected, strict=True):
                close(got, want, 1e-5)
            if table == "custom":
                terms = (weights[table], -RATE * of_weights)
                close(program.weights(), terms[0] + terms[1], 4e-6, terms)


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4,
    )
    first, count = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        for cores in (1, 2, 4):
            check(Drawn(seed), cores)
    print("done")
