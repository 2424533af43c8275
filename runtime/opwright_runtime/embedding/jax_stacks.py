"""Tables in the stacks of jax-tpu-embedding, as arrays. JAX is not imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opwright_runtime.embedding.live_tables import LiveTable
from opwright_runtime.embedding.stacked_tables import rows_in_stack
from opwright_runtime.embedding.table_values import Array, TableValues
from opwright_runtime.errors import OpInputError, bad_argument

# Objects of jax-tpu-embedding, or others with the same attributes.
EmbeddingSpec: TypeAlias = Any
StackSpec: TypeAlias = Any
TableSpec: TypeAlias = Any
EmbeddingVariables: TypeAlias = Any

# The slots by their names in jax-tpu-embedding.
_NAMES = {
    "accumulator": "accumulators",
    "momentum": "momenta",
    "velocity": "velocities",
    "linear": "linears",
}
# The slots of each optimizer that TPUEmbeddingV2 has too, in the order of JAX's tuples.
_OPTIMIZERS = (
    (),
    ("accumulator",),
    ("accumulator", "momentum"),
    ("momentum", "velocity"),
    ("accumulator", "linear"),
)
_to = partial(bad_argument, OpInputError, "tables_to_jax_stacks")
_from = partial(bad_argument, OpInputError, "tables_from_jax_stacks")


class JaxStack(NamedTuple):
    """A stack of tables, as jax-tpu-embedding's `EmbeddingVariables` has it.

    Attributes:
        table: the rows of its tables, [stack_vocab_size, stack_embedding_dim].
        slot: the optimizer's slots by their names there, each of the same shape:
            `AdamSlotVariables(**slot)` is the tuple that the library takes.
    """

    table: Array
    slot: dict[str, Array]


class _Layout(NamedTuple):
    """Where a table is in its stack, under TensorFlow's names."""

    unsharded_shape: tuple[int, int]
    num_sparse_cores: int
    sparse_core_shard_rotation: int
    sparse_core_shard_row_offset: int
    total_rows_per_sparse_core_shard: int


class _Place(NamedTuple):
    """The rows of a table in its stack, and the shape of the table."""

    rows: NDArray[np.int64]
    shape: tuple[int, int]


def tables_to_jax_stacks(
    tables: Mapping[str, TableValues | LiveTable], spec: EmbeddingSpec
) -> dict[str, JaxStack]:
    """Tables and slots in the stacks and shards of jax-tpu-embedding, by stack.

    Args:
        tables: the tables of the spec, by name.
        spec: what `embedding.create_proto_from_feature_specs` of jax-tpu-embedding
            returns, or an object with the same attributes.

    Returns:
        The stacks. Padding is zero.

    Raises:
        OpInputError: tables are missing, are not in the spec, or have another shape
            there. Or slots are of an optimizer that jax-tpu-embedding has not, or
            differ within a stack. Or the spec puts tables beyond their stack, or upon
            each other.
    """
    places = _places(spec, _to)
    wanted = {name for of_stack in places.values() for name in of_stack}
    if tables.keys() != wanted:
        raise _to("tables", sorted(tables), f"the tables of the spec, {sorted(wanted)}")
    stacks = {}
    for stack in spec.stacked_table_specs:
        of_stack = places[stack.stack_name]
        values = {name: _parts(name, tables[name], of_stack[name]) for name in of_stack}
        first = next(iter(values))
        for name, parts in values.items():
            if parts.keys() != values[first].keys():
                raise _to(
                    f"tables[{name!r}].slots",
                    [slot for slot in parts if slot],
                    f"those of {first!r}, which is in the same stack",
                )
        whole = {}
        for slot in values[first]:
            shape = (int(stack.stack_vocab_size), int(stack.stack_embedding_dim))
            whole[slot] = np.zeros(shape, np.float32)
            for name, (rows, (_, dimension)) in of_stack.items():
                whole[slot][rows, :dimension] = values[name][slot]
        stacks[stack.stack_name] = JaxStack(whole.pop(""), whole)
    return stacks


def tables_from_jax_stacks(
    stacks: Mapping[str, EmbeddingVariables], spec: EmbeddingSpec
) -> dict[str, TableValues]:
    """Tables and slots out of the stacks of jax-tpu-embedding, by table.

    Args:
        stacks: the variables of an embedding by stack: `EmbeddingVariables`, or dicts
            with `table` and `slot`, as a checkpoint without a target is restored.
        spec: what `embedding.create_proto_from_feature_specs` of jax-tpu-embedding
            returns, or an object with the same attributes.

    Raises:
        OpInputError: a stack is missing, is no array of float32, or has another shape
            in the spec. Or its slots have no names, or are of an optimizer that
            TensorFlow has not. Or the spec puts tables beyond their stack.
    """
    places, tables = _places(spec, _from), {}
    for stack in spec.stacked_table_specs:
        of_stack = places[stack.stack_name]
        if stack.stack_name not in stacks:
            raise _from("stacks", sorted(stacks), f"one with {stack.stack_name!r}")
        where = f"stacks[{stack.stack_name!r}]"
        parts = dict(_variables(where, stacks[stack.stack_name]))
        shape = (int(stack.stack_vocab_size), int(stack.stack_embedding_dim))
        whole = {
            slot: _array(f"{where} {slot or 'table'}", values, shape, _from)
            for slot, values in parts.items()
        }
        for name, (rows, (_, dimension)) in of_stack.items():
            found = {slot: one[rows, :dimension] for slot, one in whole.items()}
            own = {_NAMES[slot]: one for slot, one in found.items() if slot}
            tables[name] = TableValues(found[""], own)
    return tables


