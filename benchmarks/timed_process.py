"""A process whose work another one times: it answers each line that it is sent."""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

#: Seconds for an answer, before a process counts as stuck.
TIMEOUT = 600.0


class TimedProcess:
    """A script that answers each line of its input with one line, in order.

    After an answer it is stopped until the next line, because threads may spin on a
    core for some time after their work, and others are timed then.

    Args:
        name: what errors call it.
        arguments: the script and its arguments.
        environment: variables to set.
        quiet: whether what it writes to stderr is left out.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            env={**os.environ, **(environment or {})},
            text=True,
        )
        # An error in this process may leave that one stopped.
        atexit.register(self.process.kill)

    def ask(self, line: str) -> str:
        """Sends a line, and waits for the answer."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        print(line, file=self.process.stdin, flush=True)
        answered = self.answer()
        self.process.send_signal(signal.SIGSTOP)
        return answered

    def answer(self) -> str:
        """Waits for a line.

        Raises:
            RuntimeError: the process has ended, or takes longer than TIMEOUT.
        """
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], TIMEOUT)[0]:
            self.process.kill()
            raise RuntimeError(f"{self.name} gives no answer in {TIMEOUT:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended with {self.process.wait()}")
        return line.strip()

    def end(self) -> None:
        """Closes its input, at whose end it ends, and waits for that."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
