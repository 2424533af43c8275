"""Lists that contain themselves, and lists of many levels."""

from __future__ import annotations

from typing import Any

import pytest

from opwright import array, math, nn, raw_ops
from opwright_runtime import errors
from opwright_runtime._binding import nesting


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def _own() -> Any:
    value: list[Any] = [1.0]
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: raw_ops.Neg(x=_own()), "x"),
        (lambda: math.neg(_nested(5000)), "x"),
        (lambda: math.add_n(_own()), "inputs"),
        (lambda: array.reshape([1.0], _own()), "shape"),
        (lambda: nn.conv2d([[[[1.0]]]], [[[[1.0]]]], _own(), "SAME"), "strides"),
    ],
)
def test_list_of_too_many_levels_is_refused(call: Any, argument: str) -> None:
    with pytest.raises(errors.OpInputError, match="at most 254 levels") as caught:
        call()
    assert caught.value.argument == argument
    assert caught.value.__cause__ is None


def test_recursion_of_the_caller_is_left_alone() -> None:
    class Endless:
        def __array__(self, *_: object, **__: object) -> object:
            raise RecursionError("of the caller")

    with pytest.raises(RecursionError, match="of the caller"):
        math.neg(Endless())  # type: ignore[call-overload]


def test_levels_are_counted() -> None:
    assert not nesting.is_too_deep(_nested(255))
    assert nesting.is_too_deep(_nested(256))
    assert nesting.is_too_deep(_own())
    assert not nesting.is_too_deep("text")


def test_shared_lists_are_counted_once() -> None:
    value: list[Any] = []
    for _ in range(200):
        value = [value, value]
    assert not nesting.is_too_deep(value)
    for _ in range(100):
        value = [value, value]
    assert nesting.is_too_deep(value)
