"""Files, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

_SUFFIX = ".opwright.tmp"


def write(path: Path, content: bytes) -> None:
    """Puts `content` at `path` in one step: a reader sees the old file or the new.

    A run that is killed leaves at most a temporary file, which the next one removes
    (`remove_temporary`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}.", suffix=_SUFFIX
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def remove(root: Path, paths: Iterable[Path]) -> None:
    """Deletes files, then the folders below `root` that this leaves empty."""
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
    """Removes what an interrupted run left below `root` and of its manifest."""
    beside = manifest.parent.glob(f".{manifest.name}.*{_SUFFIX}")
    for path in (*beside, *root.rglob(f".*{_SUFFIX}")):
        path.unlink(missing_ok=True)
