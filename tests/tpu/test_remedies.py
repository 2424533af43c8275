"""What the report says to write instead: every row of remedies.json is tried."""

from __future__ import annotations

import json
import runpy
from fnmatch import filter as matching
from inspect import getsourcefile
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import check_tpu
from opwright_runtime.tpu_check import Blocker, lowering
from opwright_runtime.tpu_check.remedies import TITLES, Remedy, remedies, remedy_for
from support.places import ROOT
from support.versions import later
from tpu.support.programs import spell
from tpu.support.remedies.case import Case
from tpu.support.remedies.every_case import CASES

WRITER = runpy.run_path(str(ROOT / "docs" / "tpu_remedies.py"))
ROWS = {row.id: row for row in remedies()}
#: Its programs have no numbers to compare.
MEMORY = "memory"
FAILING = [case for case in CASES if case.until is None or later(case.until)]
NAMES = [f"{case.row}-{case.stops.replace(' ', '-')}" for case in FAILING]


def test_remedies_every_row_has_a_program() -> None:
    assert {case.row for case in CASES} | {MEMORY} == set(ROWS)
    assert len(ROWS) == len(remedies()) >= 60


def test_remedies_causes_have_titles() -> None:
    assert {row.cause for row in remedies()} == set(TITLES)


@pytest.mark.parametrize("row", remedies(), ids=lambda row: str(row.id))
def test_remedy_ops_are_names_of_ops(row: Remedy) -> None:
    names = opwright.op_names()
    assert [one for one in row.ops if not matching(names, one)] == []


def test_remedies_page_has_the_table() -> None:
    """If it fails, run `make docs`."""
    assert WRITER["PAGE"].read_text("utf-8") == WRITER["page"]()


def blockers(case: Case) -> dict[str, Blocker]:
    """What the check reports of the failing program, by op."""
    given = tuple(tf.convert_to_tensor(one) for one in case.given)
    lowered = lowering.lower(lowering.from_function(case.before, given, {}))
    assert not isinstance(lowered, bytes), f"{case.row} compiles"
    return {each.op: each for each in lowered}


@pytest.mark.rotating
@pytest.mark.parametrize("case", FAILING, ids=NAMES)
def test_remedy_of_a_program_that_fails_names_op_argument_and_line(case: Case) -> None:
    found = blockers(case)
    op, _, argument = case.stops.partition(" ")
    blocker = found[op]
    assert blocker.remedy == ROWS[case.row].remedy
    assert all(each.remedy for each in found.values())
    if argument:
        assert argument in blocker.arguments
    cause = ROWS[case.row].cause
    assert blocker.cause == {"other": "kernel"}.get(cause, cause)
    assert blocker.where is not None and blocker.code is not None
    file, _, line = blocker.where.rpartition(":")
    assert str(getsourcefile(case.before)).endswith(file)
    lines = (ROOT / file).read_text("utf-8").splitlines()
    assert lines[int(line) - 1].strip() == blocker.code


def unforeseen(given: tf.Tensor) -> tf.Tensor:
    """The same values, which XLA does not know when it compiles."""
    if not given.dtype.is_integer:
        return given
    zeros = tf.random.uniform(given.shape, 0, 1, tf.int32)
    return given + tf.cast(zeros, given.dtype)


#: XLA has kernels for CPUs, and TensorFlow has none for TPUs.
ONLY_ON_TPUS = ("complex128",)


@pytest.mark.rotating
@pytest.mark.parametrize("case", FAILING, ids=NAMES)
def test_remedy_runs_with_jit_compile_where_the_program_fails(case: Case) -> None:
    @tf.function(jit_compile=True)
    def failing(*given: tf.Tensor) -> Any:
        return case.before(*map(unforeseen, given))

    given = [tf.convert_to_tensor(one) for one in case.given]
    if case.row not in ONLY_ON_TPUS:
        with pytest.raises((tf.errors.OpError, ValueError)):
            failing(*given)
    expected = case.before(*given)
    made = [tf.convert_to_tensor(one) for one in case.host(*given)]
    found = tf.function(case.after, jit_compile=True)(*made)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_check_tpu_report_and_json_have_the_remedy() -> None:
    report = check_tpu(tf.sequence_mask, tf.TensorSpec([8], tf.int32), chips="v5e")
    (blocker,) = report.blockers
    assert blocker.reason.startswith("`limit` depends on values, and must be")
    assert blocker.remedy == ROWS["sequence_mask"].remedy
    assert str(report).endswith(f"\n\nInstead of Range: {blocker.remedy}")
    found = json.loads(json.dumps(report.as_dict()))
    assert found["blockers"][0]["remedy"] == blocker.remedy


def test_check_tpu_report_gives_a_remedy_once_for_several_ops() -> None:
    text = str(check_tpu(spell, tf.TensorSpec([8, 4]), chips="v5e"))
    said = f"Instead of AsString, StringLength: {ROWS['strings'].remedy}"
    assert text.count("Instead of") == 1
    assert said in " ".join(text.split())


def test_check_tpu_report_of_a_long_reason_folds_it() -> None:
    def repeated(x: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        return tf.repeat(x, counts)

    given = tf.TensorSpec([4]), tf.TensorSpec([4], tf.int32)
    report = check_tpu(repeated, *given, chips="v5e")
    assert max(map(len, str(report).splitlines())) <= 150
    assert "return tf.repeat(x, counts)" in str(report)


def test_check_tpu_report_in_a_file_has_whole_lines_of_code() -> None:
    def glimpsed(images: tf.Tensor, centers: tf.Tensor) -> tf.Tensor:
        return tf.image.extract_glimpse(images, [14, 14], centers, noise="gaussian")

    given = tf.TensorSpec([4, 16, 16, 3]), tf.TensorSpec([4, 2])
    report = check_tpu(glimpsed, *given, chips="v5e")
    code = report.blockers[0].code
    assert code is not None and len(code) > 60
    assert code in str(report)


def test_remedy_for_without_a_row_is_none() -> None:
    assert remedy_for("libtpu has an error of its own") is None


@pytest.mark.compile_tpu
@pytest.mark.parametrize("case", FAILING, ids=NAMES)
def test_remedy_compiles_for_a_tpu(case: Case) -> None:
    given = [tf.convert_to_tensor(one) for one in case.given]
    made = [tf.convert_to_tensor(one) for one in case.host(*given)]
    report = check_tpu(case.after, *made, chips="v5e")
    assert report.compiles, report


@pytest.mark.compile_tpu
def test_remedy_for_a_program_too_large_compiles() -> None:
    def moved(x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matrix_transpose(x)

    shape = [2**15, 2**16]
    (refused,) = check_tpu(moved, tf.TensorSpec(shape), chips="v5e").compilations
    assert refused.remedy == ROWS[MEMORY].remedy
    # A smaller batch, which a chip also has after sharding, and bfloat16.
    for smaller in (tf.TensorSpec([2**14, 2**16]), tf.TensorSpec(shape, tf.bfloat16)):
        assert check_tpu(moved, smaller, chips="v5e").compiles
