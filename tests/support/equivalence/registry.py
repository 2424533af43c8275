"""Facts about the ops of the installed TensorFlow, read from its own registries."""

from functools import cache

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import kernels, op_def_registry, ops

OpDef = op_def_pb2.OpDef
AttrDef = op_def_pb2.OpDef.AttrDef


@cache
def op_defs() -> dict[str, OpDef]:
    """Every op registered in this process, by name."""
    listed = op_def_pb2.OpList.FromString(
        pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    )
    return {op.name: op for op in listed.op}


def op_def(name: str) -> OpDef:
    """The OpDef that TensorFlow's own builders use for `name`."""
    return op_def_registry.get(name)


def inferred(op: OpDef) -> set[str]:
    """The attrs of `op` that follow from its inputs."""
    return {
        name
        for arg in op.input_arg
        for name in (arg.type_attr, arg.type_list_attr, arg.number_attr)
        if name
    }


def given(op: OpDef) -> list[AttrDef]:
    """The attrs of `op` that a caller gives, in OpDef order."""
    return [attr for attr in op.attr if attr.name not in inferred(op)]


def has_default(attr: AttrDef) -> bool:
    return attr.HasField("default_value")


def has_refs(op: OpDef) -> bool:
    return any(arg.is_ref for arg in (*op.input_arg, *op.output_arg))


def is_removed(op: OpDef) -> bool:
    """Whether today's GraphDef version refuses `op`."""
    return (
        op.HasField("deprecation")
        and op.deprecation.version <= tf.version.GRAPH_DEF_VERSION
    )


@cache
def ops_with_cpu_kernel() -> frozenset[str]:
    """Ops with a kernel for the CPU, or for any device."""
    return frozenset(
        kernel.op
        for kernel in kernels.get_all_registered_kernels().kernel
        if kernel.device_type in ("CPU", "DEFAULT")
    )


@cache
def ops_with_gradient() -> frozenset[str]:
    """Ops with an entry in the gradient registry, "not differentiable" included."""
    return frozenset(ops.gradient_registry.list())


@cache
def differentiable_ops() -> frozenset[str]:
    """Ops whose entry in the gradient registry is a function."""
    return frozenset(
        name
        for name in ops_with_gradient()
        if ops.gradient_registry.lookup(name) is not None
    )
