"""Properties of the arguments of a call, on which conditions of `requires` depend.

Generated code calls these functions before TensorFlow's fast path, so they are short.
An input may be a tensor, or a value that TensorFlow converts to one. A function raises
a TypeError for a value whose tensor it does not know without converting it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_notation.rows import (
    broadcast,
    extent,
    known_extent,
    known_product,
    remove,
)
from opwright_runtime._binding import memory
from opwright_runtime._binding.fast_path import EagerTensor, native
from opwright_runtime._internals import (
    ConvolutionDimensionNumbers,
    resource_variable,
)
from opwright_runtime.types import as_dtype

# Calling these as functions is faster, because attribute access on tensors is slow.
_rank: Callable[[object], int] = EagerTensor._rank
#: How many elements a tensor has. Another value raises a TypeError.
elements_in: Callable[[object], int] = EagerTensor._num_elements
_sizes: Callable[[object], tuple[int, ...]] = EagerTensor._shape_tuple
array_of: Callable[[object], Any] = EagerTensor._numpy_internal
_datatype_enum: Callable[[object], int] = EagerTensor._datatype_enum

_NUMBERS = frozenset({bool, int, float})
_REALS = frozenset({int, float})
_INTEGERS = frozenset(np.dtype(one).type for one in "bhilqBHILQ")
_FLOATS = frozenset({np.float16, np.float32, np.float64})
_SCALARS = frozenset({bool, int, float, complex, str, bytes})
_LISTS = frozenset({list, tuple})

#: No tensor has more axes.
MOST_AXES = 254
#: Contents of longer inputs are not made tuples.
MOST_CONTENTS = 1024
_FEW = 32

product_of: Callable[[Sequence[int]], int] = math.prod


def _name(enum: int) -> str:
    try:
        return str(tf.as_dtype(enum).name)
    except TypeError:
        return ""


#: The names of dtypes by their DataType enums.
DTYPE_NAMES = [_name(enum) for enum in range(64)]
# By the ids of dtypes, which exist once: their hash takes longer.
_NAMES = {id(tf.as_dtype(name)): name for name in DTYPE_NAMES if name}
#: The sizes of elements in bytes, by the names of dtypes.
_BYTES = {name: max(tf.as_dtype(name).size or 0, 1) for name in DTYPE_NAMES if name}
_DTYPES = frozenset(_BYTES)
# The part of a string that is in the tensor itself.
_BYTES["string"] = 24
#: The size for a dtype that is not known yet: that of the largest dtype.
_BYTES[""] = max(_BYTES.values())


@native
def rank_of(value: Any) -> int:
    if type(value) is EagerTensor:
        return _rank(value)
    return len(_plain_sizes(value))


@native
def elements_of(value: Any) -> int:
    if type(value) is EagerTensor:
        return elements_in(value)
    return math.prod(_plain_sizes(value))


@native
def sizes_of(value: Any) -> tuple[int, ...]:
    if type(value) is EagerTensor:
        return _sizes(value)
    return _plain_sizes(value)


def _plain_sizes(value: Any) -> tuple[int, ...]:
    """The sizes of the tensor for a value that is none."""
    kind = type(value)
    if kind in _SCALARS:
        return ()
    if kind is np.ndarray:
        shape: tuple[int, ...] = value.shape
        return shape
    if kind in _LISTS:
        if not value:
            return (0,)
        first = value[0]
        if type(first) in _SCALARS:
            return (len(value),)
        if type(first) in _LISTS or type(first) is np.ndarray:
            return (len(value), *_plain_sizes(first))
    if isinstance(value, np.generic):
        return ()
    if isinstance(value, resource_variable):
        sizes = value.shape.as_list()
        if None not in sizes:
            return tuple(sizes)
    raise TypeError


@native
def have_ranks(ranks: tuple[int, ...], *values: Any) -> bool:
    """Whether values have these ranks: as `rank_of`, and faster for several tensors."""
    try:
        found = tuple(map(_rank, values))
    except TypeError:
        found = tuple(map(rank_of, values))
    return found == ranks


@native
def value_of(value: Any) -> float:
    """The number in a value with one element."""
    if type(value) is EagerTensor:
        found = array_of(value)
        # For a scalar of NumPy, `item` takes much longer.
        if type(found) in _INTEGERS:
            return int(found)
        if type(found) in _FLOATS:
            return float(found)
        found = found.item()
    elif type(value) in _NUMBERS:
        found = value
    else:
        found = _numbers(value).item()
    # An item of a dtype that NumPy does not define is no number of Python.
    return found if type(found) in _NUMBERS else float(found)


@native
def contents_of(value: Any) -> tuple[int, ...]:
    """The integers in a short value, in a row."""
    if type(value) is EagerTensor and elements_in(value) <= MOST_CONTENTS:
        # It is the usual case, which has to be fast.
        found = array_of(value).tolist()
        if type(found) is list and (not found or type(found[0]) is int):
            return tuple(found)
    if type(value) in _LISTS and _are_integers(value):
        return tuple(value)
    numbers = _numbers(value)
    if numbers.size > MOST_CONTENTS or numbers.dtype.kind not in "iu":
        raise TypeError
    return tuple(numbers.ravel().tolist())


@native
def last_of(value: Any) -> float:
    """The last element; -1 if there is none."""
    if type(value) is EagerTensor:
        numbers = array_of(value)
    elif type(value) in _LISTS and _are_integers(value):
        return value[-1] if value else -1
    else:
        numbers = _numbers(value)
    last: float = numbers.item(-1) if numbers.size else -1
    return last


def steps_of(start: Any, limit: Any, delta: Any) -> int:
    """How many numbers the ranges from `start` to `limit` have together."""
    if elements_of(start) == elements_of(limit) == elements_of(delta) == 1:
        first, end, step = value_of(start), value_of(limit), value_of(delta)
        length = (end - first) / step if step else 0.0
        # TensorFlow refuses a range without end.
        return max(math.ceil(length), 0) if math.isfinite(length) else 0
    few = [_few(start), _few(limit), _few(delta)]
    count = max(map(len, few))
    if all(len(one) in (1, count) for one in few):
        rows = [one if len(one) == count else one * count for one in few]
        if all(rows[2]):
            lengths = [
                (end - first) / step for first, end, step in zip(*rows, strict=True)
            ]
            if math.isfinite(sum(lengths)):
                return sum([min(math.ceil(one), 2**62) for one in lengths if one > 0])
    firsts, ends, steps = (
        np.asarray(_numbers(one), np.float64) for one in (start, limit, delta)
    )
    with np.errstate(all="ignore"):
        counts = np.ceil((ends - firsts) / steps)
    return int(np.nan_to_num(counts).clip(0, 2.0**62).sum())


def padded_of(value: Any, paddings: Any) -> tuple[int, ...]:
    """The shape of a value with paddings before and behind each axis."""
    sizes, added = sizes_of(value), contents_of(paddings)
    if sizes_of(paddings) != (len(sizes), 2):
        raise TypeError
    return tuple(map(sum, zip(sizes, added[::2], added[1::2], strict=True)))


def banded_of(diagonal: Any, k: Any, num_rows: Any, num_cols: Any) -> tuple[float, ...]:
    """The shape of the matrices that MatrixDiagV3 makes of their diagonals.

    Args:
        diagonal: the diagonals. Only if there are several is each a row of its own.
        k: the number of the lowest diagonal, and that of the highest.
        num_rows: how many rows a matrix has; negative: as many as are needed.
        num_cols: how many columns it has, likewise.
    """
    sizes, band = sizes_of(diagonal), contents_of(k)
    rows, columns = value_of(num_rows), value_of(num_cols)
    lowest, highest, longest = band[0], band[-1], sizes[-1]
    needed_rows = longest - highest if highest < 0 else longest
    needed_columns = longest + lowest if lowest > 0 else longest
    if rows < 0 and columns < 0:
        needed_rows = needed_columns = max(needed_rows, needed_columns)
    batch = sizes[:-1] if lowest == highest else sizes[:-2]
    return (*batch, max(rows, needed_rows), max(columns, needed_columns))


def is_convolved(
    value: object,
    window: object,
    padding: object,
    dilations: object,
    numbers: str | bytes,
) -> bool:
    """Whether axes are those of the tensors, with the sizes that XLA needs.

    Args:
        value: what is convolved.
        window: the filter.
        padding: how much is added before and behind each spatial axis.
        dilations: how far apart the elements of `value` are along these axes.
        numbers: a serialized ConvolutionDimensionNumbers.
    """
    axes, windows, least, most = axes_of(numbers)
    if least < 0 or most >= rank_of(value) or rank_of(window) != rank_of(value):
        return False
    if elements_of(window) and least_of(padding) >= 0:
        # It is the usual case, which has to be fast.
        return True
    sizes, lengths = sizes_of(value), sizes_of(window)
    # XLA takes dilations that are left out as ones, and padding as zeros.
    rates = contents_of(dilations) or (1,) * len(axes)
    added = contents_of(padding) or (0,) * (2 * len(axes))
    pairs = zip(axes, rates, added[::2], added[1::2], strict=True)
    for axis, dilation, before, behind in pairs:
        size = sizes[axis]
        dilated = (size - 1) * dilation + 1 if size else 0
        if dilated + before + behind < 0:
            return False
    return all(lengths[axis] >= 1 for axis in windows)


def encoded(text: str | bytes) -> bytes:
    """The bytes of an attr that is text."""
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


@lru_cache
def axes_of(numbers: str | bytes) -> tuple[list[int], list[int], int, int]:
    """The spatial axes of the input and of the filter; the first and last of all."""
    found = ConvolutionDimensionNumbers.FromString(encoded(numbers))
    every: list[int] = []
    for _, axes in found.ListFields():
        every += [axes] if isinstance(axes, int) else axes
    inputs, windows = found.input_spatial_dimensions, found.kernel_spatial_dimensions
    return [*inputs], [*windows], min(every, default=0), max(every, default=0)


def removed(row: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """A row without the sizes at some axes."""
    found: Any = remove(row, axes)
    return tuple(found)


#: The shape of tensors of these shapes together.
broadcast_of = broadcast

extent_of = extent


@native
def least_of(value: Any) -> float:
    if type(value) in _LISTS and _are_integers(value):
        return min(value, default=math.inf)
    return _extreme(value, min, np.min, math.inf)


@native
def most_of(value: Any) -> float:
    if type(value) in _LISTS and _are_integers(value):
        return max(value, default=-math.inf)
    return _extreme(value, max, np.max, -math.inf)


def _extreme(
    value: Any, among: Callable[..., float], of_array: Callable[..., Any], empty: float
) -> float:
    few = _few(value)
    if few and (type(few[0]) is int or not math.isnan(sum(few))):
        # It is the usual case, which has to be fast.
        return among(few)
    numbers = _numbers(value)
    size = numbers.size
    is_integer = numbers.dtype.kind in "iu"
    if is_integer and size <= _FEW:
        # It is faster than NumPy for few numbers.
        return among(numbers.ravel().tolist(), default=empty)
    if not size:
        return empty
    found = of_array(numbers)
    return int(found) if is_integer else float(found)


def _are_integers(values: Sequence[Any]) -> bool:
    try:
        # A sum is an int if all its parts are.
        return type(sum(values)) is int
    except TypeError:
        return False


def _few(value: Any) -> list[Any]:
    """The numbers of a tensor with few; an empty list for any other value.

    Functions of Python take less time for them than those of NumPy. Without an element
    that is nan or inf, their sum is seldom one of these.
    """
    if type(value) is not EagerTensor or not 0 < elements_in(value) <= _FEW:
        return []
    rank = _rank(value)
    if not rank:
        few = [value_of(value)]
    else:
        numbers = array_of(value)
        few = (numbers if rank == 1 else numbers.ravel()).tolist()
    return few if type(few[0]) in _REALS else []


@native
def all_finite(value: Any) -> bool:
    if type(value) in _NUMBERS:
        return math.isfinite(value)
    if type(value) is EagerTensor and _rank(value):
        few = _few(value)
        if few and math.isfinite(sum(few)):
            return True
    numbers = _numbers(value)
    return bool(
        math.isfinite(numbers) if not numbers.ndim else np.isfinite(numbers).all()
    )


def positives_of(values: Sequence[float]) -> int:
    """How many values are more than 0."""
    return sum(value > 0 for value in values)


def results_of(function: object) -> int:
    """How many results a function has that an attr names."""
    return _length_of(function, "outputs")


def parameters_of(function: object) -> int:
    """How many parameters a function has that an attr names, captures included."""
    return _length_of(function, "inputs")


def _length_of(function: object, name: str) -> int:
    values = getattr(function, name, None)
    if type(values) is not list:
        raise TypeError
    return len(values)


def is_batched(value: Any, size: int) -> bool:
    """Whether the indices of batch n are from n * `size` to (n + 1) * `size` - 1."""
    numbers = _numbers(value)
    if not numbers.size:
        return True
    if numbers.size <= _FEW:
        rows = enumerate(numbers.reshape(len(numbers), -1).tolist())
        return all(
            n * size <= min(row) and max(row) < (n + 1) * size for n, row in rows
        )
    starts = np.arange(len(numbers))[:, np.newaxis] * size
    offsets = numbers.reshape(len(numbers), -1) - starts
    return bool((offsets >= 0).all() and (offsets < size).all())


def are_distinct(value: object, least: int) -> bool:
    """Whether at least so many rows differ from each other."""
    found: set[bytes] = set()
    for row in np.atleast_1d(_numbers(value)) + 0:  # -0.0 becomes 0.0.
        if len(found) >= least:
            break
        found.add(row.tobytes())
    return len(found) >= least


@native
def is_nan_free(value: Any) -> bool:
    few = _few(value)
    if few and not math.isnan(sum(few)):
        return True
    return not np.isnan(_numbers(value)).any()


def are_spans(value: Any, size: int) -> bool:
    """Whether each row of a matrix ends with a start and an end within `size`."""
    numbers = _numbers(value)
    if numbers.ndim != 2 or numbers.shape[1] < 2:
        return False
    if numbers.size <= _FEW:
        return all(0 <= start <= end <= size for *_, start, end in numbers.tolist())
    starts, ends = numbers[:, -2], numbers[:, -1]
    return bool(((starts >= 0) & (starts <= ends) & (ends <= size)).all())


def is_rising(value: Any) -> bool:
    """Whether no element is less than the one before it."""
    few = _few(value)
    if few and not math.isnan(sum(few)):
        return few == sorted(few)
    numbers = _numbers(value).ravel()
    return bool((numbers[1:] >= numbers[:-1]).all())


def is_permutation(value: Any) -> bool:
    few = _few(value)
    if few:
        return sorted(few) == [*range(len(few))]
    numbers = _numbers(value).ravel()
    return np.array_equal(np.sort(numbers), np.arange(numbers.size))


def _numbers(value: Any) -> Any:
    """A value as an array or scalar of NumPy."""
    if type(value) is EagerTensor:
        return array_of(value)
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return value
    if type(value) in _NUMBERS or type(value) in _LISTS:
        numbers = np.asarray(value)
        if numbers.dtype.kind in "biuf":
            return numbers
    raise TypeError


def dtype_of(*values: Any) -> str:
    """The dtype that inputs of one dtype have: that of the first tensor."""
    for value in values:
        if type(value) is EagerTensor:
            return DTYPE_NAMES[_datatype_enum(value)]
        if type(value) in _LISTS:
            for one in value:
                if type(one) is EagerTensor:
                    return DTYPE_NAMES[_datatype_enum(one)]
    raise TypeError


def some_dtype_of(*values: Any) -> str:
    """`dtype_of`, or "" if no input is a tensor."""
    if type(values[0]) is EagerTensor:
        # It is the usual case, which has to be fast.
        return DTYPE_NAMES[_datatype_enum(values[0])]
    try:
        if type(values[0]) is list and type(values[0][0]) is EagerTensor:
            return DTYPE_NAMES[_datatype_enum(values[0][0])]
        return dtype_of(*values)
    except (IndexError, TypeError):
        return ""


def dtype_name(value: Any) -> str:
    """The name of a dtype that an attr has."""
    known = _NAMES.get(id(value))
    if known is not None:
        # It is the usual case, which has to be fast.
        return known
    name: str = value
    if type(value) is not str or value not in _DTYPES:
        name = as_dtype(value).name
    return name


def dims_of(shape: Any) -> tuple[int | None, ...]:
    """The sizes of a shape that an attr has."""
    if isinstance(shape, tf.TensorShape):
        return tuple(shape.as_list())
    if type(shape) not in _LISTS:
        raise TypeError
    return tuple(shape)


def shapes_of(shapes: Any) -> tuple[tuple[int | None, ...], ...]:
    return tuple(map(dims_of, shapes))


def products_of(shapes: Sequence[Sequence[int | None]]) -> tuple[int, ...]:
    return tuple(map(known_product, shapes))


def extents_of(shapes: Sequence[tuple[int | None, ...]]) -> tuple[int, ...]:
    return tuple(map(known_extent, shapes))


def ranks_of(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(len, shapes))


def text_of(value: object) -> str:
    """The text of an attr, which may be bytes."""
    if type(value) is not str:
        raise TypeError
    return value


@native
def tensors_of(values: Any) -> Sequence[Any]:
    """The tensors of a list input."""
    if type(values) not in _LISTS:
        raise TypeError
    found: Sequence[Any] = values
    return found


def has_room(dtype: object, *sizes: Any) -> bool:
    """Whether there is memory for a tensor.

    Args:
        dtype: the name of its dtype.
        sizes: sizes and rows of sizes, which are multiplied.
    """
    total = _BYTES[dtype]  # type: ignore[index]
    for size in sizes:
        total *= product_of(size) if type(size) is tuple else size
    return total <= memory.SMALL or total <= memory.limit()


def bytes_of(dtype: object, sizes: Sequence[int]) -> int:
    """The size of a tensor in bytes; 0 for one that TensorFlow refuses."""
    size = _BYTES.get(str(dtype), 1)
    return 0 if min(sizes, default=0) < 0 else size * math.prod(sizes)
