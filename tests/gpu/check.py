"""Builds, checks and times the CUDA backend: python tests/gpu/check.py [--write].

For a machine with a GPU, nvcc, NumPy and torch; a few minutes. Prints a table last,
writes it to docs/gpu.md if asked to, exits 1 if a check failed. Without a GPU it says
so and exits 0.
"""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DOC = ROOT / "docs" / "gpu.md"
MARKS = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


def missing() -> str:
    """What a check wants and is not here, or nothing."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    return "" if shutil.which("nvcc") else "nvcc is not in PATH"


def machine() -> str:
    import torch

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    return (
        f"{torch.cuda.get_device_name()}, driver {driver.strip()}, "
        f"CUDA {torch.version.cuda}, torch {torch.__version__}, {datetime.date.today()}"
    )


def write(text: str) -> None:
    """Puts the text between the marks of docs/gpu.md."""
    before, rest = DOC.read_text().split(MARKS[0])
    _, after = rest.split(MARKS[1])
    DOC.write_text(before + MARKS[0] + text + MARKS[1] + after)


def main() -> int:
    if what := missing():
        print(f"tests/gpu/check.py: nothing was checked, {what}")
        return 0
    sys.path += [str(p) for p in (HERE, ROOT / "tests/native", ROOT / "benchmarks/gpu")]
    from backend import Library, build
    from checks import Checks
    from embedding_times import table_of_times

    began = time.monotonic()
    library = Library(build(ROOT / "build" / "gpu"))
    checks = Checks(library)
    checked = checks.everything()
    lines = [
        f"{machine()}. {checked}.",
        "",
        *table_of_times(library),
    ]
    text = "\n".join(lines) + "\n"
    print(f"\n{time.monotonic() - began:.0f} s\n{text}", end="")
    if "--write" in sys.argv[1:]:
        write(text)
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
