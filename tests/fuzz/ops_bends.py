"""Bends of an op's arguments, each of which is applied alone or after others."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_runtime._binding.attrs import AttrInfo, element
from opwright_runtime._binding.op_info import OpInfo

from . import bends
from .bends import tensor_at, with_tensor
from .ops_calls import MODES, STORED, Arguments, Base, Opaque, TensorValue
from .ops_handles import handle
from .ops_settings import Settings
from .ops_state import SEPARATOR

# Elements of a tensor, at most.
LARGEST = 10_000
INTEGERS = (
    -(2**63),
    -(2**40),
    -(2**31),
    -7,
    -2,
    -1,
    0,
    1,
    2,
    3,
    7,
    17,
    100,
    255,
    65536,
    2**30,
    2**31 - 2,
    2**31 - 1,
    2**31,
    2**32 + 1,
    2**40,
    2**62,
    2**63 - 1,
)
FLOATS = (
    float("nan"),
    float("inf"),
    float("-inf"),
    -1e38,
    -1.0,
    -0.5,
    -0.0,
    1e-45,
    0.5,
    1.0,
    2.0,
    1e10,
    1e38,
)
STRINGS = (b"", b"0", b"-1", b"a", b"\xff\xfe", b"\0", b"9" * 30, b"x" * 1000)
HUGE = (2**31 - 1, 2**31, 2**32 + 1, 2**40)
#: An op makes no more results. Each takes TensorFlow a fifth of a millisecond in a
#: graph, so that more look like a call without end. Of far more, it makes none.
MANY_RESULTS = 1000
MOST_RESULTS = 2**24
#: The largest ranks. TensorFlow has no tensor of a larger one.
RANKS = (254, 254, 253, 252)
#: Each dtype that tensors of elements have.
DTYPES = (
    tf.float32,
    tf.float64,
    tf.int32,
    tf.uint8,
    tf.int16,
    tf.int8,
    tf.string,
    tf.complex64,
    tf.int64,
    tf.bool,
    tf.qint8,
    tf.quint8,
    tf.qint32,
    tf.bfloat16,
    tf.qint16,
    tf.quint16,
    tf.uint16,
    tf.complex128,
    tf.half,
    tf.uint32,
    tf.uint64,
)
SHAPES = (
    None,
    [],
    [0],
    [None],
    [2],
    [None, None],
    [2**31],
    [2**62, 2**62],
    [0, 2**40],
    [1] * 254,
)


@dataclass(frozen=True)
class Bend:
    """A change of an argument.

    Attributes:
        place: the name of an input or an attr.
        at: the index in an input that is a list.
        seed: what the change is drawn from.
    """

    place: str
    at: int | None
    kind: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.place} {self.kind}"


@dataclass(frozen=True)
class Plan:
    """How a call is made of one that TensorFlow takes.

    Attributes:
        base: the number of that call among those of the op's example.
        entry: whether opwright's function or its class is called.
    """

    op: str
    base: int
    mode: str
    entry: str
    bends: tuple[Bend, ...]

    @property
    def keys(self) -> str:
        return SEPARATOR.join(sorted({one.key for one in self.bends}))


def draw(
    info: OpInfo, bases: list[Base], settings: Settings, number: int
) -> tuple[Plan, Arguments]:
    """The call of an op with a number, and its arguments; the same for a seed."""
    drawing = random.Random(f"{settings.seed} {info.name} {number}")
    at = drawing.randrange(len(bases))
    base = bases[at]
    graphs = settings.graphs
    mode = drawing.choices(MODES, (1 - graphs, graphs / 2, graphs / 2))[0]
    if mode not in base.modes:
        mode = base.modes[0]
    entry = drawing.choice(("function", "class"))
    found: list[Bend] = []
    arguments = base.arguments
    types = [attr for attr in info.attrs if attr.kind == "type"]
    if types and drawing.random() < 0.3:
        one = Bend(drawing.choice(types).name, None, "retype", drawing.getrandbits(32))
        found.append(one)
        arguments = apply(info, arguments, one)
    for _ in range(drawing.choice((1, 1, 2))):
        places = [*_places(info, arguments, settings.kinds)]
        for _ in range(6 if places else 0):
            place, at_, kinds = drawing.choice(places)
            one = Bend(place, at_, drawing.choice(kinds), drawing.getrandbits(32))
            changed = apply(info, arguments, one)
            if changed is not arguments:
                found.append(one)
                arguments = changed
                break
    return Plan(info.name, at, mode, entry, tuple(found)), arguments


def applied(info: OpInfo, arguments: Arguments, changes: tuple[Bend, ...]) -> Arguments:
    for one in changes:
        arguments = apply(info, arguments, one)
    return arguments


Place = tuple[str, "int | None", tuple[str, ...]]


def _places(
    info: OpInfo, arguments: Arguments, chosen: Collection[str]
) -> Iterator[Place]:
    """Arguments that can be bent, and how: by the chosen kinds, if there are any."""
    for place, at, kinds in _all_places(info, arguments):
        few = tuple(kind for kind in kinds if kind in chosen) if chosen else kinds
        if few:
            yield place, at, few


def _all_places(info: OpInfo, arguments: Arguments) -> Iterator[Place]:
    """Arguments that can be bent, and how. Inputs count twice."""
    for arg in info.inputs:
        given = arguments[arg.name]
        if arg.is_list:
            yield arg.name, None, ("list",)
        for at in range(len(given)) if arg.is_list else [None]:
            one = tensor_at(arguments, arg.name, at)
            if isinstance(one, Opaque):
                kinds: tuple[str, ...] = ("handle", "handle", "handle shape")
            else:
                kinds = _kinds(one)
            yield arg.name, at, kinds
            yield arg.name, at, kinds
    for attr in info.attrs:
        if attr.name in arguments and attr.kind not in ("func", "tensor", "list(func)"):
            is_list = attr.kind.startswith("list(")
            kinds = ("attr", "attr", "attr length") if is_list else ("attr",)
            yield attr.name, None, kinds


def _kinds(given: TensorValue) -> tuple[str, ...]:
    kinds = ["rank", "size", "size", "value", "value", "value", "all values", "empty"]
    kinds += ["dtype", "deep", "deepest", "huge", "many"]
    if given.array.ndim and given.array.dtype.kind in "iuf":
        kinds += ["order", "order"]
    return tuple(kinds)


def apply(info: OpInfo, arguments: Arguments, bend: Bend) -> Arguments:
    """The arguments with the change; the same object if it changes nothing."""
    drawing = random.Random(bend.seed)
    if bend.kind == "retype":
        return _retyped(info, arguments, bend.place, drawing)
    if bend.place not in arguments:
        return arguments
    if bend.kind == "list":
        return {
            **arguments,
            bend.place: _length(arguments[bend.place], drawing),
        }
    if bend.kind in ("attr", "attr length"):
        attr = info.attr[bend.place]
        bent = _attr_bent(attr, arguments, bend.kind == "attr length", drawing)
        counts = any(arg.count == bend.place for arg in info.outputs)
        if counts and MANY_RESULTS < bent[bend.place] <= MOST_RESULTS:
            return {**arguments, bend.place: MANY_RESULTS}
        return bent
    given = arguments[bend.place]
    if isinstance(given, list) and not (bend.at is not None and bend.at < len(given)):
        return arguments
    one = tensor_at(arguments, bend.place, bend.at)
    changed: Any
    if isinstance(one, Opaque):
        changed = handle(one, bend.kind, drawing)
    elif bend.kind == "dtype":
        changed = cast(one, drawing.choice(DTYPES))
    elif bend.kind == "deepest":
        ones = drawing.choice(RANKS) - one.array.ndim
        changed = replace(one, ones=ones)
    else:
        changed = _elements(one, bend.kind, drawing)
    if changed is None:
        return arguments
    return with_tensor(arguments, bend.place, bend.at, changed)


def _elements(
    given: TensorValue, kind: str, drawing: random.Random
) -> TensorValue | None:
    """The tensor with another shape or other elements; None if nothing changes."""
    try:
        with np.errstate(all="ignore"):
            array = ELEMENTS[kind](given.array, drawing)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError):
        return None
    if array is given.array or array.size > LARGEST or array.ndim > 60:
        return None
    return replace(given, array=array)


def value(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    """Another value of one element."""
    if not array.size:
        return array
    changed = array.copy()
    place = np.unravel_index(drawing.randrange(array.size), array.shape)
    changed[place] = _number(array.dtype, drawing)
    return changed


def all_values(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    """One value for all elements, or one of its own for each."""
    changed = array.copy()
    if drawing.random() < 0.7:
        changed[...] = _number(array.dtype, drawing)
        return changed
    for place in np.ndindex(*array.shape):
        changed[place] = _number(array.dtype, drawing)
    return changed


def _number(dtype: np.dtype, drawing: random.Random) -> Any:
    if dtype.kind == "O":
        return drawing.choice(STRINGS)
    if dtype.kind == "b":
        return drawing.random() < 0.5
    if dtype.kind in "iu":
        return _nearest(dtype, drawing.choice(INTEGERS))
    if dtype.kind == "c":
        return complex(drawing.choice(FLOATS), drawing.choice(FLOATS))
    return np.float64(drawing.choice(FLOATS)).astype(dtype)


def _nearest(dtype: np.dtype, number: int) -> int:
    """The number, or the nearest one that the dtype has."""
    limits = np.iinfo(dtype)
    return min(max(number, int(limits.min)), int(limits.max))


def empty(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    shapes: list[tuple[int, ...]] = [(0,), (0, 0), (3, 0), (0,) * array.ndim]
    for axis in range(array.ndim):
        shapes.append((*array.shape[:axis], 0, *array.shape[axis + 1 :]))
    return _zeros(drawing.choice(shapes), array.dtype)


def huge(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    """No elements, and an axis of a huge size."""
    size = drawing.choice(HUGE)
    shapes: list[tuple[int, ...]] = [(size, 0), (0, size)]
    if array.ndim > 1:
        one, other = drawing.sample(range(array.ndim), 2)
        shape = [*array.shape]
        shape[one], shape[other] = size, 0
        shapes += [tuple(shape)] * 3
    return _zeros(drawing.choice(shapes), array.dtype)


def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.full(shape, b"" if dtype.kind == "O" else 0, dtype)


def deep(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    return array.reshape((1,) * drawing.choice((2, 4, 6, 9)) + array.shape)


def many(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    # A vector may have a number for each axis.
    size = drawing.choice((5, 17, 100, 254, 255, 1000))
    if not array.ndim:
        return np.stack([array] * size)
    return bends.resized(array, drawing.randrange(array.ndim), size)


def order(array: np.ndarray, drawing: random.Random) -> np.ndarray:
    """What splits, indices and segments do not allow."""
    changed = array.copy()
    kind = drawing.randrange(7)
    if kind == 0:
        return changed[::-1]
    if kind == 1:
        return np.asarray(np.sort(changed, axis=None)[::-1].reshape(array.shape))
    if kind == 2:
        changed += np.asarray(1).astype(array.dtype)
    elif kind == 3:
        changed -= np.asarray(1).astype(array.dtype)
    elif array.size:
        place = 0 if kind == 4 else -1
        changed.flat[place] = _number(array.dtype, drawing)
    return changed


ELEMENTS: dict[str, Callable[[np.ndarray, random.Random], np.ndarray]] = {
    "rank": bends.rank,
    "size": bends.size,
    "value": value,
    "all values": all_values,
    "empty": empty,
    "huge": huge,
    "deep": deep,
    "many": many,
    "order": order,
}


def _retyped(
    info: OpInfo, arguments: Arguments, name: str, drawing: random.Random
) -> Arguments:
    """Another dtype of an attr, and of all inputs that have it."""
    attr = info.attr[name]
    allowed = [tf.as_dtype(one) for one in attr.allowed or DTYPES]
    dtype = drawing.choice(allowed)
    changed = dict(arguments)
    if name in changed:
        changed[name] = dtype
    for arg in info.inputs:
        if arg.type_attr == name:
            changed[arg.name] = bends.each(
                changed[arg.name],
                lambda one: cast(one, dtype) if isinstance(one, TensorValue) else one,
            )
    return changed


def cast(given: TensorValue, dtype: tf.DType) -> TensorValue:
    """The tensor with another dtype, as far as its elements have one."""
    if dtype not in DTYPES:
        return given
    array = given.array
    if dtype == tf.string:
        texts = [str(one).encode() for one in array.reshape(-1).tolist()]
        made = np.empty(len(texts), object)
        made[:] = texts
        return replace(given, dtype=dtype, array=made.reshape(array.shape))
    stored = STORED.get(dtype, dtype).as_numpy_dtype
    if array.dtype.kind == "O":
        return replace(given, dtype=dtype, array=np.ones(array.shape, stored))
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c" and np.dtype(stored).kind != "c":
            array = array.real
        return replace(given, dtype=dtype, array=array.astype(stored))


def _length(given: Any, drawing: random.Random) -> Any:
    """A list of another length."""
    changed = list(given)
    if not changed:
        return changed
    at = drawing.randrange(len(changed))
    kind = drawing.randrange(5)
    if kind == 0:
        return []
    if kind == 1:
        return changed[:at] + changed[at + 1 :]
    if kind == 2:
        return changed * drawing.choice((2, 3))
    return changed[: at + 1] * 2 + changed[at + 1 :]


def _attr_bent(
    attr: AttrInfo, arguments: Arguments, length: bool, drawing: random.Random
) -> Arguments:
    kind = element(attr.kind)
    value = arguments[attr.name]
    if kind == attr.kind:
        changed: Any = _attr_value(attr, kind, drawing)
    elif length:
        given = list(value)
        if not given or drawing.random() < 0.2:
            more = drawing.choice((1, 2, 5))
            given += [_attr_value(attr, kind, drawing) for _ in range(more)]
            changed = given
        else:
            changed = _length(given, drawing)
    else:
        changed = list(value)
        if not changed:
            return arguments
        ats = [drawing.randrange(len(changed))]
        if drawing.random() < 0.3:
            ats = [*range(len(changed))]
        new = _attr_value(attr, kind, drawing)
        for at in ats:
            changed[at] = new
    if repr(changed) == repr(value):
        return arguments
    return {**arguments, attr.name: changed}


def _attr_value(attr: AttrInfo, kind: str, drawing: random.Random) -> Any:
    if kind == "int":
        return drawing.choice(INTEGERS)
    if kind == "float":
        return drawing.choice(FLOATS)
    if kind == "bool":
        return drawing.random() < 0.5
    if kind == "type":
        allowed = [tf.as_dtype(one) for one in attr.allowed or DTYPES]
        return drawing.choice(allowed if drawing.random() < 0.8 else DTYPES)
    if kind == "shape":
        return tf.TensorShape(drawing.choice(SHAPES))
    if attr.allowed and drawing.random() < 0.8:
        return drawing.choice(attr.allowed)
    return drawing.choice(STRINGS)
