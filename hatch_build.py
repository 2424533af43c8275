"""What a wheel is for: pure Python and any TensorFlow, or with kernels and one of them.

The variable OPWRIGHT_NATIVE, which `make wheel` sets, names a folder with the native
library and its stamp, as the build leaves them. The library then goes into the wheel,
and the wheel's version and what it depends on tell for which TensorFlow it was built.
"""

from __future__ import annotations

import json
import os
import re
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
LIBRARY = "libopwright.so"
STAMP = "libopwright.json"
# The oldest TensorFlow, and the first that is not tested.
SUPPORTED = ("2.18", "2.22")


def native() -> Path | None:
    """The folder of the native library; None for a wheel without."""
    named = os.environ.get("OPWRIGHT_NATIVE")
    if not named:
        return None
    folder = Path(named).resolve()
    for name in (LIBRARY, STAMP):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"OPWRIGHT_NATIVE names {folder}, which has no {name}: `make wheel` "
                "builds the library before the wheel"
            )
    return folder


def minor() -> str | None:
    """The TensorFlow that the library was built against, as 2.21."""
    folder = native()
    if folder is None:
        return None
    built_for = str(json.loads((folder / STAMP).read_text())["tensorflow"])
    return ".".join(built_for.split(".")[:2])


def version() -> str:
    """opwright's own version; behind TensorFlow's in a wheel for one: 2.21.0.1.0."""
    text = (ROOT / "runtime/opwright_runtime/__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise ValueError("opwright_runtime/__init__.py states no __version__")
    tensorflow = minor()
    return found[1] if tensorflow is None else f"{tensorflow}.{found[1]}"


def dependencies() -> list[str]:
    """Those of the Python part; of TensorFlow the versions that the wheel is for."""
    first, end = SUPPORTED
    tensorflow = minor()
    if tensorflow is not None:
        major, number = tensorflow.split(".")
        first, end = tensorflow, f"{major}.{int(number) + 1}"
    return [
        f"tensorflow>={first},<{end}",
        "numpy>=1.26,<3",
        # Each TensorFlow has bounds of its own within these. 2.20 and 2.21 allow
        # protobuf 7, with which their TPUEmbedding fails to build.
        "protobuf>=3.20.3,<7",
        "typing_extensions>=4.13,<5",
    ]


class Metadata(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        metadata["dependencies"] = dependencies()


class Native(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        folder = native()
        if folder is None:
            self.app.display_warning(
                "This wheel has no native kernels: CudnnRNN and TPU embeddings will "
                "not run on the CPU. `make wheel` builds one that has them."
            )
            return
        # The library knows TensorFlow's ABI and nothing of Python's.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"].update(
            {
                str(folder / name): f"opwright_runtime/_lib/{name}"
                for name in (LIBRARY, STAMP)
            }
        )
