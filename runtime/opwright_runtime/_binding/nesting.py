"""Finds lists that nest too deeply for a tensor, such as one that contains itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opwright_runtime import errors
from opwright_runtime._binding.op_info import OpInfo
from opwright_runtime._binding.properties import MOST_AXES


def refused(
    info: OpInfo, inputs: Sequence[object], attrs: Mapping[str, object]
) -> errors.OpError | None:
    """The error for the first argument whose lists nest too deeply; None without one.

    Args:
        info: the op.
        inputs: the inputs of the call.
        attrs: the attrs of the call, by name.
    """
    values = [
        *zip((arg.python_name for arg in info.inputs), inputs, strict=True),
        *((info.attr[name].python_name, value) for name, value in attrs.items()),
    ]
    for name, value in values:
        if is_too_deep(value):
            return errors.make(
                errors.OpInputError,
                info.name,
                f"{info.name}: {name} must be a list of at most {MOST_AXES} levels, "
                "not one that contains itself or has more",
                argument=name,
                given=value,
                allowed=f"a list of at most {MOST_AXES} levels",
            )
    return None


def is_too_deep(value: object) -> bool:
    """Whether lists in lists have more levels than a tensor has axes."""
    # The deepest level of each list, so that lists that share parts take no longer.
    deepest: dict[int, int] = {}
    left: list[tuple[object, int]] = [(value, 1)]
    while left:
        one, level = left.pop()
        if not isinstance(one, (list, tuple)) or deepest.get(id(one), 0) >= level:
            continue
        # An input that is a list of tensors has one level more.
        if level > MOST_AXES + 1:
            return True
        deepest[id(one)] = level
        left += ((part, level + 1) for part in one)
    return False
