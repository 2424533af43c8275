"""A live view of a run: progress, loss, and what became of each worker's gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from aggregation import problem
from aggregation.journal import Done, Event, Killed, Ready, Sending, Started, Update

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 45


@dataclass
class _Worker:
    state: str = "starting"
    kills: int = 0
    sent: set[int] = field(default_factory=set)
    accepted: set[int] = field(default_factory=set)


class Dashboard:
    """Draws what the events that it is shown amount to.

    Attributes:
        losses: loss before the first update and after each one.
    """

    def __init__(self, workers: int, steps: int) -> None:
        self.losses = [problem.loss(np.zeros(problem.FEATURES))]
        self._workers = [_Worker() for _ in range(workers)]
        self._done = False
        self._progress = Progress(
            "step", BarColumn(_WIDTH), MofNCompleteColumn(), TimeElapsedColumn()
        )
        self._bar = self._progress.add_task("", total=steps)

    def show(self, event: Event) -> None:
        """Takes note of an event."""
        match event:
            case Ready(number):
                self._workers[number].state = "running"
            case Sending(number, step):
                self._workers[number].sent.add(step)
            case Killed(number):
                self._workers[number].state = "killed"
                self._workers[number].kills += 1
            case Started(task) if task.startswith("worker"):
                worker = self._workers[int(task.partition(":")[2])]
                worker.state = "restarting" if worker.kills else "starting"
            case Update(step, counts, weights):
                self.losses.append(problem.loss(np.array(weights)))
                for worker, count in zip(self._workers, counts, strict=True):
                    if count:
                        worker.accepted.add(step)
                self._progress.update(self._bar, completed=step + 1)
            case Done():
                self._progress.stop_task(self._bar)
                self._done = True

    def __rich__(self) -> RenderableType:
        return Group(self._progress, self._loss(), self._table())

    def _loss(self) -> Text:
        return Text.assemble(
            "loss ",
            (sparkline(self.losses, _WIDTH), "cyan"),
            f" {self.losses[0]:.3f} → {self.losses[-1]:.4f}, log scale",
        )

    def _table(self) -> Table:
        table = Table("worker", "state")
        for heading in ("sent", "accepted", "dropped", "killed"):
            table.add_column(heading, justify="right")
        # A gradient of the step under way is neither accepted nor dropped yet.
        steps = range(len(self.losses) - 1)
        for number, worker in enumerate(self._workers):
            dropped = worker.sent.intersection(steps) - worker.accepted
            table.add_row(
                str(number),
                (
                    "finished"
                    if self._done and worker.state == "running"
                    else worker.state
                ),
                str(len(worker.sent)),
                str(len(worker.accepted)),
                str(len(dropped)),
                str(worker.kills),
                style="red" if worker.state == "killed" else "",
            )
        return table


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve of positive values in one line, on a logarithmic scale."""
    count = min(width, len(values))
    chosen = [
        math.log(values[(i + 1) * len(values) // count - 1]) for i in range(count)
    ]
    low, high = min(chosen), max(chosen)
    scale = (len(_BARS) - 1) / ((high - low) or 1.0)
    return "".join(_BARS[round((value - low) * scale)] for value in chosen)
