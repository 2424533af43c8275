"""Runs drawn calls of an op, and compares results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from opwright_runtime.kernels import kernels
from xla_ops.support.every_kind import KINDS

TOLERANCE = {tf.bfloat16: 2e-2, tf.float16: 3e-3, tf.float32: 1e-5, tf.float64: 1e-12}


def dtypes(name: str) -> list[tf.DType]:
    """The dtypes that both XLA and the CPU have; float32 for an op without a choice."""
    attr = KINDS[name].attr
    if not attr:
        return [tf.float32]
    by_device: dict[str, set[tf.DType]] = {"CPU": set(), "XLA": set()}
    for row in kernels(name):
        if row.device in by_device:
            by_device[row.device].update(row.dtypes.get(attr, ()))
    return sorted(by_device["CPU"] & by_device["XLA"], key=lambda dtype: dtype.name)


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


def assert_close(found: tf.Tensor, wanted: tf.Tensor, factor: float) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    dtype = wanted.dtype.real_dtype
    if dtype not in TOLERANCE:
        np.testing.assert_array_equal(found, wanted)
        return
    limit = TOLERANCE[dtype] * factor
    wide = tf.complex128 if wanted.dtype.is_complex else tf.float64
    one, other = (tf.cast(each, wide).numpy() for each in (found, wanted))
    scale = np.abs(other[np.isfinite(other)]).max(initial=0.0)
    np.testing.assert_allclose(one, other, rtol=limit, atol=limit * scale)
