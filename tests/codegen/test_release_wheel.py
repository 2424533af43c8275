"""`release` of the example: a wheel, tested in an environment that it makes."""

from __future__ import annotations

import re
import shutil
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from support.places import ROOT
from support.workplace import command

EXAMPLE = ROOT / "examples" / "custom_op"
TENSORFLOW = version("tensorflow")
MINOR = ".".join(TENSORFLOW.split(".")[:2])
pytestmark = pytest.mark.slow  # It compiles, and installs TensorFlow.


def release(project: Path, *arguments: str) -> tuple[int, str, str]:
    done = command("release", *arguments, cwd=project, timeout=3600)
    return done.returncode, done.stdout, done.stderr


def test_release_after_a_failure_goes_on_and_writes_a_tested_wheel(
    tmp_path: Path,
) -> None:
    left_out = shutil.ignore_patterns("build", "dist", "wheelhouse")
    project = shutil.copytree(EXAMPLE, tmp_path / "project", ignore=left_out)
    # What `make build` leaves must not be in the wheel.
    own = project / "src/my_audio/ops/libmy_audio_ops.so"
    own.write_text("no library")

    # One TensorFlow that there is not, and one whose tests fail.
    golden = project / "tests/golden/Fade.json"
    right = golden.read_text()
    golden.write_text(right.replace("0.125", "0.25", 1))
    assert golden.read_text() != right
    both = ("--tensorflow", "1.99", TENSORFLOW, "--keep-going")
    status, table, said = release(project, *both)
    assert status == 1, said
    assert "TensorFlow 1.99 failed\n" in said
    assert "pip finds no TensorFlow 1.99 for Python 3." in said
    assert f"TensorFlow {TENSORFLOW}, Python" in said
    assert re.search(r": tests failed\n", said)
    assert "test_results_equal_golden" in said
    rows = [line.split() for line in table.splitlines()]
    assert ["1.99", "no", "wheel"] in [[row[0], *row[2:4]] for row in rows if row]
    (row,) = [row for row in rows if row and row[0] == TENSORFLOW]
    assert row[2:4] == ["made", "built"] and row[5:7] == ["ok", "failed"]
    assert not (project / "wheelhouse").exists()

    # Only the tests run again.
    golden.write_text(right)
    status, table, said = release(project, "--tensorflow", TENSORFLOW)
    assert status == 0, said
    (row,) = [
        line.split() for line in table.splitlines() if f" {TENSORFLOW} " in f" {line} "
    ]
    assert row[2:4] == ["reused", "reused"]
    assert row[5] == "reused" and row[7] == "passed"
    (wheel,) = (project / "wheelhouse").iterdir()
    assert row[4] in wheel.name and row[4].startswith("manylinux_")

    packed = zipfile.ZipFile(wheel)
    libraries = [name for name in packed.namelist() if name.endswith(".so")]
    assert libraries == [f"my_audio/ops/_lib/{MINOR}/libmy_audio_ops.so"]
    metadata = packed.read("my_audio-0.1.0.dist-info/METADATA").decode()
    assert f"Requires-Dist: tensorflow=={MINOR}.*\n" in metadata

    # What a person changes in C++ is compiled again, and only that.
    kernel = project / "native/fade.cc"
    kernel.write_text(kernel.read_text() + "#error wrong\n")
    status, table, said = release(project, "--tensorflow", TENSORFLOW)
    assert status == 1
    assert ": build failed\n" in said and "#error wrong" in said
    assert f"all of its output is in {project}/build/release/log/build-{MINOR}" in said
