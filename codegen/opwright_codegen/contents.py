"""Reads regular files of a bounded size."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

#: The largest size of a file that is written by hand or generated, in bytes.
TEXT: Final = 16 * 2**20
#: The largest size of a saved list of ops, in bytes. TensorFlow's has a million.
LIST: Final = 256 * 2**20

_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def of(path: Path, most: int = TEXT) -> bytes:
    """The bytes of a regular file.

    Raises:
      OSError: the file does not exist, is not a regular file, or has more than `most`
        bytes. The error names the file.
    """
    # Without this opener, opening a FIFO would wait for a process that writes to it.
    with open(path, "rb", opener=_without_waiting) as file:
        mode = os.fstat(file.fileno()).st_mode
        if kind := special(mode):
            raise OSError(errno.EINVAL, f"is {kind}, not a regular file", str(path))
        read = file.read(most + 1)
    if len(read) > most:
        what = f"has more than {most // 2**20} MiB, the most that is read"
        raise OSError(errno.EFBIG, what, str(path))
    return read


def special(mode: int) -> str | None:
    """The kind of a file with this mode; None for a regular file or a folder."""
    return _KINDS.get(stat.S_IFMT(mode))


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
