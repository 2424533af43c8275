"""Handles of every kind, as Python expressions that make them."""

from __future__ import annotations

import random
from functools import cache
from types import CodeType

import numpy as np
import tensorflow as tf

from .ops_calls import Opaque

DTYPES = ("float32", "float64", "int32", "int64", "bool", "half", "string", "complex64")
# `{0}` and `{1}` stand for dtypes.
RESOURCES = (
    "tf.Variable(tf.zeros([2], tf.{0})).handle",
    "tf.Variable(tf.zeros([2, 3], tf.{0})).handle",
    "tf.Variable(tf.zeros([], tf.{0})).handle",
    "tf.Variable(tf.zeros([0], tf.{0})).handle",
    'tf.raw_ops.VarHandleOp(dtype=tf.{0}, shape=[2], shared_name="empty")',
    "tf.raw_ops.AnonymousHashTable(key_dtype=tf.{0}, value_dtype=tf.{1})",
    "tf.raw_ops.AnonymousMutableHashTable(key_dtype=tf.{0}, value_dtype=tf.{1})",
    "tf.raw_ops.AnonymousMutableHashTableOfTensors("
    "key_dtype=tf.{0}, value_dtype=tf.{1}, value_shape=[2])",
    "tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0).resource_handle",
    "tf.raw_ops.AnonymousMutableDenseHashTable("
    "empty_key=np.int64(0), deleted_key=np.int64(-1), value_dtype=tf.{0})",
    "tf.raw_ops.AnonymousIteratorV3(output_types=[tf.{0}], output_shapes=[[]])",
    "tf.raw_ops.ResourceConditionalAccumulator(dtype=tf.{0}, shape=[2])",
    "tf.raw_ops.StackV2(max_size=2, elem_type=tf.{0})",
    "tf.raw_ops.TensorArrayV3(size=2, dtype=tf.{0})[0]",
    "tf.raw_ops.AnonymousMemoryCache()[0]",
    "tf.raw_ops.AnonymousSeedGenerator(seed=1, seed2=2, reshuffle=True)[0]",
    "tf.raw_ops.AnonymousRandomSeedGenerator(seed=1, seed2=2)[0]",
    "tf.raw_ops.FIFOQueueV2(component_types=[tf.{0}])",
    "tf.raw_ops.MutexV2()",
    "tf.raw_ops.Empty(shape=[], dtype=tf.resource)",
)
VARIANTS = (
    "tf.raw_ops.TensorListReserve("
    "element_shape=[2], num_elements=2, element_dtype=tf.{0})",
    "tf.raw_ops.EmptyTensorList("
    "element_shape=[2], max_num_elements=3, element_dtype=tf.{0})",
    "tf.raw_ops.TensorListFromTensor("
    "tensor=tf.zeros([2, 2], tf.{0}), element_shape=[2])",
    "tf.raw_ops.TensorListFromTensor("
    "tensor=tf.zeros([0, 2], tf.{0}), element_shape=[2])",
    "tf.raw_ops.EmptyTensorMap()",
    "tf.raw_ops.TensorMapInsert("
    "input_handle=tf.raw_ops.EmptyTensorMap(), key=tf.zeros([], tf.{0}), "
    "value=tf.zeros([2], tf.{1}))",
    "tf.data.Dataset.from_tensors(tf.zeros([2], tf.{0}))._variant_tensor",
    "tf.data.Dataset.from_tensor_slices(tf.zeros([3], tf.{0}))._variant_tensor",
    "tf.data.Dataset.from_tensors((tf.zeros([], tf.{0}), tf.zeros([2], tf.{1})))"
    "._variant_tensor",
    "tf.data.Dataset.range(3)._variant_tensor",
    "tf.data.Dataset.range(4).window(2)._variant_tensor",
    "tf.raw_ops.OptionalNone()",
    "tf.raw_ops.OptionalFromValue(components=[tf.zeros([2], tf.{0})])",
    "tf.raw_ops.RaggedTensorToVariant(rt_nested_splits=[np.int64([0, 1, 2])], "
    "rt_dense_values=tf.zeros([2], tf.{0}), batched_input=False)",
    "tf.raw_ops.RaggedTensorToVariant(rt_nested_splits=[np.int64([0, 1, 2])], "
    "rt_dense_values=tf.zeros([2], tf.{0}), batched_input=True)",
    "tf.raw_ops.DenseToCSRSparseMatrix("
    'dense_input=np.eye(2, dtype="f"), indices=np.int64([[0, 0], [1, 1]]))',
    "tf.raw_ops.Empty(shape=[], dtype=tf.variant)",
    "tf.raw_ops.Empty(shape=[2], dtype=tf.variant)",
    "tf.raw_ops.Empty(shape=[0], dtype=tf.variant)",
)
SHAPED = (
    "tf.stack([{0}, {0}])",
    "tf.reshape({0}, [1])",
    "tf.reshape({0}, [1, 1])",
    "tf.stack([{0}])[:0]",
)


@cache
def _compiled(source: str) -> CodeType:
    return compile(source, "handle", "eval")


def handle(had: Opaque, kind: str, drawing: random.Random) -> Opaque | None:
    """Another handle, or the same in a tensor of another shape."""
    if not isinstance(had.value, tf.Tensor):
        return None
    if kind == "handle shape":
        template = drawing.choice(SHAPED)
        source = None if had.source is None else template.format(had.source)
        names = {"handle": had.value}
        code = _compiled(template.format("handle"))
    else:
        sources = RESOURCES if had.value.dtype == tf.resource else VARIANTS
        # A variable or a list of another dtype is the likelier mistake.
        template = sources[int(drawing.random() ** 2 * len(sources))]
        source = template.format(drawing.choice(DTYPES), drawing.choice(DTYPES))
        names, code = {}, _compiled(source)
    try:
        with tf.init_scope():
            return Opaque(eval(code, {"tf": tf, "np": np, **names}), source)
    except Exception:  # Such a handle is not made.
        return None
