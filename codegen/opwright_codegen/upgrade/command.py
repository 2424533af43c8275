"""The command `upgrade`: its arguments, its steps, and what it says."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opwright_codegen import contents, load, registries, since, write, written
from opwright_codegen.generate import Target, WorkerError, generate
from opwright_codegen.model import is_later, version_number
from opwright_codegen.problems import OpdefError, Problem, SourceError
from opwright_codegen.upgrade import environment, programs, report, steps
from opwright_codegen.upgrade.display import Display, display, say
from opwright_codegen.upgrade.environment import Environment
from opwright_codegen.upgrade.steps import Done, Place, Result, Show, Step, StepError
from opwright_notation import closed_pipe

if TYPE_CHECKING:
    pass

#: How many steps there are, with the environment.
_STEPS: Final = 9
_LOG: Final = "log.txt"
_TESTS: Final = Path("tests/versions")
#: The files of the tests that `make test-with-2.22` runs, and of what they test.
_TESTED: Final = tuple(
    f"{folder}/**/*.py" for folder in ("versions", "rnn", "embedding", "support")
)
_RUNTIME: Final = ("*/**/*.py", "native/**/*.h", "native/**/*.cc")
_CHANGE: Final = re.compile(r"\S+: (?:added|removed|changed) ")
_BREAKS: Final = " (breaks callers)"
_IMPORTED: Final = re.compile(r"added |updated |\S+: \S+ is now ")
_WARNING: Final = "opwright-codegen: warning: "
_ABSENT: Final = "not in this TensorFlow: "

DESCRIPTION: Final = """\
Brings opdefs and classes to another version of TensorFlow, in the folder of opwright's
source tree. The steps:

  environment  make build/environments/X, or take the one that is there
  registry     save its op registry as opdefs/registries/X.pb.xz
  changes      compare it with the registry of the version before
  dropped      mark in the opdefs what it drops
  facts        import its ops into the opdefs
  dates        mark in the opdefs what it brings
  stubs        write TODO where a person must write a text
  classes      generate the classes
  tests        run the smoke suite in the environment

A run that fails or is interrupted goes on from the step where it was. What is finished
is not repeated, as long as its input is the same. The report at the end says what is
left to do. It is also in build/upgrade/X/report.md. `opwright-codegen lint` refuses an
opdef as long as it has a TODO.
"""

EPILOG: Final = """\
typical runs:
  opwright-codegen upgrade --tensorflow 2.22.0rc0
  opwright-codegen upgrade --tensorflow 2.22        the newest 2.22 that there is
  opwright-codegen upgrade --python other/bin/python

exit status: 0 all steps are finished, 1 a step failed, 2 a wrong call
"""


def add(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command but --opdefs."""
    command.add_argument(
        "--tensorflow",
        metavar="X",
        type=_version,
        help="version of TensorFlow to upgrade to, also a pre-release",
    )
    command.add_argument(
        "--python",
        type=Path,
        metavar="PATH",
        help="interpreter of an environment with that TensorFlow (default: make one)",
    )
    command.add_argument(
        "--output",
        type=Path,
        default=Path("generated"),
        metavar="DIR",
        help="folder that the package of classes lies in (default: generated)",
    )
    command.add_argument(
        "--build",
        type=Path,
        default=Path("build"),
        metavar="DIR",
        help="folder for environments, the record and the report (default: build)",
    )
    command.add_argument(
        "--no-tests", action="store_true", help="leave the smoke suite out"
    )


