"""What the embedding ops do otherwise where tables lie on a GPU.

tests/gpu/test_ops.py has pytest run it, with a library for which every device is a GPU,
here two CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

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
    receive,
    retrieve,
    send,
)
from embedding.support.reference import Array
from gpu.support.two_devices import RNG, SYSTEM, Invalid, Run, refused
from opwright import Scope
from opwright.tpu import (
    SendTPUEmbeddingGradients,
    configure_distributed_tpu,
    configure_tpu_embedding,
    is_tpu_embedding_initialized,
    shutdown_distributed_tpu,
)

WORDS = (
    "step 1, feature 2 ('feature2'",
    "sample 3, column 1",
    "the update of step 1 was not made",
)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("next_call", ["receive", "send", "retrieve", "load"])
def test_send_gradients_bad_value_is_reported_by_the_next_call(
    bad: float, next_call: str
) -> None:
    """Once; nothing else is done by that call, and no table has changed."""
    with configured(SYSTEM) as proto:
        run = Run(proto)
        run.step()
        run.step(bad)
        zeros: list[Array] = [0 * g for g in draw_gradients(SYSTEM, RNG)]
        call: dict[str, Callable[[], object]] = {
            "receive": lambda: receive(SYSTEM, proto),
            "send": lambda: send(SYSTEM, proto, zeros),
            "retrieve": lambda: retrieve(SYSTEM),
            "load": lambda: load(SYSTEM, [t.draw(RNG) for t in SYSTEM.tables]),
        }
        enqueue(SYSTEM, lookups := SYSTEM.draw(RNG))
        refused(Invalid, call[next_call], *WORDS)
        run.check()
        # What was enqueued before is the next to be received.
        found = receive(SYSTEM, proto)
        for one, values in zip(
            found, SYSTEM.expected(run.tables, lookups), strict=True
        ):
            np.testing.assert_allclose(one, values, 1e-4, 1e-4)
        gradients = draw_gradients(SYSTEM, RNG)
        send(SYSTEM, proto, gradients)
        run.tables = SYSTEM.updated(run.tables, lookups, gradients)
        run.step()
        run.check()


def test_send_gradients_bad_value_in_a_function_fails_the_next_call() -> None:
    """The function that meets the refusal fails, and the next call of it works."""
    with configured(SYSTEM) as proto:
        run = Run(proto)
        lookups = SYSTEM.draw(RNG)

        @tf.function(autograph=False)
        def step(*gradients: tf.Tensor) -> None:
            outputs = receive(SYSTEM, proto)
            with tf.control_dependencies(outputs):
                SendTPUEmbeddingGradients.create(Scope.current(), gradients, [], proto)

        good = [tf.constant(g, tf.float32) for g in draw_gradients(SYSTEM, RNG)]
        for _ in range(3):
            enqueue(SYSTEM, lookups)
        step(*good)
        step(*good[:2], good[2] * np.nan)
        refused(Invalid, lambda: step(*good), "feature2", "of step 1")
        step(*good)
        for _ in range(2):
            values = [g.numpy().astype(np.float64) for g in good]
            run.tables = SYSTEM.updated(run.tables, lookups, values)
        run.check()


def test_embedding_ops_on_another_device_are_refused() -> None:
    with configured(SYSTEM) as proto, tf.device("/cpu:1"):
        lookups = SYSTEM.draw(RNG)
        tables = [table.draw(RNG) for table in SYSTEM.tables]
        # What is loaded is of the host, and ids come there, wherever their ops run.
        load(SYSTEM, tables)
        enqueue(SYSTEM, lookups)
        calls: dict[str, Callable[[], object]] = {
            "RecvTPUEmbeddingActivations": lambda: receive(SYSTEM, proto),
            "SendTPUEmbeddingGradients": lambda: send(
                SYSTEM, proto, draw_gradients(SYSTEM, RNG)
            ),
        }
        for name, call in calls.items():
            refused(Invalid, call, name, "CPU:0", "CPU:1", "tf.device")
        with tf.device("/cpu:0"):
            found = receive(SYSTEM, proto)
        for one, values in zip(found, SYSTEM.expected(tables, lookups), strict=True):
            np.testing.assert_allclose(one, values, 1e-4, 1e-4)
        for got, table in zip(retrieve(SYSTEM), tables, strict=True):
            for slot, values in table.items():
                np.testing.assert_allclose(got[slot], values, 1e-6)


def refused_configuration(
    error: type[Exception], system: System, *words: str, **settings: Any
) -> None:
    shutdown_distributed_tpu()
    configure_distributed_tpu()
    config = System(system.tables, system.features, settings).proto
    refused(error, lambda: configure_tpu_embedding(config), *words)
    assert not bool(is_tpu_embedding_initialized())
    shutdown_distributed_tpu()


def test_configure_four_cores_is_refused() -> None:
    refused_configuration(
        Invalid, SYSTEM, "num_tensor_cores", "GPU", "4", num_tensor_cores=4
    )


def test_configure_tables_larger_than_memory_is_refused() -> None:
    """Tables that are made before the one that is too large are given back."""
    large = System(
        [Table(10, 4), Table(2**40, 64)], [Feature(0, (5,)), Feature(1, (5,))]
    )
    exhausted = tf.errors.ResourceExhaustedError
    refused_configuration(exhausted, large, "table1", "GiB", "left")
    with configured(SYSTEM) as proto:
        run = Run(proto)
        run.step()
        run.check()
