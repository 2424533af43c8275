"""Drawn trainings of TPUEmbeddingV2; run by test_sparse_core_embedding.py.

sparse_cores.py <first> <count>    checks the configurations of these numbers

In a process of its own: the CPU is divided into logical devices before the first op.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from embedding.support.drawn_trainings import (
    BATCH,
    STEPS,
    Array,
    Drawn,
    State,
    Training,
    check_equal,
    divided,
    expected,
    inputs,
)
from opwright import tpu

embedding = tf.tpu.experimental.embedding


def per_core(strategy: Any, make: Callable[[int], Any]) -> Any:
    """Each core's value, for strategy.run."""
    if strategy.num_replicas_in_sync == 1:
        return make(0)
    return strategy.experimental_distribute_values_from_function(
        lambda context: make(context.replica_id_in_sync_group)
    )


def whole(strategy: Any, value: Any) -> Array:
    """The batch of all cores, a row for each sample and position."""
    parts = strategy.experimental_local_results(value)
    return np.concatenate([np.reshape(part, (-1, part.shape[-1])) for part in parts])


class Program:
    """A training under a strategy."""

    def __init__(self, drawn: Drawn, feature: str, cores: int) -> None:
        self.drawn, self.feature, self.cores = drawn, feature, cores
        self.strategy = tpu.software_strategy(
            cores=cores,
            embedding_feature=feature,
            sparse_cores_per_chip=drawn.sparse_cores,
        )
        arguments: dict[str, Any] = {"pipeline_execution_with_tensor_core": False}
        if feature == "v2":
            arguments = {
                "pipeline_execution_with_tensor_core": drawn.pipelining,
                "sparse_core_embedding_config": embedding.SparseCoreEmbeddingConfig(
                    disable_table_stacking=not drawn.stacking
                ),
            }
        of_class = {"v1": embedding.TPUEmbedding, "v2": embedding.TPUEmbeddingV2}
        with self.strategy.scope():
            self.embedding = of_class[feature](
                drawn.config(feature, cores), None, **arguments
            )
        batch = {"per_replica_batch_size": BATCH // cores} if feature == "v1" else {}
        self.embedding.build(**batch)
        tables = {
            table.name: tpu.TableValues(
                table.start["parameters"],
                {n: v for n, v in table.start.items() if n != "parameters"},
            )
            for table in drawn.used()
        }
        tpu.load_tables(self.embedding, tables)
        self.ids, self.weights = inputs(drawn, feature, cores)
        # By feature, of each step and core.
        self.targets = [
            tf.constant(np.stack([divided(step[i], cores) for step in drawn.targets]))
            for i, _ in enumerate(drawn.features)
        ]

    def _step(self, ids: Any, weights: Any, targets: Any) -> Any:
        # Weights that are None cannot be arguments of each core's values.
        weights = {name: weights.get(name) for name in ids}
        if self.feature == "v2":
            activations, preserved = self.embedding(ids, weights)
        else:
            self.embedding.enqueue(ids, weights)
            activations = self.embedding.dequeue()
        gradients = {
            name: found - tf.reshape(targets[name], tf.shape(found))
            for name, found in activations.items()
        }
        if self.feature == "v2":
            self.embedding.apply_gradients(gradients, preserved)
        else:
            self.embedding.apply_gradients(gradients)
        return activations

    @tf.function
    def _run(self, step: tf.Tensor) -> Any:
        def part(made: Any) -> Any:
            return per_core(
                self.strategy,
                lambda core: {name: make(step, core) for name, make in made.items()},
            )

        targets = {
            f"f{i}": lambda step, core, of=of: of[step, core]
            for i, of in enumerate(self.targets)
        }
        return self.strategy.run(
            self._step, args=(part(self.ids), part(self.weights), part(targets))
        )

    def train(self) -> Training:
        found = []
        for step in range(STEPS):
            for optimizer in self.drawn.optimizers:
                optimizer.begin(step)
            activations = self._run(tf.constant(step))
            found.append(
                [
                    whole(self.strategy, activations[f"f{i}"])
                    for i, _ in enumerate(self.drawn.features)
                ]
            )
        return Training(
            found, {one.name: values(one.name) for one in self.drawn.used()}
        )


def values(name: str) -> State:
    table = tpu.table(name)
    slots = {slot: value.numpy() for slot, value in table.slots.items()}
    return {"parameters": table.rows.numpy(), **slots}


def check(seed: int) -> None:
    """V2 on 1, 2 and 4 cores, V1 and the reference agree over all steps."""
    drawn = Drawn(seed)
    got = Program(drawn, "v1", 1).train()
    check_equal(got, expected(drawn, "v1"), f"V1, seed {seed}")
    wanted = expected(drawn, "v2")
    for cores in (1, 2, 4):
        got = Program(drawn, "v2", cores).train()
        check_equal(got, wanted, f"V2, {cores} cores, seed {seed}")


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "TPUEmbeddingV2: TensorFlow leaves")
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4,
    )
    first, count = map(int, sys.argv[1:])
    for number in range(first, first + count):
        check(number)
    print("done")
