"""Conditions on what inputs stand for, which Python checks when a graph runs.

TensorFlow has no ops that a graph could check them with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from opwright_notation.conditions import HOLDS, TABLE
from opwright_runtime._binding import handles, numerics, resources, texts, variants


def _holds(handle: tf.Tensor, dtype: str) -> bool:
    return resources.held_by(handle) in (None, dtype)


#: By the names that conditions have for them.
_FUNCTIONS: Mapping[str, Callable[..., bool]] = {
    HOLDS: _holds,
    TABLE: resources.is_table,
    "pairs": resources.are_pairs,
    "single": resources.is_single,
    "importable": resources.are_importable,
    "joins": variants.are_joined,
    "filled": variants.is_filled,
    "invertible": numerics.is_invertible,
    "removable": handles.is_removable,
    "stackable": texts.are_stackable,
}
NAMES = frozenset(_FUNCTIONS)


def holds(name: str, tensors: Sequence[tf.Tensor], *rest: object) -> tf.Tensor:
    """Whether a condition holds, as the result of an op that calls Python.

    A condition whose value is unknown holds, as in eager calls.

    Args:
        name: one of `NAMES`.
        tensors: the inputs that its function takes first.
        rest: the other arguments.
    """

    def found(*given: tf.Tensor) -> bool:
        try:
            return _FUNCTIONS[name](*given, *rest)
        except Exception:
            return True

    # The results are on the host, as the handles are.
    with tf.device("CPU:0"):
        result: tf.Tensor = tf.py_function(found, tensors, tf.bool)
    result.set_shape([])
    return result
