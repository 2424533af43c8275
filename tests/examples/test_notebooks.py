"""The notebooks of examples/ run, and print what they say."""

from __future__ import annotations

from pathlib import Path

import notebooks
import pytest

#: Notebooks whose cells import the packages of a marker.
MARKS = {"leaving_cudnn": pytest.mark.convert}


def test_examples_have_three_notebooks() -> None:
    assert [path.stem for path in notebooks.NOTEBOOKS] == [
        "leaving_cudnn",
        "rnn_from_gpu_to_laptop",
        "tpu_embedding_on_a_laptop",
    ]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=MARKS.get(path.stem, ()))
        for path in notebooks.NOTEBOOKS
    ],
)
def test_notebook_prints_what_it_says(path: Path) -> None:
    assert notebooks.text(notebooks.executed(path)) == path.read_text("utf-8")
