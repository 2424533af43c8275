"""One module replaces attributes of other libraries, with the versions it is for."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf

from opwright_runtime import _patches
from support.places import ROOT

RUNTIME = ROOT / "runtime" / "opwright_runtime"


def imports(tree: ast.Module) -> set[str]:
    """What a module has of TensorFlow: names that it imports, all but opwright's."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                (alias.asname or alias.name).split(".")[0] for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if not module.startswith("opwright") or module.endswith("._internals"):
                found |= {alias.asname or alias.name for alias in node.names}
    return found


def changed(tree: ast.Module) -> Iterator[str]:
    """The imported objects whose attributes a module sets."""
    names = imports(tree)
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [one for one in node.targets if isinstance(one, ast.Attribute)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            targets = [ast.Attribute(node.args[0], "any")]
        for target in targets:
            root = re.match(r"\w+", ast.unparse(target))
            if root and root[0] in names:
                yield ast.unparse(target)


@pytest.mark.slow
def test_patches_are_the_only_changes_of_imported_objects() -> None:
    found = {
        path.relative_to(RUNTIME).as_posix(): changes
        for path in RUNTIME.rglob("*.py")
        if path.name != "_patches.py"
        and (changes := [*changed(ast.parse(path.read_text("utf-8")))])
    }
    # The documented way to choose a folder, in a process that runs nothing else. The
    # command line of a script while it is imported.
    assert found == {
        "convert_cli.py": ["tempfile.tempdir"],
        "tpu_check/cli.py": ["sys.argv", "sys.argv"],
    }


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("import tensorflow as tf\ntf.function = f", ["tf.function"]),
        ("from opwright_runtime._internals import ops\nops.a.b = f", ["ops.a.b"]),
        (
            "from opwright_runtime._internals import ops\nsetattr(ops, n, f)",
            ["ops.any"],
        ),
        ("from opwright_runtime.errors import make\nmake.name = f", []),
        ("import tensorflow as tf\nself.tf = tf\nop.name = f", []),
    ],
)
def test_changed_finds_assignments_to_imported_objects(
    code: str, changes: list[str]
) -> None:
    assert [*changed(ast.parse(code))] == changes


def test_tested_versions_are_those_of_the_package() -> None:
    """pyproject.toml has the oldest version, and the first that is not tested."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    oldest, untested = re.findall(r'"tensorflow>=(\S+),<(\S+)"', text)[0]
    assert f'"tensorflow>={oldest}",' in text
    assert oldest in _patches.TESTED
    assert untested not in _patches.TESTED
    major, minor = map(int, untested.split("."))
    assert _patches.TESTED.last == (major, minor - 1)
    assert tf.__version__ in _patches.TESTED


@pytest.mark.parametrize(
    ("version", "tested", "stable"),
    [
        ("2.17.1", False, False),
        ("2.18.0", True, True),
        ("2.22.0-rc1", True, True),
        ("2.23.0.dev20260101", False, True),
        ("3.0.0", False, True),
    ],
)
def test_versions_contain_a_version_by_major_and_minor(
    version: str, tested: bool, stable: bool
) -> None:
    assert (version in _patches.TESTED) is tested
    assert (version in _patches.STABLE) is stable


class Library:
    def method(self) -> str:
        return "theirs"


@pytest.fixture
def library() -> type[Library]:
    return type("Library", (), dict(vars(Library)))


def ours(original: Callable[..., str]) -> Callable[..., str]:
    def method(self: Library) -> str:
        return f"ours, {original(self)}"

    return method


def test_replace_twice_wraps_once(library: type[Library]) -> None:
    for _ in range(2):
        _patches._replace(library, "method", ours)
        _patches.wrap_if_present(library, "method", ours)
    assert library().method() == "ours, theirs"


def test_replace_in_another_version_refuses_and_names_both(
    library: type[Library],
) -> None:
    other = _patches.Versions((9, 1), (9, 3))
    with pytest.raises(RuntimeError) as refused:
        _patches._replace(library, "method", ours, other)
    assert str(refused.value) == (
        "opwright replaces Library.method of TensorFlow 9.1 to 9.3; TensorFlow "
        f"{tf.__version__} is installed. Install one of those: "
        "pip install 'tensorflow==9.1.*'"
    )
    assert library().method() == "theirs"


def test_replace_of_a_missing_method_refuses(library: type[Library]) -> None:
    with pytest.raises(RuntimeError, match=r"Library\.other .* and has none\. Install"):
        _patches._replace(library, "other", ours)
    assert not hasattr(library, "other")


def test_wrap_if_present_without_the_method_changes_nothing(
    library: type[Library],
) -> None:
    _patches.wrap_if_present(library, "other", ours)
    _patches.wrap_if_present(None, "method", ours)
    assert not hasattr(library, "other")
