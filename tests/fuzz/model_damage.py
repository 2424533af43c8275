"""Damages models: the bytes of their files, and the messages in them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

_INTEGERS = (0, 1, -1, 2, 3, 7, 255, 2**20, 2**31 - 1, -(2**31), 2**62, 2**63 - 1)
_FLOATS = (0.0, -1.0, 0.5, float("nan"), float("inf"), 3e38)
_NAMES = ("", "x", "../../outside", "/outside", "a:0", "^a", "\x00", "n" * 300)
_ENUMS = (0, 1, 2, 3, 7, 9, 10, 20, 23, 101, 999)
_DEEPEST = 12


def damage(source: Path, target: Path, kind: Any, rng: random.Random) -> None:
    """Writes a damaged copy of a model.

    Args:
        source: the folder of a SavedModel, or the file of a GraphDef.
        target: the copy.
        kind: the class of the message in the file.
        rng: decides on the damage.
    """
    if source.is_file():
        target.write_bytes(_bent(source.read_bytes(), kind, rng))
        return
    shutil.copytree(source, target)
    graph = target / "saved_model.pb"
    if rng.random() < 0.85:
        graph.write_bytes(_bent(graph.read_bytes(), kind, rng))
        return
    file = rng.choice(sorted(one for one in target.rglob("*") if one.is_file()))
    if rng.random() < 0.2:
        file.unlink()
    else:
        file.write_bytes(_bent_bytes(file.read_bytes(), rng))


def _bent(data: bytes, kind: Any, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return _bent_bytes(data, rng)
    message = kind()
    message.ParseFromString(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
        if rng.random() < 0.5:
            _bend_nodes(message, rng)
        else:
            _bend(message, rng)
    try:
        return bytes(message.SerializeToString(deterministic=True))
    except (DecodeError, ValueError):
        return data[: rng.randrange(len(data))]


def _bent_bytes(data: bytes, rng: random.Random) -> bytes:
    bent = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 40])):
        if len(bent) < 8:
            break
        at = rng.randrange(len(bent))
        what = rng.randrange(5)
        if what == 0:
            bent[at] = rng.randrange(256)
        elif what == 1:
            del bent[at : at + rng.randrange(1, 50)]
        elif what == 2:
            bent[at:at] = bent[: rng.randrange(1, 50)]
        elif what == 3:
            bent[at] ^= 1 << rng.randrange(8)
        elif rng.random() < 0.2:
            del bent[at:]
    return bytes(bent)


def _graphs(message: Any) -> Iterator[Any]:
    """The GraphDefs in a SavedModel, or the message itself."""
    metas = getattr(message, "meta_graphs", None)
    yield from [message] if metas is None else (meta.graph_def for meta in metas)


def _bend_nodes(message: Any, rng: random.Random) -> None:
    """Changes what a node is, reads or has as attrs; recurrent nodes first."""
    graphs = [*_graphs(message)]
    functions = [one for graph in graphs for one in graph.library.function]
    bodies = [graph.node for graph in graphs] + [one.node_def for one in functions]
    full = [body for body in bodies if len(body)]
    if not full:
        return
    nodes = rng.choice(full)
    recurrent = [node for node in nodes if "RNN" in node.op]
    node = rng.choice(recurrent if recurrent and rng.random() < 0.7 else [*nodes])
    other = rng.choice([*nodes])
    attrs = sorted(node.attr)
    kind = rng.randrange(9)
    if kind == 0:
        node.op = other.op
    elif kind == 1 and node.input:
        del node.input[rng.randrange(len(node.input))]
    elif kind == 2:
        node.input.append(other.name + rng.choice(["", ":0", ":7:9"]))
    elif kind == 3 and attrs:
        del node.attr[rng.choice(attrs)]
    elif kind == 4 and attrs:
        _bend_attr(node.attr[rng.choice(attrs)], rng)
    elif kind == 5 and functions:
        library = rng.choice(graphs).library.function
        if library:
            del library[rng.randrange(len(library))]
    elif kind == 6:
        node.name = other.name
    elif kind == 7 and node.input:
        node.input[rng.randrange(len(node.input))] = other.name
    elif functions:
        calls = [v for n in nodes for v in n.attr.values() if v.HasField("func")]
        for value in calls[:1]:
            value.func.name = rng.choice(functions).signature.name


def _bend_attr(value: Any, rng: random.Random) -> None:
    new: dict[str, Any] = {
        "i": rng.choice(_INTEGERS),
        "f": rng.choice(_FLOATS),
        "b": rng.random() < 0.5,
        "type": rng.choice(_ENUMS),
        "s": rng.choice(_NAMES).encode(),
    }
    field = rng.choice(sorted(new))
    setattr(value, field, new[field])


def _bend(message: Message, rng: random.Random, depth: int = 0) -> None:
    """Changes one field somewhere in a message."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = rng.choice(fields)
    many = field.is_repeated
    if many and rng.random() < 0.2:
        _bend_list(message, field, value, rng)
    elif field.message_type is not None:
        below = [value]
        if many:
            is_map = field.message_type.GetOptions().map_entry
            below = [value[key] for key in sorted(value)] if is_map else [*value]
            below = [one for one in below if isinstance(one, Message)]
        if below and depth < _DEEPEST:
            _bend(rng.choice(below), rng, depth + 1)
    elif many:
        at = rng.randrange(len(value))
        _put(lambda new: value.__setitem__(at, new), field, value[at], rng)
    else:
        _put(lambda new: setattr(message, field.name, new), field, value, rng)


def _bend_list(message: Message, field: Any, value: Any, rng: random.Random) -> None:
    """Removes, repeats or clears elements."""
    if rng.random() < 0.2:
        message.ClearField(field.name)
    elif hasattr(value, "keys"):
        del value[rng.choice(sorted(value.keys()))]
    else:
        at = rng.randrange(len(value))
        if rng.random() < 0.5:
            del value[at]
        elif field.message_type is None:
            value.append(value[at])
        else:
            value.add().CopyFrom(value[at])


def _put(
    put: Callable[[Any], Any], field: Any, before: Any, rng: random.Random
) -> None:
    """Puts another value of the field's type."""
    types, kind = FieldDescriptor, field.cpp_type
    new: Any
    if kind in (types.CPPTYPE_INT32, types.CPPTYPE_INT64):
        new = rng.choice([*_INTEGERS, before + 1, before - 1])
    elif kind in (types.CPPTYPE_UINT32, types.CPPTYPE_UINT64):
        new = abs(rng.choice(_INTEGERS))
    elif kind in (types.CPPTYPE_FLOAT, types.CPPTYPE_DOUBLE):
        new = rng.choice(_FLOATS)
    elif kind == types.CPPTYPE_BOOL:
        new = not before
    elif kind == types.CPPTYPE_ENUM:
        new = rng.choice(_ENUMS)
    elif field.type == types.TYPE_BYTES:
        new = _bent_bytes(before, rng) if before else b"\xff"
    else:
        new = rng.choice([*_NAMES, before + "x", before[:-1]])
    try:
        put(new)
    except ValueError:
        # The field is too narrow for it.
        put(type(before)(1))
