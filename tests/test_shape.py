"""Tests share what lies in `support`, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from support.places import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(
    path
    for path in TESTS.rglob("*.py")
    if not path.is_relative_to(TESTS / "golden" / "expected")
)
# Whoever imports one of these runs it twice, or only where pytest happens to find it.
NOT_SHARED = {"conftest", "late_refusals"} | {
    path.stem for path in MODULES if path.stem.startswith("test_")
}
# For examples, which import each other, and for what a fresh process would have.
MAY_CHANGE_PATH = {"examples/conftest.py", "support/processes.py"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every part of the name of whatever a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)


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


def test_no_test_imports_another() -> None:
    wrong = {
        path.relative_to(TESTS).as_posix(): found
        for path in MODULES
        if (found := NOT_SHARED & set(imported(ast.parse(path.read_text("utf-8")))))
    }
    assert wrong == {}


def test_nobody_looks_elsewhere() -> None:
    """Modules are found where pyproject.toml and `environment()` say."""
    changing = {
        path.relative_to(TESTS).as_posix()
        for path in MODULES
        if changes_path(ast.parse(path.read_text("utf-8")))
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
def test_what_is_looked_for(code: str, names: set[str], changes: bool) -> None:
    tree = ast.parse(code)
    assert NOT_SHARED & set(imported(tree)) == names
    assert changes_path(tree) is changes


def test_modules_have_names_of_their_own() -> None:
    """pytest imports a test module by its last name."""
    names = [path.stem for path in MODULES if path.parent.name != "fuzz"]
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == len(set(tests))


def test_helpers_are_no_tests() -> None:
    names = [path.name for path in (TESTS / "support").rglob("*.py")]
    assert len(names) > 20
    assert [name for name in names if name.startswith("test_")] == []
