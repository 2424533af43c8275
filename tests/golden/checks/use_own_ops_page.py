"""A program that uses what own_ops.md shows. Run by test_native_ops.py."""

import re
import sys

import numpy as np
import tensorflow as tf
from my_audio.ops.audio import fade

from opwright_runtime.api import OpError, OpExecutionError

# The last call of the page is wrong; its comment is the error.
page = sys.argv[1].strip()
(words,) = re.findall(r"# (.*)", page)
try:
    exec(page)
except OpError as error:
    assert str(error) == words, error
else:
    raise AssertionError("the call is accepted")

# The kernel refuses a value.
words = "length is more than the number of samples"
try:
    fade([[1.0, 1.0]], [0.5], length=3)
except OpExecutionError as error:
    assert words in str(error), error
else:
    raise AssertionError("the length is accepted")

signal = tf.constant(np.linspace(-1, 1, 10).reshape(2, 5))
gains = tf.constant([0.5, 3.0], tf.float64)
found, expected = tf.test.compute_gradient(
    lambda signal, gains: fade(signal, gains, length=3) ** 2, [signal, gains]
)
for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, atol=1e-6)
