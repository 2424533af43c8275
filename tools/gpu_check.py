"""Settles on a GPU what cannot be without one: python tools/gpu_check.py --write.

For a machine with a GPU, nvcc, g++, CMake, NumPy and torch; TensorFlow, FBGEMM, rich
and compute-sanitizer are used where they are. All of it takes less than ten minutes.
Each part runs in a process of its own, so that none can be the end of another. Prints
a table last; exits 1 if something failed, and 0 otherwise. Without a GPU it says so in
one line and exits 0.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from gpu.support.parts import FOLDERS, PARTS, Part, Run
from gpu.support.report import FAILED, NOT_RUN, OK, Findings, Row, found, table, write
from gpu.support.sanitizer import stop

DOC = ROOT / "runtime" / "native" / "embedding" / "cuda" / "README.md"
BUILD = ROOT / "build" / "gpu"
# Of everything; a command on a borrowed machine may have ten minutes.
SECONDS = 550.0
Show = Callable[[str], object]


def missing() -> str:
    """What a check wants and is not here, or nothing."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "torch sees no GPU"


def said_by(*command: str) -> str:
    """The first line that a program prints, or nothing."""
    if not shutil.which(command[0]):
        return ""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return (ran.stdout.strip().splitlines() or [""])[0]


def machine() -> str:
    import torch

    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    query = "--query-gpu=name,driver_version", "--format=csv,noheader"
    name, _, driver = said_by("nvidia-smi", *query).partition(", ")
    return (
        f"{name or torch.cuda.get_device_name()}, driver {driver or 'unknown'}, "
        f"CUDA {torch.version.cuda}, cuDNN {cudnn}, "
        f"torch {torch.__version__}, {os.cpu_count()} cores, {datetime.date.today()}"
    )


@contextmanager
def progress(count: int) -> Iterator[tuple[Show, Show]]:
    """How to say what is being done, and what is done: with rich, or in plain lines."""
    try:
        from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
    except ImportError:
        yield (lambda words: None), (lambda words: print(words, flush=True))
        return
    columns: list[Any] = [SpinnerColumn(), *Progress.get_default_columns()[:2]]
    with Progress(*columns, TimeElapsedColumn(), transient=True) as bar:
        task = bar.add_task("", total=count)

        def done(words: str) -> None:
            bar.console.print(words, markup=False, highlight=False)
            bar.advance(task)

        yield (lambda words: bar.update(task, description=words)), done


def run_part(
    name: str,
    command: list[str],
    seconds: float,
    folder: Path,
    environment: dict[str, str],
    doing: Show,
) -> tuple[list[Row], list[str]]:
    """What a part found, in a process that is ended after that many seconds.

    The command writes its findings to the folder, where its output goes, too.
    """
    results, log = folder / f"{name}.jsonl", folder / f"{name}.log"
    results.unlink(missing_ok=True)
    began = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--results", str(results), "--seconds", f"{seconds:.0f}"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
            text=True,
        )
        status: int | None = None
        try:
            while status is None and time.monotonic() - began < seconds:
                rows = found(name, results)[0]
                last = f": {rows[-1].what}" if rows else ""
                doing(f"{name} {time.monotonic() - began:.0f} s{last}")
                try:
                    status = process.wait(0.5)
                except subprocess.TimeoutExpired:
                    status = None
        finally:
            if status is None:
                stop(process)
    rows, lines, done = found(name, results)
    if status is None:
        rows.append(Row(name, "the rest", NOT_RUN, f"not done after {seconds:.0f} s"))
    elif not done:
        tail = log.read_text(errors="replace").strip().splitlines()[-1:]
        note = f"ended with status {status}: {' '.join(tail)}; see {log.name}"
        rows.append(Row(name, "the rest", FAILED, note))
    return rows, lines


def run_all(
    parts: dict[str, Part], seconds: float, arguments: list[str]
) -> tuple[list[Row], list[str]]:
    """Rows and lines of Markdown of all parts, one after the other."""
    BUILD.mkdir(parents=True, exist_ok=True)
    script = [sys.executable, __file__, "--build", str(BUILD), *arguments]
    deadline = time.monotonic() + seconds
    rows: list[Row] = []
    lines: list[str] = []
    with progress(len(parts)) as (doing, done):
        for name, part in parts.items():
            left = min(part.seconds, deadline - time.monotonic())
            began = time.monotonic()
            if left < 5:
                of_part = [Row(name, "all of it", NOT_RUN, "no time is left")]
            else:
                command, environment = [*script, "--part", name], dict(part.environment)
                of_part, more = run_part(name, command, left, BUILD, environment, doing)
                lines += more
            rows += of_part
            counts = [
                f"{sum(row.verdict == verdict for row in of_part)} {verdict}"
                for verdict in (OK, FAILED, NOT_RUN)
                if any(row.verdict == verdict for row in of_part)
            ]
            done(f"{name}: {', '.join(counts)}, {time.monotonic() - began:.0f} s")
    return rows, lines


def leave(folder: Path, text: str, rows: list[Row]) -> None:
    """Puts the page, every log and all findings into a folder, which may be there."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted([*BUILD.glob("*.log"), *BUILD.glob("*.jsonl")]):
        shutil.copy(file, folder / file.name)
    for log in sorted(BUILD.glob("*/build.log")):
        shutil.copy(log, folder / f"build-{log.parent.name}.log")
    (folder / "page.md").write_text(text)
    findings = {"machine": machine(), "rows": [asdict(row) for row in rows]}
    (folder / "results.json").write_text(json.dumps(findings, indent=1) + "\n")


def child(arguments: argparse.Namespace) -> int:
    """One part, in this process, which can be asked to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.path[:0] = [str(ROOT / folder) for folder in FOLDERS]
    findings = Findings(arguments.part, arguments.results)
    deadline = time.monotonic() + arguments.seconds
    run = Run(findings, arguments.build, deadline, arguments.quick, arguments.together)
    PARTS[arguments.part].run(run)
    findings.done()
    return 0


def parsed(given: list[str]) -> argparse.Namespace:
    about = "\n".join(f"  {name:<11} {part.about}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"parts:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(PARTS),
        help="only this part, after a build; may be given several times",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the report into runtime/native/embedding/cuda/README.md",
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller draws")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="what all may take (%(default)s)"
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FOLDER",
        help="leave the page (page.md), every log and results.json there",
    )
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--together", action="store_true", help=argparse.SUPPRESS)
    for hidden in ("--results", "--build"):
        parser.add_argument(hidden, type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main() -> int:
    arguments = parsed(sys.argv[1:])
    if arguments.part:
        return child(arguments)
    if what := missing():
        print(f"tools/gpu_check.py: nothing was checked, {what}")
        return 0
    only = {"build", *arguments.only} if arguments.only else set(PARTS)
    parts = {name: part for name, part in PARTS.items() if name in only}
    began = time.monotonic()
    quick = ["--quick"] if arguments.quick else []
    rows, lines = run_all(parts, arguments.seconds, quick)
    took = f"{time.monotonic() - began:.0f} s"
    above = ["", *lines] if lines else []
    text = "\n".join([f"{machine()}; {took}.", *above, "", *table(rows)]) + "\n"
    print(f"\n{text}", end="")
    if arguments.into:
        leave(arguments.into, text, rows)
    if arguments.write:
        write(DOC, text)
    return 1 if any(row.verdict == FAILED for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
