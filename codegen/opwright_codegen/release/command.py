"""The command `release`: its arguments, the order of its steps, and what it says."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opwright_codegen import argument_types
from opwright_codegen.problems import SourceError, one_line
from opwright_codegen.release import plan, project, table
from opwright_codegen.release.plan import Interpreter
from opwright_codegen.release.table import Row
from opwright_codegen.release.tasks import NoWheelError, Tasks
from opwright_codegen.upgrade import programs, steps
from opwright_codegen.upgrade.display import Display, display, say
from opwright_codegen.upgrade.environment import minor_of
from opwright_codegen.upgrade.steps import Done, Show, Step, StepError

if TYPE_CHECKING:
    pass

_OUT: Final = "wheelhouse"

DESCRIPTION: Final = """\
Builds one wheel of a project that `opwright-codegen new` made, with a library for each
TensorFlow, and tests it. The steps, of each TensorFlow but the wheel and its audit:

  environment  make an environment in build/release, with TensorFlow, opwright and
               the group `test` of pyproject.toml
  build        compile the library with the headers of that TensorFlow
  wheel        build the wheel with all libraries
  audit        have auditwheel check which systems the wheel runs on
  install      install the wheel in the environment, which has nothing else of the
               project
  tests        run the tests of the project there

A wheel that passes is copied to wheelhouse. What is finished is not repeated in the
next run, as long as the versions and the sources are the same.
"""

EPILOG: Final = """\
typical runs:
  opwright-codegen release                             all TensorFlows there are
  opwright-codegen release --tensorflow 2.20 2.21      these
  opwright-codegen release --tensorflow 2.22.0rc0      a pre-release
  opwright-codegen release --python 3.11 3.12          test with two Pythons
  opwright-codegen release --opwright ../opwright-0.1.0-py3-none-any.whl

An environment takes 2 GB. Delete build/release to make all of them anew.
exit status: 0 the wheel is in wheelhouse, 1 a step failed, 2 a wrong call
"""


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command but --project."""
    command.add_argument(
        "--tensorflow",
        metavar="X",
        nargs="+",
        default=[],
        type=_version,
        help="versions of TensorFlow: 2.21 for the newest 2.21, or 2.22.0rc0 (default:"
        " those that opwright knows and the project does not exclude)",
    )
    command.add_argument(
        "--python",
        metavar="PYTHON",
        nargs="+",
        default=[],
        help="interpreters to test with: versions such as 3.12, or paths. Each"
        " TensorFlow needs one that it has a wheel for (default: the running one)",
    )
    command.add_argument(
        "--opwright",
        metavar="WHAT",
        help="opwright to test with: a wheel, a folder with its sources, or a"
        " requirement (default: the opwright that runs this command)",
    )
    command.add_argument(
        "--keep-going",
        action="store_true",
        help="after a failure, go on with the other versions",
    )
    command.add_argument(
        "--build",
        type=Path,
        default=Path("build"),
        metavar="DIR",
        help="folder for environments and logs, in DIR/release (default: build)",
    )
    command.add_argument(
        "--jobs",
        type=argument_types.positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="compilers at once (default: one a core)",
    )


