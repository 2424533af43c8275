"""Files are written completely or not at all, with the mode that the umask gives."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from opwright_codegen import write
from support.places import environment
from support.workplace import command, place, tree


def limited(size: int) -> None:
    """Lets this process write no file that is longer, as a full disk does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.rotating
def test_generate_on_a_full_disk_names_the_file(tmp_path: Path) -> None:
    place(tmp_path / "opdefs", "math", "Roll")
    done = subprocess.run(
        [sys.executable, "-m", "opwright_codegen", "generate"],
        cwd=tmp_path,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        preexec_fn=lambda: limited(100),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith("opwright-codegen: generated/opwright/")
    assert ".py: cannot be written: File too large; nothing more was done" in said
    # Every file is complete: the new text, which is shorter.
    assert all(len(text) <= 100 for text in tree(tmp_path / "generated").values())
    assert not [name for name in tree(tmp_path) if name.endswith(".tmp")]
    assert command("generate", cwd=tmp_path).returncode == 0


def test_write_that_fails_leaves_what_stood_there(tmp_path: Path) -> None:
    path = tmp_path / "there.txt"
    path.write_bytes(b"before")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, usual[1]))
    try:
        with pytest.raises(OSError, match="cannot be written: File too large") as error:
            write.write(path, b"longer than before")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert error.value.filename == str(path)
    assert tree(tmp_path) == {"there.txt": b"before"}


def test_write_to_a_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "full"
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="it is a device, not a regular file"):
        write.write(path, b"x")
    assert path.is_symlink()


@pytest.mark.rotating
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_generate_gives_files_the_mode_of_the_umask(
    umask: int, mode: int, tmp_path: Path
) -> None:
    place(tmp_path / "opdefs", "math", "Roll")
    before = os.umask(umask)
    try:
        # In a process of its own, which inherits the umask.
        done = command("generate", cwd=tmp_path, env=environment())
        assert done.returncode == 0
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "generated").rglob("*") if path.is_file()]
    assert len(files) > 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {mode}


def test_write_keeps_the_mode_of_what_it_replaces(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    path.write_bytes(b"old")
    path.chmod(0o664)
    write.write(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o664)
