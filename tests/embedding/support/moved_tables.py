"""Tables that move from one embedding to others; run by test_table_moves.py.

moved_tables.py <optimizer>    trains, moves from each form to each, and trains on

In a process of its own: the CPU is divided into logical devices before the first op.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# Optimizers of torch import Triton, whose library can end a process with TensorFlow.
sys.modules["triton"] = None  # type: ignore[assignment]

import torch
from tensorflow.core.protobuf.tpu.optimization_parameters_pb2 import (
    OptimizationParameters,
)

from embedding.support import reference
from embedding.support.sparse_cores import per_core
from opwright import tpu

embedding = tf.tpu.experimental.embedding
Array = np.ndarray[Any, Any]
# By table, its rows and slots by name.
Values = dict[str, dict[str, Array]]
Tables = dict[str, tpu.TableValues]

BATCH, STEPS = 16, 3  # The batch of all cores.
#: Their widths are padded in a TPUEmbeddingV2, which also stacks the first two.
SHAPES = {"films": (40, 5), "people": (13, 5), "places": (21, 20), "shops/old": (9, 9)}
RATE = 0.1


def optimizer_named(name: str) -> Any:
    made = {
        "sgd": embedding.SGD(RATE),
        "adagrad": embedding.Adagrad(RATE),
        "adagrad_momentum": embedding.AdagradMomentum(RATE, momentum=0.9),
        "adam": embedding.Adam(RATE),
        "ftrl": embedding.FTRL(RATE, l1_regularization_strength=0.01),
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


def batch(number: int, names: Iterable[str] = SHAPES) -> list[dict[str, Array]]:
    """The ids of a step, one a sample, and the gradients of their rows."""
    rng = np.random.default_rng(100 + number)
    ids, gradients = {}, {}
    for name in names:
        rows, width = SHAPES[name]
        ids[name] = rng.integers(0, rows, BATCH)
        gradients[name] = rng.normal(size=(BATCH, width)).astype(np.float32)
    return [ids, gradients]


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
            drawn = batch(number, self.names)
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


def check_serving(tables: Tables, optimizer: str | None) -> None:
    """Rows, slots if there is an optimizer, and what is looked up."""
    made = served(tables, optimizer)
    for name, table in tables.items():
        variables = dict(made._variables[name])
        np.testing.assert_array_equal(variables.pop("parameters"), table.rows)
        assert variables.keys() == (table.slots.keys() if optimizer else set())
        for slot, variable in variables.items():
            np.testing.assert_array_equal(variable, table.slots[slot])
    ids = {name: tf.constant([1, 3, 5]) for name in SHAPES}
    for name, found in made(ids).items():
        np.testing.assert_array_equal(found, tables[name].rows[[1, 3, 5]])
    for name, table in through_checkpoint(made).items():
        np.testing.assert_array_equal(table.rows, tables[name].rows)
        assert len(table.slots) == (len(tables[name].slots) if optimizer else 0)


def served(tables: Tables, optimizer: str | None) -> Any:
    made = embedding.TPUEmbeddingForServing(
        features(None), optimizer and optimizer_named(optimizer)
    )
    made.build()
    tpu.load_tables(made, tables)
    return made


def through_checkpoint(made: Any) -> Tables:
    checkpoint = tf.train.Checkpoint(
        model=tf.train.Checkpoint(tables=made), step=tf.Variable(3)
    )
    path = checkpoint.save(tempfile.mkdtemp() + "/tables")
    return dict(tpu.tables_from_checkpoint(path))


# ---- Forms of tables that do not train. They take tables and give them back.


def as_arrays(tables: Tables, _: str) -> Tables:
    return {
        name: tpu.TableValues(
            table.rows.copy(), {slot: v.copy() for slot, v in table.slots.items()}
        )
        for name, table in tables.items()
    }


def through_serving(tables: Tables, optimizer: str) -> Tables:
    return through_checkpoint(served(tables, optimizer))


class TorchModel(torch.nn.Module):
    """The parameters of an EmbeddingBagCollection, by their names there."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_bags = torch.nn.ModuleDict(
            {
                name: torch.nn.EmbeddingBag(*shape, mode="sum")
                for name, shape in SHAPES.items()
            }
        )


def in_torch(tables: Tables) -> tuple[TorchModel, dict[str, Any]]:
    """A model, and the state of its optimizer."""
    state = tpu.tables_to_torchrec(tables)
    model = TorchModel()
    model.load_state_dict({k: torch.tensor(v) for k, v in state.state_dict.items()})
    return model, {
        name: {key: torch.tensor(value) for key, value in slots.items()}
        for name, slots in state.optimizer.items()
    }


def through_torchrec(tables: Tables, _: str) -> Tables:
    model, optimizer = in_torch(tables)
    found = tpu.tables_from_torchrec(model.state_dict(), optimizer or None)
    return dict(found)


