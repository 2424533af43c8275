"""A call of an op as data: drawn, damaged, written down, and made again.

A scenario is a list of calls. Its tensors are literals, or outputs of calls before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message
from tensorflow.core.framework import op_def_pb2
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)
from tensorflow.python.framework import dtypes, op_def_registry

# A tensor of more elements is never made; a larger shape has a dimension of 0.
MOST_ELEMENTS = 1 << 16
# What some strings are.
MESSAGES: dict[str, type[Message]] = {
    "config": TPUEmbeddingConfiguration,
    "tpu_embedding_config": TPUEmbeddingConfiguration,
    "tuple_mask": TensorProto,
}


@dataclass
class Literal:
    """A tensor: its values if they are few, or what they are drawn from."""

    dtype: str
    shape: list[int]
    values: list[Any] | None = None
    fill: Any = None  # All elements;
    normal: int | None = None  # or a seed: normally distributed.
    scale: float = 1.0
    put: dict[int, Any] = field(default_factory=dict)  # Elements that are others.

    @property
    def size(self) -> int:
        return int(np.prod(np.array(self.shape, object), initial=1))

    def array(self) -> Any:
        """Flat, and of the dtype; bfloat16 is TensorFlow's NumPy extension."""
        if self.dtype == "string":
            values = [self.fill] * self.size if self.values is None else self.values
            return np.array(
                [v.encode() if isinstance(v, str) else v for v in values], object
            )
        dtype = dtypes.as_dtype(self.dtype).as_numpy_dtype
        with np.errstate(all="ignore"):
            if self.normal is not None:
                rng = np.random.default_rng(self.normal)
                result = (rng.standard_normal(self.size) * self.scale).astype(dtype)
            elif self.values is not None:
                result = np.array(
                    self.values, np.float64 if "f" in self.dtype else None
                )
                result = result.astype(dtype)
            else:
                result = np.full(self.size, self.fill or 0, dtype)
            for at, value in self.put.items():
                if at < result.size:
                    result[at] = value
        return result


@dataclass
class Made:
    """An output of an earlier call, perhaps with some bytes or elements changed."""

    call: int
    output: int
    put: dict[int, Any] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)  # From the end where negative.


Value = Literal | Made


@dataclass
class Call:
    op: str
    inputs: dict[str, Value | list[Value]] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    way: str = "eager"
    device: int = 0
    # What was done to it; nothing: it is as it should be.
    damage: list[str] = field(default_factory=list)

    def values(self) -> Iterator[Value]:
        for value in self.inputs.values():
            yield from value if isinstance(value, list) else [value]


@dataclass
class Scenario:
    family: str
    calls: list[Call]


@cache
def op_def(name: str) -> op_def_pb2.OpDef:
    return op_def_registry.get(name)


@cache
def attr_kinds(name: str) -> dict[str, str]:
    return {attr.name: attr.type for attr in op_def(name).attr}


@cache
def settled(name: str) -> frozenset[str]:
    """Attrs that inputs settle."""
    args = op_def(name).input_arg
    return frozenset(
        attr
        for arg in args
        for attr in (arg.type_attr, arg.number_attr, arg.type_list_attr)
        if attr
    )


# Written down.


def _bytes_out(name: str, value: bytes) -> Any:
    message = MESSAGES.get(name)
    if message is not None and value:
        try:
            parsed = message.FromString(value)
            text = text_format.MessageToString(parsed)
            again = text_format.Parse(text, message()).SerializeToString()
            if again == value:
                return {"text": text}
        except (DecodeError, text_format.ParseError, ValueError):
            pass
    try:
        text = value.decode("ascii")
        if text.isprintable():
            return text
    except UnicodeDecodeError:
        pass
    return {"hex": value.hex()}


def _bytes_in(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    message = text_format.Parse(value["text"], MESSAGES[name]())
    return bytes(message.SerializeToString())


def _value_out(value: Value) -> Any:
    if isinstance(value, Made):
        out: dict[str, Any] = {"call": value.call, "output": value.output}
        if value.bytes:
            out["bytes"] = value.bytes
    else:
        out = {"dtype": value.dtype, "shape": value.shape}
        if value.normal is not None:
            out |= {"normal": value.normal, "scale": value.scale}
        elif value.values is None:
            out["fill"] = value.fill
        else:
            out["values"] = [
                _bytes_out("", v) if isinstance(v, bytes) else v for v in value.values
            ]
    if value.put:
        out["put"] = value.put
    return out


def _value_in(value: Any) -> Value:
    value = dict(value)
    for name in {"put", "bytes"} & value.keys():
        value[name] = {int(at): new for at, new in value[name].items()}
    if "call" in value:
        return Made(**value)
    if value["dtype"] == "string" and "values" in value:
        value["values"] = [_bytes_in("", v) for v in value["values"]]
    return Literal(**value)


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """What YAML can say."""
    calls = []
    for call in scenario.calls:
        one: dict[str, Any] = {"op": call.op}
        if call.inputs:
            one["inputs"] = {
                name: (
                    [_value_out(v) for v in value]
                    if isinstance(value, list)
                    else _value_out(value)
                )
                for name, value in call.inputs.items()
            }
        if call.attrs:
            one["attrs"] = {
                name: (
                    _bytes_out(name, value)
                    if isinstance(value, bytes)
                    else (
                        [
                            _bytes_out("", v) if isinstance(v, bytes) else v
                            for v in value
                        ]
                        if isinstance(value, list)
                        else value
                    )
                )
                for name, value in call.attrs.items()
            }
        one["way"] = call.way
        if call.device:
            one["device"] = call.device
        if call.damage:
            one["damage"] = call.damage
        calls.append(one)
    return {"family": scenario.family, "calls": calls}


def from_plain(plain: dict[str, Any]) -> Scenario:
    calls = []
    for one in plain["calls"]:
        one = dict(one)
        kinds = attr_kinds(one["op"])
        one["inputs"] = {
            name: (
                [_value_in(v) for v in value]
                if isinstance(value, list)
                else _value_in(value)
            )
            for name, value in one.get("inputs", {}).items()
        }
        attrs = {}
        for name, value in one.get("attrs", {}).items():
            kind = kinds.get(name)
            if kind == "string":
                value = _bytes_in(name, value)
            elif kind == "list(string)":
                value = [_bytes_in("", v) for v in value]
            attrs[name] = value
        one["attrs"] = attrs
        calls.append(Call(**one))
    return Scenario(plain["family"], calls)
