"""`release`: what it is for, what it reads of a project, what it refuses and prints.

test_release_wheel.py releases a project.
"""

from __future__ import annotations

import ast
import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from opwright_codegen.problems import SourceError
from opwright_codegen.release import plan, project, table, tasks
from opwright_codegen.release.plan import Interpreter, Opwright
from opwright_codegen.upgrade.steps import StepError
from support.places import OPDEFS, ROOT
from support.workplace import command

EXAMPLE = ROOT / "examples" / "custom_op"
KNOWN = sorted(
    (path.name.removesuffix(".pb.xz") for path in (OPDEFS / "registries").iterdir()),
    key=Version,
)
HERE = ".".join(map(str, sys.version_info[:2]))


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of the example, without what was built in it."""
    left_out = shutil.ignore_patterns("build", "dist", "wheelhouse", "*.so")
    return shutil.copytree(EXAMPLE, tmp_path / "project", ignore=left_out)


# Versions of TensorFlow.


@pytest.mark.parametrize(
    ("given", "dependencies", "expected"),
    [
        ([], ["opwright>=0.1.0"], KNOWN),
        ([], ["tensorflow>=2.20"], [one for one in KNOWN if Version(one).minor >= 20]),
        ([], ["tensorflow-cpu==2.21.3"], ["2.21"]),
        (["2.21", "2.9", "2.10.1"], [], ["2.9", "2.10.1", "2.21"]),
        (["2.22.0rc0"], ["tensorflow>=2.18"], ["2.22.0rc0"]),
        (["2.21", "2.21"], [], ["2.21"]),
    ],
)
def test_versions_are_those_asked_for_or_known_in_their_order(
    given: list[str], dependencies: list[str], expected: list[str]
) -> None:
    assert plan.versions(given, dependencies) == expected


@pytest.mark.parametrize(
    ("given", "dependencies", "words"),
    [
        (["2.21", "2.21.0"], [], "2.21 and 2.21.0 are both TensorFlow 2.21, and a"),
        (["2.19", "2.21"], ["tensorflow>=2.20"], "excludes TensorFlow 2.19: change"),
        ([], ["tensorflow<2"], f"opwright knows TensorFlow {', '.join(KNOWN)}: give"),
        ([], ["tensor flow"], "'tensor flow' is no requirement of a package"),
    ],
)
def test_versions_that_no_wheel_can_have_are_refused(
    given: list[str], dependencies: list[str], words: str
) -> None:
    with pytest.raises(SourceError) as caught:
        plan.versions(given, dependencies)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.22", "tensorflow==2.22.*"),
        ("2.22.1", "tensorflow==2.22.1"),
        ("2.22.0rc0", "tensorflow==2.22.0rc0"),
    ],
)
def test_pinned_minor_version_takes_its_newest_release(
    version: str, expected: str
) -> None:
    assert plan.pinned(version) == expected


def requirement_of_the_wheel() -> Callable[[Sequence[str]], str]:
    """The function of the project's hatch_build.py, without hatchling."""
    tree = ast.parse((EXAMPLE / "hatch_build.py").read_text("utf-8"))
    kept: list[ast.stmt] = [
        one
        for one in tree.body
        if (isinstance(one, ast.FunctionDef) and one.name == "requirement")
        or (isinstance(one, ast.ImportFrom) and "hatchling" not in str(one.module))
    ]
    scope: dict[str, Callable[[Sequence[str]], str]] = {}
    exec(compile(ast.Module(kept, []), "hatch_build.py", "exec"), scope)
    return scope["requirement"]


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (["2.21.0"], "tensorflow==2.21.*"),
        (["2.22.0-rc0"], "tensorflow==2.22.*"),
        (["2.21.0", "2.18.1", "2.19.0", "2.20.0"], "tensorflow>=2.18,<2.22"),
        (
            ["2.9.0", "2.10.0", "2.13.0-rc0"],
            "tensorflow>=2.9,<2.14,!=2.11.*,!=2.12.*",
        ),
    ],
)
def test_requirement_of_a_wheel_takes_the_versions_of_its_libraries_only(
    built: list[str], expected: str
) -> None:
    assert requirement_of_the_wheel()(built) == expected


# Interpreters and opwright.


