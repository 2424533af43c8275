"""Converts damaged models, and reports what is not refused with a ConvertError.

`PYTHONPATH=tests python -m fuzz.models 5000`. Each model is damaged from a seed and
converted. Then either the target is there, or a ConvertError says why not, the target
is as it was, and nothing else is written. `--only SEED` shows one of them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

import opwright
from opwright.convert import ConvertError, to_onnx, to_plain, to_tflite
from support.tiers import PACKAGES, missing_packages

from .model_damage import damage

_SAVED_MODEL = vars(saved_model_pb2)["SavedModel"]
#: What is converted, and the class of the message in its file.
SOURCES: dict[str, Any] = {
    "cell": _SAVED_MODEL,
    "bodies": _SAVED_MODEL,
    "branches": _SAVED_MODEL,
    "words": _SAVED_MODEL,
    "frozen.pb": vars(graph_pb2)["GraphDef"],
}
#: How often each of them is drawn: those that take seconds less often.
WEIGHTS = (2, 1, 1, 1, 2)
CONVERSIONS: dict[str, Callable[..., Any]] = {
    "plain": to_plain,
    "onnx": to_onnx,
    "tflite": to_tflite,
}
#: A model may ask for a loop that does not end: seconds of work, and of waiting.
WORK, WAITING = 30.0, 900.0
#: How many models one process converts. The first ones of each kind take seconds.
BATCH = 500


@dataclass
class Tally:
    """What became of the models.

    Attributes:
        outcomes: how many were converted, refused, do not end, or ended the process.
        reasons: why models were refused, without names and numbers.
        wrong: for each seed, what is wrong.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)


def make_sources(folder: Path) -> None:
    """Writes the models that are damaged: in another process, which runs ops."""
    pid = os.fork()
    if pid:
        assert os.waitpid(pid, 0)[1] == 0, "the models cannot be made"
        return
    try:
        from convert.support import drawn, models

        drawn.Drawn(48).save(folder / "cell")
        models.save_bodies(folder / "bodies")
        models.save_branches(folder / "branches")
        models.saved_on_a_gpu(folder / "words")
        models.write_frozen(folder / "frozen.pb")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def import_once(kinds: list[str]) -> None:
    """Imports what conversions import when they begin, for all forked processes."""
    names = ["keras", *(PACKAGES["convert"] if {*kinds} != {"plain"} else ())]
    for name in names:
        importlib.import_module(name)


def attempt(seed: int, sources: Path, folder: Path, kinds: list[str]) -> str:
    """Converts one damaged model in `folder`; returns its outcome and reason.

    Raises:
        Exception: the conversion does not keep what it promises.
    """
    rng = random.Random(seed)
    (name,) = rng.choices([*SOURCES], WEIGHTS)
    work, temporary = folder / "work", folder / "temporary"
    for one in (work, temporary):
        one.mkdir()
    tempfile.tempdir = str(temporary)
    source, target = work / name, work / "target"
    damage(sources / name, source, SOURCES[name], rng)
    kept = rng.random() < 0.5
    if kept:
        target.mkdir()
        (target / "kept").write_text("kept")
    before = contents(work, target)
    convert = CONVERSIONS[rng.choice(kinds)]
    outcome = "converted"
    try:
        check = rng.random() < 0.4
        convert(source, target, check=check, overwrite=True, **options(convert, rng))
    except ConvertError as error:
        outcome = f"refused {' '.join(str(error).split())}"
        assert str(error).strip(), "the error has no words"
        assert "Traceback" not in str(error), str(error)
        if kept:
            there = sorted(one.name for one in target.iterdir())
            assert there == ["kept"], f"the target has changed: {there}"
        else:
            assert not os.path.lexists(target), "a target is left"
    else:
        assert target.exists(), "there is no target"
        assert not (target / "kept").exists(), "the old target is there"
    after = contents(work, target)
    assert after == before, f"written elsewhere: {after ^ before}"
    left = [one.name for one in temporary.iterdir()]
    assert not left, f"temporary files are left: {left}"
    return outcome


def options(convert: Callable[..., Any], rng: random.Random) -> dict[str, Any]:
    """The form of a TFLite file."""
    if convert is not to_tflite or rng.random() < 0.5:
        return {}
    return {
        "fused": rng.choice(["auto", True, False]),
        "batch": rng.choice([None, 1, 2, 2]),
        "quantize": rng.choice([None, "dynamic", "float16"]),
    }


def contents(work: Path, target: Path) -> set[tuple[str, bytes]]:
    """All files but those of the target."""
    return {
        (str(one.relative_to(work)), one.read_bytes() if one.is_file() else b"")
        for one in sorted(work.rglob("*"))
        if one != target and target not in one.parents
    }


