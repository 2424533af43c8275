"""A program that uses a package of its own ops. Run by test_own_library.py."""

import sys

import my_ops
import numpy as np
import tensorflow as tf
from my_ops.audio import AddonsGain, Mix, addons_gain, mix

from opwright_runtime.api import OpUnknownError, Scope

assert my_ops.op_names() == ["Addons>Gain", "Mix"]
assert my_ops.op_class("Addons>Gain") is AddonsGain
assert AddonsGain.OP_NAME == "Addons>Gain"

try:
    mix([1.0])
except OpUnknownError as error:
    assert "Mix" in str(error) and "load" in str(error), error
else:
    raise AssertionError("Mix is known before its library is loaded")

assert Mix.kernels() == ()
tf.load_op_library(sys.argv[1])

signal = tf.constant([1.0, -2.0])
quiet = AddonsGain.Options(gain=0.5)
assert addons_gain(signal).numpy().tolist() == [2.0, -4.0]
assert AddonsGain.create(Scope.current(), signal, quiet).louder[1] == -1.0
assert tf.abs(mix([[1.0, 2.0], signal]))[0] == 2.0
assert mix([np.float64(1), np.float64(2)]).dtype == tf.float64


@tf.function
def mixed(x: tf.Tensor) -> tf.Tensor:
    return mix([addons_gain(x, gain=3.0), x])


assert mixed(signal).numpy().tolist() == [4.0, -8.0]
with tf.Graph().as_default() as graph:
    op = AddonsGain.create(Scope.current("loud"), [1.0])
    assert graph.get_operation_by_name("loud").type == "Addons>Gain"
    assert AddonsGain.from_operation(op.op).inputs.gain == 2.0
found = [(kernel.device, kernel.provider) for kernel in Mix.kernels()]
assert found == [("CPU", "audio_ops.so")] * 2, found  # float, double
assert AddonsGain.op_def.options[0].name == "gain"
assert "opwright" not in sys.modules
