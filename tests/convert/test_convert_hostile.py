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
