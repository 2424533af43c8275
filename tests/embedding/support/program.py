"""A training program with TPUEmbedding, as its users write it for a TPU.

The strategy is all that is another: nothing here knows what runs beneath it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from opwright import tpu
from opwright_runtime import embedding

tpu_embedding = tf.tpu.experimental.embedding

Weights = NDArray[np.float32]


def table(weights: Weights, name: str, **changes: Any) -> Any:
    """A table that starts with `weights`."""
    return tpu_embedding.TableConfig(
        *weights.shape,
        initializer=lambda shape, dtype: tf.constant(weights, dtype, shape),
        name=name,
        **changes,
    )


def own_optimizers(rate: float) -> dict[str, Any]:
    """What TensorFlow has no class for, by its name in the optimizer registry.

    The weights of FrequencyEstimator are estimates, and it is not here.
    """
    classes = (getattr(tpu, name) for name in embedding.optimizers.__all__)
    return {
        one.FIELD: one(rate) for one in classes if one is not tpu.FrequencyEstimator
    }


def row_wise_optimizers(rate: float) -> dict[str, Any]:
    """Those whose slots are one value a row."""
    return {name: one for name, one in own_optimizers(rate).items() if one.ROW_WISE}


class Program:
    """Features of some tables, and the steps of a training.

    Args:
        features: `FeatureConfig`s by name.
        optimizer: of the tables that have none of their own.
        pipelined: whether lookups overlap with updates.
    """

    def __init__(
        self, features: Mapping[str, Any], optimizer: Any, pipelined: bool = False
    ) -> None:
        self.strategy = tpu.software_strategy()
        with self.strategy.scope():
            self.embedding = tpu_embedding.TPUEmbedding(
                dict(features),
                optimizer=optimizer,
                pipeline_execution_with_tensor_core=pipelined,
            )

    @tf.function
    def look_up(self, ids: Mapping[str, Any], weights: Any = None) -> Any:
        """Activations, in a step without gradients."""

        def step() -> Any:
            return self.embedding.dequeue()

        self.embedding.enqueue(ids, weights, training=False)
        return self.strategy.run(step)

    @tf.function
    def train(
        self,
        ids: Mapping[str, Any],
        gradients: Mapping[str, Any],
        weights: Any = None,
    ) -> Any:
        """Activations, in a step whose gradients are given."""

        def step(gradients: Any) -> Any:
            activations = self.embedding.dequeue()
            self.embedding.apply_gradients(gradients)
            return activations

        self.embedding.enqueue(ids, weights, training=True)
        return self.strategy.run(step, args=(gradients,))

    def tables(self) -> dict[str, Any]:
        """Tables and slots as a checkpoint has them: "films", "films/accumulators"."""
        self.embedding._retrieve_variables()
        return {
            name if slot == "parameters" else f"{name}/{slot}": variable.numpy()
            for name, slots in self.embedding._variables.items()
            for slot, variable in (
                (slot, sharded.variables[0]) for slot, sharded in slots.items()
            )
        }


def rows(*values: list[int]) -> tf.RaggedTensor:
    return tf.ragged.constant(values, tf.int64)


def sparse(ragged: tf.RaggedTensor, width: int = 4) -> tf.SparseTensor:
    """The same ids as a sparse tensor of static shape."""
    made = ragged.to_sparse()
    return tf.SparseTensor(made.indices, made.values, [ragged.shape[0], width])
