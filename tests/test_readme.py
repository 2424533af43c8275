"""README: its code runs, and the commands that it names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_code_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    path = os.pathsep.join(str(ROOT / name) for name in ("generated", "runtime"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[11. 25.]]") == 3
    assert "Kernel CPU" in done.stdout


def test_error_is_the_one_shown() -> None:
    import tensorflow as tf

    from opwright import OpInputError
    from opwright.linalg import mat_mul

    (shown,) = re.findall(r"```text\n(.*?)\n```", README, re.DOTALL)
    with pytest.raises(OpInputError) as raised:
        mat_mul(tf.ones([2, 2], tf.float32), tf.ones([2, 2], tf.float64))
    assert str(raised.value) == shown


def test_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)\b", README))
    assert {"ops", "test"} <= named <= targets

    help_text = subprocess.run(
        [sys.executable, "-m", "opwright_codegen", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "codegen")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for command in set(re.findall(r"opwright-codegen ([a-z]+)", README)):
        assert f"    {command} " in help_text


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    local = [link for link in links if not link.startswith("http")]
    assert [link for link in local if not (ROOT / link).exists()] == []
