"""Groups: what is said of each, and ops that are still imported from where they lay."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tensorflow.core.framework import op_def_pb2

from opwright_codegen import groups, importer, load
from opwright_codegen.problems import SourceError
from support.places import OPDEFS, ROOT
from support.processes import run_code
from support.workplace import command, place, tree

SAID = """\
groups:
  audio: Sound.
moved:
  core: [Echo]
"""


def generate(root: Path) -> dict[str, bytes]:
    done = command(
        "generate",
        "--opdefs",
        "opdefs",
        "--output",
        ".",
        "--package",
        "mine",
        cwd=root,
    )
    assert done.returncode == 0, done.stderr
    return tree(root / "mine")


def assert_runs(code: str, root: Path) -> None:
    # `mine` lies in the working directory.
    done = run_code(code, cwd=root)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Opdefs of two ops, of which one moved from core to audio."""
    place(tmp_path / "opdefs", "audio", "Echo")
    place(tmp_path / "opdefs", "nn", "Layer")
    (tmp_path / "opdefs/groups.yaml").write_text(SAID)
    return tmp_path


def docstring(source: bytes) -> str:
    return ast.get_docstring(ast.parse(source)) or ""


def test_generate_group_line_is_package_docstring(mine: Path) -> None:
    files = generate(mine)
    assert docstring(files["audio/__init__.py"]) == (
        "mine.audio: sound.\n\n1 op, each a class and a function."
    )
    assert docstring(files["nn/__init__.py"]) == (
        "mine.nn: 1 op, each a class and a function."
    )
    assert docstring(files["core/__init__.py"]) == (
        "mine.core: 1 op of other groups, imported from here as before."
    )


@pytest.mark.slow  # In a process with TensorFlow.
def test_generate_exported_module_adds_names_to_package(mine: Path) -> None:
    """Its `__all__`, in addition to the ops; imported when a name of it is read."""
    (mine / "effects.py").write_text("__all__ = ['reverse']\nreverse = other = len\n")
    (mine / "opdefs/groups.yaml").write_text("exports: {audio: effects}\n")
    generate(mine)
    code = (
        "import sys, mine\n"
        "mine.audio.Echo\n"
        "assert 'effects' not in sys.modules\n"
        "assert mine.audio.reverse is len\n"
        "assert {'Echo', 'reverse'} <= set(dir(mine.audio))\n"
        "assert not hasattr(mine.audio, 'other')\n"
    )
    assert_runs(code, mine)


@pytest.mark.rotating
@pytest.mark.slow  # Each in a process of its own.
@pytest.mark.parametrize(
    "statement",
    [
        "from mine.core import Echo, echo",
        "from mine.core.echo import Echo, echo",
        "import mine.core.echo; from mine.core import Echo, echo",
        "import mine; Echo, echo = mine.core.Echo, mine.core.echo",
        "from mine.core import *",
        "from mine.core.echo import *",
    ],
)
def test_generate_moved_op_imports_from_old_place(mine: Path, statement: str) -> None:
    generate(mine)
    code = (
        f"{statement}\n"
        "import mine\n"
        "assert Echo is mine.audio.Echo is mine.op_class('Echo')\n"
        "assert echo is mine.audio.echo\n"
        "assert mine.core.echo is echo\n"
        "assert {'Echo', 'echo'} <= set(dir(mine.core))\n"
    )
    assert_runs(code, mine)


