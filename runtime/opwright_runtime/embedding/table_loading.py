"""Loads tables and slots from arrays into an embedding, all of them or none."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from opwright_runtime._internals import (
    OptimizationParameters,
    sparse_core_embedding,
    tpu_embedding_class,
)
from opwright_runtime.embedding import stacked_tables
from opwright_runtime.embedding.live_tables import LiveTable
from opwright_runtime.embedding.optimizers import optimizer_traits
from opwright_runtime.embedding.stacked_tables import PARAMETERS
from opwright_runtime.embedding.table_values import Array, TableValues
from opwright_runtime.embedding.tpu_system import TPUSystem
from opwright_runtime.errors import OpInputError, bad_argument

# TensorFlow's classes, which have no types. An embedding is of one of three.
Embedding: TypeAlias = Any
TableConfig: TypeAlias = Any
Variable: TypeAlias = Any
Shape: TypeAlias = tuple[int, ...]

_serving_class: Any = tf.tpu.experimental.embedding.TPUEmbeddingForServing
_refused = partial(bad_argument, OpInputError, "load_tables")


def load_tables(
    embedding: Embedding, tables: Mapping[str, TableValues | LiveTable]
) -> None:
    """Writes tables and their slots into an embedding: all of them, or none.

    Args:
        embedding: a `TPUEmbedding`, a `TPUEmbeddingV2` with any number of cores and any
            stacks, or a `TPUEmbeddingForServing`. It must be built.
        tables: by the names of the tables, all that the embedding has and no others.
            The slots are those of the table's optimizer. A table without an optimizer
            takes the rows alone, and ignores slots. `tables_from_checkpoint` returns
            such tables; `table` returns one.

    Raises:
        OpInputError: a table, a slot, a shape, a dtype or a value is not one that the
            embedding can have. Nothing has changed.
        RuntimeError: the embedding is not built, or a function is being traced.
    """
    if tf.inside_function():
        raise RuntimeError(
            "load_tables: call it eagerly, not in a tf.function, which would load the "
            "same values each time"
        )
    kinds = (sparse_core_embedding.TPUEmbeddingV2, tpu_embedding_class, _serving_class)
    if not isinstance(embedding, kinds):
        allowed = "a TPUEmbedding, a TPUEmbeddingV2 or a TPUEmbeddingForServing"
        raise _refused("embedding", embedding, allowed)
    if not embedding._built:
        raise RuntimeError(
            f"load_tables: the {type(embedding).__name__} has no tables yet; call its "
            "method build first"
        )
    _check_names(tables, [config.name for config in embedding._table_config])
    checked = {
        config.name: _checked(embedding, config, tables[config.name])
        for config in embedding._table_config
    }
    for name, values in checked.items():
        if _has_sparse_cores(embedding):
            stacked_tables.write_table(embedding, name, values)
        else:
            _write(embedding._variables[name], values)
    if isinstance(embedding, tpu_embedding_class):
        embedding._load_variables()  # From the copies on the host.


def _has_sparse_cores(embedding: Embedding) -> bool:
    return isinstance(embedding, sparse_core_embedding.TPUEmbeddingV2)


def _check_names(tables: object, wanted: list[str]) -> None:
    if not isinstance(tables, Mapping):
        raise _refused("tables", tables, "a mapping of names to tables")
    missing = [name for name in wanted if name not in tables]
    unknown = [name for name in tables if name not in wanted]
    if not missing and not unknown:
        return
    parts = [f"missing: {', '.join(map(repr, missing))}"] if missing else []
    parts += [f"not configured: {', '.join(map(repr, unknown))}"] if unknown else []
    hints = (
        (name, difflib.get_close_matches(str(name), missing, 1)) for name in unknown
    )
    parts += [f"{name!r} may be {close[0]!r}" for name, close in hints if close]
    raise _refused(
        "tables",
        list(tables),
        f"those of the embedding, {', '.join(map(repr, wanted))}",
        remedy="; ".join(parts),
    )


def _checked(
    embedding: Embedding, config: TableConfig, table: TableValues | LiveTable
) -> dict[str, Array]:
    """The values of a table by slot, among them PARAMETERS."""
    name = config.name
    if not isinstance(table, (TableValues, LiveTable)):
        allowed = "TableValues(rows, slots)"
        raise _refused(f"tables[{name!r}]", table, allowed)
    shapes = _shapes(embedding, name)
    slots = table.slots if config.optimizer is not None else {}
    wanted = [slot for slot in shapes if slot != PARAMETERS]
    if set(slots) != set(wanted):
        raise _refused(
            f"tables[{name!r}].slots",
            sorted(slots),
            f"those of {type(config.optimizer).__name__}, {sorted(wanted)}",
        )
    values = {PARAMETERS: np.asarray(table.rows)}
    values |= {slot: np.asarray(value) for slot, value in slots.items()}
    bounded = _not_negative(embedding, config)
    for slot, array in values.items():
        where = "rows" if slot == PARAMETERS else f"slots[{slot!r}]"
        _check_array(f"tables[{name!r}].{where}", array, shapes[slot], slot in bounded)
    return values


def _check_array(where: str, array: Array, shape: Shape, bounded: bool) -> None:
    if array.dtype != np.float32 or array.shape != shape:
        allowed = f"an array of float32[{','.join(map(str, shape))}]"
        raise _refused(where, array, allowed)
    good = np.isfinite(array)
    if bounded:
        good &= array >= 0
    if not good.all():
        row, column = np.argwhere(~good)[0].tolist()
        allowed = "finite and at least 0" if bounded else "finite"
        raise _refused(
            where,
            float(array[row, column]),
            f"{allowed} throughout",
            remedy=f"this is row {row}, column {column}",
        )


def _shapes(embedding: Embedding, name: str) -> dict[str, Shape]:
    """The shapes of a table and its slots."""
    if _has_sparse_cores(embedding):
        shape = stacked_tables.table_shape(embedding, name)
        return dict.fromkeys(stacked_tables.slot_names(embedding, name), shape)
    return {
        slot: tuple(variable.shape)
        for slot, variable in embedding._variables[name].items()
    }


def _not_negative(embedding: Embedding, config: TableConfig) -> set[str]:
    """The slots that steps of opwright's strategies refuse if they are negative."""
    strategy = getattr(embedding, "_strategy", None)
    if not isinstance(getattr(strategy, "extended", None), TPUSystem):
        return set()
    parameters = OptimizationParameters()
    config.optimizer._set_optimization_parameters(parameters)
    traits = optimizer_traits(parameters)
    return {
        slot
        for slot, bounds in zip(traits["slots"], traits["slot_bounds"], strict=True)
        if bounds == "at least 0"
    }


def _write(variables: Mapping[str, Variable], values: Mapping[str, Array]) -> None:
    """Writes the variables of a table that is not stacked."""
    for slot, value in values.items():
        first = 0
        for part in _parts(variables[slot]):
            rows = part.shape[0]
            part.assign(value[first : first + rows])
            first += rows


def _parts(variable: Variable) -> Iterator[Variable]:
    """The rows of a table by host; a variable without a TPU is one part."""
    yield from getattr(variable, "variables", [variable])