def serve(seeds: range, sources: Path, folder: Path, kinds: list[str], to: int) -> None:
    """Makes attempts, and writes a line after each."""
    os.chdir(folder)
    for seed in seeds:
        try:
            said = attempt(seed, sources, folder, kinds)
        except BaseException:
            said = f"wrong {traceback.format_exc()!r}"
        for one in ("work", "temporary"):
            shutil.rmtree(folder / one, ignore_errors=True)
        if left := sorted({*os.listdir(folder)} - {"log"}):
            said = f"wrong written elsewhere: {left}"
        os.write(to, said.replace("\n", " ").encode()[-3000:] + b"\n")


def seconds_of(pid: int) -> float:
    """Seconds that a process had of processors; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # Its name, which may hold anything, ends with the last parenthesis.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Run:
    """Attempts in processes that are forked from this one."""

    def __init__(self, sources: Path, kinds: list[str], seconds: float) -> None:
        self.sources = sources
        self.kinds = kinds
        self.end = time.monotonic() + seconds
        self.tally = Tally()

    def all(self, seeds: range) -> Tally:
        while seeds and time.monotonic() < self.end:
            seeds = seeds[self.some(seeds[:BATCH]) :]
            print(f"{len(seeds)} models are left", flush=True)
        return self.tally

    def some(self, seeds: range) -> int:
        """Makes attempts until the process ends; returns how many ended."""
        reader, writer = os.pipe()
        with tempfile.TemporaryDirectory(prefix="fuzz-models-") as name:
            folder = Path(name)
            pid = os.fork()
            if not pid:
                os.close(reader)
                log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
                os.dup2(log, 1)
                os.dup2(log, 2)
                try:
                    serve(seeds, self.sources, folder, self.kinds, writer)
                finally:
                    os._exit(0)
            os.close(writer)
            done, killed = self._read(seeds, reader, pid)
            status = os.waitpid(pid, 0)[1]
            if killed == "endless":
                self.tally.outcomes[killed] += 1
                done += 1
            elif not killed and os.WIFSIGNALED(status):
                self._died(seeds[done], os.WTERMSIG(status), folder / "log")
                done += 1
        os.close(reader)
        return done

    def _read(self, seeds: range, reader: int, pid: int) -> tuple[int, str]:
        """Counts outcomes; returns how many there are, and why the rest is killed."""
        done, buffer = 0, b""
        worked, waited = seconds_of(pid), time.monotonic()
        while True:
            ready, _, _ = select.select([reader], [], [], 5.0)
            now = time.monotonic()
            if now > self.end:
                os.kill(pid, signal.SIGKILL)
                return done, "late"
            if not ready:
                if seconds_of(pid) - worked > WORK or now - waited > WAITING:
                    os.kill(pid, signal.SIGKILL)
                    return done, "endless"
                continue
            worked, waited = seconds_of(pid), now
            data = os.read(reader, 1 << 16)
            if not data:
                return done, ""
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                self._count(seeds[done], line.decode(errors="replace"))
                done += 1

    def _count(self, seed: int, said: str) -> None:
        outcome, _, reason = said.partition(" ")
        self.tally.outcomes[outcome if outcome in OUTCOMES else "wrong"] += 1
        if outcome not in OUTCOMES:
            self._wrong(seed, said)
        elif reason:
            self.tally.reasons[re.sub(r"'[^']*'|\S*/\S*|\d+", "#", reason)[:70]] += 1

    def _died(self, seed: int, number: int, log: Path) -> None:
        self.tally.outcomes["died"] += 1
        words = log.read_text(errors="replace")[-600:]
        self._wrong(seed, f"{signal.Signals(number).name}: {words}")

    def _wrong(self, seed: int, words: str) -> None:
        self.tally.wrong[seed] = words
        print(f"seed {seed}: {words[-1500:]}", flush=True)


#: What may become of a damaged model.
OUTCOMES = ("converted", "refused")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.models", description=__doc__)
    parser.add_argument("models", type=int, nargs="?", default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seconds", type=float, default=86_400, help="at most")
    parser.add_argument("--kinds", nargs="+", choices=[*CONVERSIONS])
    parser.add_argument("--only", type=int, metavar="SEED", help="in this process")
    options = parser.parse_args(arguments)
    assert opwright.__version__
    # Three of five are plain, or all where the packages of the others are missing.
    every = ["plain", "plain", *CONVERSIONS]
    kinds = options.kinds or (["plain"] if missing_packages("convert") else every)
    import_once(kinds)
    with tempfile.TemporaryDirectory(prefix="fuzz-sources-") as name:
        sources = Path(name)
        make_sources(sources)
        if options.only is not None:
            folder = sources / "only"
            folder.mkdir()
            print(attempt(options.only, sources, folder, kinds))
            return 0
        seeds = range(options.seed, options.seed + options.models)
        tally = Run(sources, kinds, options.seconds).all(seeds)
    for reason, count in tally.reasons.most_common(25):
        print(f"{count:6} {reason}")
    print(", ".join(f"{count} {name}" for name, count in tally.outcomes.items()))
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
