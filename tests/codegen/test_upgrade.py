"""`upgrade`: the steps, their record, the errors and the report."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opwright_codegen import load, written
from opwright_codegen.problems import Problem
from opwright_codegen.upgrade import command as upgrade_command
from opwright_codegen.upgrade import environment, programs, report, steps
from opwright_codegen.upgrade.steps import Done, Place, Result, Step, StepError
from support.places import OPDEFS
from support.workplace import command, place


def quiet(line: str) -> None:
    """Shows no progress."""


class Chain:
    """Three steps in a folder: each writes a file from the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran: list[str] = []
        self.fail: BaseException | None = None
        self.version = "2.21"
        (folder / "a.txt").write_text("1")

    def steps(self) -> list[Step]:
        a, b, c, d = (Place(name, self.folder, (f"{name}.txt",)) for name in "abcd")
        given = {"tensorflow": self.version}
        return [
            Step("first", "", self.copy("first", "a", "b"), given, (a,), (b,)),
            Step("second", "", self.copy("second", "b", "c"), {}, (b,), (c,)),
            Step("third", "", self.copy("third", "c", "d"), {}, (c,), (d,)),
        ]

    def copy(
        self, name: str, source: str, target: str
    ) -> Callable[[Callable[[str], None]], Result]:
        def run(show: Callable[[str], None]) -> Result:
            self.ran.append(name)
            if self.fail is not None and name == "second":
                raise self.fail
            text = (self.folder / f"{source}.txt").read_text()
            (self.folder / f"{target}.txt").write_text(text)
            return Result(f"wrote {text}", (f"line of {name}",))

        return run

    def run(self) -> list[Done]:
        """A run of the command; `ran` has the steps that it ran."""
        self.ran.clear()
        record = self.folder / "record.json"
        ended: list[Done] = []
        done = steps.run(self.steps(), record, lambda step: quiet, ended.append)
        assert done == ended
        return done


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def test_run_of_finished_steps_repeats_none(chain: Chain) -> None:
    chain.run()
    assert chain.ran == ["first", "second", "third"]
    done = chain.run()
    assert chain.ran == []
    assert [one.ran for one in done] == [False, False, False]
    assert [one.result for one in done] == [
        Result("wrote 1", (f"line of {name}",)) for name in ("first", "second", "third")
    ]


def test_run_after_a_failure_goes_on_from_the_failed_step(chain: Chain) -> None:
    for error in StepError("no disk"), KeyboardInterrupt():
        (chain.folder / "record.json").unlink(missing_ok=True)
        chain.fail = error
        with pytest.raises(type(error)):
            chain.run()
        assert chain.ran == ["first", "second"]
        chain.fail = None
        chain.run()
        assert chain.ran == ["second", "third"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("a.txt", ["first", "second", "third"]),
        ("b.txt", ["first", "second"]),
        ("c.txt", ["second", "third"]),
        ("d.txt", ["third"]),
    ],
)
def test_run_after_a_change_of_a_file_repeats_steps_that_use_it(
    file: str, expected: list[str], chain: Chain
) -> None:
    """`third` also runs if what it reads is another text; not for the same one."""
    chain.run()
    (chain.folder / file).write_text("2")
    chain.run()
    assert chain.ran == expected
    chain.run()
    assert chain.ran == []


def test_run_with_another_version_repeats_the_steps_it_was_given_to(
    chain: Chain,
) -> None:
    chain.run()
    chain.version = "2.22"
    chain.run()
    assert chain.ran == ["first"]


def test_run_interrupted_after_a_repeated_step_goes_on_from_the_next(
    chain: Chain,
) -> None:
    chain.run()
    (chain.folder / "b.txt").write_text("2")
    chain.fail = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        chain.run()
    chain.fail = None
    chain.run()
    assert chain.ran == ["second"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"layout": 0, "steps": {}}'])
def test_run_with_a_damaged_record_starts_anew(content: str, chain: Chain) -> None:
    chain.run()
    (chain.folder / "record.json").write_text(content)
    chain.run()
    assert chain.ran == ["first", "second", "third"]


