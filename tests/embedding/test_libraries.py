"""Programs with tensorflow-recommenders and keras-rs, beside plain Keras."""

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

PROGRAMS = {
    "tensorflow-recommenders": ("embedding_tfrs", {"TF_USE_LEGACY_KERAS": "1"}),
    "keras-rs": ("embedding_keras_rs", {}),
}


@pytest.fixture(scope="module", params=PROGRAMS)
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the program of a library printed."""
    if request.param == "keras-rs" and sys.version_info < (3, 11):
        pytest.skip("keras-rs is for Python 3.11 and later")
    program, environment = PROGRAMS[request.param]
    folder: Path = tmp_path_factory.mktemp(program)
    done = run_program(program, folder, **environment)
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


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


def test_a_saved_model_goes_on_in_another(found: dict[str, Any]) -> None:
    trained = found["adagrad"]["here"]["again"]
    assert found["loaded"] == trained
    assert trained != found["adagrad"]["here"]["predict"][: len(trained)]


@pytest.mark.parametrize("found", ["keras-rs"], indirect=True)
def test_a_loop_over_ragged_data(found: dict[str, Any]) -> None:
    """Keras 3 hands no layer any in fit; the other library has them there."""
    assert found["loop"]["here"] == pytest.approx(found["loop"]["plain"], rel=1e-6)


@pytest.mark.parametrize(
    ("library", "square"),
    [(keras, 1.0 + 4.0), (tf_keras, (1.0 + 2.0) ** 2)],
    ids=["keras", "tf_keras"],
)
def test_what_adagrad_makes_of_an_id_that_is_there_twice(
    library: Any, square: float
) -> None:
    """Tables are held against a plain model of Keras 3 that has dense gradients."""
    variable = library.Variable([1.0]) if library is keras else tf.Variable([1.0])
    gradient = tf.IndexedSlices(tf.constant([1.0, 2.0]), tf.constant([0, 0]), [1])
    optimizer = library.optimizers.Adagrad(1.0, initial_accumulator_value=0.0)
    optimizer.apply_gradients([(gradient, variable)])
    moved = 1.0 - np.asarray(variable)
    np.testing.assert_allclose(moved, [3.0 / np.sqrt(square)], rtol=1e-5)
