"""runs_on.json, the table of targets that each op compiles for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import opwright
from opwright import check_tpu
from opwright.linalg import MatMul
from opwright.queue import FIFOQueueV2
from opwright_runtime import runs_on, tpu_check
from opwright_runtime.tpu_check import CHIPS, Compilation
from support.places import ROOT

TABLE = ROOT / "runtime" / "opwright_runtime" / "runs_on.json"


def test_runs_on_targets_are_xla_and_the_chips() -> None:
    assert ("XLA", *CHIPS) == runs_on.TARGETS


def test_runs_on_table_has_a_row_for_every_op() -> None:
    rows = json.loads(TABLE.read_text())["ops"]
    assert set(rows) == set(opwright.op_names())
    for name, row in rows.items():
        assert row if isinstance(row, str) else set(row) <= set(runs_on.TARGETS), name


def test_runs_on_compiles_and_reasons_match_the_table() -> None:
    found = MatMul.runs_on()
    assert found.compiles == runs_on.TARGETS
    assert repr(found).startswith("MatMul, tried with tensorflow 2.")
    assert repr(found).endswith("XLA, v4, v5e, v5p, v6e: compiles")
    queue = FIFOQueueV2.runs_on()
    assert not queue.compiles
    assert queue.reasons["v5e"] == "XLA has no kernel for it"


def test_runs_on_example_of_a_refused_dtype_lists_the_dtypes_of_xla() -> None:
    found = opwright.op_class("Unique").runs_on()
    assert found.refused_dtypes == {"T": "string"}
    assert "int32" in found.xla_dtypes["T"] and "string" not in found.xla_dtypes["T"]
    text = repr(found)
    assert "the example has T=string; XLA has kernels for T = float32, float64" in text
    assert text.endswith("check_tpu tries other dtypes")
    assert not MatMul.runs_on().refused_dtypes


@pytest.mark.compile_tpu
def test_tpu_ops_script_reproduces_rows_of_the_table(tmp_path: Path) -> None:
    """The ops are one that compiles, one that XLA refuses, and one without a trial."""
    ops = ["MatMul", "FIFOQueueV2", "InfeedDequeue"]
    output = tmp_path / "table.json"
    command = [sys.executable, str(ROOT / "tools/tpu_ops.py"), "--output", str(output)]
    done = subprocess.run([*command, *ops], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    made = json.loads(output.read_text())["ops"]
    kept = json.loads(TABLE.read_text())["ops"]
    assert made == {name: kept[name] for name in ops}
    wrong = subprocess.run(
        [*command, "MatMull"], capture_output=True, text=True, timeout=300
    )
    assert wrong.returncode == 2 and "MatMull" in wrong.stderr


@pytest.mark.rotating
def test_failed_compilation_names_the_op_that_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of libtpu about a program seldom names the op."""
    known = {"ops": {"Tan": {"v5e": "has no lowering"}}, "tried_with": {}}
    monkeypatch.setattr(runs_on, "_table", lambda: known)
    failed = Compilation("v5e", 1.0, "it failed")
    found = tpu_check._describe_failure(failed, ["Tan", "Cos"])
    assert found.error == (
        "it failed\nTan does not compile for v5e by itself: has no lowering"
    )
    assert tpu_check._describe_failure(Compilation("v5e", 1.0), ["Tan"]).error is None
    assert check_tpu(tf.math.tan, tf.TensorSpec([4]), chips=("v5e",)).compiles
