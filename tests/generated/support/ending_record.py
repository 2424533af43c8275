"""Makes the calls of `process_ends.yaml` with tf.raw_ops, each in a process of its own.

`python -m generated.support.ending_record OP ...` makes the calls of these ops, prints
what became of them, and writes it to the table. Without ops, it makes all calls. With
`--keep`, the table stays as it is.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import yaml

from generated.support import ending_calls
from generated.support.ending_calls import GIBIBYTES, SECONDS, Row
from support.usage import resident, running_time

KEEP = "--keep"
#: The seconds that a call may take on a busy machine.
TIMEOUT = 120
_PERIOD = 0.02
_WORDS = 90


def outcome(row: Row) -> str:
    """What becomes of a call."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "said")
        child = os.fork()
        if not child:
            _make(row, folder, said)
        status = _ended(child)
        text = said.read_text("utf-8", "replace")
    if isinstance(status, str):
        return status
    if not os.WIFSIGNALED(status):
        raised = re.search(r"^raised (.*)", text, re.MULTILINE)
        return f"raises {raised[1]}" if raised else "returns"
    name = signal.Signals(os.WTERMSIG(status)).name
    words = re.search(
        r"Check failed: .*|what\(\): .*|terminate called .*|Assertion .*"
        r"|(free\(\)|malloc\(\)|double free|corrupted).*",
        text,
    )
    return f"{name}: {_cut(words[0])}" if words else name


def _make(row: Row, folder: str, said: Path) -> None:
    """Makes a call, and ends the process."""
    file = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        ending_calls.raw(row)
    except BaseException as error:
        print(f"\nraised {type(error).__name__}: {_cut(str(error))}", flush=True)
    os._exit(0)


def _cut(words: str) -> str:
    """The beginning of a message, without what differs from run to run."""
    words = re.sub(r"\{\{.*?\}\} ", "", " ".join(words.split()))
    words = re.sub(r"0x[0-9a-f]{6,}", "0x...", words)
    return words if len(words) <= _WORDS else f"{words[: _WORDS - 3].rstrip()}..."


def _ended(child: int) -> int | str:
    """The status of a process, or why it was killed."""
    began = time.monotonic()
    allowed = resident() + GIBIBYTES * 2**30
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        why = ""
        if running_time(child) > SECONDS or time.monotonic() - began > TIMEOUT:
            why = f"runs for more than {SECONDS} s"
        if resident(child) > allowed:
            why = f"takes more than {GIBIBYTES} GiB"
        if why:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return why
        time.sleep(_PERIOD)


def main(*arguments: str) -> None:
    # It is on where the CPU has instructions for neural networks.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
    # Only what makes no op run: the threads of TensorFlow do not survive a fork.
    import tensorflow as tf

    import opwright

    assert tf and opwright
    ops = [one for one in arguments if one != KEEP]
    table = ending_calls.rows()
    for row in table:
        if not ops or row["op"] in ops:
            row["tensorflow"] = outcome(row)
            print(json.dumps({**row, "call": ending_calls.text_of(row)}), flush=True)
    if KEEP not in arguments:
        text = yaml.safe_dump(
            table, default_flow_style=None, width=10**6, sort_keys=False
        )
        ending_calls.TABLE.write_text(text, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
