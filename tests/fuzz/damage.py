"""Damages a good call with extreme sizes, numbers, bytes and messages."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from . import functions
from .calls import MESSAGES, MOST_ELEMENTS, Call, Literal, Made, attr_kinds, op_def

INT64 = (-(2**63), 2**63 - 1)
INT32 = (-(2**31), 2**31 - 1)
SIZES = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    100,
    255,
    256,
    1000,
    2**16,
    2**20,
    2**26,
    2**31 - 1,
    2**31,
)
HUGE = (2**32, 2**33 + 1, 2**40, 2**56, 2**61, 2**62, 2**62 + 4, 2**63 - 1)
BELOW = (-1, -2, -8, -(2**31), -(2**32), -(2**62), -(2**63))
INTS = (*SIZES, *HUGE, *BELOW)
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    float("nan"),
    float("inf"),
    -float("inf"),
    3e38,
    -3e38,
    1e30,
    1e-38,
    1e-45,
    -1e-45,
)
STRINGS = (b"", b"x", b"\x00", b"\xff\xfe", b"sum", b"table0", b"train", b"a" * 300)
NUMBERS = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
COUNTS = (2, 3, 5, 17, 100, 253, 254, 255, 256)


class Draw(random.Random):
    """Random numbers, and words for what is drawn from them."""

    cores = 2  # The most that a system of tables has.

    def pick(self, *values: Any) -> Any:
        return values[int(self.random() * len(values))]

    def chance(self, share: float) -> bool:
        return self.random() < share

    def int(self, low: int, high: int) -> int:
        """From low to high, high included."""
        return low + int(self.random() * (high - low + 1))

    def seed32(self) -> int:
        return self.getrandbits(32)


def number(rng: Draw, near: int = 0) -> int:
    """Any integer: one off, a boundary, or one that wraps to the right one."""
    kind = rng.pick("near", "size", "size", "huge", "huge", "below", "wrap")
    if kind == "near":
        return near + rng.pick(-1, 1, 2, 8)
    if kind == "wrap":
        return int64(near + rng.pick(2**32, 2**62, 2**63, -(2**32)))
    return int(rng.pick(*{"size": SIZES, "huge": HUGE, "below": BELOW}[kind]))


def int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def wrapped(rng: Draw, good: list[int], groups: list[int]) -> list[int]:
    """As many numbers, some so large that the sum of a group is as good in int64."""
    chosen = rng.pick(*groups) if len(groups) == len(good) else None
    mine = [i for i in range(len(good)) if chosen is None or groups[i] == chosen]
    # Of lengths of sequences, 0 may count as 1.
    floor = rng.pick(0, 1)
    total, result = sum(max(floor, good[i]) for i in mine), list(good)
    if len(mine) < 2:
        return [number(rng, one) for one in good]
    new = [-(2**63), int64(total - 2**63)]
    if len(mine) >= 3:
        new = [2**63 - 1, 2**63 - 1, total + 2]
    if len(mine) >= 4 and rng.chance(0.5):
        new = [2**62, 2**62, 2**62, 2**62 + total]
    for i in mine[len(new) :]:
        new[-1] -= max(floor, good[i])
    for i, one in zip(mine, new, strict=False):
        result[i] = one
    return result


# Tensors.


def put_zero(rng: Draw, shape: list[int]) -> list[int]:
    """The shape, with a dimension of 0 if it has too many elements."""
    if math.prod(shape) <= MOST_ELEMENTS and all(0 <= x < 2**63 for x in shape):
        return shape
    shape = [min(max(x, 0), 2**63 - 1) for x in shape]
    # TensorFlow multiplies from the left, and must come to the 0 before it overflows.
    product, last = 1, 0
    for i, x in enumerate(shape):
        product *= max(x, 1)
        last = i
        if product >= 2**63:
            break
    small = [i for i in range(last + 1) if shape[i] <= MOST_ELEMENTS]
    if small:
        shape[rng.pick(*small)] = 0
        return shape
    at = rng.int(0, last)
    return [*shape[:at], 0, *shape[at:]] if rng.chance(0.5) else [0, *shape[1:]]


def as_shape(value: Literal, shape: list[int]) -> Literal:
    """The same kind of values in another shape."""
    size = math.prod(shape)
    old, fill, normal = value.values, value.fill, value.normal
    if old is not None:
        old = [old[i % len(old)] for i in range(size)] if old else None
        if old is None:
            fill = b"" if value.dtype == "string" else 0
    return Literal(value.dtype, shape, old, fill, normal, value.scale, dict(value.put))


def shaped(rng: Draw, value: Literal) -> Literal:
    shape = list(value.shape)
    kind = rng.pick(
        "size", "size", "up", "down", "empty", "huge", "huge", "deep", "zeros"
    )
    if kind == "down" and shape:
        shape.pop(rng.int(0, len(shape) - 1))
    elif kind == "up" or not shape:
        shape.insert(rng.int(0, len(shape)), rng.pick(0, 1, 1, 2))
    elif kind == "deep":
        shape = [*shape, *[1] * rng.pick(6, 30, 250, 254 - len(shape))]
    elif kind == "zeros":
        shape = [0] * len(shape)
    else:
        at = rng.int(0, len(shape) - 1)
        if kind == "huge":
            shape[at] = rng.pick(*HUGE, 2**31 - 1, 2**31)
        else:
            shape[at] = 0 if kind == "empty" else max(0, shape[at] + rng.pick(-1, 1, 7))
    return as_shape(value, put_zero(rng, shape))


def element(rng: Draw, dtype: str) -> Any:
    if dtype == "string":
        return rng.pick(*STRINGS)
    if "float" in dtype:
        return rng.pick(*FLOATS)
    low, high = INT64 if dtype == "int64" else (-128, 127) if dtype == "int8" else INT32
    return rng.pick(*[x for x in INTS if low <= x <= high])


def filled(rng: Draw, value: Literal) -> Literal:
    """Another element, or all of them."""
    size = value.size
    if not size:
        return shaped(rng, value)
    new = element(rng, value.dtype)
    if value.dtype == "string" and value.values and rng.chance(0.6):
        at = rng.int(0, size - 1)
        old = value.values[at]
        old = old.encode() if isinstance(old, str) else old
        values = [*value.values]
        values[at] = bytes_of(rng, old)
        return Literal("string", list(value.shape), values)
    if rng.chance(0.2):
        return Literal(value.dtype, list(value.shape), fill=new)
    if value.values is not None:
        values = list(value.values)
        values[rng.int(0, size - 1)] = new
        return Literal(value.dtype, list(value.shape), values)
    put = {**value.put, rng.int(0, size - 1): new}
    return Literal(
        value.dtype, list(value.shape), None, value.fill, value.normal, value.scale, put
    )


def tensor(rng: Draw, value: Literal | Made) -> Literal | Made:
    if isinstance(value, Made):
        if rng.chance(0.5):
            put = {rng.int(0, 10**6): rng.pick(*FLOATS, 2**31 - 1, -1, 8, 100)}
            put = {
                k: v for k, v in put.items() if isinstance(v, int) or math.isfinite(v)
            }
            return Made(value.call, value.output, put=put)
        at = rng.pick(rng.int(0, 31), rng.int(0, 10**6))
        changed = {at + i: rng.int(0, 255) for i in range(rng.pick(1, 3))}
        return Made(value.call, value.output, bytes=changed)
    return rng.pick(shaped, filled)(rng, value)


# Bytes and messages.


def bytes_of(rng: Draw, value: bytes) -> bytes:
    raw = bytearray(value)
    for _ in range(rng.pick(1, 1, 2, 5)):
        kind = rng.pick("flip", "byte", "cut", "splice", "insert", "varint", "length")
        at = rng.int(0, len(raw)) if raw else 0
        if kind == "cut":
            del raw[at:]
        elif kind == "splice" and raw:
            other = rng.int(0, len(raw))
            raw[at:at] = raw[min(at, other) : max(at, other)][:300]
        elif kind == "insert":
            raw[at:at] = bytes(rng.int(0, 255) for _ in range(rng.int(1, 4)))
        elif kind == "varint":
            raw[at : at + 1] = varint(rng.pick(*SIZES, *HUGE, 2**64 - 1))
        elif kind == "length":
            # A field of bytes that says it is longer than there are any.
            raw += bytes([rng.int(0, 31) << 3 | 2]) + varint(
                rng.pick(2**31 - 1, 2**31, 2**40)
            )
        elif at < len(raw):
            raw[at] = (
                raw[at] ^ (1 << rng.int(0, 7)) if kind == "flip" else rng.int(0, 255)
            )
    return bytes(raw)


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        out.append(low | (128 if value else 0))
        if not value:
            return bytes(out)


def is_map(field: FieldDescriptor) -> bool:
    entry = field.message_type
    return entry is not None and bool(entry.GetOptions().map_entry)


def messages_in(message: Message) -> list[Message]:
    found = [message]
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if is_map(field):
                inner = [one for one in value.values() if isinstance(one, Message)]
            else:
                inner = list(value) if field.is_repeated else [value]
            for one in inner:
                found += messages_in(one)
    return found


def entry_of(rng: Draw, values: Any) -> None:
    """Changes an entry of a map of texts; empties another map."""
    keys = sorted(values)
    if not all(isinstance(values[key], str) for key in keys):
        values.clear()
    elif keys and rng.chance(0.2):
        del values[rng.pick(*keys)]
    else:
        values[rng.pick(*keys, "epsilon")] = rng.pick("", "nan", "-1", "1e39", "x")


def scalar(rng: Draw, field: FieldDescriptor, old: Any) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return not old
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.pick(*[value.number for value in field.enum_type.values])
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.pick(*FLOATS)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        value = bytes_of(rng, b"" if isinstance(old, str) else old)
        return (
            value
            if field.type == FieldDescriptor.TYPE_BYTES
            else rng.pick("", "x", "table0")
        )
    bits = (
        32
        if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
        else 64
    )
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
        low, high = 0, 2**bits - 1
    near = [old + 1, old - 1, 0, 1, 2, 3]
    return rng.pick(*[x for x in (*near, *near, *INTS) if low <= x <= high])


def padded(rng: Draw, message: Message) -> str | None:
    """A list of numbers gets as many as a boundary, by ones: products stay."""
    found = [
        (inner, field)
        for inner in messages_in(message)
        for field in inner.DESCRIPTOR.fields
        if field.is_repeated
        and field.cpp_type in NUMBERS
        and getattr(inner, field.name)
    ]
    if not found:
        return None
    inner, field = rng.pick(*found)
    values = getattr(inner, field.name)
    values.extend([1] * max(0, rng.pick(*COUNTS) - len(values)))
    return f"{field.name} of {len(values)}"


def field_of(rng: Draw, message: Message) -> str:
    """Changes a field of it or of a message in it; which one."""
    if rng.chance(0.1) and (done := padded(rng, message)):
        return done
    inner = rng.pick(*messages_in(message))
    if not inner.DESCRIPTOR.fields:
        return inner.DESCRIPTOR.name
    present = [field for field, _ in inner.ListFields()]
    field = rng.pick(*(present or inner.DESCRIPTOR.fields))
    if rng.chance(0.4):
        field = rng.pick(*inner.DESCRIPTOR.fields)
    name = field.name
    if rng.chance(0.08):
        inner.ClearField(name)
        return name
    if is_map(field):
        entry_of(rng, getattr(inner, name))
        return name
    if field.is_repeated:
        values = getattr(inner, name)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if values and rng.chance(0.4):
                del values[rng.int(0, len(values) - 1)]
            elif values:
                copies = [values[rng.int(0, len(values) - 1)]] * rng.pick(
                    1, 1, 2, *COUNTS[:4]
                )
                values.extend(copies)
            else:
                values.add()
            return name
        kind = rng.pick("one", "one", "more", "fewer")
        if kind == "fewer" and values:
            del values[rng.int(0, len(values) - 1) :]
        elif kind == "one" and values:
            at = rng.int(0, len(values) - 1)
            values[at] = scalar(rng, field, values[at])
        else:
            old = values[0] if values else field.default_value or default(field)
            values.append(scalar(rng, field, old))
        return name
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(inner, name).SetInParent()
        return name
    setattr(inner, name, scalar(rng, field, getattr(inner, name)))
    return name


def default(field: FieldDescriptor) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return b"" if field.type == FieldDescriptor.TYPE_BYTES else ""
    return 0


def message_of(rng: Draw, kind: type[Message], value: bytes) -> tuple[bytes, str]:
    if rng.chance(0.15):
        return bytes_of(rng, value), "bytes"
    try:
        message = kind.FromString(value)
    except DecodeError:
        return bytes_of(rng, value), "bytes"
    changed = [field_of(rng, message) for _ in range(rng.pick(1, 1, 1, 2, 3))]
    try:
        return bytes(message.SerializeToString()), " ".join(changed)
    except (ValueError, UnicodeError):
        return value, "nothing"


# Calls.


def choices(op: str, attr: str) -> list[bytes]:
    """The values that an attr of strings may have."""
    definition = next(a for a in op_def(op).attr if a.name == attr)
    return [bytes(x) for x in definition.allowed_values.list.s]


def attr(rng: Draw, call: Call) -> str | None:
    kinds = attr_kinds(call.op)
    names = [name for name in call.attrs if name in kinds]
    names = [name for name in names if kinds[name] != "type"]
    if not names:
        return None
    sums = [name for name in names if kinds[name] == "list(int)" and call.attrs[name]]
    name = rng.pick(*(sums if sums and rng.chance(0.5) else names))
    value, kind = call.attrs[name], kinds[name]
    new: Any
    if kind == "bool":
        new = not value
    elif kind == "int":
        new = number(rng, value)
    elif kind == "float":
        new = rng.pick(*FLOATS)
    elif kind == "func":
        new = rng.pick(*functions.NAMES)
    elif kind == "string":
        if name in MESSAGES and value:
            new, what = message_of(rng, MESSAGES[name], value)
            call.attrs[name] = new
            return f"{name}: {what}"
        new = rng.pick(*(choices(call.op, name) or STRINGS), *STRINGS)
    elif kind == "list(int)":
        new = list(value)
        way = rng.pick("wrap", "wrap", "wrap", "one", "fewer", "more")
        if way == "wrap" and len(new) > 1:
            new = wrapped(rng, new, call.attrs.get("table_ids", []))
        elif way == "fewer":
            new = new[:-1]
        elif way == "more" or not new:
            new.append(number(rng))
        else:
            at = rng.int(0, len(new) - 1)
            new[at] = number(rng, new[at])
    elif kind == "list(string)":
        new = [*value, rng.pick(*STRINGS)] if rng.chance(0.5) else value[:-1]
    else:
        return None
    call.attrs[name] = new
    return name


def floats(rng: Draw, call: Call) -> str | None:
    """All floats among attrs and scalars: the largest, or any."""
    kinds = attr_kinds(call.op)
    most = rng.chance(0.5)
    found = []
    for name in call.attrs:
        if kinds.get(name) == "float":
            low = "low" in name or "min" in name
            call.attrs[name] = (-3e38 if low else 3e38) if most else rng.pick(*FLOATS)
            found.append(name)
    for name, value in call.inputs.items():
        if isinstance(value, Literal) and "float" in value.dtype and rng.chance(0.3):
            new = 3e38 if most else rng.pick(*FLOATS)
            call.inputs[name] = Literal(value.dtype, list(value.shape), fill=new)
            found.append(name)
    return f"floats of {' '.join(found)}" if found else None


def renamed(rng: Draw, call: Call) -> str | None:
    """A size, wherever it stands in the call, becomes another one."""
    everywhere = rng.chance(0.6)
    chosen = [
        value
        for value in call.values()
        if isinstance(value, Literal) and (everywhere or rng.chance(0.5))
    ]
    literals = [value for value in call.values() if any(value is one for one in chosen)]
    kinds = attr_kinds(call.op)
    sizes = [size for value in literals for size in value.shape]
    sizes += [v for k, v in call.attrs.items() if kinds.get(k) == "int"]
    sizes = [size for size in sizes if size > 1]
    if not sizes:
        return None
    old, new = rng.pick(*sizes), rng.pick(0, 1, *HUGE, 2**31 - 1, 2**31)
    names = {old: new}
    # Tensors that would be too large get a dimension of 0, and so do all tensors with
    # the size that it replaces.
    for value in literals:
        shape = [names.get(size, size) for size in value.shape]
        fixed = put_zero(rng, shape)
        for size, was in zip(fixed, value.shape, strict=False):
            if len(fixed) == len(shape) and size == 0 and was > 1 and was not in names:
                names[was] = 0
    for name, value in call.inputs.items():
        one = [
            (
                as_shape(v, put_zero(rng, [names.get(s, s) for s in v.shape]))
                if any(v is one for one in chosen)
                else v
            )
            for v in (value if isinstance(value, list) else [value])
        ]
        call.inputs[name] = one if isinstance(value, list) else one[0]
    if rng.chance(0.8):
        for name, v in call.attrs.items():
            if kinds.get(name) == "int" and v in names:
                call.attrs[name] = names[v]
    return f"sizes {names}"


def one_tensor(rng: Draw, call: Call) -> str | None:
    if not call.inputs:
        return None
    name = rng.pick(*call.inputs)
    value = call.inputs[name]
    if not isinstance(value, list):
        call.inputs[name] = tensor(rng, value)
        return name
    if not value:
        return None
    at = rng.int(0, len(value) - 1)
    call.inputs[name] = [*value[:at], tensor(rng, value[at]), *value[at + 1 :]]
    return f"{name}[{at}]"


def swapped(rng: Draw, call: Call) -> str | None:
    """Replaces one tensor by another."""
    names = [name for name, value in call.inputs.items() if isinstance(value, Literal)]
    if len(names) < 2:
        return None
    a, b = rng.sample(names, 2)
    if call.inputs[a].dtype != call.inputs[b].dtype:  # type: ignore[union-attr]
        return None
    call.inputs[a] = call.inputs[b]
    return f"{b} as {a}"


def lists(rng: Draw, call: Call) -> str | None:
    """A list of tensors, and those that must be as long, longer or shorter."""
    found = [name for name, value in call.inputs.items() if isinstance(value, list)]
    if not found:
        return None
    fewer = rng.chance(0.5)
    lengths = {len(call.inputs[name]) for name in found}  # type: ignore[arg-type]
    chosen = rng.pick(*lengths)
    for name in found:
        value = call.inputs[name]
        assert isinstance(value, list)
        if len(value) == chosen and (len(value) > 1 or not fewer) and value:
            call.inputs[name] = value[:-1] if fewer else [*value, value[0]]
    return "lists"


KINDS: tuple[Callable[[Draw, Call], str | None], ...] = (
    attr,
    attr,
    attr,
    one_tensor,
    one_tensor,
    one_tensor,
    renamed,
    renamed,
    floats,
    swapped,
    lists,
)


def damage(rng: Draw, call: Call, times: int = 0) -> Call:
    """One thing of the call is wrong, or two or three."""
    for _ in range(times or rng.pick(1, 1, 1, 1, 1, 2, 2, 3)):
        for _ in range(5):
            done = rng.pick(*KINDS)(rng, call)
            if done is not None:
                call.damage.append(done)
                break
    return call
