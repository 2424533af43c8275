"""opdefs and kernels() list the kernels of opwright that TensorFlow has registered."""

from __future__ import annotations

import pytest
import yaml

import opwright
from opwright.nn import CudnnRNNParamsSize
from opwright_runtime import native
from opwright_runtime.kernels import kernels
from rnn.support.cases import DTYPES
from support.places import OPDEFS

CUDNN = sorted(name for name in opwright.op_names() if name.startswith("CudnnRNN"))


def test_cudnn_rnn_ops_are_eleven() -> None:
    assert len(CUDNN) == 11


@pytest.mark.parametrize("name", CUDNN)
def test_cudnn_rnn_cpu_kernel_has_every_dtype(name: str) -> None:
    rows = [row for row in opwright.op_class(name).kernels() if row.device == "CPU"]
    assert {row.provider for row in rows} == {"opwright"}
    assert {dtype for row in rows for dtype in row.dtypes["T"]} == set(DTYPES)
    assert all(row.available and row.priority < 0 for row in rows)


def test_opdef_kernels_match_registered_kernels() -> None:
    """Kernels for GPUs are registered only in a build with CUDA."""
    missing = set() if native.cuda() else {"GPU"}
    claims = {
        path.stem: set(claim) - missing
        for path in OPDEFS.glob("*/*.yaml")
        if "\nkernels:" in (text := path.read_text("utf-8"))
        and (claim := yaml.safe_load(text)["kernels"])
    }
    assert claims.keys() >= set(CUDNN)
    there_are = {
        name: devices
        for name in opwright.op_names()
        if (
            devices := {
                row.device for row in kernels(name) if row.provider == "opwright"
            }
        )
    }
    assert there_are == claims


def test_cudnn_rnn_params_size_gpu_kernel_is_tensorflows() -> None:
    rows = [row for row in CudnnRNNParamsSize.kernels() if row.device == "GPU"]
    assert {row.provider for row in rows} == {"TensorFlow"}
