"""Limits of TPUEmbeddingV2 on drawn batches; run by test_sparse_core_limits.py.

The reference is the rule of TensorFlow's preprocessing ops, in NumPy, sample by sample:

- A SparseCore has a contiguous part of a core's samples. Row v of a table is in shard
  (v + rotation) % shards. Equal ids of a sample are one.
- SortListOfSparseCoreCooTensors refuses a batch if a SparseCore requests more ids, or
  more distinct ids, of a shard than the limits.
- ConvertToSparseCoreCsrWrappedCooTensor packs the runs of ids by SparseCore and shard.
  Runs begin at multiples of 8. Ids that the buffers have no space for are dropped, or
  the batch is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from embedding.support.sparse_cores import per_core
from opwright import tpu

embedding = tf.tpu.experimental.embedding
Array = np.ndarray[Any, Any]
# An id of a SparseCore: its feature, its sample in the core's batch, and the id.
Wanted = tuple[int, int, int]
ALIGNMENT = 8
RATE, GRADIENT = 0.25, 2.0**-6  # Of all activations.


class Feature(NamedTuple):
    table: str
    samples: int  # Of one core.
    form: str
    weighted: bool


class Batch(NamedTuple):
    """The ids and weights of one core's samples, by feature."""

    ids: list[list[list[int]]]
    weights: list[list[list[float]]]


