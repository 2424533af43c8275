"""Shape functions and kernels made of opdefs. Run by test_native_ops.py."""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import kernels as registered

lib = tf.load_op_library(sys.argv[1])


def sizes(*shape, dtype=tf.float32):
    """A placeholder; no sizes at all stand for any shape."""
    return tf.compat.v1.placeholder(dtype, None if shape == (None,) else shape)


def refused(words, call):
    try:
        call()
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


def scalar():
    return tf.compat.v1.placeholder(tf.float32, ())


with tf.Graph().as_default():
    made = lib.blend(sizes(4, 1, None), sizes(3, 2))
    assert made.blended.shape.as_list() == [4, 3, 2], made
    assert made.template.shape.as_list() == [3], made
    assert lib.blend(sizes(5), sizes(None)).blended.shape.rank is None
    assert lib.blend(scalar(), sizes(1)).blended.shape.as_list() == [1]
    refused(
        "b must have shape `*b where len(b) <= 2`, has [1,2,3]",
        lambda: lib.blend(sizes(1), sizes(1, 2, 3)),
    )

    assert lib.frames(sizes(2, 3, 10), 4, step=3).shape.as_list() == [2, 3, 3, 4]
    assert lib.frames(sizes(10), 4, last=True).shape.as_list() == [4, 7]
    assert lib.frames(sizes(2, None), 4).shape.as_list() == [2, None, 4]
    assert lib.frames(sizes(None), 4).shape.rank is None
    words = "signal must have shape `*batch samples where samples >= size`, has [2,3]"
    refused(words, lambda: lib.frames(sizes(2, 3), 4))
    refused("has []", lambda: lib.frames(scalar(), 4))

    def route(table, *many, count=5):
        at = sizes(count, dtype=tf.int32)
        return lib.route(table, list(many), at, form=[3, None])

    made = route(sizes(4, 7), sizes(7), sizes(None))
    assert [tensor.shape.as_list() for tensor in made.sums] == [[4], [4]], made
    assert made.kept.shape.as_list() == [None, 7]
    assert made.formed.shape.as_list() == [3, None, 2]
    # What one input leaves open, another says.
    assert route(sizes(4, None), sizes(7)).kept.shape.as_list() == [None, 7]
    refused(
        "many must have shape `width`, has [6]: width is 7 in table",
        lambda: route(sizes(4, 7), sizes(6)),
    )
    refused(
        "class must have shape `rows+1`, has [9]: a size must be 5",
        lambda: route(sizes(4, 7), sizes(7), count=9),
    )

# Kernels hold the same against what they get, where no shape function has seen it.
assert lib.frames(np.zeros([2, 10], np.float32), 4, step=3).shape == [2, 3, 4]


@tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
def unseen(a, b):
    return lib.blend(a, b).blended


assert unseen(np.ones([3, 1]), np.ones([2])).shape == [3, 2]
refused("Blend: b must have shape", lambda: unseen(np.ones([1]), np.ones([1, 1, 1])))

# Compiled by XLA, by the kernel that is begun for it.


def compiled(signature):
    return tf.function(lib.twice, input_signature=[signature], jit_compile=True)


twice = compiled(tf.TensorSpec([None, 3]))
assert twice(np.ones([2, 3], np.float32)).numpy().tolist() == [[2.0] * 3] * 2
refused(
    "Twice: x must have shape `rows 3`, has [3,2]",
    lambda: compiled(tf.TensorSpec(None))(np.ones([3, 2], np.float32)),
)
if "GPU" in sys.argv:
    kernels = registered.get_registered_kernels_for_op("Twice").kernel
    assert sum(one.device_type == "GPU" for one in kernels) == 2, kernels
