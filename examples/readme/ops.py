import tensorflow as tf

from opwright import Scope
from opwright.linalg import MatMul, mat_mul

a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
print(mat_mul(a, a, transpose_b=True))  # the function returns a tensor

options = MatMul.Options(transpose_b=True)  # checked, immutable
op = MatMul.create(Scope.current(), a, a, options)  # the class returns the op
print(op.product)  # an output, a tf.Tensor
print(tf.abs(op))  # an op with one output works as a tensor
