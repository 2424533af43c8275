"""Where things lie."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPDEFS = ROOT / "opdefs"
NATIVE = ROOT / "runtime" / "native"
# With a module that Python imports when it starts.
STARTUP = ROOT / "tests" / "support" / "startup"
SOURCES = [ROOT / name for name in ("generated", "runtime", "codegen", "tests")]


def environment(**changes: str) -> dict[str, str]:
    """The environment of a fresh process that finds the sources of this checkout."""
    path = os.pathsep.join(map(str, [STARTUP, *SOURCES]))
    return {**os.environ, "PYTHONPATH": path, **changes}


@contextmanager
def own_folder() -> Iterator[None]:
    """A folder for the files of an example: others have files of the same names."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
