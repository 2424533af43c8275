"""`compare=True` over the examples of the ops that compile for every chip."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
import tensorflow as tf

import opwright
from opwright_codegen import load
from opwright_runtime.runs_on import TARGETS, runs_on
from opwright_runtime.tpu_check import comparison
from reference.support import examples
from support.places import ROOT

pytestmark = pytest.mark.compile_tpu

TOOL = runpy.run_path(str(ROOT / "tools" / "tpu_ops.py"))
_GROUP = "XLA sets the number of the group or device itself"
_CANCELS = "its sums of numbers near 1 cancel out, up to 1e-4"
_CUDNN = "its reserve space is of float64, and the compiled call is of float32"
#: Ops whose examples give other values with XLA, and why.
EXCEPTIONS = {
    "CollectiveAssignGroupV2": _GROUP,
    "CudnnRNNBackprop": _CUDNN,
    "CudnnRNNBackpropV2": _CUDNN,
    "CudnnRNNBackpropV3": _CUDNN,
    "DeviceIndex": _GROUP,
    "FakeParam": "its values are whatever memory holds",
    "FusedBatchNormGrad": _CANCELS,
    "FusedBatchNormGradV3": _CANCELS,
    "SelfAdjointEigV2": "an eigenvector may have either sign",
    "StatefulPartitionedCall": "its example changes a variable in each run",
}
#: Ops that TensorFlow cannot run without XLA: they end the process.
ONLY_XLA = ("XlaReplicaId",)


def everywhere() -> list[str]:
    names = opwright.op_names()
    return [name for name in names if len(runs_on(name).compiles) == len(TARGETS)]


def of_example(op: Any) -> Any:
    """What the comparison says of the first eager call in the example of an op."""
    calls = [one for one in examples.run(op).calls if not TOOL["of_graph"](one)]
    for constant in ("_none", "_integers", "_everything"):
        given: list[tf.Tensor] = []
        concrete, _ = TOOL["traced"](op, calls[0], TOOL[constant], given)
        found = comparison.compare(
            comparison.Program(None, concrete, given, {}, lambda node: (None, None))
        )
        if found.errors["XLA"] is None or found.errors["graph"] is not None:
            break
    return found


@pytest.fixture(scope="module")
def ops() -> dict[str, Any]:
    return {op.name: op for op in load.load_all(ROOT / "opdefs")[0]}


def test_compare_over_examples_has_ops_that_compile_everywhere() -> None:
    assert len(everywhere()) >= 443
    assert {*EXCEPTIONS, *ONLY_XLA} <= set(everywhere())


@pytest.mark.parametrize("name", [one for one in everywhere() if one not in ONLY_XLA])
def test_compare_of_an_example_that_compiles_everywhere_agrees(
    name: str, ops: dict[str, Any]
) -> None:
    found = of_example(ops[name])
    assert found.agrees == (name not in EXCEPTIONS), found
