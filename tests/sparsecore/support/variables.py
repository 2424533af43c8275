"""Calls of the ops that read and update tables in variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from opwright_runtime import native
from sparsecore.support.lookups import (
    Array,
    Bags,
    buffers,
    dealt,
    gathered,
    listed,
    sort_lists,
    wrapped,
)
from sparsecore.support.updates import Case

FIELDS = {
    "Sgd": "stochastic_gradient_descent",
    "Adagrad": "adagrad",
    "AdagradMomentum": "adagrad_momentum",
    "Adam": "adam",
    "Ftrl": "ftrl",
}
LISTS = (
    "row_pointers",
    "sorted_sample_ids",
    "sorted_token_ids",
    "sorted_gains",
    "num_minibatches_per_physical_sparse_core",
)


def csr_of_device(
    bags: Bags, combiner: str, cores: int, devices: int, vocabulary: int
) -> dict[str, Any]:
    """One device's batch of a table that all devices hold."""
    lists = listed(bags, 1.0, cores, combiner=combiner, num_sc_shards=cores * devices)
    samples = len(bags) // cores
    ordered = [
        sort_lists(
            [lists],
            core,
            sample_count_list=[samples],
            col_offset_list=[0],
            num_replica=devices,
            num_sc_per_chip=cores,
            table_vocab_size=vocabulary,
        )
        for core in range(cores)
    ]
    return buffers(wrapped(ordered, samples, num_replica=devices))


def variables_of(table: Array, cores: int, devices: int) -> list[tf.Variable]:
    """A variable a device, with the device's shards."""
    return [
        tf.Variable(part) for part in np.split(dealt(table, cores * devices), devices)
    ]


def table_of(variables: list[tf.Variable], cores: int) -> Array:
    parts = [variable.numpy() for variable in variables]
    return gathered(np.concatenate(parts), cores * len(variables))


def lookup(
    csr: dict[str, Any],
    variables: list[tf.Variable],
    samples: int,
    cores: int,
    **changes: Any,
) -> tf.Tensor:
    arguments = {
        "tables": [variable.handle for variable in variables],
        "input_size": samples,
        "max_ids_per_sparse_core": 10_000,
        "max_unique_ids_per_sparse_core": 10_000,
        "num_sparsecores_per_device": cores,
    }
    return native.ops().opwright_sparse_core_lookup(**(csr | arguments | changes))


def hyperparameters(case: Case) -> list[float]:
    """The six numbers of an optimizer, in the order of its traits."""
    traits = {one["field"]: one for one in native.embedding_optimizers()}
    names = traits[FIELDS[case.op]]["hyper"]
    values = [float(getattr(case.traits, name, 0)) for name in names]
    return values + [0.0] * (6 - len(values))


def update(
    cases: list[Case],
    csrs: list[list[dict[str, Any]]],
    gradients: list[list[Array]],
    state: list[list[list[tf.Variable]]],
    cores: int,
    **changes: Any,
) -> None:
    """One step. The lists are by table; then by device, or by slot and device."""
    arguments = {name: [csr[name] for table in csrs for csr in table] for name in LISTS}
    arguments |= {
        "activation_gradients": [one for table in gradients for one in table],
        "learning_rates": [0.25] * len(cases),
        "variables": [one.handle for table in state for part in table for one in part],
        "table_names": [f"t{i}" for i in range(len(cases))],
        "optimizers": [FIELDS[case.op] for case in cases],
        "hyperparameters": [x for case in cases for x in hyperparameters(case)],
        "max_ids": [10_000] * len(cases),
        "max_unique_ids": [10_000] * len(cases),
        "num_sparsecores_per_device": cores,
    }
    native.ops().opwright_sparse_core_update(**(arguments | changes))
