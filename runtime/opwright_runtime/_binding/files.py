"""Whether an op can write a file."""

from __future__ import annotations

import os

import tensorflow as tf

_LOCAL = ("", "file")
#: The most bytes in the name of a file, as Linux has it.
_LONGEST = 255


def is_writable(*names: str | bytes) -> bool:
    """Whether an op can write a file.

    Args:
        names: the file; or a folder and a file in it. The op makes the folder if it is
            missing. TensorFlow's file systems besides the local one count as writable.
    """
    first, *others = map(os.fsdecode, names)
    scheme, mark, rest = first.partition("://")
    if mark and scheme not in _LOCAL:
        return scheme in tf.io.gfile.get_registered_schemes()
    first = rest if mark else first
    try:
        if not others:
            return _takes_files(os.path.dirname(first) or ".") and _is_file(first)
        folder = first or "."
        path = f"{folder}/{others[0]}"
        parent = os.path.dirname(path)
        is_there = os.path.normpath(parent) == os.path.normpath(folder)
        return (
            _can_be_made(folder)
            and (is_there or _takes_files(parent))
            and _is_file(path)
        )
    except (OSError, ValueError):  # A name that is too long, or has a zero byte.
        return False


def _takes_files(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _can_be_made(folder: str) -> bool:
    """Whether a folder takes files, or can be made in the nearest one that exists."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder) or "."
    return _takes_files(folder)


def _is_file(path: str) -> bool:
    """Whether a path names no folder, nor a file that cannot be changed."""
    names = path.split("/")
    longest = max(len(os.fsencode(one)) for one in names)
    if names[-1] in ("", ".", "..") or longest > _LONGEST:
        return False
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    return not os.path.isdir(path) and os.access(path, os.W_OK)
