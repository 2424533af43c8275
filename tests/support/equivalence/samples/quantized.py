"""Ops over quantized numbers."""

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from support.equivalence.samples.kit import Samples, integers, real

SAMPLES = Samples()

STORED = {
    tf.quint8: np.uint8,
    tf.qint8: np.int8,
    tf.qint32: np.int32,
    tf.qint16: np.int16,
}


def quantized(dtype: tf.DType, *shape: int, low: int | None = None) -> Any:
    """An input of a quantized dtype, which no NumPy array has of itself."""
    low = low if low is not None else 0 if dtype == tf.quint8 else -100
    plain = integers(*shape, low=low, high=100, dtype=STORED[dtype])
    return partial(lambda: tf.bitcast(plain, dtype))


U, S, W = tf.quint8, tf.qint8, tf.qint32
RANGE, OTHER, RESULT = (-1.0, 1.0), (-2.0, 2.0), (-4.0, 4.0)

# Arithmetic.
SAMPLES.each(
    "QuantizedAdd QuantizedMul", quantized(U, 3, 4), quantized(U, 4), *RANGE, *OTHER
)
SAMPLES.add(
    "QuantizedBiasAdd", quantized(U, 3, 4), quantized(U, 4), *RANGE, *OTHER, out_type=W
)
SAMPLES.add(
    "QuantizedMatMul",
    quantized(U, 4, 3),
    quantized(U, 2, 4),
    *RANGE,
    *OTHER,
    transpose_a=True,
    transpose_b=True,
)
SAMPLES.each("QuantizedRelu QuantizedRelu6", quantized(U, 3, 4), *RANGE)
SAMPLES.add(
    "QuantizedConcat",
    1,
    [quantized(U, 2, 2), quantized(U, 2, 3)],
    [-1.0, -2.0],
    [1.0, 2.0],
)
SAMPLES.add(
    "QuantizedConcatV2",
    [quantized(U, 2, 2), quantized(U, 2, 3)],
    1,
    [-1.0, -2.0],
    [1.0, 2.0],
)
SAMPLES.add("QuantizedReshape", quantized(U, 2, 6), [3, 4], *RANGE)
SAMPLES.add(
    "QuantizedResizeBilinear",
    quantized(U, 1, 4, 4, 2),
    [3, 3],
    *RANGE,
    align_corners=True,
)
SAMPLES.add(
    "QuantizedInstanceNorm",
    quantized(U, 1, 4, 4, 2),
    *RANGE,
    output_range_given=True,
    given_y_min=-2.0,
    given_y_max=2.0,
    variance_epsilon=0.01,
    min_separation=0.1,
)
SAMPLES.add(
    "QuantizedBatchNormWithGlobalNormalization",
    *(
        x
        for shape in [(1, 2, 2, 3)] + [(3,)] * 4
        for x in (quantized(U, *shape), *RANGE)
    ),
    out_type=W,
    variance_epsilon=0.01,
    scale_after_normalization=True,
)

# To and from floats.
SAMPLES.add(
    "QuantizeV2",
    real(2, 3),
    *OTHER,
    T=S,
    mode="SCALED",
    round_mode="HALF_TO_EVEN",
    narrow_range=True,
    ensure_minimum_range=0.1,
)
SAMPLES.add("QuantizeV2", real(2, 3), *OTHER, T=U)
SAMPLES.add("Dequantize", quantized(S, 2, 3), *OTHER, mode="SCALED", narrow_range=True)
SAMPLES.add("Dequantize", quantized(U, 2, 3), *OTHER)
SAMPLES.add("QuantizeDownAndShrinkRange", quantized(W, 2, 3), *OTHER, out_type=U)
SAMPLES.add("Requantize", quantized(W, 2, 3), *OTHER, *RANGE, out_type=U)
SAMPLES.add("RequantizationRange", quantized(W, 2, 3), *OTHER)
CHANNELS = (np.float32([-1, -2, -3]), np.float32([1, 2, 3]))
SAMPLES.add(
    "RequantizationRangePerChannel",
    quantized(W, 1, 2, 2, 3),
    *CHANNELS,
    clip_value_max=2.0,
)
SAMPLES.add(
    "RequantizePerChannel", quantized(W, 1, 2, 2, 3), *CHANNELS, *RANGE, out_type=S
)

