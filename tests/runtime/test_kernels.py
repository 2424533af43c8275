"""kernels() says what the registry says, per device."""

import pytest
import tensorflow as tf

from opwright import op_class
from opwright.linalg import MatMul
from support.processes import run_code

X = tf.constant([[1, 2], [3, 4]])


def served(cls, device):
    rows = [row for row in cls.kernels() if row.device == device]
    return {dtype for row in rows for dtype in row.dtypes.get("T", ())}


@pytest.mark.parametrize("dtype", MatMul.op_def.attr["T"].allowed)
def test_kernels_cpu_dtypes_are_those_that_run(dtype):
    x = tf.cast(X, dtype)
    if dtype in served(MatMul, "CPU"):
        tf.raw_ops.MatMul(a=x, b=x)
    else:
        with pytest.raises((tf.errors.NotFoundError, tf.errors.InvalidArgumentError)):
            tf.raw_ops.MatMul(a=x, b=x)


@pytest.mark.parametrize("dtype", [tf.float32, tf.int64, tf.complex64])
def test_xla_s_dtypes_are_those_that_compile(dtype):
    x = tf.cast(X, dtype)
    assert dtype in served(MatMul, "XLA")
    tf.function(lambda: tf.raw_ops.MatMul(a=x, b=x), jit_compile=True)()


@pytest.mark.slow  # XLA's start takes seconds, in each process.
def test_xla_s_kernels_show_before_anything_is_compiled():
    program = """
from opwright.linalg import MatMul
from opwright_runtime import native
assert "XLA" in {row.device for row in MatMul.kernels()}
"""
    done = run_code(program)
    assert done.returncode == 0, done.stderr


def test_kernels_op_without_cpu_kernel_lists_other_devices():
    devices = {row.device for row in op_class("CTCLossV2").kernels()}
    assert devices == {"GPU"}
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    assert {row.available for row in op_class("CTCLossV2").kernels()} == {has_gpu}
    assert op_class("RiscImag").kernels() == ()


def test_kernels_default_device_counts_for_each():
    rows = op_class("NoOp").kernels()
    assert {"CPU", "GPU", "XLA"} <= {row.device for row in rows}
    # Registered for DEFAULT alone.
    assert {row.device for row in op_class("Switch").kernels()} >= {"CPU", "GPU"}


def test_kernels_rows_are_immutable_values():
    row = MatMul.kernels()[0]
    assert row.device == "CPU"
    assert row.provider == "TensorFlow"
    assert row.available
    dtype = row.dtypes["T"][0]
    assert repr(row) == f"<Kernel CPU, T={dtype.name}, TensorFlow>"
    assert len(set(MatMul.kernels())) == len(MatMul.kernels())
    with pytest.raises(AttributeError):
        row.device = "GPU"
    with pytest.raises(TypeError):
        row.dtypes["T"] = ()


def test_while_a_graph_is_built():
    @tf.function
    def body():
        return len(op_class("Mul").kernels())

    assert int(body()) == len(op_class("Mul").kernels())
