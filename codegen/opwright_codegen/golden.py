"""Writes the golden file with which the test of a new op begins: arguments that fit.

The arguments have the shapes and, as far as a few tries find values, meet the
conditions of the opdef. The author writes the results.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opwright_codegen import naming, shapes
from opwright_codegen.model import Arg, Attr, Op, ShapeValue
from opwright_codegen.types import DTypeName
from opwright_notation.conditions import Condition, conjuncts, parsed
from opwright_notation.evaluation import Evaluation, Facts
from opwright_notation.functions import Kind
from opwright_notation.sizes import MisfitError
from opwright_notation.syntax import parsed as parsed_shape


@dataclass(frozen=True)
class _Choice:
    """How values are chosen.

    `first` and `step`: the elements of a tensor of integers are `first`,
    `first + step` and so on. Those of floats are half of that. `more`: how much more an
    integer attr is than its minimum. `rate`: the value of a float attr.
    """

    first: int = 1
    step: int = 1
    more: int = 0
    rate: float = 1.0


#: The choices in the order in which they are tried.
_CHOICES: Final = [
    _Choice(first, step, more, rate)
    for rate in (1.0, 0.5)
    for first, step in ((1, 1), (0, 1), (1, 0), (0, 0))
    for more in (0, 1, 2, 3, 10)
]


@dataclass(frozen=True)
class _Call:
    """Arguments of a call, by the names in the opdef."""

    inputs: dict[str, Any]
    attrs: dict[str, object]
    types: dict[str, str]


def begun(op: Op) -> tuple[str, list[str]]:
    """The golden file of an op without results, and the conditions that it breaks."""
    call, broken = _call(op, _CHOICES[0]), list[str]()
    if op.requires:
        for choice in _CHOICES:
            tried = _call(op, choice)
            found = _broken(op, tried)
            if choice is _CHOICES[0] or not found:
                call, broken = tried, found
            if not found:
                break
    rows = [
        f'    "{naming.argument(name)}": {json.dumps(value)}'
        for name, value in call.inputs.items()
    ]
    attrs = {str(naming.argument(name)): value for name, value in call.attrs.items()}
    inner = ",\n".join(rows)
    text = (
        f'{{\n  "arguments": {{\n{inner}\n  }},\n  "attrs": {json.dumps(attrs)},\n'
        '  "results": null\n}\n'
    )
    return text, broken


def _call(op: Op, choice: _Choice) -> _Call:
    types = {
        attr.name: _first(attr.allowed, "float")
        for attr in op.attrs
        if attr.kind == "type"
    }
    sizes = _sizes(op, choice)
    inputs = {arg.name: _tensor(op, arg, types, sizes, choice) for arg in op.inputs}
    attrs = {
        attr.name: _given(attr, choice) for attr in op.given if attr.default is None
    }
    return _Call(inputs, attrs, types)


def _broken(op: Op, call: _Call) -> list[str]:
    """The conditions of an op that a call breaks for certain."""
    lengths = {
        arg.name: len(call.inputs[arg.name]) if arg.is_list else None
        for arg in op.inputs
    }

    def property_of(
        name: str, argument: str, index: int | None, more: tuple[object, ...]
    ) -> object:
        value = call.inputs[argument]
        return (
            None if more else _property(name, value if index is None else value[index])
        )

    known = {attr.name: _default(attr) for attr in op.attrs if attr.default is not None}
    known |= {name: _python_dtype(dtype) for name, dtype in call.types.items()}
    known |= {
        arg.count: len(call.inputs[arg.name])
        for arg in op.inputs
        if arg.count is not None
    }
    known |= {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in call.attrs.items()
    }
    condition = Condition(Facts(known), None, lengths, property_of, lambda *_: None)
    return [text for text in op.requires if _breaks(condition, text)]


def _breaks(condition: Condition, text: str) -> bool:
    for part in conjuncts(parsed(text)):
        for index in condition.positions(part):
            try:
                if condition.at(index).holds(part) is False:
                    return True
            except MisfitError:
                return True
            except (TypeError, ValueError, ArithmeticError):
                continue  # It is about values that this module does not choose.
    return False


def _property(name: str, tensor: Mapping[str, object]) -> object:
    """A property of a tensor of the golden file; None for one that is not known."""
    shape: list[int] = []
    flat: list[Any] = [tensor["values"]]
    while flat and isinstance(flat[0], list):
        shape.append(len(flat[0]))
        flat = [one for row in flat for one in row]
    if name == "dtype":
        return tensor["dtype"]
    if name in ("rank", "elements", "shape"):
        return {"rank": len(shape), "elements": len(flat), "shape": tuple(shape)}[name]
    if not flat or isinstance(flat[0], str):
        return None
    return {
        "value": flat[0] if len(flat) == 1 else None,
        "contents": tuple(flat),
        "last": flat[-1],
        "least": min(flat),
        "most": max(flat),
        "finite": True,
        "nan_free": True,
        "rising": sorted(flat) == flat,
        "permutation": sorted(flat) == [*range(len(flat))],
    }.get(name)


def _default(attr: Attr) -> object:
    value = attr.default
    if isinstance(value, ShapeValue):
        return value.dims
    if isinstance(value, DTypeName):
        return _python_dtype(value)
    return value if isinstance(value, (bool, int, float, str, tuple)) else None


def _first(allowed: Sequence[str] | None, otherwise: str) -> str:
    """`otherwise` if it is allowed, or else the first allowed dtype or text."""
    names = allowed or (otherwise,)
    return otherwise if otherwise in names else names[0]


def _given(attr: Attr, choice: _Choice) -> object:
    values: dict[str, object] = {
        "int": (0 if attr.kind.is_list else attr.minimum or 0) + choice.more,
        "float": choice.rate,
        "bool": False,
        "string": _first(attr.allowed, ""),
        "type": _first(attr.allowed, "float32"),
        "shape": [],
    }
    one = values.get(attr.kind.element)
    return [one] * (attr.minimum or 0) if attr.kind.is_list else one


def _sizes(op: Op, choice: _Choice) -> dict[str, object]:
    """A different value for each name in the op's shapes."""
    counter = itertools.count(2)
    read = shapes.read(op)[0]
    found: dict[str, object] = {
        name: next(counter) if symbol.kind is Kind.SIZE else (2,)
        for name, symbol in read.symbols.items()
    }
    for attr in op.given:
        value = _given(attr, choice) if attr.default is None else attr.default
        found[attr.name] = value.dims if isinstance(value, ShapeValue) else value
    return found


