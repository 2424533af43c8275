"""Prints results of a function whose ids and sizes differ from call to call."""

from __future__ import annotations

import json

import numpy as np
import tensorflow as tf

import opwright  # noqa: F401


@tf.function(autograph=False)
def step(x: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Sums of segments, with ops around them that XLA compiles as well."""
    sums = tf.math.segment_sum(tf.tanh(x) * 2.0 + 1.0, ids)
    kept = tf.boolean_mask(sums, sums > 0)
    counts = tf.histogram_fixed_width(kept, [0.0, 4.0], nbins=3)
    return tf.cast(counts, tf.float32) * 0.5 + tf.reduce_sum(tf.sigmoid(sums) - 1.0)


rng = np.random.default_rng(0)
found = []
for _ in range(30):
    given = tf.constant(rng.standard_normal(8), tf.float32)
    segments = np.sort(rng.integers(0, 5, 8))
    found.append(step(given, tf.constant(segments)).numpy().tolist())
print(json.dumps(found))
