"""Copies of tables, for inspection while a program trains them."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import tensorflow as tf

from opwright_runtime import native
from opwright_runtime._internals import TPUEmbeddingConfiguration
from opwright_runtime.embedding.optimizers import optimizer_traits, retrieve_table
from opwright_runtime.embedding.stacked_tables import (
    PARAMETERS,
    TPUEmbeddingV2,
    read_table,
    table_names,
)
from opwright_runtime.embedding.steps import NOT_CONFIGURED

# The TPUEmbeddingV2 that was made last, if its strategy is the last one.
_sparse_cores: list[weakref.ref[TPUEmbeddingV2]] = []


def show_tables_of(embedding: TPUEmbeddingV2 | None) -> None:
    """Makes `table` read the tables of a TPUEmbeddingV2; None: those of the engine."""
    _sparse_cores[:] = [] if embedding is None else [weakref.ref(embedding)]


def shown_embedding() -> TPUEmbeddingV2 | None:
    """The TPUEmbeddingV2 whose tables `table` reads, or None.

    A strategy empties the engine: if it has tables, ops have configured them later.
    """
    if not _sparse_cores or native.embedding_configuration():
        return None
    return _sparse_cores[0]()


class LiveTable(NamedTuple):
    """The present values of a table.

    Attributes:
        rows: the weights, [vocabulary_size, dimension], float32.
        slots: the optimizer's state by name, such as `accumulators` of Adagrad, or
            `momenta` and `velocities` of Adam. Each has the shape of `rows`, or
            [vocabulary_size, 1] of a row-wise optimizer.
    """

    rows: tf.Tensor
    slots: dict[str, tf.Tensor]


def table(name: str) -> LiveTable:
    """A copy of a table and its slots as they are, after every update sent so far.

    Args:
        name: the name of the `TableConfig` or `EmbeddingTable`. A `TableConfig` without
            a name is called `table_0`, `table_1`, ... in the order of features.

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
    embedding = shown_embedding()
    if embedding is not None:
        _need_name(name, table_names(embedding))
        slots = read_table(embedding, name)
        rows = tf.constant(slots.pop(PARAMETERS))
        return LiveTable(rows, {slot: tf.constant(x) for slot, x in slots.items()})
    config = TPUEmbeddingConfiguration.FromString(native.embedding_configuration())
    descriptors = list(config.table_descriptor)
    if not descriptors:
        raise RuntimeError(f"table: {NOT_CONFIGURED}")
    names = [descriptor.name for descriptor in descriptors]
    _need_name(name, names)
    of_engine = _slots(descriptors[names.index(name)].optimization_parameters)
    found = retrieve_table(len(of_engine), table_name=name, num_shards=1, shard_id=0)
    return LiveTable(found[0], dict(zip(of_engine, found[1:], strict=True)))


def _need_name(name: str, names: list[str]) -> None:
    if name not in names:
        there = ", ".join(map(repr, names))
        raise ValueError(f"table: no table is called {name!r}; there are {there}")


def _slots(parameters: Any) -> list[str]:
    """The names of an optimizer's slots, in the order of the retrieve op's outputs."""
    traits = optimizer_traits(parameters)
    if traits["field"] != "user_defined_program":
        return traits["slots"]
    program = parameters.user_defined_program.program
    state = program.host_program_shape.result.tuple_shapes
    return [f"Slot_{i}" for i in range(len(state) - 1)]
