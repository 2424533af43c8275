"""Models that no conversion takes: the error names the node, and nothing is written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from convert.support.models import CONVERSIONS, barred, ops_of
from opwright.convert import ConvertError, to_onnx, to_plain, to_tflite
from opwright_runtime.convert import onnx_rnn, signatures
from support.places import environment

X = np.random.default_rng(0).standard_normal((5, 2, 2)).astype("float32")


def rnn(x: Any, *, units: int = 3, params: int = 84, **options: Any) -> Any:
    states = tf.zeros([1, tf.shape(x)[1], units])
    return tf.raw_ops.CudnnRNNV3(
        input=x,
        input_h=states,
        input_c=states,
        params=tf.linspace(-1.0, 1.0, params),
        sequence_lengths=tf.fill([tf.shape(x)[1]], tf.shape(x)[0]),
        **options,
    )


def function(of: Callable[[Any], Any], shape: Any = (None, None, 2)) -> Any:
    spec = tf.TensorSpec(shape, name="x")
    return tf.function(of, input_signature=[spec], autograph=False)


REFUSED = {
    "dropout": (
        function(lambda x: rnn(x, dropout=0.5)[0]),
        r"CudnnRNNV3\).*dropout of 0.5, because is_training is true; pass dropout=",
    ),
    "unknown inputs": (
        function(lambda x: rnn(x)[0], (None, None, None)),
        "the number of inputs in input is not known before the model runs",
    ),
    "short params": (
        function(lambda x: rnn(x, params=80)[0]),
        "params has 80 elements; these layers have 84",
    ),
    "bad skip_input": (
        function(lambda x: rnn(x, input_mode="skip_input")[0]),
        "skip_input needs inputs of num_units = 3, they have 2",
    ),
}


@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize("name", REFUSED)
def test_convert_refused_node_is_named_and_the_target_is_kept(
    name: str, convert: Any, tmp_path: Path
) -> None:
    model, message = REFUSED[name]
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    with pytest.raises(ConvertError, match=message) as raised:
        convert(model, target, overwrite=True, check=False)
    assert raised.value.op == "CudnnRNNV3" and "CudnnRNNV3" in raised.value.node
    assert target.read_bytes() == b"kept"
    assert [one.name for one in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("convert", CONVERSIONS)
def test_convert_dropout_off_runs_as_inference(convert: Any, tmp_path: Path) -> None:
    """The source is compared without dropout, which is applied between two layers."""

    def two_layers(x: Any) -> Any:
        states = tf.zeros([2, tf.shape(x)[1], 3])
        return tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=states,
            input_c=states,
            params=tf.linspace(-1.0, 1.0, 180),
            sequence_lengths=tf.fill([tf.shape(x)[1]], tf.shape(x)[0]),
            dropout=0.5,
        )[0]

    report = convert(function(two_layers), tmp_path / "target", dropout="off")
    assert report.difference <= 5e-6


def test_to_plain_a_reserve_that_is_returned_is_refused(tmp_path: Path) -> None:
    model = function(lambda x: rnn(x)[3])
    with pytest.raises(
        ConvertError, match=r"\(CudnnRNNV3\): .* reserve; save the model for inference"
    ) as raised:
        to_plain(model, tmp_path / "target")
    assert raised.value.op == "CudnnRNNV3" and "CudnnRNNV3" in raised.value.node
    assert not [*tmp_path.iterdir()]


def test_to_plain_a_reserve_that_another_op_reads_is_refused(tmp_path: Path) -> None:
    model = function(lambda x: rnn(x)[3] + 1)
    with pytest.raises(
        ConvertError, match=r"\(CudnnRNNV3\): node '.+' \(AddV2\) reads its reserve"
    ) as raised:
        to_plain(model, tmp_path / "target")
    assert raised.value.op == "CudnnRNNV3" and "CudnnRNNV3" in raised.value.node
    assert not [*tmp_path.iterdir()]


@pytest.mark.convert
@pytest.mark.parametrize(
    ("convert", "runtime"), [(to_onnx, "ONNX"), (to_tflite, "TFLite")]
)
def test_convert_of_a_gradient_to_a_runtime_without_it_is_refused(
    convert: Any, runtime: str, tmp_path: Path
) -> None:
    model = function(lambda x: tf.gradients(rnn(x)[0], x)[0])
    with pytest.raises(
        ConvertError,
        match=rf"\(CudnnRNNBackpropV3\): it computes gradients, and {runtime} has no "
        "operator for them; convert a signature that computes none, or use to_plain",
    ) as raised:
        convert(model, tmp_path / "target", check=False)
    assert raised.value.op == "CudnnRNNBackpropV3" and raised.value.node
    assert not [*tmp_path.iterdir()]


@pytest.mark.convert
def test_to_onnx_a_node_that_the_handler_does_not_convert_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_rnn, "_ORDER", {})
    model = function(lambda x: rnn(x)[0])
    with pytest.raises(
        ConvertError, match=r"\(CudnnRNNV3\): it has no form in ONNX: .*; report this"
    ) as raised:
        to_onnx(model, tmp_path / "model.onnx")
    assert raised.value.op == "CudnnRNNV3" and "CudnnRNNV3" in raised.value.node
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("convert", CONVERSIONS[1:])
def test_convert_a_model_over_the_size_of_a_graph_is_refused(
    convert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = tf.Module()
    module.table = tf.Variable(tf.zeros([84]))
    spec = tf.TensorSpec([None, None, 2], name="x")
    module.serve = tf.function(
        lambda x: rnn(x)[0] + module.table[:3], input_signature=[spec], autograph=False
    )
    tf.saved_model.save(module, str(tmp_path / "source"), signatures=module.serve)
    # 2 GB would take minutes.
    monkeypatch.setattr(signatures, "_LARGEST", 4 * 84 - 1)
    with pytest.raises(ConvertError, match=r"336 bytes.*convert it to plain Tensor"):
        convert(tmp_path / "source", tmp_path / "target")
    assert [one.name for one in tmp_path.iterdir()] == ["source"]
    report = to_plain(tmp_path / "source", tmp_path / "target")
    assert len(report.found) == 1


def test_to_plain_an_existing_target_is_kept_unless_overwrite(tmp_path: Path) -> None:
    model = function(lambda x: rnn(x)[0])
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_text("kept")
    with pytest.raises(ConvertError, match="exists; remove it, or pass overwrite=True"):
        to_plain(model, target)
    assert (target / "file").read_text() == "kept"
    to_plain(model, target, overwrite=True)
    assert not barred(ops_of(target)) and not (target / "file").exists()
    assert [one.name for one in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("convert", CONVERSIONS)
def test_convert_a_missing_folder_is_named(convert: Any, tmp_path: Path) -> None:
    model = function(lambda x: rnn(x)[0])
    with pytest.raises(ConvertError, match="nowhere is not a folder; create it first"):
        convert(model, tmp_path / "nowhere" / "target")


@pytest.mark.parametrize(
    "model, said",
    [
        ("no_such_file", "no_such_file does not exist; a path must be"),
        (7, "model must be"),
        (None, "model must be"),
    ],
)
def test_convert_other_objects_are_refused(
    model: Any, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConvertError, match=f"{said} the folder of a SavedModel"):
        to_plain(model, tmp_path / "target")


@pytest.mark.parametrize("names", ["inputs", "outputs"])
@pytest.mark.parametrize("kind", ["folder", "file", "function", "model"])
def test_to_plain_names_of_tensors_of_other_models_than_graphs_are_refused(
    kind: str, names: str, tmp_path: Path
) -> None:
    traced = function(lambda x: rnn(x)[0])
    layers = keras.Sequential([keras.Input([4, 2]), keras.layers.LSTM(3)])
    module: Any = tf.Module()
    module.serve = traced
    source = {
        "folder": tmp_path / "source",
        "file": tmp_path / "model.keras",
        "function": traced,
        "model": layers,
    }[kind]
    if kind == "folder":
        tf.saved_model.save(module, str(source), signatures=traced)
    if kind == "file":
        layers.save(source)
    words = rf"{names}= \(--{names[:-1]}\) is for graphs .*; leave it out"
    if kind == "folder":
        words += (
            r", or choose .* \(--signature\): 'serving_default' has the inputs 'x'$"
        )
    with pytest.raises(ConvertError, match=words):
        to_plain(source, tmp_path / "plain", **{names: ["x"]})
    assert not (tmp_path / "plain").exists()


def test_to_plain_an_unknown_tensor_of_a_graph_is_refused_with_those_it_has(
    tmp_path: Path,
) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], name="words")
        tf.tanh(x, name="scores")
    words = r"no tensor 'x'; its placeholders, .*, are 'words', 'scores'$"
    for given in ("x", ["x"]):
        with pytest.raises(ConvertError, match=words):
            to_plain(graph.as_graph_def(), tmp_path / "plain.pb", inputs=given)
    to_plain(graph.as_graph_def(), tmp_path / "plain.pb", inputs="words")


@pytest.mark.convert
def test_convert_an_unknown_signature_is_refused_with_those_it_has(
    tmp_path: Path,
) -> None:
    model = function(lambda x: rnn(x)[0])
    with pytest.raises(ConvertError, match="no 'other'; the model has 'serving_def"):
        to_onnx(model, tmp_path / "model.onnx", signature="other")


@pytest.mark.parametrize(
    ("convert", "name", "ending"),
    [(to_onnx, "model.tflite", ".onnx"), (to_tflite, "model.onnx", ".tflite")],
)
def test_convert_to_a_file_of_another_format_is_refused(
    convert: Any, name: str, ending: str, tmp_path: Path
) -> None:
    with pytest.raises(ConvertError, match=rf"{name} ends with .* end with {ending}"):
        convert(tmp_path / "source", tmp_path / name)


def test_to_plain_states_of_another_layout_are_refused_with_theirs(
    tmp_path: Path,
) -> None:
    """With time_major=False, the second dimension is layers * directions."""
    module: Any = tf.Module()
    module.params = tf.Variable(tf.zeros([2 * 4 * 5 * (3 + 5 + 2)]))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 3])])
    def serve(x: tf.Tensor) -> Any:
        state = tf.ensure_shape(tf.zeros([2, tf.shape(x)[0], 5]), [2, None, 5])
        return tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=state,
            input_c=state,
            params=module.params,
            sequence_lengths=tf.fill([tf.shape(x)[0]], tf.shape(x)[1]),
            direction="bidirectional",
            is_training=False,
            time_major=False,
        )[0]

    module.serve = serve
    tf.saved_model.save(module, str(tmp_path / "source"))
    with pytest.raises(ConvertError, match=r"\[batch, layers \* directions, units\]"):
        to_plain(tmp_path / "source", tmp_path / "plain")


def test_convert_an_unknown_option_is_refused(tmp_path: Path) -> None:
    options: Any = {"tolerence": 1}
    with pytest.raises(TypeError, match="unknown option 'tolerence'"):
        to_plain(function(lambda x: x), tmp_path / "target", **options)


def test_convert_error_survives_pickling() -> None:
    import pickle

    before = ConvertError("text", node="a/b", op="CudnnRNN")
    after = pickle.loads(pickle.dumps(before))
    assert (str(after), after.node, after.op) == ("text", "a/b", "CudnnRNN")


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("missing", "call"),
    [
        ("tf2onnx", "convert.to_onnx(model, folder + '/model.onnx')"),
        pytest.param(
            "onnxruntime",
            "convert.to_onnx(model, folder + '/model.onnx')",
            # It needs the packages that are imported before.
            marks=pytest.mark.convert,
        ),
        ("ai_edge_litert", "convert.to_tflite(model, folder + '/model.tflite')"),
    ],
)
def test_convert_missing_package_is_named_and_to_plain_needs_none(
    missing: str, call: str, tmp_path: Path
) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
import tensorflow as tf
import opwright
assert "opwright_runtime.convert" not in sys.modules
from opwright import convert
folder = sys.argv[1]
spec = tf.TensorSpec([None, 3], name="x")
model = tf.function(lambda x: x + 1, input_signature=[spec])
convert.to_plain(model, folder + "/plain")
assert not any(n.startswith(("onnx", "tf2onnx", "ai_edge")) and sys.modules[n]
               for n in sys.modules)
try:
    {call}
except convert.ConvertError as error:
    assert {missing!r} in str(error) and "opwright[convert]" in str(error), error
else:
    raise AssertionError("not refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
