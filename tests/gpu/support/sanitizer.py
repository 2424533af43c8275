"""Runs a program under compute-sanitizer and reads what it says."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gpu.support.report import FAILED, NOT_RUN, OK

# What it exits with if it found something; no exit status of a check.
FOUND = 86
SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (\d+)[^\n]*")
# Its own lines where the machine does not let it work: a sandbox that keeps it from the
# process, a driver that it does not know.
REFUSED = re.compile(
    r"^(?:=+ *)?(?:[\w ]*Error: )?.*(?:Unable to|No attachable process|no driver|"
    r"(?:is|are) not supported|not permitted|ermission denied|ncompatible|"
    r"ailed to (?:initialize|attach|launch)|before first instrumented API call)"
)


def find() -> str | None:
    """In PATH, or with the toolkit that nvcc belongs to."""
    if there := shutil.which("compute-sanitizer"):
        return there
    homes = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
    if nvcc := shutil.which("nvcc"):
        homes.insert(0, Path(nvcc).resolve().parents[1])
    for home in homes:
        for folder in ("bin", "compute-sanitizer", "extras/compute-sanitizer"):
            if shutil.which(there := str(home / folder / "compute-sanitizer")):
                return there
    return None


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a process that leads a group, and the group; it may clean up before."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def judge(status: int, said: str) -> tuple[str, str]:
    """Verdict and note, from an exit status and output."""
    summary = SUMMARY.search(said)
    lines = [line for line in said.splitlines() if line.startswith(("====", "Error"))]
    refused = next((line for line in lines if REFUSED.match(line)), "")
    if refused and (not summary or not int(summary[2])):
        return NOT_RUN, f"the machine refuses it: {refused.strip('= ')}"
    if not summary:
        last = (said.strip().splitlines() or ["it said nothing"])[-1]
        return FAILED, f"no summary, exit status {status}: {last}"
    if int(summary[2]) or status == FOUND:
        told = [line.strip("= ") for line in said.splitlines() if line[:9] == "=" * 9]
        told = [line for line in told if line and "SUMMARY" not in line]
        told = [line for line in told if line != "COMPUTE-SANITIZER"]
        return FAILED, summary[0] + (f"; first: {told[0]}" if told else "")
    if status:
        return FAILED, f"{summary[0]}, but the checks exit with {status}"
    return OK, summary[0]


def run(
    sanitizer: str | None,
    tool: str,
    command: Sequence[str],
    seconds: float,
    log: Path,
) -> tuple[str, str]:
    """Verdict and note of a program under a tool; its output goes to the log."""
    if not sanitizer:
        return NOT_RUN, "compute-sanitizer is not there"
    options = ["--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20"]
    # Running out of memory is one of the checks, and torch probes for functions.
    options += ["--report-api-errors", "no"]
    # Each tensor is an allocation, or nothing would show that goes past one.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sanitizer, *options, *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            text=True,
        )
        status: int | None = None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return NOT_RUN, f"not done after {seconds:.0f} s"
        finally:
            if status is None:
                stop(process)
    return judge(status, log.read_text(errors="replace"))
