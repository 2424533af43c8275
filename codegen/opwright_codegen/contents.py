"""Reads regular files of a bounded size, and saved lists of ops in compressed form."""

from __future__ import annotations

import errno
import lzma
import os
import stat
from pathlib import Path
from typing import Final

#: The largest size of a file that is written by hand or generated, in bytes.
TEXT: Final = 16 * 2**20
#: The largest size of a saved list of ops, in bytes. TensorFlow's has a million.
LIST: Final = 256 * 2**20
#: How the name of a compressed list ends.
COMPRESSED: Final = ".xz"
#: What a serialized OpList has before each OpDef: field 1, with a length.
_OP_FIELD: Final = 0x0A

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
        raise _too_large(path, most)
    return read


def of_list(path: Path) -> bytes:
    """The bytes of a saved list of ops. They are unpacked if it is a `COMPRESSED` one.

    Raises:
      OSError: as `of` does; or the file is not compressed, is cut off, or has more than
        `LIST` bytes once it is unpacked.
    """
    read = of(path, LIST)
    if path.suffix != COMPRESSED:
        return read
    unpacking = lzma.LZMADecompressor()
    try:
        # Without a limit, a small file could unpack to more than the memory holds.
        unpacked = unpacking.decompress(read, LIST + 1)
    except lzma.LZMAError as error:
        raise OSError(errno.EINVAL, f"does not unpack: {error}", str(path)) from error
    if len(unpacked) > LIST:
        raise _too_large(path, LIST)
    if not unpacking.eof:
        raise OSError(errno.EINVAL, "does not unpack: it is cut off", str(path))
    return unpacked


def packed(content: bytes, path: Path) -> bytes:
    """The bytes to write to `path` for a list of ops: `of_list` reverses it."""
    if path.suffix != COMPRESSED:
        return content
    return lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)


def entries(op_list: bytes) -> list[bytes]:
    """The OpDefs of a serialized OpList, each serialized, in sorted order.

    A registry has no order of its own: two lists of it are equal if their entries are.
    This takes no TensorFlow.

    Raises:
      ValueError: it is no serialized OpList.
    """
    found: list[bytes] = []
    place = 0
    while place < len(op_list):
        if op_list[place] != _OP_FIELD:
            raise ValueError(f"byte {place} begins no OpDef")
        size = shift = 0
        more = True
        while more:
            place += 1
            byte = op_list[place] if place < len(op_list) else 0
            size |= (byte & 0x7F) << shift
            shift += 7
            more = byte >= 0x80
        place += 1
        found.append(op_list[place : place + size])
        place += size
    if place != len(op_list):
        raise ValueError("the last OpDef is cut off")
    return sorted(found)


def is_list(path: Path, *kinds: str) -> bool:
    """Whether the name is that of a list of one of these kinds, compressed or not."""
    return path.name.removesuffix(COMPRESSED).endswith(kinds)


def special(mode: int) -> str | None:
    """The kind of a file with this mode; None for a regular file or a folder."""
    return _KINDS.get(stat.S_IFMT(mode))


def _too_large(path: Path, most: int) -> OSError:
    what = f"has more than {most // 2**20} MiB, the most that is read"
    return OSError(errno.EFBIG, what, str(path))


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
