"""Signatures of generated functions, as their source code has them."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from opwright_runtime import errors

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., object]")

# Generated functions have the parameters `*_surplus` and `**_unknown` to receive
# arguments that they do not support, and raise an error that names these. The
# signature leaves the two out.
_REFUSED = frozenset({"_surplus", "_unknown"})


class SourceSignature(inspect.Signature):
    """The signature of a generated function, with its required arguments as required.

    `describe_missing_args` gives the required arguments a default, to name a missing
    one in an error. The signature is computed when it is first read, because a package
    imports hundreds of functions and few programs read their signatures.
    """

    __slots__ = ("_function",)
    _function: Any  # It is a FunctionType, but mypy would treat that as a method.

    @classmethod
    def of(cls, function: FunctionType) -> SourceSignature:
        """The signature of `function`, whose positional arguments are all required."""
        self = cls.__new__(cls)
        self._function = function
        return self

    if not TYPE_CHECKING:
        # Hidden from type checkers, which would let every name pass.

        def __getattr__(self, name: str) -> Any:
            # Python calls this for a slot without a value. `of` leaves the slots of
            # the base class without one.
            if name == "_function":
                raise AttributeError(name)
            source = _source_signature(self._function)
            super().__init__(
                source.parameters.values(), return_annotation=source.return_annotation
            )
            return object.__getattribute__(self, name)


def describe_missing_args(function: F) -> F:
    """Makes `function` accept calls with too few arguments; returns it.

    The op's own error then names the missing argument. `inspect.signature` still shows
    the argument as required.
    """
    plain: Any = function
    plain.__defaults__ = (errors.MISSING,) * plain.__code__.co_argcount
    plain.__signature__ = SourceSignature.of(plain)
    return function


def _source_signature(function: FunctionType) -> inspect.Signature:
    bare = FunctionType(function.__code__, function.__globals__, function.__name__)
    bare.__kwdefaults__ = function.__kwdefaults__
    bare.__annotations__ = function.__annotations__
    stated = inspect.signature(bare)
    known = [one for one in stated.parameters.values() if one.name not in _REFUSED]
    return stated.replace(parameters=known)