def _tensor(
    op: Op,
    arg: Arg,
    types: Mapping[str, str],
    sizes: Mapping[str, object],
    choice: _Choice,
) -> object:
    if arg.is_list:
        one = Arg(arg.name, arg.dtype, arg.type_attr, shape=arg.shape)
        one = one if one.dtype or one.type_attr else Arg(arg.name, DTypeName("float"))
        return [_tensor(op, one, types, sizes, choice)] * 2
    dtype = str(arg.dtype) if arg.dtype is not None else types[str(arg.type_attr)]
    python = _python_dtype(dtype)
    shape = _shape(shapes.read(op)[0].inputs.get(arg.name), sizes)
    numbers = itertools.count(choice.first, choice.step)

    def filled(rest: Sequence[int]) -> object:
        if rest:
            return [filled(rest[1:]) for _ in range(rest[0])]
        number = next(numbers)
        if python == "string":
            return f"text {number}"
        if python == "bool":
            return number % 2 == 0
        return number if "int" in python else number / 2

    return {"dtype": python, "values": filled(shape)}


def _python_dtype(dtype: str) -> str:
    names = {"half": "float16", "float": "float32", "double": "float64"}
    return names.get(dtype, dtype)


def _shape(expression: str | None, sizes: Mapping[str, object]) -> tuple[int, ...]:
    """The shape of an input. Sizes that the opdef does not state are 2."""
    if expression is None:
        return (2,)
    evaluation = Evaluation(Facts(sizes=dict(sizes)), 0)
    try:
        row = evaluation.tuple_row(next(evaluation.options(parsed_shape(expression))))
    except MisfitError:
        return (2,)
    return tuple(
        2 if size is None else size for size in row if isinstance(size, int | None)
    )