def run(options: argparse.Namespace) -> int:
    """Releases. Returns 0, or 1 if a step failed.

    Raises:
      SourceError: the arguments do not fit, or there is no project.
    """
    found = project.read(options.project)
    versions = plan.versions(options.tensorflow, found.dependencies)
    pythons = plan.interpreters(options.python)
    opwright = plan.opwright(options.opwright)
    work = (options.project / options.build / "release").absolute()
    started = time.monotonic()
    with _alone(work), display() as shown:
        release = Release(
            Tasks(found, work, opwright, options.jobs), options.keep_going, shown
        )
        with suppress(_StoppedError):
            release.run(versions, pythons)
    if release.rows:
        table.show([*release.rows.values()])
    for name, error in release.failures:
        say(f"{name} failed")
        for reason in error.reasons:
            say(reason)
    took = time.monotonic() - started
    if release.failures:
        say(f"this run has written no wheel to {_OUT}; it took {took:.0f} s")
        for old in sorted((options.project / _OUT).glob("*.whl")):
            say(f"{_OUT} still has {old.name}, of an earlier run")
        return 1
    (wheel,) = (work / "wheelhouse").glob("*.whl")
    target = options.project / _OUT / wheel.name
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(wheel, target)
    for version in dict.fromkeys(row.tensorflow for row in release.rows.values()):
        if not version.replace(".", "").isdigit():
            say(
                f"note: the library for {version}, a pre-release, is refused by"
                f" TensorFlow {minor_of(version)}.0; release again when that is there"
            )
    print(one_line(f"{target}: {target.stat().st_size:,} bytes; {took:.0f} s"))
    return 0


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Holds a lock on the folder of a release.

    Raises:
      SourceError: another release has the lock.
    """
    import fcntl  # Windows has no such module, and imports this one for --help.

    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SourceError(
                f"another release runs in {work}: wait for its end, or give another"
                " --build"
            ) from None
        yield


class _StoppedError(Exception):
    """A step failed, and the run ends."""


@dataclass
class Release:
    """A run of the command. `rows`: the table, by versions of TensorFlow and Python."""

    tasks: Tasks
    keep_going: bool
    display: Display
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    failures: list[tuple[str, StepError]] = field(default_factory=list)

    def run(self, versions: Sequence[str], pythons: Sequence[Interpreter]) -> None:
        """Runs all steps.

        Raises:
          _StoppedError: a step failed, and no other is to run.
        """
        for version in versions:
            for python in pythons:
                key = (version, python.version)
                self.rows[key] = Row(version, python.version)
        self._common("tools", self.tasks.prepare())
        self._generate()
        built = [one for one in versions if self._build(one, pythons)]
        if not built:
            raise _StoppedError
        done = self._common("wheel", self.tasks.pack(built))
        tag = done[-1].result.summary
        for version in built:
            for python in pythons:
                row = self.rows[version, python.version]
                if row.cells.get("environment") in (_MADE, _REUSED):
                    row.cells["audit"] = tag
                    self._chain(row, python, self.tasks.check(version, python))

    def _generate(self) -> None:
        """Brings the classes and C++ up to date, by the project's Makefile."""
        log = self.tasks.log("generate")
        log.unlink(missing_ok=True)
        step = Step("generate", "classes and C++ from the opdefs")
        show = self._begin("", step)
        try:
            programs.run(
                ["make", "generate", f"PYTHON={sys.executable}"],
                log,
                show,
                advice="the Makefile must have the target generate, as the file has"
                " that 'opwright-codegen new' writes",
                cwd=self.tasks.project.folder,
            )
        except StepError as error:
            self.failures.append(("generate", error))
            raise _StoppedError from error

    def _build(self, version: str, pythons: Sequence[Interpreter]) -> bool:
        """Makes the environments and the library of a TensorFlow. Whether it can."""
        missing: NoWheelError | None = None
        first: Interpreter | None = None
        for python in pythons:
            row = self.rows[version, python.version]
            try:
                made = self._chain(
                    row, python, [self.tasks.make_environment(version, python)]
                )
            except NoWheelError as error:
                row.cells["environment"] = "no wheel"
                missing = error
                continue
            if made:
                row.tensorflow = made[0].result.summary
                first = first or python
        if first is None:
            if missing is not None:
                self._failed(f"TensorFlow {version}", missing)
            return False
        row = self.rows[version, first.version]
        return bool(self._chain(row, first, [self.tasks.build(version, first)]))

    def _common(self, name: str, chain: Sequence[Step]) -> list[Done]:
        """Runs steps that are the same for all rows."""
        try:
            return self._run(name, "", chain, None)
        except StepError as error:
            self.failures.append((name, error))
            raise _StoppedError from error

    def _chain(
        self, row: Row, python: Interpreter, chain: Sequence[Step]
    ) -> list[Done]:
        """Runs steps of a row. Returns those that are done: none after a failure.

        Raises:
          NoWheelError: the environment cannot have this TensorFlow.
        """
        name = f"TensorFlow {row.tensorflow}, Python {python.version}"
        record = f"{minor_of(row.tensorflow)}-{python.version}-{chain[0].name}"
        try:
            return self._run(record, name, chain, row)
        except NoWheelError:
            raise
        except StepError as error:
            failed = next(one.name for one in chain if one.name not in row.cells)
            row.cells[failed] = "failed"
            self._failed(f"{name}: {failed}", error)
            return []

    def _failed(self, name: str, error: StepError) -> None:
        self.failures.append((name, error))
        if not self.keep_going:
            raise _StoppedError

    def _begin(self, name: str, step: Step) -> Show:
        return self.display.begin(f"{_head(name, step)}: {step.title}")

    def _run(
        self, record: str, name: str, chain: Sequence[Step], row: Row | None
    ) -> list[Done]:
        began = time.monotonic()

        def begin(step: Step) -> Show:
            return self._begin(name, step)

        def end(one: Done) -> None:
            took = f"{one.seconds:.1f} s" if one.ran else "finished before"
            say(f"{_head(name, one.step)}: {one.result.summary}; {took}")
            if row is not None:
                row.cells[one.step.name] = _cell(one)

        try:
            path = self.tasks.work / "records" / f"{record}.json"
            return steps.run(chain, path, begin, end)
        finally:
            if row is not None:
                row.seconds += time.monotonic() - began


_MADE: Final = "made"
_REUSED: Final = "reused"


def _cell(one: Done) -> str:
    """What the table says of a step."""
    if one.step.name == "environment":
        return _MADE if one.ran else _REUSED
    return one.result.summary if one.ran or one.step.name == "tests" else _REUSED


def _version(text: str) -> str:
    if plan.is_wanted(text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is no version of TensorFlow, such as 2.21, 2.21.0 or 2.22.0rc0"
    )


def _head(name: str, step: Step) -> str:
    return f"{name}: {step.name}" if name else step.name
