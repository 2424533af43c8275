"""A worker process as its supervisor sees it: commands, reports, a limit to silence."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.usage import running_time, waiting_time

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SOURCES = ("generated", "runtime", "codegen")
# A call that takes longer waits for ever; one that is at work, four times as long. XLA
# takes its time.
TIMEOUT = {"eager": 15.0, "graph": 15.0, "saved": 20.0, "compiled": 120.0, "bent": 10}
# What ends the process, waits for others, prints or needs a device, by design.
LEFT_OUT = frozenset(
    {
        "Abort",
        "Barrier",
        "CollectiveReduceV2",
        "ConfigureDistributedTPU",
        "DebugGradient",
    }
    | {"FIFOQueueV2", "Print", "PrintV2", "QueueDequeueV2", "StagePeek", "Unstage"}
)
# Libraries for the workers alone, of the sanitizers that a library was built with.
PRELOAD = ":".join(os.environ.get("FUZZ_PRELOAD", "").split())
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:handle_segv=1:handle_abort=1:"
    "allocator_may_return_null=1:max_allocation_size_mb=4096:detect_odr_violation=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:abort_on_error=1",
}

# ASan's operator new ends the process where another one throws.
NO_MEMORY = re.compile("AddressSanitizer: (allocator is out|requested allocation size)")


@dataclass
class Finding:
    seed: int
    call: int
    op: str
    way: str
    kind: str
    words: str

    @property
    def signature(self) -> str:
        """The same for findings that are one."""
        words = re.sub(r"[-+]?[0-9][0-9a-fx.e+]*", "#", self.words)
        words = re.sub(r"\[[^\]]*\]", "[]", words)
        return f"{self.op}: {self.kind}: {words[:90]}"


@dataclass
class Ended:
    """The outcome of a command."""

    findings: list[Finding] = field(default_factory=list)
    begun: int = 0  # Scenarios.
    died_at: int | None = None  # The scenario that ended the process.
    shown: dict[str, Any] | None = None


Seen = Callable[[str, str, str, str], None]  # Of a call: op, way, goodness, outcome.


class Worker:
    def __init__(self, module: str = "fuzz.worker", **changes: str) -> None:
        reader, writer = os.pipe()
        self.reader = reader
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        memory = Path("/dev/shm")
        self.folder = tempfile.TemporaryDirectory(
            prefix="fuzz", dir=memory if memory.is_dir() else None
        )
        path = [str(TESTS), *(str(ROOT / one) for one in SOURCES)]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]),
            "PYTHONHASHSEED": "0",
            # Otherwise an allocation that fails is tried again for ten seconds.
            "TF_ENABLE_ONEDNN_OPTS": "0",
            # Less than the oracle of memory allows: what is kept beyond it is found.
            "OPWRIGHT_WEIGHT_CACHE_BYTES": str(64 << 20),
            **changes,
        }
        if PRELOAD:
            env |= {"LD_PRELOAD": PRELOAD, **SANITIZERS}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            pass_fds=[writer],
            env=env,
            text=True,
        )
        os.close(writer)
        self.buffer = b""

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()
        os.close(self.reader)
        self.folder.cleanup()

    def line(self, seconds: float) -> str | None:
        """The next report; None if there is none for so long."""
        while b"\n" not in self.buffer:
            if not select.select([self.reader], [], [], seconds)[0]:
                return None
            data = os.read(self.reader, 1 << 16)
            if not data:
                raise RuntimeError(f"the worker ended: {self.last_words()}")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode(errors="replace")

    def last_words(self) -> str:
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 100_000))
        return self.errors.read().decode(errors="replace")

    def do(
        self,
        command: dict[str, Any],
        seen: Seen | None = None,
        found: Callable[[Finding], None] | None = None,
    ) -> Ended:
        assert self.process.stdin
        self.errors.seek(0)
        self.errors.truncate()
        self.process.stdin.write(
            json.dumps(command | {"folder": self.folder.name}) + "\n"
        )
        self.process.stdin.flush()
        ended = Ended()
        pid, seed, hung = 0, -1, False
        at: tuple[int, str, str, str] | None = None
        timeout, quiet, before = 120.0, 0, 0.0
        while True:
            line = self.line(timeout)
            if line is None:
                quiet += 1
                worked = processor_time(pid) - before
                if not hung and quiet < 4 and worked > quiet * timeout / 3:
                    continue
                hung = True
                os.kill(pid, signal.SIGKILL)
                continue
            kind, _, rest = line.partition(" ")
            if kind == "p":
                pid = int(rest)
            elif kind == "s":
                seed, at = int(rest), None
                ended.begun += 1
            elif kind == "c":
                i, op, way, good = rest.split()
                at = (int(i), op, way, good)
                timeout = TIMEOUT[way] * (8 if PRELOAD else 1)
                quiet, before = 0, processor_time(pid)
            elif kind == "f":
                assert at
                i, what, words = json.loads(rest)
                ended.findings.append(Finding(seed, i, at[1], at[2], what, words))
                if found:
                    found(ended.findings[-1])
            elif kind == "r":
                assert at
                if seen:
                    seen(at[1], at[2], at[3], rest)
            elif kind == "d":
                at, timeout = None, 120.0
            elif kind == "j":
                ended.shown = json.loads(rest)
            elif kind == "x":
                raise RuntimeError(f"seed {seed}, {at}: {json.loads(rest)}")
            elif kind == "e":
                status = int(rest)
                if status or hung or at is not None:
                    if at is None:
                        at = (-1, "between calls", "eager", "good")
                    kind = "hang" if hung else death(status)
                    words = "" if hung else cause(self.last_words())
                    ended.died_at = seed
                    if NO_MEMORY.search(words):
                        return ended
                    ended.findings.append(Finding(seed, *at[:3], kind, words))
                    if found:
                        found(ended.findings[-1])
                return ended


def processor_time(pid: int) -> float:
    """Seconds that a process has had of processors; 0 if it is gone.

    What its main thread waits for a processor counts too: on a busy machine a process
    at work has little of one.
    """
    return running_time(pid) + waiting_time(pid)


def death(status: int) -> str:
    if status >= 0:
        return f"exit {status}"
    return signal.Signals(-status).name


def cause(text: str) -> str:
    """The line with the reason, in the output of a process that died."""
    patterns = (
        r"^.*runtime error: .*$",
        r"^.*ERROR: AddressSanitizer: .*$",
        r"^.*Check failed: .*$",
        r"^F[0-9]{4} .*$",
        # The reason is on the third line.
        r"^Assertion failure\n.*\n.*$",
        r"^\s*what\(\): .*$",
        r"^.*terminate called .*$",
        r"^(?:free|malloc|munmap_chunk|double free|corrupted).*$",
    )
    for pattern in patterns:
        found = re.findall(pattern, text, re.MULTILINE)
        if found:
            line = re.sub(r"^[FEWI]0[^\]]*\] ", "", found[-1].strip())
            frame = re.search(r"#\d+ 0x\w+ in (opwright::[^\n]*)", text)
            return line[:500] + (f" in {frame[1][:200]}" if frame else "")
    return ""
