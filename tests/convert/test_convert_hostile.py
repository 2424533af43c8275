"""Damaged models: a readable error, and nothing is written."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from convert.support.models import Drawn, saved_on_a_gpu
from opwright.convert import ConvertError, to_plain
from support.processes import run_code
from support.tiers import part_of

PROGRAM = """
import random
import sys
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
import opwright
from opwright.convert import ConvertError, to_plain

folder, seeds = Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3]))
whole = (folder / "source" / "saved_model.pb").read_bytes()
damaged = folder / "damaged"
damaged.mkdir(exist_ok=True)
refused = 0


def bent_bytes(rng):
    data = bytearray(whole)
    for _ in range(rng.choice([1, 1, 2, 5, 40])):
        if len(data) < 100:
            break
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 50)]
        elif kind == 2:
            data[at:at] = data[: rng.randrange(1, 50)]
        else:
            del data[max(at, 50) :]
    return bytes(data)


def bent_message(rng):
    message = saved_model_pb2.SavedModel()
    message.ParseFromString(whole)
    graph = message.meta_graphs[0].graph_def
    for _ in range(rng.choice([1, 1, 2, 5])):
        functions = graph.library.function
        bodies = [graph.node, *(one.node_def for one in functions)]
        nodes = rng.choice([body for body in bodies if len(body)])
        recurrent = [node for node in nodes if node.op.startswith("Cudnn")]
        node = rng.choice(recurrent if recurrent and rng.random() < 0.7 else nodes)
        attrs = sorted(node.attr)
        kind = rng.randrange(7)
        if kind == 0:
            node.op = rng.choice([one.op for one in nodes])
        elif kind == 1 and node.input:
            del node.input[rng.randrange(len(node.input))]
        elif kind == 2:
            name = rng.choice([*nodes]).name
            node.input.append(name + rng.choice(["", ":0", ":7:9"]))
        elif kind == 3 and attrs:
            del node.attr[rng.choice(attrs)]
        elif kind == 4 and attrs:
            field = rng.choice(["i", "f", "b", "type"])
            value = rng.choice([0, 1, -1 if field == "i" else 1, 2])
            setattr(node.attr[rng.choice(attrs)], field, value)
        elif kind == 5 and functions:
            del functions[rng.randrange(len(functions))]
        else:
            node.name = rng.choice([*nodes]).name
    return message.SerializeToString()


for seed in seeds:
    rng = random.Random(seed)
    data = bent_bytes(rng) if seed % 2 else bent_message(rng)
    (damaged / "saved_model.pb").write_bytes(data)
    print(seed, flush=True)
    try:
        to_plain(damaged, folder / "target", check=False, overwrite=True)
    except ConvertError as error:
        assert str(error).strip()
        refused += 1
    names = {one.name for one in folder.iterdir()} - {"target"}
    assert names == {"source", "damaged"}, names
print("refused", refused)
"""


@pytest.mark.partial
@pytest.mark.parametrize("start", part_of(range(0, 5000, 50)))
def test_to_plain_damaged_saved_models_are_converted_or_refused(
    start: int, tmp_path: Path
) -> None:
    Drawn(3).save(tmp_path / "source")
    done = run_code(PROGRAM, tmp_path, str(start), str(start + 50))
    assert done.returncode == 0, (done.stdout[-100:], done.stderr[-2000:])
    assert int(done.stdout.split()[-1]) >= 5


def message(folder: Path) -> Any:
    from tensorflow.core.protobuf import saved_model_pb2

    found = saved_model_pb2.SavedModel()
    found.ParseFromString((folder / "saved_model.pb").read_bytes())
    return found


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


def test_to_plain_an_unregistered_op_is_named(tmp_path: Path) -> None:
    saved_on_a_gpu(tmp_path / "source")
    changed = message(tmp_path / "source")
    nodes = changed.meta_graphs[0].graph_def.library.function[0].node_def
    nodes.add(name="odd", op="NoSuchOp")
    (tmp_path / "source" / "saved_model.pb").write_bytes(changed.SerializeToString())
    with pytest.raises(ConvertError, match=r"odd'.*op NoSuchOp is not registered here"):
        to_plain(tmp_path / "source", tmp_path / "target")


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
