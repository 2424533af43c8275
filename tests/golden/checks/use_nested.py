"""A program with ops in a package of its own. Run by test_own_library.py."""

import sys

import mylib.ops
import numpy as np
import tensorflow as tf
from mylib.ops.audio import AddonsGain, Mix, addons_gain

from opwright_runtime.api import Scope

# The package loaded its library, and what registers gradients after it.
assert mylib.ops.op_names() == ["Addons>Gain", "Mix"]
assert mylib.ops.op_class("Mix") is Mix
assert {kernel.provider for kernel in Mix.kernels()} == {sys.argv[1]}, Mix.kernels()

signal = tf.constant([1.0, -2.0])
with tf.GradientTape() as tape:
    tape.watch(signal)
    louder = addons_gain(signal, gain=3.0)
assert np.array_equal(tape.gradient(louder, signal), [3.0, 3.0])
with tf.Graph().as_default():
    op = AddonsGain.create(Scope.current(), signal := tf.constant([1.0]))
    (gradient,) = tf.gradients(op.louder, signal)
    assert gradient.op.type == "Addons>Gain", gradient

try:
    mylib.ops.AddonsGain  # noqa: B018
except AttributeError as error:
    assert "write `from mylib.ops.audio import AddonsGain`" in str(error), error
else:
    raise AssertionError("mylib.ops.AddonsGain")