def jax_spec() -> Any:
    """The stacks that jax-tpu-embedding makes on two chips with four SparseCores."""
    cores = 8

    def padded(size: int, multiple: int) -> int:
        return -(-size // multiple) * multiple

    def stack(names: tuple[str, ...]) -> Any:
        offset, specs = 0, []
        for i, name in enumerate(names):
            rows, width = SHAPES[name]
            specs.append(
                SimpleNamespace(
                    table_name=name,
                    vocab_size=rows,
                    embedding_dim=width,
                    row_offset_in_shard=offset // cores,
                    shard_rotation=4 * i % cores,
                )
            )
            offset += padded(rows, 8 * cores)
        return SimpleNamespace(
            stack_name="_".join(names),
            stack_vocab_size=offset,
            stack_embedding_dim=padded(SHAPES[names[0]][1], 8),
            num_sparsecores=cores,
            table_specs=specs,
        )

    stacks = ("films", "people"), ("places",), ("shops/old",)
    return SimpleNamespace(stacked_table_specs=[stack(names) for names in stacks])


def through_jax(tables: Tables, _: str) -> Tables:
    spec = jax_spec()
    stacks = tpu.tables_to_jax_stacks(tables, spec)
    assert stacks["films_people"].table.shape == (128, 8)
    return dict(tpu.tables_from_jax_stacks(stacks, spec))


EMBEDDINGS = ("v1", "v2 1", "v2 2", "v2 4")
FORMS = {
    "serving": through_serving,
    "arrays": as_arrays,
    "torchrec": through_torchrec,
    "jax": through_jax,
}
#: torchrec has no counterpart of the others.
OF_TORCHREC = ("sgd", "adagrad")


def trained_in_numpy(tables: Tables, optimizer: str) -> Values:
    """The reference's next steps, in float64."""
    parameters = OptimizationParameters()
    optimizer_named(optimizer)._set_optimization_parameters(parameters)
    found = {}
    for name, table in tables.items():
        state = {"parameters": table.rows, **table.slots}
        state = {part: value.astype(np.float64) for part, value in state.items()}
        for number in range(STEPS, 2 * STEPS):
            ids, gradients = batch(number)
            state = reference.apply(parameters, RATE, state, ids[name], gradients[name])
        found[name] = {"rows": state.pop("parameters"), **state}
    return found


def trained_in_torch(tables: Tables, optimizer: str) -> Values:
    """The next steps of PyTorch's optimizer of the same name."""
    model, state = in_torch(tables)
    made: Any = torch.optim.SGD(model.parameters(), RATE)
    if optimizer == "adagrad":
        made = torch.optim.Adagrad(model.parameters(), RATE, eps=0.0)
        for name, module in model.embedding_bags.items():
            key = f"{name}.weight"
            made.state[module.weight]["sum"] = state[key][f"{key}.momentum_1"].clone()
    for number in range(STEPS, 2 * STEPS):
        made.zero_grad()
        ids, gradients = batch(number)
        for name in SHAPES:
            bags = torch.tensor(ids[name]).reshape(-1, 1)
            found = model.embedding_bags[name](bags)
            found.backward(torch.tensor(gradients[name]))
        made.step()
    values: Values = {}
    for name, module in model.embedding_bags.items():
        values[name] = {"rows": module.weight.detach().numpy()}
        if optimizer == "adagrad":
            values[name]["accumulators"] = made.state[module.weight]["sum"].numpy()
    return values


# ---- The matrix.


class Source(NamedTuple):
    """Tables of a form after some steps, and what more steps make of them."""

    kind: str
    tables: Tables
    saved: Values
    expected: Values


def sources(optimizer: str) -> list[Source]:
    found = []
    for kind in EMBEDDINGS:
        print(f"trains {kind}", flush=True)
        trained = Training(kind, optimizer)
        trained.train(0)
        tables, saved = through_checkpoint(trained.embedding), trained.values()
        trained.train(STEPS)
        found.append(Source(kind, tables, saved, trained.values()))
    first = found[0]
    for name, through in FORMS.items():
        if name != "torchrec" or optimizer in OF_TORCHREC:
            tables = through(first.tables, optimizer)
            found.append(first._replace(kind=name, tables=tables))
    for one in found:
        check_same_bits(of_tables(one.tables), one.saved, f"{one.kind} saved")
    return found


def moves(optimizer: str) -> None:
    """The tables of each form move to each, where the next steps are the same."""
    every = sources(optimizer)
    for target in EMBEDDINGS:
        other = Training(target, optimizer)
        for source in every:
            what = f"{source.kind} to {target}"
            print(what, flush=True)
            other.train(50, 1)  # It is loaded over what it has trained.
            tpu.load_tables(other.embedding, source.tables)
            check_same_bits(other.values(), source.saved, what)
            found = of_tables(through_checkpoint(other.embedding))
            check_same_bits(found, source.saved, f"{what}, saved again")
            other.train(STEPS)
            trained_by = source.kind if source.kind in EMBEDDINGS else "v1"
            same_class = trained_by[:2] == target[:2]
            check = check_same_bits if same_class else check_close
            check(other.values(), source.expected, f"{what}, trained on")
    for source in every:
        for target, through in FORMS.items():
            if target == "torchrec" and optimizer not in OF_TORCHREC:
                continue
            what = f"{source.kind} to {target}"
            print(what, flush=True)
            tables = through(source.tables, optimizer)
            check_same_bits(of_tables(tables), source.saved, what)
            in_torchrec = target == "torchrec"
            trained_on = trained_in_torch if in_torchrec else trained_in_numpy
            check_close(trained_on(tables, optimizer), source.expected, what)
        for named in (optimizer, None):
            check_serving(source.tables, named)


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4,
    )
    moves(*sys.argv[1:])
    print("done")