def _places(spec: EmbeddingSpec, error: Any) -> dict[str, dict[str, _Place]]:
    """Where the tables are, by stack and table."""
    if not hasattr(spec, "stacked_table_specs"):
        raise error(
            "spec", spec, "what embedding.create_proto_from_feature_specs returns"
        )
    places: dict[str, dict[str, _Place]] = {}
    names: set[str] = set()
    for stack in spec.stacked_table_specs:
        if stack.stack_name in places or not len(stack.table_specs):
            raise error(
                f"spec of stack {stack.stack_name!r}",
                stack,
                "the only one, with tables",
            )
        taken = np.zeros(max(0, int(stack.stack_vocab_size)), bool)
        places[stack.stack_name] = {}
        for table in stack.table_specs:
            name = table.table_name
            place = _place(stack, table, error)
            if name in names or taken[place.rows].any():
                raise error(
                    f"spec of table {name!r}", table, "a table in rows of its own"
                )
            names.add(name)
            taken[place.rows] = True
            places[stack.stack_name][name] = place
    return places


def _place(stack: StackSpec, table: TableSpec, error: Any) -> _Place:
    cores, stack_rows = int(stack.num_sparsecores), int(stack.stack_vocab_size)
    rows, dimension = int(table.vocab_size), int(table.embedding_dim)
    offset, rotation = int(table.row_offset_in_shard), int(table.shard_rotation)
    fits = (
        cores > 0
        and stack_rows % cores == 0
        and rows > 0
        and offset >= 0
        and offset + -(-rows // cores) <= stack_rows // cores
        and 0 < dimension <= int(stack.stack_embedding_dim)
    )
    if not fits:
        raise error(
            f"spec of table {table.table_name!r}",
            f"{rows} rows of {dimension} floats from row {offset} of a shard",
            f"within the stack {stack.stack_name!r}, which has {stack_rows} rows of "
            f"{stack.stack_embedding_dim} floats in {cores} shards",
        )
    layout = _Layout(
        (rows, dimension), cores, rotation, offset, stack_rows // max(cores, 1)
    )
    return _Place(rows_in_stack(layout), (rows, dimension))


def _parts(
    name: str, table: TableValues | LiveTable, place: _Place
) -> dict[str, Array]:
    """The rows of a table, under "", and its slots under their names in JAX."""
    where = f"tables[{name!r}]"
    for slots in _OPTIMIZERS:
        if {_NAMES[slot] for slot in slots} == set(table.slots):
            break
    else:
        raise _to(
            f"{where}.slots",
            sorted(table.slots),
            "those of SGD, Adagrad, AdagradMomentum, Adam or FTRL",
        )
    parts = {"": _array(f"{where}.rows", table.rows, place.shape, _to)}
    for slot in slots:
        key = _NAMES[slot]
        place_of_slot = f"{where}.slots[{key!r}]"
        parts[slot] = _array(place_of_slot, table.slots[key], place.shape, _to)
    return parts


def _as_dict(value: Any) -> Any:
    """A named tuple as a dict, and anything else as it is."""
    return value._asdict() if hasattr(value, "_asdict") else value


def _variables(where: str, stack: EmbeddingVariables) -> Iterator[tuple[str, Any]]:
    """The table of a stack, under "", and its slots by name."""
    parts = _as_dict(stack)
    if not isinstance(parts, Mapping):
        parts = getattr(stack, "__dict__", None)
    if not parts or not {"table", "slot"} <= parts.keys():
        raise _from(where, stack, "EmbeddingVariables, or a dict with table and slot")
    yield "", parts["table"]
    slots = _as_dict(parts["slot"] or {})
    if not isinstance(slots, Mapping):
        # Only Adagrad has one slot.
        slots = {"accumulator": slots[0]} if len(slots) == 1 else {"": slots}
    if tuple(sorted(slots)) not in {tuple(sorted(one)) for one in _OPTIMIZERS}:
        names = " or ".join(str(list(one)) for one in _OPTIMIZERS if one)
        raise _from(
            f"the slots of {where}",
            "unnamed" if "" in slots else sorted(slots),
            f"none, or named {names}, as in AdamSlotVariables or a dict",
        )
    yield from slots.items()


def _array(where: str, value: object, shape: tuple[int, int], error: Any) -> Array:
    array = np.asarray(value)
    if array.dtype != np.float32 or array.shape != shape:
        allowed = f"an array of float32 of the shape {list(shape)}"
        given = f"{array.dtype} of the shape {list(array.shape)}"
        raise error(where, given, allowed)
    return array
