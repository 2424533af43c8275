"""Outputs go to functions of TensorFlow, which have types only where stubs are."""

import tensorflow as tf

from opwright import TFloat32
from opwright.dtypes import cast
from opwright.math import square


def functions_of_tensorflow_take_outputs() -> None:
    x = cast([1, 2, 3], TFloat32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = square(x)
    tape.gradient(y, x)
    tf.reduce_sum(y)
    tf.abs(y)
    plain: tf.Tensor = y
    print(plain)
