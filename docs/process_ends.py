"""Writes docs/reference/process_ends.md from the table of the calls.

The table is tests/generated/support/process_ends.yaml. What opwright says is what it
says now: the calls are made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from generated.support import ending_calls
from generated.support.ending_calls import GIBIBYTES, LIMIT, SECONDS
from support.processes import run_program

PAGE = Path(__file__).parent / "reference" / "process_ends.md"
HEAD = f"""\
# Calls that end the process

Some kernels of TensorFlow do not check an argument on which their memory depends. A bad
call then ends the process, never returns, or takes all memory. opwright refuses such a
call with an [`OpError`](errors.md) before TensorFlow sees it. The
[opdef](../../opdefs/WRITING.md) of an op states what the op needs.

- **call**: the argument that replaces one of the call in the op's documentation, or a
  complete call. `r` is `tf.raw_ops`, or `opwright.raw_ops`.
- **TensorFlow**: how the process ends with TensorFlow 2.21 on a CPU with oneDNN. A call
  may take {SECONDS} s of the CPU and {GIBIBYTES} GiB of memory. A number is that of a
  report or a fix at TensorFlow.
- **opwright**: the error of the same call through opwright, where
  `{LIMIT}` is {GIBIBYTES} GiB.

A test makes each call through opwright. Another makes with TensorFlow the calls of ops
that always end by a signal. This command makes all calls of an op with TensorFlow, in
the source tree:

```sh
PYTHONPATH=tests python -m generated.support.ending_record --keep AudioSpectrogram
```

<!-- begin rows -->

| op | call | TensorFlow | opwright |
|---|---|---|---|
"""
ISSUE = "https://github.com/tensorflow/tensorflow/issues"


def page(outcomes: Iterable[Mapping[str, Any]]) -> str:
    """The page.

    Args:
        outcomes: what `ending_calls` says of each call.
    """
    said = {(one["op"], one["call"]): one["message"] for one in outcomes}
    text = HEAD
    for row in ending_calls.rows():
        op, call = row["op"], ending_calls.text_of(row)
        end = _plain(row["tensorflow"])
        if "upstream" in row:
            end += f" ([#{row['upstream']}]({ISSUE}/{row['upstream']}))"
        message = _plain(said[op, call].splitlines()[0].removeprefix(f"{op}: "))
        text += f"| {op} | `{call}` | {end} | {message} |\n"
    return text + "\n<!-- end rows -->\n"


def _plain(text: str) -> str:
    """A text of which Markdown takes no character for its own."""
    for character in "\\`*_[]|<":
        text = text.replace(character, f"\\{character}")
    return text


def main() -> None:
    done = run_program("generated.support.ending_calls", **ending_calls.ENVIRONMENT)
    done.check_returncode()
    PAGE.write_text(page(map(json.loads, done.stdout.splitlines())), "utf-8")


if __name__ == "__main__":
    main()
