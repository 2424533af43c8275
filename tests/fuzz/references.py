"""References for some ops: in Python's integers, which do not overflow, or NumPy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np

from . import references_sparse_core

INT32 = range(-(2**31), 2**31)
Arrays = list[Any]
# From inputs, attrs and outputs: the mistake in the outputs, if there is one.
Check = Callable[[list[Any], dict[str, Any], Arrays], str | None]


def samples_of(where: Any, count: int) -> list[int]:
    """The sample of each id of a feature, dense, sparse or ragged."""
    if where.ndim == 2:
        return [int(x) for x in where[:, 0]]
    if where.size == 0:
        return list(range(count))
    sizes = np.diff(where.astype(object))
    return [i for i, size in enumerate(sizes) for _ in range(int(size))]


def triples(inputs: list[Any]) -> list[tuple[int, int]]:
    """Samples and ids; equal ones next to each other are one."""
    where, ids = inputs[0], inputs[1]
    result: list[tuple[int, int]] = []
    for sample, id_ in zip(samples_of(where, ids.size), ids.tolist(), strict=True):
        if not result or result[-1] != (sample, id_):
            result.append((sample, id_))
    return result


def differs(name: str, found: Any, expected: list[int]) -> str | None:
    if not all(x in INT32 for x in expected):
        return f"{name} must be {expected}, which no int32 holds, is {found.tolist()}"
    if found.tolist() == expected:
        return None
    return f"{name} must be {expected}, is {found.tolist()}"


def coo(inputs: list[Any], attrs: dict[str, Any], outputs: Arrays) -> str | None:
    expected = triples(inputs)
    return differs("row_ids", outputs[0], [s for s, _ in expected]) or differs(
        "col_ids", outputs[1], [i for _, i in expected]
    )


def list_of_coo(
    inputs: list[Any], attrs: dict[str, Any], outputs: Arrays
) -> str | None:
    cores, shards = attrs["num_sc_per_chip"], attrs["num_sc_shards"]
    each = attrs["sample_count"] // cores
    # As integers are divided in C++.
    offset = int(abs(attrs["row_offset"]) // cores) * (
        1 if attrs["row_offset"] >= 0 else -1
    )
    stacked = attrs["stacked_table_sample_count"]
    stacked = int(abs(stacked) // cores) * (1 if stacked >= 0 else -1)
    every = triples(inputs)
    for core in range(cores):
        mine = [(s, i) for s, i in every if s // each == core]
        rows = [s % each + offset + core * stacked for s, _ in mine]
        columns = [
            (i + attrs["col_shift"]) % shards + i - i % shards + attrs["col_offset"]
            for _, i in mine
        ]
        wrong = differs(f"row_ids_list[{core}]", outputs[core], rows)
        wrong = wrong or differs(
            f"col_ids_list[{core}]", outputs[cores + core], columns
        )
        if wrong:
            return wrong
    return None


def merged(inputs: list[Any], attrs: dict[str, Any]) -> list[list[tuple[int, int]]]:
    """By shard: the triples' samples and rows, tables in order, by row."""
    shards = attrs["num_replica"] * attrs["num_sc_per_chip"]
    result: list[list[tuple[int, int]]] = [[] for _ in range(shards)]
    samples, rows = inputs[0], inputs[1]
    offsets = attrs["col_offset_list"]
    for offset in sorted(set(offsets)):
        found = [
            (int(row), int(sample))
            for i, at in enumerate(offsets)
            if at == offset
            for sample, row in zip(samples[i], rows[i], strict=True)
        ]
        last = None
        for row, sample in sorted(found, key=lambda one: one[0]):
            if (row, sample) != last:
                result[row % shards].append((sample, row))
            last = (row, sample)
    return result


