"""Automatic clustering by XLA gives what a program gives without it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

import opwright  # noqa: F401
from opwright_runtime._internals import kernel_registry
from support.processes import run_program
from xla_ops.support.every_kind import KINDS


def results(flags: str) -> list[list[float]]:
    done = run_program("xla_ops.support.auto_jit", afresh=True, TF_XLA_FLAGS=flags)
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[list[float]] = json.loads(done.stdout)
    return found


def test_auto_jit_results_of_open_sizes_match_those_without() -> None:
    """Ids that are no constants, and a size that values decide."""
    clustered = results("--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit")
    np.testing.assert_allclose(clustered, results(""), rtol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_compiled_op_has_no_xla_kernel_for_gpus(name: str) -> None:
    """TensorFlow may cluster an op with such a kernel, which changes programs."""
    tf.function(lambda x: x + 1, jit_compile=True)(1.0)  # Then all are registered.
    rows = kernel_registry.get_registered_kernels_for_op(name).kernel
    assert "CPU" in {row.device_type for row in rows}
    # The priority of TensorFlow's own kernels is not below 0.
    ours = {row.device_type for row in rows if row.priority < 0}
    assert ours == {"XLA_CPU_JIT", "XLA_TPU_JIT"}