def run(options: argparse.Namespace) -> int:
    """Upgrades. Returns 0, or 1 if a step failed.

    Raises:
      SourceError: the arguments do not fit, or not the opdefs that are there.
    """
    if options.tensorflow is None and options.python is None:
        raise SourceError("upgrade takes --tensorflow X, such as 2.22.0, or --python")
    if not load.find(options.opdefs):
        raise SourceError(
            f"{options.opdefs} has no opdefs: run the command in the folder of"
            " opwright's source tree, or give --opdefs"
        )
    if options.tensorflow is not None:
        _check_order(options.opdefs, environment.minor_of(options.tensorflow))
    started = time.monotonic()
    there: Environment | None = None
    failure: tuple[str, ...] = ()
    with display() as shown:
        progress = _Progress(shown)
        try:
            there = _environment(options, progress)
            _check_order(options.opdefs, there.minor)
            upgrade = Upgrade(options, there)
            record = upgrade.work / "record.json"
            steps.run(upgrade.steps(), record, progress.begin, progress.end)
        except StepError as error:
            failure = error.reasons
        except OpdefError as error:
            advice = "mend these opdefs, and run the command again"
            failure = (*map(str, error.problems), advice)
        except WorkerError as error:
            failure = (str(error), "run the command again, if memory is not short")
    version = there.tensorflow if there else options.tensorflow
    if version is None:
        raise SourceError(*failure)
    text = report.text(
        version,
        progress.done,
        failure,
        _left(options.opdefs, progress.done),
        time.monotonic() - started,
    )
    path = _work(options, environment.minor_of(version)) / "report.md"
    write.write(path, text.encode())
    report.show(text)
    say(f"the report is in {path}")
    for reason in failure:
        say(reason)
    return 1 if failure else 0


def _environment(options: argparse.Namespace, progress: _Progress) -> Environment:
    """The environment to upgrade with.

    Raises:
      StepError: there is none, or it cannot be made.
    """
    begun = time.monotonic()
    wanted = options.tensorflow
    title, ran = "check the environment", True
    if options.python is not None:
        found = environment.given(options.python, wanted)
        where = options.python
    else:
        minor = environment.minor_of(wanted)
        where = _environments(options) / minor
        known = environment.existing(where, wanted)
        ran = known is None
        if known is None:
            title = f"make {where} with TensorFlow {wanted}"
            show = progress.begin(Step("environment", title))
            log = _work(options, minor) / _LOG
            found = environment.make(where, wanted, log, show)
        else:
            found = known
    summary = f"{where}: Python {found.python_version}, TensorFlow {found.tensorflow}"
    seconds = time.monotonic() - begun
    step = Step("environment", title)
    progress.end(Done(step, Result(summary), seconds, ran))
    return found


