"""Calls of the ops that cut a chip's batch into minibatches, up to a lookup."""

from __future__ import annotations

from typing import Any

from .calls import Call, Literal, Made, Scenario
from .damage import Draw
from .draws_sparse_core import Chain, ints, use


def draw(rng: Draw) -> Scenario:
    """A batch, cut by statistics of others or by its own, through all ops."""
    chain = Chain(rng)
    cores, replicas = rng.pick(1, 2, 4), rng.pick(1, 1, 1, 2, 3)
    samples, vocabulary = 4 * cores, rng.pick(8, 64, 256, 1000)
    count = rng.pick(0, 5, 40, 100)
    rows = sorted(rng.int(0, samples - 1) for _ in range(count))
    most = rng.pick(3, vocabulary - 1)
    triples: dict[str, Any] = {
        "row_ids": ints(*rows),
        "col_ids": ints(*[rng.int(0, most) for _ in range(count)]),
        "gains": Literal("float32", [count], [rng.pick(0.5, 1, 2) for _ in rows]),
    }
    key = {"program_key": Literal("string", [1], [b"key"])}
    shared = {
        "sample_count": samples,
        "num_replica": replicas,
        "feature_width": 4,
        "num_sc_per_chip": cores,
        "table_name": b"t",
    }
    with_splits = shared | {"mini_batch_splits": b""}
    sizes = {"table_vocab_size": vocabulary}

    def store(ids: Any, distinct: Any) -> None:
        numbers = {"max_ids": ids, "max_uniques": distinct}
        chain.add("StoreMinibatchStatisticsInFdo", key | numbers, with_splits)

    if rng.chance(0.7):
        few = [Literal("int32", [], [rng.pick(0, 1, 2, 5, 20)]) for _ in range(2)]
        store(*few)
    found = chain.add(
        "GetMinibatchSplitsWithPhysicalReplica", key | triples, with_splits | sizes, 2
    )
    if rng.chance(0.3):
        store(Made(found, 5), Made(found, 6))
    # The masks of this host and of another one.
    other = Literal("int64", [], [rng.pick(0, 1, 6, 2**62, rng.int(0, 2**63 - 1))])
    masks: list[Any] = [Made(found, 3), other]
    chain.calls.append(Call("Pack", {"values": masks}, {}))
    joined = Made(len(chain.calls) - 1, 0)
    inputs: dict[str, Any] = key | {
        "row_ids": Made(found, 0),
        "col_ids": Made(found, 1),
        "gains": Made(found, 2),
        "splits": rng.pick(joined, joined, Literal("int64", [1], [0])),
        "id_counts": Made(found, 4),
    }
    attrs = (
        shared
        | sizes
        | {
            "max_minibatches_per_sc": rng.pick(1, 64, 64, 64),
            "max_ids_per_chip_per_sample": rng.pick(8, 256, 1024),
            "mini_batch_in_csr": b"",
        }
    )
    csr = chain.add("GetMinibatchesInCsrWithPhysicalReplica", inputs, attrs, 2)
    if replicas == 1:
        use(chain, csr, Made(csr, 6), cores, samples, vocabulary, "lookup")
    return Scenario("minibatches", chain.calls)
