"""Bends the arguments of every op, and says where the words of a refusal are false.

`PYTHONPATH=tests python -m fuzz.diagnosis 200000 --seed 1`. What is said of shapes and
dtypes is held against the arguments, and against what TensorFlow answers to other
arguments. A call that ends TensorFlow's process is counted.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from support.grouped import ops

from .bends import LEFT_OUT
from .supervisor import Finding, Worker

# Deaths of an op, after which it is left alone.
DEATHS = 3


@dataclass
class Tally:
    """What became of the calls."""

    outcomes: Counter[str] = field(default_factory=Counter)
    ops: set[str] = field(default_factory=set)
    deaths: Counter[str] = field(default_factory=Counter)
    false: list[Finding] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return self.outcomes.total()


class Run:
    """Calls of some ops, in worker processes."""

    def __init__(self, names: list[str], calls: int, seed: int, seconds: float) -> None:
        self.left = list(names)
        self.each = -(-calls // max(len(names), 1))
        self.calls = calls
        self.seed = seed
        self.end = time.monotonic() + seconds
        self.tally = Tally()
        self.lock = threading.Lock()
        self.failures: list[BaseException] = []

    def work(self) -> None:
        try:
            worker = Worker("fuzz.diagnosis_worker")
            try:
                while (name := self.next()) is not None:
                    self.op(worker, name)
            finally:
                worker.close()
        except BaseException as error:
            self.failures.append(error)

    def next(self) -> str | None:
        with self.lock:
            over = time.monotonic() > self.end or self.failures
            return self.left.pop() if self.left and not over else None

    def op(self, worker: Worker, name: str) -> None:
        first, deaths = 0, 0
        while first < self.each and deaths < DEATHS and time.monotonic() < self.end:
            command = {"op": name, "seed": self.seed, "first": first, "end": self.each}
            ended = worker.do(command, self.seen)
            with self.lock:
                false = [one for one in ended.findings if one.kind == "false"]
                self.tally.false += false
                for finding in false:
                    print(f"{finding.op} {finding.call}: {finding.words}", flush=True)
                died = [one for one in ended.findings if one.kind != "false"]
                self.tally.deaths.update(one.kind for one in died)
            if ended.died_at is None or ended.died_at < 0:
                return
            deaths += 1
            first = ended.died_at + 1

    def seen(self, op: str, way: str, goodness: str, outcome: str) -> None:
        with self.lock:
            self.tally.outcomes[outcome] += 1
            self.tally.ops.add(op)


def tally(names: list[str], calls: int, seed: int, jobs: int, seconds: float) -> Tally:
    """Makes `calls` calls of ops, the same number of each.

    Raises:
        RuntimeError: a worker failed for a reason of its own.
    """
    run = Run(names, calls, seed, seconds)
    threads = [threading.Thread(target=run.work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in run.failures:
        raise failure
    return run.tally


def names(seed: int) -> list[str]:
    """The ops, in an order of the seed."""
    found = sorted(
        name for group in ops().values() for name in group if name not in LEFT_OUT
    )
    random.Random(seed).shuffle(found)
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz.diagnosis", description=__doc__
    )
    parser.add_argument("calls", type=int, nargs="?", default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--seconds", type=float, default=86_400, help="at most")
    parser.add_argument("--ops", nargs="+", help="these alone")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    chosen = options.ops or names(options.seed)
    began = time.monotonic()
    found = tally(chosen, options.calls, options.seed, options.jobs, options.seconds)
    outcomes = ", ".join(f"{kind} {n}" for kind, n in found.outcomes.most_common())
    deaths = ", ".join(f"{kind} {n}" for kind, n in found.deaths.most_common())
    print(f"{found.calls} calls of {len(found.ops)} ops: {outcomes}")
    print(
        f"{found.deaths.total()} calls ended TensorFlow's process: {deaths or 'none'}"
    )
    print(f"{len(found.false)} false words, {time.monotonic() - began:.0f} s")
    return 1 if found.false else 0


if __name__ == "__main__":
    sys.exit(main())
