"""Calls the SparseCore ops with arguments made wrong at random: `... 10000 [seed]`.

Every stage gets what the stage before it made of a random batch, with one or two
things damaged: an element, a shape, a list, an attr. A call may succeed or be refused;
nothing else. The last line printed before a crash is the call that crashed.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

import fuzz
import numpy as np
import tensorflow as tf

from opwright import tpu
from opwright_runtime import native

OPTIMIZERS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Sgd": ([], {}),
    "Adagrad": (["accumulator"], {}),
    "AdagradMomentum": (
        ["accumulator", "momenta"],
        {
            "use_nesterov": True,
            "exponent": 2.0,
            "beta1": 0.9,
            "beta2": 1.0,
            "epsilon": 0.1,
        },
    ),
    "Adam": (
        ["momenta", "velocity"],
        {"use_sum_inside_sqrt": True, "beta1": 0.9, "beta2": 0.9, "epsilon": 0.1},
    ),
    "Ftrl": (
        ["accumulator", "linear"],
        {
            "multiply_linear_by_learning_rate": False,
            "beta": 0.0,
            "learning_rate_power": -0.5,
            "l1_regularization_strength": 0.0,
            "l2_regularization_strength": 0.0,
        },
    ),
}
# The rows' ops take some of these as inputs, and call some otherwise.
ROW_NAMES = {"beta1": "beta_1", "beta2": "beta_2", "momenta": "momentum"}
ROW_ATTRS = {
    "AdagradMomentum": {"use_nesterov", "exponent", "beta_2"},
    "Adam": {"use_sum_inside_sqrt"},
    "Ftrl": {"multiply_linear_by_learning_rate", "l1_regularization_strength"},
}
# Large enough to overflow, or small enough to have the memory for.
ATTRS = (-(2**63), -1, 0, 1, 2, 3, 8, 1000, 2**33, 2**40, 2**63 - 1)
ELEMENTS = (-(2**31), -1, 0, 1, 7, 8, 9, 100, 2**20, 2**31 - 1)
FLOATS = (0.0, -1.0, 1e30, float("nan"), float("inf"))
REFUSALS = (tf.errors.OpError, ValueError, TypeError)


class SparseCoreFuzzer(fuzz.Fuzzer):
    def damage(self, arguments: dict[str, Any]) -> None:
        for _ in range(self.pick(0, 1, 1, 2)):
            name = self.pick(*arguments)
            arguments[name] = self.worse(arguments[name])

    def worse(self, value: Any) -> Any:
        if isinstance(value, tf.Tensor):
            size = int(tf.size(value))
            if not size or self.rng.random() < 0.3:
                return self.damaged(value)
            values = np.array(value)
            wild = FLOATS if value.dtype.is_floating else ELEMENTS
            values.reshape(-1)[self.rng.integers(size)] = self.pick(*wild)
            return tf.constant(values)
        if isinstance(value, list) and value:
            at = int(self.rng.integers(len(value)))
            kind = self.pick("item", "item", "item", "less", "more")
            if kind == "item":
                return [*value[:at], self.worse(value[at]), *value[at + 1 :]]
            return value[:-1] if kind == "less" else [*value, value[at]]
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self.pick(*ATTRS)
        if isinstance(value, float):
            return self.pick(*FLOATS)
        if isinstance(value, bytes):
            return value[: self.rng.integers(len(value) + 1)]
        return self.pick("sum", "", "max")

    def run(self, op: Any, name: str, good: dict[str, Any]) -> list[tf.Tensor]:
        """Calls the op with damaged arguments; what it makes of the good ones."""
        arguments = good.copy()
        self.damage(arguments)
        way = self.pick(*fuzz.WAYS)
        words = {k: fuzz.in_words(v) for k, v in arguments.items()}
        print(name, way, words, flush=True)
        outcome = "ran"
        try:
            fuzz.call(op, way, arguments, False)
        except REFUSALS as error:
            outcome = type(error).__name__
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.ops[name] = self.ops.get(name, 0) + 1
        made: list[tf.Tensor] = fuzz.call(op, "eager", good, False)
        return made

    def raw(self, name: str, **arguments: Any) -> Any:
        return self.run(getattr(tf.raw_ops, name), name, arguments)

    def ints(self, low: int, high: int, *shape: int) -> tf.Tensor:
        return tf.constant(self.rng.integers(low, high, shape), tf.int32)

    def floats(self, *shape: int) -> tf.Tensor:
        return tf.constant(self.rng.standard_normal(shape), tf.float32)

    def batch(self) -> None:
        """One batch through all ops, as far as they take it."""
        cores, samples = self.pick(1, 2, 4), 16
        sizes = self.rng.integers(0, 5, samples)
        count = int(sizes.sum())
        rows = np.repeat(np.arange(samples), sizes)
        form = self.pick("sparse", "ragged")
        indices = np.stack([rows, np.zeros_like(rows)], 1)
        if form == "ragged":
            indices = np.cumsum([0, *sizes])
        feature = {
            "indices_or_row_splits": tf.constant(indices, tf.int32),
            "values": self.ints(0, 64, count),
            "weights": self.pick(self.floats(count), self.floats()),
            "sample_count": samples,
            "combiner": self.pick("sum", "mean", "sqrtn"),
        }
        self.raw("ConvertToCooTensor", **feature)
        lists = self.raw(
            "ConvertToListOfSparseCoreCooTensors",
            **feature,
            num_sc_per_chip=cores,
            row_offset=0,
            col_offset=0,
            col_shift=self.pick(0, 1),
            num_sc_shards=cores,
            stacked_table_sample_count=samples,
        )
        sources: list[list[tf.Tensor]] = []
        for core in range(cores):
            stacked = {
                "row_ids_list": [lists[core]],
                "col_ids_list": [lists[cores + core]],
                "gains_list": [lists[2 * cores + core]],
                "sample_count_list": [samples // cores],
                "col_offset_list": [0],
                "num_replica": 1,
                "table_vocab_size": 64,
                "feature_width": 4,
                "num_sc_per_chip": cores,
                "table_name": "t",
            }
            self.raw("GetStatsFromListOfSparseCoreCooTensors", **stacked)
            limits = {
                "max_ids_per_sparse_core": 500,
                "max_unique_ids_per_sparse_core": 500,
            }
            made = self.raw("SortListOfSparseCoreCooTensors", **stacked, **limits)
            sources.append(made)
        names = ("row_ids", "col_ids", "gains")
        csr = self.raw(
            "ConvertToSparseCoreCsrWrappedCooTensor",
            **{
                f"sorted_{name}_list": [source[i] for source in sources]
                for i, name in enumerate(names)
            },
            id_counts_list=[source[3] for source in sources],
            splits=tf.constant(0, tf.int64),
            sample_count_per_sc=samples // cores,
            num_replica=1,
            max_minibatches_per_sc=2,
            max_ids_per_chip_per_sample=32,
            table_vocab_size=64,
            feature_width=4,
            table_name="t",
            allow_id_dropping=False,
        )
        for _ in range(6):
            self.lookup(csr, cores, samples)

    def lookup(self, csr: list[tf.Tensor], cores: int, samples: int) -> None:
        names = (
            "row_pointers",
            "sorted_sample_ids",
            "sorted_token_ids",
            "sorted_gains",
        )
        shared = {
            **dict(zip(names, csr, strict=False)),
            "embedding_table": self.floats(64, 4),
            "num_minibatches_per_physical_sparse_core": csr[6],
            "table_name": "t",
            "num_sparsecores_per_device": cores,
        }
        static = self.pick(True, False)
        if static:
            shared["max_ids_per_sparse_core"] = 500
            shared["max_unique_ids_per_sparse_core"] = 500
        kind = "StaticBufferSize" if static else "CsrInput"
        if self.rng.random() < 0.5:
            whole = not static and self.rng.random() < 0.3
            if whole:
                shared["embedding_table"] = self.ints(-9, 9, 64, 4)
                shared["sorted_gains"] = tf.ones_like(shared["sorted_gains"])
            self.raw(
                f"XlaSparseDenseMatmulWith{kind}",
                **shared,
                input_size=samples,
                quantization_config_low=-1.0,
                quantization_config_high=1.0,
                quantization_config_num_buckets=0 if whole else self.pick(0, 5),
            )
            return
        name = self.pick(*OPTIMIZERS)
        slots, hyper = OPTIMIZERS[name]
        self.raw(
            f"XlaSparseDenseMatmulGradWith{name}And{kind}",
            **shared,
            **hyper,
            **{slot: self.floats(64, 4) for slot in slots},
            activation_gradients=self.floats(samples, 4),
            learning_rate=self.floats(),
        )

    def rows(self) -> None:
        name = self.pick(*OPTIMIZERS)
        slots, hyper = OPTIMIZERS[name]
        renamed = {ROW_NAMES.get(k, k): v for k, v in hyper.items()}
        attrs = ROW_ATTRS.get(name, set())
        self.raw(
            f"XlaSparseCore{name}",
            **{k: v if k in attrs else tf.constant(v) for k, v in renamed.items()},
            **{ROW_NAMES.get(slot, slot): self.floats(9, 4) for slot in slots},
            embedding_table=self.floats(9, 4),
            indices=self.ints(0, 9, 5),
            gradient=self.floats(5, 4),
            learning_rate=self.floats(),
            feature_width=4,
        )

    def dedup(self) -> None:
        mask = self.rng.integers(0, [2, 9], (self.rng.integers(0, 4), 2))
        proto = tf.make_tensor_proto(mask.astype(np.int32))
        counts = [int(mask[mask[:, 0] == kind, 1].sum()) for kind in (0, 1)]
        given = {"tuple_mask": proto.SerializeToString()}
        merged = self.run(
            lambda **call: tpu.merge_dedup_data(**call).output,
            "MergeDedupData",
            {
                "integer_tensor": self.ints(0, 9, counts[0]),
                "float_tensor": self.floats(counts[1]),
                **given,
            },
        )
        # A graph would run TensorFlow's own shape function, which wants good masks.
        self.damage(given)
        print("SplitDedupData", given, flush=True)
        with suppress(*REFUSALS):
            types = {"integer_type": tf.int32, "float_type": tf.float32}
            tpu.split_dedup_data(merged[0], **given, **types)
        self.ops["SplitDedupData"] = self.ops.get("SplitDedupData", 0) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("calls", type=int, nargs="?", default=500)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    options = parser.parse_args()
    native.load()
    fuzzer = SparseCoreFuzzer(options.seed, False)
    while sum(fuzzer.outcomes.values()) < options.calls:
        fuzzer.pick(fuzzer.batch, fuzzer.rows, fuzzer.dedup)()
    assert len(fuzzer.ops) >= 22 or options.calls < 500, fuzzer.ops
    print(fuzzer.ops)
    print(fuzzer.outcomes)


if __name__ == "__main__":
    main()
