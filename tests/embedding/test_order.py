"""Steps of TPU embeddings in every order that programs bring them in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Waiting
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation

from embedding.support.cases import (
    Feature,
    Lookup,
    System,
    Table,
    configure,
    configured,
    draw_gradients,
    enqueue,
    f32,
    load,
    optimizer,
    receive,
    retrieve,
    send,
)
from embedding.support.reference import Array
from opwright import Scope
from opwright.tpu import (
    EnqueueTPUEmbeddingArbitraryTensorBatch,
    RecvTPUEmbeddingActivations,
    SendTPUEmbeddingGradients,
    embedding_step,
    shutdown_distributed_tpu,
)
from support.processes import run_program

# On a busy machine, too, a call that can go on has gone on SOON, and one that is ended
# has ended long before; A_WHILE shows that one waits.
SOON, AT_ONCE, A_WHILE = 60.0, 20.0, 0.1
MOST_QUEUED = 128


def small(**settings: Any) -> System:
    return System(
        [Table(11, 5, optimizer("adagrad")), Table(7, 3, combiner="mean")],
        [Feature(0, (4,)), Feature(1, (4,), "sparse"), Feature(0, (4,), "dense")],
        settings,
    )


class Run:
    """A system's steps, drawn beforehand, and what they give one after the other."""

    def __init__(self, system: System, steps: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.system = system
        self.tables = [table.draw(rng) for table in system.tables]
        self.lookups = [system.draw(rng) for _ in range(steps)]
        self.gradients = [draw_gradients(system, rng) for _ in range(steps)]

    def after(self, steps: int) -> list[dict[str, Array]]:
        tables = self.tables
        for step in range(steps):
            tables = self.system.updated(
                tables, self.lookups[step], self.gradients[step]
            )
        return tables

    def check(self, found: list[tf.Tensor], step: int, updates: int) -> None:
        """The activations of a step, after this many updates."""
        expected = self.system.expected(self.after(updates), self.lookups[step])
        for activations, values in zip(found, expected, strict=True):
            np.testing.assert_allclose(activations, values, 1e-4, 1e-5)

    def check_tables(self, updates: int) -> None:
        for found, expected in zip(
            retrieve(self.system), self.after(updates), strict=True
        ):
            for slot, values in expected.items():
                np.testing.assert_allclose(found[slot], values, 1e-4, 1e-5)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor
        # What a failed test left waiting ends here.
        shutdown_distributed_tpu()


def waits(future: Future[Any]) -> bool:
    try:
        future.result(A_WHILE)
    except Waiting:
        return True
    return False


def test_receive_first_in_a_function() -> None:
    """An enqueue op has no order with a receive op, and may come after it."""
    run = Run(small(), 3)
    with configured(run.system) as proto:
        load(run.system, run.tables)

        @tf.function(autograph=False)
        def step(tensors: Any, gradients: Any) -> list[tf.Tensor]:
            scope = Scope.current()
            outputs = RecvTPUEmbeddingActivations.create(scope, 3, proto).outputs
            options = EnqueueTPUEmbeddingArbitraryTensorBatch.Options(
                combiners=["sum", "mean"]
            )
            where, ids, weights = tensors
            EnqueueTPUEmbeddingArbitraryTensorBatch.create(
                scope, where, ids, weights, "train", options
            )
            SendTPUEmbeddingGradients.create(scope, gradients, [], proto)
            return list(outputs)

        for i in range(3):
            columns = zip(*(one.tensors for one in run.lookups[i]), strict=True)
            tensors = [list(column) for column in columns]
            found = step(tensors, [f32(g) for g in run.gradients[i]])
            run.check(found, i, i)
        run.check_tables(3)


def test_receive_before_enqueue_is_served(pool: ThreadPoolExecutor) -> None:
    run = Run(small(), 1)
    with configured(run.system) as proto:
        load(run.system, run.tables)
        received = pool.submit(receive, run.system, proto)
        assert waits(received)
        enqueue(run.system, run.lookups[0])
        run.check(received.result(SOON), 0, 0)


@pytest.mark.parametrize("pipelined", [False, True])
def test_several_batches_in_flight(pipelined: bool) -> None:
    """With pipelining, a lookup that could come before an update does."""
    run = Run(small(pipeline_execution_with_tensor_core=pipelined), 6)
    with configured(run.system) as proto:
        load(run.system, run.tables)
        for lookups in run.lookups:
            enqueue(run.system, lookups)
        for i in range(6):
            found = receive(run.system, proto)
            run.check(found, i, max(0, i - 1) if pipelined else i)
            send(run.system, proto, run.gradients[i])
        run.check_tables(6)


def test_receive_waits_for_previous_update(pool: ThreadPoolExecutor) -> None:
    run = Run(small(), 2)
    with configured(run.system) as proto:
        load(run.system, run.tables)
        for lookups in run.lookups:
            enqueue(run.system, lookups)
        run.check(receive(run.system, proto), 0, 0)
        second = pool.submit(receive, run.system, proto)
        assert waits(second)
        send(run.system, proto, run.gradients[0])
        run.check(second.result(SOON), 1, 1)


def test_receive_pipelined_waits_for_update_before_previous(
    pool: ThreadPoolExecutor,
) -> None:
    run = Run(small(pipeline_execution_with_tensor_core=True), 3)
    with configured(run.system) as proto:
        load(run.system, run.tables)
        for lookups in run.lookups:
            enqueue(run.system, lookups)
        run.check(receive(run.system, proto), 0, 0)
        run.check(receive(run.system, proto), 1, 0)
        third = pool.submit(receive, run.system, proto)
        assert waits(third)
        send(run.system, proto, run.gradients[0])
        run.check(third.result(SOON), 2, 1)
        send(run.system, proto, run.gradients[1])
        send(run.system, proto, run.gradients[2])
        run.check_tables(3)


@pytest.mark.parametrize("pipelined", [False, True])
def test_inference_between_steps_sees_updates(pipelined: bool) -> None:
    """It wants no gradients, and sees every update before it."""
    run = Run(small(pipeline_execution_with_tensor_core=pipelined), 4)
    with configured(run.system) as proto:
        load(run.system, run.tables)
        for i in range(4):
            enqueue(run.system, run.lookups[i], "inference")
            run.check(receive(run.system, proto), i, i)
            enqueue(run.system, run.lookups[i])
            receive(run.system, proto)
            send(run.system, proto, run.gradients[i])
        enqueue(run.system, run.lookups[0], "inference")
        run.check(receive(run.system, proto), 0, 4)
        run.check_tables(4)


def test_lookups_that_begin_before_they_are_received() -> None:
    """Of batches so large that threads share them; a write in between comes first."""
    wide = System(
        [Table(40, 160, optimizer("adagrad")), Table(30, 64, combiner="mean")],
        [Feature(0, (900,)), Feature(1, (500,), "sparse"), Feature(0, (700,), "dense")],
    )
    run, other = Run(wide, 4), Run(wide, 1, seed=1)
    with configured(wide) as proto:
        load(wide, other.tables)
        enqueue(wide, run.lookups[0], "inference")
        load(wide, run.tables)
        run.check(receive(wide, proto), 0, 0)
        all_found = []
        for i in range(3):
            enqueue(wide, run.lookups[i])
            all_found.append(receive(wide, proto))
            send(wide, proto, run.gradients[i])
        with pytest.raises(RuntimeError, match="as planned"), embedding_step():
            enqueue(wide, run.lookups[0])
            raise RuntimeError("as planned")
        enqueue(wide, run.lookups[3], "inference")
        all_found.append(receive(wide, proto))
        run.check_tables(3)
        # What was received is the program's alone.
        for i, found in enumerate(all_found):
            run.check(found, i, i)
        enqueue(wide, run.lookups[1])  # It is not received.


@pytest.mark.rotating
@pytest.mark.parametrize("pipelined", [False, True])
def test_one_thread_enqueues_and_another_trains(
    pool: ThreadPoolExecutor, pipelined: bool
) -> None:
    """More batches than the queue holds; results do not depend on who is faster."""
    steps = MOST_QUEUED + 40
    run = Run(small(pipeline_execution_with_tensor_core=pipelined), steps)
    results = []
    for producer_pause, consumer_pause in ((0, 0), (1e-4, 0), (0, 1e-4)):
        with configured(run.system) as proto:
            load(run.system, run.tables)

            def produce(pause: float = producer_pause) -> None:
                for lookups in run.lookups:
                    enqueue(run.system, lookups)
                    time.sleep(pause)

            producing = pool.submit(produce)
            for gradients in run.gradients:
                receive(run.system, proto)
                time.sleep(consumer_pause)
                send(run.system, proto, gradients)
            producing.result(SOON)
            results.append(retrieve(run.system))
    for found in results[1:]:
        for first, second in zip(results[0], found, strict=True):
            for slot in first:
                assert (first[slot] == second[slot]).all()
    if not pipelined:
        for first, expected in zip(results[0], run.after(steps), strict=True):
            np.testing.assert_allclose(
                first["parameters"], expected["parameters"], 1e-3, 1e-3
            )


def test_enqueue_full_queue_waits(pool: ThreadPoolExecutor) -> None:
    run = Run(small(), 1)
    with configured(run.system) as proto:
        for _ in range(MOST_QUEUED):
            enqueue(run.system, run.lookups[0], "inference")
        one_more = pool.submit(enqueue, run.system, run.lookups[0], "inference")
        assert waits(one_more)
        receive(run.system, proto)
        one_more.result(SOON)


def cancelled_at_once(pool: ThreadPoolExecutor, function: Callable[[], object]) -> None:
    """Runs a tf.function that waits, cancels it, and sees it end."""
    manager = cancellation.CancellationManager()
    graph = tf.function(function, autograph=False).get_concrete_function()
    running = pool.submit(manager.get_cancelable_function(graph))
    assert waits(running)
    start = time.perf_counter()
    manager.start_cancel()
    with pytest.raises(tf.errors.CancelledError):
        running.result(SOON)
    assert time.perf_counter() - start < AT_ONCE


def test_receive_cancelled_takes_no_batch(pool: ThreadPoolExecutor) -> None:
    """The next batch goes to the next receive op, not to the one that is gone."""
    run = Run(small(), 1)
    with configured(run.system) as proto:
        load(run.system, run.tables)
        for _ in range(3):
            cancelled_at_once(pool, lambda: receive(run.system, proto))
        enqueue(run.system, run.lookups[0])
        run.check(receive(run.system, proto), 0, 0)
        send(run.system, proto, run.gradients[0])
        run.check_tables(1)


def test_receive_in_a_function_that_was_cancelled_before() -> None:
    run = Run(small(), 1)
    with configured(run.system) as proto:
        load(run.system, run.tables)
        enqueue(run.system, run.lookups[0])
        manager = cancellation.CancellationManager()
        receives = tf.function(lambda: receive(run.system, proto), autograph=False)
        cancelled = manager.get_cancelable_function(receives.get_concrete_function())
        manager.start_cancel()
        with pytest.raises(tf.errors.CancelledError):
            cancelled()
        run.check(receive(run.system, proto), 0, 0)


def test_enqueue_cancelled_adds_no_batch(pool: ThreadPoolExecutor) -> None:
    """A batch that found the queue full is not enqueued later."""
    run = Run(small(), 2)
    with configured(run.system) as proto:
        load(run.system, run.tables)
        for _ in range(MOST_QUEUED):
            enqueue(run.system, run.lookups[0], "inference")
        cancelled_at_once(
            pool, lambda: enqueue(run.system, run.lookups[1], "inference")
        )
        for _ in range(MOST_QUEUED):
            run.check(receive(run.system, proto), 0, 0)
        assert waits(pool.submit(receive, run.system, proto))
        shutdown_distributed_tpu()


def test_receive_session_timeout_raises_deadline_exceeded() -> None:
    system = small()
    with configured(system) as proto, tf.Graph().as_default() as graph:
        outputs = receive(system, proto)
        soon = tf.compat.v1.RunOptions(timeout_in_ms=100)
        with tf.compat.v1.Session(graph=graph) as session:
            start = time.perf_counter()
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(outputs, options=soon)
            assert time.perf_counter() - start < AT_ONCE


@pytest.mark.parametrize("again", [False, True])
def test_receive_waiting_ends_with_configuration(
    pool: ThreadPoolExecutor, again: bool
) -> None:
    run = Run(small(), 1)
    with configured(run.system) as proto:
        received = pool.submit(receive, run.system, proto)
        assert waits(received)
        if again:
            configure(proto)
        else:
            shutdown_distributed_tpu()
        with pytest.raises((tf.errors.FailedPreconditionError, tf.errors.OpError)):
            received.result(SOON)
        if again:
            load(run.system, run.tables)
            enqueue(run.system, run.lookups[0])
            run.check(receive(run.system, proto), 0, 0)


def test_many_waiting_receives_hold_no_threads(pool: ThreadPoolExecutor) -> None:
    """More of them than TensorFlow has threads; other ops still run."""
    run = Run(small(), 1)
    with configured(run.system) as proto, tf.Graph().as_default() as graph:
        every = [receive(run.system, proto) for _ in range(40)]
        product = tf.linalg.matmul(tf.ones([300, 300]), tf.ones([300, 300]))
        with tf.compat.v1.Session(graph=graph) as session:
            running = pool.submit(session.run, every)
            assert waits(running)
            session.run(product)
            for _ in range(40):
                pool.submit(enqueue, run.system, run.lookups[0], "inference")
            assert len(running.result(SOON)) == 40


@pytest.mark.rotating
@pytest.mark.parametrize("pipelined", ["", "pipelined"])
def test_several_cores(pipelined: str) -> None:
    """A process of its own, whose CPU is four logical devices."""
    done = run_program("embedding.support.cores", pipelined, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def test_ids_beyond_32_bits() -> None:
    """A table of more rows than 2^31, of which only the last page is touched."""
    rows, shards = 2**31 + 10**5, 20000
    system = System([Table(rows, 1)], [Feature(0, (3,), "dense")])
    with configured(system) as proto:
        count = rows // shards
        first = rows - count
        values = np.arange(count, dtype=np.float64)[:, None] / count
        load(system, [{"parameters": values}], num_shards=shards, shard_id=shards - 1)
        ids = np.array([rows - 1, first, rows - 1])
        tensors = (tf.zeros([0], tf.int32), tf.constant(ids), tf.zeros([0]))
        enqueue(system, [Lookup(np.arange(3), ids, np.ones(3), tensors)])
        (found,) = receive(system, proto)
        np.testing.assert_allclose(found[:, 0], values[[-1, 0, -1], 0], 1e-6)
        send(system, proto, [np.ones((3, 1))])
        after = retrieve(system, num_shards=shards, shard_id=shards - 1)
        expected = values.copy()
        expected[-1] -= 0.25
        expected[0] -= 0.125
        np.testing.assert_allclose(after[0]["parameters"], expected, 1e-5, 1e-6)
