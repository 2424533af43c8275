"""The errors of opwright: one family. Each error names the op and the argument.

Every error is an `OpError`, and also one of Python's built-in errors: a `ValueError`
and `TypeError`, a `RuntimeError`, a `NotImplementedError` or a `LookupError`. An error
that replaces one of TensorFlow's errors is also an instance of that error's class, so
that `except tf.errors.InvalidArgumentError` catches it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

__all__ = [
    "OpAttrError",
    "OpChangedError",
    "OpError",
    "OpExecutionError",
    "OpGradientError",
    "OpInputError",
    "OpKernelError",
    "OpMemoryError",
    "OpModeError",
    "OpOptionError",
    "OpRemovedError",
    "OpUnknownError",
]


class OpError(Exception):
    """An op was refused.

    Attributes:
        op: OP_NAME of the op.
        argument: the input, attr or option at fault, as the op's `create` names it;
            None if the error is not about one argument.
        given: the value of the argument, or text that describes it.
        allowed: the allowed values, or text that describes them.
    """

    # In a tf.function, AutoGraph replaces an exception that passes through it with one
    # that lacks the attributes. This mark makes it keep the exception.
    ag_pass_through: ClassVar[bool] = True

    # tf.errors.OpError has a property `op`. These class attributes hide it in classes
    # that derive from both.
    op: str = ""
    argument: str | None = None
    given: Any = None
    allowed: Any = None
    message: str = ""

    def __init__(self, *given: object) -> None:
        """An error with more text, which Keras makes of one that a layer raised.

        Args:
            *given: the text, or what TensorFlow's errors take, with the text third.
        """
        text = str(next(iter(given[2:] or given), ""))
        before = sys.exc_info()[1]
        if not isinstance(before, type(self)):
            before = self
        code = getattr(before, "error_code", tf.errors.UNKNOWN)
        _fill(self, before.op, text, code)
        self.argument, self.given = before.argument, before.given
        self.allowed = before.allowed

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Callable[..., OpError], tuple[Any, ...]]:
        family, tensorflow_class = _parents(type(self))
        # `given` and `allowed` may be objects that cannot be pickled, so only their
        # texts are passed to another process.
        given, allowed = (
            value if value is None else str(value)
            for value in (self.given, self.allowed)
        )
        fields = (self.op, self.message, self.argument, given, allowed)
        return _rebuild, (family, tensorflow_class, fields)


class OpInputError(OpError, ValueError, TypeError):
    """An input has a dtype, length or kind that the op refuses, or is missing."""


class OpAttrError(OpError, ValueError, TypeError):
    """A required attr has a value that the op refuses."""


class OpOptionError(OpAttrError):
    """An option has a value that the op refuses."""


class OpMemoryError(OpError, RuntimeError):
    """The result of the call would take more memory than is free."""


class OpModeError(OpError, RuntimeError):
    """The call needs a graph, or another graph than this one."""


class OpRemovedError(OpError, NotImplementedError):
    """TensorFlow removed the op from graphs of the current version."""


class OpKernelError(OpError, NotImplementedError):
    """No kernel on this machine can run the op with these dtypes on this device."""


class OpUnknownError(OpError, LookupError):
    """This TensorFlow has no op of that name."""


class OpGradientError(OpError, LookupError):
    """No gradient is registered for the op."""


class OpChangedError(OpError, RuntimeError):
    """The registered op differs from the one that its class was generated for."""


class OpExecutionError(OpError, RuntimeError):
    """TensorFlow refused the op for a reason of its own."""


def make(
    family: type[OpError],
    op: str,
    message: str,
    *,
    argument: str | None = None,
    given: object = None,
    allowed: object = None,
    cause: BaseException | None = None,
) -> OpError:
    """An error of `family`, which is also one of `cause`'s class if that is known."""
    cls = family if cause is None else _merged(family, type(cause))
    error = cls.__new__(cls, message)
    _fill(error, op, message, getattr(cause, "error_code", tf.errors.UNKNOWN))
    error.argument = argument
    error.given = given
    error.allowed = allowed
    return error


def _fill(error: OpError, op: str, message: str, code: int) -> None:
    Exception.__init__(error, message)
    if isinstance(error, tf.errors.OpError):
        vars(error).update(_node_def=None, _op=None, _message=message, _error_code=code)
    error.op = op
    error.message = message


