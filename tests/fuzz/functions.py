"""Functions that calls name in their attrs: of custom combiners, and of optimizers.

Their sizes are those of their arguments. A call may name any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef

Tensor = Any
MISSING = "missing"  # No function has this name.


def _weighted(n: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return tf.reduce_sum(w[:, :, None] * v, 1)


def _sum_vjp(n: Tensor, v: Tensor, g: Tensor) -> Tensor:
    return tf.zeros_like(v) + g[:, None]


def _weighted_vjp(n: Tensor, v: Tensor, w: Tensor, g: Tensor) -> Tensor:
    return w[:, :, None] * g[:, None]


def _weights_vjp(n: Tensor, v: Tensor, w: Tensor, g: Tensor) -> Tensor:
    return tf.reduce_sum(v * g[:, None], 2)


def _fails(n: Tensor, v: Tensor) -> Tensor:
    with tf.control_dependencies([tf.debugging.Assert(False, ["on purpose"])]):
        return tf.reduce_sum(v, 1)


# By name: the types of the arguments, i for int32 and f for float32, and the function.
FUNCTIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "sum": ("if", lambda n, v: tf.reduce_sum(v, 1)),
    "sum_vjp": ("iff", _sum_vjp),
    "weighted": ("iff", _weighted),
    "weighted_vjp": ("ifff", _weighted_vjp),
    "weights_vjp": ("ifff", _weights_vjp),
    "no_weights_vjp": ("ifff", lambda n, v, w, g: None),
    "descent": ("fff", lambda g, w, rate: w - rate * g),
    # Wrong results.
    "short": ("if", lambda n, v: tf.reduce_sum(v, 1)[1:]),
    "short_vjp": ("iff", lambda n, v, g: v[:, :0]),
    "integers": ("if", lambda n, v: n),
    "two": ("if", lambda n, v: (v, v)),
    "by_zero": ("if", lambda n, v: tf.reduce_sum(v, 1) / 0),
    "by_zero_vjp": ("iff", lambda n, v, g: (v + g[:, None]) / 0),
    "sizes": ("if", lambda n, v: tf.reshape(v, n)),
    "fails": ("if", _fails),
}
NAMES = (*FUNCTIONS, MISSING)


@cache
def definition(name: str) -> FunctionDef:
    """The function, under its name."""
    types, function = FUNCTIONS[name]
    dtypes = {"i": tf.int32, "f": tf.float32}
    specs = [tf.TensorSpec(None, dtypes[one]) for one in types]
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    result = FunctionDef()
    result.CopyFrom(traced.function_def)
    result.signature.name = name
    return result
