"""Synchronous training over several processes, with one of them killed on the way.

A parameter server and some workers run as processes of TensorFlow's own distributed
runtime. In each step the server averages the gradients of the fastest workers, by the
resource accumulators through opwright's classes; those of the others come too late and
are dropped. Meanwhile one worker is killed and started anew. In the end the weights
after every single step are computed once more in NumPy, and have to be the same.

This file starts the processes, kills one, and checks what came out. What the processes
do, and why it is exact, is in aggregation/tasks.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from aggregation.cluster import Cluster, ClusterError, end_with_launcher, free_ports
from aggregation.dashboard import Dashboard
from aggregation.journal import (
    Event,
    Killed,
    Update,
    VerificationError,
    dumps,
    verify,
)
from rich.console import Console
from rich.live import Live


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.task:
        return run_task(options)
    console = Console()
    try:
        return train(options, arguments, console)
    except (ClusterError, VerificationError) as error:
        console.print("\nfailed:", style="bold red")
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("\ninterrupted", style="bold red")
        return 130


def train(
    options: argparse.Namespace, arguments: Sequence[str], console: Console
) -> int:
    """Runs a whole training; returns the exit status."""
    ports = iter(free_ports(1 + options.workers))
    addresses = {
        "ps": [f"127.0.0.1:{next(ports)}"],
        "worker": [f"127.0.0.1:{port}" for port in ports],
    }

    def command(task: str) -> list[str]:
        place = ["--task", task, "--cluster", json.dumps(addresses)]
        return [sys.executable, __file__, *arguments, *place]

    events: list[Event] = []
    dashboard = Dashboard(options.workers, options.steps)
    victim = options.workers - 1
    with ExitStack() as stack:
        journal = None
        if options.journal:
            journal = stack.enter_context(options.journal.open("w"))
        stack.enter_context(Live(dashboard, console=console))

        def record(event: Event) -> None:
            events.append(event)
            dashboard.show(event)
            if journal:
                print(dumps(event), file=journal, flush=True)

        cluster = stack.enter_context(Cluster(command, options.timeout))
        record(cluster.start("ps:0"))
        for worker in range(options.workers):
            record(cluster.start(f"worker:{worker}"))
        for event in cluster.events():
            record(event)
            if isinstance(event, Update) and event.step == options.kill_at:
                cluster.kill(f"worker:{victim}")
                record(Killed(victim))
                if options.restart:
                    record(cluster.start(f"worker:{victim}"))

    difference = verify(
        events,
        steps=options.steps,
        required=options.required,
        learning_rate=options.learning_rate,
    )
    console.print("\nverified:", style="bold green", end=" ")
    console.print(
        f"{options.steps} updates; no gradient counted twice; weights after each "
        f"differ from NumPy's by at most {difference:.0e}",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def run_task(options: argparse.Namespace) -> int:
    """Runs one process of the cluster."""
    end_with_launcher()
    # Only here: importing TensorFlow takes seconds, which the launcher can do without.
    from aggregation import tasks

    job, _, index = options.task.partition(":")
    if job == "ps":
        tasks.run_server(
            options.cluster,
            steps=options.steps,
            required=options.required,
            learning_rate=options.learning_rate,
        )
    else:
        tasks.run_worker(options.cluster, int(index), seconds=options.compute)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Synchronous training over several processes, one of which is "
        "killed on the way. Checks every update in NumPy."
    )
    add = parser.add_argument
    add("--workers", type=int, default=3, help="worker processes (default: 3)")
    add(
        "--required",
        type=int,
        help="gradients in an update (default: one less than workers)",
    )
    add("--steps", type=int, default=200, help="updates to make (default: 200)")
    add("--learning-rate", type=float, default=0.05, help="default: 0.05")
    add(
        "--compute",
        type=float,
        default=0.05,
        metavar="SECONDS",
        help="time that a worker takes for a gradient, on average (default: 0.05)",
    )
    kill = parser.add_mutually_exclusive_group()
    kill.add_argument(
        "--kill-at",
        type=int,
        metavar="STEP",
        help="kill the last worker after this step (default: a third of the way)",
    )
    kill.add_argument("--no-kill", action="store_true", help="let all workers live")
    add(
        "--restart",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="start the killed worker anew (default: yes)",
    )
    add(
        "--timeout",
        type=float,
        default=120,
        metavar="SECONDS",
        help="give up after this time (default: 120)",
    )
    add(
        "--journal",
        type=Path,
        metavar="FILE",
        help="write what happened, as JSON lines",
    )
    task = parser.add_argument_group("for the processes that it starts itself")
    task.add_argument("--task", metavar="JOB:INDEX", help="be this task of the cluster")
    task.add_argument("--cluster", type=json.loads, help="addresses by job, as JSON")

    options = parser.parse_args(arguments)
    if options.required is None:
        options.required = max(options.workers - 1, 1)
    if options.no_kill:
        options.kill_at = None
    elif options.kill_at is None:
        options.kill_at = options.steps // 3
    elif not 0 <= options.kill_at < options.steps:
        parser.error("--kill-at: there is no such step")
    if not 0 < options.learning_rate <= 0.5:
        parser.error("--learning-rate: above 0, and at most 0.5 or it diverges")
    if options.steps < 1:
        parser.error("--steps: at least 1")
    if not 1 <= options.required <= options.workers:
        parser.error("--required: from 1 to the number of workers")
    if options.kill_at is not None and options.required == options.workers:
        parser.error(
            "--required: must be less than --workers to outlive the kill; the step in "
            "which a worker dies has to do without its gradient"
        )
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
