"""The notebooks of examples/ run, and print what they say."""

from __future__ import annotations

from pathlib import Path

import notebooks
import pytest


def test_examples_have_two_notebooks() -> None:
    assert [path.stem for path in notebooks.NOTEBOOKS] == [
        "rnn_from_gpu_to_laptop",
        "tpu_embedding_on_a_laptop",
    ]


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_prints_what_it_says(path: Path) -> None:
    assert notebooks.text(notebooks.executed(path)) == path.read_text("utf-8")
