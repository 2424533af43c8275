"""The gradient aggregation example: training, killed workers, verification."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import gradient_aggregation
import numpy as np
import pytest
from aggregation import problem
from aggregation.dashboard import Dashboard, sparkline
from aggregation.journal import (
    Done,
    Event,
    Killed,
    Ready,
    Sending,
    Started,
    Update,
    VerificationError,
    dumps,
    loads,
    verify,
)
from rich.console import Console

LIMIT = 300  # Five processes import TensorFlow at once, maybe next to other tests.


@contextmanager
def launched(journal: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, gradient_aggregation.__file__, "--timeout", str(LIMIT)]
    process = subprocess.Popen(
        [*command, "--journal", str(journal), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"},
        # Tests in the background inherit that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run(journal: Path, *options: str) -> list[Event]:
    """The events of a run that must succeed."""
    with launched(journal, *options) as process:
        output, _ = process.communicate(timeout=LIMIT + 20)
    assert process.returncode == 0, output
    assert "verified" in output
    return read(journal)


def text_of(journal: Path) -> str:
    return journal.read_text() if journal.exists() else ""


def read(journal: Path) -> list[Event]:
    whole, _, _ = text_of(journal).rpartition("\n")
    return [loads(line) for line in whole.splitlines()]


def wait_for(
    condition: Callable[[], bool], process: subprocess.Popen[str] | None = None
) -> None:
    """Waits until the condition holds; fails if the process ends first."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        if process and process.poll() is not None:
            pytest.fail(f"ended with {process.returncode}: {process.communicate()[0]}")
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"  # an orphan that ended, where nothing collects them


def updates_of(events: list[Event]) -> list[Update]:
    return [event for event in events if isinstance(event, Update)]


def test_aggregation_killed_worker_leaves_training_running(tmp_path: Path) -> None:
    options = ["--steps=20", "--kill-at=3", "--no-restart", "--compute=0.08"]
    events = run(tmp_path / "journal", *options)
    updates = updates_of(events)
    assert [update.step for update in updates] == list(range(20))
    assert [event for event in events if isinstance(event, Killed)] == [Killed(2)]
    assert updates[-1].counts == [1, 1, 0]
    sent = sum(isinstance(event, Sending) for event in events)
    assert sent > sum(sum(update.counts) for update in updates), "none was dropped"
    first, last = (problem.loss(np.array(updates[i].weights)) for i in (0, -1))
    assert last < first / 3


def test_aggregation_restarted_worker_contributes_again(tmp_path: Path) -> None:
    """The run ends at the first update with a gradient of the restarted worker."""
    journal = tmp_path / "journal"

    def after_its_return() -> list[Event]:
        events = read(journal)
        if Killed(1) not in events:
            return []
        later = events[events.index(Killed(1)) :]
        return later[later.index(Ready(1)) :] if Ready(1) in later else []

    options = ["--workers=2", "--steps=100000", "--kill-at=10", "--compute=0.08"]
    with launched(journal, *options, f"--learning-rate={RATE}") as process:
        wait_for(
            lambda: any(e.counts[1] for e in updates_of(after_its_return())), process
        )
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    events = [*read(journal), Done(pending=0)]
    made = len(updates_of(events))
    assert verify(events, steps=made, required=1, learning_rate=RATE) < 1e-6


