"""Layers of CuDNNLSTM and CuDNNGRU train on the CPU, and their saved models run."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import pytest

from support.places import ROOT
from support.processes import Done, run_code, run_program

# Each takes a process with tf_keras.
pytestmark = pytest.mark.equivalence

DOC = (ROOT / "docs/how-to/rnn.md").read_text("utf-8")
CHECKS = {
    "eager": [
        "gru_trains_as_the_other_layer_does",
        "lstm_trains_as_the_other_layer_does",
        "both_learn",
        "states_carry_over",
        "saved_and_loaded",
        "a_device_that_is_not_there",
        "run_eagerly",
        "packed",
        "unbuilt_in_any_wrapper",
        "exported",
    ],
    "v1": [
        "gru_trains_as_the_other_layer_does",
        "both_learn",
        "states_carry_over",
        "saved_and_loaded",
        "a_device_that_is_not_there",
    ],
}


def output_of(done: Done) -> str:
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("legacy")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[str, str]:
    """The output of the program, by mode; each mode runs once."""
    return {
        mode: output_of(
            run_program("rnn.support.legacy_layers", mode, folder, afresh=True)
        )
        for mode in CHECKS
    }


@pytest.mark.parametrize(
    ("mode", "check"),
    [(mode, name) for mode, names in CHECKS.items() for name in names],
)
def test_cudnn_layers_check_passes(
    mode: str, check: str, outcomes: dict[str, str]
) -> None:
    assert re.search(rf"^{check}: passed$", outcomes[mode], re.MULTILINE), outcomes[
        mode
    ]


def test_cudnn_layers_checks_are_all_listed(outcomes: dict[str, str]) -> None:
    for mode, printed in outcomes.items():
        assert re.findall(r"^(\w+): (?:passed|failed)$", printed, re.M) == CHECKS[mode]


# A server of a model needs neither tf_keras nor these layers.
SERVE = """
import sys
import numpy as np
import tensorflow as tf
import opwright

assert "tf_keras" not in sys.modules
folder = sys.argv[1]
wanted = np.load(folder + "/wanted.npz")
x = tf.constant(wanted["x"])

def close(found, name):
    np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5)

model = tf.saved_model.load(folder + "/exported")
close(model.serve(x), "y")

model = tf.saved_model.load(folder + "/pinned")
nodes = [
    node
    for function in model.serve.concrete_functions
    for node in function.graph.as_graph_def().node
    if node.op == "CudnnRNNV3"
]
assert len(nodes) == 3
assert all("GPU:0" in node.device for node in nodes), nodes
assert all(node.attr["is_training"].b for node in nodes), nodes
close(model.signatures["serving_default"](x)["output_0"], "y")
with tf.GradientTape() as tape:
    tape.watch(x)
    y = model.serve(x)
close(y, "y")
close(tape.gradient(y, x), "dx")

# TensorFlow's loader and session of its first version.
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta = tf.compat.v1.saved_model.load(session, ["serve"], folder + "/pinned")
    signature = meta.signature_def["serving_default"]
    feed = {signature.inputs["x"].name: wanted["x"]}
    close(session.run(signature.outputs["output_0"].name, feed), "y")

tf.config.set_soft_device_placement(False)
try:
    model = tf.saved_model.load(folder + "/pinned")
    model.serve(x)
except tf.errors.InvalidArgumentError as error:
    assert "GPU:0" in error.message
else:
    raise AssertionError("ran on a device that is not there")
"""


def test_cudnn_layers_saved_models_are_served(
    folder: Path, outcomes: dict[str, str]
) -> None:
    output_of(run_code(SERVE, folder))


SAVE = """
import sys
import tensorflow as tf

model = tf.keras.Sequential(
    [
        tf.keras.layers.InputLayer(batch_input_shape=(2, 6, 3)),
        tf.compat.v1.keras.layers.CuDNNLSTM(4),
    ]
)
model.save(sys.argv[1])
"""


LOAD = """
import sys
import tensorflow as tf
import opwright

assert tf.keras.models.load_model(sys.argv[1])(tf.ones([2, 6, 3])).shape == (2, 4)
"""


def test_load_model_of_keras_3_fails_as_the_docs_say(tmp_path: Path) -> None:
    file = tmp_path / "model.h5"
    output_of(run_code(SAVE, file, TF_USE_LEGACY_KERAS="1"))
    with pytest.raises(ValueError, match="Unknown layer: 'CuDNNLSTM'") as raised:
        keras.models.load_model(file)
    (shown,) = {*re.findall(r"`(Unknown layer: .*?)`", DOC)}
    assert str(raised.value).startswith(shown)
    output_of(run_code(LOAD, file, TF_USE_LEGACY_KERAS="1"))
