"""Two CPUs and their steps, with a library to which every device is a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf

CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    CPU, [tf.config.LogicalDeviceConfiguration()] * 2
)

from embedding.support.cases import (
    Feature,
    System,
    Table,
    draw_gradients,
    enqueue,
    load,
    optimizer,
    receive,
    retrieve,
    send,
)

Invalid = tf.errors.InvalidArgumentError
SYSTEM = System(
    [Table(10, 4, optimizer("adagrad")), Table(6, 3, optimizer("adam", beta1=0.5))],
    [Feature(0, (5,)), Feature(1, (5,), "sparse"), Feature(1, (4,), "dense")],
)
RNG = np.random.default_rng(0)


class Run:
    """A configured system, and what its tables should be."""

    def __init__(self, proto: bytes) -> None:
        self.proto = proto
        self.tables = [table.draw(RNG) for table in SYSTEM.tables]
        load(SYSTEM, self.tables)

    def step(self, bad: float | None = None) -> None:
        """Sends gradients, one of which may be bad: then nothing is to change."""
        lookups, gradients = SYSTEM.draw(RNG), draw_gradients(SYSTEM, RNG)
        enqueue(SYSTEM, lookups)
        found = receive(SYSTEM, self.proto)
        expected = SYSTEM.expected(self.tables, lookups)
        for one, values in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, values, 1e-4, 1e-4)
        after = SYSTEM.updated(self.tables, lookups, gradients)
        if bad is None:
            self.tables = after
        else:
            gradients[2][3, 1] = bad
        send(SYSTEM, self.proto, gradients)

    def check(self) -> None:
        for found, expected in zip(retrieve(SYSTEM), self.tables, strict=True):
            for slot, values in expected.items():
                np.testing.assert_allclose(found[slot], values, 1e-4, 1e-4)


def refused(error: type[Exception], call: Callable[[], object], *words: str) -> None:
    with pytest.raises(error) as raised:
        call()
    for word in words:
        assert word in str(raised.value), (word, str(raised.value))
