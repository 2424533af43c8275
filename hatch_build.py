"""Names the platform in a wheel that carries the native library."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeTag(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        libraries = Path(self.root, "runtime/opwright_runtime/_lib").glob("*.so")
        if version != "editable" and any(libraries):
            # The library knows TensorFlow's ABI and nothing of Python's.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
