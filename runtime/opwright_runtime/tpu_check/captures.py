"""Names of the tensors and tables that a function captures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

# Objects below others, as the attributes of a model, are searched to this depth.
_DEPTH = 6


def named_in_model(model: object) -> dict[int, str]:
    """The path within a model of each tensor and resource, by the id of its tensor."""
    found: dict[int, str] = {}
    seen: set[int] = set()
    level: list[tuple[str, object]] = [("", model)]
    for _ in range(_DEPTH):
        below: list[tuple[str, object]] = []
        for path, one in level:
            for name, child in _children(one):
                _add(found, f"{path}{name}", child)
                if id(child) not in seen:
                    seen.add(id(child))
                    below.append((f"{path}{name}.", child))
        level = below
    return found


def named_in_function(function: Callable[..., object]) -> dict[int, str]:
    """The names by which a function's code refers to tensors and tables."""
    function = getattr(function, "python_function", function)
    owner = getattr(function, "__self__", None)
    function = inspect.unwrap(getattr(function, "__func__", None) or function)
    found: dict[int, str] = {}
    try:
        variables = inspect.getclosurevars(function)
    except TypeError:  # It is no function of Python.
        return found
    for values in (variables.globals, variables.nonlocals):
        for name, value in values.items():
            _add(found, name, value)
    for name, value in getattr(owner, "__dict__", {}).items():
        _add(found, f"self.{name}", value)
    return found


def _children(one: object) -> Iterator[tuple[str, object]]:
    listed: Callable[[], dict[str, object]] | None
    listed = getattr(one, "_trackable_children", None)
    if listed is not None:
        yield from listed().items()


def _add(found: dict[int, str], name: str, value: object) -> None:
    for tensor in (value, getattr(value, "resource_handle", None)):
        if tensor is not None:
            found.setdefault(id(tensor), name)