def test_interpreters_by_path_and_version_are_found() -> None:
    (found,) = plan.interpreters([])
    assert found == Interpreter(Path(sys.executable), HERE)
    assert plan.interpreters([sys.executable]) == [found]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["3.99"], "--python 3.99: no such interpreter starts; give the path"),
        (["/bin/false"], "--python /bin/false: no such interpreter starts"),
        ([sys.executable, sys.executable], f" are both Python {HERE}: give one"),
    ],
)
def test_interpreters_that_do_not_start_or_repeat_are_refused(
    given: list[str], words: str
) -> None:
    with pytest.raises(SourceError) as caught:
        plan.interpreters(given)
    assert words in str(caught.value)


def test_opwright_is_a_wheel_a_folder_or_a_requirement(tmp_path: Path) -> None:
    wheel = tmp_path / "opwright-0.1.0-py3-none-any.whl"
    wheel.touch()
    assert plan.opwright(str(wheel)) == Opwright(str(wheel), wheel=wheel)
    assert plan.opwright(str(ROOT)) == Opwright(str(ROOT), source=ROOT)
    assert plan.opwright("opwright>=0.1") == Opwright("opwright>=0.1")
    for wrong, words in (
        (str(tmp_path), "is no wheel, and no folder with opwright's sources"),
        ("other.whl", "there is no such file or folder"),
        ("numpy>=1", "this is no requirement of opwright"),
        ("!", "'!' is no requirement of a package"),
    ):
        with pytest.raises(SourceError) as caught:
            plan.opwright(wrong)
        assert words in str(caught.value)


# The project.


def test_project_has_what_its_files_say(example: Path) -> None:
    found = project.read(example)
    assert (found.name, found.dependencies) == ("my-audio", ("opwright>=0.1.0",))
    assert found.test_group is not None and '"test": ["pytest"]' in found.test_group
    # `src` would hide the installed package.
    assert found.python_path == ()
    settings = example / "pyproject.toml"
    text = settings.read_text().replace('["src"]', '["src", "tests/support"]')
    settings.write_text(text.replace('test = ["pytest"]\n', ""))
    found = project.read(example)
    assert (found.test_group, found.python_path) == (None, ("tests/support",))


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("native/fade.cc", "library wheel tests"),
        ("native/more/new.h", "library wheel tests"),
        ("src/my_audio/gradients.py", "wheel tests"),
        ("tests/golden/Fade.json", "tests"),
        ("src/my_audio/ops/libmy_audio_ops.so", ""),
        ("build/release/a.txt", ""),
        (".venv/pyvenv.cfg", ""),
        ("environment/pyvenv.cfg", ""),
    ],
)
def test_digest_changes_with_the_files_of_a_step(
    file: str, changed: str, example: Path
) -> None:
    kinds = {
        "library": project.of_library,
        "wheel": project.of_wheel,
        "tests": project.of_tests,
    }
    found = project.read(example)
    before = {name: found.digest(kind) for name, kind in kinds.items()}
    path = example / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("another text")
    after = {name: found.digest(kind) for name, kind in kinds.items()}
    assert [name for name in kinds if before[name] != after[name]] == changed.split()


# The command.


def test_release_that_cannot_be_is_refused(example: Path) -> None:
    def refusal(*arguments: str | Path) -> str:
        done = command("release", *arguments, cwd=example)
        assert done.returncode == 2
        return str(done.stderr)

    assert "'2.22rc0' is no version of TensorFlow" in refusal("--tensorflow", "2.22rc0")
    assert "both TensorFlow 2.21" in refusal("--tensorflow", "2.21", "2.21.1")
    assert "no such interpreter starts" in refusal("--python", "3.99")
    assert "there is no such file" in refusal("--opwright", "gone.whl")
    assert not (example / "build").exists()
    (example / "pyproject.toml").write_text("[")
    assert "pyproject.toml cannot be read: " in refusal()
    (example / "CMakeLists.txt").unlink()
    assert "CMakeLists.txt is missing: run release in the folder of" in refusal()


def test_release_help_lists_the_steps_and_examples() -> None:
    text = command("release", "--help").stdout
    for step in ("environment", "build", "wheel", "audit", "install", "tests"):
        assert f"\n  {step} " in text
    assert "opwright-codegen release --tensorflow 2.20 2.21 " in text