def test_place_digest_depends_on_names_and_contents(tmp_path: Path) -> None:
    files = Place("files", tmp_path, ("*.txt", "*/*.txt"))
    digests = [files.digest()]
    for name, text in (("a.txt", "1"), ("a.txt", "2"), ("sub/a.txt", ""), ("b", "")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        digests.append(files.digest())
    assert len({*digests}) == 4
    assert digests[-1] == digests[-2]


def test_run_of_a_failing_program_names_its_last_lines(tmp_path: Path) -> None:
    code = "import sys; print(*range(30), sep='\\n'); sys.exit('no space left')"
    log = tmp_path / "log.txt"
    shown: list[str] = []
    with pytest.raises(StepError) as caught:
        run = [sys.executable, "-c", code]
        programs.run(run, log, shown.append, advice="buy a disk")
    first, *lines, where, advice = caught.value.reasons
    assert first.endswith(": exit status 1; its last lines:")
    assert "  no space left" in lines
    assert len(lines) == 15
    assert (where, advice) == (f"all of its output is in {log}", "buy a disk")
    assert shown[:2] == ["0", "1"]
    assert "\n0\n1\n" in log.read_text()


def test_run_of_a_missing_program_says_so(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="nowhere cannot be started: No such file"):
        run = [tmp_path / "nowhere"]
        programs.run(run, tmp_path / "log.txt", quiet, advice="")


def test_run_of_a_program_that_is_interrupted_ends_it(tmp_path: Path) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    pid = ""

    def show(line: str) -> None:
        nonlocal pid
        pid = line
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            run = [sys.executable, "-c", code]
            programs.run(run, tmp_path / "log.txt", show, advice="")
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.22", True),
        ("2.22.0", True),
        ("2.22.0rc0", True),
        ("2.22.0.dev20261126", True),
        ("2", False),
        ("2.22rc0", False),
        ("2.22.*", False),
        ("2.22.0; rm", False),
    ],
)
def test_is_version_takes_releases_and_pre_releases(text: str, expected: bool) -> None:
    assert environment.is_version(text) is expected


def test_given_interpreter_with_another_tensorflow_is_refused() -> None:
    found = environment.given(Path(sys.executable), None)
    same = environment.given(Path(sys.executable), found.minor)
    assert same == found
    words = rf"has TensorFlow {found.tensorflow}, not 9\.9"
    with pytest.raises(StepError, match=words):
        environment.given(Path(sys.executable), "9.9")


def test_given_interpreter_without_tensorflow_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    run = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(run, check=True)
    with pytest.raises(StepError, match="has no TensorFlow installed"):
        environment.given(folder / "bin/python", None)
    with pytest.raises(StepError, match="does not run as an interpreter"):
        environment.given(Path(shutil.which("false") or ""), None)


def test_existing_environment_without_ready_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    # A link to the interpreter finds no packages but those of this environment.
    python = tmp_path / "bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    minor = environment.given(Path(sys.executable), None).minor
    assert environment.existing(tmp_path, minor) is None
    (tmp_path / ".ready").touch()
    found = environment.existing(tmp_path, minor)
    assert found is not None
    assert found.python == python
    assert environment.existing(tmp_path, "9.9") is None
    assert environment.existing(tmp_path, f"{minor}.999") is None


@pytest.mark.rotating
@pytest.mark.slow  # It makes an environment.
def test_upgrade_to_a_version_that_pip_lacks_names_pip_s_last_lines(
    tmp_path: Path,
) -> None:
    place(tmp_path / "opdefs", "math", "Bare")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'none'\n")
    env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    run = ("upgrade", "--tensorflow", "9.9.9")
    done = command(*run, cwd=tmp_path, env=env)
    assert done.returncode == 1
    assert "ERROR: No matching distribution found for " in done.stderr
    assert "all of its output is in build/upgrade/9.9/log.txt\n" in done.stderr
    text = (tmp_path / "build/upgrade/9.9/report.md").read_text("utf-8")
    assert done.stdout == text
    assert "## Failed\n" in text
    assert "No matching distribution found" in text
    assert not (tmp_path / "build/environments/9.9/.ready").exists()


