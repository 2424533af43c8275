"""Dtypes that XLA has on other devices, and TensorFlow not on TPUs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

import opwright
from opwright import check_tpu
from opwright_runtime._tpu_dtypes import TPU_DTYPES

FLOAT = tf.TensorSpec([64], tf.float32)


def spectrum(x: tf.Tensor) -> tf.Tensor:
    wide = tf.cast(x, tf.complex128)
    return tf.math.real(tf.signal.fft(wide))


def test_tpu_dtypes_are_those_of_the_installed_header() -> None:
    header = Path(tf.sysconfig.get_include(), "tensorflow/core/tpu/tpu_defs.h")
    listed = re.search(r"kTpuAllTypes = \{(.*?)\}\}", header.read_text(), re.DOTALL)
    assert listed is not None
    numbers = map(types_pb2.DataType.Value, re.findall(r"DT_\w+", listed[1]))
    names = {tf.as_dtype(number).name for number in numbers}
    # Older versions of TensorFlow have fewer of float8.
    assert names <= TPU_DTYPES
    assert all(name.startswith("float8") for name in TPU_DTYPES - names)


def test_check_tpu_complex128_ops_are_blockers_with_lines() -> None:
    cast, transform, real = check_tpu(spectrum, FLOAT, chips="v5e").blockers[:3]
    assert (cast.op, transform.op, real.op) == ("Cast", "FFT", "Real")
    assert transform.reason == "TPUs have no kernel for Tcomplex=complex128"
    assert transform.code == "return tf.math.real(tf.signal.fft(wide))"


WIDE = tf.Variable(tf.zeros([4], tf.complex128))


@pytest.mark.parametrize(
    ("kind", "program", "given"),
    [
        ("argument", lambda x: x + x, [tf.TensorSpec([4], tf.complex128)]),
        ("variable", lambda: WIDE + WIDE, []),
    ],
)
def test_check_tpu_complex128_value_is_a_blocker(
    kind: str, program: Any, given: list[tf.TensorSpec]
) -> None:
    first, *ops = check_tpu(program, *given, chips="v5e").blockers
    assert (first.op, first.reason) == (kind, "TPUs have no values of complex128")
    assert "AddV2" in [each.op for each in ops]


def test_check_tpu_complex128_in_a_called_function_is_a_blocker() -> None:
    report = check_tpu(lambda x: tf.function(spectrum)(x), FLOAT, chips="v5e")
    assert [each.op for each in report.blockers] == ["Cast", "FFT", "Real"]


def test_check_tpu_complex128_that_no_result_needs_is_no_blocker() -> None:
    def unused(x: tf.Tensor) -> tf.Tensor:
        spectrum(x)
        return x + 1.0

    assert check_tpu(unused, FLOAT, chips="v5e").compiles


def test_runs_on_and_kernels_say_that_tpus_lack_complex128() -> None:
    xla = [row for row in opwright.op_class("FFT").kernels() if row.device == "XLA"]
    assert "complex64|complex128, no complex128 on TPUs" in repr(xla[0])
    text = repr(opwright.op_class("Unique").runs_on())
    assert "complex64, int64" in text and "complex128 (not on TPUs)" in text