@dataclass(frozen=True)
class Upgrade:
    """An upgrade to the TensorFlow of an environment, with the command's arguments."""

    options: argparse.Namespace
    environment: Environment

    @property
    def opdefs(self) -> Path:
        return Path(self.options.opdefs)

    @property
    def minor(self) -> str:
        return self.environment.minor

    @property
    def work(self) -> Path:
        """The folder of the record, the log and the report."""
        return _work(self.options, self.minor)

    def steps(self) -> list[Step]:
        """The steps after the environment."""
        opdefs = Place("opdefs", self.opdefs, ("*/*.yaml", "*.yaml"))
        kept = Place("registries", self.opdefs / registries.FOLDER, ("*.pb.xz",))
        code = (
            Place("generator", Path(load.__file__).parent, ("**/*.py", "**/*.jinja")),
            Place("notation", Path(closed_pipe.__file__).parent, ("*.py",)),
        )
        output = Path(self.options.output)
        classes = Place("classes", output, ("opwright/**/*.py", "opwright.*.json"))
        tests = Place("tests", _TESTS.parent, _TESTED)
        runtime = Place("runtime", Path("runtime"), _RUNTIME)
        given = {"tensorflow": self.environment.tensorflow}
        with_tests = {**given, "tests": str(not self.options.no_tests)}
        both = (kept, *code)
        return [
            Step("registry", "save the registry", self.save, given, (), (kept,)),
            Step("changes", "compare the registries", self.compare, given, both),
            Step("dropped", "mark what is dropped", self.date, given, both, (opdefs,)),
            Step("facts", "import the ops", self.imported, given, both, (opdefs,)),
            Step("dates", "mark what is new", self.date, given, both, (opdefs,)),
            Step("stubs", "write stubs", self.stub, {}, code, (opdefs,)),
            Step(
                "classes",
                "generate the classes",
                self.generate,
                {},
                (opdefs, *code),
                (classes,),
            ),
            Step(
                "tests",
                "run the smoke suite",
                self.smoke,
                with_tests,
                (opdefs, kept, classes, runtime, tests),
            ),
        ]

    def codegen(
        self, show: Show, *arguments: str | Path, accepted: Sequence[int] = (0,)
    ) -> list[str]:
        """Runs a command of opwright-codegen with the environment's TensorFlow."""
        return programs.codegen(
            self.environment.python,
            arguments,
            self.work / _LOG,
            show,
            accepted=accepted,
        )

    def save(self, show: Show) -> Result:
        place = self.opdefs / registries.FOLDER / f"{self.minor}.pb.xz"
        fresh = self.work / place.name
        self.codegen(show, "save", "installed", fresh)
        # The same registry may be saved in another order, or be compressed otherwise.
        known = contents.entries(contents.of_list(place)) if place.exists() else None
        if known == contents.entries(contents.of_list(fresh)):
            self.replaced.unlink(missing_ok=True)
            return Result(f"{place} is as it was")
        if known is not None:
            write.write(self.replaced, contents.of(place, contents.LIST))
        write.write(place, contents.of(fresh, contents.LIST))
        return Result(f"{place} {'is new' if known is None else 'is renewed'}")

    @property
    def replaced(self) -> Path:
        """The registry that the new one has replaced, of a pre-release for example."""
        return self.work / "replaced.pb.xz"

    def compare(self, show: Show) -> Result:
        kept = registries.kept(self.opdefs)
        older = [version for version in kept if is_later(self.minor, version)]
        lines: list[str] = []
        clauses: list[str] = []
        pairs = [(older[-1], str(kept[older[-1]]))] if older else []
        if self.replaced.exists():
            pairs.append((f"the {self.minor} before", str(self.replaced)))
        for version, source in pairs:
            # The exit status is 1 if a change breaks callers.
            sources = (source, kept[self.minor])
            rows = self.codegen(show, "diff", *sources, accepted=(0, 1))
            found = [row for row in rows if _CHANGE.match(row)]
            breaking = sum(row.endswith(_BREAKS) for row in found)
            changes = report.count(len(found), "change")
            clauses.append(f"{changes} from {version}, of which {breaking} break calls")
            lines += [f"from {version}: {row}" for row in found]
        return Result("; ".join(clauses) or "no older registry", tuple(lines))

    def date(self, show: Show) -> Result:
        rows = self.codegen(show, "since", "--opdefs", self.opdefs)
        updated = [row for row in rows if row.startswith("updated ")]
        return Result(f"{report.count(len(updated), 'opdef')} updated", tuple(updated))

    def imported(self, show: Show) -> Result:
        rows = self.codegen(show, "import", "--opdefs", self.opdefs)
        warnings = [
            row.removeprefix(_WARNING) for row in rows if row.startswith(_WARNING)
        ]
        absent = [row for row in rows if row.startswith(_ABSENT)]
        # `since` has marked the ops that a version has dropped.
        unknown = [row for row in absent if not _is_dropped(row.removeprefix(_ABSENT))]
        lines = [row for row in rows if _IMPORTED.match(row)]
        added = sum(row.startswith("added ") for row in lines)
        updated = sum(row.startswith("updated ") for row in lines)
        return Result(
            f"{report.count(added, 'op')} added, {updated} updated",
            (*lines, *unknown, *(f"left out: {row}" for row in warnings)),
        )

    def stub(self, show: Show) -> Result:
        texts: dict[Path, str] = {}
        for op in load.read(self.opdefs):
            path = Path(op.source)
            content = contents.of(path)
            text = written.with_stubs(op, content)
            if text is not None and text.encode() != content:
                texts[path] = text
        for path, text in texts.items():
            write.write(path, text.encode())
        lines = tuple(f"stubs in {path}" for path in texts)
        return Result(f"{report.count(len(texts), 'opdef')} with new stubs", lines)

    def generate(self, show: Show) -> Result:
        target = Target(self.opdefs, Path(self.options.output), "opwright")
        found = generate(target, progress=lambda done, all_: show(f"{done} of {all_}"))
        files = report.count(len(found.written), "file")
        return Result(f"{files} written, {len(found.removed)} removed")

    def smoke(self, show: Show) -> Result:
        if self.options.no_tests:
            return Result("left out: --no-tests")
        if not _TESTS.is_dir():
            return Result(f"left out: there is no {_TESTS} here")
        if self.options.python is None:
            # It also builds the native library.
            command: list[str | Path] = ["make", f"test-with-{self.minor}"]
            command.append(f"ENVIRONMENTS={_environments(self.options)}")
            # make would install packages in an environment that it has not made.
            if (Path(sys.prefix) / environment.READY).exists():
                command.append(f"VENV={sys.prefix}")
        else:
            options = ["-q", "-p", "no:cacheprovider"]
            python = self.environment.python
            command = [python, "-m", "pytest", *options, _TESTS]
        rows = programs.run(
            command,
            self.work / _LOG,
            show,
            advice="mend what the tests name, and run the command again",
        )
        return Result(
            next((row for row in reversed(rows) if " passed" in row), "passed")
        )


