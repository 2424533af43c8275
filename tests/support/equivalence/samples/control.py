"""Ops that call functions, branch, loop, or call Python."""

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import script_ops

from support.equivalence.modes import EAGER, FUNCTION, GRAPH
from support.equivalence.samples.kit import Samples, function, real
from support.equivalence.samples.variables import variable

SAMPLES = Samples()

NOT_EAGER = (GRAPH, FUNCTION)

VECTOR = tf.TensorSpec([3], tf.float32)
X = real(3)


@function(VECTOR)
def double(x):
    return x * 2


@function(VECTOR)
def square(x):
    return x * x


@function(VECTOR)
def is_small(x):
    return tf.reduce_sum(tf.abs(x)) < 100


@function(tf.int32, VECTOR)
def add_index(i, x):
    return x + tf.cast(i, tf.float32)


@function(VECTOR, VECTOR)
def weigh(x, w):
    return x * w + 1


FLOATS = {"Tout": [tf.float32], "output_shapes": [[3]]}
for condition in (True, False):
    SAMPLES.each(
        "If StatelessIf",
        condition,
        [X],
        then_branch=double,
        else_branch=square,
        **FLOATS,
    )
SAMPLES.each("Case StatelessCase", 1, [X], branches=[double, square], **FLOATS)
SAMPLES.each(
    "While StatelessWhile",
    [X],
    cond=is_small,
    body=double,
    output_shapes=[[3]],
    parallel_iterations=2,
)
SAMPLES.add("For", 1, 9, 3, [X], body=add_index)
SAMPLES.each(
    "PartitionedCall StatefulPartitionedCall", [X], Tout=[tf.float32], f=square
)
SAMPLES.add(
    "SymbolicGradient", [X, X + 1], Tout=[tf.float32], f=square, modes=NOT_EAGER
)
SAMPLES.add(
    "RemoteCall",
    "/job:localhost/replica:0/task:0/device:CPU:0",
    [X],
    Tout=[tf.float32],
    f=square,
)
SAMPLES.add(
    "MapDefun",
    [real(2, 3)],
    [X],
    output_types=[tf.float32],
    output_shapes=[[3]],
    f=weigh,
    max_intra_op_parallelism=2,
)
BATCH = {
    "num_batch_threads": 1,
    "max_batch_size": 1,
    "batch_timeout_micros": 1,
    "max_enqueued_batches": 3,
    "allowed_batch_sizes": [1],
    "enable_large_batch_splitting": False,
}


@function(tf.TensorSpec([None, 3], tf.float32), VECTOR)
def weigh_batch(x, w):
    return x * w


@SAMPLES.program()
def batch_function(run):
    run.BatchFunction(
        [real(1, 3)],
        [X],
        f=weigh_batch,
        Tout=[tf.float32],
        **BATCH,
        shared_name=run.unique("batch"),
    )


# In a function, graph optimizers make it end the process.
@SAMPLES.program(modes=(EAGER, GRAPH))
def xla_launch(run):
    run.XlaLaunchV2(
        [X], Tresults=[tf.float32], constants=[], resources=[], function=square
    )


def shift(x):
    return np.asarray(x) + np.float32(1)


# The registry of Python functions does not keep them alive.
EAGER_SHIFT = script_ops.EagerFunc(lambda x: x + 1, [tf.float32], is_grad_func=False)
SAMPLES.each(
    "PyFunc PyFuncStateless",
    [X],
    token=script_ops._py_funcs.insert(shift),
    Tout=[tf.float32],
)
SAMPLES.add(
    "EagerPyFunc",
    [X],
    token=script_ops._py_funcs.insert(EAGER_SHIFT),
    is_async=False,
    Tout=[tf.float32],
)


# Control flow as version 1 built it.
@SAMPLES.program(modes=NOT_EAGER)
def switch_and_merge(run):
    off, on = run.unread.Switch(X, True)
    run.Merge([off * 2, on * 3])
    run.LoopCond(True)


@SAMPLES.program(modes=(GRAPH,), ordered=False)
def frames(run):
    inside = run.unread.Enter(
        X, frame_name="frame", is_constant=True, parallel_iterations=2
    )
    run.Exit(inside)


@SAMPLES.program(modes=(GRAPH,))
def reference_control_flow(run):
    one, two = (variable(run, real(2) + k, by_reference=True) for k in range(2))
    run.RefSelect(1, [one, two])
    off, on = run.unread.RefSwitch(one, True)
    run.RefMerge([off, on])
    run.RefNextIteration(one)


@SAMPLES.program(modes=(GRAPH,), ordered=False)
def reference_frames(run):
    v = run.unread.VariableV2(dtype=tf.float32, shape=[3])
    assigned = run.Assign(v, X)
    inside = run.unread.RefEnter(
        assigned, frame_name="frame", is_constant=True, parallel_iterations=2
    )
    run.RefExit(inside)
