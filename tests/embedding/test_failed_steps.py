"""Steps that fail leave nothing behind, and what waits can be ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

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
from opwright import tpu
from opwright_runtime.embedding.steps import in_step_of_this_thread
from support.places import environment
from support.processes import run_program

CASES = [
    "function --failures 250",
    "function --pipelined --cores 2 --failures 250",
    "two_functions --pipelined --failures 100",
    "eager --cores 2 --failures 100",
    "session --pipelined --failures 100",
    "loop --cores 2 --failures 60",
    "threads --failures 150",
    "threads --pipelined --cores 2 --failures 150",
]


@pytest.mark.endurance
@pytest.mark.parametrize("case", CASES)
def test_failures_at_random_places(case: str) -> None:
    """Tables are what the steps make that count, each with its own ids."""
    ran = run_program("embedding.support.failing_steps", *case.split())
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    assert "steps counted" in ran.stdout


@pytest.mark.endurance
def test_failed_steps_memory_stays_level() -> None:
    ran = run_program(
        "embedding.support.failing_steps", "long", "--failures", "10000", "--pipelined"
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    print(ran.stdout)


def test_run_end_detector_session_that_succeeds_keeps_its_batch() -> None:
    """How a session on one device ended, a text of TensorFlow's alone says."""
    system = small()
    with configured(system):
        with tf.Graph().as_default() as graph:
            enqueue(system, system.draw(np.random.default_rng(1)))
        with tf.compat.v1.Session(graph=graph) as session:
            session.run([op for op in graph.get_operations() if not op.outputs])
        # A session that has failed drops it.
        assert tpu.drop_embedding_batches() == 1, (
            f"TensorFlow {tf.__version__} ends the rendezvous of a session with "
            "another text than kDeleted in embedding/tf/run_end_detector.cc"
        )


def small(**settings: Any) -> System:
    return System([Table(9, 2)], [Feature(0, (3,))], settings)


@pytest.fixture(autouse=True)
def timeout() -> Iterator[None]:
    """A wait that nothing ends fails its test: shutting down ends all of them."""
    timer = threading.Timer(120, tf.raw_ops.ShutdownDistributedTPU)
    timer.start()
    yield
    timer.cancel()


Press = Callable[[float], list[float]]


@pytest.fixture
def pressed() -> Iterator[Press]:
    """Presses Ctrl-C after some seconds, and puts down when it did."""
    timers = []
    # A process that was started in the background may have it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(delay: float) -> list[float]:
        when: list[float] = []

        def now() -> None:
            when.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        timers.append(threading.Timer(delay, now))
        timers[-1].start()
        return when

    yield press
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGINT, before)


def end_of(waiting: Callable[[], object], when: list[float]) -> None:
    """It waits until Ctrl-C, and ends then."""
    # Python looks at the signal while TensorFlow makes an exception of its own, which
    # a tf.function turns into a RuntimeError that says so.
    with pytest.raises((KeyboardInterrupt, RuntimeError), match=r"Interrupt|^$"):
        waiting()
    assert when, "it did not wait"
    assert time.monotonic() - when[0] < 20


@pytest.mark.parametrize("way", ["eager", "function"])
def test_ctrl_c_ends_a_receive(way: str, pressed: Press) -> None:
    system = small()
    with configured(system) as proto:

        def one() -> Any:
            return receive(system, proto)

        waiting = one if way == "eager" else tf.function(one, autograph=False)
        end_of(waiting, pressed(0.3))
        # The handler of signals is Python's again when nothing waits any more.
        rng = np.random.default_rng(0)
        load(system, [table.draw(rng) for table in system.tables])
        enqueue(system, system.draw(rng), "inference")
        assert len(receive(system, proto)) == 1


def test_in_step_of_this_thread_after_its_step_refuses_ops() -> None:
    """As when Ctrl-C ends a step before the threads of its replicas have begun."""
    system = small()
    with configured(system):
        batch = system.draw(np.random.default_rng(0))
        with tpu.embedding_step():
            late = in_step_of_this_thread(lambda: enqueue(system, batch))
        with ThreadPoolExecutor(1) as pool:
            for _ in range(3):
                with pytest.raises(
                    tf.errors.FailedPreconditionError, match="has failed"
                ):
                    pool.submit(late).result()
            pool.submit(enqueue, system, batch).result()  # In no step any more.
        assert tpu.drop_embedding_batches() == 1


def test_ctrl_c_ends_an_enqueue(pressed: Press) -> None:
    system = small()
    with configured(system):
        batch = system.draw(np.random.default_rng(0))
        for _ in range(128):
            enqueue(system, batch)
        end_of(lambda: enqueue(system, batch), pressed(0.3))


