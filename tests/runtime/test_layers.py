"""The layers of the runtime: which may import which, and that there is no cycle.

What type checkers alone import counts, and what a function imports when it is called.
"""

import ast
import functools
import graphlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime" / "opwright_runtime"

#: A module or package of the runtime, and those that it may import from; "" is the
#: runtime's own `__init__`, which has the version.
MAY_IMPORT = {
    "": set(),
    "_extras": set(),
    "_internals": set(),
    "_patches": {"_internals"},
    "errors": set(),
    "_library_versions": set(),
    "_native_library": {"_library_versions"},
    "_build_native": {"_native_library"},
    "native": {"_native_library"},
    "types": {"errors"},
    "libraries": {"_internals", "_library_versions", "runs_on"},
    "kernels": {"_internals", "libraries", "native", "_tpu_dtypes"},
    "runs_on": {"_tpu_dtypes"},
    "_tpu_dtypes": set(),
    "_binding": {
        "_internals",
        "_patches",
        "errors",
        "kernels",
        "libraries",
        "native",
        "runs_on",
        "types",
    },
    "rnn": {"_binding", "_internals", "errors", "native"},
    "embedding": {"_internals", "_patches", "errors", "native", "types"},
    "convert": {"_extras", "_internals", "native", "rnn"},
    "convert_cli": {"_extras"},
    "search": {"_binding", "errors"},
    "cli": {"_build_native", "native", "search"},
    "tpu_check": {"_extras", "_internals", "kernels", "runs_on", "_tpu_dtypes"},
    "checked_models": {"_binding", "_internals"},
    "api": {
        "_binding",
        "checked_models",
        "errors",
        "rnn",
        "search",
        "tpu_check",
        "types",
    },
    "gencode": {"", "_binding", "libraries", "native", "search"},
}


def dotted(path: Path) -> str:
    """A module by its name below the runtime: `_binding.scope`."""
    parts = path.relative_to(RUNTIME).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {dotted(path): path for path in RUNTIME.rglob("*.py")}


def imported(path: Path) -> set[str]:
    """The modules of the runtime that one of them imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, below = name.partition(".")
            if top == "opwright_runtime":
                # What is no module is a name in one.
                found.add(below if below in MODULES else below.rpartition(".")[0])
    return found


@functools.cache
def imports() -> dict[str, set[str]]:
    return {name: imported(path) for name, path in MODULES.items()}


def layer(module: str) -> str:
    return module.partition(".")[0]


def test_runtime_layers_are_all_known() -> None:
    assert {layer(module) for module in MODULES} == MAY_IMPORT.keys()


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_runtime_layer_imports_what_it_may(name: str) -> None:
    used = {
        layer(other)
        for module, others in imports().items()
        if layer(module) == name
        for other in others
    }
    # What is allowed and not used would let something in later, unseen.
    assert used - {name} == MAY_IMPORT[name]


def test_runtime_modules_have_no_import_cycle() -> None:
    list(graphlib.TopologicalSorter(imports()).static_order())


#: A module without ops: nothing of it is generated but that it is there.
KERAS = (
    '"""opwright.keras: what opwright_runtime.rnn.keras_models has."""',
    "from opwright_runtime.rnn.keras_models import *",
    "from opwright_runtime.rnn.keras_models import __all__ as __all__",
)
NATIVE = tuple(
    said.replace("opwright.keras", "opwright.native").replace(
        "rnn.keras_models", "native"
    )
    for said in KERAS
)
CONVERT = tuple(said.replace("native", "convert") for said in NATIVE)
#: What `python -m opwright` runs, no more.
COMMAND = (
    '"""`python -m opwright`: the command line of opwright_runtime.cli."""',
    "from opwright_runtime.cli import main",
)


@pytest.mark.slow
def test_generated_code_imports_one_module() -> None:
    """Except for type checkers, which read handwritten names where they are defined."""
    line = re.compile(r"^.*\bopwright_runtime\b.*$", re.MULTILINE)
    paths = sorted((ROOT / "generated").rglob("*.py"))
    paths += sorted((ROOT / "tests" / "golden" / "expected").rglob("*.py"))
    found = {
        (path.relative_to(ROOT).as_posix(), statement.strip())
        for path in paths
        for statement in line.findall(path.read_text("utf-8"))
        if not statement.strip().startswith("from opwright_runtime.gencode import ")
    }
    assert found == {
        ("generated/opwright/__init__.py", "from opwright_runtime.api import *"),
        ("generated/opwright/__init__.py", 'exports="opwright_runtime.api",'),
        (
            "generated/opwright/tpu/__init__.py",
            "from opwright_runtime.embedding import *",
        ),
        ("generated/opwright/tpu/__init__.py", 'exports="opwright_runtime.embedding",'),
        *(("generated/opwright/keras.py", said) for said in KERAS),
        *(("generated/opwright/native.py", said) for said in NATIVE),
        *(("generated/opwright/convert.py", said) for said in CONVERT),
        *(("generated/opwright/__main__.py", said) for said in COMMAND),
    }
