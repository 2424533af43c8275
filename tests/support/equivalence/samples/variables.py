"""Variables and the training ops that update them, by resource and by reference."""

import re
from typing import Any

import numpy as np
import tensorflow as tf

from support.equivalence.modes import GRAPH, MODES, Program, Run
from support.equivalence.registry import op_def, op_defs
from support.equivalence.samples.kit import Sample, Samples, positive, real

SAMPLES = Samples()

IN_GRAPH = {"modes": (GRAPH,)}


def variable(run: Run, value: np.ndarray, *, by_reference: bool = False) -> tf.Tensor:
    """A new variable that holds `value`."""
    made = {"dtype": value.dtype, "shape": value.shape, "container": "shelf"}
    if by_reference:
        variable = run.unread.VariableV2(**made, shared_name=run.unique("v"))
        run.Assign(variable, value, validate_shape=False, use_locking=False)
    else:
        variable = run.VarHandleOp(**made, shared_name=run.unique("v"))
        run.AssignVariableOp(variable, value, validate_shape=True)
    return variable


def read(run: Run, variable: tf.Tensor, dtype: tf.DType = tf.float32) -> None:
    if variable.dtype == tf.resource:
        run.ReadVariableOp(variable, dtype=dtype)
    else:
        run.RefIdentity(variable)


# Training: every optimizer's op, dense or sparse, by resource or by reference, takes
# some of these.
SCALARS = {
    "alpha": 0.1,
    "beta": 0.9,
    "beta1": 0.9,
    "beta1_power": 0.8,
    "beta2": 0.99,
    "beta2_power": 0.98,
    "epsilon": 0.01,
    "l1": 0.05,
    "l2": 0.02,
    "l2_shrinkage": 0.01,
    "logbase": 1.0,
    "lr": 0.1,
    "lr_power": -0.5,
    "momentum": 0.9,
    "rho": 0.95,
    "sign_decay": 0.9,
}
OPTIONS = {
    "use_locking": True,
    "use_nesterov": True,
    "update_slots": False,
    "multiply_linear_by_lr": True,
}


def training_step(op: str) -> Program:
    definition = op_def(op)
    gradient = real(2, 2) if "Sparse" in op else real(3, 2)
    arrays = {"grad": gradient, "delta": gradient, "indices": [2, 0]}
    options = {a.name: OPTIONS[a.name] for a in definition.attr if a.name in OPTIONS}

    def program(run: Run) -> None:
        variables: list[tf.Tensor] = []
        others: list[Any] = []
        for arg in definition.input_arg:
            if arg.is_ref or arg.type == tf.resource.as_datatype_enum:
                value = positive(3, 2) + len(variables)
                variables.append(variable(run, value, by_reference=arg.is_ref))
            elif arg.name in SCALARS:
                others.append(np.float32(SCALARS[arg.name]))
            else:
                others.append(arrays.get(arg.name, np.int64(3)))
        run(op, *variables, *others, **options)
        for each in variables:
            read(run, each)

    return program


for name in sorted(op_defs()):
    if re.fullmatch("(Resource)?(Sparse)?Apply[A-Z].*", name):
        modes = MODES if name.startswith("Resource") else (GRAPH,)
        SAMPLES.rows.append(Sample(name, training_step(name), modes))


# Reading and writing.
@SAMPLES.program()
def resource_variables(run):
    v = variable(run, real(3, 2))
    run.VarIsInitializedOp(v)
    run.VariableShape(v, out_type=tf.int64)
    run.AssignAddVariableOp(v, real(3, 2))
    run.AssignSubVariableOp(v, positive(3, 2))
    read(run, v)
    run.ResourceStridedSliceAssign(
        v, [0, 1], [2, 2], [1, 1], real(2), shrink_axis_mask=2
    )
    read(run, v)
    run.DisableCopyOnRead(v)
    run.DestroyResourceOp(v, ignore_lookup_error=False)


@SAMPLES.program()
def gathered(run):
    v = variable(run, real(3, 2))
    read(run, v)
    run.ResourceGather(v, [2, 0], dtype=tf.float32, validate_indices=False)
    run.ResourceGatherNd(v, [[2, 0]], dtype=tf.float32)


@SAMPLES.program()
def gathered_in_batches(run):
    v = variable(run, real(3, 2))
    run.ResourceGather(v, [[0], [1], [0]], dtype=tf.float32, batch_dims=1)


@SAMPLES.program()
def counted(run):
    v = variable(run, np.array(3, np.int64))
    run.ResourceCountUpTo(v, limit=5, T=tf.int64)
    read(run, v, tf.int64)


@SAMPLES.program()
def resource_scatter(run):
    v = variable(run, positive(4, 2))
    for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Update"):
        run("ResourceScatter" + kind, v, [1, 3], positive(2, 2))
        read(run, v)
    for kind in ("Add", "Sub", "Max", "Min", "Update"):
        run(
            "ResourceScatterNd" + kind,
            v,
            [[1], [3]],
            real(2, 2),
            use_locking=False,
            bad_indices_policy="ERROR",
        )
        read(run, v)


@SAMPLES.program(**IN_GRAPH)
def reference_variables(run):
    v = variable(run, real(3, 2), by_reference=True)
    run.IsVariableInitialized(v)
    run.AssignAdd(v, real(3, 2), use_locking=True)
    run.AssignSub(v, positive(3, 2), use_locking=True)
    run.StridedSliceAssign(v, [0, 1], [2, 2], [1, 1], real(2), shrink_axis_mask=2)
    run.CountUpTo(variable(run, np.array(3), by_reference=True), limit=5)
    old = run.unread.Variable(shape=[2], dtype=tf.float32)
    run.Assign(old, real(2))
    run.DebugGradientRefIdentity(v)


@SAMPLES.program(**IN_GRAPH)
def reference_scatter(run):
    v = variable(run, positive(4, 2), by_reference=True)
    for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Update"):
        run("Scatter" + kind, v, [1, 3], positive(2, 2), use_locking=True)
    for kind in ("Add", "Sub", "Max", "Min", "Update"):
        run(
            "ScatterNd" + kind,
            v,
            [[1], [3]],
            real(2, 2),
            use_locking=True,
            bad_indices_policy="ERROR",
        )


@SAMPLES.program(**IN_GRAPH)
def temporary_variable(run):
    v = run.unread.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="temporary")
    assigned = run.Assign(v, real(2))
    run.DestroyTemporaryVariable(assigned, var_name="temporary")


@SAMPLES.program(**IN_GRAPH)
def shrunk_weights(run):
    v = variable(run, real(4), by_reference=True)
    run.SdcaShrinkL1([v], l1=0.5, l2=1.0)
    read(run, v)


@SAMPLES.program(modes=(GRAPH,), old=True)
def negative_sampling(run):
    # The negatives are random, whatever the seeds.
    v, w = (variable(run.unread, real(5, 2), by_reference=True) for _ in range(2))
    run.NegTrain(
        v,
        w,
        [0, 1],
        [1, 2],
        np.float32(0.1),
        vocab_count=[1, 2, 3, 4, 5],
        num_negative_samples=1,
    )
