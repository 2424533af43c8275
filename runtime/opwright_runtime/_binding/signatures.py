"""Signatures of generated functions, as their source states them."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import TYPE_CHECKING, Any

# They take the arguments that a function does not have, which it then refuses.
_REFUSED = frozenset({"_surplus", "_unknown"})


class SourceSignature(inspect.Signature):
    """The signature of a function before its required arguments get a default.

    It is computed when it is first read: a package imports hundreds of functions, and
    few programs read their signatures.
    """

    __slots__ = ("_function",)
    _function: Any  # A FunctionType, which mypy takes for a method.

    @classmethod
    def of(cls, function: FunctionType) -> SourceSignature:
        """The signature of `function`, whose positional arguments are all required."""
        self = cls.__new__(cls)
        self._function = function
        return self

    if not TYPE_CHECKING:
        # Hidden from type checkers, which would let every name pass.

        def __getattr__(self, name: str) -> Any:
            # Reached for a slot without a value. `of` leaves those of the base empty.
            if name == "_function":
                raise AttributeError(name)
            source = _source_signature(self._function)
            super().__init__(
                source.parameters.values(), return_annotation=source.return_annotation
            )
            return object.__getattribute__(self, name)


def _source_signature(function: FunctionType) -> inspect.Signature:
    bare = FunctionType(function.__code__, function.__globals__, function.__name__)
    bare.__kwdefaults__ = function.__kwdefaults__
    bare.__annotations__ = function.__annotations__
    stated = inspect.signature(bare)
    known = [one for one in stated.parameters.values() if one.name not in _REFUSED]
    return stated.replace(parameters=known)
