"""Calls near one that TensorFlow takes: the example of an op, with arguments bent."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeGuard

import numpy as np
import tensorflow as tf

import opwright
from opwright_codegen.load import load_text
from opwright_codegen.model import Op
from opwright_runtime._binding.op_info import ArgInfo, OpInfo
from reference.support.examples import run
from support.places import OPDEFS

#: Dtypes that arguments are changed to.
DTYPES = ("int32", "int64", "uint8", "float32")
#: Elements of a tensor, at most.
LARGEST = 10_000

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Plain:
    """A value for a tensor that is given as it is, and is no tensor before the call."""

    value: Any


@dataclass(frozen=True)
class Bent:
    """A call whose arguments were changed.

    Attributes:
        arguments: inputs as arrays, or as tensors where those have no array; attrs.
        fitting: the arguments that TensorFlow takes, of which they are made.
        way: "eager" or "graph".
        unheld: whether an argument is a plain value with a number that its dtype cannot
            hold.
    """

    op: str
    arguments: Arguments
    fitting: Arguments
    way: str
    unheld: bool = False


def info_of(name: str) -> OpInfo:
    cls: Any = opwright.op_class(name)
    info: OpInfo = cls._info()
    return info


def examples(name: str) -> list[Arguments]:
    """The arguments of the calls in an op's example, by their OpDef's names."""
    (path,) = OPDEFS.glob(f"*/{name}.yaml")
    op, problems = load_text(path.read_bytes(), path)
    assert op is not None, problems
    return list(_examples(op))


def _examples(op: Op) -> Iterator[Arguments]:
    info = info_of(op.name)
    for call in run(op).calls:
        given = {}
        try:
            for arg, value in zip(info.inputs, call.inputs, strict=True):
                values = [plain(one, arg) for one in value] if arg.is_list else value
                given[arg.name] = values if arg.is_list else plain(value, arg)
        except (TypeError, ValueError, NotImplementedError, tf.errors.OpError):
            continue
        yield {**given, **call.attrs}


def plain(value: Any, arg: ArgInfo) -> Any:
    """An input as an array; as the tensor that it is, if there is none like it."""
    tensor = tf.convert_to_tensor(value, arg.dtype)
    if tensor.dtype in (tf.resource, tf.variant) or tensor.dtype.is_quantized:
        return tensor
    return np.asarray(tensor)


def draw(name: str, fitting: Arguments, drawing: random.Random) -> Bent:
    """A call with one or two arguments bent, or with a number that is too large."""
    info = info_of(name)
    bent = Bent(name, fitting, fitting, "eager" if drawing.random() < 0.8 else "graph")
    places = [*_integers(info, fitting)]
    if places and drawing.random() < 0.1:
        arguments = with_unheld(fitting, *drawing.choice(places), drawing)
        return replace(bent, arguments=arguments, unheld=True)
    for _ in range(drawing.choice((1, 1, 2))):
        bent = replace(bent, arguments=bend(info, bent.arguments, drawing))
    return bent


def _integers(info: OpInfo, arguments: Arguments) -> Iterator[tuple[str, int | None]]:
    """Where tensors of integers are whose dtype others settle, or the op."""
    for arg in info.inputs:
        given = arguments[arg.name]
        same = [one for one in info.inputs if one.type_attr == arg.type_attr]
        is_settled = arg.dtype is not None or (
            arg.type_attr is not None and (len(same) > 1 or (arg.is_list and given[1:]))
        )
        if arg.is_ref or not is_settled:
            continue
        for at in range(len(given)) if arg.is_list else [None]:
            array = tensor_at(arguments, arg.name, at)
            if has_integers(array) and array.size:
                yield arg.name, at


def has_integers(value: Any) -> TypeGuard[np.ndarray]:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu"


def with_unheld(
    arguments: Arguments, name: str, at: int | None, drawing: random.Random
) -> Arguments:
    """The arguments with a number in a tensor's place that its dtype cannot hold."""
    array = tensor_at(arguments, name, at)
    limits = np.iinfo(array.dtype)
    number = drawing.choice((limits.max + 1, limits.min - 1, limits.min - 300, 0.5))
    values = array.astype(object)
    values.flat[drawing.randrange(array.size)] = number
    # TensorFlow refuses a float in a list, and cuts one in an array.
    plain = np.array(values.tolist()) if number == 0.5 else values.tolist()
    return with_tensor(arguments, name, at, Plain(plain))


