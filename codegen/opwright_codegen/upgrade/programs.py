"""Runs other programs: their output goes to a log, and its last lines into errors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import opwright_codegen
import opwright_notation
from opwright_codegen.problems import one_line
from opwright_codegen.upgrade.steps import Show, StepError

#: How many lines of a program's output an error has.
_LAST: Final = 15
#: How long a program has to end after it is asked to, in seconds.
_GRACE: Final = 10.0


def run(
    command: Sequence[str | Path],
    log: Path,
    show: Show,
    *,
    advice: str,
    changes: Mapping[str, str] | None = None,
    accepted: Sequence[int] = (0,),
    cwd: Path | None = None,
) -> list[str]:
    """Runs a program. Returns the lines that it wrote, which are also in `log`.

    Args:
      command: the program and its arguments.
      log: the file to which its output is added.
      show: shows a line of progress.
      advice: what to do if the program fails.
      changes: variables of its environment that differ from this process.
      accepted: the exit statuses of a program that did not fail.
      cwd: the folder it runs in; by default, that of this process.

    Raises:
      StepError: it cannot be started, or it failed.
    """
    words = [str(word) for word in command]
    # Packages of this environment must not hide those of the other one.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    # The last line of a Python program that fails is its error, not buffered output.
    inherited["PYTHONUNBUFFERED"] = "1"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(words)}\n")
        try:
            process = subprocess.Popen(
                words,
                env={**inherited, **(changes or {})},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            reason = f"{words[0]} cannot be started: {error.strerror}"
            raise StepError(reason, advice) from error
        try:
            assert process.stdout is not None
            for row in process.stdout:
                line = row.rstrip()
                lines.append(line)
                file.write(f"{line}\n")
                show(one_line(line))
            status = process.wait()
        finally:
            _end(process)
    if status not in accepted:
        raise StepError(
            f"{' '.join(words)}: exit status {status}; its last lines:",
            *(f"  {line}" for line in lines[-_LAST:]),
            f"all of its output is in {log}",
            advice,
        )
    return lines


def codegen(
    python: Path,
    arguments: Sequence[str | Path],
    log: Path,
    show: Show,
    *,
    accepted: Sequence[int] = (0,),
) -> list[str]:
    """Runs this opwright-codegen with another interpreter, and so its TensorFlow.

    The arguments and errors are those of `run`.
    """
    packages = (opwright_codegen, opwright_notation)
    path = dict.fromkeys(str(Path(str(one.__file__)).parents[1]) for one in packages)
    return run(
        [python, "-m", "opwright_codegen", *arguments],
        log,
        show,
        advice="mend what the lines above name, and run the command again",
        changes={"PYTHONPATH": os.pathsep.join(path)},
        accepted=accepted,
    )


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a program that still runs, because this process is interrupted."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
