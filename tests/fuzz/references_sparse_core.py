"""References for minibatches, and for custom combiners."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsecore.support.minibatches import NONE, Chip, cut, wrong_buffers

from .calls import op_def

Array = np.ndarray[Any, Any]
# The reference of a larger chip takes too long.
MOST_COUNTS = 1 << 16
PREFIX = "XlaSparseDenseMatmulCustomCombinerOnTc"
ACCURACY = 1e-5


class Statistics:
    """What a TPU system keeps of its tables."""

    def __init__(self) -> None:
        self.of_tables: dict[bytes, list[int]] = {}

    def store(self, table: bytes, numbers: list[int]) -> None:
        kept = self.of_tables.setdefault(table, [0, 0])
        self.of_tables[table] = [*map(max, kept, numbers)]

    def limits(self, table: bytes) -> tuple[int, int]:
        ids, distinct = self.of_tables.get(table, [0, 0])
        return ids or NONE, distinct or NONE


def chip_of(attrs: dict[str, Any]) -> Chip | None:
    chip = Chip(
        attrs["sample_count"],
        attrs["num_sc_per_chip"],
        attrs["num_replica"],
        attrs["table_vocab_size"],
    )
    return chip if chip.cores * chip.shards <= MOST_COUNTS >> 6 else None


def close(name: str, found: Array, expected: Array) -> str | None:
    if not np.isfinite(expected).all() or np.abs(expected).max(initial=0) > 1e6:
        return None
    scale = 1 + np.abs(expected).max(initial=0)
    if found.shape == expected.shape and (
        np.abs(found - expected).max(initial=0) <= ACCURACY * scale
    ):
        return None
    return f"{name} must be {expected.tolist()}, is {found.tolist()}"


def splits(
    inputs: list[Any], attrs: dict[str, Any], outputs: list[Array]
) -> str | None:
    chip = chip_of(attrs)
    if chip is None:
        return None
    expected = cut(chip, inputs[1:4], attrs["limits"])
    names = ("samples", "rows", "gains", "splits", "id_counts", "max_ids")
    for name, found in zip((*names, "max_uniques"), outputs, strict=True):
        one = getattr(expected, name)
        if name == "gains":
            wrong = close(name, found, np.array(one))
            if wrong:
                return wrong
        elif found.tolist() != one:
            return f"{name} must be {one}, is {found.tolist()}"
    return None


def minibatches(
    inputs: list[Any], attrs: dict[str, Any], outputs: list[Array]
) -> str | None:
    chip = chip_of(attrs)
    # NaN is not the same as NaN.
    if chip is None or np.isnan(inputs[3]).any():
        return None
    mask = int(np.bitwise_or.reduce(inputs[4], initial=0))
    return wrong_buffers(chip, mask, [*inputs[1:4], inputs[5]], outputs)


# ---- Custom combiners.


def triples_of(named: dict[str, Array], cores: int, samples: int) -> Array:
    """The rows [sample, position] of a lookup; -1: none."""
    shards, stride = cores, -(-cores // 8) * 8
    shard_rows = named["table"].shape[0] // shards
    positions = named["sorted_pos_ids"].max(initial=-1, where=padding(named)) + 1
    found = np.full((samples, int(positions)), -1)
    at = 0
    for number in range(cores * stride):
        core, shard = divmod(number, stride)
        end = int(named["row_pointers"][number])
        for i in range(at, end):
            sample = core * (samples // cores) + named["sorted_sample_ids"][i]
            row = shard * shard_rows + named["sorted_token_ids"][i]
            found[sample, named["sorted_pos_ids"][i]] = row
        at = -(-end // 8) * 8
    return found


def padding(named: dict[str, Array]) -> Array:
    """Which elements of the buffers are ids."""
    ids = named["sorted_pos_ids"] * 0 > 1
    at = 0
    for end in named["row_pointers"].tolist():
        ids[at:end] = True
        at = -(-end // 8) * 8
    return np.array(ids)


def vectors_of(table: Array, rows: Array, valency: int) -> Array:
    vectors = np.zeros((len(rows), valency, table.shape[1]))
    vectors[:, : rows.shape[1]] = np.where(rows[..., None] < 0, 0, table[rows])
    return vectors


def named_inputs(op: str, inputs: list[Any]) -> dict[str, Any]:
    names = [arg.name for arg in op_def(op).input_arg]
    named = dict(zip(names, map(flushed, inputs), strict=True))
    return named | {"table": named["embedding_table"]}


def flushed(array: Array) -> Array:
    """Zeros for denormals, as TensorFlow sets the processor to read them."""
    if array.dtype != np.float32:
        return array
    return np.where(np.abs(array) < np.finfo(np.float32).tiny, 0, array)


def cores_of(attrs: dict[str, Any]) -> int:
    cores = int(attrs["num_sparsecores_per_device"])
    return 4 if cores == -1 else cores


def combined(
    inputs: list[Any], attrs: dict[str, Any], outputs: list[Array]
) -> str | None:
    """The lookup: the rows, their number, and what the combiner makes of them."""
    named = named_inputs(f"{PREFIX}WithCsrInput", inputs)
    function = attrs["combiner_computation"]
    if attrs["quantization_config_num_buckets"] or function not in ("sum", "weighted"):
        return None
    rows = triples_of(named, cores_of(attrs), attrs["input_size"])
    with np.errstate(all="ignore"):
        vectors = vectors_of(
            named["table"].astype(np.float64), rows, attrs["max_valency"]
        )
        factors = named["weights"][None, :, None] if function == "weighted" else 1
        activations = (factors * vectors).sum(1)
    valencies = (rows >= 0).sum(1)
    if outputs[1].tolist() != valencies.tolist():
        return f"preserved_valencies must be {valencies.tolist()}, are {outputs[1]}"
    return close("preserved_vectors", outputs[2], vectors) or close(
        "activations", outputs[0], activations
    )


def descended(
    inputs: list[Any], attrs: dict[str, Any], outputs: list[Array]
) -> str | None:
    """The update by SGD, of the table and of the weights."""
    named = named_inputs(f"{PREFIX}GradWithSgdAndCsrInput", inputs)
    of_rows = attrs["combiner_table_vjp_computation"]
    of_weights = attrs["combiner_weights_vjp_computation"]
    if "clip_weight_min" in attrs or "clip_weight_max" in attrs:
        return None
    if of_rows not in ("sum_vjp", "weighted_vjp"):
        return None
    gradients = named["activation_gradients"].astype(np.float64)
    rows = triples_of(named, cores_of(attrs), len(gradients))
    preserved = named["preserved_weights"]
    table = named["table"].astype(np.float64)
    weights = named["weights"].astype(np.float64)
    with np.errstate(all="ignore"):
        for sample, position in zip(*np.nonzero(rows >= 0), strict=True):
            factor = preserved[position] if of_rows == "weighted_vjp" else 1
            step = named["learning_rate"] * factor * gradients[sample]
            table[rows[sample, position]] -= step
        moved = weights * 0
        if of_weights == "weights_vjp":
            sums = named["preserved_vectors"] * gradients[:, None]
            moved = weights - named["combiner_weights_learning_rate"] * sums.sum((0, 2))
    wrong = close("updated_embedding_table", outputs[0], table)
    if wrong or (len(weights) and of_weights not in ("weights_vjp", "no_weights_vjp")):
        return wrong
    return close("updated_weights", outputs[1], moved)
