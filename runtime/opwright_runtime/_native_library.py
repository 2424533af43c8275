"""Finds the library of native kernels for this TensorFlow, and reads its stamp.

There is a library for each minor version of TensorFlow, in a folder of its own, such as
2.21/libopwright.so:

- in `built_libraries()`, where `python -m opwright build-native` writes;
- in `_lib` of this package: those of the wheel, or of `make native` in a source tree.

The environment variable OPWRIGHT_LIBRARY names one file in their place.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from opwright_runtime import _library_versions
from opwright_runtime._library_versions import minor as minor

NAME = "libopwright.so"
PACKAGE = Path(__file__).parent
PACKAGED = PACKAGE / _library_versions.FOLDER
# What the wheel has to build a library from: the sources, and how to compile them.
SOURCES = PACKAGE / "_native"
RECIPE = SOURCES / "build.json"


class Stamp(NamedTuple):
    """Facts about a library, which its build wrote into a file beside it."""

    tensorflow: str
    cuda: str | None
    cxx11_abi: int

    def misfit(self) -> str | None:
        """Why the library is not for this TensorFlow; None if it is."""
        if misfit := _library_versions.misfit(self.tensorflow):
            return misfit
        if self.cxx11_abi != tf.sysconfig.CXX11_ABI_FLAG:
            return (
                f"was built with _GLIBCXX_USE_CXX11_ABI={self.cxx11_abi}, this "
                f"TensorFlow with {tf.sysconfig.CXX11_ABI_FLAG}"
            )
        return None


def stamp(library: Path) -> Stamp:
    """The stamp of a library.

    Raises:
        ValueError: there is no stamp, or it does not say which TensorFlow it is for.
    """
    path = library.with_suffix(".json")
    try:
        read = json.loads(path.read_text())
        return Stamp(
            str(read["tensorflow"]), read.get("cuda"), int(read.get("cxx11_abi", 1))
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} does not say which TensorFlow {library.name} is for"
        ) from error


def find() -> Path:
    """The library to load, or where it would be."""
    if named := os.environ.get("OPWRIGHT_LIBRARY"):
        return Path(named)
    folders = [folder for folder in (built_libraries(), PACKAGED) if folder]
    places = [_library_versions.place(folder, NAME) for folder in folders]
    # Of a folder that this user may not read, Path.exists raises an error.
    there = [place for place in places if os.path.exists(place)]
    return next(filter(_fits, there), there[0] if there else places[-1])


def built_libraries() -> Path | None:
    """The folder of the libraries that this machine has built; None if there is none.

    Its name has a digest of the sources: after an update of opwright, no library of
    other sources is found.
    """
    digest = recipe_digest()
    if digest is None:
        return None
    named = os.environ.get("OPWRIGHT_DATA_DIR")
    try:
        home = Path(named).absolute() if named else _user_data() / "opwright"
    except RuntimeError:  # A user without a home folder.
        return None
    return home / f"native-{digest}"


def recipe_digest() -> str | None:
    """The digest of the sources in this package; None if it has no sources."""
    try:
        return str(json.loads(RECIPE.read_text())["digest"])
    except OSError:
        return None


def versions() -> list[str]:
    """The minor versions of TensorFlow that this package has libraries for."""
    return _library_versions.versions(PACKAGED, NAME)


def advice() -> str:
    """How to get a library for this TensorFlow, in a message."""
    here = minor(tf.__version__)
    there = versions()
    if RECIPE.exists():
        build = (
            "`python -m opwright build-native`, which takes a C++ compiler, builds "
            f"them for TensorFlow {here}"
        )
    else:
        build = (
            "install opwright's wheel for Linux on x86-64 or aarch64, or run `make "
            f"native` in opwright's source tree with TensorFlow {here}"
        )
    if there and here not in there:
        return f"this opwright has kernels for TensorFlow {', '.join(there)}; {build}"
    return build


def _fits(library: Path) -> bool:
    try:
        return stamp(library).misfit() is None
    except ValueError:
        return False


def _user_data() -> Path:
    named = os.environ.get("XDG_DATA_HOME")
    return Path(named) if named else Path.home() / ".local" / "share"
