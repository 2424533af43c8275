"""What the processes report, and the check that their reports add up.

Reports are lines of JSON: a task writes them to its standard output, the launcher
collects them in the order in which they arrive.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TypeAlias, get_args

import numpy as np

from aggregation import problem


@dataclass(frozen=True)
class Started:
    """The launcher started a task."""

    task: str
    pid: int


@dataclass(frozen=True)
class Ready:
    """A worker is connected and waits for its first token."""

    worker: int


@dataclass(frozen=True)
class Sending:
    """A worker is about to send its gradient of a step.

    Reported before it is sent: when the worker is killed in between, a gradient is
    reported that never arrived, but none ever arrives that was not reported.
    """

    worker: int
    step: int


@dataclass(frozen=True)
class Update:
    """The parameter server took gradients and updated the weights.

    Attributes:
        step: the step that this update completes.
        counts: for each worker, how many of its gradients are in the mean.
        weights: the weights after the update.
    """

    step: int
    counts: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Killed:
    """The launcher killed a worker."""

    worker: int


@dataclass(frozen=True)
class Done:
    """All steps are made.

    Attributes:
        pending: gradients in the accumulator that no update used.
    """

    pending: int


Event: TypeAlias = Started | Ready | Sending | Update | Killed | Done

_KINDS = {kind.__name__: kind for kind in get_args(Event)}


def dumps(event: Event) -> str:
    """The event as a line of JSON."""
    return json.dumps({"event": type(event).__name__, **asdict(event)})


def loads(line: str) -> Event:
    """The event in a line of JSON."""
    fields = json.loads(line)
    event: Event = _KINDS[fields.pop("event")](**fields)
    return event


class VerificationError(Exception):
    """A run did not do what synchronous training has to do."""


def verify(
    events: Iterable[Event], *, steps: int, required: int, learning_rate: float
) -> float:
    """Checks that no update was lost, made twice, or made of the wrong gradients.

    The weights are computed anew in NumPy, step by step, from nothing but the numbers
    of the workers that took part. Every update must have led to the same weights.

    Args:
        events: reports of the whole run.
        steps: number of updates that the run was to make.
        required: least number of gradients in an update.
        learning_rate: factor of the mean gradient.

    Returns:
        The greatest difference of any weight after any update.

    Raises:
        VerificationError: the reports contradict each other or the recomputation.
    """
    events = list(events)
    updates = [event for event in events if isinstance(event, Update)]
    made = [update.step for update in updates]
    if made != list(range(steps)):
        raise VerificationError(f"{steps} steps were due, made were {made}")
    if (pending := [e.pending for e in events if isinstance(e, Done)]) != [0]:
        raise VerificationError(f"gradients left in the accumulator: {pending}")

    sent = Counter((e.worker, e.step) for e in events if isinstance(e, Sending))
    for (worker, step), count in sent.items():
        if count != 1:
            raise VerificationError(
                f"worker {worker} sent {count} gradients for step {step}"
            )

    weights = np.zeros(problem.FEATURES)
    greatest = 0.0
    for update in updates:
        step = update.step
        for worker, count in enumerate(update.counts):
            if count not in (0, 1):
                raise VerificationError(
                    f"step {step} counted worker {worker} {count} times"
                )
            if count and not sent[worker, step]:
                raise VerificationError(
                    f"step {step} counted worker {worker}, which sent nothing for it"
                )
        workers = [worker for worker, count in enumerate(update.counts) if count]
        if len(workers) < required:
            raise VerificationError(
                f"step {step} averaged {len(workers)} gradients, not {required}"
            )
        gradients = [problem.gradient(weights, worker, step) for worker in workers]
        weights = weights - learning_rate * np.mean(gradients, axis=0)
        difference = float(np.max(np.abs(weights - update.weights)))
        # Weights are about 1 and float32. A gradient too many or too few moves them by
        # far more, as the noise in the targets keeps gradients away from zero.
        if not difference < 1e-5:
            raise VerificationError(
                f"after step {step} the weights are off by {difference:.1e}"
            )
        greatest = max(greatest, difference)
    return greatest
