"""Writes docs/reference/tpu_remedies.md from the table of remedies."""

from __future__ import annotations

from pathlib import Path

from opwright_runtime.tpu_check.remedies import tables

PAGE = Path(__file__).parent / "reference" / "tpu_remedies.md"
HEAD = """\
# What to write instead

[The TPU check](tpu_check.md) names each op that stops a program, and what to write
instead. These are all of its remedies. The check takes the first row that fits an op,
or the text of an error.

Tests run programs for each row. The check refuses each of them, and so does
`jit_compile=True` on the CPU. With the remedy, the program compiles and gives the
numbers that the first one gives eagerly. complex128 and the size of a program are
limits of TPUs only.

With `jit_compile=True` on CPUs, an argument may decide what XLA must know: each new
value compiles the program again. The check refuses such a program.

"""


def page() -> str:
    return f"{HEAD}{tables()}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
