"""opwright.tpu.tables_to_torchrec and tables_from_torchrec: names, shapes, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch

from opwright import OpInputError, tpu

ROWS = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
FULL = np.full((9, 4), 0.5, np.float32)
COLUMN = np.arange(9, dtype=np.float32)[:, np.newaxis]


def collection(**tables: Any) -> torch.nn.Module:
    """A model whose parameters have the names of an EmbeddingBagCollection's."""
    model = torch.nn.Module()
    model.embedding_bags = torch.nn.ModuleDict(
        {
            name: torch.nn.EmbeddingBag(*rows.shape, _weight=torch.tensor(rows))
            for name, rows in tables.items()
        }
    )
    return model


def test_tables_to_torchrec_are_loaded_by_a_module() -> None:
    tables = {
        "films": tpu.TableValues(ROWS, {"accumulators": FULL}),
        "people": tpu.TableValues(-ROWS, {"accumulators": COLUMN}),
        "users": tpu.TableValues(2 * ROWS),
    }
    state = tpu.tables_to_torchrec(tables)
    model = collection(films=0 * ROWS, people=0 * ROWS, users=0 * ROWS)
    model.load_state_dict({k: torch.tensor(v) for k, v in state.state_dict.items()})
    for name, table in tables.items():
        weight = model.state_dict()[f"embedding_bags.{name}.weight"]
        np.testing.assert_array_equal(weight, table.rows)
    assert state.optimizer.keys() == {"films.weight", "people.weight"}
    films = state.optimizer["films.weight"]["films.weight.momentum_1"]
    np.testing.assert_array_equal(films, FULL)
    people = state.optimizer["people.weight"]["people.weight.momentum_1"]
    np.testing.assert_array_equal(people, np.arange(9))  # Row-wise: a vector.


def test_tables_from_torchrec_of_tensors_come_back() -> None:
    model = torch.nn.Module()
    model.sparse = collection(films=ROWS, people=-ROWS)
    model.dense = torch.nn.Linear(4, 1)
    optimizer = {
        "films.weight": {"films.weight.momentum_1": torch.tensor(FULL)},
        "people.weight": {"people.weight.momentum_1": torch.tensor(COLUMN[:, 0])},
    }
    found = tpu.tables_from_torchrec(model.state_dict(), optimizer)
    assert found.keys() == {"films", "people"}
    np.testing.assert_array_equal(found["films"].rows, ROWS)
    np.testing.assert_array_equal(found["films"].slots["accumulators"], FULL)
    np.testing.assert_array_equal(found["people"].slots["accumulators"], COLUMN)
    weight: Any = model.sparse.embedding_bags["films"].weight
    with torch.no_grad():
        weight.zero_()
    np.testing.assert_array_equal(found["films"].rows, ROWS)  # A copy.
    assert tpu.tables_from_torchrec(model.state_dict())["people"].slots == {}


def test_tables_to_torchrec_other_slots_or_names_are_refused() -> None:
    adam = tpu.TableValues(ROWS, {"momenta": FULL, "velocities": FULL})
    with pytest.raises(OpInputError, match=r"slots must be none or .*'velocities'\]"):
        tpu.tables_to_torchrec({"films": adam})
    with pytest.raises(OpInputError, match=r"without a dot, not empty, not 'a\.b'"):
        tpu.tables_to_torchrec({"a.b": tpu.TableValues(ROWS)})


KEY = "embedding_bags.films.weight"


@pytest.mark.parametrize(
    ("state", "optimizer", "words"),
    [
        ({"dense.weight": ROWS}, None, "must be one with embedding_bags.<table>.wei"),
        ({KEY: ROWS, f"a.{KEY}": ROWS}, None, "the only weight of a table 'films'"),
        ({KEY: ROWS.astype(np.float64)}, None, "an array of float32, not an array"),
        ({KEY: torch.tensor(ROWS, requires_grad=True)}, None, r"tensor\.detach\(\)"),
        ({KEY: torch.tensor(ROWS).bfloat16()}, None, r"\.float\(\)"),
        ({KEY: ROWS[0]}, None, "must be a matrix of float32"),
        ({KEY: ROWS}, {}, r"optimizer must be the state of \['films.weight'\], not"),
        ({KEY: ROWS}, {"films.weight": {"exp_avg": FULL}}, r"not \['exp_avg'\]"),
        (
            {KEY: ROWS},
            {"films.weight": {"films.weight.momentum_1": FULL[:8]}},
            r"must be of the shape \[9, 4\] or \[9\], not an array of float32\[8,4\]",
        ),
    ],
)
def test_tables_from_torchrec_wrong_state_is_refused(
    state: Any, optimizer: Any, words: str
) -> None:
    with pytest.raises(OpInputError, match=words):
        tpu.tables_from_torchrec(state, optimizer)


def test_tables_to_torchrec_live_table_is_taken() -> None:
    table = tpu.LiveTable(tf.constant(ROWS), {"accumulators": tf.constant(COLUMN)})
    state = tpu.tables_to_torchrec({"films": table})
    np.testing.assert_array_equal(state.state_dict[KEY], ROWS)
    films = state.optimizer["films.weight"]["films.weight.momentum_1"]
    np.testing.assert_array_equal(films, np.arange(9))