def test_upgrade_that_cannot_be_is_refused(tmp_path: Path) -> None:
    def refusal(*arguments: str) -> str:
        done = command("upgrade", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        return done.stderr

    assert "takes --tensorflow X, such as 2.22.0, or --python" in refusal()
    assert "opdefs has no opdefs" in refusal("--tensorflow", "2.22.0")
    assert "'2.22rc0' is no version" in refusal("--tensorflow", "2.22rc0")
    place(tmp_path / "opdefs", "math", "Bare")
    kept = tmp_path / "opdefs/registries"
    shutil.copytree(OPDEFS / "registries", kept)
    newest = max(int(path.name.split(".")[1]) for path in kept.iterdir())
    assert (
        f"opdefs has the facts of TensorFlow 2.{newest}, which is newer than 2.18:"
        f" upgrade to 2.{newest} or to a newer version"
    ) in refusal("--tensorflow", "2.18.1")
    assert (
        f"a version between 2.{newest} and 2.{newest + 2} is missing in"
        " opdefs/registries: upgrade to that one first"
    ) in refusal("--tensorflow", f"2.{newest + 2}.0")
    assert "nowhere does not run as an interpreter" in refusal("--python", "nowhere")
    assert not (tmp_path / "build").exists()


def test_upgrade_help_lists_the_steps_and_examples() -> None:
    text = command("upgrade", "--help").stdout
    for step in ("environment", "registry", "facts", "dates", "stubs", "classes"):
        assert f"\n  {step} " in text
    assert "opwright-codegen upgrade --tensorflow 2.22.0rc0\n" in text


@pytest.mark.rotating
@pytest.mark.slow  # It starts pytest twice.
def test_smoke_runs_the_suite_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"opdefs": Path("opdefs"), "output": Path("out"), "build": Path("build")}
    python = Path(sys.executable)
    options = argparse.Namespace(**given, python=python, no_tests=False)
    there = environment.Environment(python, "3.11.7", "2.21.0")
    upgrade = upgrade_command.Upgrade(options, there)
    missing = "left out: there is no tests/versions here"
    assert upgrade.smoke(quiet).summary == missing
    suite = tmp_path / "tests/versions/test_any.py"
    suite.parent.mkdir(parents=True)
    suite.write_text("def test_any():\n    pass\n")
    assert upgrade.smoke(quiet).summary.startswith("1 passed in ")
    suite.write_text("def test_any():\n    assert 2 == 3\n")
    with pytest.raises(StepError) as caught:
        upgrade.smoke(quiet)
    assert any("1 failed in " in reason for reason in caught.value.reasons)
    options.no_tests = True
    assert upgrade.smoke(quiet).summary == "left out: --no-tests"


BARE = """\
op: Bare
group: math
# Of the author.

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
inputs:
  - {name: x, type: T}
  - {name: axis, type: int32, shape: scalar, doc: The axis.}
outputs:
  - {name: y, type: T}
attrs:
  - {name: T, type: type}
  - {name: size, type: int}
options:
  - {name: fast, type: bool, default: false, doc: Whether it is fast.}
"""

STUBBED = """\
op: Bare
group: math
summary: TODO
description: TODO
example: '>>> TODO'

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
# Of the author.
inputs:
  - name: x
    type: T
    shape: TODO
    doc: TODO
  - name: axis
    type: int32
    shape: scalar
    doc: The axis.
outputs:
  - name: y
    type: T
    shape: TODO
    doc: TODO
attrs:
  - {name: T, type: type}
  - name: size
    type: int
    doc: TODO
options:
  - name: fast
    type: bool
    default: false
    doc: Whether it is fast.
"""


def test_with_stubs_writes_each_missing_text_and_no_other(tmp_path: Path) -> None:
    path = place(tmp_path, "math", "Bare", BARE)
    op, problems = load.load_text(path.read_bytes(), path)
    assert op is not None and problems == []
    assert written.with_stubs(op, BARE.encode()) == STUBBED
    # The stubs count as missing, and are the same once more.
    again, problems = load.load_text(STUBBED.encode(), path)
    assert again == op and problems == []
    assert written.with_stubs(op, STUBBED.encode()) == STUBBED


