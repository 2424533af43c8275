"""What a wheel runs on. Yours: opwright-codegen wrote it once and leaves it alone."""

import re
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement


class Platform(BuildHookInterface):  # type: ignore[type-arg]
    """Names the platform and the TensorFlow that the library was built for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = Path(self.root, "src/my_audio/ops/libmy_audio_ops.so")
        if not library.exists() and version == "editable":
            return  # An environment to build the library in.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["dependencies"] = self.requirements(built_for(library))

    def requirements(self, built: str) -> list[str]:
        """TensorFlow in the minor version of the library, unless pyproject.toml has it.

        Raises:
          ValueError: pyproject.toml excludes the TensorFlow of the library.
        """
        stated = [
            one
            for one in map(Requirement, self.metadata.core.dependencies)
            if one.name in ("tensorflow", "tensorflow-cpu", "tensorflow-rocm")
        ]
        for one in stated:
            if not one.specifier.contains(built, prereleases=True):
                raise ValueError(
                    f"the library was built for TensorFlow {built}, and pyproject.toml"
                    f" requires {one}: change that, or run make build with"
                    " PYTHON=<a Python that has this TensorFlow>"
                )
        return [] if stated else [f"tensorflow=={'.'.join(built.split('.')[:2])}.*"]


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
