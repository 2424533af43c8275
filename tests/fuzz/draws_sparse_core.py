"""Calls of the SparseCore ops, from stage to stage, and of dedup data."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import tensorflow as tf

from .calls import Call, Literal, Made, Scenario, Value
from .damage import Draw, damage

# Slots and hyperparameters, as the ops that take gradients of activations call them.
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
POSITIVE = ("accumulator", "velocity")


def ints(*values: int) -> Literal:
    return Literal("int32", [len(values)], list(values))


def scalar(value: float) -> Literal:
    return Literal("float32", [], [value])


def floats(rng: Draw, *shape: int) -> Literal:
    return Literal("float32", list(shape), normal=rng.seed32())


def slot(rng: Draw, name: str, *shape: int) -> Literal:
    if name in POSITIVE:
        return Literal("float32", list(shape), fill=rng.pick(0.1, 1.0, 4.0))
    return floats(rng, *shape)


class Chain:
    """Calls whose outputs the next ones take; each good call comes with bad ones."""

    def __init__(self, rng: Draw) -> None:
        self.rng = rng
        self.calls: list[Call] = []

    def add(
        self, op: str, inputs: dict[str, Any], attrs: dict[str, Any], bad: int = 1
    ) -> int:
        """The number of the good call."""
        good = Call(op, inputs, attrs)
        for _ in range(bad):
            self.calls.append(damage(self.rng, copy.deepcopy(good)))
        self.calls.append(good)
        return len(self.calls) - 1


def batch(rng: Draw) -> Scenario:
    """A batch through all stages."""
    chain = Chain(rng)
    cores, samples, vocabulary = rng.pick(1, 2, 4), 16, 64
    sizes = [rng.int(0, 4) for _ in range(samples)]
    if rng.chance(0.2):
        sizes = [1] * samples
    count = sum(sizes)
    rows = [i for i, size in enumerate(sizes) for _ in range(size)]
    splits = [sum(sizes[:i]) for i in range(samples + 1)]
    form = rng.pick("sparse", "ragged", "ragged")
    where = ints(*splits)
    if form == "sparse":
        flat = [x for row in rows for x in (row, 0)]
        where = Literal("int32", [count, 2], flat)
    if sizes == [1] * samples and rng.chance(0.7):
        where = ints()
    weights = scalar(1.0)
    if rng.chance(0.5):
        weights = Literal(
            "float32", [count], [rng.pick(0.5, 1.0, 1.5) for _ in range(count)]
        )
    ids = [rng.int(0, vocabulary - 1) for _ in range(count)]
    feature: dict[str, Value] = {
        "indices_or_row_splits": where,
        "values": ints(*ids),
        "weights": weights,
    }
    attrs = {"sample_count": samples, "combiner": rng.pick(b"sum", b"mean", b"sqrtn")}
    chain.add("ConvertToCooTensor", feature, attrs)
    stacking = {
        "num_sc_per_chip": cores,
        "row_offset": 0,
        "col_offset": 0,
        "col_shift": rng.pick(0, 1),
        "num_sc_shards": cores,
        "stacked_table_sample_count": samples,
    }
    lists = chain.add("ConvertToListOfSparseCoreCooTensors", feature, attrs | stacking)
    sources = []
    for core in range(cores):
        triples = {
            "row_ids_list": [Made(lists, core)],
            "col_ids_list": [Made(lists, cores + core)],
            "gains_list": [Made(lists, 2 * cores + core)],
        }
        stacked = {
            "sample_count_list": [samples // cores],
            "col_offset_list": [0],
            "num_replica": 1,
            "table_vocab_size": vocabulary,
            "feature_width": 4,
            "num_sc_per_chip": cores,
            "table_name": b"t",
        }
        chain.add("GetStatsFromListOfSparseCoreCooTensors", triples, stacked)
        limits = {"max_ids_per_sparse_core": 500, "max_unique_ids_per_sparse_core": 500}
        sources.append(
            chain.add("SortListOfSparseCoreCooTensors", triples, stacked | limits)
        )
    names = (
        "sorted_row_ids_list",
        "sorted_col_ids_list",
        "sorted_gains_list",
        "id_counts_list",
    )
    inputs: dict[str, Any] = {
        name: [Made(source, i) for source in sources] for i, name in enumerate(names)
    }
    inputs["splits"] = Literal("int64", [], [0])
    csr = chain.add(
        "ConvertToSparseCoreCsrWrappedCooTensor",
        inputs,
        {
            "sample_count_per_sc": samples // cores,
            "num_replica": 1,
            "max_minibatches_per_sc": 2,
            "max_ids_per_chip_per_sample": 32,
            "table_vocab_size": vocabulary,
            "feature_width": 4,
            "num_sc_per_chip": cores,
            "table_name": b"t",
            "allow_id_dropping": False,
        },
    )
    # Outputs 4 and 5 say how much of the buffers is used. Only that part is copied.
    filled = {
        "tensors": [Made(csr, i) for i in range(4)],
        "unpadded_sizes": [Made(csr, i) for i in (4, 5, 5, 5)],
    }
    copy_ = chain.add("TPUCopyWithDynamicShape", filled, {})
    kinds = ["lookup", *OPTIMIZERS]
    for kind in rng.sample(kinds, 3):
        source = rng.pick(csr, copy_)
        use(chain, source, Made(csr, 6), cores, samples, vocabulary, kind)
    return Scenario("sparse core", chain.calls)


def use(
    chain: Chain,
    buffers: int,
    minibatches: Made,
    cores: int,
    samples: int,
    rows: int,
    kind: str,
) -> None:
    """A lookup, or an update by an optimizer, with the buffers that a call made."""
    rng = chain.rng
    names = ("row_pointers", "sorted_sample_ids", "sorted_token_ids", "sorted_gains")
    inputs: dict[str, Any] = {name: Made(buffers, i) for i, name in enumerate(names)}
    inputs["embedding_table"] = floats(rng, rows, 4)
    inputs["num_minibatches_per_physical_sparse_core"] = minibatches
    attrs: dict[str, Any] = {"table_name": b"t", "num_sparsecores_per_device": cores}
    static = rng.chance(0.5)
    if static:
        attrs |= {"max_ids_per_sparse_core": 500, "max_unique_ids_per_sparse_core": 500}
    suffix = "StaticBufferSize" if static else "CsrInput"
    if kind == "lookup":
        attrs |= {
            "input_size": samples,
            "quantization_config_low": -1.0,
            "quantization_config_high": 1.0,
            "quantization_config_num_buckets": rng.pick(0, 5),
        }
        if not static and rng.chance(0.2):
            numbers = [rng.int(-9, 9) for _ in range(rows * 4)]
            inputs["embedding_table"] = Literal("int32", [rows, 4], numbers)
            attrs["quantization_config_num_buckets"] = 0
        chain.add(f"XlaSparseDenseMatmulWith{suffix}", inputs, attrs, bad=2)
        return
    slots, hyper = OPTIMIZERS[kind]
    inputs |= {name: slot(rng, name, rows, 4) for name in slots}
    inputs["activation_gradients"] = floats(rng, samples, 4)
    inputs["learning_rate"] = scalar(rng.pick(0.1, 0.5))
    if rng.chance(0.3):
        attrs |= {"clip_weight_min": -1.0, "clip_weight_max": 1.0}
    op = f"XlaSparseDenseMatmulGradWith{kind}And{suffix}"
    chain.add(op, inputs, attrs | hyper, bad=2)


def rows(rng: Draw) -> Scenario:
    """Updates of rows by number."""
    chain = Chain(rng)
    name = rng.pick(*OPTIMIZERS)
    slots, hyper = OPTIMIZERS[name]
    inputs: dict[str, Any] = {
        "indices": ints(*[rng.int(0, 8) for _ in range(5)]),
        "gradient": floats(rng, 5, 4),
        "learning_rate": scalar(0.5),
        "embedding_table": floats(rng, 9, 4),
    }
    inputs |= {ROW_NAMES.get(s, s): slot(rng, s, 9, 4) for s in slots}
    attrs: dict[str, Any] = {"feature_width": 4}
    for key, value in hyper.items():
        key = ROW_NAMES.get(key, key)
        if key in ROW_ATTRS.get(name, set()):
            attrs[key] = value
        else:
            inputs[key] = scalar(float(value))
    chain.add(f"XlaSparseCore{name}", inputs, attrs, bad=3)
    return Scenario("sparse core rows", chain.calls)


def mask_bytes(rng: Draw, mask: list[list[int]]) -> bytes:
    array = np.array(mask, np.int32).reshape(-1, 2)
    proto = tf.make_tensor_proto(array)
    if rng.chance(0.6):
        proto.ClearField("tensor_content")
        del proto.int_val[:]
        values = array.reshape(-1).tolist()
        # What follows is the last one again.
        while len(values) > 1 and values[-1] == values[-2]:
            values.pop()
        proto.int_val.extend(values)
    return bytes(proto.SerializeToString())


def dedup(rng: Draw) -> Scenario:
    """Masks of parts, and data in their layout."""
    chain = Chain(rng)
    mask = [[rng.int(0, 1), rng.int(0, 8)] for _ in range(rng.int(0, 4))]
    if rng.chance(0.3):
        mask = [[1, 1]] * rng.int(1, 3)
    counts = [sum(length for kind, length in mask if kind == k) for k in (0, 1)]
    inputs = {
        "integer_tensor": Literal("int32", [counts[0]], fill=3),
        "float_tensor": Literal("float32", [counts[1]], fill=0.5),
    }
    attrs = {"tuple_mask": mask_bytes(rng, mask), "config": b""}
    merged = chain.add("MergeDedupData", inputs, attrs)
    split = {**attrs, "integer_type": "int32", "float_type": "float32"}
    chain.add("SplitDedupData", {"input": Made(merged, 0)}, split)
    return Scenario("dedup", chain.calls)
