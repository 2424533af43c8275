"""Reads the op registries of TensorFlow's versions that are kept next to opdefs.

`registries/2.21.pb.xz` in the folder of opdefs has the ops of TensorFlow 2.21. With
these files, `opwright-codegen since` needs no other environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from opwright_codegen import load, since
from opwright_codegen.model import Op, version_number
from opwright_codegen.problems import SourceError

FOLDER: Final = "registries"
_SUFFIX: Final = ".pb.xz"


def kept(root: Path) -> dict[str, Path]:
    """The registries in a folder of opdefs by version, the oldest first.

    Raises:
      SourceError: a file does not have the name of a registry.
    """
    found: dict[str, Path] = {}
    for path in (root / FOLDER).glob("[!.]*"):
        version = path.name.removesuffix(_SUFFIX)
        if path.name == version or not re.fullmatch(load.VERSION, version):
            raise SourceError(
                f"{path}: the registry of a TensorFlow is named 2.21{_SUFFIX}"
            )
        found[version] = path
    return {version: found[version] for version in sorted(found, key=version_number)}


def history(
    root: Path, given: Mapping[str, str], read: Callable[[str], Iterable[Op]]
) -> since.History:
    """The ops of all versions: those that are kept in `root`, and those of `given`.

    Args:
      root: the folder of opdefs.
      given: sources by version. They replace registries that are kept.
      read: reads the ops of a source.

    Raises:
      SourceError: there is no version, or a version between two others is missing.
    """
    named = {version: str(path) for version, path in kept(root).items()} | {**given}
    versions = sorted(named, key=version_number)
    place = root / FOLDER
    if not versions:
        raise SourceError(
            f"no version to compare: {place} has none, so give each: 2.21=ops-2.21.pb"
        )
    if between := since.gap(versions):
        one, later = between
        raise SourceError(
            f"a version between {one} and {later} is missing, so it is not known which"
            f" of them brought what {later} has: give it too, or save its registry in"
            f" {place}"
        )
    return [
        (version, {op.name: op for op in read(named[version])}) for version in versions
    ]
