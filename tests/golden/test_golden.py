"""Small opdefs with one oddity each, and the Python expected for them.

The Python is also imported, checked by mypy and pyright, and run on a library that has
these very ops.
"""

from __future__ import annotations

import difflib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opwright_codegen.generate import Target, generate
from support.places import ROOT

HERE = Path(__file__).parent

OPDEFS = HERE / "opdefs"
EXPECTED = HERE / "expected"
CHECKS = HERE / "checks"
PACKAGE = "odd_ops"


def environment(**more: str) -> dict[str, str]:
    sources = [str(ROOT / name) for name in ("runtime", "codegen")] + [str(EXPECTED)]
    path = os.pathsep.join(sources)
    return {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **more}


def texts(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }


def test_generate_matches_goldens(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    generate(Target(OPDEFS, tmp_path, PACKAGE))
    if request.config.getoption("--update-goldens", default=False):
        shutil.rmtree(EXPECTED, ignore_errors=True)
        shutil.copytree(tmp_path / PACKAGE, EXPECTED / PACKAGE)
    expected = texts(EXPECTED / PACKAGE)
    generated = texts(tmp_path / PACKAGE)
    differences = [
        line
        for name in sorted({*expected, *generated})
        for line in difflib.unified_diff(
            expected.get(name, "").splitlines(),
            generated.get(name, "").splitlines(),
            f"expected/{name}",
            f"generated/{name}",
            lineterm="",
        )
    ]
    if differences or expected.keys() != generated.keys():
        pytest.fail(
            "generated code is not what is expected; if it should be, run"
            " 'make goldens' and read what changed\n\n" + "\n".join(differences),
            pytrace=False,
        )


def python(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        env=environment(**env),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.rotating(together="odd_ops", part=2)
def test_import_of_odd_ops_library_changes_no_opdef(
    odd_ops: Path, tmp_path: Path
) -> None:
    opdefs = shutil.copytree(OPDEFS, tmp_path / "opdefs")
    done = python(
        "opwright_codegen", "import", "--library", odd_ops, "--opdefs", opdefs
    )
    # Ops of TensorFlow with names that Python also has.
    assert [Path(line).stem for line in done.stdout.splitlines()] == [
        "Any",
        "If",
        "Iterator",
        "Unpack",
    ]
    assert done.stderr.endswith(": 0 added, 0 updated, 52 unchanged\n")
    assert texts(opdefs) == texts(OPDEFS)


@pytest.mark.rotating
def test_goldens_pass_mypy() -> None:
    """mypy accepts the goldens, and infers the types of what their functions return."""
    # A cache of its own: another test may run mypy at the same time.
    cache = ("--cache-dir", ROOT / ".mypy_cache" / "golden")
    done = python("mypy", *cache, EXPECTED, CHECKS / "typed.py", MYPYPATH=str(EXPECTED))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.rotating
def test_goldens_pass_pyright() -> None:
    done = python(
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        EXPECTED,
        CHECKS / "typed.py",
    )
    found = json.loads(done.stdout)
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] == 1 + len(list(EXPECTED.rglob("*.py")))


@pytest.mark.rotating(together="odd_ops", part=2)
def test_goldens_run_on_odd_ops_library(odd_ops: Path) -> None:
    """Runs in a process of its own, because a loaded library stays."""
    done = python(
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        HERE,
        CHECKS / "check_odd_ops.py",
        CHECKS / "check_documentation.py",
        ODD_OPS_LIBRARY=str(odd_ops),
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout and "skipped" not in done.stdout
