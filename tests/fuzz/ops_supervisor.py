"""A worker process with limits on the time and the memory of a call."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.usage import resident, waiting_time

from .ops_state import Place, State
from .progress import say
from .supervisor import Worker, cause, death

# Seconds of a call. With oneDNN, TensorFlow tries an allocation again for ten.
SECONDS = {"0": 10.0, "1": 13.0}
# Resident memory of a process, in bytes.
MEMORY = 3 << 30
# What a result may take of it. opwright refuses a larger one. A kernel draws random
# numbers for it in less than the seconds of a call.
RESULT = 1 << 27
# Seconds between looks at a process.
PERIOD = 0.03
# Seconds without a look, after which both processes were stopped.
STOPPED = 2.0
# Seconds for what is no call, such as the start of a process.
START = 300.0


@dataclass
class Ended:
    """The outcome of a command.

    Attributes:
        place: the call that ended the process; None if none did.
        kind: how it did: the name of a signal, "hang" or "memory".
        words: the message that TensorFlow left.
        keys: by which bends the call was made.
    """

    place: Place | None = None
    kind: str = ""
    words: str = ""
    keys: str = ""
    outcomes: dict[str, int] = field(default_factory=dict)
    shown: dict[str, Any] | None = None
    refused: list[tuple[int, int, str]] = field(default_factory=list)
    taken: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    told: str | None = None
    modes: list[tuple[int, list[list[str]]]] = field(default_factory=list)


class LimitedWorker(Worker):
    """Forks a process for each command, and ends it where a call goes too far."""

    def __init__(self, onednn: str) -> None:
        super().__init__(
            "fuzz.ops_worker",
            TF_ENABLE_ONEDNN_OPTS=onednn,
            OPWRIGHT_MAX_OUTPUT_BYTES=str(RESULT),
        )
        self.seconds = SECONDS[onednn]
        self.path = Path(self.folder.name, "state")
        self.state = State(self.path)

    def obey(
        self, command: dict[str, Any], done: Callable[[int], None] | None = None
    ) -> Ended:
        """Has a process do something.

        Args:
            done: called with the index of each op whose calls are made.
        """
        with tempfile.TemporaryDirectory(dir=self.folder.name) as files:
            return self.obeyed(command | {"folder": files}, done)

    def obeyed(
        self, command: dict[str, Any], done: Callable[[int], None] | None
    ) -> Ended:
        assert self.process.stdin
        self.errors.seek(0)
        self.errors.truncate()
        self.state.clear()
        sent = command | {"state": str(self.path)}
        self.process.stdin.write(json.dumps(sent) + "\n")
        self.process.stdin.flush()
        ended = Ended()
        watch = Watch(self.state, self.seconds)
        while True:
            line = self.line(PERIOD)
            if line is None:
                watch.look()
                continue
            kind, _, rest = line.partition(" ")
            if kind == "p":
                watch.pid = int(rest)
            elif kind == "o" and done:
                done(int(rest))
            elif kind == "m":
                ended.modes.append(json.loads(rest))
            elif kind == "w":
                say(f"not drawn: {json.loads(rest)}")
            elif kind == "q":
                ended.refused.append(json.loads(rest))
            elif kind == "a":
                ended.taken.append(json.loads(rest))
            elif kind == "j":
                ended.shown = json.loads(rest)
            elif kind == "t":
                ended.told = json.loads(rest)
            elif kind == "x":
                raise RuntimeError(f"{self.state.place}: {json.loads(rest)}")
            elif kind == "e":
                ended.outcomes = self.state.outcomes
                place, keys = self.state.place, self.state.keys
                self.state.clear()
                if int(rest):
                    ended.place, ended.keys = place, keys
                    ended.kind = watch.kind or death(int(rest))
                    ended.words = "" if watch.kind else cause(self.last_words())
                return ended


class Watch:
    """Looks at a process from time to time, and ends it beyond the limits."""

    def __init__(self, state: State, seconds: float) -> None:
        self.state = state
        self.seconds = seconds
        self.pid = 0
        self.kind = ""
        self.seen: Place | None = None
        self.since = self.looked = time.monotonic()
        self.waited = 0.0
        self.own = waiting_time("thread-self")

    def look(self) -> None:
        if not self.pid or self.kind:
            return
        place, now = self.state.place, time.monotonic()
        if place != self.seen:
            self.seen, self.since = place, now
            self.waited = waiting_time(self.pid)
        self.leave_out_stops(now)
        # On a busy machine, a process waits for a processor for long.
        spent = now - self.since - (waiting_time(self.pid) - self.waited)
        if spent > (self.seconds if place.started else START):
            self.end("hang")
        elif resident(self.pid) > MEMORY:
            self.end("memory")

    def leave_out_stops(self, now: float) -> None:
        """Counts no time in which this process was stopped, and with it the other."""
        own = waiting_time("thread-self")
        stopped = now - self.looked - (own - self.own)
        if stopped > STOPPED:
            self.since += stopped
        self.looked, self.own = now, own

    def end(self, kind: str) -> None:
        self.kind = kind
        with suppress(ProcessLookupError):  # It has ended by itself.
            os.kill(self.pid, signal.SIGKILL)