def retyped(info: OpInfo, arguments: Arguments, drawing: random.Random) -> Arguments:
    """The arguments with another dtype of all inputs that share one."""
    changed = dict(arguments)
    for attr in info.attrs:
        args = [arg for arg in info.inputs if arg.type_attr == attr.name]
        allowed = [
            d for d in DTYPES if not attr.allowed or tf.as_dtype(d) in attr.allowed
        ]
        if attr.kind != "type" or not args or not allowed or drawing.random() < 0.4:
            continue
        dtype = drawing.choice(allowed)
        for arg in args:
            changed[arg.name] = each(arguments[arg.name], partial(cast, dtype=dtype))
    return changed


def each(value: Any, change: Callable[[Any], Any]) -> Any:
    return [change(one) for one in value] if isinstance(value, list) else change(value)


def cast(value: Any, dtype: str) -> Any:
    """An array of numbers in another dtype; anything else as it is."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        return value
    with np.errstate(invalid="ignore"):
        return value.astype(dtype)


def bend(info: OpInfo, arguments: Arguments, drawing: random.Random) -> Arguments:
    """The arguments with one tensor changed, or one list."""
    places = [
        (name, at)
        for name in (arg.name for arg in info.inputs)
        for at in (
            range(len(arguments[name])) if isinstance(arguments[name], list) else [None]
        )
        if isinstance(tensor_at(arguments, name, at), np.ndarray)
    ]
    if not places:
        return arguments
    name, at = drawing.choice(places)
    if at is not None and drawing.random() < 0.2:
        several = list(arguments[name])
        several[at : at + 1] = [several[at]] * drawing.choice((0, 2))
        return {**arguments, name: several}
    changed = drawing.choice((rank, size, size, value, dtype))(
        tensor_at(arguments, name, at), drawing
    )
    return with_tensor(arguments, name, at, changed) if fits(changed) else arguments


def fits(array: np.ndarray) -> bool:
    # TensorFlow makes no tensor of strings from an empty array.
    is_tensor = array.size > 0 or array.dtype.kind != "O"
    return is_tensor and array.size <= LARGEST and array.ndim <= 8


def tensor_at(arguments: Arguments, name: str, at: int | None) -> Any:
    return arguments[name] if at is None else arguments[name][at]


def with_tensor(
    arguments: Arguments, name: str, at: int | None, changed: Any
) -> Arguments:
    if at is not None:
        changed = [*arguments[name][:at], changed, *arguments[name][at + 1 :]]
    return {**arguments, name: changed}


def rank(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    """One dimension more, one less, or a vector."""
    axis = drawing.randint(0, array.ndim)
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: np.expand_dims(array, axis),
        lambda: np.stack([array, array], axis),
        lambda: array.reshape(-1),
    ]
    if array.ndim and array.size:
        kinds += [lambda: array[0, ...]] * 2
    return drawing.choice(kinds)()


def size(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    """Another size of one axis."""
    if not array.ndim:
        return np.stack([array] * drawing.choice((1, 2, 3)))
    axis = drawing.randrange(array.ndim)
    had = array.shape[axis]
    return resized(
        array, axis, drawing.choice((0, 1, max(had - 1, 0), had + 1, 2 * had))
    )


def resized(array: np.ndarray, axis: int, wanted: int) -> np.ndarray:
    """The array with `wanted` rows along an axis, its own again and again.

    An array that would have too many elements stays as it is.
    """
    had = array.shape[axis]
    shape = (*array.shape[:axis], wanted, *array.shape[axis + 1 :])
    elements = math.prod(shape)
    if elements > LARGEST:
        return array
    if not had or not elements:
        # It has no rows to take, or more than a list of their numbers can have.
        return np.full(shape, b"" if array.dtype.kind == "O" else 0, array.dtype)
    return np.take(array, np.arange(wanted) % had, axis)


def value(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    """Another value of one element."""
    if not array.size or array.dtype.kind not in "biuf":
        return array
    changed = array.copy()
    values = (-1, 0, 1, 2, 7, 100, -7)
    with np.errstate(all="ignore"):
        one = np.asarray(drawing.choice(values)).astype(array.dtype)
    changed[np.unravel_index(drawing.randrange(array.size), array.shape)] = one
    return changed


def dtype(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    changed: np.ndarray = cast(array, drawing.choice(DTYPES))
    return changed
