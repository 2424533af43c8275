"""The example of every op prints its documented output."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from opwright_codegen.model import Op
from reference.support import examples
from reference.support.judge import ran
from support.grouped import check_each, every_opdef_by_group
from support.opdefs import every_op
from support.places import ROOT
from support.tiers import part_of


@pytest.mark.partial
@every_opdef_by_group()
def test_example_prints_its_output(names: list[str]) -> None:
    def check(name: str) -> None:
        op = every_op()[name]
        outcome = ran(op)
        assert [*outcome.failures, *outcome.wrong] == []
        assert outcome.tried or examples.is_gone(op), f"the example calls no {name}"

    check_each(filter(runs, part_of(names)), check)


def runs(name: str) -> bool:
    return examples.runs(every_op()[name])


@pytest.mark.typing
def test_example_that_cannot_run_passes_mypy(tmp_path: Path) -> None:
    """The docs show them for a device that this machine lacks."""
    module = tmp_path / "shown.py"
    shown = sorted(name for name in every_op() if not runs(name))
    module.write_text("\n".join(examples.source(every_op()[name]) for name in shown))
    # As programs are written: their own functions without types.
    untyped = [f"--allow-untyped-{what}" for what in ("calls", "decorators", "defs")]
    command = [sys.executable, "-m", "mypy", *untyped, "--check-untyped-defs"]
    checked = subprocess.run(
        [*command, str(module)], cwd=ROOT, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


def changed(name: str, example: str) -> Op:
    return dataclasses.replace(every_op()[name], example=example)


def test_ran_example_with_other_output_fails() -> None:
    op = changed("MatMul", ">>> mat_mul([[1.0]], [[2.0]]).numpy()\narray([[3.]])")
    (failure,) = ran(op).failures
    assert "prints   'array([[2.]], dtype=float32)'" in failure


def test_ran_example_with_error_fails() -> None:
    op = changed("MatMul", ">>> mat_mul([[1.0]], [2.0])\n")
    (failure,) = ran(op).failures
    assert "b has 1 dimension, not 2" in failure


def test_ran_example_shapes_are_checked_against_notation() -> None:
    op = changed("MatMul", ">>> mat_mul([[1.0]], [[2.0]]).shape\nTensorShape([1, 1])")
    assert ran(op).determined
    (output,) = op.outputs
    wrong = dataclasses.replace(op, outputs=(dataclasses.replace(output, shape="m"),))
    assert ran(wrong).wrong == ["product is [1 1], not [1]"]


def test_examples_output_is_what_the_code_prints() -> None:
    op = changed("MatMul", ">>> for one in (1.0, 2.0):\n...     print(one)\n")
    written = examples.output(op)
    assert written == ">>> for one in (1.0, 2.0):\n...     print(one)\n1.0\n2.0"
    assert ran(changed("MatMul", written)).failures == []


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (">>> 1 + 1\n2", "calls none of"),
        (">>> mat_mul([[1.0]], [[1.0]]) is None", "shows no output"),
        ("\n".join([">>> mat_mul(1, 1)"] * 7) + "\n1", "7 lines of code"),
        (f">>> mat_mul({'1' * 90})\n1", "more than 80 columns"),
    ],
)
def test_example_form_bad_example_is_reported(example: str, words: str) -> None:
    assert any(words in one for one in examples.in_form(changed("MatMul", example)))
