"""No command prints the log of TensorFlow, unless the user wants it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opwright_notation.tensorflow_log import hidden_log
from support.places import environment

ROWS = b"""\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795648118.992278    6806 a.cc:31] x
a warning
W0000 00:00:1 x
E0000 00:00:1 an error
"""
#: Of each command: its function, and a call that fails after it has started TensorFlow.
CALLS = {
    "opwright": ("opwright_runtime.cli:main", ["for-tf", "tf.nn.softmx"]),
    "opwright-codegen": (
        "opwright_codegen.__main__:main",
        ["diff", "installed", "lacking.pbtxt"],
    ),
    "opwright-convert": (
        "opwright_runtime.convert_cli:command",
        ["check", "lacking.keras"],
    ),
    "opwright-tpu-check": ("opwright_runtime.tpu_check.cli:main", ["json:lacking"]),
}

#: The steps that a command reports where there is no terminal.
STEPS = {
    "opwright-tpu-check": [
        "opwright-tpu-check: starting TensorFlow",
        "opwright-tpu-check: importing json",
    ]
}


@pytest.mark.parametrize("level", [None, "2", "3"])
def test_hidden_log_keeps_other_lines(
    level: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if level:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    with hidden_log():
        os.write(2, ROWS)
    assert capfd.readouterr().err == "a warning\nE0000 00:00:1 an error\n"
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == (level or "3")


@pytest.mark.parametrize("level", ["0", "1"])
def test_hidden_log_at_a_level_with_warnings_keeps_all(
    level: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    with hidden_log():
        os.write(2, ROWS)
    assert capfd.readouterr().err == ROWS.decode()


def test_hidden_log_after_an_error_restores_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with pytest.raises(ImportError), hidden_log():
        raise ImportError
    os.write(2, ROWS)
    assert capfd.readouterr().err == ROWS.decode()


@pytest.mark.rotating  # Each command imports TensorFlow afresh.
@pytest.mark.parametrize("command", CALLS)
def test_command_prints_no_log(command: str, tmp_path: Path) -> None:
    target, arguments = CALLS[command]
    module, _, function = target.partition(":")
    script = (
        f"import sys; from {module} import {function}; status = {function}()\n"
        "print('tensorflow' in sys.modules); sys.exit(status)"
    )
    variables = environment()
    variables.pop("TF_CPP_MIN_LOG_LEVEL", None)
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (1, 2), done.stderr
    assert "True" in done.stdout  # It has imported TensorFlow.
    *steps, error = done.stderr.splitlines()
    assert steps == STEPS.get(command, [])
    assert error.startswith(f"{command}: ")
