"""What a wheel runs on. Yours: opwright-codegen wrote it once and leaves it alone."""

import os
import re
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement
from packaging.version import Version

NAME = "libmy_audio_ops.so"
#: The folder of the package that loads the library.
PLACE = "src/my_audio/ops"
PACKAGE = PLACE.removeprefix("src/")


class Platform(BuildHookInterface):  # type: ignore[type-arg]
    """Names the platform, and the TensorFlows that the libraries were built for.

    The library is that of `make build`. `opwright-codegen release` names a folder with
    one for each minor version of TensorFlow, in the variable OPWRIGHT_LIBRARIES. The
    package loads the one that fits.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        own = Path(self.root, PLACE, NAME)
        folder = os.environ.get("OPWRIGHT_LIBRARIES")
        if version == "editable" and not own.exists():
            return  # An environment to build the library in.
        if folder and version != "editable":
            libraries = sorted(Path(folder).glob(f"*/{NAME}"))
            if not libraries:
                raise ValueError(f"OPWRIGHT_LIBRARIES: {folder} has no */{NAME}")
            build_data["force_include"][folder] = f"{PACKAGE}/_lib"
        else:
            libraries = [own]
            build_data["artifacts"].append(f"/{PLACE}/{NAME}")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["dependencies"] = self.requirements([*map(built_for, libraries)])

    def requirements(self, built: list[str]) -> list[str]:
        """The minor versions of TensorFlow, unless pyproject.toml has a requirement.

        Raises:
          ValueError: pyproject.toml excludes the TensorFlow of a library.
        """
        stated = [
            one
            for one in map(Requirement, self.metadata.core.dependencies)
            if one.name in ("tensorflow", "tensorflow-cpu", "tensorflow-rocm")
        ]
        for one in stated:
            for each in built:
                if not one.specifier.contains(each, prereleases=True):
                    raise ValueError(
                        f"the library was built for TensorFlow {each}, and"
                        f" pyproject.toml requires {one}: change that, or run make build"
                        " with PYTHON=<a Python that has this TensorFlow>"
                    )
        return [] if stated else [requirement(built)]


def requirement(built: Iterable[str]) -> str:
    """The requirement of TensorFlow that takes the minor versions of `built` only."""
    minors = sorted({Version(one).release[:2] for one in built})
    names = [f"{major}.{minor}" for major, minor in minors]
    if len(names) == 1:
        return f"tensorflow=={names[0]}.*"
    (major, first), (_, last) = minors[0], minors[-1]
    gaps = [one for one in range(first, last) if (major, one) not in minors]
    but = "".join(f",!={major}.{one}.*" for one in gaps)
    return f"tensorflow>={names[0]},<{major}.{last + 1}{but}"


def built_for(library: Path) -> str:
    """The version of TensorFlow that a library was built for.

    Raises:
      ValueError: there is no such library, or it does not say the version.
    """
    if not library.exists():
        raise ValueError(f"there is no {library}; run make build first")
    found = re.search(rb"built for TensorFlow ([0-9][^\0]*)\0", library.read_bytes())
    if found is None:
        raise ValueError(f"{library} does not say its TensorFlow; run make build again")
    return found[1].decode()
