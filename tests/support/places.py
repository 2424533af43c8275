"""Where things lie."""

from __future__ import annotations

import os
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
