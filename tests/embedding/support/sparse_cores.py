"""Programs of TPUEmbeddingV2, a case each; run by test_sparse_core_embedding.py.

In a process of its own: the CPU is divided into logical devices before the first op.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from embedding.support import reference
from opwright import tpu

embedding = tf.tpu.experimental.embedding
BATCH, STEPS = 16, 5  # The batch of all cores.
Array = np.ndarray[Any, Any]
# An optimizer, its rule in the reference, and the numbers that the rule reads.
Trained = tuple[Any, Callable[..., tuple[Array, ...]], SimpleNamespace, list[float]]


def optimizers(rng: np.random.Generator) -> dict[str, Trained]:
    """Each optimizer with drawn numbers, which float32 holds; and its first slots."""
    flag = bool(rng.random() < 0.5)
    half, power = float(rng.choice([0.25, 0.5])), float(rng.choice([-0.5, -0.75]))
    exponent, beta2 = float(rng.choice([2.0, 3.0])), float(rng.choice([0.75, 1.0]))
    return {
        "sgd": (embedding.SGD(0.25), reference.sgd, SimpleNamespace(), []),
        "adagrad": (
            embedding.Adagrad(0.25, initial_accumulator_value=half),
            reference.adagrad,
            SimpleNamespace(),
            [half],
        ),
        "adagrad_momentum": (
            embedding.AdagradMomentum(
                0.25, half, flag, exponent=exponent, beta2=beta2, epsilon=0.125
            ),
            reference.adagrad_momentum,
            SimpleNamespace(
                momentum=half,
                use_nesterov=flag,
                exponent=exponent,
                beta2=beta2,
                epsilon=0.125,
            ),
            [0.0, 0.0],
        ),
        "adam": (
            embedding.Adam(
                lambda: tf.constant(0.25), half, 0.75, 0.125, sum_inside_sqrt=flag
            ),
            reference.adam,
            SimpleNamespace(
                beta1=half, beta2=0.75, epsilon=0.125, use_sum_inside_sqrt=flag
            ),
            [0.0, 0.0],
        ),
        "ftrl": (
            embedding.FTRL(
                0.25,
                power,
                l1_regularization_strength=0.0625,
                l2_regularization_strength=0.125,
                beta=half,
                initial_accumulator_value=half,
                multiply_linear_by_learning_rate=flag,
            ),
            reference.ftrl,
            SimpleNamespace(
                lr_power=power,
                l1=0.0625,
                l2=0.125,
                beta=half,
                multiply_linear_by_lr=flag,
            ),
            [half, 0.0],
        ),
    }


class Drawn:
    """Tables, features and batches."""

    def __init__(self, seed: int, name: str) -> None:
        rng = np.random.default_rng(seed)
        self.tables = []
        for i in range(rng.integers(1, 4)):
            chosen = optimizers(rng)[name]
            start = 0.5 ** int(rng.integers(1, 4))
            combiner = str(rng.choice(["sum", "mean", "sqrtn"]))
            config = embedding.TableConfig(
                int(rng.integers(3, 90)),
                int(rng.integers(1, 20)),
                initializer=tf.keras.initializers.Constant(start),
                optimizer=chosen[0],
                combiner=combiner,
                name=f"t{i}",
            )
            self.tables.append((config, chosen, start))
        # By feature: its table, the form of its ids, and whether they have weights.
        self.features = []
        for _ in range(rng.integers(1, 5)):
            form = str(rng.choice(["ragged", "sparse", "dense"]))
            weighted = form != "dense" and bool(rng.random() < 0.5)
            self.features.append((int(rng.integers(len(self.tables))), form, weighted))
        self.batches = [
            [self.bags(rng, *feature) for feature in self.features]
            for _ in range(STEPS + 1)
        ]
        self.targets = [
            [
                rng.standard_normal((BATCH, self.tables[table][0].dim)).astype("f4")
                for table, *_ in self.features
            ]
            for _ in range(STEPS + 1)
        ]

    def bags(
        self, rng: np.random.Generator, table: int, form: str, weighted: bool
    ) -> list[tuple[list[int], list[float]]]:
        """The ids of each sample, and their weights."""
        made = []
        for _ in range(BATCH):
            count = 1 if form == "dense" else int(rng.integers(0, 5))
            ids = rng.integers(0, self.tables[table][0].vocabulary_size, count)
            weights = rng.choice([0.5, 1.0, 2.0], count) if weighted else [1.0] * count
            made.append((ids.tolist(), [float(x) for x in weights]))
        return made

    def config(self, cores: int) -> dict[str, Any]:
        return {
            f"f{i}": embedding.FeatureConfig(
                self.tables[table][0], output_shape=[BATCH // cores]
            )
            for i, (table, *_) in enumerate(self.features)
        }

    def inputs(self, step: int, core: int, cores: int) -> tuple[Any, Any, Any]:
        """The ids, weights and targets of a core."""
        part = slice(core * BATCH // cores, (core + 1) * BATCH // cores)
        ids, weights, targets = {}, {}, {}
        for i, (_, form, weighted) in enumerate(self.features):
            bags = self.batches[step][i][part]
            flat = tf.constant([x for bag, _ in bags for x in bag], tf.int64)
            gains = tf.constant([x for _, bag in bags for x in bag], tf.float32)
            lengths = [len(bag) for bag, _ in bags]
            splits = tf.RaggedTensor.from_row_lengths
            both = [splits(flat, lengths), splits(gains, lengths)]
            if form == "sparse":
                both = [one.to_sparse() for one in both]
            ids[f"f{i}"] = flat if form == "dense" else both[0]
            weights[f"f{i}"] = both[1] if weighted else None
            targets[f"f{i}"] = tf.constant(self.targets[step][i][part])
        return ids, weights, targets

    def expected(self) -> list[list[Array]]:
        """The activations of each step, by feature, in float64."""
        state = []
        for config, (_, _, _, slots), start in self.tables:
            shape = (config.vocabulary_size, config.dim)
            state.append([np.full(shape, x) for x in (start, *slots)])
        found = []
        for batch, targets in zip(self.batches, self.targets, strict=True):
            sums = [np.zeros_like(values[0]) for values in state]
            touched: list[set[int]] = [set() for _ in state]
            activations = []
            for (table, *_), bags, target in zip(
                self.features, batch, targets, strict=True
            ):
                tags = np.repeat(np.arange(BATCH), [len(ids) for ids, _ in bags])
                ids = np.array([x for bag, _ in bags for x in bag], np.int64)
                weights = np.array([x for _, bag in bags for x in bag])
                combiner = self.tables[table][0].combiner
                gains = reference.scales(combiner, tags, weights, BATCH)
                rows = reference.looked_up(state[table][0], tags, ids, gains, BATCH)
                activations.append(rows)
                np.add.at(sums[table], ids, gains[:, None] * (rows - target)[tags])
                touched[table] |= set(ids.tolist())
            found.append(activations)
            for values, g, rows_of, (_, (_, rule, numbers, _), _) in zip(
                state, sums, touched, self.tables, strict=True
            ):
                rows = sorted(rows_of)
                new = rule(numbers, 0.25, g[rows], *(x[rows] for x in values))
                for x, part in zip(values, new, strict=True):
                    x[rows] = part
        return found


def per_core(strategy: Any, make: Callable[[int], Any]) -> Any:
    """Each core's value, for strategy.run."""
    if strategy.num_replicas_in_sync == 1:
        return make(0)
    return strategy.experimental_distribute_values_from_function(
        lambda context: make(context.replica_id_in_sync_group)
    )


