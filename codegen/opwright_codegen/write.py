"""Writes a file completely or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from opwright_codegen import contents

_SUFFIX = ".opwright.tmp"


def write(path: Path, content: bytes) -> None:
    """Writes `content` to `path` atomically: readers see the old file or the new one.

    A new file has the mode that follows from the umask. A file that is replaced keeps
    its mode. A run that is killed leaves at most a temporary file, which the next run
    removes by `remove_temporary`.

    Raises:
      OSError: the file cannot be written, for example because the disk is full, or
        `path` is a device or FIFO. The error names `path`. The old file is unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise OSError(error.errno, what, str(path)) from error


def _replace(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and (kind := contents.special(mode)):
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove(root: Path, paths: Iterable[Path]) -> None:
    """Deletes files, and then folders below `root` that have become empty."""
    for path in paths:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == root or not folder.is_relative_to(root):
                break
            bytecode = folder / "__pycache__"
            if bytecode.is_dir() and set(folder.iterdir()) == {bytecode}:
                for file in bytecode.iterdir():
                    file.unlink()
                bytecode.rmdir()
            try:
                folder.rmdir()
            except OSError:
                break


def remove_temporary(root: Path, manifest: Path) -> None:
    """Removes temporary files of an interrupted run, below `root` and at `manifest`."""
    beside = manifest.parent.glob(f".{manifest.name}.*{_SUFFIX}")
    for path in (*beside, *root.rglob(f".*{_SUFFIX}")):
        path.unlink(missing_ok=True)
