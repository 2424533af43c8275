"""Damaged models: a readable error, and nothing is written."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from convert.support.models import saved_on_a_gpu
from opwright.convert import ConvertError, to_plain


def message(folder: Path) -> Any:
    from tensorflow.core.protobuf import saved_model_pb2

    found = saved_model_pb2.SavedModel()
    found.ParseFromString((folder / "saved_model.pb").read_bytes())
    return found


def message_of(meta: Any) -> Any:
    from tensorflow.core.protobuf import saved_model_pb2

    return saved_model_pb2.SavedModel(meta_graphs=[meta])


def saved_small(folder: Path) -> None:
    module: Any = tf.Module()
    spec = tf.TensorSpec([None, 2], name="x")
    module.serve = tf.function(lambda x: {"y": x + 1}, input_signature=[spec])
    tf.saved_model.save(module, str(folder), signatures=module.serve)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("attr", "value"),
    [("rnn_mode", b"transformer"), ("direction", b""), ("input_mode", b"\\xff")],
)
def test_to_plain_an_unknown_attr_value_is_refused(
    attr: str, value: bytes, tmp_path: Path
) -> None:
    saved_on_a_gpu(tmp_path / "source")
    damaged = message(tmp_path / "source")
    for meta in damaged.meta_graphs:
        for function in meta.graph_def.library.function:
            for node in function.node_def:
                if node.op == "CudnnRNNV3":
                    node.attr[attr].s = value
    (tmp_path / "source" / "saved_model.pb").write_bytes(damaged.SerializeToString())
    with pytest.raises(ConvertError):
        to_plain(tmp_path / "source", tmp_path / "target")
    assert [one.name for one in tmp_path.iterdir()] == ["source"]


@pytest.mark.rotating
def test_to_plain_an_unregistered_op_is_named(tmp_path: Path) -> None:
    saved_on_a_gpu(tmp_path / "source")
    changed = message(tmp_path / "source")
    nodes = changed.meta_graphs[0].graph_def.library.function[0].node_def
    nodes.add(name="odd", op="NoSuchOp")
    (tmp_path / "source" / "saved_model.pb").write_bytes(changed.SerializeToString())
    with pytest.raises(ConvertError, match=r"odd'.*op NoSuchOp is not registered here"):
        to_plain(tmp_path / "source", tmp_path / "target")


@pytest.mark.rotating
def test_to_plain_a_pipe_among_the_variables_is_refused(tmp_path: Path) -> None:
    saved_on_a_gpu(tmp_path / "source")
    os.mkfifo(tmp_path / "source" / "variables" / "pipe")
    with pytest.raises(ConvertError, match="pipe is neither a file nor a folder"):
        to_plain(tmp_path / "source", tmp_path / "target")
    assert [one.name for one in tmp_path.iterdir()] == ["source"]


def calling(calls: dict[str, str]) -> Any:
    """A GraphDef with these functions, each of which calls another one or none."""
    graph = tf.compat.v1.GraphDef()

    def called(node: Any, name: str) -> None:
        node.input.append("x")
        if name:
            node.op, node.attr["f"].func.name = "PartitionedCall", name
            for key in ("Tin", "Tout"):
                node.attr[key].list.type.append(tf.float32.as_datatype_enum)
        else:
            node.op, node.attr["T"].type = "Identity", tf.float32.as_datatype_enum

    for name, inner in calls.items():
        function = graph.library.function.add()
        function.signature.name = name
        function.signature.input_arg.add(name="x", type=tf.float32.as_datatype_enum)
        function.signature.output_arg.add(name="y", type=tf.float32.as_datatype_enum)
        called(function.node_def.add(name="c"), inner)
        function.ret["y"] = "c:output:0"
    x = graph.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = tf.float32.as_datatype_enum
    x.attr["shape"].shape.dim.add(size=3)
    called(graph.node.add(name="y"), next(iter(calls)))
    return graph


RECURSIONS = {
    "itself": ({"f": "f"}, "has a function that calls itself, 'f'; use a loop"),
    "through others": (
        {"f": "g", "g": "h", "h": "g", "k": ""},
        "has a function that calls itself, 'g'; use a loop",
    ),
    "many levels": (
        {f"f{i}": f"f{i + 1}" for i in range(2999)} | {"f2999": ""},
        "calls of functions in 3000 levels, and at most 200 are converted",
    ),
}


@pytest.mark.parametrize("name", RECURSIONS)
def test_to_plain_functions_without_end_are_refused(name: str, tmp_path: Path) -> None:
    """TensorFlow would end the process, in its inference of shapes."""
    calls, words = RECURSIONS[name]
    graph = calling(calls)
    (tmp_path / "frozen.pb").write_bytes(graph.SerializeToString())
    with pytest.raises(ConvertError, match=words):
        to_plain(tmp_path / "frozen.pb", tmp_path / "plain.pb")
    meta = tf.compat.v1.MetaGraphDef(graph_def=graph)
    meta.graph_def.versions.producer = tf.compat.v1.GRAPH_DEF_VERSION
    (tmp_path / "model.meta").write_bytes(meta.SerializeToString())
    with pytest.raises(ConvertError, match=words):
        to_plain(tmp_path / "model.meta", tmp_path / "plain")
    saved = message_of(meta)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(ConvertError, match=words):
        to_plain(tmp_path / "source", tmp_path / "plain")
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "frozen.pb",
        "model.meta",
        "source",
    ]


def test_to_plain_functions_in_few_levels_are_converted(tmp_path: Path) -> None:
    graph = calling({"f": "g", "h": "", "g": "h"})
    report = to_plain(graph, tmp_path / "plain.pb")
    assert report.difference == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_to_plain_a_damaged_graph_file_is_refused(seed: int, tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
        tf.identity(x + 1, "y")
    data = graph.as_graph_def().SerializeToString()
    cut = data[: random.Random(seed).randrange(1, len(data) - 1)]
    (tmp_path / "frozen.pb").write_bytes(cut)
    try:
        to_plain(tmp_path / "frozen.pb", tmp_path / "plain.pb", check=False)
    except ConvertError as error:
        assert str(error)
        assert [one.name for one in tmp_path.iterdir()] == ["frozen.pb"]
    else:
        assert (tmp_path / "plain.pb").is_file()


def test_to_plain_a_file_that_is_no_meta_graph_is_refused(tmp_path: Path) -> None:
    for data in (b"\xff\xff", b"no graph"):
        (tmp_path / "model.meta").write_bytes(data)
        with pytest.raises(
            ConvertError, match=r"is damaged, or no meta graph: .*again"
        ):
            to_plain(tmp_path / "model.meta", tmp_path / "plain")
    assert [one.name for one in tmp_path.iterdir()] == ["model.meta"]


def test_to_plain_damaged_lists_of_signatures_are_refused(tmp_path: Path) -> None:
    saved_small(tmp_path / "source")
    damaged = message(tmp_path / "source")
    objects = damaged.meta_graphs[0].object_graph_def
    for one in objects.nodes:
        if one.user_object.identifier == "signature_map":
            one.user_object.identifier = "x"
    (tmp_path / "source" / "saved_model.pb").write_bytes(damaged.SerializeToString())
    with pytest.raises(ConvertError, match="no list of signatures, or a damaged one"):
        to_plain(tmp_path / "source", tmp_path / "target")
    for one in objects.nodes[0].children:
        one.local_name = "other"
    (tmp_path / "source" / "saved_model.pb").write_bytes(damaged.SerializeToString())
    with pytest.raises(ConvertError, match="no list of signatures, or a damaged one"):
        to_plain(tmp_path / "source", tmp_path / "target")
    assert [one.name for one in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (-7, r"input 'x' has the shape .*-7.*, and sizes are at least 0; save the"),
        (1 << 40, r"input 'x' has the shape .*numbers are drawn; pass samples, or"),
    ],
)
def test_to_plain_an_input_of_impossible_size_is_refused(
    size: int, words: str, tmp_path: Path
) -> None:
    saved_small(tmp_path / "source")
    damaged = message(tmp_path / "source")
    for one in damaged.meta_graphs[0].object_graph_def.concrete_functions.values():
        _, keywords = one.canonicalized_input_signature.tuple_value.values
        if "x" in keywords.dict_value.fields:
            spec = keywords.dict_value.fields["x"].tensor_spec_value
            spec.shape.dim[0].size = size
    (tmp_path / "source" / "saved_model.pb").write_bytes(damaged.SerializeToString())
    with pytest.raises(ConvertError, match=words):
        to_plain(tmp_path / "source", tmp_path / "target")
    assert [one.name for one in tmp_path.iterdir()] == ["source"]
