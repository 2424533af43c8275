"""`generate`, killed at any moment: files are complete, and the next run repairs."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.places import OPDEFS, environment
from support.tiers import KILLS
from support.workplace import command, tree

OPS = 20  # enough for two workers


def opdefs(root: Path, note: str) -> None:
    """The same ops each time; `note` changes every file that is made of them."""
    for path in sorted((OPDEFS / "math").glob("*.yaml"))[:OPS]:
        text = path.read_text("utf-8")
        target = root / "math" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        noted = text.replace(
            "\ndescription: |-\n", f"\ndescription: |-\n  {note}\n\n", 1
        )
        assert noted != text
        target.write_text(noted, "utf-8")


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "opwright_codegen", "generate", "--jobs", "2"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def members(group: int) -> list[str]:
    """Processes of a group that are still there, zombies aside."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.endurance
def test_generate_killed_at_random_leaves_whole_files(tmp_path: Path) -> None:
    """Each run goes from one version of all files to another, and is cut short."""
    versions: list[dict[str, bytes]] = []
    for note in ("first", "second"):
        opdefs(tmp_path / note / "opdefs", note)
        assert command("generate", cwd=tmp_path / note).returncode == 0
        versions.append(tree(tmp_path / note / "generated"))
    assert all(
        versions[0][name] != versions[1][name]
        for name in versions[0]
        if name.startswith("opwright/math/") and "__init__" not in name
    )

    work = tmp_path / "work"
    shutil.copytree(tmp_path / "first", work)
    seconds = time.monotonic()
    opdefs(work / "opdefs", "second")
    assert start(work).wait(timeout=300) == 0
    seconds = time.monotonic() - seconds
    assert tree(work / "generated") == versions[1]

    chance = random.Random(20260721)
    cut_short = 0
    for run in range(5 * KILLS):  # A run may end before it is killed.
        wanted = run % 2
        opdefs(work / "opdefs", ("first", "second")[wanted])
        process = start(work)
        # Most of the writing is done at the end of a run.
        time.sleep(seconds * chance.choice((chance.random(), 1 - chance.random() / 4)))
        # Every other time only the first process dies, and its workers have to follow.
        if chance.random() < 0.5:
            os.kill(process.pid, signal.SIGKILL)
        else:
            os.killpg(process.pid, signal.SIGKILL)
        in_time = process.wait(timeout=300) == -signal.SIGKILL
        cut_short += in_time
        # How long a run takes changes with what else the machine does.
        seconds *= 1.01 if in_time else 0.9
        deadline = time.monotonic() + 30
        while members(process.pid):
            assert time.monotonic() < deadline, "workers outlive the run"
            time.sleep(0.01)

        found = tree(work / "generated")
        whole = {
            name: text for name, text in found.items() if not name.endswith(".tmp")
        }
        for name, text in whole.items():
            assert text in (versions[0][name], versions[1][name]), name
        # Now and then the next run is not killed, and puts all in order.
        if run % 10 == 9:
            assert start(work).wait(timeout=300) == 0
            assert tree(work / "generated") == versions[wanted]
        if cut_short == KILLS:
            break
    assert cut_short == KILLS
    assert start(work).wait(timeout=300) == 0
    assert tree(work / "generated") == versions[wanted]
