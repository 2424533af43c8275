"""Tables of a TPUEmbeddingV2, taken out of the stacks and shards that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opwright_runtime.embedding.table_values import Array

# TensorFlow's classes, which have no types.
TPUEmbeddingV2: TypeAlias = Any
ShardedVariable: TypeAlias = Any
Layout: TypeAlias = Any  # A SparseCoreTableLayout, a message of protocol buffers.
PARAMETERS = "parameters"


def table_names(embedding: TPUEmbeddingV2) -> list[str]:
    """The names of the tables, in the order of features."""
    return [config.name for config in embedding._table_config]


def slot_names(embedding: TPUEmbeddingV2, name: str) -> list[str]:
    """`PARAMETERS`, for the table itself, and the names of its slots, sorted."""
    return sorted(_variables(embedding, name))


def table_shape(embedding: TPUEmbeddingV2, name: str) -> tuple[int, int]:
    """The rows and the dimension of a table, and of each of its slots."""
    rows, dimension = embedding.embedding_layouts[name].unsharded_shape
    return rows, dimension


def read_table(embedding: TPUEmbeddingV2, name: str) -> dict[str, Array]:
    """Copies of a table and its slots by name, [rows, dimension] each."""
    rows, dimension = _rows(embedding, name)
    return {
        slot: _whole(variable)[rows, :dimension]
        for slot, variable in _variables(embedding, name).items()
    }


def write_table(
    embedding: TPUEmbeddingV2, name: str, values: Mapping[str, Array]
) -> None:
    """Writes a table and its slots. Padding and other tables of the stack stay."""
    rows, dimension = _rows(embedding, name)
    for slot, variable in _variables(embedding, name).items():
        whole = _whole(variable)
        whole[rows, :dimension] = values[slot]
        parts = np.split(whole, len(variable.values))
        for part, new in zip(variable.values, parts, strict=True):
            part.assign(new)


def _variables(embedding: TPUEmbeddingV2, name: str) -> Mapping[str, ShardedVariable]:
    stack = embedding.embedding_layouts[name].stacked_table_name
    variables: Mapping[str, ShardedVariable] = embedding.variables[stack]
    return variables


def _whole(variable: ShardedVariable) -> Array:
    return np.concatenate([part.numpy() for part in variable.values])


def _rows(embedding: TPUEmbeddingV2, name: str) -> tuple[NDArray[np.int64], int]:
    """Where the rows of a table are in its stack, and its dimension."""
    layout = embedding.embedding_layouts[name]
    return rows_in_stack(layout), layout.unsharded_shape[1]


def rows_in_stack(layout: Layout) -> NDArray[np.int64]:
    """Where each row of a table is in its stack, by TensorFlow's layout of the table.

    Row r is in shard r % shards, of which a rotation moves all to other SparseCores.
    """
    shards = layout.num_sparse_cores
    rows = np.arange(layout.unsharded_shape[0])
    shard = (rows + layout.sparse_core_shard_rotation) % shards
    position = layout.sparse_core_shard_row_offset + rows // shards
    first = shard * layout.total_rows_per_sparse_core_shard
    found: NDArray[np.int64] = first + position
    return found