def whole(strategy: Any, value: Any) -> Array:
    """The batch of all cores."""
    parts = strategy.experimental_local_results(value)
    return np.concatenate([part.numpy() for part in parts])


def trained(
    drawn: Drawn, cores: int, feature: str, **arguments: Any
) -> list[list[Array]]:
    """The activations of each step under a strategy."""
    strategy = tpu.software_strategy(
        cores=cores,
        embedding_feature=feature,
        sparse_cores_per_chip=arguments.pop("sparse_cores", 4),
    )
    with strategy.scope():
        made = (
            embedding.TPUEmbeddingV2 if feature == "v2" else embedding.TPUEmbedding
        )(drawn.config(cores), None, **arguments)

    def step(ids: Any, weights: Any, targets: Any) -> Any:
        # Weights that are None cannot be arguments of each core's values.
        weights = {name: weights.get(name) for name in ids}
        if feature == "v2":
            activations, preserved = made(ids, weights)
        else:
            made.enqueue(ids, weights)
            activations = made.dequeue()
        gradients = {name: activations[name] - targets[name] for name in ids}
        if feature == "v2":
            made.apply_gradients(gradients, preserved)
        else:
            made.apply_gradients(gradients)
        return activations

    @tf.function
    def run(ids: Any, weights: Any, targets: Any) -> Any:
        return strategy.run(step, args=(ids, weights, targets))

    found = []
    for number in range(STEPS + 1):

        def part(i: int, number: int = number) -> Any:
            def of_core(core: int) -> Any:
                value = drawn.inputs(number, core, cores)[i]
                return {k: v for k, v in value.items() if v is not None}

            return of_core

        activations = run(*(per_core(strategy, part(i)) for i in range(3)))
        found.append(
            [
                whole(strategy, activations[f"f{i}"]).reshape(BATCH, -1)
                for i in range(len(drawn.features))
            ]
        )
    return found


def check_equal(got: list[list[Array]], wanted: list[list[Array]], what: str) -> None:
    for step, (some, others) in enumerate(zip(got, wanted, strict=True)):
        for i, (one, other) in enumerate(zip(some, others, strict=True)):
            scale = max(1.0, float(np.abs(other).max(initial=0)))
            error = float(np.abs(one - other).max(initial=0)) / scale
            assert error < 1e-5, f"{what}, step {step}, feature {i}: {error}"


def configurations(name: str, seeds: range) -> None:
    """V2 on 1, 2 and 4 cores, V1 and the reference agree over five steps."""
    for seed in seeds:
        drawn = Drawn(seed, name)
        expected = drawn.expected()
        check_equal(trained(drawn, 1, "v1"), expected, f"V1, seed {seed}")
        for cores in (1, 2, 4):
            sparse_cores = 4 if cores != 2 or seed % 2 else 2
            got = trained(
                drawn,
                cores,
                "v2",
                sparse_cores=sparse_cores,
                pipeline_execution_with_tensor_core=bool(seed % 2),
                sparse_core_embedding_config=embedding.SparseCoreEmbeddingConfig(
                    disable_table_stacking=seed % 3 == 0
                ),
            )
            check_equal(got, expected, f"V2, {cores} cores, seed {seed}")


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4,
    )
    optimizer, first, count = sys.argv[1:]
    configurations(optimizer, range(int(first), int(first) + int(count)))
    print("done")
