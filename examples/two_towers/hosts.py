"""The hosts of a training on this machine: its program in several processes."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from aggregation.cluster import free_ports

PROGRAM = Path(__file__).parents[1] / "two_tower.py"


class Hosts:
    """Processes of one cluster, which say on their output how far they are.

    What else they have to say lies in `host_0.log` and so on, in the folder.
    """

    def __init__(self, folder: Path, count: int) -> None:
        cluster = ",".join(f"localhost:{port}" for port in free_ports(count))
        self._lines: queue.Queue[tuple[int, str]] = queue.Queue()
        self._processes = []
        for host in range(count):
            options = [
                "--folder",
                str(folder),
                "--host",
                str(host),
                "--cluster",
                cluster,
            ]
            with (folder / f"host_{host}.log").open("w") as log:
                process = subprocess.Popen(
                    [sys.executable, str(PROGRAM), *options],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            self._processes.append(process)
            threading.Thread(
                target=self._read, args=(host, process), daemon=True
            ).start()

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def said(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What a host said of itself, as it comes, until all have ended."""
        running = len(self._processes)
        while running:
            host, line = self._lines.get()
            if not line:
                running -= 1
            elif line.startswith("{"):
                yield host, json.loads(line)

    def ended(self) -> dict[int, int]:
        """How each ended, once all have."""
        return {host: one.wait() for host, one in enumerate(self._processes)}

    def _read(self, host: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put((host, line))
        self._lines.put((host, ""))
