"""The parameter server and the worker: synchronous training, in opwright's classes.

A step goes like this:

1. The server puts a token with the step's number into the queue of every worker.
2. A worker takes its token, reads the weights, computes a gradient and adds it to the
   accumulator under the token's number.
3. The server takes the sum as soon as the accumulator holds the gradients of
   `required` workers. That moves the accumulator on to the next step, so that a
   gradient that comes late has too low a number and is dropped.
4. The server updates the weights by the mean, and goes on with the next step.

Why it is exact: a gradient counts if its number is not below the accumulator's step. No
token is ahead of that step, so the two are equal: the update of the step has not begun,
and that of the step before was made before the token came. So the weights that the
worker read are those of its step, and of no other.

Why a gradient counts once: each worker has a queue of its own, which gives one token a
step. From a common queue a fast worker would also take the token of a dead one, and
count twice. A token that dies with its worker is not replaced, as it is unknown whether
its gradient has arrived; that is why `required` is less than the number of workers.

All this is written for graphs and sessions: their ops run where their device is, and
find the server's resources by name, from any process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from aggregation import problem
from aggregation.journal import Done, Event, Ready, Sending, Update, dumps
from opwright import Scope, TFloat32, TInt64
from opwright.array import ConcatV2, Placeholder, SplitV
from opwright.linalg import Einsum
from opwright.math import RealDiv, Sub, Sum
from opwright.nn import L2Loss
from opwright.queue import (
    FIFOQueueV2,
    QueueCloseV2,
    QueueDequeueManyV2,
    QueueDequeueV2,
    QueueEnqueueV2,
    QueueSizeV2,
)
from opwright.train import (
    ResourceAccumulatorApplyGradient,
    ResourceAccumulatorNumAccumulated,
    ResourceAccumulatorSetGlobalStep,
    ResourceAccumulatorTakeGradient,
    ResourceApplyGradientDescent,
    ResourceConditionalAccumulator,
)
from opwright.variables import AssignVariableOp, ReadVariableOp, VarHandleOp

SERVER = "/job:ps/task:0"
WORKER = "/job:worker/task:{}"


class State:
    """What lives on the parameter server, under names by which every task finds it.

    A gradient travels with a receipt, a one at its worker's place among zeros. The
    accumulator adds up both in one go, so that the sum itself says whose gradients are
    in it. For that it has to be the sum: a mean would hide how many there were.
    """

    def __init__(self, server: Scope, workers: int) -> None:
        self.weights = VarHandleOp.create(
            server,
            TFloat32,
            [problem.FEATURES],
            VarHandleOp.Options(shared_name="weights"),
        )
        self.gradients = ResourceConditionalAccumulator.create(
            server,
            TFloat32,
            [problem.FEATURES + workers],
            ResourceConditionalAccumulator.Options(
                shared_name="gradients", reduction_type="SUM"
            ),
        )
        scalars = FIFOQueueV2.Options(shapes=[[]])
        self.arrivals = FIFOQueueV2.create(
            server, [TInt64], scalars.with_shared_name("arrivals")
        )
        self.tokens = [
            FIFOQueueV2.create(
                server, [TInt64], scalars.with_shared_name(f"tokens_{worker}")
            )
            for worker in range(workers)
        ]


def run_server(
    cluster: Mapping[str, Sequence[str]],
    *,
    steps: int,
    required: int,
    learning_rate: float,
) -> None:
    """Trains for `steps` steps, then serves what is left until the launcher ends."""
    task = tf.distribute.Server(cluster, "ps", 0)
    workers = len(cluster["worker"])
    with tf.Graph().as_default():
        server = Scope.current().with_device(SERVER)
        state = State(server, workers)
        step = Placeholder.create(server, TInt64)

        reset = [
            AssignVariableOp.create(
                server, state.weights, np.zeros(problem.FEATURES, np.float32)
            ),
            # Named resources outlive sessions: say where the count begins.
            ResourceAccumulatorSetGlobalStep.create(server, state.gradients, step),
        ]
        everyone = QueueDequeueManyV2.create(server, state.arrivals, workers, [TInt64])
        release = [
            QueueEnqueueV2.create(server, queue, [step]) for queue in state.tokens
        ]

        taken = ResourceAccumulatorTakeGradient.create(
            server, state.gradients, required, TFloat32
        )
        total, receipts = SplitV.create(
            server, taken, [problem.FEATURES, workers], 0, num_split=2
        ).output
        mean = RealDiv.create(server, total, Sum.create(server, receipts, [0]))
        update = ResourceApplyGradientDescent.create(
            server, state.weights, learning_rate, mean
        )
        weights = ReadVariableOp.create(
            server.with_control_dependencies([update]), state.weights, TFloat32
        )

        close = [QueueCloseV2.create(server, queue) for queue in state.tokens]
        pending = ResourceAccumulatorNumAccumulated.create(server, state.gradients)

        with _session(task, SERVER) as session:
            session.run(reset, {step: 0})
            # Without this barrier the first workers to start would train alone.
            session.run(everyone.components)
            for number in range(steps):
                session.run(release, {step: number})
                counts, values = session.run([receipts, weights])
                _report(Update(number, counts.tolist(), values.tolist()))
            session.run(close)
            _report(Done(int(session.run(pending))))
    task.join()


def run_worker(
    cluster: Mapping[str, Sequence[str]], index: int, *, seconds: float
) -> None:
    """Computes gradients until the server closes its queue of tokens.

    Args:
        cluster: addresses of the tasks, by job.
        index: number of this worker.
        seconds: how long a gradient takes on average. This one would take no time.
    """
    workers = len(cluster["worker"])
    task = tf.distribute.Server(cluster, "worker", index)
    device = WORKER.format(index)
    with tf.Graph().as_default(), tf.device(device):
        here = Scope.current()
        server = here.with_device(SERVER)
        state = State(server, workers)
        tokens = state.tokens[index]
        arrive = QueueEnqueueV2.create(
            server, state.arrivals, [tf.constant(index, tf.int64)]
        )
        token = QueueDequeueV2.create(server, tokens, [TInt64]).components[0]
        waiting = QueueSizeV2.create(server, tokens)

        step = Placeholder.create(here, TInt64)
        inputs = Placeholder.create(here, TFloat32)
        targets = Placeholder.create(here, TFloat32)
        weights = ReadVariableOp.create(server, state.weights, TFloat32).value
        outputs = Einsum.create(here, [inputs, weights], "bf,f->b")
        error = Sub.create(here, outputs, targets)
        loss = RealDiv.create(here, L2Loss.create(here, error), problem.BATCH)
        (gradient,) = tf.gradients(loss.z, [weights])
        receipt = np.eye(workers, dtype=np.float32)[index]
        send = ResourceAccumulatorApplyGradient.create(
            server,
            state.gradients,
            step,
            ConcatV2.create(here, [gradient, receipt], 0),
        )

        pace = np.random.default_rng(index)
        with _session(task, SERVER, device) as session:
            session.run(arrive)
            _report(Ready(index))
            while True:
                try:
                    number = int(session.run(token))
                    while session.run(waiting):
                        # It fell behind; the steps between are over.
                        number = int(session.run(token))
                except tf.errors.OutOfRangeError:
                    return
                x, y = problem.batch(index, number)
                time.sleep(pace.uniform(0.5, 1.5) * seconds)
                _report(Sending(index, number))
                session.run(send, {step: number, inputs: x, targets: y})


def _session(task: tf.distribute.Server, *devices: str) -> tf.compat.v1.Session:
    """A session of this task that needs `devices` only.

    By default a session waits for every task of the cluster, dead ones included.
    """
    config = tf.compat.v1.ConfigProto(device_filters=devices)
    return tf.compat.v1.Session(task.target, config=config)


def _report(event: Event) -> None:
    print(dumps(event), flush=True)