# Convolutions and pooling.
IMAGE = quantized(U, 1, 4, 4, 2)
UNIT = {"strides": [1, 1, 1, 1], "padding": "SAME"}
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
SAMPLES.each("QuantizedAvgPool QuantizedMaxPool", IMAGE, *RANGE, **POOL)
SAMPLES.add("QuantizedConv2D", IMAGE, quantized(U, 3, 3, 2, 2), *RANGE, *OTHER, **UNIT)
A, B = quantized(U, 2, 4), quantized(S, 4, 3)
SAMPLES.each(
    "QuantizedMatMulWithBias QuantizedMatMulWithBiasAndRelu",
    A,
    B,
    real(3),
    *RANGE,
    *OTHER,
)
SAMPLES.each(
    "QuantizedMatMulWithBiasAndRequantize QuantizedMatMulWithBiasAndReluAndRequantize",
    A,
    B,
    real(3),
    *RANGE,
    *OTHER,
    *RESULT,
)
SAMPLES.add(
    "QuantizedMatMulWithBiasAndDequantize",
    A,
    B,
    real(3),
    *RANGE,
    *OTHER,
    *RESULT,
    Toutput=tf.float32,
)

# Uniform quantization.
AXIS = "quantization_axis"
S8 = {"quantization_min_val": -127, "quantization_max_val": 127}
S32 = {"quantization_min_val": -(2**31), "quantization_max_val": 2**31 - 1}
SCALES, ZEROS = np.float32([0.5, 0.25, 0.125]), np.int32([1, 2, 3])
ONE = (np.float32(0.5), np.int32(1))


def bounds(prefix: str, values: dict[str, int]) -> dict[str, int]:
    return {f"{prefix}_{name}": value for name, value in values.items()}


SAMPLES.add("UniformQuantize", real(2, 3), SCALES, ZEROS, Tout=S, **{AXIS: 1}, **S8)
SAMPLES.add(
    "UniformDequantize",
    quantized(S, 2, 3),
    SCALES,
    ZEROS,
    Tout=tf.float32,
    **{AXIS: 1},
    **S8,
)
SAMPLES.add(
    "UniformRequantize",
    quantized(S, 2, 3),
    SCALES,
    ZEROS,
    *ONE,
    Tout=S,
    input_quantization_axis=1,
    **bounds("input", S8),
    **bounds("output", S8),
)
SAMPLES.add(
    "UniformQuantizedAdd",
    quantized(W, 2, 3),
    quantized(W, 3),
    *ONE,
    *ONE,
    *ONE,
    **bounds("lhs", S32),
    **bounds("rhs", S32),
    **bounds("output", S32),
)
SAMPLES.add(
    "UniformQuantizedClipByValue",
    quantized(W, 2, 3),
    quantized(W, 3, low=-90),
    quantized(W, 3, low=50),
    SCALES,
    ZEROS,
    **{AXIS: 1},
    **S32,
)
THREE = bounds("lhs", S8) | bounds("rhs", S8) | bounds("output", S32)
PLAIN = (np.float32(0.5), np.int32(0))
SAMPLES.add(
    "UniformQuantizedDot",
    quantized(S, 2, 3),
    quantized(S, 3, 2),
    *ONE,
    *PLAIN,
    *PLAIN,
    Tout=W,
    **THREE,
)
SAMPLES.add(
    "UniformQuantizedDotHybrid",
    real(2, 3),
    quantized(S, 3, 2),
    *PLAIN,
    Tout=tf.float32,
    **bounds("rhs", S8),
)
WINDOW = {
    "window_strides": [1, 1],
    "padding": "EXPLICIT",
    "explicit_padding": [0, 1, 1, 0],
    "lhs_dilation": [1, 1],
    "rhs_dilation": [1, 1],
    "batch_group_count": 1,
    "feature_group_count": 1,
}
SAMPLES.add(
    "UniformQuantizedConvolution",
    quantized(S, 1, 2, 4, 4),
    quantized(S, 3, 2, 2, 2),
    *ONE,
    *PLAIN,
    *PLAIN,
    Tout=W,
    **WINDOW,
    **THREE,
)
SAMPLES.add(
    "UniformQuantizedConvolutionHybrid",
    real(1, 2, 4, 4),
    quantized(S, 3, 2, 2, 2),
    *PLAIN,
    Tout=tf.float32,
    **WINDOW,
    **bounds("rhs", S8),
)
