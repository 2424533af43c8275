"""Adds the opdefs and the native kernels to a wheel.

The opdefs become one archive: as 1,600 files they would take more than twice the room.

`make wheel` builds the native kernels. The variable OPWRIGHT_NATIVE names a folder of
what goes into opwright_runtime, as tools/native_files.py lays it out:

- _lib: for each minor version of TensorFlow a folder with a library and its stamp, and
  the extension module of eager calls;
- _native: the sources, and how to compile them for another TensorFlow.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS = ("_lib", "_native")
# The oldest time of a ZIP archive.
TIME = (1980, 1, 1, 0, 0, 0)


def archive(folder: Path, target: Path) -> None:
    """Stores the files of a folder, so that the wheel compresses them together."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as written:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                # The same bytes from each build of the same files.
                entry = zipfile.ZipInfo(name.as_posix(), TIME)
                written.writestr(entry, path.read_bytes())


def native() -> Path | None:
    """The folder with the native kernels; None for a wheel without."""
    named = os.environ.get("OPWRIGHT_NATIVE")
    if not named:
        return None
    folder = Path(named).resolve()
    for needed in (
        "_lib/*/libopwright.so",
        "_lib/*/libopwright.json",
        "_lib/fast_path.abi3.so",
        "_native/build.json",
    ):
        if not any(folder.glob(needed)):
            raise FileNotFoundError(
                f"OPWRIGHT_NATIVE names {folder}, which has no {needed}: `make wheel` "
                "builds the libraries before the wheel"
            )
    return folder


class Additions(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self.made: Path | None = None
        if version == "editable":
            return
        self.made = Path(tempfile.mkdtemp())
        opdefs = self.made / "opdefs.zip"
        archive(Path(self.root) / "opdefs", opdefs)
        build_data["force_include"][str(opdefs)] = "opwright_codegen/opdefs.zip"
        self.add_native(build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:
        if self.made is not None:
            shutil.rmtree(self.made)

    def add_native(self, build_data: dict[str, Any]) -> None:
        folder = native()
        if folder is None:
            self.app.display_warning(
                "This wheel has no native kernels: CudnnRNN and TPU embeddings will "
                "not run on the CPU. `make wheel` builds one that has them."
            )
            return
        # The libraries know TensorFlow's ABI and nothing of Python's. The extension
        # module has the stable ABI, and a Python that cannot load it does without.
        recipe = json.loads((folder / "_native" / "build.json").read_text())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-linux_{recipe['machine']}"
        build_data["force_include"].update(
            {str(folder / part): f"opwright_runtime/{part}" for part in PARTS}
        )
