"""Runs drawn calls of an op, and compares results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from opwright_runtime.kernels import kernels
from xla_ops.support.every_kind import KINDS

NARROW = (tf.bfloat16, tf.float16)
TOLERANCE = {tf.bfloat16: 1e-2, tf.float16: 1e-3, tf.float32: 1e-5, tf.float64: 1e-12}


def dtypes(name: str) -> list[tf.DType]:
    """The dtypes that both XLA and the CPU have; float32 for an op without a choice."""
    attr = KINDS[name].attr
    if not attr:
        return [tf.float32]
    by_device: dict[str, set[tf.DType]] = {"CPU": set(), "XLA": set()}
    for row in kernels(name):
        if row.device in by_device:
            by_device[row.device].update(row.dtypes.get(attr, ()))
    found = by_device["CPU"] & by_device["XLA"]
    assert found, f"{name} has no kernel of XLA"
    return sorted(found, key=lambda dtype: dtype.name)


def split(name: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The inputs of a call as tensors, and its other arguments."""
    inputs = {arg.name for arg in op_def_registry.get(name).input_arg}
    given = {
        key: tf.nest.map_structure(tf.constant, value)
        for key, value in arguments.items()
        if key in inputs
    }
    return given, {key: arguments[key] for key in arguments.keys() - given.keys()}


def run(name: str, arguments: Mapping[str, Any]) -> list[tf.Tensor]:
    return list(tf.nest.flatten(getattr(tf.raw_ops, name)(**arguments)))


def reference(name: str, arguments: Mapping[str, Any]) -> list[tf.Tensor]:
    """The results of the CPU kernel, which computes 16 bits with less error in 32."""
    if KINDS[name].narrow:
        return run(name, arguments)
    narrow: set[tf.DType] = set()

    def widen(value: Any) -> Any:
        if tf.is_tensor(value) and value.dtype in NARROW:
            narrow.add(value.dtype)
            return tf.cast(value, tf.float32)
        return value

    wide = run(name, tf.nest.map_structure(widen, dict(arguments)))
    if not narrow:
        return wide
    (dtype,) = narrow
    exact = run(name, arguments)
    return [
        tf.cast(one, dtype) if other.dtype == dtype else other
        for one, other in zip(wide, exact, strict=True)
    ]


def assert_close(found: tf.Tensor, wanted: tf.Tensor, factor: float) -> None:
    """Drawn numbers are of the order of 1, of which sums that cancel keep the error."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    dtype = wanted.dtype.real_dtype
    if dtype not in TOLERANCE:
        np.testing.assert_array_equal(found, wanted)
        return
    limit = TOLERANCE[dtype] * factor
    wide = tf.complex128 if wanted.dtype.is_complex else tf.float64
    one, other = (tf.cast(each, wide).numpy() for each in (found, wanted))
    scale = np.abs(other[np.isfinite(other)]).max(initial=1.0)
    np.testing.assert_allclose(one, other, rtol=limit, atol=limit * scale)