@pytest.mark.rotating
def test_receive_long_wait_logs_reason() -> None:
    """After ten seconds, in the log."""
    script = """
import threading
from embedding.support.cases import *
system = System([Table(9, 2)], [Feature(0, (3,))])
with configured(system) as proto:
    batch = system.draw(np.random.default_rng(0))
    for _ in range(2):
        enqueue(system, batch)
    receive(system, proto)
    threading.Timer(11, send, (system, proto, [np.ones((3, 2))])).start()
    receive(system, proto)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(TF_CPP_MIN_LOG_LEVEL="1"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    expected = (
        "RecvTPUEmbeddingActivations waits for the update of step 0, for which core 0 "
        "has not sent gradients"
    )
    assert expected in ran.stderr


def test_batches_without_activations_are_not_received() -> None:
    """BACKWARD_PASS_ONLY: refused, instead of a wait for what cannot come."""
    system = small(mode=TPUEmbeddingConfiguration.BACKWARD_PASS_ONLY)
    rng = np.random.default_rng(0)
    with configured(system) as proto:
        load(system, [table.draw(rng) for table in system.tables])
        with pytest.raises(tf.errors.FailedPreconditionError, match="BACKWARD_PASS"):
            receive(system, proto)
        enqueue(system, system.draw(rng), "unspecified")
        with pytest.raises(tf.errors.FailedPreconditionError, match="BACKWARD_PASS"):
            receive(system, proto)
        send(system, proto, draw_gradients(system, rng))
        assert tpu.embedding_step_count() == 1


def test_send_core_far_ahead_is_refused() -> None:
    system = small(
        mode=TPUEmbeddingConfiguration.BACKWARD_PASS_ONLY, num_tensor_cores=2
    )
    rng = np.random.default_rng(0)
    gradients = draw_gradients(system, rng)
    with configured(system) as proto:
        for _ in range(16):
            enqueue(system, system.draw(rng), "unspecified", ordinal=0)
            send(system, proto, gradients)
        enqueue(system, system.draw(rng), "unspecified", ordinal=0)
        with pytest.raises(tf.errors.FailedPreconditionError, match="16 steps"):
            send(system, proto, gradients)
        assert tpu.embedding_step_count() == 0


@pytest.mark.parametrize("config", [b"\xff", b"\x0a\x02\x08\x01"])
def test_configure_refused_changes_nothing(config: bytes) -> None:
    system = small()
    rng = np.random.default_rng(0)
    with configured(system) as proto:
        tables = [table.draw(rng) for table in system.tables]
        load(system, tables)
        before = retrieve(system)
        enqueue(system, system.draw(rng), "inference")
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.raw_ops.ConfigureDistributedTPU(tpu_embedding_config=config)
        (after,) = retrieve(system)
        assert (after["parameters"] == before[0]["parameters"]).all()
        assert len(receive(system, proto)) == 1


def test_run_failing_eagerly_leaves_no_batch() -> None:
    """The next step does not get its batch; more than a step has are an error."""
    embedding = tf.tpu.experimental.embedding
    strategy = tpu.software_strategy()
    with strategy.scope():
        table = embedding.TableConfig(
            8, 2, lambda shape, dtype: tf.reshape(tf.range(16, dtype=dtype), shape)
        )
        layer = embedding.TPUEmbedding(
            {"f": embedding.FeatureConfig(table, output_shape=[1])},
            embedding.SGD(0.5),
        )
        layer.build(1)

    @tf.function
    def enqueue_row(row: tf.Tensor) -> None:
        layer.enqueue({"f": tf.reshape(tf.cast(row, tf.int64), [1])}, training=True)

    def step() -> Any:
        found = layer.dequeue()["f"]
        layer.apply_gradients({"f": tf.ones((1, 2))})
        return found

    def failing() -> None:
        raise ZeroDivisionError

    for received in (False, True):
        enqueue_row(tf.constant(5))
        parts = [layer.dequeue, failing] if received else [failing]
        with pytest.raises(ZeroDivisionError):
            strategy.run(lambda parts=parts: [part() for part in parts])
        enqueue_row(tf.constant(6))
        assert strategy.run(step)[0, 0] == 12 - 0.5 * received
    for row in (1, 2, 3):
        enqueue_row(tf.constant(row))
    with pytest.raises(ZeroDivisionError):
        strategy.run(failing)
    with pytest.raises(tf.errors.FailedPreconditionError, match="3 batches"):
        enqueue_row(tf.constant(4))
    enqueue_row(tf.constant(4))
    assert strategy.run(step)[0, 0] == 8
    assert tpu.embedding_step_count() == 3
    assert tpu.drop_embedding_batches() == 0


def test_receive_after_failed_noinline_function_names_left_batch() -> None:
    """A function that is not inlined does not see how its caller ends."""
    system = small()
    rng = np.random.default_rng(0)
    batch = system.draw(rng)
    with configured(system) as proto:

        @tf.function(autograph=False, experimental_attributes={"_noinline": True})
        def inner() -> Any:
            enqueue(system, batch)
            return tf.constant(1)

        @tf.function(autograph=False)
        def outer() -> Any:
            with tf.control_dependencies([inner()]):
                check = tf.debugging.Assert(False, ["no"])
            with tf.control_dependencies([check]):
                return tf.constant(1)

        with pytest.raises(tf.errors.InvalidArgumentError):
            outer()
        with pytest.raises(tf.errors.FailedPreconditionError, match="1 batch was"):
            receive(system, proto)


def test_steps_are_left_where_they_were_entered() -> None:
    system = small()
    batch = system.draw(np.random.default_rng(0))
    with configured(system):
        outer, inner = tpu.embedding_step(), tpu.embedding_step()
        outer.__enter__()
        enqueue(system, batch)
        inner.__enter__()
        enqueue(system, batch)
        thread = ThreadPoolExecutor(1)
        with pytest.raises(RuntimeError, match="the thread that entered it"):
            thread.submit(inner.__exit__, None, None, None).result()
        # The outer one takes the inner one along.
        outer.__exit__(ValueError, ValueError(), None)
        assert tpu.drop_embedding_batches() == 0
        enqueue(system, batch)
        assert tpu.drop_embedding_batches() == 1


def test_embedding_step_count_without_configuration_raises() -> None:
    tpu.shutdown_distributed_tpu()
    for function in (tpu.embedding_step_count, tpu.drop_embedding_batches):
        with pytest.raises(RuntimeError, match="no embeddings are configured"):
            function()
