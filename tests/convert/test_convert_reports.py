"""What check and the conversions report: which nodes, in which words."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from convert.support.models import recurrent
from opwright.convert import ConvertError, Findings, Found, Report, Verdict, check
from opwright_runtime import convert_cli
from opwright_runtime.convert import numbers, reach
from opwright_runtime.convert.outcome import REFUSED, Comparison

LAYER = Found("f/node", "CudnnRNNV3", "gru, 1 x 8 units", "a loop of plain ops")
NAME = "a_long_name_of_a_scope/" * 6 + "CudnnRNN"


def graph_with_a_gradient() -> Any:
    """A SavedModel whose signature calls `serve`; nothing calls `gradient`."""
    from tensorflow.core.protobuf import saved_model_pb2

    model: Any = saved_model_pb2.SavedModel()
    meta = model.meta_graphs.add()
    for name, op in (("serve", "CudnnRNNV3"), ("gradient", "CudnnRNNBackpropV3")):
        function = meta.graph_def.library.function.add()
        function.signature.name = name
        function.node_def.add(name="inner", op=op)
    call = meta.graph_def.node.add(name="call", op="PartitionedCall")
    call.attr["f"].func.name = "serve"
    waits = meta.graph_def.node.add(name="waits", op="Identity", input=["call:0"])
    waits.input.append("^first")
    meta.graph_def.node.add(name="first", op="NoOp")
    meta.graph_def.node.add(name="unread", op="CudnnRNN")
    meta.signature_def["serving_default"].outputs["y"].name = "waits:0"
    meta.signature_def["other"].outputs["y"].name = "unread:0"
    return model


def test_draw_for_a_model_that_refuses_fractions_makes_floats_0_and_1() -> None:
    """Keras gives an Embedding without an input layer an input of floats."""

    def refuses_fractions(values: dict[str, Any]) -> dict[str, Any]:
        if (values["x"] % 1).any():
            raise ValueError
        return values

    specs = {"x": tf.TensorSpec([None, 5])}
    calls = numbers.draw(specs, {}, refuses_fractions)
    assert {float(one) for call in calls for one in call["x"].ravel()} == {0.0, 1.0}
    first, *_ = numbers.draw(specs, {}, lambda values: values)
    assert (first["x"] % 1).all()


STATES = {"x": tf.TensorSpec([None, None, 3]), "h": tf.TensorSpec([1, None, 2])}


@pytest.mark.parametrize("cells", [1, 6])
@pytest.mark.parametrize("steps", [0, 1])
def test_draw_of_lengths_has_those_that_the_model_takes(steps: int, cells: int) -> None:
    """States have dimensions too, which are no numbers of steps."""

    def takes(values: dict[str, Any]) -> dict[str, Any]:
        if values["n"].max() > values["x"].shape[steps]:
            raise ValueError
        return values

    specs = {
        "x": tf.TensorSpec([None, None, 3]),
        "h": tf.TensorSpec([cells, None, 2]),
        "n": tf.TensorSpec([None], tf.int32),
    }
    calls = numbers.draw(specs, {}, takes)
    assert all(takes(call) for call in calls)
    if cells == 1:
        assert max(call["n"].max() for call in calls) > 1


@pytest.mark.parametrize(
    ("dtypes", "of_format", "allowed"),
    [
        (["float32", "float64"], 2e-6, 2e-6),
        (["float16"], 2e-6, 2e-2),
        (["bfloat16"], 5e-2, 5e-2),
    ],
)
def test_tolerance_is_the_larger_one_of_dtypes_and_format(
    dtypes: list[str], of_format: float, allowed: float
) -> None:
    assert numbers.tolerance(dtypes, of_format) == allowed


def test_reach_of_a_signature_leaves_gradients_out() -> None:
    model = graph_with_a_gradient()
    one = {"waits", "first", "call", "serve/inner"}
    assert {*reach.of_signature(model, None)} == one
    assert {*reach.of_signature(model, "other")} == {"unread"}
    assert {*reach.of_signatures(model)} == one | {"unread"}
    assert {*reach.of_all(model)} == one | {"unread", "gradient/inner"}


def test_reach_of_sparse_and_composite_outputs_has_their_nodes() -> None:
    model = graph_with_a_gradient()
    outputs = model.meta_graphs[0].signature_def["other"].outputs
    outputs["y"].coo_sparse.values_tensor_name = "unread:0"
    outputs["z"].composite_tensor.components.add().name = "first:0"
    assert {*reach.of_signature(model, "other")} == {"unread", "first"}


def test_reach_of_a_model_without_signatures_is_all_of_it() -> None:
    model = graph_with_a_gradient()
    model.meta_graphs[0].signature_def.clear()
    assert reach.of_signatures(model).keys() == reach.of_all(model).keys()


@pytest.mark.convert
def test_check_lists_only_nodes_that_the_signature_reaches(tmp_path: Path) -> None:
    module: Any = tf.Module()
    module.serve = tf.function(
        lambda x: {"y": 2.0 * x},
        input_signature=[tf.TensorSpec([2, 3], name="x")],
        autograph=False,
    )
    module.train = tf.function(
        lambda x: recurrent(x, tf.zeros([84]))[0],
        input_signature=[tf.TensorSpec([None, None, 2], name="x")],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path / "source"), signatures=module.serve)
    found = check(tmp_path / "source")
    assert [one.barred for one in found.verdicts] == [{}, {}, {}]
    assert (found.works, found.found, found.others) == (True, (), 1)
    assert "recurrent nodes that no call of the signatures runs" in str(found)


@pytest.mark.parametrize(
    ("options", "layers"),
    [({"dropout": 0.5}, "lstm, 1 x 3 units"), ({"input_mode": "skip_input"}, "")],
)
def test_check_of_a_refused_model_still_lists_its_nodes(
    options: dict[str, Any], layers: str, tmp_path: Path
) -> None:
    def serve(x: Any) -> Any:
        states = tf.zeros([1, tf.shape(x)[1], 3])
        given = {"input": x, "input_h": states, "input_c": states}
        return tf.raw_ops.CudnnRNN(**given, params=tf.zeros([84]), **options)[0]

    spec = tf.TensorSpec([None, None, 2], name="x")
    found = check(tf.function(serve, input_signature=[spec], autograph=False))
    (node,) = found.found
    assert (node.op, node.layers, node.became) == ("CudnnRNN", layers, REFUSED)
    assert found.verdicts[0].refusal is not None
    table, _, rest = str(found).partition("TensorFlow without a GPU")
    assert "source nodes" in table and REFUSED in table
    assert found.verdicts[0].refusal.split()[-1] in rest


def test_findings_say_what_becomes_of_nodes_and_which_command_to_run() -> None:
    verdict = Verdict("ONNX", "onnx", {"CudnnRNNV3": 1}, None)
    text = str(Findings("model.keras", 9, (LAYER,), (verdict,)))
    assert "becomes" in text and "became" not in text and "source nodes" in text
    assert "yes: opwright-convert onnx MODEL TARGET" in text
    assert "recurrent nodes that no call" not in text


def test_findings_keep_a_long_node_name_in_one_piece() -> None:
    refusal = f"node {NAME!r} (CudnnRNN): it applies dropout"
    verdict = Verdict("ONNX", "onnx", {}, refusal)
    text = str(Findings("model", 9, (), (verdict,)))
    assert "refused: see below" in text
    assert f"{NAME!r}" in text
    assert "ONNX: refused: node" in text


def test_report_says_whose_times_they_are() -> None:
    numbers = Comparison(0.0, 1.0, 1.0, 4, 0.5, 0.7)
    report = Report("m", "t", "ONNX", (LAYER,), 1, 1, {"serve": numbers})
    text = str(report)
    assert "a call of serve on this machine" in text
    assert "became" in text and "source nodes" in text


@pytest.mark.parametrize(
    ("scale", "allowed"), [(0.25, "allowed: 2e-06"), (3.0, "allowed: 6e-06")]
)
def test_report_has_the_largest_value_beside_the_largest_difference(
    scale: float, allowed: str
) -> None:
    numbers = Comparison(1e-6, 2e-6, scale, 4, 0.5, 0.7)
    text = str(Report("m", "t", "ONNX", (LAYER,), 1, 1, {"serve": numbers}))
    (line,) = [one for one in text.splitlines() if "largest difference" in one]
    assert (
        line.split()
        == (
            f"largest difference values up to {scale:.2g} 1e-06 ({allowed}, 4 calls)"
        ).split()
    )


def test_check_of_a_missing_file_names_only_kinds_of_files() -> None:
    with pytest.raises(ConvertError) as caught:
        check("no_model")
    assert str(caught.value) == (
        "no_model does not exist; a path must be the folder of a SavedModel, a .keras "
        "or .h5 file, a frozen GraphDef (.pb) or a meta graph (.meta)"
    )


def test_convert_command_warnings_of_packages_are_hidden(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logger = tf.get_logger()
    level = logger.level
    logger.addHandler(caplog.handler)

    def run(options: Any, notify: Any) -> Any:
        logger.warning("a deprecated call")
        logger.error("a real error")
        warnings.warn("an old call", DeprecationWarning, stacklevel=1)
        return "done"

    monkeypatch.setattr(convert_cli, "_run", run)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            assert convert_cli.main(["check", "model"]) == 0
    finally:
        logger.removeHandler(caplog.handler)
    assert {one.message for one in caplog.records} == {"a real error"}
    assert not warned and logger.level == level
