"""Dtypes for which XLA or TPUs have no kernel."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tpu.support.remedies.case import COUNTS, FLOATS, Case, segment_sums

SMALL = np.arange(8, dtype=np.uint8)
SHORT = np.arange(8, dtype=np.int16)
COMPLEX = (FLOATS[:4] + 1j * FLOATS[4:]).astype(np.complex64)


def _mapped(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    ragged = tf.RaggedTensor.from_row_lengths(x, n, validate=False)
    return tf.map_fn(tf.reduce_sum, ragged, fn_output_signature=tf.float32)


CASES = (
    Case(
        "small_ints",
        "Cumsum x",
        lambda x: tf.cumsum(x),
        lambda x: tf.cumsum(tf.cast(x, tf.int32)),
        [SMALL],
    ),
    Case(
        "complex128",
        "FFT input",
        lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex128))),
        lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64))),
        [FLOATS],
    ),
    Case(
        "strings",
        "GatherV2 params",
        lambda x: tf.strings.to_number(tf.gather(["1", "2"], x)),
        lambda x: tf.gather([1.0, 2.0], x),
        [np.array([1, 0], np.int32)],
    ),
    Case(
        "complex_svd",
        "Svd input",
        lambda x: tf.linalg.svd(tf.reshape(x, [2, 2]), compute_uv=False),
        lambda x: tf.sqrt(
            tf.math.real(
                tf.linalg.eigvalsh(
                    tf.linalg.matmul(
                        tf.reshape(x, [2, 2]), tf.reshape(x, [2, 2]), adjoint_a=True
                    )
                )
            )
        )[::-1],
        [COMPLEX],
    ),
    Case(
        "sort_dtype",
        "TopKV2 input",
        lambda x: tf.math.top_k(x, 2).values,
        lambda x: tf.cast(tf.math.top_k(tf.cast(x, tf.int32), 2).values, tf.uint16),
        [SMALL.astype(np.uint16)],
    ),
    Case(
        "sort_dtype",
        "TopKV2 input",
        lambda x: tf.sort(x),
        lambda x: tf.sort(tf.cast(x, tf.int32)),
        [SMALL.astype(np.uint16)],
    ),
    Case(
        "strings",
        "AsString",
        lambda x: tf.strings.length(tf.strings.as_string(x)) + 1,
        lambda lengths: lengths + 1,
        [FLOATS],
        lambda x: [tf.strings.length(tf.strings.as_string(x))],
    ),
    Case(
        "dtype",
        "StatelessMultinomial logits",
        lambda x: tf.random.stateless_categorical(x, 4, [1, 2]),
        lambda x: tf.random.stateless_categorical(tf.cast(x, tf.float32), 4, [1, 2]),
        [np.array([[0, -60000]], np.float16)],
    ),
    Case(
        "variants",
        "TensorListFromTensor tensor",
        _mapped,
        segment_sums,
        [FLOATS[:6], COUNTS],
    ),
    Case(
        "small_ints",
        "Cumprod x",
        lambda x: tf.math.cumprod(x),
        lambda x: tf.math.cumprod(tf.cast(x, tf.int32)),
        [SHORT[1:6]],
    ),
)
