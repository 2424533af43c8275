"""Tables that move from one embedding to others; run by test_table_moves.py.

moved_tables.py <source> <optimizer>    trains, saves, moves to all targets, trains on

In a process of its own: the CPU is divided into logical devices before the first op.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from embedding.support.sparse_cores import per_core
from opwright import tpu

embedding = tf.tpu.experimental.embedding
Array = np.ndarray[Any, Any]
# By table, its rows and slots by name.
Values = dict[str, dict[str, Array]]

BATCH, STEPS = 16, 3  # The batch of all cores.
#: Their widths are padded in a TPUEmbeddingV2, which also stacks the first two.
SHAPES = {"films": (40, 5), "people": (13, 5), "places": (21, 20), "shops/old": (9, 9)}
TARGETS = {
    "v1": ("v1", "v2 1", "v2 2", "serving", "serving without optimizer"),
    "v2 1": ("v2 1", "v2 2", "v2 4", "v1", "serving", "serving without optimizer"),
    "arrays": ("v1", "v2 1", "v2 2", "serving", "serving without optimizer"),
}


def optimizer_named(name: str) -> Any:
    made = {
        "sgd": embedding.SGD(0.1),
        "adagrad": embedding.Adagrad(0.1),
        "adagrad_momentum": embedding.AdagradMomentum(0.1, momentum=0.9),
        "adam": embedding.Adam(0.1),
        "ftrl": embedding.FTRL(0.1, l1_regularization_strength=0.01),
    }
    return made[name]


def start(name: str) -> Array:
    seed = list(SHAPES).index(name)
    return np.random.default_rng(seed).normal(size=SHAPES[name]).astype(np.float32)


def features(batch: int | None, names: Iterable[str] = SHAPES) -> dict[str, Any]:
    """A feature for each table, whose rows of TPUEmbedding begin as `start` says."""
    return {
        name: embedding.FeatureConfig(
            embedding.TableConfig(
                *SHAPES[name],
                initializer=lambda shape, dtype, name=name: tf.constant(
                    np.resize(start(name), shape), dtype
                ),
                name=name,
                combiner="sum",
            ),
            output_shape=[batch] if batch else None,
        )
        for name in names
    }


class Training:
    """Steps whose number settles their ids and gradients."""

    def __init__(
        self,
        kind: str,
        optimizer: str,
        names: Iterable[str] = SHAPES,
        build: bool = True,
    ) -> None:
        feature, _, cores = kind.partition(" ")
        self.names = tuple(names)
        self.cores = int(cores or 1)
        self.strategy = tpu.software_strategy(
            cores=self.cores, embedding_feature=feature, sparse_cores_per_chip=2
        )
        of_class = {"v1": embedding.TPUEmbedding}.get(feature)
        of_class = of_class or embedding.TPUEmbeddingV2
        with self.strategy.scope():
            self.embedding = of_class(
                features(BATCH // self.cores, names), optimizer_named(optimizer)
            )
        if build:
            self.embedding.build()

    def _step(self, ids: Any, gradients: Any) -> None:
        if isinstance(self.embedding, embedding.TPUEmbedding):
            self.embedding.enqueue(ids)
            self.embedding.dequeue()
            self.embedding.apply_gradients(gradients)
        else:
            _, preserved = self.embedding(ids)
            self.embedding.apply_gradients(gradients, preserved)

    @tf.function
    def _run(self, ids: Any, gradients: Any) -> None:
        self.strategy.run(self._step, args=(ids, gradients))

    def train(self, first: int, count: int = STEPS) -> None:
        for number in range(first, first + count):
            rng = np.random.default_rng(100 + number)
            drawn: list[Any] = [{}, {}]
            for name in self.names:
                rows, width = SHAPES[name]
                drawn[0][name] = rng.integers(0, rows, BATCH)
                values = rng.normal(size=(BATCH, width)).astype(np.float32)
                drawn[1][name] = values
            self._run(*(self._divided(values) for values in drawn))

    def _divided(self, values: dict[str, Array]) -> Any:
        of_core = BATCH // self.cores
        return per_core(
            self.strategy,
            lambda core: {
                name: tf.constant(value[core * of_core : (core + 1) * of_core])
                for name, value in values.items()
            },
        )

    def values(self) -> Values:
        found = {name: tpu.table(name) for name in self.names}
        return {
            name: {"rows": table.rows.numpy()}
            | {slot: value.numpy() for slot, value in table.slots.items()}
            for name, table in found.items()
        }


def of_tables(tables: Any) -> Values:
    return {name: {"rows": one.rows, **one.slots} for name, one in tables.items()}


def check_same_bits(got: Values, wanted: Values, what: str) -> None:
    assert got.keys() == wanted.keys(), what
    for name, parts in wanted.items():
        assert got[name].keys() == parts.keys(), (what, name)
        for part, value in parts.items():
            assert got[name][part].dtype == np.float32
            np.testing.assert_array_equal(got[name][part], value, f"{what} {name}")


def check_close(got: Values, wanted: Values, what: str) -> None:
    for name, parts in wanted.items():
        for part, value in parts.items():
            scale = max(1.0, float(np.abs(value).max()))
            error = float(np.abs(got[name][part] - value).max()) / scale
            assert error < 1e-5, (what, name, part, error)


def check_serving(tables: Any, optimizer: str | None) -> None:
    """Rows, slots if there is an optimizer, and what is looked up."""
    made = embedding.TPUEmbeddingForServing(
        features(None), optimizer and optimizer_named(optimizer)
    )
    made.build()
    tpu.load_tables(made, tables)
    for name, table in tables.items():
        variables = dict(made._variables[name])
        np.testing.assert_array_equal(variables.pop("parameters"), table.rows)
        assert variables.keys() == (table.slots.keys() if optimizer else set())
        for slot, variable in variables.items():
            np.testing.assert_array_equal(variable, table.slots[slot])
    ids = {name: tf.constant([1, 3, 5]) for name in SHAPES}
    for name, found in made(ids).items():
        np.testing.assert_array_equal(found, tables[name].rows[[1, 3, 5]])
    path = tf.train.Checkpoint(served=made).save(tempfile.mkdtemp() + "/served")
    again = tpu.tables_from_checkpoint(path)
    for name, table in again.items():
        np.testing.assert_array_equal(table.rows, tables[name].rows)
        assert len(table.slots) == (len(tables[name].slots) if optimizer else 0)


def moves(source: str, optimizer: str) -> None:
    """The state moves to each target, which trains on as the source does."""
    trained = Training("v1" if source == "arrays" else source, optimizer)
    if source == "arrays":
        tables = {
            name: tpu.TableValues(
                start(name),
                {
                    slot: np.full(SHAPES[name], value, np.float32)
                    for slot, value in INITIAL[optimizer].items()
                },
            )
            for name in SHAPES
        }
    else:
        trained.train(0)
        checkpoint = tf.train.Checkpoint(
            model=tf.train.Checkpoint(tables=trained.embedding), step=tf.Variable(3)
        )
        path = checkpoint.save(tempfile.mkdtemp() + "/trained")
        tables = tpu.tables_from_checkpoint(path)
    saved = trained.values()
    check_same_bits(of_tables(tables), saved, f"{source} saved")
    trained.train(STEPS)
    expected = trained.values()
    for target in TARGETS[source]:
        print(f"{source} to {target}", flush=True)
        if target.startswith("serving"):
            check_serving(tables, None if "without" in target else optimizer)
            continue
        other = Training(target, optimizer)
        other.train(50, 1)  # It is loaded over what it has trained.
        tpu.load_tables(other.embedding, tables)
        check_same_bits(other.values(), saved, f"{source} to {target}")
        other.train(STEPS)
        same_class = target[:2] == ("v1" if source == "arrays" else source[:2])
        check = check_same_bits if same_class else check_close
        check(other.values(), expected, f"{source} to {target}, trained on")


#: What TensorFlow's optimizers begin with, by their documentation.
INITIAL = {
    "adagrad": {"accumulators": 0.1},
    "adam": {"momenta": 0.0, "velocities": 0.0},
    "ftrl": {"accumulators": 0.1, "linears": 0.0},
}


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4,
    )
    moves(*sys.argv[1:])
    print("done")
