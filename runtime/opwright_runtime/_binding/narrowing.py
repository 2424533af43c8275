"""Finds numbers that their dtype cannot represent, before TensorFlow truncates them.

TensorFlow converts numbers of Python and NumPy to the dtype of an input as C does: 300
becomes 44 as an int8, and 1.5 in an array becomes 1. Here such numbers are found before
the call.

Floats are not refused if they are rounded, or become inf or nan, as in `tf.constant`.
"""

from __future__ import annotations

import array
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_runtime._binding.fast_path import EagerTensor, native
from opwright_runtime._internals import TensorType
from opwright_runtime.types import DTYPES, TType

_INTEGERS = [np.dtype(code) for code in np.typecodes["AllInteger"]]
_BOUNDS = [(info.min, info.max, info.dtype.num) for info in map(np.iinfo, _INTEGERS)]


class _Range:
    """The numbers that a dtype can represent.

    Attributes:
        low: the smallest number.
        high: the largest number.
        integers_only: whether it can represent integers only.
        array_dtypes: the type numbers (`dtype.num`) of NumPy's integer dtypes all of
            whose values fit.
    """

    __slots__ = ("array_dtypes", "high", "integers_only", "low")

    def __init__(self, low: float, high: float, integers_only: bool) -> None:
        self.low = low
        self.high = high
        self.integers_only = integers_only
        self.array_dtypes = frozenset(
            num for least, most, num in _BOUNDS if low <= least and most <= high
        )


_REAL = _Range(-math.inf, math.inf, False)
_EMPTY = _Range(math.inf, -math.inf, True)
# Dtypes that can represent every number, and dtypes without numbers.
_UNLIMITED = frozenset({"complex64", "complex128", "string", "resource", "variant"})


def _range(name: str) -> _Range:
    if name == "bool":
        return _Range(0, 1, True)
    _, is_integer, bits = name.partition("int")
    if not is_integer:
        return _REAL
    if "u" in name:
        return _Range(0, 2 ** int(bits) - 1, True)
    half = 2 ** (int(bits) - 1)
    return _Range(-half, half - 1, True)


_BY_CLASS = {
    cls: _range(name) for name, cls in DTYPES.items() if name not in _UNLIMITED
}
_BY_ENUM = {cls.dtype.as_datatype_enum: found for cls, found in _BY_CLASS.items()}
_NUMPY_INTEGERS = frozenset(dtype.type for dtype in _INTEGERS)
# Values of these types need no check here: TensorFlow itself refuses those that do not
# fit, or they are not numbers.
_REFUSED = frozenset({bool, float, complex, str, bytes, type(None)})

# The smallest and the largest number of each dtype, indexed by its DataType enum.
_ENUMS = [cls.dtype.as_datatype_enum for cls in DTYPES.values()]
_LIMITS = [(-math.inf, math.inf)] * (1 + max(_ENUMS))
for _enum, _found in _BY_ENUM.items():
    _LIMITS[_enum] = _found.low, _found.high

# Calling it as a function is ten times as fast as `tensor._datatype_enum()`, because
# attribute access on tensors is slow.
datatype_enum: Callable[[object], int] = EagerTensor._datatype_enum
_index = operator.index


@native
def all_tensors(values: Sequence[object]) -> bool:
    """Whether all elements of a list input are eager tensors."""
    if type(values) is not list and type(values) is not tuple:
        return False
    for value in values:  # noqa: SIM110 - all() takes twice as long
        if type(value) is not EagerTensor:
            return False
    return True


def fits(dtype: type[TType], value: Any) -> bool:
    """Whether TensorFlow's fast path converts an input without loss.

    Args:
        dtype: the dtype of the input if it is not a tensor.
        value: the input, or a list of inputs.
    """
    allowed = _BY_CLASS[dtype]
    if type(value) is int or type(value) in _NUMPY_INTEGERS:
        return allowed.low <= _index(value) <= allowed.high
    return _unrepresentable(value, allowed) is None


def fit_pair(dtype: type[TType] | None, first: Any, second: Any) -> bool:
    """`fit_together` for two values, with a shortcut for a tensor and a number."""
    if type(first) is EagerTensor:
        low, high = _LIMITS[datatype_enum(first)]
        kind = type(second)
        if kind is int:
            number: int = second
            return low <= number <= high
        if kind in _NUMPY_INTEGERS:
            return low <= _index(second) <= high
        if kind in _REFUSED:
            return True
    elif type(second) is EagerTensor:
        return fit_pair(dtype, second, first)
    return fit_together(dtype, first, second)


def fit_together(dtype: type[TType] | None, *values: Any) -> bool:
    """Whether TensorFlow's fast path converts inputs of one dtype without loss.

    The dtype is that of the first tensor among them.

    Args:
        dtype: the dtype if no input is a tensor; None if the first value decides.
        values: the inputs, or lists of them.
    """
    for value in values:
        if type(value) is EagerTensor:
            allowed = _BY_ENUM.get(datatype_enum(value))
            break
    else:
        allowed = _shared_range(dtype, [*_leaves(values)])
    if allowed is None:
        return True
    for value in values:
        if type(value) is int:
            if not allowed.low <= value <= allowed.high:
                return False
        elif (
            type(value) is not EagerTensor
            and _unrepresentable(value, allowed) is not None
        ):
            return False
    return True


