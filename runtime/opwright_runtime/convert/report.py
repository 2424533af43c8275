"""Outcomes that print as tables."""

from __future__ import annotations

from opwright_runtime.convert.outcome import Conversion, Tried


class Report(Conversion):
    """The outcome of a conversion; `print` shows it as tables."""

    def __str__(self) -> str:
        from opwright_runtime.convert import tables

        return tables.text(self)


class Findings(Tried):
    """The outcome of a check; `print` shows it as tables."""

    def __str__(self) -> str:
        from opwright_runtime.convert import tables

        return tables.findings_text(self)