def test_launcher_failing_task_ends_the_run(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with launched(journal, "--workers=2", "--steps=10000", "--no-kill") as process:
        wait_for(lambda: '"Update"' in text_of(journal), process)
        pids = {e.task: e.pid for e in read(journal) if isinstance(e, Started)}
        os.kill(pids["ps:0"], signal.SIGKILL)
        output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "ps:0 ended with status -9" in output
    assert not any(map(alive, pids.values()))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_launcher_signal_ends_all_processes(
    tmp_path: Path, how: signal.Signals
) -> None:
    journal = tmp_path / "journal"
    with launched(journal) as process:
        wait_for(lambda: text_of(journal).count("\n") >= 4, process)
        pids = [event.pid for event in read(journal) if isinstance(event, Started)]
        assert len(pids) == 4, "they are started before anything else is reported"
        process.send_signal(how)
        output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    assert "Traceback" not in output
    wait_for(lambda: not any(map(alive, pids)))


def test_launcher_timeout_ends_the_run(tmp_path: Path) -> None:
    with launched(tmp_path / "journal", "--timeout=1") as process:
        output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "not finished within 1 seconds" in output


STEPS, WORKERS, REQUIRED, RATE = 12, 3, 2, 0.1


def counted(step: int) -> list[int]:
    return [int(worker != step % WORKERS) for worker in range(WORKERS)]


def right_journal() -> list[Event]:
    """The events of a right run; each step leaves out another worker."""
    weights = np.zeros(problem.FEATURES, np.float32)
    events: list[Event] = []
    for step in range(STEPS):
        counts = counted(step)
        mean = np.zeros_like(weights)
        for worker, count in enumerate(counts):
            inputs, targets = problem.batch(worker, step)
            events.append(Sending(worker, step))
            error = inputs @ weights - targets
            mean += count * (error @ inputs) / problem.BATCH / sum(counts)
        weights -= np.float32(RATE) * mean
        events.append(Update(step, counts, weights.tolist()))
    return [*events, Done(pending=0)]


def check(events: list[Event]) -> float:
    return verify(events, steps=STEPS, required=REQUIRED, learning_rate=RATE)


def edited(number: int, change: Callable[[Update], Update]) -> list[Event]:
    events = right_journal()
    place = events.index(updates_of(events)[number])
    update = events[place]
    assert isinstance(update, Update)
    events[place] = change(update)
    return events


def test_verify_right_journal_passes() -> None:
    assert check(right_journal()) < 1e-6


def test_journal_dumps_and_loads_round_trip() -> None:
    events = [*right_journal(), Started("ps:0", 7), Ready(1), Killed(2)]
    assert [loads(dumps(event)) for event in events] == events


@pytest.mark.parametrize("number", [0, 5, STEPS - 1])
def test_verify_lost_update_raises(number: int) -> None:
    events = right_journal()
    events.remove(updates_of(events)[number])
    with pytest.raises(VerificationError, match="12 steps were due"):
        check(events)


def test_verify_repeated_update_raises() -> None:
    events = right_journal()
    update = updates_of(events)[5]
    events.insert(events.index(update), update)
    with pytest.raises(VerificationError, match="12 steps were due"):
        check(events)


def test_verify_gradient_counted_twice_raises() -> None:
    events = edited(5, lambda update: replace(update, counts=[1, 2, 0]))
    with pytest.raises(VerificationError, match="step 5 counted worker 1 2 times"):
        check(events)


def test_verify_gradient_sent_twice_raises() -> None:
    with pytest.raises(VerificationError, match="worker 1 sent 2 gradients for step 4"):
        check([Sending(1, 4), *right_journal()])


def test_verify_gradient_never_sent_raises() -> None:
    events = right_journal()
    events.remove(Sending(1, 5))
    with pytest.raises(VerificationError, match="worker 1, which sent nothing"):
        check(events)


def test_verify_update_of_too_few_gradients_raises() -> None:
    events = edited(5, lambda update: replace(update, counts=[1, 0, 0]))
    with pytest.raises(VerificationError, match="step 5 averaged 1 gradients, not 2"):
        check(events)


def test_verify_gradient_left_over_raises() -> None:
    with pytest.raises(VerificationError, match="left in the accumulator"):
        check([*right_journal()[:-1], Done(pending=1)])


@pytest.mark.parametrize(
    ("number", "counts"),
    [
        (number, counts)
        for number in [0, 5, STEPS - 1]
        for counts in [[0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 1]]
        if counts != counted(number)
    ],
)
def test_verify_gradient_of_other_worker_raises(number: int, counts: list[int]) -> None:
    events = edited(number, lambda update: replace(update, counts=counts))
    with pytest.raises(VerificationError, match=f"after step {number} the weights"):
        check(events)


@pytest.mark.parametrize("number", [0, 5, STEPS - 1])
def test_verify_weights_changed_without_gradient_raise(number: int) -> None:
    def moved(update: Update) -> Update:
        first, *others = update.weights
        return replace(update, weights=[first + 1e-4, *others])

    with pytest.raises(VerificationError, match=f"after step {number} the weights"):
        check(edited(number, moved))


def test_dashboard_counts_events() -> None:
    dashboard = Dashboard(WORKERS, STEPS)
    for event in [Ready(0), Ready(1), *right_journal(), Killed(2), Sending(0, STEPS)]:
        dashboard.show(event)
    console = Console(width=100, file=io.StringIO())
    with console.capture() as text:
        console.print(dashboard)
    rows = [line.split("│")[1:-1] for line in text.get().splitlines()]
    cells = [[cell.strip() for cell in row] for row in rows if row]
    assert cells == [
        ["0", "finished", "13", "8", "4", "0"],
        ["1", "finished", "12", "8", "4", "0"],
        ["2", "killed", "12", "8", "4", "1"],
    ]


def test_sparkline_falls_with_its_values() -> None:
    assert sparkline([1000, 100, 10, 1], 4) == "█▆▃▁"
    assert sparkline([5.0], 10) == "▁"
    assert len(sparkline(range(1, 100), 10)) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers=3", "--required=3"], "must be less than --workers"),
        (["--required=0"], "from 1 to the number of workers"),
        (["--steps=5", "--kill-at=5"], "there is no such step"),
        (["--learning-rate=2"], "diverges"),
        (["--steps=0", "--no-kill"], "at least 1"),
    ],
)
def test_parse_impossible_options_are_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        gradient_aggregation.parse(options)
    assert message in capsys.readouterr().err
