"""Test modules import only `support`, and their tests have clear names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

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
# For examples, which import each other, and for what a fresh process would have.
MAY_CHANGE_PATH = {"examples/conftest.py", "support/processes.py"}
# The name of a test begins with the unit that it tests.
NO_UNIT = re.compile(r"test_(a|an|how|it|nobody|nothing|the|what|where|who)_")
# Folders and files without this rule.
EXEMPT_TO_BE_REMOVED = (
    "codegen/",
    "embedding/",
    "runtime/",
    "reference/test_search.py",
)


def imported(tree: ast.AST) -> Iterator[str]:
    """The parts of all names that a module imports, anywhere in it."""
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


def test_modules_import_no_test_module() -> None:
    wrong = {
        path.relative_to(TESTS).as_posix(): found
        for path in MODULES
        if (found := NOT_SHARED & set(imported(ast.parse(path.read_text("utf-8")))))
    }
    assert wrong == {}


def test_modules_leave_sys_path_alone() -> None:
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
def test_imported_and_changes_path_find_each_form(
    code: str, names: set[str], changes: bool
) -> None:
    tree = ast.parse(code)
    assert NOT_SHARED & set(imported(tree)) == names
    assert changes_path(tree) is changes


def test_function_names_begin_with_the_unit() -> None:
    """A search for a class, a function or an op finds its tests."""
    names = [
        f"{path.relative_to(TESTS).as_posix()}: {node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and NO_UNIT.match(node.name)
    ]
    assert [name for name in names if not name.startswith(EXEMPT_TO_BE_REMOVED)] == []


def test_support_has_no_test_module() -> None:
    names = [path.name for path in (TESTS / "support").rglob("*.py")]
    assert len(names) > 20
    assert [name for name in names if name.startswith("test_")] == []