def unrepresentable(value: Any, dtype: tf.DType) -> Any:
    """The first number in `value` that `dtype` cannot represent.

    Args:
        value: a value that TensorFlow converts to a tensor.
        dtype: the dtype of that tensor.

    Returns:
        The number; None if all fit, or if TensorFlow itself refuses the value.
    """
    allowed = _BY_ENUM.get(dtype.base_dtype.as_datatype_enum)
    return None if allowed is None else _unrepresentable(value, allowed)


def _leaves(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


def _shared_range(dtype: type[TType] | None, values: Sequence[Any]) -> _Range | None:
    """The range of the dtype of values whose first is not an eager tensor."""
    for value in values:
        if isinstance(value, TensorType):
            return _BY_ENUM.get(tf.as_dtype(value.dtype).base_dtype.as_datatype_enum)
    if dtype is not None:
        return _BY_CLASS.get(dtype)
    return _inferred_range(values[0]) if values else None


def _inferred_range(value: object) -> _Range | None:
    """The range of the dtype that TensorFlow infers for a number or an array."""
    if type(value) is int:
        small = _range("int32")
        return small if small.low <= value <= small.high else _range("int64")
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return _BY_ENUM.get(tf.as_dtype(value.dtype).as_datatype_enum)
    return _REAL if type(value) is float else _EMPTY


def _unrepresentable(value: Any, allowed: _Range) -> Any:
    """The first number in `value` that is outside the range `allowed`, or None."""
    kind = type(value)
    if kind in _REFUSED:
        return None
    if kind is int or kind in _NUMPY_INTEGERS:
        return None if allowed.low <= _index(value) <= allowed.high else _index(value)
    if kind is list or kind is tuple:
        return _unrepresentable_in_list(value, allowed)
    if kind is np.ndarray:
        return _unrepresentable_in_array(value, allowed)
    if isinstance(value, (np.ndarray, np.generic)):
        return _unrepresentable_in_array(np.asarray(value), allowed)
    if isinstance(value, int):
        return _unrepresentable(int(value), allowed)
    if isinstance(value, (list, tuple)):
        return _unrepresentable_in_list(value, allowed)
    if isinstance(value, TensorType):
        # In a list, TensorFlow converts eager tensors by their values, like numbers.
        if type(value) is not EagerTensor or value.dtype in (tf.string, tf.variant):
            return None
    elif not (isinstance(value, _BUFFERS) or any(hasattr(value, n) for n in _NUMBERS)):
        return None
    try:
        numbers = np.asarray(value)
    except Exception:
        return None
    return _unrepresentable_in_array(numbers, allowed)


# NumPy converts an object that has one of these to an array.
_NUMBERS = ("__array__", "__array_interface__", "__index__")
_BUFFERS = (range, array.array, memoryview)


def _unrepresentable_in_list(values: Sequence[Any], allowed: _Range) -> Any:
    kinds = set(map(type, values))
    if kinds == {int}:
        values = (min(values), max(values))
    elif kinds <= _REFUSED:
        return None
    found = (_unrepresentable(value, allowed) for value in values)
    return next((one for one in found if one is not None), None)


def _unrepresentable_in_array(numbers: Any, allowed: _Range) -> Any:
    if numbers.dtype.num in allowed.array_dtypes:
        return None
    kind = numbers.dtype.kind
    if kind == "O":
        return _unrepresentable_in_list([*_of_objects(numbers)], allowed)
    if kind not in "biufc":
        numbers = _as_numbers(numbers)
    if numbers is None or not numbers.size or numbers.dtype.kind == "b":
        return None
    if numbers.dtype.kind == "c":
        complex_one = _first_where(numbers, numbers.imag != 0)
        if complex_one is not None:
            return complex_one
        numbers = numbers.real
    if not allowed.integers_only:
        return None
    if numbers.dtype.kind == "f":
        fraction = _first_where(numbers, np.trunc(numbers) != numbers)
        if fraction is not None:
            return fraction
    for one in _extremes(numbers):
        if not allowed.low <= one <= allowed.high:
            return one
    return None


def _first_where(numbers: Any, condition: Any) -> object:
    """The first element for which `condition` holds, as a Python number."""
    return numbers[condition].ravel()[0].item() if condition.any() else None


def _of_objects(numbers: Any) -> Iterator[Any]:
    """The numbers in an array of objects; NumPy converts each by itself."""
    for one in numbers.ravel().tolist():
        if isinstance(one, float):
            yield np.float64(one)
        elif hasattr(one, "__index__"):
            yield operator.index(one)


def _as_numbers(values: Any) -> Any:
    """Converts an array of times, or of a type that NumPy does not define, to numbers.

    Returns None for an array of another kind.
    """
    if values.dtype.kind in "mM":
        return values.astype(np.int64)
    if values.dtype.kind != "V":
        return None
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return None


# For this many numbers or fewer, Python's min is faster than NumPy's.
_FEW = 32


def _extremes(numbers: Any) -> tuple[Any, Any]:
    if numbers.size <= _FEW:
        values = numbers.ravel().tolist()
        return min(values), max(values)
    return numbers.min().item(), numbers.max().item()
