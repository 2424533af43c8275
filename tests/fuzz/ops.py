"""Makes bent calls of every op with a CPU kernel; finds those that end the process.

`PYTHONPATH=tests python -m fuzz.ops --calls 100 --seed 1`. The valid calls come from
the examples of opdefs. `--side raw` makes them through `tf.raw_ops`, `--side opwright`
through opwright, which may also refuse what TensorFlow takes.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from .ops_findings import (
    HANG,
    MEMORY,
    REFUSED,
    Corpus,
    Found,
    lines,
    show,
    signature,
    summary,
)
from .ops_settings import Settings
from .ops_state import EXAMPLE, SEPARATOR
from .ops_supervisor import Ended, LimitedWorker
from .progress import say, show_progress
from .reduce import Plain, reduced
from .refused_before import is_named

# Calls of a process: to start one takes as long as a hundred calls.
CALLS = 1500
# Calls that end the process by the same bends of the same arguments. Most of those that
# follow are left out.
MUTED = 3
# One in so many of them is made, with other values. A call that hangs takes as long as
# thousands of others.
PERIOD = {HANG: 50}
PERIOD_OF_OTHERS = 10
# Findings of one reason that are tried alone, until one does it again.
TRIED = 3
# Calls with one refusal that TensorFlow takes, after which no more are tried.
ENOUGH = 3
# Calls with one refusal that end the process in TensorFlow, after which no more are
# tried: each takes seconds.
ENOUGH_ENDS = 5
# The part of the calls that are made without oneDNN, of ops that it replaces.
WITHOUT_ONEDNN = 2 / 3
# Seconds to make a finding smaller.
REDUCED = 60.0


@dataclass(frozen=True)
class Task:
    """Calls of some ops, by their numbers."""

    ops: tuple[str, ...]
    onednn: str
    first: int
    last: int


#: A call that opwright refuses: the op, the number of the call, the message.
Case: TypeAlias = tuple[str, int, str]


def reason_of(case: Case) -> str:
    """The same for calls that opwright refuses for one reason."""
    op, _, words = case
    return signature(op, REFUSED, words)


class Run:
    """Calls of ops, in worker processes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.settings = Settings(options.seed, options.graphs, tuple(options.kinds))
        self.lock = threading.Lock()
        self.corpus = Corpus(options.corpus)
        self.outcomes: Counter[str] = Counter()
        self.deaths: Counter[str] = Counter()
        self.tried: Counter[str] = Counter()
        self.keys: dict[str, Counter[str]] = defaultdict(Counter)
        # By signature.
        self.by_reason: dict[str, list[Found]] = defaultdict(list)
        self.periods: Counter[tuple[str, str]] = Counter()
        # By the signature of the refusal: calls that end the process in TensorFlow.
        self.refused_ends: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.left_out: dict[str, str] = {}
        self.began = time.monotonic()
        self.end = self.began + (options.minutes * 60 or math.inf)
        self.tasks: list[Task] = []
        self.idle: list[LimitedWorker] = []
        self.workers: list[LimitedWorker] = []
        self.modes: dict[str, list[list[str]]] = {}
        # Ops that oneDNN replaces.
        self.replaced = set[str]()

    @property
    def found(self) -> list[Found]:
        return [one for several in self.by_reason.values() for one in several]

    @property
    def made(self) -> int:
        now = [sum(one.state.outcomes.values()) for one in self.workers]
        return self.outcomes.total() + sum(now)

    def over(self) -> bool:
        return bool(self.failures) or time.monotonic() > self.end

    def prepare(self) -> None:
        """Finds the ops, and divides the calls into tasks."""
        worker = LimitedWorker("0")
        listed = worker.obey({"list": self.options.ops}).shown
        self.idle.append(worker)
        self.workers.append(worker)
        assert listed is not None
        self.left_out = listed["left out"]
        names = listed["ops"]
        random.Random(self.options.seed).shuffle(names)
        self.replaced = set(listed["onednn"])
        finished = set[tuple[Any, ...]]()
        if self.options.resume:
            finished = {tuple(one.values()) for one in self.corpus.finished()}
            for one in self.corpus.findings():
                self.by_reason[one.signature].append(one)
        self.tasks = [
            task
            for onednn in ("0", "1")
            for task in self.divided(names, onednn, finished)
        ]
        self.tasks.reverse()  # Taken from the end.

    def divided(
        self,
        names: list[str],
        onednn: str,
        finished: set[tuple[Any, ...]],
    ) -> list[Task]:
        by_range: dict[tuple[int, int], list[str]] = defaultdict(list)
        for name in names:
            for first, last in self.parts(name in self.replaced, onednn):
                key = (name, self.options.side, self.options.seed, onednn, first, last)
                if key not in finished:
                    by_range[first, last].append(name)
        found = []
        for (first, last), group in by_range.items():
            count = max(1, CALLS // (last - first))
            found += [
                Task(tuple(group[at : at + count]), onednn, first, last)
                for at in range(0, len(group), count)
            ]
        return found

    def parts(self, is_replaced: bool, onednn: str) -> Iterator[tuple[int, int]]:
        """The numbers of an op's calls, divided between processes.

        Some ops leave memory behind at each call.
        """
        first, last = self.part(is_replaced, onednn)
        for begin in range(first, last, CALLS):
            yield begin, min(begin + CALLS, last)

    def part(self, is_replaced: bool, onednn: str) -> tuple[int, int]:
        """The numbers of an op's calls that are made with or without oneDNN."""
        calls, chosen = self.options.calls, self.options.onednn
        if chosen != "both":
            return (0, calls if chosen == {"0": "off", "1": "on"}[onednn] else 0)
        middle = math.ceil(calls * WITHOUT_ONEDNN) if is_replaced else calls
        return (0, middle) if onednn == "0" else (middle, calls)

    def work(self) -> None:
        workers: dict[str, LimitedWorker] = {}
        try:
            while (task := self.next()) is not None:
                self.calls_of(workers, task)
        except BaseException as error:
            self.failures.append(error)
        finally:
            for worker in workers.values():
                worker.close()

    def worker(self, workers: dict[str, LimitedWorker], onednn: str) -> LimitedWorker:
        """The worker of a thread with or without oneDNN."""
        if onednn not in workers:
            if onednn == "0" and self.idle:
                workers[onednn] = self.idle.pop()
            else:
                workers[onednn] = LimitedWorker(onednn)
                self.workers.append(workers[onednn])
        return workers[onednn]

    def next(self) -> Task | None:
        with self.lock:
            return None if self.over() or not self.tasks else self.tasks.pop()

    def calls_of(self, workers: dict[str, LimitedWorker], task: Task) -> None:
        """Makes the calls of a task, past those that end the process."""
        worker = self.worker(workers, task.onednn)
        index, number = 0, task.first
        done = partial(self.finish, task)
        while index < len(task.ops) and not self.over():
            command = {
                "ops": task.ops,
                "settings": asdict(self.settings),
                "side": self.options.side,
                "calls": [task.first, task.last],
                "at": [index, number],
                "muted": {name: self.muted(name) for name in task.ops},
                "modes": self.known_modes(task.ops),
                "seconds": min(self.end - time.monotonic(), 86_400),
            }
            ended = worker.obey(command, done)
            with self.lock:
                self.outcomes.update(ended.outcomes)
                self.modes |= {task.ops[one]: modes for one, modes in ended.modes}
            self.judge(workers, task, ended)
            if ended.place is None:
                return
            op = task.ops[ended.place.op]
            self.died(worker, task, op, ended)
            index, number = ended.place.op, ended.place.number + 1
            if ended.place.number == EXAMPLE or self.deaths[op] >= self.options.deaths:
                done(index)
                index, number = index + 1, task.first

    def known_modes(self, names: Iterable[str]) -> dict[str, list[list[str]]]:
        return {name: self.modes[name] for name in names if name in self.modes}

    def mute(self, op: str, keys: str, kind: str) -> None:
        """Notes the bends of a call that ended the process."""
        self.keys[op][keys] += MUTED if kind in (HANG, MEMORY) else 1
        self.periods[op, keys] = max(
            self.periods[op, keys], PERIOD.get(kind, PERIOD_OF_OTHERS)
        )

    def muted(self, name: str) -> list[tuple[list[str], int]]:
        """Bends of an op, and one in how many calls with them is made."""
        return [
            (keys.split(SEPARATOR), self.periods[name, keys])
            for keys, n in self.keys[name].items()
            if n >= MUTED
        ]

    def finish(self, task: Task, index: int) -> None:
        self.corpus.finish(
            {
                "op": task.ops[index],
                "side": self.options.side,
                "seed": self.options.seed,
                "onednn": task.onednn,
                "first": task.first,
                "last": task.last,
            }
        )

    def died(self, worker: LimitedWorker, task: Task, op: str, ended: Ended) -> None:
        """Keeps a call that ended the process, if its reason is a new one."""
        assert ended.place is not None
        said = signature(op, ended.kind, ended.words)
        with self.lock:
            self.outcomes[ended.kind] += 1
            self.deaths[op] += 1
            if ended.keys:
                self.mute(op, ended.keys, ended.kind)
            self.tried[f"{said} {ended.keys}"] += 1
            places = {part.split(" ")[0] for part in ended.keys.split(SEPARATOR)}
            for had in self.by_reason[said]:
                # Its bends alone may have done it.
                if had.places <= places and (had.confirmed or ended.kind == HANG):
                    had.times += 1
                    return
            if self.tried[f"{said} {ended.keys}"] > TRIED:
                return
        number = ended.place.number
        found = Found(
            op,
            ended.kind,
            ended.words,
            self.options.side,
            task.onednn,
            self.options.seed,
            number,
            confirmed=False,
            code="",
            data={"op": op, "bends": [], "mode": "eager", "number": number},
        )
        if number != EXAMPLE:
            alone(worker, found, self.settings, self.modes.get(op))
            if found.confirmed and ended.kind in (HANG, MEMORY):
                keys = {f"{place} {kind}" for place, _, kind, _ in found.data["bends"]}
                self.mute(op, SEPARATOR.join(sorted(keys)), ended.kind)
        self.keep(found)

    def keep(self, found: Found) -> None:
        """Keeps a finding, unless there is one of the same reason and arguments."""
        with self.lock:
            several = self.by_reason[found.signature]
            for had in several:
                if had.places == found.places and had.confirmed >= found.confirmed:
                    had.times += 1
                    return
            several.append(found)
        self.corpus.keep(found)
        self.tell(found)

    def tell(self, found: Found) -> None:
        if not sys.stdout.isatty():
            message = " ".join(found.message.split())[:120]
            say(f"{found.op}, {found.kind}: {message}\n    {found.code[:300]}")

    def judge(
        self, workers: dict[str, LimitedWorker], task: Task, ended: Ended
    ) -> None:
        """Finds what opwright refuses and TensorFlow takes."""
        worker = workers[task.onednn]
        cases: list[Case] = []
        for index, number, words in ended.refused:
            case: Case = (task.ops[index], number, words)
            reason = reason_of(case)
            if is_named(task.ops[index], words):
                continue
            had = self.by_reason[reason]
            if self.refused_ends[reason] < ENOUGH_ENDS and (
                not had or had[0].times < ENOUGH
            ):
                cases.append(case)
        while cases and not self.over():
            command = {
                "judge": [case[:2] for case in cases],
                "modes": self.known_modes(op for op, *_ in cases),
                "settings": asdict(self.settings),
            }
            judged = worker.obey(command)
            for place, data in judged.taken:
                if self.is_taken(workers, task, *cases[place][:2]):
                    self.refused(task, *cases[place], data)
            if judged.place is None:
                return
            self.refused_ends[reason_of(cases[judged.place.op])] += 1
            cases = [
                case
                for case in cases[judged.place.op + 1 :]
                if self.refused_ends[reason_of(case)] < ENOUGH_ENDS
            ]

    def is_taken(
        self, workers: dict[str, LimitedWorker], task: Task, op: str, number: int
    ) -> bool:
        """Whether TensorFlow takes a call also in the other setting of oneDNN.

        A call that ends the process in one of them is refused in both.
        """
        if op not in self.replaced:
            return True
        command = {
            "judge": [(op, number)],
            "modes": self.known_modes([op]),
            "settings": asdict(self.settings),
        }
        other = self.worker(workers, "0" if task.onednn == "1" else "1")
        return bool(other.obey(command).taken)

    def refused(
        self, task: Task, op: str, number: int, words: str, data: dict[str, Any]
    ) -> None:
        said = signature(op, REFUSED, words)
        with self.lock:
            self.outcomes[REFUSED] += 1
            if had := self.by_reason[said]:
                had[0].times += 1
                return
            found = Found(
                op,
                REFUSED,
                words,
                self.options.side,
                task.onednn,
                self.options.seed,
                number,
                confirmed=True,
                code=data["code"],
                data=data,
            )
            self.by_reason[said].append(found)
        self.corpus.keep(found)
        self.tell(found)


def alone(
    worker: LimitedWorker,
    found: Found,
    settings: Settings,
    modes: list[list[str]] | None,
) -> None:
    """Tries a call alone, with fewer bends, and eagerly."""

    def again(data: dict[str, Any]) -> bool:
        """Whether a call ends the process for the same reason."""
        command = {
            "replay": data,
            "settings": asdict(settings),
            "side": found.side,
            "modes": modes,
        }
        ended = worker.obey(command)
        if ended.shown is None:
            return False
        if not found.code:
            found.data, found.code = ended.shown, ended.shown["code"]
        if ended.place is None:
            return False
        if signature(found.op, ended.kind, ended.words) != found.signature:
            return False
        found.data, found.code = ended.shown, ended.shown["code"]
        return True

    found.confirmed = again({"op": found.op, "number": found.number})
    if not found.confirmed:
        return
    if found.data["mode"] != "eager":
        again({**found.data, "mode": "eager"})
    # The bends stand in the place of a scenario's calls.
    plain: Plain = {"calls": [{"bend": one} for one in found.data["bends"]]}
    data = dict(found.data)

    def fails(smaller: Plain) -> bool:
        return again({**data, "bends": [one["bend"] for one in smaller["calls"]]})

    reduced(plain, fails, REDUCED)


def replay(options: argparse.Namespace) -> int:
    """Makes the calls of a file of findings again; how many end the process."""
    workers: dict[str, LimitedWorker] = {}
    count = 0
    try:
        for one in (Found(**line) for line in lines(options.replay)):
            if one.onednn not in workers:
                workers[one.onednn] = LimitedWorker(one.onednn)
            if "code" not in one.data:
                continue
            command = {"replay": one.data, "side": options.side}
            ended = workers[one.onednn].obey(command)
            count += ended.place is not None
            told = " ".join((ended.told or "taken").split())[:150]
            outcome = told if ended.place is None else f"ended, {ended.kind}"
            say(f"{one.op}, {one.kind}: {outcome}")
    finally:
        for worker in workers.values():
            worker.close()
    say(f"{count} end the process")
    return 1 if count else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz.ops", description=__doc__)
    add = parser.add_argument
    add("--calls", type=int, default=100, help="of each op")
    add("--seed", type=int, default=0)
    add("--jobs", type=int, default=2, help="processes at once")
    add("--ops", type=lambda text: text.split(","), help="these alone: A,B")
    add("--minutes", type=float, default=0, help="stop after so many")
    add("--side", choices=("raw", "opwright"), default="opwright")
    add("--onednn", choices=("both", "on", "off"), default="both")
    add("--graphs", type=float, default=Settings.graphs, help="the part in functions")
    add("--kinds", type=lambda text: text.split(","), default=[], help="of bends: A,B")
    add("--deaths", type=int, default=40, help="of an op, after which it is left alone")
    add("--corpus", type=Path, help="a folder for the findings")
    add("--resume", action="store_true", help="leave out what the corpus has")
    add("--summary", type=Path, help="a Markdown file for the findings")
    add("--replay", type=Path, help="make the calls of a findings.jsonl again")
    options = parser.parse_args(arguments)
    if options.resume and options.corpus is None:
        parser.error("--resume needs --corpus")
    return options


def run(options: argparse.Namespace) -> Run:
    """Makes the calls.

    Raises:
        RuntimeError: a worker failed for a reason of its own.
    """
    made = Run(options)
    made.prepare()
    threads = [threading.Thread(target=made.work) for _ in range(options.jobs)]
    total = sum(len(one.ops) * (one.last - one.first) for one in made.tasks)
    with show_progress(total, lambda: made.made):
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            made.end = 0.0
            for thread in threads:
                thread.join()
    for worker in made.idle:
        worker.close()
    for failure in made.failures:
        raise failure
    return made


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.replay is not None:
        return replay(options)
    made = run(options)
    found = made.found
    show(found, made.outcomes, time.monotonic() - made.began)
    for reason, count in Counter(made.left_out.values()).items():
        say(f"{count} ops are left out: {reason}")
    if options.summary is not None:
        about = (
            f"Side {options.side}, seed {options.seed}, {options.calls} calls an op."
        )
        options.summary.write_text(summary(found, made.outcomes, about), "utf-8")
    ended = {one.op for one in found if one.group == "crash"}
    if ended:
        say(f"ops that end the process: {', '.join(sorted(ended))}")
    refused = sum(one.group == REFUSED for one in found)
    return 1 if ended or refused else 0


if __name__ == "__main__":
    sys.exit(main())