@pytest.mark.rotating
@pytest.mark.slow  # It makes an environment.
def test_release_without_an_index_names_pip_s_last_lines(example: Path) -> None:
    old = example / "wheelhouse" / "my_ops-0.1.0.whl"
    old.parent.mkdir()
    old.touch()
    env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    done = command("release", "--opwright", "opwright", cwd=example, env=env)
    assert done.returncode == 1
    assert "opwright-codegen: tools failed\n" in done.stderr
    assert "ERROR: No matching distribution found for " in done.stderr
    log = example / "build/release/log/tools.txt"
    assert f"all of its output is in {log}\n" in done.stderr
    assert "this run has written no wheel to wheelhouse" in done.stderr
    assert "wheelhouse still has my_ops-0.1.0.whl, of an earlier run" in done.stderr
    assert KNOWN[-1] in done.stdout
    assert [path.name for path in (example / "wheelhouse").iterdir()] == [old.name]


def test_release_beside_another_is_refused(example: Path) -> None:
    folder = example / "build/release"
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = command("release", "--opwright", "opwright", cwd=example)
    assert done.returncode == 2
    assert f"another release runs in {folder}: wait for its end" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_release_of_an_empty_opwright_is_refused(example: Path) -> None:
    done = command("release", "--opwright", "", cwd=example)
    assert done.returncode == 2
    assert "--opwright is empty: give a path or a requirement" in done.stderr


def test_release_target_of_the_makefile_passes_versions_on(example: Path) -> None:
    variables = ("TENSORFLOW=2.20 2.21", "RELEASE=--keep-going")
    done = subprocess.run(
        ["make", "--dry-run", "release", *variables, "PYTHON=python3"],
        cwd=example,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = "-m opwright_codegen release --tensorflow 2.20 2.21 --keep-going"
    assert expected in " ".join(done.stdout.split())


def test_workflow_of_a_project_builds_and_uploads_what_release_writes() -> None:
    path = EXAMPLE / ".github/workflows/release.yml"
    read = yaml.safe_load(path.read_text("utf-8"))
    assert read["permissions"] == {"contents": "read"}
    jobs = read["jobs"]
    assert all("timeout-minutes" in job for job in jobs.values())
    runs = [step.get("run", "") for step in jobs["wheel"]["steps"]]
    assert any(run.startswith("make release ") for run in runs)
    makefile = (EXAMPLE / "Makefile").read_text("utf-8")
    assert "\nrelease: " in makefile and "\ngenerate: " in makefile
    uploads = [step.get("with", {}).get("path") for step in jobs["wheel"]["steps"]]
    assert "wheelhouse/*.whl" in uploads
    assert jobs["pypi"]["needs"] == "wheel"
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}


# What the steps refuse and print.


@pytest.mark.parametrize(
    ("file", "loaded", "words"),
    [
        ("site/my_ops/__init__.py", "site/my_ops/_lib/2.21/libmy_ops.so", ""),
        ("src/my_ops/__init__.py", "", "which is not in"),
        ("site/my_ops/__init__.py", "site/my_ops/libmy_ops.so", "loads no library in"),
        ("site/my_ops/__init__.py", "site/my_ops/_lib/2.2/a.so", "loads no library in"),
    ],
)
def test_installed_package_from_elsewhere_is_refused(
    file: str, loaded: str, words: str, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    found = {"file": str(tmp_path / file), "loaded": [str(tmp_path / loaded)]}
    if not words:
        tasks.expect_own_library(found, "my_ops", site, "2.21")
        return
    with pytest.raises(StepError, match=words):
        tasks.expect_own_library(found, "my_ops", site, "2.21")


def test_table_has_a_row_for_each_version(capsys: pytest.CaptureFixture[str]) -> None:
    cells = {"environment": "made", "build": "failed"}
    rows = [table.Row("2.21.0", "3.11", cells, 61.4), table.Row("2.22", "3.11")]
    table.show(rows)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["2.21.0", "3.11", "made", "failed", "-", "-", "-", "61"] in lines
    assert ["2.22", "3.11", "-", "-", "-", "-", "-", "0"] in lines


def test_tested_has_the_counts_of_pytest() -> None:
    rows = ["a passed", "= 9 passed, 1 skipped, 345 warnings in 8.61s (0:00:08) =", ""]
    assert tasks.tested(rows) == "9 passed, 1 skipped"
    assert tasks.tested(["7 passed in 2.10s"]) == "7 passed"
    assert tasks.tested([]) == "passed"


def test_packages_of_a_wheel_are_those_with_libraries(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("m/ops/_lib/2.20/libm.so", "m/ops/_lib/2.21/libm.so", "n/b.so"):
            archive.writestr(name, "")
    assert tasks.packages(wheel) == {"m.ops"}
