"""Tables under torchrec's names, as plain dicts of arrays. torch is not imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from opwright_runtime.embedding.live_tables import LiveTable
from opwright_runtime.embedding.table_values import Array, TableValues
from opwright_runtime.errors import OpError, OpInputError, bad_argument

ArrayLike: TypeAlias = Any  # An array, or a tensor of torch.
_WEIGHT = re.compile(r"(?:^|\.)embedding_bags\.([^.]+)\.weight$")
_ACCUMULATORS = "accumulators"  # The slot of Adagrad and RowWiseAdagrad.
_to = partial(bad_argument, OpInputError, "tables_to_torchrec")
_from = partial(bad_argument, OpInputError, "tables_from_torchrec")


class TorchrecState(NamedTuple):
    """Tables as torchrec's `FusedEmbeddingBagCollection` names them.

    Attributes:
        state_dict: the rows of table `t`, under `embedding_bags.t.weight`.
        optimizer: the `state` of the fused optimizer's `state_dict()`. Under
            `t.weight`, it has a dict whose `t.weight.momentum_1` are the accumulators,
            [rows, dimension], or [rows] of RowWiseAdagrad. Tables without slots are
            not in it.
    """

    state_dict: dict[str, Array]
    optimizer: dict[str, dict[str, Array]]


def tables_to_torchrec(
    tables: Mapping[str, TableValues | LiveTable],
) -> TorchrecState:
    """Tables under torchrec's names, with the slots of Adagrad or RowWiseAdagrad.

    Raises:
        OpInputError: a table has slots of an optimizer that torchrec has not, or a name
            that torch does not allow.
    """
    state = TorchrecState({}, {})
    for name, table in tables.items():
        if not name or "." in name:
            raise _to("the name of a table", name, "text without a dot, not empty")
        rows = np.asarray(table.rows)
        state.state_dict[f"embedding_bags.{name}.weight"] = rows
        if not table.slots:
            continue
        if set(table.slots) != {_ACCUMULATORS}:
            raise _to(
                f"tables[{name!r}].slots",
                sorted(table.slots),
                f"none or [{_ACCUMULATORS!r}], of Adagrad or RowWiseAdagrad",
                remedy="torchrec has no such slots; TableValues(table.rows) is a table "
                "without slots",
            )
        slot = np.asarray(table.slots[_ACCUMULATORS])
        if slot.shape[1:] == (1,) != rows.shape[1:]:
            slot = slot[:, 0]
        state.optimizer[f"{name}.weight"] = {f"{name}.weight.momentum_1": slot}
    return state


def tables_from_torchrec(
    state_dict: Mapping[str, ArrayLike],
    optimizer: Mapping[str, Mapping[str, ArrayLike]] | None = None,
) -> dict[str, TableValues]:
    """Tables that torchrec trains, with the slots of Adagrad or RowWiseAdagrad.

    Args:
        state_dict: what the method of that name of an `EmbeddingBagCollection`, or of a
            model with one, returns. Other parameters are left out.
        optimizer: `fused_optimizer().state_dict()["state"]`; None: without slots.

    Raises:
        OpInputError: there is no table, two tables have the same name, a value is no
            matrix of float32, or the optimizer's state is not that of the tables.
    """
    rows: dict[str, Array] = {}
    for key, value in state_dict.items():
        match = _WEIGHT.search(key)
        if match is None:
            continue
        name = match[1]
        if name in rows:
            raise _from("state_dict", key, f"the only weight of a table {name!r}")
        rows[name] = _array(f"state_dict[{key!r}]", value)
        if rows[name].ndim != 2:
            raise _from(f"state_dict[{key!r}]", rows[name], "a matrix of float32")
    if not rows:
        raise _from(
            "state_dict", sorted(state_dict), "one with embedding_bags.<table>.weight"
        )
    wanted = {f"{name}.weight" for name in rows}
    if optimizer is not None and optimizer.keys() != wanted:
        raise _from("optimizer", sorted(optimizer), f"the state of {sorted(wanted)}")
    return {
        name: TableValues(values, _slots(name, values, optimizer))
        for name, values in rows.items()
    }


def _slots(
    name: str, rows: Array, optimizer: Mapping[str, Mapping[str, ArrayLike]] | None
) -> dict[str, Array]:
    if optimizer is None:
        return {}
    key = f"{name}.weight"
    where, given = f"optimizer[{key!r}]", optimizer[key]
    slot = f"{key}.momentum_1"
    if given.keys() != {slot}:
        allowed = f"[{slot!r}], of Adagrad or RowWiseAdagrad"
        raise _from(where, sorted(given), allowed)
    values = _array(f"{where}[{slot!r}]", given[slot])
    if values.shape == rows.shape[:1]:
        values = values[:, np.newaxis]
    elif values.shape != rows.shape:
        allowed = f"of the shape {list(rows.shape)} or {list(rows.shape[:1])}"
        raise _from(f"{where}[{slot!r}]", values, allowed)
    return {_ACCUMULATORS: values}


def _array(where: str, value: ArrayLike) -> Array:
    """An array of float32: of a tensor, its values at this moment."""
    try:
        array = np.asarray(value).copy()
    except (RuntimeError, TypeError, ValueError) as error:
        raise _unlike_array(where, value, error) from error
    if array.dtype != np.float32:
        raise _unlike_array(where, array)
    return array


def _unlike_array(where: str, value: object, cause: Exception | None = None) -> OpError:
    return _from(
        where,
        value,
        "an array of float32",
        remedy="of a tensor, pass tensor.detach().cpu().float()"
        + (f" ({cause})" if cause else ""),
    )
