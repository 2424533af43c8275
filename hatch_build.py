"""Puts the native kernels into a wheel, which `make wheel` has built.

The variable OPWRIGHT_NATIVE names a folder of what goes into opwright_runtime, as
tools/native_files.py lays it out:

- _lib: for each minor version of TensorFlow a folder with a library and its stamp;
- _native: the sources, and how to compile them for another TensorFlow.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS = ("_lib", "_native")


def native() -> Path | None:
    """The folder with the native kernels; None for a wheel without."""
    named = os.environ.get("OPWRIGHT_NATIVE")
    if not named:
        return None
    folder = Path(named).resolve()
    for needed in (
        "_lib/*/libopwright.so",
        "_lib/*/libopwright.json",
        "_native/build.json",
    ):
        if not any(folder.glob(needed)):
            raise FileNotFoundError(
                f"OPWRIGHT_NATIVE names {folder}, which has no {needed}: `make wheel` "
                "builds the libraries before the wheel"
            )
    return folder


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
        # The libraries know TensorFlow's ABI and nothing of Python's.
        recipe = json.loads((folder / "_native" / "build.json").read_text())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{recipe['machine']}"
        build_data["force_include"].update(
            {str(folder / part): f"opwright_runtime/{part}" for part in PARTS}
        )