def test_generate_moved_op_old_module_follows_and_is_removed(mine: Path) -> None:
    assert b"..audio.echo" in generate(mine)["core/echo.py"]
    path = mine / "opdefs/audio/Echo.yaml"
    path.unlink()
    place(mine / "opdefs", "io", "Echo")
    (mine / "opdefs/groups.yaml").write_text("moved: {core: [Echo], audio: [Echo]}\n")
    files = generate(mine)
    assert b"..io.echo" in files["core/echo.py"]
    assert files["audio/echo.py"] == files["core/echo.py"]

    (mine / "opdefs/groups.yaml").unlink()
    files = generate(mine)
    assert not any(name.startswith(("core/", "audio/")) for name in files)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("", "1:1", "the file is empty"),
        ("groups: [nn]\n", "1:9", "must be a mapping, not a list"),
        ("group: {}\n", "1:1", "unknown key 'group' in the file (did you mean"),
        ("groups: {nm: A.}\n", "1:10", "unknown key 'nm' in 'groups' of the file"),
        ("groups: {nn: ' '}\n", "1:14", "is empty; leave the key out"),
        ("exports: {core: a}\n", "1:11", "unknown key 'core' in 'exports' of the file"),
        ("exports: {nn: a-b}\n", "1:15", "must be a module, such as a.b, not 'a-b'"),
        ("exports: {nn: [a]}\n", "1:15", "must be text, not a list"),
        ("moved: {nn: Echo}\n", "1:13", "must be a list, not text 'Echo'"),
        ("moved: {core: [Eco]}\n", "1:16", "no opdef (did you mean 'Echo'?)"),
        ("moved:\n  audio: [Echo]\n", "2:11", "'Echo', which lies there now"),
        ("moved:\n  core:\n  - Echo\n  - Echo\n", "4:5", "is 'Echo' once more"),
        ("moved: {Core: [Echo]}\n", "1:15", "'Core' in 'moved' of the file cannot be"),
        ("moved: {import: [Echo]}\n", "1:17", "cannot be the name of a package"),
        ("moved: {nn.layer: [Echo]}\n", "1:19", "is a name of 'Layer'"),
        ("moved: {nn: [LAYER]}\n", "1:14", "'LAYER', but 'Layer' is 'layer' there"),
    ],
)
def test_groups_mistake_is_one_problem(
    mine: Path, text: str, where: str, words: str
) -> None:
    opdefs = mine / "opdefs"
    place(opdefs, "io", "LAYER")
    path = opdefs / "groups.yaml"
    path.write_text(text)
    found, problems = groups.read(opdefs, load.find(opdefs))
    assert found == groups.Groups()
    assert [str(problem) for problem in problems] == [
        f"{path}:{where}: {problems[0].message}"
    ]
    assert words in problems[0].message

    for run in ("lint", "generate"):
        done = command(run, "--opdefs", opdefs, cwd=mine)
        assert done.returncode == 1
        assert str(problems[0]) in done.stderr
    assert not (mine / "generated").exists()


def test_import_of_new_ops_chooses_their_group(mine: Path) -> None:
    def added(*names: str, group: str | None = None) -> set[str]:
        op_defs = [op_def_pb2.OpDef(name=name) for name in names]
        done = importer.import_ops(op_defs, mine / "opdefs", group)
        return {path.relative_to(mine / "opdefs").as_posix() for path in done.added}

    assert added("EchoV2") == {"audio/EchoV2.yaml"}
    with pytest.raises(SourceError, match="Reverb: in no group yet"):
        added("Reverb")
    assert added("EchoV3", "Flange", group="fx") == {"fx/EchoV3.yaml", "fx/Flange.yaml"}


@pytest.fixture(scope="module")
def known() -> groups.Groups:
    found, problems = groups.read(OPDEFS, load.find(OPDEFS))
    assert problems == []
    return found


def test_groups_file_describes_every_group(known: groups.Groups) -> None:
    assert set(known.lines) == {path.parent.name for path in load.find(OPDEFS)}
    assert not [line for line in known.lines.values() if not line.endswith(".")]


def test_groups_table_in_docs_is_current(known: groups.Groups) -> None:
    """docs/reference/groups.md has what groups.yaml says, or the test prints it."""
    counts = dict.fromkeys(sorted(known.lines), 0)
    for path in load.find(OPDEFS):
        counts[path.parent.name] += 1
    rows = [
        f"| `opwright.{group}` | {count} | {known.lines[group]} |"
        for group, count in counts.items()
    ]
    page = (ROOT / "docs/reference/groups.md").read_text("utf-8")
    assert [row for row in page.splitlines() if row.startswith("| `opwright.")] == rows
    assert f"{len(counts)} groups" in " ".join(page.split())
