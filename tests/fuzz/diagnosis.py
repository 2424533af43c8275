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

from .supervisor import LEFT_OUT, Finding, Worker

# Deaths of an op, after which it is left alone.
DEATHS = 3
# Ops of a process: to start one takes as long as a hundred calls.
OPS = 25
# The outcome of the calls in an op's example.
EXAMPLE = "example"


@dataclass
class Tally:
    """What became of the calls."""

    outcomes: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
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
        self.seed = seed
        self.end = time.monotonic() + seconds
        self.tally = Tally()
        self.lock = threading.Lock()
        self.failures: list[BaseException] = []

    def work(self) -> None:
        try:
            worker = Worker("fuzz.diagnosis_worker")
            try:
                while names := self.next():
                    self.calls_of(worker, names)
                    self.say()
            finally:
                worker.close()
        except BaseException as error:
            self.failures.append(error)

    def over(self) -> bool:
        return bool(self.failures) or time.monotonic() > self.end

    def next(self) -> list[str]:
        """The ops whose calls are next; none if the run is over."""
        with self.lock:
            found = [] if self.over() else self.left[-OPS:]
            self.left = self.left[: len(self.left) - len(found)]
            return found

    def calls_of(self, worker: Worker, names: list[str]) -> None:
        """Makes the calls of ops, past those that end the process."""
        places = self.each + 1  # Of an op: its example, and its calls.
        first, deaths = 0, Counter[int]()
        while first < len(names) * places and not self.over():
            command = {
                "ops": names,
                "seed": self.seed,
                "first": first,
                "each": self.each,
                "seconds": self.end - time.monotonic(),
            }
            ended = worker.do(command, self.seen, self.found)
            if ended.died_at is None:
                return
            op, call = divmod(ended.died_at, places)
            deaths[op] += 1
            goes_on = call and deaths[op] < DEATHS
            first = ended.died_at + 1 if goes_on else (op + 1) * places

    def say(self) -> None:
        with self.lock:
            text = f"{self.tally.calls} calls of {len(self.tally.ops)} ops"
        print(text, file=sys.stderr, flush=True)

    def found(self, finding: Finding) -> None:
        with self.lock:
            if finding.kind != "false":
                self.tally.deaths[finding.kind] += 1
                return
            self.tally.false.append(finding)
        print(f"{finding.op} {finding.call}: {finding.words}", flush=True)

    def seen(self, op: str, way: str, dtypes: str, outcome: str) -> None:
        if outcome == EXAMPLE:
            return
        with self.lock:
            self.tally.outcomes[outcome] += 1
            self.tally.ways[way] += 1
            self.tally.dtypes.update(dtypes.split(","))
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


def counts(of: Counter[str]) -> str:
    return ", ".join(f"{kind} {n}" for kind, n in of.most_common()) or "none"


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    chosen = options.ops or names(options.seed)
    began = time.monotonic()
    found = tally(chosen, options.calls, options.seed, options.jobs, options.seconds)
    print(f"{found.calls} calls of {len(found.ops)} ops: {counts(found.outcomes)}")
    print(f"ways: {counts(found.ways)}; with a tensor of: {counts(found.dtypes)}")
    print(
        f"{found.deaths.total()} calls ended TensorFlow's process: "
        f"{counts(found.deaths)}"
    )
    print(f"{len(found.false)} false words, {time.monotonic() - began:.0f} s")
    return 1 if found.false else 0


if __name__ == "__main__":
    sys.exit(main())
