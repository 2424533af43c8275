"""What a wheel runs on. Yours: opwright-codegen wrote it once and leaves it alone."""

import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Platform(BuildHookInterface):  # type: ignore[type-arg]
    """Names the platform that the library was built on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
