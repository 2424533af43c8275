"""Why TensorFlow refused an op, worked out after it did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import core

from opwright_runtime import errors
from opwright_runtime.opdef import OpInfo


def unknown(name: str, names: Iterable[str]) -> errors.OpError:
    """An error for the name of an op that there is no class for."""
    close = get_close_matches(name, list(names), n=3)
    hint = f"; close to it: {', '.join(close)}" if close else ""
    return errors.make(
        errors.OpUnknownError,
        name,
        f"no op is called {name!r}{hint}",
        given=name,
        allowed=tuple(close) or None,
    )


def explained(
    error: Exception, info: OpInfo, inputs: Sequence[Any], attrs: Mapping[str, Any]
) -> Exception:
    """The error to raise in place of `error`."""
    if isinstance(error, core._NotOkStatusException):
        error = core._status_to_exception(error)
    return errors.make(
        errors.OpExecutionError, info.name, f"{info.name}: {error}", cause=error
    )
