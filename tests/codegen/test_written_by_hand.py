"""`lint` names what is to be written by hand yet: it asks more of opwright's own."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path

import pytest
from tensorflow.core.framework import op_def_pb2

import opwright_codegen
import opwright_notation
from opwright_codegen import load, registry, written
from support.places import OPDEFS, ROOT
from support.workplace import command, command_on_registry, place

#: What `lint` says to write as the shape of an output.
HINT = (
    "(shape: n m for a matrix, shape: '*x' for an output and an input of one shape,"
    " shape: '...' if it is unknown; see docs/how-to/libraries.md)"
)

BARE = """\
op: Bare
group: math

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
inputs:
  - {name: x, type: T}
outputs:
  - {name: y, type: T}
attrs:
  - {name: T, type: type}
  - {name: size, type: int}
options:
  - {name: fast, type: bool, default: false, doc: Whether it is fast.}
"""


def test_lint_of_an_opdef_without_prose_warns_and_names_what_lacks(
    tmp_path: Path,
) -> None:
    place(tmp_path / "opdefs", "math", "Bare", BARE)
    done = command("lint", cwd=tmp_path)
    assert done.returncode == 0
    assert (
        "warning: opdefs/math/Bare.yaml:1:1: Bare: lacks what is written by hand:"
        f" summary, doc of x, y, size, shape of y {HINT}\n"
    ) in done.stderr
    assert done.stderr.endswith("opdefs: 1 op, 0 errors, 1 warning\n")


@pytest.mark.parametrize("shape", ["n m", "'*x'", "'...'"])
def test_lint_of_an_output_with_a_shape_of_the_hint_has_no_problems(
    shape: str, tmp_path: Path
) -> None:
    assert f"shape: {shape} " in HINT
    full = f"""\
op: Full
group: math
summary: Has all that is written by hand.

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
inputs:
  - {{name: x, type: float, shape: {shape}, doc: Numbers.}}
outputs:
  - {{name: y, type: float, doc: Others.}}
"""
    place(tmp_path / "opdefs", "math", "Full", full)
    done = command("lint", cwd=tmp_path)
    assert f": lacks what is written by hand: shape of y {HINT}\n" in done.stderr
    shaped = full.replace(
        "type: float, doc: Others", f"type: float, shape: {shape}, doc: Others"
    )
    place(tmp_path / "opdefs", "math", "Full", shaped)
    done = command("lint", cwd=tmp_path)
    assert done.stderr == "opwright-codegen: opdefs: 1 op, no problems\n"


@pytest.mark.slow  # In a process with TensorFlow.
def test_import_of_a_new_op_names_lint_as_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "ops.pb"
    path.write_bytes(registry.save([op_def_pb2.OpDef(name="Bare")], path))
    run = ("import", "--library", path, "--opdefs", "mine", "--group", "math")
    done = command_on_registry(*run, cwd=tmp_path)
    step = "next: 'opwright-codegen lint --opdefs mine' lists the gaps\n"
    assert step in done.stderr
    assert "next: " not in command_on_registry(*run, cwd=tmp_path).stderr
    done = command("lint", "--opdefs", "mine", cwd=tmp_path)
    assert "Bare: lacks what is written by hand: summary" in done.stderr


def test_lint_of_the_opdefs_in_the_libraries_guide_warns_of_the_first(
    tmp_path: Path,
) -> None:
    guide = (ROOT / "docs/how-to/libraries.md").read_text("utf-8")
    before, after = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    place(tmp_path / "opdefs", "audio", "Gain", before)
    done = command("lint", cwd=tmp_path)
    lacks = f" summary, doc of signal, louder, factor, shape of louder {HINT}\n"
    assert lacks in done.stderr
    place(tmp_path / "opdefs", "audio", "Gain", after)
    done = command("lint", cwd=tmp_path)
    assert done.stderr == "opwright-codegen: opdefs: 1 op, no problems\n"


def test_lint_of_opwright_s_own_opdef_without_prose_fails(tmp_path: Path) -> None:
    """In a source tree, where the opdefs lie beside the package's folder."""
    packages, opdefs = tmp_path / "codegen", tmp_path / "opdefs"
    ignored = shutil.ignore_patterns("__pycache__")
    for package in (opwright_codegen, opwright_notation):
        folder = Path(package.__file__).parent
        shutil.copytree(folder, packages / folder.name, ignore=ignored)
    shutil.copytree(OPDEFS / "audio", opdefs / "audio")
    run = ("lint", "--opdefs", opdefs)
    env = {**os.environ, "PYTHONPATH": str(packages)}
    done = command(*run, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    place(opdefs, "math", "Bare", BARE)
    done = command(*run, cwd=tmp_path, env=env)
    assert done.returncode == 1
    assert (
        "Bare.yaml:1:1: Bare: lacks what is written by hand: summary, doc of x, y,"
        " size, description, example, shape of x, y; opdefs/WRITING.md says how\n"
    ) in done.stderr


@pytest.mark.parametrize("key", ["summary: ", "description: ", "example: "])
def test_missing_of_an_op_that_is_documented_is_nothing(key: str) -> None:
    path = OPDEFS / "math/Cumsum.yaml"
    op, problems = load.load_text(path.read_bytes(), path)
    assert op is not None and problems == []
    assert [*written.missing(op, in_full=True)] == []
    one = key.removesuffix(": ")
    lacking = dataclasses.replace(op, **{one: None})
    (problem,) = written.missing(lacking, in_full=True)
    assert f"written by hand: {one};" in problem.message
