"""SavedModels as messages: reading, editing and writing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from opwright_runtime.convert import files, graphs
from opwright_runtime.convert.errors import ConvertError
from opwright_runtime.convert.layers import BACKWARD, FORWARD, OPS
from opwright_runtime.convert.rewrite import Found, Replace, replace_nodes

SavedModel: TypeAlias = Any
_Message: Any = vars(saved_model_pb2)["SavedModel"]

_GRAPH = "saved_model.pb"
_TEXT = "saved_model.pbtxt"
# The folders that a SavedModel has besides its graph.
_KEPT = ("variables", "assets", "assets.extra")


def is_saved_model(folder: Path) -> bool:
    names = (_GRAPH, _TEXT, "saved_model.cpb")
    return folder.is_dir() and any((folder / name).is_file() for name in names)


def read(folder: Path) -> SavedModel:
    """Parses the graph of a SavedModel.

    Raises:
        ConvertError: there is none, or it is damaged.
    """
    message = _Message()
    try:
        if (folder / _GRAPH).is_file():
            message.ParseFromString((folder / _GRAPH).read_bytes())
        elif (folder / _TEXT).is_file():
            text_format.Parse((folder / _TEXT).read_text("utf-8"), message)
        elif (folder / "saved_model.cpb").is_file():
            raise ConvertError(
                f"{folder} is saved in chunks; save it without "
                "experimental_image_format"
            )
        else:
            raise ConvertError(f"{folder} has no {_GRAPH}; save the model again")
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise ConvertError(
            f"the graph of {folder} is damaged: {error}; save the model again"
        ) from error
    except OSError as error:
        raise ConvertError(f"{folder} cannot be read: {error}") from error
    if not message.meta_graphs:
        raise ConvertError(f"{folder} has no graph; save the model again")
    for meta in message.meta_graphs:
        graphs.refuse_recursion(meta.graph_def, str(folder))
    return message


def signatures_of(model: SavedModel) -> list[str]:
    """The signatures of a SavedModel with their inputs, for an error."""
    return [
        f"{name!r} has the inputs {', '.join(map(repr, sorted(one.inputs))) or 'none'}"
        for meta in model.meta_graphs
        for name, one in sorted(meta.signature_def.items())
        if not name.startswith("__saved_model_")
    ] or ["there is none"]


def replace_in(model: SavedModel, ops: frozenset[str], replace: Replace) -> list[Found]:
    """Replaces nodes in all graphs of a SavedModel, in place."""
    found = []
    for meta in model.meta_graphs:
        found += replace_nodes(meta.graph_def, ops, replace)
        listed = meta.meta_info_def.stripped_op_list
        kept = [op for op in listed.op if op.name not in OPS]
        del listed.op[:]
        listed.op.extend(kept)
    return found


def write(model: SavedModel, source: Path, target: Path) -> None:
    """Writes a SavedModel with the variables and assets of another one."""
    target.mkdir()
    (target / _GRAPH).write_bytes(model.SerializeToString(deterministic=True))
    for name in _KEPT:
        if (source / name).is_dir():
            files.copy_tree(source / name, target / name)


def without_dropout(source: Path, target: Path) -> None:
    """Writes a copy of a SavedModel whose recurrent nodes apply no dropout."""
    model = read(source)
    for meta in model.meta_graphs:
        for node in graphs.nodes(meta.graph_def):
            if node.op in (*FORWARD, *BACKWARD):
                node.attr["dropout"].f = 0.0
    write(model, source, target)


def left(model: SavedModel, ops: frozenset[str]) -> set[str]:
    """Those of these ops that the graphs have."""
    found = {
        node.op for meta in model.meta_graphs for node in graphs.nodes(meta.graph_def)
    }
    return found & ops