def sort(inputs: list[Any], attrs: dict[str, Any], outputs: Arrays) -> str | None:
    by_shard = merged(inputs, attrs)
    count = sum(attrs["sample_count_list"])
    ends = list(accumulate(map(len, by_shard), initial=0))
    every = [one for shard in by_shard for one in shard]
    return (
        differs("id_counts", outputs[3], ends)
        or differs("sorted_row_ids", outputs[0], [s % count for s, _ in every])
        or differs("sorted_col_ids", outputs[1], [r // len(by_shard) for _, r in every])
    )


def stats(inputs: list[Any], attrs: dict[str, Any], outputs: Arrays) -> str | None:
    by_shard = merged(inputs, attrs)
    most = max(map(len, by_shard))
    distinct = max(len({row for _, row in shard}) for shard in by_shard)
    return differs("max_ids_per_sparse_core", outputs[0].reshape(1), [most]) or differs(
        "max_unique_ids_per_sparse_core", outputs[1].reshape(1), [distinct]
    )


def narrowed(inputs: list[Any], attrs: dict[str, Any], outputs: Arrays) -> str | None:
    ids = inputs[0].reshape(-1).tolist()
    if any(not 0 <= one < attrs["table_rows"] for one in ids):
        return f"an id of {ids} is no row of {attrs['table_rows']}"
    return differs("rows", outputs[0].reshape(-1), ids)


def needs(inputs: list[Any], attrs: dict[str, Any], outputs: Arrays) -> str | None:
    """The most ids and distinct ids of a shard, and the space for all, in eights."""
    ids = distinct = space = 0
    for rows, ends in zip(*inputs, strict=True):
        for first, end in pairwise(ends.tolist()):
            ids = max(ids, end - first)
            runs = len([*groupby(rows[first:end].tolist())])  # Good rows are sorted.
            distinct = max(distinct, runs)
            space += -((first - end) // 8) * 8
    if ids > attrs["max_ids"] or distinct > attrs["max_unique_ids"]:
        return f"{ids} ids, {distinct} of them distinct, are beyond the limits"
    most = attrs["samples"] * attrs["max_ids_per_chip_per_sample"]
    if space > most and not attrs["allow_id_dropping"]:
        return f"the space for {most} ids is too small for {space}"
    wrong = (
        differs("checked", one, ends.tolist())
        for one, ends in zip(outputs[:-1], inputs[1], strict=True)
    )
    found = next(filter(None, wrong), None)
    return found or differs("needs", outputs[-1], [ids, distinct, space])


def params_size(
    inputs: list[Any], attrs: dict[str, Any], outputs: Arrays
) -> str | None:
    layers, units, width = (int(x) for x in inputs)
    mode, proj = attrs["rnn_mode"], attrs.get("num_proj", 0)
    if attrs["input_mode"] != b"linear_input" or layers > 1000:
        return None
    gates = {b"lstm": 4, b"gru": 3}.get(mode, 1)
    dirs = 2 if attrs["direction"] == b"bidirectional" else 1
    hidden = proj or units
    size = 0
    for layer in range(layers):
        inner = dirs * hidden if layer else width
        size += dirs * (gates * units * (inner + hidden + 2) + (proj or 0) * units)
    most = 2**63 if attrs.get("S") == "int64" else 2**31
    if size >= most:
        return f"the size {size} does not fit, and is {outputs[0].tolist()}"
    found = outputs[0].reshape(-1).tolist()
    return None if found == [size] else f"must be {size}, is {found}"


# The tolerance of a comparison with float64.
ACCURACY = {"float32": 1e-4, "float64": 1e-9}


def keras_rnn(inputs: list[Any], attrs: dict[str, Any], outputs: Arrays) -> str | None:
    """A layer of Keras, step by step; whatever weights its kernel kept."""
    accuracy = ACCURACY.get(inputs[0].dtype.name)
    largest = max((np.abs(one).max(initial=0) for one in inputs[:-1]), default=0)
    # Also of those that are no numbers.
    if accuracy is None or not largest < 100:
        return None
    x, h, c, kernel, recurrent, bias, lengths = inputs
    x, h, c, kernel, recurrent, bias = (
        one.astype(np.float64) for one in (x, h, c, kernel, recurrent, bias)
    )
    given, kept = np.zeros([2, kernel.shape[1]])
    given[:] = bias[0] if len(bias) else 0
    kept[:] = bias[1] if len(bias) > 1 else 0

    def sigmoid(of: Any) -> Any:
        return (1 + np.tanh(of / 2)) / 2

    y, mode = np.zeros([*x.shape[:2], recurrent.shape[0]]), attrs["rnn_mode"]
    for step in range(x.shape[1]):
        a, b = x[:, step] @ kernel + given, h @ recurrent + kept
        new_c = c
        if mode == b"lstm":
            i, f, g, o = np.split(a + b, 4, axis=1)
            new_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            new_h = sigmoid(o) * np.tanh(new_c)
        elif mode == b"gru":
            (az, ar, an), (bz, br, bn) = np.split(a, 3, axis=1), np.split(b, 3, axis=1)
            z = sigmoid(az + bz)
            new_h = z * h + (1 - z) * np.tanh(an + sigmoid(ar + br) * bn)
        else:
            new_h = np.tanh(a + b) if mode == b"rnn_tanh" else np.maximum(a + b, 0)
        shown = (step < lengths)[:, None]
        h = np.where(shown, new_h, h)
        c = np.where(shown, new_c, c) if mode == b"lstm" else c
        y[:, step] = np.where(shown, new_h, 0)
    expected = [y, h, c if mode == b"lstm" else np.zeros([])]
    names = ("output", "output_h", "output_c")
    for name, found, one in zip(names, outputs, expected, strict=True):
        allowed = accuracy * (1 + np.abs(one).max(initial=0))
        if found.shape != one.shape or (np.abs(found - one) > allowed).any():
            return f"{name} must be {one.tolist()}, is {found.tolist()}"
    return None


CHECKS: dict[str, Check] = {
    "ConvertToCooTensor": coo,
    "ConvertToListOfSparseCoreCooTensors": list_of_coo,
    "SortListOfSparseCoreCooTensors": sort,
    "GetStatsFromListOfSparseCoreCooTensors": stats,
    "GetMinibatchSplitsWithPhysicalReplica": references_sparse_core.splits,
    "GetMinibatchesInCsrWithPhysicalReplica": references_sparse_core.minibatches,
    "XlaSparseDenseMatmulCustomCombinerOnTcWithCsrInput": (
        references_sparse_core.combined
    ),
    "XlaSparseDenseMatmulCustomCombinerOnTcGradWithSgdAndCsrInput": (
        references_sparse_core.descended
    ),
    "OpwrightSparseCoreIds": narrowed,
    "OpwrightSparseCoreLimits": needs,
    "CudnnRNNParamsSize": params_size,
    "OpwrightKerasRNN": keras_rnn,
}
