"""Test modules share code through folders named `support` alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.places import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(
    path
    for path in TESTS.rglob("*.py")
    if not path.is_relative_to(TESTS / "golden" / "expected")
)
# An imported test module runs twice, or only where pytest happens to find it.
NOT_SHARED = {"conftest", "late_refusals"} | {
    path.stem for path in MODULES if path.stem.startswith("test_")
}
# The modules and packages of tests/support, such as `support.places`.
SHARED = {
    f"support.{path.stem}"
    for path in (TESTS / "support").iterdir()
    if path.suffix == ".py" and path.stem != "__init__"
} | {
    f"support.{path.parent.name}" for path in (TESTS / "support").glob("*/__init__.py")
}
# For examples, which import each other, and for what a fresh process would have.
MAY_CHANGE_PATH = {"examples/conftest.py", "support/processes.py"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def paths_imported(tree: ast.AST) -> tuple[str, ...]:
    """What a module imports anywhere in it, such as `support.places.ROOT`."""
    return tuple(_paths_imported(tree))


def _paths_imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def imported(tree: ast.AST) -> set[str]:
    """The parts of all names that a module imports."""
    return {part for path in paths_imported(tree) for part in path.split(".")}


def user_of(path: Path) -> str:
    """The folder of a module, or its name in `support`, such as `support.places`."""
    place = path.relative_to(TESTS).with_suffix("").parts
    if place[0] == "support":
        return ".".join(place[:2])
    return place[0] if len(place) > 1 else ""


def changes_path(tree: ast.AST) -> bool:
    """Whether a module calls a method of sys.path, or assigns to it or a part."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func.value]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        for target in targets:
            whole = target.value if isinstance(target, ast.Subscript) else target
            if ast.unparse(whole) == "sys.path":
                return True
    return False


def test_modules_import_no_test_module() -> None:
    wrong = {
        path.relative_to(TESTS).as_posix(): found
        for path in MODULES
        if (found := NOT_SHARED & imported(parsed(path)))
    }
    assert wrong == {}


def test_modules_leave_sys_path_alone() -> None:
    """Modules are found where pyproject.toml and `environment()` say."""
    changing = {
        path.relative_to(TESTS).as_posix()
        for path in MODULES
        if changes_path(parsed(path))
    }
    assert changing == MAY_CHANGE_PATH


@pytest.mark.parametrize(
    ("code", "names", "changes"),
    [
        ("import test_numbers", {"test_numbers"}, False),
        ("from .test_numbers import run", {"test_numbers"}, False),
        ("from support import test_numbers", {"test_numbers"}, False),
        ("def f():\n    import rnn.test_numbers as t", {"test_numbers"}, False),
        ("import sys\nsys.path.append('rnn')", set(), True),
        ("import sys\nsys.path[:0] = ['rnn']", set(), True),
        ("import sys\nsys.path += ['rnn']", set(), True),
        ("import os, sys\npath = os.pathsep.join(sys.path)", set(), False),
    ],
)
def test_imported_and_changes_path_find_each_form(
    code: str, names: set[str], changes: bool
) -> None:
    tree = ast.parse(code)
    assert NOT_SHARED & imported(tree) == names
    assert changes_path(tree) is changes


def test_makefile_selected_names_are_of_tests() -> None:
    """A target that selects no test passes without having run one."""
    text = (ROOT / "Makefile").read_text("utf-8")
    chosen = re.findall(r"(tests/\S+\.py) -k (\w+)", text)
    assert chosen
    for path, name in chosen:
        functions = [
            node.name
            for node in ast.walk(parsed(ROOT / path))
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        assert [one for one in functions if name in one], f"{path} -k {name}"


@pytest.mark.slow
def test_support_modules_serve_several_folders() -> None:
    """A helper of one folder belongs into the `support` of that folder."""
    users: dict[str, set[str]] = {name: set() for name in SHARED}
    for path in MODULES:
        place = user_of(path)
        for name in paths_imported(parsed(path)):
            shared = ".".join(name.split(".")[:2])
            if shared in SHARED and shared != place:
                users[shared].add(place)
    # A helper that another one uses serves the folders of that one.
    few = {
        name: found
        for name, found in users.items()
        if len(found) < 2 and not found & SHARED
    }
    assert few == {}


def test_support_modules_import_no_other_folder() -> None:
    folders = {path.name for path in TESTS.iterdir()} - {"support"}
    importing = {
        path.relative_to(TESTS).as_posix(): sorted(found)
        for path in (TESTS / "support").rglob("*.py")
        if (
            found := folders
            & {name.partition(".")[0] for name in paths_imported(parsed(path))}
        )
    }
    assert importing == {}


def test_support_of_folders_has_no_init_module() -> None:
    """With one, pytest would import `gpu.support` as `support`."""
    assert [*TESTS.glob("*/support/")] != []
    assert [*TESTS.glob("*/support/**/__init__.py")] == []


def test_support_has_no_test_module() -> None:
    names = [path.name for path in TESTS.rglob("support/**/*.py")]
    assert len(names) > 20
    assert [name for name in names if name.startswith("test_")] == []
