"""Trains with steps that fail at random places, and then with good ones.

    python failing_steps.py WAY [--cores 2] [--pipelined] [--failures 250] [--seed 0]

WAY is how steps are run: `function`, one tf.function a step; `two_functions`, one that
enqueues and one that trains, within `embedding_step`; `eager`; `session`; `loop`, three
steps in a tf.range loop; `threads`, functions from three threads at once; `long`, as
many good steps as `--failures` says, whose memory is looked at. Tables are
exact in float32: they must be what the steps make that the counter reports, bit for
bit, and each step must look up what its own ids say. Run by test_failed_steps.py.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import threading
import time
from contextlib import nullcontext
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)
from tensorflow.python.eager import cancellation

from opwright import tpu
from opwright.tpu import (
    configure_distributed_tpu,
    configure_tpu_embedding,
    shutdown_distributed_tpu,
)
from support.usage import resident

ROWS, WIDTH, SAMPLES, RATE, THREADS = 48, 4, 3, 0.25, 3
# Where a step fails. All but the last end before every core has sent.
PLACES = (
    "before",
    "enqueued",
    "received",
    "some sent",
    "nan",
    "bad id",
    "cancelled",
    "interrupted",
    "sent",
)
OWN = [place for place in PLACES if place in ("before", "enqueued", "received")]

raw: Any = tf.raw_ops


class OwnError(Exception):
    """What an op of the user's raises."""


def stop(place: Any) -> None:
    raise OwnError(place)


class Trainer:
    """Steps of a small table on some cores, and what the table must be."""

    def __init__(self, cores: int, pipelined: bool, seed: int) -> None:
        self.cores, self.pipelined = cores, pipelined
        self.rng = np.random.default_rng(seed)
        config = TPUEmbeddingConfiguration(
            num_hosts=1,
            num_tensor_cores=cores,
            mode=TPUEmbeddingConfiguration.TRAINING,
            pipeline_execution_with_tensor_core=pipelined,
        )
        table = config.table_descriptor.add(
            name="t", vocabulary_size=ROWS, dimension=WIDTH
        )
        parameters = table.optimization_parameters
        parameters.learning_rate.constant = RATE
        parameters.stochastic_gradient_descent.SetInParent()
        config.feature_descriptor.add(name="f", table_id=0, input_shape=[SAMPLES])
        self.config = config.SerializeToString()
        shutdown_distributed_tpu()
        configure_distributed_tpu()
        configure_tpu_embedding(self.config)
        self.table = self.rng.integers(-9, 9, (ROWS, WIDTH)).astype(np.float32)
        raw.LoadTPUEmbeddingStochasticGradientDescentParameters(
            parameters=self.table, num_shards=1, shard_id=0, table_id=0
        )
        self.before = self.table.copy()  # Without the last step that counted.
        self.steps = 0
        self.failures: dict[str, int] = {}

    def draw(self, low: int = 0, high: int = ROWS) -> tuple[Any, Any]:
        ids = self.rng.integers(low, high, (self.cores, SAMPLES)).astype(np.int32)
        shape = (self.cores, SAMPLES, WIDTH)
        return ids, self.rng.integers(-4, 4, shape).astype(np.float32)

    # ---- The ops of a step. `fail(place)` is an op, or raises.

    def enqueue(self, ids: Any, fail: Any) -> list[Any]:
        with tf.control_dependencies(fail("before")):
            made = [
                raw.EnqueueTPUEmbeddingIntegerBatch(
                    batch=[ids[core]], mode_override="train", device_ordinal=core
                )
                for core in range(self.cores)
            ]
        with tf.control_dependencies([op for op in made if op is not None]):
            return fail("enqueued")

    def train(self, gradients: Any, fail: Any, after: list[Any]) -> list[Any]:
        found = []
        with tf.control_dependencies(after):
            for core in range(self.cores):
                with tf.device(f"CPU:{core}"):
                    found += raw.RecvTPUEmbeddingActivations(
                        num_outputs=1, config=self.config
                    )
        with tf.control_dependencies(found if tf.inside_function() else []):
            after = fail("received")
        for core in range(self.cores):
            with tf.control_dependencies([*found, *after]), tf.device(f"CPU:{core}"):
                sent = raw.SendTPUEmbeddingGradients(
                    inputs=[gradients[core]], learning_rates=[], config=self.config
                )
            if core == 0 and self.cores > 1:
                with tf.control_dependencies([] if sent is None else [sent]):
                    after = fail("some sent")
            after = after if sent is None else [sent]
        with tf.control_dependencies(after):
            last = fail("sent")
        with tf.control_dependencies(last):
            return [tf.identity(one) for one in found]

    def in_graph(self, where: Any) -> Any:
        """`fail` for graphs: an op of Python's that raises at the place `where`."""

        def fail(place: str) -> list[Any]:
            number = PLACES.index(place)

            def check(at: Any) -> Any:
                if int(at) == number:
                    stop(place)
                return np.int32(0)

            return [tf.numpy_function(check, [where], tf.int32)]

        return fail

    def eagerly(self, place: str | None) -> Any:
        def fail(here: str) -> list[Any]:
            if here == place:
                stop(here)
            return []

        return fail

    # ---- What must hold.

    def after(self, ids: Any, gradients: Any) -> Any:
        changed = self.table.copy()
        np.subtract.at(
            changed, ids.reshape(-1), RATE * gradients.reshape(-1, WIDTH)
        )  # Sums are exact, in any order.
        return changed

    def counted(self, ids: Any, gradients: Any) -> None:
        self.steps += 1
        self.before, self.table = self.table, self.after(ids, gradients)

    def check_found(self, ids: Any, found: Any) -> None:
        for core in range(self.cores):
            seen = np.asarray(found[core])
            states = [self.table, self.before] if self.pipelined else [self.table]
            rows = [(seen == state[ids[core]]).all() for state in states]
            assert any(rows), (
                f"step {self.steps}, core {core}: looked up {seen} for {ids[core]}, "
                f"not {self.table[ids[core]]}"
            )

    def check_tables(self) -> None:
        assert tpu.embedding_step_count() == self.steps
        found = raw.RetrieveTPUEmbeddingStochasticGradientDescentParameters(
            num_shards=1, shard_id=0, table_id=0
        ).numpy()
        assert (found == self.table).all(), np.argwhere(found != self.table)
        self.before = self.table

    def damaged(self, place: str | None, ids: Any, gradients: Any) -> tuple[Any, Any]:
        core, sample = self.rng.integers(self.cores), self.rng.integers(SAMPLES)
        if place == "nan":
            gradients = gradients.copy()
            gradients[core, sample, 0] = np.nan
        if place == "bad id":
            ids = ids.copy()
            ids[core, sample] = ROWS
        return ids, gradients


