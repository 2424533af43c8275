"""What a machine can reach: multiply-adds a second, and bytes a second of random rows.

Both are measured by programs in C++, which are compiled first.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path


def _compiled(name: str, options: list[str], folder: Path) -> Path | None:
    """The program of a source beside this file; None without a compiler."""
    source, binary = Path(__file__).with_name(f"{name}.cc"), folder / name
    compiler = ["c++", *options, "-march=native", "-pthread"]
    made = subprocess.run([*compiler, source, "-o", binary], check=False)
    return None if made.returncode else binary


def fma_peak() -> float:
    """What the cores reach in multiply-adds, FLOP/s; 0 without a compiler."""
    with tempfile.TemporaryDirectory() as folder:
        binary = _compiled("fma_peak", ["-O2"], Path(folder))
        return 1e9 * float(subprocess.check_output([binary])) if binary else 0.0


class RandomRows:
    """How fast the cores read random rows of tables."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._binary = _compiled("random_rows", ["-O3"], Path(self._folder.name))

    def speed(self, row_bytes: int, table_bytes: int, rows: int) -> float:
        """Bytes a second, when so many rows are read; 0 without a compiler."""
        if self._binary is None:
            return 0.0
        command = [str(self._binary), *map(str, (row_bytes, table_bytes, rows))]
        return float(subprocess.check_output(command))


def share(reached: float, limit: float) -> str:
    """The share of a limit, as tables print it; nothing if the limit is not known."""
    return f"{reached / limit:.0%}" if limit else ""
