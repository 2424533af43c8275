"""Calls of raw ops that are wrong."""

import tensorflow as tf

from opwright import TInt32, raw_ops

x = tf.ones([2, 2])
n = raw_ops.Cast(x=x, DstT=TInt32)

raw_ops.MatMul(x, x)  # expect: signature
raw_ops.MatMul(a=x)  # expect: signature, naming b
raw_ops.MatMul(a=x, b=x, transpose=True)  # expect: signature, naming transpose
raw_ops.MatMul(a=x, b=x, transpose_a="yes")  # expect: argument, naming transpose_a
raw_ops.Sum(input=x, axis=0, reduction_indices=0)  # expect: signature
raw_ops.Matmul(a=x, b=x)  # expect: attribute, naming Matmul
raw_ops.Sin(x=n)  # expect: dtype, naming TInt32
raw_ops.MaxPool(input=x, ksize=[1], strides=[1], padding="valid")  # expect: argument
