"""Training with automatic clustering by XLA gives the losses of training without."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright_runtime._internals import kernel_registry
from support.processes import run_program


def losses(mode: str, flags: str) -> dict[str, list[float]]:
    done = run_program(
        "rnn.support.auto_jit",
        mode,
        afresh=True,
        TF_XLA_FLAGS=flags,
        TF_CUDNN_RESET_RND_GEN_STATE="1",  # Masks that can be compared.
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


@pytest.mark.equivalence
@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_relu"])
def test_auto_jit_losses_match_those_without(mode: str) -> None:
    plain = losses(mode, "")
    clustered = losses(mode, "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit")
    assert plain.keys() == clustered.keys()
    different = 0
    for name, wanted in plain.items():
        assert wanted[-1] < wanted[0]
        np.testing.assert_allclose(clustered[name], wanted, rtol=1e-5, err_msg=name)
        different += clustered[name] != wanted
    assert different > 0, "nothing was compiled"


CUDNN = [name for name in opwright.op_names() if name.startswith("CudnnRNN")]


@pytest.mark.parametrize("name", CUDNN)
def test_cudnn_rnn_has_no_xla_kernel_for_gpus(name: str) -> None:
    """TensorFlow may cluster an op with an XLA kernel, which keeps it from cuDNN."""
    tf.function(lambda x: x + 1, jit_compile=True)(1.0)  # Then all are registered.
    rows = kernel_registry.get_registered_kernels_for_op(name).kernel
    devices = {row.device_type for row in rows}
    assert {"CPU", "XLA_CPU_JIT", "XLA_TPU_JIT"} <= devices
    assert "XLA_GPU_JIT" not in devices
