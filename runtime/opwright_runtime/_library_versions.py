"""Libraries of which a package has one for each minor version of TensorFlow.

They use C++ classes of TensorFlow, whose layout changes between minor versions. So each
lies in a folder of its own, such as _lib/2.21/libopwright.so. The wheel of opwright has
this layout, and wheels that `opwright-codegen release` builds have it.
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

FOLDER = "_lib"


def minor(version: str) -> str:
    """The minor version of 2.21.0, which is 2.21."""
    return ".".join(version.split(".")[:2])


def place(folder: Path, name: str) -> Path:
    """Where the library for the installed TensorFlow is, if `folder` has one."""
    return folder / minor(tf.__version__) / name


def versions(folder: Path, name: str) -> list[str]:
    """The minor versions of TensorFlow that `folder` has libraries for."""
    found = [path.parent.name for path in folder.glob(f"[0-9]*.*[0-9]/{name}")]
    return sorted(found, key=lambda name: [int(part) for part in name.split(".")])


def misfit(built_for: str) -> str | None:
    """Why a library for a TensorFlow is not for the installed one; None if it is."""
    here = tf.__version__
    # The layout is stable within a minor version, but may change between a pre-release
    # and the release.
    compared = minor if _is_release(built_for) and _is_release(here) else str
    if compared(built_for) == compared(here):
        return None
    return f"was built for TensorFlow {built_for}, this is TensorFlow {here}"


def _is_release(version: str) -> bool:
    return all(part.isdecimal() for part in version.split("."))
