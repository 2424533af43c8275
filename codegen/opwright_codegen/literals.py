"""Writes values of attrs as Python literals."""

from __future__ import annotations

import math

from opwright_codegen.model import FuncValue, ShapeValue, TensorItem, TensorValue
from opwright_codegen.types import DTypeName, dtype_text


def value(default: object) -> str:
    """The source of a Python expression for a default."""
    if isinstance(default, tuple):
        items = ", ".join(map(value, default))
        return f"({items},)" if len(default) == 1 else f"({items})"
    if isinstance(default, ShapeValue):
        if default.dims is None:
            return "None"
        return value(tuple(None if size == -1 else size for size in default.dims))
    if isinstance(default, TensorValue):
        return _array(default)
    if isinstance(default, FuncValue):
        return quoted(default.name)
    if isinstance(default, DTypeName):
        return quoted(dtype_text(default))
    if isinstance(default, str):
        return quoted(default)
    if isinstance(default, float) and not math.isfinite(default):
        return f'float("{default}")'
    return repr(default)


def _array(default: TensorValue) -> str:
    # NumPy stores strings of variable length only as objects.
    text = default.dtype == "string"
    dtype = "object" if text else dtype_text(default.dtype)
    zero = "" if text else 0
    last = default.values[-1] if default.values else zero
    rest = math.prod(default.shape) - len(default.values)
    if rest and len(set(default.values)) < 2 and not isinstance(last, complex):
        return f"np.full({default.shape}, {value(last)}, {dtype!r})"
    items = [*default.values, *[last] * rest]
    if dtype.startswith("complex"):
        # Complex numbers are written as pairs of floats. The builtin `complex` cannot
        # be used, because an argument of the function may have that name.
        items = [part for item in items for part in _parts(item)]
        half = f"float{int(dtype[7:]) // 2}"
        array = f"np.array([{', '.join(map(value, items))}], {half!r}).view({dtype!r})"
    else:
        array = f"np.array([{', '.join(map(value, items))}], {dtype!r})"
    return array if len(default.shape) == 1 else f"{array}.reshape({default.shape})"


def _parts(number: TensorItem) -> tuple[float, float]:
    """The real and imaginary part of a complex number. Other values give zeros."""
    whole = number if isinstance(number, complex) else complex(0)
    return whole.real, whole.imag


def quoted(text: str) -> str:
    """A string literal in double quotes."""
    # With a double quote in it, repr() uses single quotes.
    escaped = repr('"' + text)[2:-1]
    return '"' + escaped.replace("\\'", "'").replace('"', '\\"') + '"'
