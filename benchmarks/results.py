"""Results of benchmarks as data: what ran where, on which commit, and how long it took.

A run with `--record` adds its rows to `results/<date>-<processor>-<commit>.json`.
benchmarks/report.py makes the documentation's tables and chart from these files.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

FOLDER = Path(__file__).resolve().parent / "results"
_ROOT = FOLDER.parent.parent
#: Whose versions decide what a result means, where they are installed.
_PACKAGES = (
    "tensorflow",
    "keras",
    "torch",
    "fbgemm-gpu-cpu",
    "torchrec",
    "tf2onnx",
    "onnxruntime",
    "ai-edge-litert",
    "numpy",
)


@dataclass
class Recorder:
    """The rows of one run of a benchmark; without `folder` it keeps nothing.

    Attributes:
        benchmark: the name of the script.
        folder: where the file is.
        rows: what `add` was given.
    """

    benchmark: str
    folder: Path | None
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        case: str,
        what: str,
        times: Mapping[str, ArrayLike],
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Adds a row.

        Args:
            case: the workload, as the tables name it.
            what: what is timed of it, such as "forward".
            times: by contender the seconds of each round.
            sizes: by contender the bytes of its file or folder, if it has one.
        """
        seconds = {
            name: [float(f"{one:.4g}") for one in np.quantile(each, [0.25, 0.5, 0.75])]
            for name, each in times.items()
        }
        rounds = min(np.size(each) for each in times.values())
        row = {"case": case, "what": what, "rounds": rounds, "seconds": seconds}
        self.rows.append(row | ({"bytes": dict(sizes)} if sizes else {}))

    def save(self) -> Path | None:
        """Puts the rows in the file in place of those of an earlier run there."""
        if self.folder is None or not self.rows:
            return None
        machine, commit = machine_facts(), commit_name()
        # All benchmarks of a commit are in one file, also if they run past midnight.
        of_commit = f"{machine['name']}-{commit}.json"
        today = datetime.date.today().isoformat()
        path = self.folder / f"{today}-{of_commit}"
        path = max(self.folder.glob(f"????-??-??-{of_commit}"), default=path)
        date = path.name[: len(today)]
        record = json.loads(path.read_text("utf-8")) if path.exists() else {}
        record |= {"date": date, "commit": commit, "machine": machine}
        record["versions"] = versions()
        command = " ".join(
            ["python", f"benchmarks/{self.benchmark}.py", *_options(sys.argv[1:])]
        )
        record.setdefault("benchmarks", {})[self.benchmark] = {
            "command": command,
            "rows": self.rows,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(_text(record), "utf-8")
        partial.replace(path)
        return path


def _options(arguments: Sequence[str]) -> list[str]:
    """The options of a command, without `--record` and its folder."""
    kept, at = list(arguments), 0
    while at < len(kept):
        if kept[at] == "--record":
            has_folder = at + 1 < len(kept) and not kept[at + 1].startswith("-")
            del kept[at : at + 1 + has_folder]
        elif kept[at].startswith("--record="):
            del kept[at]
        else:
            at += 1
    return kept


def _text(record: Mapping[str, Any]) -> str:
    """JSON with a line for each row of results."""
    rows: list[str] = []

    def placed(one: Any) -> Any:
        if isinstance(one, dict) and "seconds" in one:
            rows.append(json.dumps(one))
            return f"row {len(rows) - 1}"
        if isinstance(one, dict):
            return {name: placed(value) for name, value in one.items()}
        return [placed(value) for value in one] if isinstance(one, list) else one

    text = json.dumps(placed(record), indent=2)
    return re.sub(r'"row (\d+)"', lambda found: rows[int(found[1])], text) + "\n"


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--record` to a benchmark's options."""
    parser.add_argument(
        "--record",
        nargs="?",
        type=Path,
        const=FOLDER,
        metavar="FOLDER",
        help="keep the results as data there (default: benchmarks/results)",
    )


def machine_facts() -> dict[str, Any]:
    """The processor and its caches, without a host name."""
    facts = dict(_cpu_facts())
    model = facts.get("model name", platform.machine())
    parts = (model, facts.get("cpu family", ""), facts.get("model", ""))
    flags = facts.get("flags", "").split()
    return {
        "name": re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-"),
        "processor": model,
        "family": facts.get("cpu family"),
        "model": facts.get("model"),
        "cores": os.cpu_count(),
        "vectors": next(
            (one for one in ("avx512f", "avx2", "asimd") if one in flags), None
        ),
        "caches": _caches(),
    }


def _cpu_facts() -> Iterable[tuple[str, str]]:
    """What Linux says of the first processor."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        yield name.strip(), value.strip()


def _caches() -> dict[str, str]:
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (index / "type").read_text("utf-8").strip() != "Instruction":
            level = (index / "level").read_text("utf-8").strip()
            caches[f"L{level}"] = (index / "size").read_text("utf-8").strip()
    return caches


def commit_name() -> str:
    """The commit of the sources; with `-dirty` if they differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    return git("rev-parse", "--short=8", "HEAD") + ("-dirty" if changed else "")


def versions() -> dict[str, str]:
    """The versions of Python and of what opwright is compared with."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
