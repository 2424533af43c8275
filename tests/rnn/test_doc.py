"""docs/*/rnn*.md: their programs run, and their errors are those that are raised."""

from __future__ import annotations

import re

import keras
import pytest

from opwright import OpError, params_from_keras
from support import pages
from support.places import ROOT
from support.processes import run_code

WEIGHTS = (ROOT / "docs/how-to/rnn_weights.md").read_text("utf-8")
PROGRAMS = [
    pytest.param(program, id=f"{page.stem}_{number}")
    for page in pages.PAGES
    if page.stem.startswith("rnn")
    for number, program in enumerate(pages.programs(page), 1)
]


@pytest.mark.rotating
@pytest.mark.parametrize("program", PROGRAMS)
def test_rnn_page_code_runs(program: str) -> None:
    done = run_code(program)
    assert done.returncode == 0, done.stderr
    for shown in re.findall(r"print\(error\)  # (.*), \.\.\.", program):
        assert shown in done.stdout


def test_rnn_page_error_matches_params_from_keras() -> None:
    (shown,) = re.findall(r"```text\n(.*?)\n```", WEIGHTS, re.DOTALL)
    layers = [
        keras.layers.LSTM(2, return_sequences=True),
        keras.layers.LSTM(2, recurrent_activation="hard_sigmoid"),
    ]
    with pytest.raises(OpError) as raised:
        params_from_keras(layers)
    assert str(raised.value) == shown


def test_rnn_keras_page_layers_are_faster_in_every_recorded_case() -> None:
    page = (ROOT / "docs/how-to/rnn_keras.md").read_text("utf-8")
    assert re.search(r"is faster than `keras\.layers` in\s+every case", page)
    results = (ROOT / "docs/reference/performance.md").read_text("utf-8")
    rows = re.findall(
        r"^\| `opwright\.keras`, .* \| Keras 3 \| (.*) \|$", results, re.M
    )
    assert len(rows) == 2
    assert all(float(number) > 1 for row in rows for number in row.split(" | "))