class Stack:
    """What the SparseCores of one core do with the ids of a stack of tables."""

    def __init__(self, layouts: Any, name: str, features: list[Feature]) -> None:
        self.name = name
        self.members = [
            i
            for i, feature in enumerate(features)
            if layouts[feature.table].stacked_table_name == name
        ]
        self.layouts = {i: layouts[features[i].table] for i in self.members}
        self.samples = {i: features[i].samples for i in self.members}
        first = self.layouts[self.members[0]]
        self.shards = int(first.num_sparse_cores)

    @property
    def all_samples(self) -> int:
        return sum(self.samples.values())

    def runs(self, batch: Batch, sparse_cores: int) -> list[list[list[Wanted]]]:
        """By SparseCore and shard, the ids in the order in which they are packed."""
        runs: list[list[list[Wanted]]] = []
        for core in range(sparse_cores):
            keyed: list[list[tuple[tuple[int, ...], Wanted]]]
            keyed = [[] for _ in range(self.shards)]
            for i in self.members:
                share = self.samples[i] // sparse_cores
                layout = self.layouts[i]
                offset = int(layout.sparse_core_shard_row_offset)
                for sample in range(core * share, (core + 1) * share):
                    for one in set(batch.ids[i][sample]):
                        shard = (one + layout.sparse_core_shard_rotation) % self.shards
                        key = (offset, offset + one // self.shards, i, sample)
                        keyed[shard].append((key, (i, sample, one)))
            runs.append([[wanted for _, wanted in sorted(run)] for run in keyed])
        return runs

    def needs(self, runs: list[list[list[Wanted]]]) -> tuple[int, int, int]:
        """The most ids and distinct ids of a shard, and the size of the buffers."""
        every = [run for of_core in runs for run in of_core]
        tables = {i: layout.table_name for i, layout in self.layouts.items()}
        distinct = [len({(tables[i], one) for i, _, one in run}) for run in every]
        padded = sum(-(-len(run) // ALIGNMENT) * ALIGNMENT for run in every)
        return max(map(len, every)), max(distinct), padded

    def kept(self, runs: list[list[list[Wanted]]], space: int) -> set[Wanted]:
        """The ids that the buffers have space for."""
        found: set[Wanted] = set()
        at = 0
        for run in (run for of_core in runs for run in of_core):
            packed = run[: space - at]
            found |= set(packed)
            at += -(-len(packed) // ALIGNMENT) * ALIGNMENT
        return found


def gains_of(
    batch: Batch, i: int, combiner: str, kept: set[Wanted]
) -> Iterator[tuple[int, int, float]]:
    """The samples, ids and gains of a feature. Denominators include dropped ids."""
    for sample, (ids, weights) in enumerate(
        zip(batch.ids[i], batch.weights[i], strict=True)
    ):
        scale = {
            "sum": 1.0,
            "mean": sum(weights),
            "sqrtn": float(np.sqrt(np.square(weights).sum())),
        }[combiner]
        for one, weight in zip(ids, weights, strict=True):
            if (i, sample, one) in kept:
                yield sample, one, weight / scale


class Drawn:
    """Tables and features, of which batches are drawn."""

    def __init__(self, seed: int, cores: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.cores = cores
        self.sparse_cores = int(rng.choice([1, 2, 4]))
        self.optimizer = embedding.SGD(RATE)
        self.tables = {
            f"t{i}": embedding.TableConfig(
                int(rng.integers(3, 60)),
                int(rng.integers(1, 10)),
                initializer=tf.keras.initializers.RandomUniform(seed=i),
                combiner=str(rng.choice(["sum", "mean", "sqrtn"])),
                name=f"t{i}",
            )
            for i in range(rng.integers(1, 4))
        }
        self.features = []
        for _ in range(rng.integers(1, 4)):
            form = str(rng.choice(["ragged", "sparse", "dense"]))
            weighted = bool(rng.random() < 0.5)
            table = str(rng.choice(list(self.tables)))
            samples = 8 * int(rng.integers(1, 3))
            self.features.append(Feature(table, samples, form, weighted))

    def config(self) -> dict[str, Any]:
        return {
            f"f{i}": embedding.FeatureConfig(
                self.tables[feature.table], output_shape=[feature.samples]
            )
            for i, feature in enumerate(self.features)
        }

    def batch(self) -> Batch:
        rng, ids, weights = self.rng, [], []
        for feature in self.features:
            rows = self.tables[feature.table].vocabulary_size
            dense = feature.form == "dense"
            most = int(rng.integers(1, 7))
            counts = [
                1 if dense else int(rng.integers(0, most))
                for _ in range(feature.samples)
            ]
            # Some rows are requested more often than others.
            bags = [(rows * rng.random(n) ** 2).astype(int).tolist() for n in counts]
            ids.append(bags)
            weights.append(
                [
                    (
                        [float(x) for x in rng.choice([0.5, 1.0, 2.0], n)]
                        if feature.weighted
                        else [1.0] * n
                    )
                    for n in counts
                ]
            )
        return Batch(ids, weights)

    def inputs(self, batch: Batch) -> tuple[dict[str, Any], dict[str, Any]]:
        """The batch as TPUEmbeddingV2 takes it: ids and weights."""
        made: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for i, feature in enumerate(self.features):
            for to, bags, dtype in (
                (made[0], batch.ids[i], tf.int64),
                (made[1], batch.weights[i], tf.float32),
            ):
                flat = tf.constant([x for bag in bags for x in bag], dtype)
                if feature.form == "dense":
                    to[f"f{i}"] = flat
                    continue
                lengths = [len(bag) for bag in bags]
                parts = tf.RaggedTensor.from_row_lengths(flat, lengths)
                to[f"f{i}"] = parts.to_sparse() if feature.form == "sparse" else parts
        return made

    def stacks(self, made: Any) -> list[Stack]:
        layouts = made.embedding_layouts
        used = {layouts[feature.table].stacked_table_name for feature in self.features}
        return [Stack(layouts, name, self.features) for name in sorted(used)]


def limits_of(drawn: Drawn, drop: bool) -> Any:
    """Limits of which some batches need more."""
    rng, probe = drawn.rng, tpu.software_strategy(
        cores=drawn.cores,
        embedding_feature="v2",
        sparse_cores_per_chip=drawn.sparse_cores,
    )
    with probe.scope():
        made = embedding.TPUEmbeddingV2(drawn.config(), drawn.optimizer)
    made.build()
    ids, distinct = {}, {}
    for stack in drawn.stacks(made):
        needs = np.array(
            [
                stack.needs(stack.runs(drawn.batch(), drawn.sparse_cores))
                for _ in range(8)
            ]
        )
        quantile = 0.9 if rng.random() < 0.5 else 1.0
        ids[stack.name], distinct[stack.name] = (
            int(np.quantile(needs[:, k], quantile)) + (quantile == 1.0) * 4
            for k in range(2)
        )
    return embedding.SparseCoreEmbeddingConfig(
        disable_table_stacking=bool(rng.random() < 0.3),
        max_ids_per_chip_per_sample=int(rng.integers(1, 4)),
        max_ids_per_table=ids,
        max_unique_ids_per_table=distinct,
        allow_id_dropping=drop,
    )


class Checked:
    """The batches of one drawn model under limits, against the reference."""

    def __init__(self, seed: int, cores: int) -> None:
        self.drawn = drawn = Drawn(seed, cores)
        drop = seed % 4 != 0
        self.limits = limits = limits_of(drawn, drop)
        self.strategy = tpu.software_strategy(
            cores=cores,
            embedding_feature="v2",
            sparse_cores_per_chip=drawn.sparse_cores,
        )
        with self.strategy.scope():
            self.made = embedding.TPUEmbeddingV2(
                drawn.config(), drawn.optimizer, sparse_core_embedding_config=limits
            )
        self.made.build()
        self.stacks = drawn.stacks(self.made)
        self.rows = {
            name: tpu.table(name).rows.numpy().astype(np.float64)
            for name in drawn.tables
            if any(f.table == name for f in drawn.features)
        }
        self.refused = self.accepted = self.dropped = 0

    @tf.function(reduce_retracing=True)
    def run(self, ids: Any, weights: Any) -> Any:
        def step(ids: Any, weights: Any) -> Any:
            found, preserved = self.made(ids, weights)
            gradients = {name: 0.0 * one + GRADIENT for name, one in found.items()}
            self.made.apply_gradients(gradients, preserved)
            return found

        return self.strategy.run(step, args=(ids, weights))

    def check(self) -> None:
        drawn = self.drawn
        batches = [drawn.batch() for _ in range(drawn.cores)]
        inputs = [drawn.inputs(batch) for batch in batches]
        ids, weights = (
            per_core(self.strategy, lambda core, k=k: inputs[core][k]) for k in range(2)
        )
        words = self.words(batches)
        if words:
            self.refused += 1
            try:
                self.run(ids, weights)
            except tf.errors.InvalidArgumentError as error:
                assert any(one in error.message for one in words), (error, words)
                self.check_tables()
                return
            raise AssertionError(f"a batch is not refused: {words}")
        self.accepted += 1
        # A step that is refused may have counted ids of other stacks.
        before = tpu.sparsecore_dropped_ids()
        found = self.run(ids, weights)
        lost: dict[str, list[int]] = {stack.name: [0, 0] for stack in self.stacks}
        new = {name: rows.copy() for name, rows in self.rows.items()}
        for core, batch in enumerate(batches):
            kept = self.kept(batch, lost)
            for i, feature in enumerate(drawn.features):
                got = self.strategy.experimental_local_results(found[f"f{i}"])[core]
                combiner = drawn.tables[feature.table].combiner
                rows = self.rows[feature.table]
                want = np.zeros(got.shape)
                for sample, one, gain in gains_of(batch, i, combiner, kept):
                    want[sample] += gain * rows[one]
                    new[feature.table][one] -= RATE * GRADIENT * gain
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        self.rows = new
        self.check_tables()
        for name, (some, of_batches) in lost.items():
            counted = tpu.sparsecore_dropped_ids()[name]
            assert counted.ids - before[name].ids == some
            assert counted.batches - before[name].batches == of_batches
            self.dropped += of_batches

    def check_tables(self) -> None:
        """Ids that are dropped do not train, nor does a batch that is refused."""
        for name, want in self.rows.items():
            got = tpu.table(name).rows.numpy()
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)

    def words(self, batches: list[Batch]) -> list[str]:
        """Parts of the errors of which a step has to raise one."""
        limits, words = self.limits, []
        for batch in batches:
            for stack in self.stacks:
                name = stack.name
                needs = stack.needs(stack.runs(batch, self.drawn.sparse_cores))
                most = limits.max_ids_per_table.get(name, 256)
                distinct = limits.max_unique_ids_per_table.get(name, 256)
                per_sample = limits.max_ids_per_chip_per_sample
                space = per_sample * stack.all_samples
                if needs[0] > most or needs[1] > distinct:
                    words.append(
                        f"max_ids_per_table={{'{name}': {max(most, needs[0])}}}, "
                        f"max_unique_ids_per_table={{'{name}': "
                        f"{max(distinct, needs[1])}}}"
                    )
                elif needs[2] > space and not limits.allow_id_dropping:
                    words.append(f"space for {space} ids, padding included; this")
        return words

    def kept(self, batch: Batch, lost: dict[str, list[int]]) -> set[Wanted]:
        """The ids that are looked up. Counts the others."""
        kept: set[Wanted] = set()
        for stack in self.stacks:
            runs = stack.runs(batch, self.drawn.sparse_cores)
            per_sample = self.limits.max_ids_per_chip_per_sample
            of_stack = stack.kept(runs, per_sample * stack.all_samples)
            kept |= of_stack
            every = sum(len(run) for of_core in runs for run in of_core)
            lost[stack.name][0] += every - len(of_stack)
            lost[stack.name][1] += every > len(of_stack)
        return kept


def main(models: int, batches: int) -> None:
    refused = accepted = dropped = 0
    for seed in range(models):
        checked = Checked(seed, cores=1 + seed % 2)
        for _ in range(batches):
            checked.check()
        refused += checked.refused
        accepted += checked.accepted
        dropped += checked.dropped
    print(f"refused {refused}, accepted {accepted}, dropped in {dropped}")
    # Otherwise the draws would test little.
    assert min(refused, accepted, dropped) >= models * batches // 10


def drop_ids() -> None:
    """Drops ids of two of three tables, in three batches."""
    strategy = tpu.software_strategy(embedding_feature="v2")
    features = {
        name: embedding.FeatureConfig(
            embedding.TableConfig(64, 8 * i, combiner="sum", name=name),
            output_shape=[8],
        )
        for i, name in enumerate(("films", "people", "places"), 1)
    }
    config = embedding.SparseCoreEmbeddingConfig(
        max_ids_per_chip_per_sample=4, allow_id_dropping=True
    )
    with strategy.scope():
        made = embedding.TPUEmbeddingV2(
            features, embedding.SGD(1.0), sparse_core_embedding_config=config
        )
    made.build()

    @tf.function
    def run(ids: Any) -> Any:
        return strategy.run(lambda ids: made(ids)[0], args=(ids,))

    many = tf.ragged.constant([list(range(16))] * 8, tf.int64)
    few = tf.ragged.constant([[0]] * 8, tf.int64)
    for _ in range(3):
        run({"films": many, "people": many, "places": few})


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    if sys.argv[1:] == ["warnings"]:
        drop_ids()
    else:
        main(*map(int, sys.argv[1:]))
    print("done")
