"""Makes good and bad calls of every native op, and reports failures."""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

from .draws import LEAST, fitting
from .progress import say, show_progress
from .reduce import Plain, reduced, write
from .supervisor import Finding, Worker

HERE = Path(__file__).parent
CHUNK = 300  # Scenarios of a process.
# So many calls reach every op in every way.
EVERY_OP = 50_000
FAMILIES = (
    "rnn",
    "keras",
    "params",
    "kept",
    "sparse",
    "rows",
    "dedup",
    "minibatches",
    "combiners",
    "variables",
    "embedding",
    "sends",
)
KINDS = ("eager", "graph", "saved", "compiled")


class Fuzzer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.next = options.seed
        self.calls: Counter[tuple[str, str]] = Counter()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.found: dict[str, Finding] = {}
        self.times: Counter[str] = Counter()
        self.began = time.monotonic()
        self.failures: list[BaseException] = []
        self.ops: dict[str, list[str]] = {}

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    def lacking(self) -> tuple[list[str], int]:
        """The kinds to call by next, and how many calls there are yet to make."""
        options = self.options
        with self.lock:
            made = Counter[str]()
            for (_, way), count in self.calls.items():
                made[way] += count
        total = made.total()
        if total < options.calls:
            return options.kinds, options.calls - total
        for kind, share in LEAST.items():
            # Those made to reach one share count for the others'.
            lacks = math.ceil(share * total) - made[kind]
            if lacks > 0 and kind in options.kinds and fitting(options.families, kind):
                return [kind], math.ceil(lacks / (1 - share))
        return [], 0

    def seconds_left(self) -> float:
        if not self.options.seconds:
            return math.inf
        return float(self.began + self.options.seconds - time.monotonic())

    def over(self) -> bool:
        """Whether the calls are made, enough of each kind, or the time is over."""
        return bool(self.failures or self.seconds_left() <= 0 or not self.lacking()[1])

    def seen(self, op: str, way: str, good: str, outcome: str) -> None:
        with self.lock:
            self.calls[op, way] += 1
            self.outcomes[good, outcome] += 1

    def never(self) -> list[str]:
        """Ops, and ways to call them, that nothing was called by; for long runs."""
        if self.options.calls < EVERY_OP or self.options.families != list(FAMILIES):
            return []
        return [
            f"{op} was never called, {way}"
            for op, ways in self.ops.items()
            for way in ways
            if way in self.options.kinds and not self.calls[op, way]
        ]

    def choice(self, kinds: list[str]) -> dict[str, object]:
        options = self.options
        return {"families": options.families, "kinds": kinds, "cores": options.cores}

    def work(self) -> None:
        try:
            worker = Worker()
            try:
                self.ops = worker.do({"list": True}).shown or {}
                while not self.over():
                    with self.lock:
                        first, self.next = self.next, self.next + CHUNK
                    self.chunk(worker, first, first + CHUNK)
            finally:
                worker.close()
        except BaseException as error:
            self.failures.append(error)

    def chunk(self, worker: Worker, first: int, end: int) -> None:
        while first < end and not self.over():
            fresh: list[Finding] = []
            judge = partial(self.judge, fresh)
            kinds, calls = self.lacking()
            command = {
                "choice": self.choice(kinds),
                "seeds": [first, end],
                "calls": math.ceil(calls / self.options.jobs),
                "seconds": self.seconds_left(),
            }
            ended = worker.do(command, self.seen, judge)
            for finding in fresh if self.options.corpus else []:
                self.keep(worker, kinds, finding)
            if ended.died_at is None:
                return
            first = ended.died_at + 1

    def judge(self, fresh: list[Finding], finding: Finding) -> None:
        """Reports a new finding."""
        with self.lock:
            self.times[finding.signature] += 1
            if finding.signature in self.found:
                return
            self.found[finding.signature] = finding
        fresh.append(finding)
        seconds = time.monotonic() - self.began
        say(
            f"{seconds:6.0f} s, {self.total} calls: {finding.kind} in {finding.op}, "
            f"{finding.way}, seed {finding.seed}: {finding.words[:300]}"
        )

    def keep(self, worker: Worker, kinds: list[str], finding: Finding) -> None:
        """Reduces the scenario and writes it to the corpus."""
        command = {"choice": self.choice(kinds), "show": finding.seed}
        plain = worker.do(command).shown
        assert plain

        def fails(smaller: Plain) -> bool:
            again = worker.do({"replay": [smaller]})
            return any(
                one.op == finding.op and one.kind == finding.kind
                for one in again.findings
            )

        seconds = self.options.reduce * (2 if finding.kind == "hang" else 1)
        if fails(plain):
            plain = reduced(plain, fails, seconds)
        else:
            say(f"         seed {finding.seed} alone does not do it again")
        path = write(self.options.corpus, finding.signature, plain)
        say(f"         written to {path}")


def table(fuzzer: Fuzzer) -> None:
    ops = sorted({op for op, _ in fuzzer.calls})
    ways = [way for way in KINDS if any(w == way for _, w in fuzzer.calls)]
    width = max(map(len, ops), default=0)
    print(f"{'':{width}}" + "".join(f"{way:>10}" for way in ways))
    for op in ops:
        print(f"{op:{width}}" + "".join(f"{fuzzer.calls[op, way]:10}" for way in ways))
    sums = [sum(n for (_, w), n in fuzzer.calls.items() if w == way) for way in ways]
    print(f"{f'{len(ops)} ops':{width}}" + "".join(f"{n:10}" for n in sums))
    by_op = Counter[str]()
    for (op, _), count in fuzzer.calls.items():
        by_op[op] += count
    if by_op:
        op, count = min(by_op.items(), key=lambda one: one[1])
        print(f"the fewest calls of an op: {count} of {op}")
    for good in ("good", "bad"):
        found = {o: n for (g, o), n in sorted(fuzzer.outcomes.items()) if g == good}
        print(f"{good} calls: " + ", ".join(f"{o} {n}" for o, n in found.items()))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("calls", type=int, nargs="?", default=2000)
    parser.add_argument(
        "--seed", type=int, default=0, help="the first scenario's number"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long")
    parser.add_argument(
        "--families", nargs="+", choices=FAMILIES, default=list(FAMILIES)
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--cores", type=int, default=2, help="1 for tables on a GPU")
    parser.add_argument(
        "--reduce", type=float, default=20, help="seconds to make one smaller"
    )
    parser.add_argument("--corpus", type=Path, help="where what goes wrong is written")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    fuzzer = Fuzzer(options)
    threads = [threading.Thread(target=fuzzer.work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    with show_progress(options.calls, lambda: fuzzer.total):
        for thread in threads:
            thread.join()
    for failure in fuzzer.failures:
        raise failure
    table(fuzzer)
    seconds = time.monotonic() - fuzzer.began
    print(f"{fuzzer.total} calls in {seconds:.0f} s, {len(fuzzer.found)} findings")
    for signature, finding in fuzzer.found.items():
        print(f"  {fuzzer.times[signature]} times, seed {finding.seed}: {signature}")
    never = fuzzer.never()
    print("\n".join(never), end="\n" * bool(never))
    return 1 if fuzzer.found or never else 0


if __name__ == "__main__":
    sys.exit(main())
