"""Live tables, to be looked at while a program trains them."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from opwright_runtime import native
from opwright_runtime._internals import (
    CURRENT,
    TPUEmbeddingConfiguration,
    contexts,
    execute,
)


class LiveTable(NamedTuple):
    """What a table holds now.

    Attributes:
        rows: the weights, [vocabulary_size, dimension], float32.
        slots: the optimizer's state by name, each of the same shape: `accumulators` of
            Adagrad, `momenta` and `velocities` of Adam.
    """

    rows: tf.Tensor
    slots: dict[str, tf.Tensor]


def table(name: str) -> LiveTable:
    """A copy of a table and its slots as they are, after every update sent so far.

    Args:
        name: of the `TableConfig` or `EmbeddingTable`. A `TableConfig` that was made
            without one is `table_0`, `table_1`, ... in the order of features.

    Raises:
        NativeLibraryError: the native kernels are not built.
        RuntimeError: no embeddings are configured, or a function is being traced.
        ValueError: there is no table of this name.
    """
    if tf.inside_function():
        raise RuntimeError(
            "table: call it eagerly, not in a tf.function, which would keep what it "
            "saw when it was traced"
        )
    config = TPUEmbeddingConfiguration.FromString(native.embedding_configuration())
    descriptors = list(config.table_descriptor)
    if not descriptors:
        raise RuntimeError(
            "table: no embeddings are configured; build a TPUEmbedding, or run "
            "ConfigureTPUEmbedding"
        )
    names = [descriptor.name for descriptor in descriptors]
    if name not in names:
        there = ", ".join(map(repr, names))
        raise ValueError(f"table: no table is called {name!r}; there are {there}")
    parameters = descriptors[names.index(name)].optimization_parameters
    slots = _slots(parameters)
    # Most optimizers have an op for one table; the other reads all of them.
    op_name = _facts(parameters)["op_name"]
    if op_name:
        retrieve = getattr(tf.raw_ops, f"RetrieveTPUEmbedding{op_name}Parameters")
        found = retrieve(table_name=name, num_shards=1, shard_id=0)
        values = list(found) if slots else [found]
    else:
        every = _retrieve_all(len(names))
        values = [kind[names.index(name)] for kind in every]
    return LiveTable(values[0], dict(zip(slots, values[1:], strict=False)))


def _retrieve_all(count: int) -> list[list[tf.Tensor]]:
    """Parameters, then what are called auxiliaries, each by table."""
    attrs = ("NumTables", count, "num_shards", 1, "shard_id", 0, "config", "")
    found: list[list[tf.Tensor]] = execute(
        contexts[CURRENT], "RetrieveAllTPUEmbeddingParameters", None, *attrs
    )
    return found


def _facts(parameters: Any) -> native.OptimizerFacts:
    field = parameters.WhichOneof("parameters")
    return next(one for one in native.embedding_optimizers() if one["field"] == field)


def _slots(parameters: Any) -> list[str]:
    """In the order of the ops that retrieve them."""
    if not parameters.HasField("user_defined_program"):
        return _facts(parameters)["slots"]
    program = parameters.user_defined_program.program
    state = program.host_program_shape.result.tuple_shapes
    return [f"Slot_{i}" for i in range(len(state) - 1)]
