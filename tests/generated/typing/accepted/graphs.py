"""Ops in graphs: what an operation says of its inputs and attrs."""

from __future__ import annotations

import tensorflow as tf
from typing_extensions import TypeVar, assert_type

from opwright import Op, Output, Scope, TFloat32, TResource, op_class, op_names
from opwright.array import IdentityN
from opwright.control_flow import NoOp, no_op
from opwright.data import map_dataset
from opwright.dtypes import cast
from opwright.linalg import MatMul, mat_mul
from opwright.train import (
    ResourceAccumulatorTakeGradient,
    resource_accumulator_take_gradient,
)
from opwright.variables import assign, read_variable_op, var_handle_op

AnyOp = TypeVar("AnyOp", bound=Op)


def found(graph: tf.Graph, cls: type[AnyOp]) -> list[AnyOp]:
    operations = graph.get_operations()
    return [cls.from_operation(one) for one in operations if one.type == cls.OP_NAME]


def ops_of_a_class() -> None:
    with tf.Graph().as_default() as graph:
        x = cast([[1.0]], TFloat32)
        mat_mul(x, x, transpose_b=True)
        assert_type(found(graph, MatMul), list[MatMul])
        (op,) = found(graph, MatMul)
        assert op.inputs.transpose_b
        assert_type(op_class("MatMul"), type[Op])


def inputs_of_an_op() -> None:
    with tf.Graph().as_default():
        x = cast([[1.0]], TFloat32)
        op = MatMul.create(Scope.current(), x, x)
        assert_type(op.inputs.a, Output[TFloat32])
        assert_type(op.inputs.transpose_a, bool)
        assert op.op.type == "MatMul"
        assert_type(op, MatMul[TFloat32])
        assert_type(mat_mul(x, x), Output[TFloat32])
        assert mat_mul(x, x).op.type == "MatMul"


def inputs_of_an_operation() -> None:
    with tf.Graph().as_default():
        x = cast([[1.0]], TFloat32)
        found = MatMul.from_operation(mat_mul(x, x, transpose_b=True).op)
        assert_type(found, MatMul)
        assert_type(found.product, Output)
        assert_type(found.inputs.b, Output)
        assert_type(found.inputs.transpose_b, bool)
        known: Output[TFloat32] = found.product
        assert found.inputs.transpose_b and known.dtype == tf.float32


def no_outputs() -> None:
    with tf.Graph().as_default():
        made = NoOp.create(Scope.current().with_name("nothing"))
        assert made.op.name == "nothing"
        done = no_op(name="again")
        assert done is not None and done.name == "again"


def handles() -> None:
    handle = var_handle_op(TFloat32, [2])
    assert_type(handle, Output[TResource])
    variable = tf.Variable(tf.ones([2]))
    assert_type(read_variable_op(variable.handle, TFloat32), Output[TFloat32])


def accumulators() -> None:
    def average(handle: Output[TResource]) -> Output[TFloat32]:
        taken = resource_accumulator_take_gradient(handle, 1, TFloat32)
        assert_type(taken, Output[TFloat32])
        op = ResourceAccumulatorTakeGradient.create(
            Scope.current(), handle, 1, TFloat32
        )
        assert_type(op, ResourceAccumulatorTakeGradient[TFloat32])
        return op.average

    assert callable(average)


def refs() -> None:
    def assigned(ref: Output[TFloat32]) -> Output[TFloat32]:
        return assign(ref, 1.0, validate_shape=False)

    assert callable(assigned)


def functions() -> None:
    def mapped(
        dataset: tf.Tensor,
        function: tf.types.experimental.ConcreteFunction[..., tf.Tensor],
    ) -> None:
        map_dataset(dataset, [], function, [tf.float32], [[]])
        map_dataset(dataset, [], "named", [TFloat32, "int32"], [[None, 2], None])

    assert callable(mapped)


def classes_by_name() -> None:
    name: str = op_class("IdentityN").OP_NAME
    assert name == IdentityN.OP_NAME and name in op_names()
    assert MatMul.op_def.name == "MatMul"
