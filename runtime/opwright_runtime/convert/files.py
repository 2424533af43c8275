"""Writes results: complete, or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opwright_runtime.convert.errors import ConvertError

# The target that is replaced, while another one takes its name.
_OLD = "old"


@contextmanager
def replacing(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A path to write to, which becomes `target` if the block succeeds.

    It lies in a new folder next to `target`, which is gone afterwards.

    Raises:
        ConvertError: `target` exists and `overwrite` is false, or cannot be written.
    """
    target = Path(os.path.abspath(target))
    if not overwrite and os.path.lexists(target):
        raise ConvertError(
            f"{target} exists; remove it, or pass overwrite=True (--overwrite)"
        )
    if not target.parent.is_dir():
        raise ConvertError(f"{target.parent} is not a folder; create it first")
    try:
        beside = tempfile.mkdtemp(
            prefix=_prefix(target, os.getpid()), dir=target.parent
        )
    except OSError as error:
        raise ConvertError(f"{target.parent} cannot be written: {error}") from error
    try:
        made = Path(beside, "new")
        yield made
        _move(made, target, Path(beside, _OLD))
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def remove_rest(target: Path, pid: int) -> None:
    """Removes what a process that ended in `replacing` left next to `target`."""
    target = Path(os.path.abspath(target))
    prefix = _prefix(target, pid)
    try:
        found = [one for one in target.parent.iterdir() if one.name.startswith(prefix)]
    except OSError:
        return
    for beside in found:
        old = beside / _OLD
        if os.path.lexists(old) and not os.path.lexists(target):
            os.rename(old, target)
        shutil.rmtree(beside, ignore_errors=True)


def _prefix(target: Path, pid: int) -> str:
    """The beginning of the names of folders in which a process makes `target`."""
    return f".{target.name}.{pid}."


def _move(made: Path, target: Path, old: Path) -> None:
    try:
        if not made.is_dir() and not target.is_dir():
            os.replace(made, target)
            return
        # A folder replaces nothing but an empty one.
        if os.path.lexists(target):
            os.rename(target, old)
        try:
            os.rename(made, target)
        except OSError:
            if os.path.lexists(old):
                os.rename(old, target)
            raise
    except OSError as error:
        raise ConvertError(f"{target} cannot be written: {error}") from error


def copy_tree(source: Path, target: Path) -> None:
    """Copies a folder with all folders and regular files in it.

    Raises:
        ConvertError: it contains something else, or cannot be read.
    """
    try:
        target.mkdir()
        for entry in sorted(os.scandir(source), key=lambda one: one.name):
            mode = entry.stat().st_mode
            if stat.S_ISDIR(mode) and not entry.is_symlink():
                copy_tree(Path(entry.path), target / entry.name)
            elif stat.S_ISREG(mode):
                shutil.copyfile(entry.path, target / entry.name)
            else:
                raise ConvertError(f"{entry.path} is neither a file nor a folder")
    except OSError as error:
        raise ConvertError(f"{source} cannot be copied: {error}") from error


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    return path.stat().st_size
