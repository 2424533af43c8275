"""Programs with tensorflow-recommenders and keras-rs, compared with plain Keras."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from support.processes import run_program

BATCH = 16  # Of the programs.
PROGRAMS = {
    "tensorflow-recommenders": (
        "embedding.support.tfrs_layers",
        {"TF_USE_LEGACY_KERAS": "1"},
    ),
    "keras-rs": ("embedding.support.keras_rs_layers", {}),
}


PLACES = ("1 cores", "4 cores", "2 hosts")


@pytest.fixture(
    scope="module", params=[(one, place) for one in PROGRAMS for place in PLACES]
)
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the program of a library printed."""
    library, place = request.param
    if library == "keras-rs" and sys.version_info < (3, 11):
        pytest.skip("keras-rs is for Python 3.11 and later")
    program, environment = PROGRAMS[library]
    folder: Path = tmp_path_factory.mktemp(program)
    done = run_program(program, folder, place, timeout=700, **environment)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    return joined(printed) if place == "2 hosts" else printed


def joined(hosts: list[dict[str, Any]]) -> dict[str, Any]:
    """What one process would have found: of predictions each host has its part."""
    whole = dict(hosts[0])
    for optimizer in ("adagrad", "sgd"):
        of_hosts = [found[optimizer]["here"] for found in hosts]
        here = dict(of_hosts[0])
        for kind, values in here.items():
            parts = [found[kind] for found in of_hosts]
            if kind in ("predict", "again"):
                here[kind] = by_batches(parts)
            else:
                assert parts == [values] * len(hosts), kind
        whole[optimizer] = {**whole[optimizer], "here": here}
    return {**whole, "loaded": by_batches([found["loaded"] for found in hosts])}


def by_batches(parts: list[list[float]]) -> list[float]:
    """The parts of the first batch, of the second ..."""
    each = BATCH // len(parts)
    batches = range(0, len(parts[0]), each)
    return [x for i in batches for part in parts for x in part[i : i + each]]


@pytest.mark.parametrize("optimizer", ["adagrad", "sgd"])
def test_fit_evaluate_and_predict_equal_plain_keras(
    found: dict[str, Any], optimizer: str
) -> None:
    """Alternately, and with sgd three steps an execution."""
    here, plain = found[optimizer]["here"], found[optimizer]["plain"]
    assert here.keys() == plain.keys()
    for kind, values in here.items():
        # Adagrad of Keras adds an epsilon; sums differ in their order.
        assert values == pytest.approx(plain[kind], rel=1e-5, abs=1e-6), kind
    first, second = here["fit"]
    assert second < first
    # To evaluate twice changes nothing, to train does.
    assert here["evaluate"][0] == here["evaluate"][1] == here["validation"][-1]
    assert here["again"] != here["predict"][: len(here["again"])]


def test_slots_of_a_keras_optimizer(found: dict[str, Any]) -> None:
    """They are the tables': every accumulator has grown from where Keras starts it."""
    assert list(found["slots"]) == ["accumulators"]
    assert found["slots"]["accumulators"] > 0.1


def test_saved_model_loaded_anew_predicts_equal_values(found: dict[str, Any]) -> None:
    trained = found["adagrad"]["here"]["again"]
    assert found["loaded"] == trained
    assert trained != found["adagrad"]["here"]["predict"][: len(trained)]


@pytest.mark.parametrize(
    "found", [("keras-rs", place) for place in PLACES], indirect=True
)
def test_training_loop_ragged_data_equals_plain_keras(found: dict[str, Any]) -> None:
    """Keras 3 hands no layer any in fit; the other library has them there."""
    assert found["loop"]["here"] == pytest.approx(found["loop"]["plain"], rel=1e-6)


@pytest.mark.parametrize(
    ("library", "square"),
    [(keras, 1.0 + 4.0), (tf_keras, (1.0 + 2.0) ** 2)],
    ids=["keras", "tf_keras"],
)
def test_adagrad_duplicate_id_adds_expected_square(library: Any, square: float) -> None:
    """Tables are held against a plain model of Keras 3 that has dense gradients."""
    variable = library.Variable([1.0]) if library is keras else tf.Variable([1.0])
    gradient = tf.IndexedSlices(tf.constant([1.0, 2.0]), tf.constant([0, 0]), [1])
    optimizer = library.optimizers.Adagrad(1.0, initial_accumulator_value=0.0)
    optimizer.apply_gradients([(gradient, variable)])
    moved = 1.0 - np.asarray(variable)
    np.testing.assert_allclose(moved, [3.0 / np.sqrt(square)], rtol=1e-5)
