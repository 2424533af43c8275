"""Runs the steps of an upgrade that are not finished, and records those that are.

The record is a file, which is written after each step. A later run goes on from it. A
step is finished as long as the values that it was given and the files that it reads and
writes are the same.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, TypedDict, cast

from opwright_codegen import write

#: A function that shows a line of progress.
Show: TypeAlias = Callable[[str], None]

#: The layout of the record. A record of another layout counts as none.
_LAYOUT: Final = 1


@dataclass(frozen=True)
class Place:
    """Files that steps read or write: those below `root` that match a pattern."""

    name: str
    root: Path
    patterns: tuple[str, ...]

    def digest(self) -> str:
        """A digest of the names and contents of the files."""
        found = {path for one in self.patterns for path in self.root.glob(one)}
        total = hashlib.sha256()
        for path in sorted(found):
            if path.is_file():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                total.update(f"{path.relative_to(self.root)}\0{content}\0".encode())
        return total.hexdigest()


@dataclass(frozen=True)
class Result:
    """What a step did: `summary` in a clause, and lines for the report."""

    summary: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """A step of an upgrade.

    `name` is that in the record, `title` says what the step does. `given` has the
    values on which the result depends, beside the files.
    """

    name: str
    title: str
    run: Callable[[Show], Result] = lambda show: Result("")
    given: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[Place, ...] = ()
    writes: tuple[Place, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        return (*self.reads, *self.writes)


@dataclass(frozen=True)
class Done:
    """A finished step. `ran` is false if an earlier run finished it."""

    step: Step
    result: Result
    seconds: float
    ran: bool


class StepError(Exception):
    """A step failed. `reasons`: what happened and what to do, a line each."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = reasons
        super().__init__("\n".join(reasons))


class _Finished(TypedDict):
    """What the file has of a finished step."""

    given: dict[str, str]
    summary: str
    lines: list[str]
    seconds: float


class _Content(TypedDict, total=False):
    """The content of the file; empty if there is none of this layout."""

    layout: int
    places: dict[str, str]
    steps: dict[str, _Finished]


class Record:
    """The finished steps, in a file."""

    def __init__(self, path: Path, steps: Sequence[Step]) -> None:
        """Reads the file, and forgets each step whose input is another one now."""
        self.path = path
        self.steps = steps
        read = _read(path)
        self.finished = read.get("steps", {})
        self.places = {
            place.name: place.digest() for step in steps for place in step.places
        }
        before = read.get("places", {})
        changed = {name for name, now in self.places.items() if before.get(name) != now}
        for step in steps:
            kept = self.finished.get(step.name)
            if kept is not None and (
                kept["given"] != dict(step.given) or _uses(step, changed)
            ):
                del self.finished[step.name]

    def result(self, step: Step) -> tuple[Result, float] | None:
        """The result of a finished step and its seconds; None of another step."""
        kept = self.finished.get(step.name)
        if kept is None:
            return None
        return Result(kept["summary"], tuple(kept["lines"])), kept["seconds"]

    def finish(self, step: Step, result: Result, seconds: float) -> None:
        """Records that a step is finished.

        Later steps that use what it has changed count as not finished.
        """
        changed = set()
        for place in step.writes:
            now = place.digest()
            if self.places[place.name] != now:
                changed.add(place.name)
            self.places[place.name] = now
        for later in self.steps[self.steps.index(step) + 1 :]:
            if _uses(later, changed):
                self.finished.pop(later.name, None)
        self.finished[step.name] = {
            "given": dict(step.given),
            "summary": result.summary,
            "lines": list(result.lines),
            "seconds": round(seconds, 1),
        }
        self.save()

    def save(self) -> None:
        """Writes the file, completely or not at all."""
        content: _Content = {
            "layout": _LAYOUT,
            "places": self.places,
            "steps": self.finished,
        }
        write.write(self.path, (json.dumps(content, indent=1) + "\n").encode())


def run(
    steps: Sequence[Step],
    path: Path,
    begin: Callable[[Step], Show],
    end: Callable[[Done], None],
) -> list[Done]:
    """Runs the steps that are not finished, in their order.

    Args:
      steps: the steps.
      path: the file of the record.
      begin: is called before a step runs. Returns what shows a line of its progress.
      end: is called after each step, also after one that was finished before.

    Raises:
      StepError: a step failed. Those before it are recorded.
    """
    record = Record(path, steps)
    done: list[Done] = []
    for step in steps:
        known = record.result(step)
        if known is None:
            show = begin(step)
            started = time.monotonic()
            result = step.run(show)
            seconds = time.monotonic() - started
            record.finish(step, result, seconds)
            done.append(Done(step, result, seconds, True))
        else:
            done.append(Done(step, *known, False))
        end(done[-1])
    return done


def _uses(step: Step, names: Iterable[str]) -> bool:
    return not {place.name for place in step.places}.isdisjoint(names)


def _read(path: Path) -> _Content:
    """The content of the record; nothing if it is missing or has another layout."""
    try:
        read = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(read, dict) or read.get("layout") != _LAYOUT:
        return {}
    return cast(_Content, read)
