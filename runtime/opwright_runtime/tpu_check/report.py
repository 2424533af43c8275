"""The report of a check: what it found, in words."""

from __future__ import annotations

from dataclasses import dataclass

from opwright_runtime.tpu_check.findings import Findings


@dataclass(frozen=True)
class Report(Findings):
    """What a check found; `print` shows it as tables.

    Attributes:
        program: name of what was checked.
        arguments: of the compiled program, in its order: captured variables included.
        blockers: what keeps XLA from compiling it, for any chip.
        compilations: one for each chip, if nothing does.
    """

    def __str__(self) -> str:
        from opwright_runtime.tpu_check import tables

        return tables.text(self)
