"""docs/rnn.md: its code runs, its errors are those, its links lead somewhere."""

from __future__ import annotations

import re

import keras
import pytest

from opwright import OpError, params_from_keras
from support.places import ROOT
from support.processes import run_code

DOC = (ROOT / "docs/rnn.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_rnn_page_code_runs(number: int) -> None:
    done = run_code(BLOCKS[number])
    assert done.returncode == 0, done.stderr
    for shown in re.findall(r"print\(error\)  # (.*), \.\.\.", BLOCKS[number]):
        assert shown in done.stdout


def test_rnn_page_error_matches_params_from_keras() -> None:
    (shown,) = re.findall(r"```text\n(.*?)\n```", DOC, re.DOTALL)
    layers = [
        keras.layers.LSTM(2, return_sequences=True),
        keras.layers.LSTM(2, recurrent_activation="hard_sigmoid"),
    ]
    with pytest.raises(OpError) as raised:
        params_from_keras(layers)
    assert str(raised.value) == shown


def test_rnn_page_commands_and_links_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", DOC)) <= targets
    for link in re.findall(r"\]\(([^)#]+)\)", DOC):
        assert link.startswith("http") or (ROOT / "docs" / link).exists()
