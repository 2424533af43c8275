"""Calls that TensorFlow takes, from the examples of opdefs, and the ways to make them.

An argument is a `TensorValue`, an `Opaque` value, a list of these, or an attr's value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

import opwright
from opwright_codegen.load import load_text
from opwright_codegen.model import Op
from opwright_runtime._binding.op_info import ArgInfo, OpInfo
from reference.support import examples
from support.equivalence.calls import (
    Called,
    call_opwright,
    call_opwright_function,
    call_tensorflow,
)
from support.places import OPDEFS

from .bends import each, info_of
from .ops_text import sources

Arguments = Mapping[str, Any]

#: Eagerly; in a tf.function whose arguments are the inputs, with known shapes; in a
#: tf.function that has them as constants.
MODES = ("eager", "function", "constant")
SIDES = {
    "raw": {"function": call_tensorflow, "class": call_tensorflow},
    "opwright": {"function": call_opwright_function, "class": call_opwright},
}
# What the elements of quantized tensors are written as.
STORED = {
    tf.qint8: tf.int8,
    tf.qint16: tf.int16,
    tf.qint32: tf.int32,
    tf.quint8: tf.uint8,
    tf.quint16: tf.uint16,
}
HANDLES = (tf.resource, tf.variant)


@dataclass(frozen=True, eq=False)
class TensorValue:
    """A tensor's elements.

    Attributes:
        array: those of quantized dtypes are integers of the same width.
        ones: axes of size 1 before those of the array. NumPy has 64 axes at most.
    """

    dtype: tf.DType
    array: np.ndarray
    ones: int = 0

    @cached_property
    def tensor(self) -> tf.Tensor:
        if self.ones:
            # Reshape gives 253 axes at most.
            shape = [1] * (self.ones - 1) + list(self.array.shape)
            plain = TensorValue(self.dtype, self.array).tensor
            return tf.expand_dims(tf.reshape(plain, shape), 0)
        stored = STORED.get(self.dtype, self.dtype)
        if self.array.size:
            made = tf.constant(self.array, stored)
        else:
            # It has no buffer, which some kernels do not survive. One that is made of
            # an array has a buffer.
            made = tf.zeros(tf.constant(self.array.shape, tf.int64), stored)
        return made if stored == self.dtype else tf.bitcast(made, self.dtype)


@dataclass(frozen=True, eq=False)
class Opaque:
    """A handle or a function: a value whose content is not known.

    Attributes:
        source: the Python expression that makes it, if that is known.
    """

    value: Any
    source: str | None = None


@dataclass
class Base:
    """A call of an example.

    Attributes:
        namespace: what the example has made, which its handles may need.
    """

    arguments: Arguments
    namespace: Mapping[str, Any] = field(repr=False)
    modes: tuple[str, ...] = MODES


class Example:
    """The example of an op, which is run again when its handles are needed anew."""

    def __init__(self, name: str) -> None:
        (path,) = OPDEFS.glob(f"*/{name}.yaml")
        op, problems = load_text(path.read_bytes(), path)
        assert op is not None, problems
        self.op: Op = op
        self.info: OpInfo = info_of(name)
        self.parts = [one.source for one in examples.parsed(op)]
        self.code = [compile(one, name, "exec") for one in self.parts]
        # To set the seed takes as long as hundreds of calls: kernels are made anew.
        self.is_random = any(re.search("rand|seed", one) for one in self.parts)

    def calls(self) -> list[Base]:
        """The calls that the example makes and that can be made again."""
        outcome = examples.Outcome()
        namespace = examples.namespace(self.op)
        with examples.recorded(self.op, outcome):
            if self.is_random:
                tf.random.set_seed(0)
            for code in self.code:
                try:
                    exec(code, namespace)
                except Exception:  # It may show what is refused.
                    continue
        return [
            Base(arguments, namespace)
            for number, call in enumerate(outcome.calls)
            if (arguments := self.arguments(call, number)) is not None
        ]

    def arguments(self, call: examples.Call, number: int) -> Arguments | None:
        """The arguments of a recorded call; None if one is of another graph."""
        known = sources(self.parts, self.info, number)
        dtypes = dict(_dtypes(self.info, call))
        found: dict[str, Any] = {}
        try:
            for arg, given in zip(self.info.inputs, call.inputs, strict=True):
                dtype = arg.dtype or dtypes.get(arg.type_attr or "")
                if not arg.is_list:
                    found[arg.name] = _held(given, dtype, known.get(arg.name))
                    continue
                texts = known.get(arg.name)
                listed = texts if isinstance(texts, list) else [None] * len(given)
                found[arg.name] = [
                    _held(one, dtype, text)
                    for one, text in zip(given, listed, strict=True)
                ]
        except (TypeError, ValueError, NotImplementedError, tf.errors.OpError):
            return None
        for name, value in call.attrs.items():
            if self.info.attr[name].kind in ("func", "list(func)"):
                value = Opaque(value, known.get(name))
            found[name] = value
        return found


def _dtypes(info: OpInfo, call: examples.Call) -> Iterator[tuple[str, tf.DType]]:
    """The dtypes that tensors settle for the other inputs of a type attr."""
    for arg, given in zip(info.inputs, call.inputs, strict=True):
        for one in given if arg.is_list and arg.type_attr else [given]:
            if arg.type_attr and hasattr(one, "dtype"):
                yield arg.type_attr, tf.as_dtype(one.dtype).base_dtype


def _held(given: Any, dtype: tf.DType | None, source: Any) -> TensorValue | Opaque:
    if dtype == tf.resource and hasattr(given, "handle"):
        given = given.handle
    tensor = tf.convert_to_tensor(given, dtype)
    if not hasattr(tensor, "numpy"):
        array = tf.get_static_value(tensor)
        if array is None:
            raise ValueError("the tensor of another graph")
        return TensorValue(tensor.dtype, _stored(tensor.dtype, np.asarray(array)))
    if tensor.dtype in HANDLES:
        return Opaque(tensor, source if isinstance(source, str) else None)
    if tensor.dtype in STORED:
        stored = tf.bitcast(tensor, STORED[tensor.dtype])
        return TensorValue(tensor.dtype, np.asarray(stored.numpy()))
    if tensor.dtype == tf.string:
        return TensorValue(tf.string, np.array(tensor.numpy(), object))
    return TensorValue(tensor.dtype, np.asarray(tensor.numpy()))


def _stored(dtype: tf.DType, array: np.ndarray) -> np.ndarray:
    """The elements as `TensorValue` has them."""
    return array.view(STORED[dtype].as_numpy_dtype) if dtype in STORED else array


def given(value: Any) -> Any:
    """An argument as an op takes it."""
    if isinstance(value, TensorValue):
        return value.tensor
    return value.value if isinstance(value, Opaque) else value


def tensors(arguments: Arguments) -> dict[str, Any]:
    return {name: each(value, given) for name, value in arguments.items()}


def make(info: OpInfo, side: str, entry: str, mode: str, given: Arguments) -> None:
    """Makes a call.

    Args:
        given: what `tensors` gives.

    Raises:
        Exception: the call is refused.
    """
    call = SIDES[side][entry]
    if mode == "eager":
        call(info.name, given)
        return
    names = {arg.name for arg in info.inputs} if mode == "function" else set()
    inputs = {name: value for name, value in given.items() if name in names}
    rest = {name: value for name, value in given.items() if name not in names}

    # Without it, a graph checks no value that is known only when it runs.
    checks = opwright.checked if side == "opwright" else nullcontext

    def traced(**inputs: Any) -> list[Any]:
        with checks():
            called: Called = call(info.name, {**inputs, **rest})
        return called.outputs

    tf.function(traced, autograph=False)(**inputs)


def fits(arg: ArgInfo, dtype: tf.DType) -> bool:
    return arg.dtype is None or arg.dtype == dtype


def has_handles(arguments: Arguments) -> bool:
    """Whether a call may change what later calls meet."""
    return any(
        isinstance(one, Opaque)
        for value in arguments.values()
        for one in (value if isinstance(value, list) else [value])
    )


def op_class(name: str) -> Any:
    return opwright.op_class(name)
