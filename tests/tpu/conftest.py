"""Prints what compiles for TPUs below the results of the tests."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = [
        str(value)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "tpu table"
    ]
    if rows:
        terminalreporter.section("CudnnRNN for TPUs: temporaries, code")
        for row in rows:
            terminalreporter.write_line(row)
