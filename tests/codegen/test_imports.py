"""The layers of imports: `opwright` -> `opwright_runtime` -> TensorFlow; codegen alone.

The runtime and the generator share the notation of shapes.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.places import ROOT, environment

STDLIB = sys.stdlib_module_names
ALLOWED = {
    "generated/opwright": {
        "opwright",
        "opwright_runtime",
        "numpy",
        "typing_extensions",
    },
    "runtime/opwright_notation": {"opwright_notation"},
    "runtime/opwright_runtime": {
        "opwright_notation",
        "opwright_runtime",
        "tensorflow",
        "numpy",
        "typing_extensions",
        "rich",
    },
    "codegen/opwright_codegen": {
        "opwright_codegen",
        "opwright_notation",
        "black",
        "jinja2",
        "numpy",
        "rich",
        "yaml",
    },
}
#: Beyond that, for what a module is there for.
EXCEPTIONS = {
    "codegen/opwright_codegen/registry.py": {"google", "tensorflow"},
    # It reads the requirements of a project.
    "codegen/opwright_codegen/release/plan.py": {"packaging"},
    # They parse messages, and report those that are damaged.
    "runtime/opwright_runtime/convert/saved_models.py": {"google"},
    "runtime/opwright_runtime/convert/sources.py": {"google"},
    # Imported on the first use of opwright.keras: test_lazy.py.
    "runtime/opwright_runtime/rnn/keras_layers.py": {"keras"},
    "runtime/opwright_runtime/rnn/keras_models.py": {"keras"},
}


#: A statement that black laid out begins its line; a name with a dot first is relative.
GENERATED_IMPORT = re.compile(r"^ *(?:from (\w*)\S* import|import (\w+))", re.MULTILINE)


def imports(path: Path) -> Iterator[str]:
    """The top-level packages that a module imports, anywhere in it."""
    text = path.read_text("utf-8")
    if text.startswith("# @generated"):  # Parsing all of them takes seconds.
        # Packages of ops may lie anywhere: relative imports have no name.
        found = GENERATED_IMPORT.findall(text)
        yield from filter(None, (one or other for one, other in found))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("package", ALLOWED)
def test_package_imports_are_allowed(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in files
        for name in set(imports(path))
        if name not in STDLIB
        and name not in ALLOWED[package]
        and name not in EXCEPTIONS.get(path.relative_to(ROOT).as_posix(), ())
    }
    assert wrong == set()


def test_generating_takes_no_tensorflow() -> None:
    code = (
        "import sys\n"
        "import opwright_codegen.cli, opwright_codegen.emit, opwright_codegen.format\n"
        "from opwright_codegen import cli\n"
        "assert cli.main(['generate']) == 0\n"
        "unwanted = {'tensorflow', 'opwright', 'opwright_runtime'}\n"
        "print(sorted(unwanted & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
