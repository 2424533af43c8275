"""Processes of a cluster on this machine: started, heard, and never left behind."""

from __future__ import annotations

import os
import queue
import random
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType

from typing_extensions import Self

from aggregation.journal import Event, Started, loads

_LOG_END = 4000
_ENVIRONMENT = {
    # Each process would reserve all the memory of the GPU.
    "CUDA_VISIBLE_DEVICES": "-1",
    # Behind a proxy, gRPC would look for the neighbours there.
    "no_grpc_proxy": "127.0.0.1,localhost",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


class ClusterError(Exception):
    """A task failed or time ran out. The message has the end of the logs."""


class Cluster:
    """Running tasks, as a context that kills them all when it is left.

    Args:
        command: makes the command line of a task from its name.
        timeout: seconds for everything that the tasks do.
    """

    def __init__(self, command: Callable[[str], Sequence[str]], timeout: float) -> None:
        self._command = command
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._lines: queue.Queue[tuple[_Task, str | None]] = queue.Queue()
        self._tasks: dict[str, _Task] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks.values():
            task.kill()

    def start(self, name: str) -> Started:
        """Starts a task; one that was killed may be started anew."""
        task = self._tasks[name] = _Task(name, self._command(name), self._lines)
        return Started(name, task.process.pid)

    def kill(self, name: str) -> None:
        """Kills a task by SIGKILL, which leaves it no time to say goodbye."""
        self._tasks[name].kill()

    def events(self) -> Iterator[Event]:
        """What tasks report, as it comes, until all but the servers have ended.

        Raises:
            ClusterError: a task failed, or the time is over.
        """
        while any(task.awaited for task in self._tasks.values()):
            left = self._deadline - time.monotonic()
            try:
                task, line = self._lines.get(timeout=max(left, 0))
            except queue.Empty:
                running = [t for t in self._tasks.values() if t.process.poll() is None]
                raise ClusterError(
                    f"not finished within {self._timeout:g} seconds" + _logs(running)
                ) from None
            if line is not None:
                yield loads(line)
            elif task.killed or task.process.returncode == 0:
                task.awaited = False
            else:
                raise self._failure()

    def _failure(self) -> ClusterError:
        # One failure brings others about, and which is heard of first is chance.
        time.sleep(0.5)
        failed = [t for t in self._tasks.values() if not t.killed and t.process.poll()]
        statuses = (
            f"{t.name} ended with status {t.process.returncode}" for t in failed
        )
        return ClusterError(", ".join(statuses) + _logs(failed))


def end_with_launcher() -> None:
    """Ends this process, a task, when its standard input does.

    That is the launcher's end of a pipe. It closes however the launcher ends, so that
    no task is left behind.
    """

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nothing listens on.

    They lie below those that systems give to outgoing connections, so that no such
    connection takes one before its server starts.
    """
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise ClusterError(f"found no {count} free ports")


class _Task:
    """A process. Each line that it prints, and None at its end, goes to `lines`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        lines: queue.Queue[tuple[_Task, str | None]],
    ) -> None:
        self.name = name
        self.killed = False
        self.awaited = not name.startswith("ps")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the task
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **_ENVIRONMENT},
            # Ctrl-C is for the launcher, which ends the others.
            start_new_session=True,
        )
        self._listener = threading.Thread(
            target=self._listen, args=[lines], daemon=True
        )
        self._listener.start()

    def kill(self) -> None:
        self.killed = True
        self.process.kill()
        self.process.wait()
        self._listener.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self._log.close()

    def log_end(self) -> str:
        # The task writes through the same file offset, so leave that alone.
        start = max(os.fstat(self._log.fileno()).st_size - _LOG_END, 0)
        return os.pread(self._log.fileno(), _LOG_END, start).decode(errors="replace")

    def _listen(self, lines: queue.Queue[tuple[_Task, str | None]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # a killed process may leave half of one
                lines.put((self, line))
        self.process.wait()
        lines.put((self, None))


def _logs(tasks: Iterable[_Task]) -> str:
    ends = ((task.name, task.log_end().strip()) for task in tasks)
    return "".join(f"\n\n--- log of {name} ---\n{end}" for name, end in ends if end)
