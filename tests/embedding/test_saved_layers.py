"""Keras saves the tables of the libraries' layers, or says why it does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.processes import run_program

pytestmark = pytest.mark.rotating(together="programs", part=0)  # Both libraries train.

SAVED = "the same"
OLD_KIND = "an .h5 file of the old kind cannot hold the tables"
NO_CONFIG = "must override `get_config()`"
OTHER_NAME = "must end in `.weights.h5`"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By library, what its program printed."""
    libraries = {"tensorflow-recommenders": "1"}
    if sys.version_info >= (3, 11):
        libraries["keras-rs"] = "0"
    printed = {}
    for library, legacy in libraries.items():
        folder: Path = tmp_path_factory.mktemp(library)
        done = run_program(
            "embedding.support.saved_layers",
            folder,
            library,
            timeout=600,
            TF_USE_LEGACY_KERAS=legacy,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        printed[library] = json.loads(done.stdout.splitlines()[-1])
    return printed


def of(found: dict[str, dict[str, Any]], library: str) -> dict[str, Any]:
    if library not in found:
        pytest.skip("keras-rs is for Python 3.11 and later")
    return found[library]


@pytest.mark.parametrize(
    ("library", "file", "expected"),
    [
        ("keras-rs", "model.keras", SAVED),
        ("keras-rs", "model.weights.h5", SAVED),
        ("keras-rs", "model.h5", OLD_KIND),
        ("keras-rs", "weights", OTHER_NAME),
        ("keras-rs", "weights.h5", OTHER_NAME),
        ("tensorflow-recommenders", "model.keras", NO_CONFIG),
        ("tensorflow-recommenders", "model.weights.h5", SAVED),
        ("tensorflow-recommenders", "model.h5", NO_CONFIG),
        ("tensorflow-recommenders", "weights.h5", OLD_KIND),
    ],
)
def test_keras_file_has_tables_or_is_refused(
    found: dict[str, dict[str, Any]], library: str, file: str, expected: str
) -> None:
    came = of(found, library)[file]
    if expected == SAVED:
        before, after = came
        assert after == before
    else:
        assert expected in came


def test_weights_in_tensorflow_s_format_have_the_rows(
    found: dict[str, dict[str, Any]],
) -> None:
    """Slots belong to the optimizer there, which save_weights leaves out."""
    before, after = of(found, "tensorflow-recommenders")["weights"]
    assert after[:2] == before[:2]
    assert after[2] != before[2]


@pytest.mark.parametrize("library", ["keras-rs", "tensorflow-recommenders"])
def test_weights_of_other_tables_are_refused(
    found: dict[str, dict[str, Any]], library: str
) -> None:
    assert "what was saved has [40, 8] for" in of(found, library)["other"]


def test_get_embedding_tables_of_keras_rs_is_what_the_tables_hold(
    found: dict[str, dict[str, Any]],
) -> None:
    assert of(found, "keras-rs")["tables"] == {"films": True, "users": True}