class Ways:
    """How a step is run."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = t = trainer
        gradient = tf.TensorSpec((t.cores, SAMPLES, WIDTH), tf.float32)
        ids = tf.TensorSpec((t.cores, SAMPLES), tf.int32)
        place = tf.TensorSpec((), tf.int32)

        def whole(ids: Any, gradients: Any, where: Any) -> Any:
            fail = t.in_graph(where)
            return t.train(gradients, fail, t.enqueue(ids, fail))

        def three(ids: Any, gradients: Any, where: Any) -> Any:
            found = tf.TensorArray(tf.float32, 3)
            for i in tf.range(3):
                out = whole(ids[i], gradients[i], where[i])
                found = found.write(i, tf.stack(out))
            return found.stack()

        self.function = tf.function(whole, input_signature=[ids, gradient, place])
        self.enqueue = tf.function(
            lambda ids, where: t.enqueue(ids, t.in_graph(where)),
            input_signature=[ids, place],
        )
        self.train = tf.function(
            lambda gradients, where: t.train(gradients, t.in_graph(where), []),
            input_signature=[gradient, place],
        )
        self.three = tf.function(three)
        # A step whose first core receives twice: it waits for a batch that never comes.
        self.starving = tf.function(
            lambda ids: [
                *t.enqueue(ids, t.eagerly(None)),
                *raw.RecvTPUEmbeddingActivations(num_outputs=1, config=t.config),
                *raw.RecvTPUEmbeddingActivations(num_outputs=1, config=t.config),
            ][-2:],
            input_signature=[ids],
        ).get_concrete_function()  # Nothing is traced, then, when an interrupt comes.
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.feeds = [
                tf.compat.v1.placeholder(one.dtype, one.shape)
                for one in (ids, gradient, place)
            ]
            self.fetches = whole(*self.feeds)
        self.run_session = tf.compat.v1.Session(graph=self.graph)

    def run(self, way: str, ids: Any, gradients: Any, place: str | None) -> Any:
        where = tf.constant(-1 if place is None else PLACES.index(place), tf.int32)
        t = self.trainer
        if way == "function":
            return self.function(ids, gradients, where)
        if way == "two_functions":
            with tpu.embedding_step():
                self.enqueue(ids, where)
                return self.train(gradients, where)
        if way == "eager":
            fail = t.eagerly(place)
            with tpu.embedding_step():
                after = t.enqueue(tf.constant(ids), fail)
                return t.train(tf.constant(gradients), fail, after)
        assert way == "session"
        feeds = dict(zip(self.feeds, (ids, gradients, where.numpy()), strict=True))
        return self.run_session.run(self.fetches, feeds)

    def cancelled(self, ids: Any, gradients: Any) -> bool:
        """Whether a step that is cancelled at some time was done before that."""
        manager = cancellation.CancellationManager()
        function = manager.get_cancelable_function(
            self.function.get_concrete_function()
        )
        delay = self.trainer.rng.uniform(0, 0.004)
        timer = threading.Timer(delay, manager.start_cancel)
        timer.start()
        try:
            function(ids, gradients, tf.constant(-1))
            return True
        except tf.errors.OpError:
            return False
        finally:
            timer.join()

    def interrupted(self, ids: Any) -> None:
        start = time.monotonic()
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            self.starving(tf.constant(ids, tf.int32))
        except KeyboardInterrupt:
            pass
        except RuntimeError as error:  # It came while TensorFlow made one of its own.
            assert "KeyboardInterrupt" in str(error)
        else:
            raise AssertionError("it did not wait")
        assert time.monotonic() - start < 20


def train(way: str, trainer: Trainer, failures: int) -> None:
    ways, rng = Ways(trainer), trainer.rng
    interrupts = 4
    places = [place for place in PLACES if trainer.cores > 1 or place != "some sent"]
    failed = 0
    while failed < failures:
        place = str(rng.choice(places)) if rng.random() < 0.7 else None
        ids, gradients = trainer.draw()
        if place == "interrupted":
            if way == "session" or interrupts == 0:
                continue
            interrupts -= 1
            ways.interrupted(ids)
        elif place == "cancelled":
            if way != "function":
                continue
            before = tpu.embedding_step_count()
            done = ways.cancelled(ids, gradients)
            counted = tpu.embedding_step_count() - before
            assert counted or not done
            if counted:
                trainer.counted(ids, gradients)
        else:
            bad = trainer.damaged(place, ids, gradients)
            before = tpu.embedding_step_count()
            try:
                found = ways.run(way, *bad, place)
            except (OwnError, tf.errors.OpError) as error:
                assert place is not None, error
                if place in ("nan", "bad id"):
                    assert isinstance(error, tf.errors.InvalidArgumentError), error
            else:
                assert place is None
                trainer.check_found(ids, found)
            assert tpu.embedding_step_count() - before == (place in (None, "sent"))
            if place in (None, "sent"):
                trainer.counted(ids, gradients)
        if place is not None:
            failed += 1
            trainer.failures[place] = trainer.failures.get(place, 0) + 1
        if rng.random() < 0.05:
            trainer.check_tables()
    for _ in range(50):
        ids, gradients = trainer.draw()
        trainer.check_found(ids, ways.run(way, ids, gradients, None))
        trainer.counted(ids, gradients)
    trainer.check_tables()


def train_in_loops(trainer: Trainer, failures: int) -> None:
    """Iterations before the one that fails count, and none after it."""
    ways = Ways(trainer)
    for i in range(failures + 20):
        failing = int(trainer.rng.integers(3)) if i < failures else 3
        place = str(trainer.rng.choice([*OWN, "sent"]))
        steps = [trainer.draw() for _ in range(3)]
        where = np.full(3, -1, np.int32)
        if failing < 3:
            where[failing] = PLACES.index(place)
            trainer.failures[place] = trainer.failures.get(place, 0) + 1
        before = tpu.embedding_step_count()
        ids, gradients = (np.stack(column) for column in zip(*steps, strict=True))
        try:
            found = ways.three(ids, gradients, where)
        except tf.errors.OpError:
            assert failing < 3
            found = None
        counted = tpu.embedding_step_count() - before
        assert counted == failing + (failing < 3 and place == "sent")
        for step in range(counted):
            if found is not None:
                trainer.check_found(ids[step], found[step])
            trainer.counted(ids[step], gradients[step])
        if i % 10 == 0:
            trainer.check_tables()
    trainer.check_tables()


def train_in_threads(trainer: Trainer, failures: int) -> None:
    """Each thread has rows of its own, and knows which of its steps count."""
    ways = Ways(trainer)
    each = ROWS // THREADS
    errors: list[BaseException] = []
    rngs = trainer.rng.spawn(THREADS)
    lock = threading.Lock()

    def run(number: int) -> None:
        rng, low = rngs[number], number * each
        own = trainer.table[low : low + each].copy()
        earlier = own
        counted = 0
        try:
            for i in range(failures // THREADS + 50):
                failing = i < failures // THREADS and rng.random() < 0.7
                place = str(rng.choice([*OWN, "sent", "nan"])) if failing else None
                shape = (trainer.cores, SAMPLES)
                ids = rng.integers(low, low + each, shape).astype(np.int32)
                gradients = rng.integers(-4, 4, (*shape, WIDTH)).astype(np.float32)
                sent = gradients.copy()
                if place == "nan":
                    sent[0, 0, 0] = np.nan
                try:
                    found = ways.run("function", ids, sent, place)
                except tf.errors.OpError:
                    assert place is not None
                else:
                    assert place is None
                    for core in range(trainer.cores):
                        seen, rows = np.asarray(found[core]), ids[core] - low
                        states = [own, earlier] if trainer.pipelined else [own]
                        assert any((seen == s[rows]).all() for s in states), number
                if place in (None, "sent"):
                    changed = own.copy()
                    np.subtract.at(
                        changed,
                        ids.reshape(-1) - low,
                        RATE * gradients.reshape(-1, WIDTH),
                    )
                    earlier, own = own, changed
                    counted += 1
                if place is not None:
                    with lock:
                        kinds = trainer.failures
                        kinds[place] = kinds.get(place, 0) + 1
            with lock:
                trainer.steps += counted
                trainer.table[low : low + each] = own
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(number,), daemon=True)
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread waits for ever"
    if errors:
        raise errors[0]
    trainer.check_tables()


def train_for_long(trainer: Trainer, steps: int) -> None:
    """Good steps, one in ten between two functions: memory stays level."""
    ways = Ways(trainer)
    sizes = []
    for i in range(steps):
        ids, gradients = trainer.draw()
        ways.run("two_functions" if i % 10 == 0 else "function", ids, gradients, None)
        trainer.counted(ids, gradients)
        if i in (steps // 5, steps - 1):
            sizes.append(resident() >> 20)
    trainer.check_tables()
    print(f"{steps} steps: {sizes[0]} MiB after a fifth, {sizes[1]} MiB at the end")
    assert sizes[1] - sizes[0] <= 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    ways = ("function", "two_functions", "eager", "session", "loop", "threads", "long")
    parser.add_argument("way", choices=ways)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--pipelined", action="store_true")
    parser.add_argument("--failures", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # Keras imports jax where there is one, whose callback may swallow an interrupt.
    gc.callbacks.clear()
    # A process that was started in the background may have it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * options.cores
    )
    trainer = Trainer(options.cores, options.pipelined, options.seed)
    with nullcontext() if options.cores > 1 else tf.device("CPU:0"):
        if options.way == "loop":
            train_in_loops(trainer, options.failures)
        elif options.way == "long":
            train_for_long(trainer, options.failures)
        elif options.way == "threads":
            train_in_threads(trainer, options.failures)
        else:
            train(options.way, trainer, options.failures)
    kinds = ", ".join(f"{n} {place}" for place, n in sorted(trainer.failures.items()))
    print(f"{trainer.steps} steps counted; failed: {kinds}")


if __name__ == "__main__":
    main()
