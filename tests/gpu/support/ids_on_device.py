"""Ids that are in a GPU's memory when an op enqueues them: errors come later.

tests/gpu/test_ops.py has pytest run it with a library for which every device is a GPU,
here two CPUs. For the library, inputs of ops lie in the memory of that GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.cases import (
    Lookup,
    configured,
    draw_gradients,
    enqueue,
    load,
    receive,
    retrieve,
    send,
)
from gpu.support.two_devices import RNG, SYSTEM, Invalid, Run, refused


def check(found: Sequence[object], expected: Sequence[object]) -> None:
    for one, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, values, 1e-4, 1e-4)


def with_bad_id(lookups: list[Lookup], bad: int) -> list[Lookup]:
    """As they are, but for one id of feature 2, which is dense."""
    where, ids, weights = lookups[2].tensors
    ids = tf.tensor_scatter_nd_update(ids, [[3]], [bad])
    return [*lookups[:2], replace(lookups[2], tensors=(where, ids, weights))]


@pytest.mark.parametrize("bad", [-1, 6])
@pytest.mark.parametrize("next_call", ["receive", "send", "retrieve", "load"])
def test_enqueue_bad_id_is_reported_by_the_next_call(bad: int, next_call: str) -> None:
    """Once; nothing else is done by that call, and no table has changed."""
    words = (
        "step 1, feature 2 ('feature2'",
        "id at position 3 is out of range; ids must be in [0, 6)",
    )
    with configured(SYSTEM) as proto:
        run = Run(proto)
        run.step()
        gradients = draw_gradients(SYSTEM, RNG)
        enqueue(SYSTEM, with_bad_id(SYSTEM.draw(RNG), bad))
        receive(SYSTEM, proto)
        send(SYSTEM, proto, gradients)
        call: dict[str, Callable[[], object]] = {
            "receive": lambda: receive(SYSTEM, proto),
            "send": lambda: send(SYSTEM, proto, gradients),
            "retrieve": lambda: retrieve(SYSTEM),
            "load": lambda: load(SYSTEM, [t.draw(RNG) for t in SYSTEM.tables]),
        }
        enqueue(SYSTEM, lookups := SYSTEM.draw(RNG))
        refused(Invalid, call[next_call], *words, "the update of step 1 was not made")
        run.check()
        # What was enqueued before is the next to be received.
        check(receive(SYSTEM, proto), SYSTEM.expected(run.tables, lookups))
        send(SYSTEM, proto, gradients)
        run.tables = SYSTEM.updated(run.tables, lookups, gradients)
        run.step()
        run.check()


def test_enqueue_ids_of_another_device_are_checked_at_once() -> None:
    """They come to the host first, which refuses at once what is wrong."""
    with configured(SYSTEM) as proto:
        run = Run(proto)
        lookups = SYSTEM.draw(RNG)
        with tf.device("/cpu:1"):
            refused(
                Invalid,
                lambda: enqueue(SYSTEM, with_bad_id(lookups, 6)),
                "feature 2 ('feature2'",
                "id at position 3 is 6; ids must be in [0, 6)",
            )
            enqueue(SYSTEM, lookups)
        check(receive(SYSTEM, proto), SYSTEM.expected(run.tables, lookups))
        send(SYSTEM, proto, gradients := draw_gradients(SYSTEM, RNG))
        run.tables = SYSTEM.updated(run.tables, lookups, gradients)
        run.check()


def test_enqueue_ids_made_on_the_device_are_looked_up() -> None:
    """By ops of the function that enqueues them, and gone when it looks them up."""
    with configured(SYSTEM) as proto:
        run = Run(proto)
        lookups = SYSTEM.draw(RNG)

        @tf.function(autograph=False)
        def step(ids: list[tf.Tensor]) -> list[tf.Tensor]:
            made = [
                replace(one, tensors=(one.tensors[0], of * 1 + 0, one.tensors[2]))
                for one, of in zip(lookups, ids, strict=True)
            ]
            enqueue(SYSTEM, made)
            return list(receive(SYSTEM, proto))

        for _ in range(3):
            found = step([one.tensors[1] for one in lookups])
            check(
                [np.reshape(one, (-1, one.shape[-1])) for one in found],
                SYSTEM.expected(run.tables, lookups),
            )
            send(SYSTEM, proto, gradients := draw_gradients(SYSTEM, RNG))
            run.tables = SYSTEM.updated(run.tables, lookups, gradients)
        run.check()
