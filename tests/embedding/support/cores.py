"""Trains with four cores: logical devices of the CPU, a thread for each.

Core i is served by ops placed on CPU:i, and what it looks up comes from the batches
that are enqueued with device_ordinal i. A step updates the tables once, from the
gradients of all cores together. Run by test_order.py; the argument
`pipelined` turns pipelining on.
"""

from __future__ import annotations

import os
import sys
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

CORES, STEPS = 4, 12

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * CORES
)

from embedding.support.cases import (
    Feature,
    Lookup,
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


def joined(system: System, cores: list[list[Lookup]]) -> list[Lookup]:
    """The batches of all cores as one whose features are `CORES` times as long."""
    lookups = []
    for i, feature in enumerate(system.features):
        of_cores = [lookups[i] for lookups in cores]
        bags = [one.bags + core * feature.samples for core, one in enumerate(of_cores)]
        lookups.append(
            Lookup(
                np.concatenate(bags),
                np.concatenate([one.ids for one in of_cores]),
                np.concatenate([one.weights for one in of_cores]),
                of_cores[0].tensors,
            )
        )
    return lookups


def main() -> None:
    pipelined = "pipelined" in sys.argv
    rng = np.random.default_rng(0)
    tables = [Table(13, 6, optimizer("adagrad")), Table(9, 2, combiner="mean")]
    settings = {
        "num_tensor_cores": CORES,
        "pipeline_execution_with_tensor_core": pipelined,
    }
    system = System(
        tables, [Feature(0, (5,)), Feature(1, (5,), "sparse", weighted=True)], settings
    )
    whole = System(
        tables, [Feature(0, (5 * CORES,)), Feature(1, (5 * CORES,), "sparse")]
    )
    lookups = [[system.draw(rng) for _ in range(CORES)] for _ in range(STEPS)]
    gradients = [
        [draw_gradients(system, rng) for _ in range(CORES)] for _ in range(STEPS)
    ]
    states = [[table.draw(rng) for table in tables]]
    for step in range(STEPS):
        of_all = [np.concatenate(g) for g in zip(*gradients[step], strict=True)]
        batch = joined(system, lookups[step])
        states.append(whole.updated(states[-1], batch, of_all))

    failures: list[BaseException] = []
    with configured(system) as proto:
        load(system, states[0])

        def train(core: int) -> None:
            try:
                for step in range(STEPS):
                    enqueue(system, lookups[step][core], ordinal=core)
                for step in range(STEPS):
                    with tf.device(f"CPU:{core}"):
                        found = receive(system, proto)
                    seen = states[max(0, step - 1) if pipelined else step]
                    expected = system.expected(seen, lookups[step][core])
                    for activations, values in zip(found, expected, strict=True):
                        np.testing.assert_allclose(activations, values, 1e-4, 1e-4)
                    with tf.device(f"CPU:{core}"):
                        send(system, proto, gradients[step][core])
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=train, args=(core,), daemon=True)
            for core in range(CORES)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            if thread.is_alive():
                sys.exit(f"a core waits for ever; {failures}")
        if failures:
            raise failures[0]
        for found, expected in zip(retrieve(system), states[-1], strict=True):
            for slot, values in expected.items():
                np.testing.assert_allclose(found[slot], values, 1e-4, 1e-4)


if __name__ == "__main__":
    main()