def test_with_stubs_of_a_documented_op_is_none() -> None:
    path = OPDEFS / "math/Cumsum.yaml"
    op, _ = load.load_text(path.read_bytes(), path)
    assert op is not None
    assert written.with_stubs(op, path.read_bytes()) is None


def test_lint_refuses_each_stub_at_its_place_until_it_is_filled(tmp_path: Path) -> None:
    path = place(tmp_path / "opdefs", "math", "Bare", STUBBED)
    done = command("lint", cwd=tmp_path)
    assert done.returncode == 1
    found = [line.split(" ", 1) for line in done.stderr.splitlines()]
    expected = [
        ("3:10", "summary is a stub: write what the op does, in one line"),
        ("4:14", "description is a stub: write "),
        ("5:10", "example is a stub: write "),
        ("12:12", "shape of x is a stub: write the sizes, as in 'batch n'"),
        ("13:10", "doc of x is a stub: write "),
        ("21:12", "shape of y is a stub: write "),
        ("22:10", "doc of y is a stub: write "),
        ("27:10", "doc of size is a stub: write "),
    ]
    for (where, said), (at, message) in zip(found, expected, strict=False):
        assert where == f"opdefs/math/Bare.yaml:{at}:"
        assert said.startswith(f"Bare: {message}")
    assert "8 problems" in done.stderr
    text = STUBBED.replace("'>>> TODO'", "'>>> 1'").replace("TODO", "Filled.")
    path.write_text(text.replace("shape: Filled.", "shape: n"))
    assert command("lint", cwd=tmp_path).returncode == 0


def test_report_text_has_times_changes_and_what_is_left() -> None:
    done = [
        Done(Step("environment", ""), Result("made | it"), 61.25, True),
        Done(Step("changes", ""), Result("1 change", ("Foo: added the op",)), 2, False),
    ]
    stub = Problem("opdefs/core/Foo.yaml", 3, 10, "Foo", "summary is a stub: write it")
    left = report.Left((stub,), (Path("opdefs/core/Foo.yaml"),))
    text = report.text("2.22.0rc0", done, (), left, 63.3)
    assert text.startswith("# Upgrade to TensorFlow 2.22.0rc0\n")
    assert "| environment | made \\| it | 61.2 s |\n" in text
    assert "| changes | 1 change | finished before, in 2.0 s |\n" in text
    assert "The run took 63.3 s.\n" in text
    assert "## What is different for users\n\n- `Foo: added the op`\n" in text
    assert "   - `opdefs/core/Foo.yaml`\n" in text
    assert "1. Choose the group" in text
    assert "2. Write the 1 text that is `TODO`, in 1 opdef." in text
    assert "5. Follow the rest of the recipe" in text
    assert "   - `opdefs/core/Foo.yaml:3: summary is a stub: write it`\n" in text
    assert "## Failed" not in text


def test_report_text_of_many_lines_names_the_log() -> None:
    result = Result("many", tuple(f"updated {number}" for number in range(203)))
    done = [Done(Step("facts", ""), result, 1, True)]
    text = report.text("2.22.0", done, (), report.Left(), 1)
    assert text.count("- `updated ") == 200
    assert "- and 3 more, which the log has\n" in text


def test_report_text_of_a_failure_has_it_and_no_other_task() -> None:
    text = report.text("2.22.0", [], ("pip: exit status 1",), report.Left(), 1)
    assert "## Failed\n\n```\npip: exit status 1\n```\n" in text
    assert "run the command again" in text
    assert "make ops" not in text


def test_record_of_steps_is_readable_json(chain: Chain) -> None:
    chain.run()
    read = json.loads((chain.folder / "record.json").read_text())
    assert [*read["steps"]] == ["first", "second", "third"]
    assert read["steps"]["first"]["given"] == {"tensorflow": "2.21"}
    assert not [*chain.folder.glob("*.tmp"), *chain.folder.glob(".*.tmp")]
