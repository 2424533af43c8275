"""The line in an opdef between what is written by hand and what is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwright_codegen import form, load
from support.workplace import command, place, tree

ROLL = f"""\
# Why this op is here.
op: Roll
group: math
summary: Rolls.
description: |-
  Far.

  Farther.
kernels: {{CPU: opwright}}

{form.LINE}
stateful: true
inputs:
  - {{name: input, type: T}}
# About attrs.
attrs:
  - {{name: T, type: type}}
"""
MIXED = """\
# Why this op is here.
op: Roll
stateful: true
group: math
inputs:
  - {name: input, type: T}

summary: Rolls.
# About attrs.
attrs:
  - {name: T, type: type}
description: |-
  Far.

  Farther.
kernels: {CPU: opwright}
"""


def found(text: str) -> list[str]:
    path = Path("opdefs/math/Roll.yaml")
    assert load.load_text(text.encode(), path)[1] == []
    return [
        f"{problem.line}:{problem.column}: {problem.message}"
        for problem in form.problems(text.encode(), path)
    ]


def arranged(text: str) -> str:
    return form.arranged(text.encode(), Path("opdefs/math/Roll.yaml")).decode()


def test_form_of_arranged_text_has_no_problem() -> None:
    assert found(ROLL) == []
    assert arranged(ROLL) == ROLL
    alone = "op: Roll\ngroup: math\n"
    assert found(alone) == []
    assert arranged(alone) == alone


@pytest.mark.parametrize(
    ("old", "new", "where", "words"),
    [
        (f"\n{form.LINE}\n", "", "10:1", "'stateful' is a fact, and no line"),
        (f"{form.LINE}\nstateful: true", f"stateful: true\n{form.LINE}", "11:1", "bel"),
        ("# About attrs.", "tpu_only: why\n# x", "15:1", "'tpu_only' is written by"),
    ],
)
def test_form_of_other_order_is_one_problem(
    old: str, new: str, where: str, words: str
) -> None:
    text = ROLL.replace("kernels: {CPU: opwright}", "gradient_of: Roll")
    problems = found(text.replace(old, new))
    assert len(problems) == 1
    assert problems[0].startswith(f"{where}: ") and words in problems[0]
    assert found(arranged(text.replace(old, new))) == []


def test_rows_stay_as_they_are_in_another_order() -> None:
    assert arranged(MIXED) == ROLL
    # Line ends and a mark at the beginning too are not worth a refusal.
    assert arranged("\ufeff" + MIXED.replace("\n", "\r\n")) == ROLL


@pytest.mark.parametrize(
    "text",
    [
        "{op: Roll, group: math, stateful: true}\n",
        "op: Roll\nstateful: true\ngroup: math\n...\n",
        "op: Roll\nstateful: true\ndescription: |+\n  Text.\n\n\ngroup: math\n",
    ],
)
def test_arranged_with_possible_loss_keeps_the_file(text: str) -> None:
    assert arranged(text) == text
    assert len(found(text)) == 1


def test_fix_arranges_files_and_says_which(tmp_path: Path) -> None:
    place(tmp_path / "opdefs", "math", "Roll", MIXED)
    place(tmp_path / "opdefs", "math", "Good")
    before = tree(tmp_path)

    done = command("lint", cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: opdefs/math/Roll.yaml:3:1: Roll: 'stateful' is" in done.stderr
    assert tree(tmp_path) == before

    done = command("lint", "--fix", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "in form now: opdefs/math/Roll.yaml\n")
    assert tree(tmp_path) == before | {"opdefs/math/Roll.yaml": ROLL.encode()}
    assert command("lint", cwd=tmp_path).returncode == 0


def test_lint_of_an_opdef_without_the_line_warns(tmp_path: Path) -> None:
    text = "op: Roll\ngroup: math\nsummary: Rolls.\nstateful: true\n"
    place(tmp_path / "my_opdefs", "math", "Roll", text)
    done = command("lint", "--opdefs", "my_opdefs", cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: my_opdefs/math/Roll.yaml:4:1: Roll: 'stateful' is a fact" in (
        done.stderr
    )
    done = command("lint", "--opdefs", "my_opdefs", "--fix", cwd=tmp_path)
    assert (done.returncode, "warning" in done.stderr) == (0, False)


@pytest.mark.parametrize(
    "bad",
    ["op: Bad\ngroup: math\ncolour: x\n", "{op: Bad, group: math, stateful: true}\n"],
)
def test_fix_writes_nothing_while_there_is_a_problem(tmp_path: Path, bad: str) -> None:
    place(tmp_path / "opdefs", "math", "Roll", MIXED)
    place(tmp_path / "opdefs", "math", "Bad", bad)
    before = tree(tmp_path)
    done = command("lint", "--fix", cwd=tmp_path)
    assert done.returncode == 1
    assert "Bad.yaml:" in done.stderr
    assert done.stderr.endswith("1 problem; nothing was written\n")
    assert tree(tmp_path) == before