def _check_order(opdefs: Path, minor: str) -> None:
    """Refuses a version older than the registries, or with a version in between.

    Raises:
      SourceError: the opdefs cannot be upgraded to that version.
    """
    kept = registries.kept(opdefs)
    newest = next(reversed(kept), None)
    if is_later(newest, minor):
        raise SourceError(
            f"{opdefs} has the facts of TensorFlow {newest}, which is newer than"
            f" {minor}: upgrade to {newest} or to a newer version"
        )
    versions = sorted({*kept, minor}, key=version_number)
    if between := since.gap(versions):
        one, later = between
        raise SourceError(
            f"a version between {one} and {later} is missing in"
            f" {opdefs / registries.FOLDER}: upgrade to that one first"
        )


def _left(opdefs: Path, done: list[Done]) -> report.Left:
    """What is left for a person: stubs, and new ops that are in no group yet."""
    stubs: list[Problem] = []
    for path in load.find(opdefs):
        content, _ = load.read_bytes(path)
        stubs += written.stubs(content, path) if content is not None else ()
    paths = [
        Path(line.removeprefix("added "))
        for one in done
        for line in one.result.lines
        if one.step.name == "facts" and line.startswith("added ")
    ]
    homeless = tuple(p for p in paths if p.parent.name == "core" and p.exists())
    return report.Left(tuple(stubs), homeless)


def _is_dropped(path: str) -> bool:
    file = Path(path)
    content, _ = load.read_bytes(file)
    op = None if content is None else load.load_text(content, file)[0]
    return op is not None and op.dropped_in is not None


def _environments(options: argparse.Namespace) -> Path:
    return Path(options.build) / "environments"


def _work(options: argparse.Namespace, minor: str) -> Path:
    return Path(options.build) / "upgrade" / minor


def _version(text: str) -> str:
    if environment.is_version(text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is no version of TensorFlow, such as 2.22.0, 2.22.0rc0 or 2.22"
    )


class _Progress:
    """Says which step runs. `done` has the steps that are finished."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.done: list[Done] = []

    def begin(self, step: Step) -> Show:
        number = len(self.done) + 1
        return self.display.begin(f"[{number}/{_STEPS}] {step.name}: {step.title}")

    def end(self, one: Done) -> None:
        self.done.append(one)
        head = f"[{len(self.done)}/{_STEPS}] {one.step.name}"
        say(f"{head}: {one.result.summary}; {report.seconds(one)}")
