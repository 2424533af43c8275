"""A refused call leaves tables, slots, queues and steps as they were, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.cases import (
    Feature,
    System,
    Table,
    configured,
    draw_gradients,
    enqueue,
    load,
    optimizer,
    receive,
    retrieve,
    send,
)
from opwright import tpu

raw: Any = tf.raw_ops
CALLS = 1000
ODD = (-(2**62), -1, 2**31, 2**62)


class Caller:
    """Calls that must be refused, drawn at random."""

    def __init__(self, system: System, proto: bytes, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.system, self.proto = system, proto

    def pick(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def configure(self) -> None:
        if self.rng.random() < 0.3:
            raw.ConfigureTPUEmbedding(config=self.proto)  # There are tables already.
        bad = bytearray(self.proto)
        bad += self.pick(b"\xff", b"\x0a\x02\x08\x01", b"\x18\xff\xff\xff\x7f")
        raw.ConfigureDistributedTPU(tpu_embedding_config=bytes(bad))

    def load(self) -> None:
        shape = [11, 5]
        values = self.rng.standard_normal(shape).astype(np.float32)
        slots = np.ones(shape, np.float32)
        arguments = {"num_shards": 1, "shard_id": 0, "table_id": 0}
        kind = self.pick("shape", "shape of a slot", "number", "slot", "table", "shard")
        if kind == "shape":
            values = values[:-1]
        elif kind == "shape of a slot":
            slots = slots[:, :-1]
        elif kind == "number":
            values[self.rng.integers(11), 2] = self.pick(np.nan, np.inf, -np.inf)
        elif kind == "slot":
            slots[self.rng.integers(11), 4] = self.pick(np.nan, np.inf, -1e-45)
        elif kind == "table":
            arguments["table_id"] = self.pick(1, 2, 2**31, -5)
        else:
            arguments["shard_id"] = self.pick(1, -1, 2**40)
        raw.LoadTPUEmbeddingAdagradParameters(
            parameters=values, accumulators=slots, **arguments
        )

    def enqueue(self) -> None:
        ids = [self.rng.integers(0, n, 4) for n in (11, 7)]
        where: list[Any] = [np.zeros([0], np.int64)] * 2
        weights: list[Any] = [np.zeros([0], np.float32)] * 2
        mode, ordinal, combiners = "train", 0, ["sum", "mean"]
        kind = self.pick(
            "id", "length", "where", "weights", "mode", "core", "combiners"
        )
        at = int(self.rng.integers(2))
        if kind == "id":
            ids[at][self.rng.integers(4)] = self.pick(*ODD, 11)
        elif kind == "length":
            ids[at] = ids[at][:3]
        elif kind == "where":
            where[at] = np.array(self.pick([0, 9], [0, 1, 0, 2, 4], [1, 1, 2, 3, 4]))
        elif kind == "weights":
            where[at] = np.arange(5)
            weights[at] = np.array(
                self.pick([1.0], [1, 1, np.nan, 1], [1, np.inf, 1, 1]), np.float32
            )
        elif kind == "mode":
            mode = self.pick("", "training", "TRAIN")
        elif kind == "core":
            ordinal = self.pick(1, 7, 2**31 - 1, -2)
        else:
            combiners = self.pick(["sum"], ["sum"] * 3)
        raw.EnqueueTPUEmbeddingArbitraryTensorBatch(
            sample_indices_or_row_splits=[np.asarray(w, np.int64) for w in where],
            embedding_indices=ids,
            aggregation_weights=weights,
            mode_override=mode,
            device_ordinal=ordinal,
            combiners=combiners,
        )

    def send(self) -> None:
        gradients = [np.ones((4, width), np.float32) for width in (5, 3)]
        rates: list[float] = []
        kind = self.pick("number", "shape", "number of features", "rates")
        at = int(self.rng.integers(2))
        if kind == "number":
            gradients[at][self.rng.integers(4), 1] = self.pick(np.nan, np.inf)
        elif kind == "shape":
            gradients[at] = self.pick(gradients[at][:3], gradients[at][None])
        elif kind == "number of features":
            gradients = gradients[:1]
        else:
            rates = self.pick([0.1], [0.1, 0.2])
        raw.SendTPUEmbeddingGradients(
            inputs=gradients, learning_rates=rates, config=self.proto
        )

    def receive(self) -> None:
        count = self.pick(1, 3)
        raw.RecvTPUEmbeddingActivations(num_outputs=count, config=self.proto)

    def retrieve(self) -> None:
        raw.RetrieveTPUEmbeddingAdagradParameters(
            num_shards=1, shard_id=self.pick(1, -1), table_id=0
        )

    def refused(self) -> str:
        kinds: tuple[Callable[[], None], ...]
        kinds = self.configure, self.load, self.enqueue, self.send
        call = self.pick(*kinds, *kinds, self.receive, self.retrieve)
        expected = tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError
        with pytest.raises(expected):
            call()
        return str(call.__name__)


def steps(pipelined: bool, disturb: Callable[[System, bytes], None]) -> list[Any]:
    """All that a program sees of three steps, `disturb`ed in the middle of one."""
    system = System(
        [Table(11, 5, optimizer("adagrad")), Table(7, 3, combiner="mean")],
        [Feature(0, (4,), "dense"), Feature(1, (4,), "dense")],
        {"pipeline_execution_with_tensor_core": pipelined},
    )
    rng = np.random.default_rng(5)
    seen: list[Any] = []
    with configured(system) as proto:
        load(system, [table.draw(rng) for table in system.tables])
        for _ in range(3):
            enqueue(system, system.draw(rng))
        gradients = [draw_gradients(system, rng) for _ in range(3)]
        seen += receive(system, proto)
        if pipelined:
            send(system, proto, gradients[0])  # Its update is not due yet.
            seen += receive(system, proto)
        disturb(system, proto)
        if not pipelined:
            send(system, proto, gradients[0])
            seen += receive(system, proto)
        send(system, proto, gradients[1])
        seen += receive(system, proto)
        send(system, proto, gradients[2])
        seen.append(tpu.embedding_step_count())
        for table in retrieve(system):
            seen += table.values()
    return [np.asarray(one) for one in seen]


@pytest.mark.parametrize("pipelined", [False, True])
def test_refused_calls_change_nothing(pipelined: bool) -> None:
    counts: dict[str, int] = {}

    def disturb(system: System, proto: bytes) -> None:
        before = [] if pipelined else retrieve(system)
        caller = Caller(system, proto, seed=int(pipelined))
        for _ in range(CALLS // 2):
            kind = caller.refused()
            counts[kind] = counts.get(kind, 0) + 1
        assert tpu.embedding_step_count() == int(pipelined)
        for old, new in zip(before, retrieve(system) if before else [], strict=True):
            for slot, values in old.items():
                assert (values == new[slot]).all()

    disturbed = steps(pipelined, disturb)
    assert set(counts) == {
        "configure",
        "load",
        "enqueue",
        "send",
        "receive",
        "retrieve",
    }
    undisturbed = steps(pipelined, lambda *_: None)
    for first, second in zip(disturbed, undisturbed, strict=True):
        assert first.tobytes() == second.tobytes()
