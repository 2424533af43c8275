"""Where a program with a library runs: on one core, on several, on several hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embedding.support.hosts import fork, wait
from opwright import tpu


def at_place(
    place: str, folder: str, program: Callable[[str, Callable[[], Any]], Any]
) -> None:
    """Prints what program(folder, make_strategy) returns, as JSON.

    Args:
        place: such as "4 cores" or "2 hosts"; of hosts it is a list of what each found,
            who has a folder of its own.
    """
    number, kind = place.split()
    if kind == "cores":
        found = program(folder, lambda: tpu.software_strategy(cores=int(number)))
        print(json.dumps(found))
        return

    def body(host: int, resolver: Any) -> None:
        own = Path(folder, f"host{host}")
        own.mkdir()
        # A timeout that holds on a machine busy with other tests.
        found = program(str(own), lambda: tpu.software_strategy(resolver, timeout=300))
        Path(own, "found.json").write_text(json.dumps(found), "utf-8")

    codes = wait(fork(int(number), body), 600)
    if any(codes):
        raise SystemExit(f"hosts ended with {codes}")
    told = [Path(folder, f"host{host}", "found.json") for host in range(int(number))]
    print(json.dumps([json.loads(path.read_text("utf-8")) for path in told]))