def bad_argument(
    family: type[OpError],
    op: str,
    argument: str,
    given: object,
    allowed: object,
    cause: Exception | None = None,
    remedy: str = "",
) -> OpError:
    """An error that says what `argument` was, what it may be, and what to do."""
    text = f"must be {format_allowed(allowed)}, not {repr_short(given)}"
    return make(
        family,
        op,
        f"{op}: {argument} {text}{remedy and f': {remedy}'}",
        argument=argument,
        given=given,
        allowed=allowed,
        cause=cause,
    )


def format_allowed(allowed: object) -> str:
    """Allowed values as a phrase; a text is such a phrase already."""
    if not isinstance(allowed, (tuple, list)):
        return str(allowed)
    words = [a.name if isinstance(a, tf.DType) else repr(a) for a in allowed]
    return words[0] if len(words) == 1 else "one of " + ", ".join(words)


def repr_short(given: object) -> str:
    """A short text for a value. An array is described by its dtype and shape."""
    if isinstance(given, tf.DType):
        return str(given.name)
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype}[{','.join(map(str, given.shape))}]"
    if isinstance(given, (list, tuple)) and len(given) > _FEW:
        return f"a {type(given).__name__} of {len(given)} elements"
    if isinstance(given, (list, tuple)) and type(given) in (list, tuple):
        inside = ", ".join(map(repr_short, given))
        if isinstance(given, list):
            return f"[{inside}]"
        return f"({inside},)" if len(given) == 1 else f"({inside})"
    if isinstance(given, tf.__internal__.types.Tensor):
        return describe_tensor(given)
    if isinstance(given, (tf.RaggedTensor, tf.SparseTensor)):
        return f"a {type(given).__name__} of {given.dtype.name}"
    text = " ".join(_repr(given).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _repr(given: object) -> str:
    try:
        return repr(given)
    except ValueError:
        # Python prints no integer of thousands of digits.
        if isinstance(given, int):
            return f"an int of {given.bit_length()} bits"
        raise


_FEW = 8


def describe_tensor(tensor: Any) -> str:
    """A tensor as `float32[2,3]`."""
    dtype = tf.as_dtype(tensor.dtype).name
    if tensor.shape.rank is None:
        return f"{dtype} of unknown rank"
    sizes = ("?" if size is None else str(size) for size in tensor.shape)
    return f"{dtype}[{','.join(sizes)}]"


class _Missing:
    """An argument that was not given."""

    def __repr__(self) -> str:
        return "<required>"


MISSING = _Missing()

_BUILTIN = (NotImplementedError, RuntimeError, TypeError, ValueError)

_MERGED: dict[tuple[type, type], type[OpError]] = {}


def _merged(family: type[OpError], raised: type[BaseException]) -> type[OpError]:
    """A class that derives from `family` and from the class that TensorFlow raised."""
    known = _MERGED.get((family, raised))
    if known is None:
        known = _MERGED.setdefault((family, raised), _new_class(family, raised))
    return known


def _new_class(family: type[OpError], raised: type[BaseException]) -> type[OpError]:
    if issubclass(family, raised):
        return family
    public = (tf.errors.OpError, *_BUILTIN)
    if not issubclass(raised, public):
        return family
    if raised.__module__ == "builtins":
        # The exact class may require arguments, as UnicodeDecodeError does.
        raised = next(base for base in _BUILTIN if issubclass(raised, base))
        if issubclass(family, raised):
            return family
    parents = (family, raised)
    merged: type[OpError] = type(family.__name__, parents, {"__doc__": family.__doc__})
    merged.__module__ = family.__module__
    return merged


def _parents(cls: type[OpError]) -> tuple[type[OpError], type[BaseException] | None]:
    if globals().get(cls.__name__) is cls:
        return cls, None
    family, raised = cls.__bases__
    return family, raised


def _rebuild(
    family: type[OpError],
    raised: type[BaseException] | None,
    fields: tuple[str, str, str | None, Any, Any],
) -> OpError:
    op, message, argument, given, allowed = fields
    cls = family if raised is None else _merged(family, raised)
    return make(cls, op, message, argument=argument, given=given, allowed=allowed)
