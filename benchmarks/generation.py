"""What it costs to bring the generated classes up to date, against black alone.

Cases run in turns, a fresh process each, and the table gives medians and the spread:

- nothing changed, in an old checkout and in a fresh clone, where file times are new;
- one op edited;
- everything from nothing, against black's own command line over the same files as they
  are before they are formatted, with as many workers and its cache off. black is run
  with --fast, as opwright-codegen uses it: no second look at its own output.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "codegen"))

from opwright_codegen import emit, load

UNCHANGED_TARGET_S = 0.5
EDITED_TARGET_S = 1.0
COLD_TARGET = 1.2


def run(*command: str | Path, cwd: Path) -> float:
    """Seconds that a process takes; its failure ends the benchmark."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "codegen"),
        "BLACK_CACHE_DIR": str(cwd / "no-cache"),
    }
    start = time.perf_counter()
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return seconds


def generate(folder: Path, *options: str) -> float:
    command = (sys.executable, "-m", "opwright_codegen", "generate", *options)
    return run(*command, cwd=folder)


def copy(folder: Path) -> Path:
    """A copy of opdefs and generated classes, with new file times."""
    for name in ("opdefs", "generated"):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
        for path in (folder / name).rglob("*"):
            os.utime(path)
    return folder


def edit(folder: Path, note: str) -> None:
    path = folder / "opdefs/linalg/MatMul.yaml"
    text = (ROOT / "opdefs/linalg/MatMul.yaml").read_text("utf-8")
    text = re.sub(r"(?m)^summary: .*", f"summary: {note}.", text, count=1)
    path.write_text(text, "utf-8")


def unformatted(folder: Path) -> None:
    """Every op's source as the templates leave it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in load.find(ROOT / "opdefs"):
        op, _ = load.load_text(path.read_bytes(), path)
        if op is not None:
            (folder / f"{path.stem}.py").write_text(emit.op_source(op), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="of the quick cases")
    parser.add_argument("--cold-rounds", type=int, default=3, help="of the slow ones")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="processes, for both"
    )
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as name:
        times = measure(Path(name), options, console)

    table = Table(title=f"Generation, {options.workers} workers, seconds")
    for column in ("case", "median", "least", "most", "target", ""):
        table.add_column(column, justify="left" if column == "case" else "right")
    fine = True

    def row(case: str, target: float | None = None) -> None:
        nonlocal fine
        middle = median(times[case])
        met = target is None or middle <= target
        fine &= met
        table.add_row(
            case,
            *(f"{value:.2f}" for value in (middle, min(times[case]), max(times[case]))),
            "" if target is None else f"{target:.1f}",
            "" if target is None else "met" if met else "missed",
        )

    row("nothing changed", UNCHANGED_TARGET_S)
    row("nothing changed, fresh clone", UNCHANGED_TARGET_S)
    row("one op edited", EDITED_TARGET_S)
    row("black alone")
    row("everything, from nothing")
    pairs = zip(times["everything, from nothing"], times["black alone"], strict=True)
    times["everything / black"] = [ours / theirs for ours, theirs in pairs]
    row("everything / black", COLD_TARGET)
    console.print(table)
    return 0 if fine else 1


def measure(
    folder: Path, options: argparse.Namespace, console: Console
) -> dict[str, list[float]]:
    warm = copy(folder / "warm")
    clone = folder / "clone"
    raw = folder / "raw"
    generate(warm)

    def from_nothing() -> float:
        shutil.rmtree(warm / "out", ignore_errors=True)
        return generate(warm, "--output", "out", "--jobs", str(options.workers))

    def black_alone() -> float:
        unformatted(raw)
        black = (sys.executable, "-m", "black", "--quiet", "--fast")
        return run(*black, "--workers", str(options.workers), raw, cwd=folder)

    count = 0

    def edited() -> float:
        nonlocal count
        count += 1
        edit(warm, f"Note {count}")
        return generate(warm)

    quick: dict[str, Callable[[], float]] = {
        "nothing changed": lambda: generate(warm),
        "nothing changed, fresh clone": lambda: generate(copy(clone)),
        "one op edited": edited,
    }
    slow = {"black alone": black_alone, "everything, from nothing": from_nothing}
    times: dict[str, list[float]] = {case: [] for case in (*quick, *slow)}
    rounds = [quick] * options.rounds + [slow] * options.cold_rounds
    for cases in track(rounds, "Timing", console=console, transient=True):
        for case, measured in cases.items():
            times[case].append(measured())
    return times


if __name__ == "__main__":
    sys.exit(main())
