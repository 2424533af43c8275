"""opwright.tpu.tables_to_jax_stacks and tables_from_jax_stacks: layout, refusals."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opwright import OpInputError, tpu

CORES = 8  # Of 2 chips.
SIZES = {"films": (60, 6), "people": (37, 8), "users": (50, 20)}
SLOTS = {
    "Adagrad": {"accumulator": "accumulators"},
    "AdagradMomentum": {"accumulator": "accumulators", "momentum": "momenta"},
    "Adam": {"momentum": "momenta", "velocity": "velocities"},
    "Ftrl": {"accumulator": "accumulators", "linear": "linears"},
    "SGD": {},
}


def spec(**of_people: Any) -> Any:
    """The tables films and people in one stack, and users alone."""

    def table(name: str, offset: int, rotation: int, **other: Any) -> Any:
        rows, dimension = SIZES[name]
        values = {
            "table_name": name,
            "vocab_size": rows,
            "embedding_dim": dimension,
            "row_offset_in_shard": offset,
            "shard_rotation": rotation,
        }
        return SimpleNamespace(**{**values, **other})

    def stack(name: str, rows: int, columns: int, tables: list[Any]) -> Any:
        return SimpleNamespace(
            stack_name=name,
            stack_vocab_size=rows,
            stack_embedding_dim=columns,
            num_sparsecores=CORES,
            table_specs=tables,
        )

    films, people = table("films", 0, 0), table("people", 8, 4, **of_people)
    return SimpleNamespace(
        stacked_table_specs=[
            stack("films_people", 128, 8, [films, people]),
            stack("users", 64, 24, [table("users", 0, 0)]),
        ]
    )


def drawn(slots: Any) -> dict[str, tpu.TableValues]:
    rng = np.random.default_rng(2)

    def values(name: str) -> Any:
        return rng.normal(size=SIZES[name]).astype(np.float32)

    return {
        name: tpu.TableValues(values(name), {slot: values(name) for slot in slots})
        for name in SIZES
    }


def in_stacks(values: dict[str, Any]) -> dict[str, Any]:
    """The stacks, shard by shard, as jax-tpu-embedding describes them."""

    def shards(name: str, rotation: int) -> Any:
        rows, dimension = SIZES[name]
        room = ((0, -rows % (8 * CORES)), (0, -dimension % 8))
        padded = np.pad(values[name], room)
        return np.roll([padded[core::CORES] for core in range(CORES)], rotation, axis=0)

    together = np.concatenate([shards("films", 0), shards("people", 4)], axis=1)
    return {
        "films_people": together.reshape(128, 8),
        "users": shards("users", 0).reshape(64, 24),
    }


@pytest.mark.parametrize("optimizer", SLOTS)
def test_tables_to_jax_stacks_and_back_are_in_their_layout(optimizer: str) -> None:
    slots = SLOTS[optimizer]
    tables = drawn(slots.values())
    stacks = tpu.tables_to_jax_stacks(tables, spec())
    rows = in_stacks({name: table.rows for name, table in tables.items()})
    assert stacks.keys() == rows.keys()
    for name, stack in stacks.items():
        np.testing.assert_array_equal(stack.table, rows[name])
        assert list(stack.slot) == list(slots)  # The order of JAX's tuples.
        for slot, key in slots.items():
            of_slot = in_stacks(
                {one: table.slots[key] for one, table in tables.items()}
            )
            np.testing.assert_array_equal(stack.slot[slot], of_slot[name])

    # As jax-tpu-embedding has them: a tuple with names, in a tuple with names.
    variables = namedtuple("EmbeddingVariables", ["table", "slot"])
    of_slots: Any = namedtuple(f"{optimizer}SlotVariables", list(slots))
    trained = {
        name: variables(stack.table, of_slots(**stack.slot))
        for name, stack in stacks.items()
    }
    restored = {name: stack._asdict() for name, stack in stacks.items()}
    for given in (stacks, trained, restored):
        found = tpu.tables_from_jax_stacks(given, spec())
        assert found.keys() == tables.keys()
        for name, table in tables.items():
            np.testing.assert_array_equal(found[name].rows, table.rows)
            assert found[name].slots.keys() == table.slots.keys()
            for key, values in table.slots.items():
                np.testing.assert_array_equal(found[name].slots[key], values)


def changed(name: str, rows: Any = None, slots: Any = None) -> dict[str, Any]:
    tables = drawn(["accumulators"])
    old = tables[name]
    rows = old.rows if rows is None else rows
    return {
        **tables,
        name: tpu.TableValues(rows, old.slots if slots is None else slots),
    }


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({}, r"tables of the spec, \['films', 'people', 'users'\], not \[\]"),
        (
            changed("films", rows=np.zeros((60, 8), np.float32)),
            r"tables\['films'\].rows must be .*float32 of the shape \[60, 6\]",
        ),
        (
            changed("users", rows=np.zeros(SIZES["users"])),
            r"tables\['users'\].rows must be .*not 'float64",
        ),
        (
            changed("people", slots={}),
            r"tables\['people'\].slots must be those of 'films'",
        ),
        (
            changed("films", slots={"accumulators": np.zeros((60, 1), np.float32)}),
            r"slots\['accumulators'\] must be .*\[60, 6\]",
        ),
        (
            changed("films", slots={"lion": np.zeros((60, 6), np.float32)}),
            r"slots must be those of SGD, .* not \['lion'\]",
        ),
    ],
    ids=["none", "shape", "dtype", "other_slots", "row_wise", "unknown_slots"],
)
def test_tables_to_jax_stacks_bad_tables_are_refused(tables: Any, words: str) -> None:
    with pytest.raises(OpInputError, match=words):
        tpu.tables_to_jax_stacks(tables, spec())


@pytest.mark.parametrize(
    ("of_people", "words"),
    [
        ({"row_offset_in_shard": 16}, "must be within the stack 'films_people'"),
        ({"row_offset_in_shard": -1}, "must be within the stack 'films_people'"),
        ({"embedding_dim": 9}, "must be within the stack 'films_people'"),
        ({"row_offset_in_shard": 7}, "must be a table in rows of its own"),
        ({"table_name": "films"}, "must be a table in rows of its own"),
    ],
)
def test_jax_stacks_bad_spec_is_refused(of_people: Any, words: str) -> None:
    tables = drawn([])
    with pytest.raises(OpInputError, match=words):
        tpu.tables_to_jax_stacks(tables, spec(**of_people))
    with pytest.raises(OpInputError, match=words):
        tpu.tables_from_jax_stacks(
            tpu.tables_to_jax_stacks(tables, spec()), spec(**of_people)
        )


def test_jax_stacks_spec_of_other_kind_is_refused() -> None:
    double, empty = spec(), spec()
    double.stacked_table_specs *= 2
    empty.stacked_table_specs[1].table_specs = []
    tables = drawn([])
    with pytest.raises(OpInputError, match="create_proto_from_feature_specs"):
        tpu.tables_to_jax_stacks(tables, {"films": 1})
    for bad in (double, empty):
        with pytest.raises(OpInputError, match="must be the only one, with tables"):
            tpu.tables_to_jax_stacks(tables, bad)


ZEROS = np.zeros((64, 24), np.float32)


@pytest.mark.parametrize(
    ("users", "words"),
    [
        (None, r"stacks must be one with 'users'"),
        (ZEROS, r"stacks\['users'\] must be EmbeddingVariables, or a dict"),
        ({"table": ZEROS[1:], "slot": ()}, r"table must be .* shape \[64, 24\]"),
        (
            {"table": ZEROS, "slot": (ZEROS, ZEROS)},
            "must be none, or named .*'unnamed'",
        ),
        ({"table": ZEROS, "slot": {"mu": ZEROS}}, r"must be none, or named .*\['mu'\]"),
    ],
    ids=["missing", "array", "shape", "unnamed", "unknown"],
)
def test_tables_from_jax_stacks_bad_stacks_are_refused(users: Any, words: str) -> None:
    stacks: dict[str, Any] = {**tpu.tables_to_jax_stacks(drawn([]), spec())}
    del stacks["users"]
    if users is not None:
        stacks["users"] = users
    with pytest.raises(OpInputError, match=words):
        tpu.tables_from_jax_stacks(stacks, spec())


def test_tables_from_jax_stacks_single_unnamed_slot_is_adagrad_s() -> None:
    stacks = tpu.tables_to_jax_stacks(drawn(["accumulators"]), spec())
    unnamed = {
        name: {"table": stack.table, "slot": tuple(stack.slot.values())}
        for name, stack in stacks.items()
    }
    found = tpu.tables_from_jax_stacks(unnamed, spec())
    assert list(found["films"].slots) == ["accumulators"]
