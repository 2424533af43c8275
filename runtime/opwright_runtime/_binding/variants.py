"""What variants hold: ragged tensors, of which a kernel does not check the sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from opwright_runtime._binding.fast_path import EagerTensor
from opwright_runtime._binding.properties import array_of, contents_of
from opwright_runtime._internals import TensorProto, VariantTensorDataProto

#: What the message of a ragged tensor in a variant says of its type.
_RAGGED = "RaggedTensorVariant"


def are_joined(variants: tf.Tensor, row_splits: tf.Tensor, shape: tf.Tensor) -> bool:
    """Whether a tensor of a shape has room for the values of ragged variants.

    A variant that holds nothing stands for zeros, as many as its row has.

    Args:
        variants: a tensor of variants.
        row_splits: where rows begin and end, of one row for each variant at least.
        shape: the shape of the joined values; its first size is the number of rows.
    """
    if type(variants) is not EagerTensor:
        raise TypeError
    sizes = np.asarray(array_of(tf.convert_to_tensor(shape))).ravel().tolist()
    splits = np.asarray(array_of(tf.convert_to_tensor(row_splits))).ravel()
    if min(sizes) < 0:
        return True  # TensorFlow refuses it.
    room, inner = math.prod(sizes), math.prod(sizes[1:])
    pieces = [*_sizes(variants)]
    lengths = np.diff(splits)[: len(pieces)].tolist()
    zeros = sum(
        length * inner
        for length, piece in zip(lengths, pieces, strict=True)
        if piece is None
    )
    # The kernel joins none for an empty result, and returns a single piece as it is.
    is_joined = room > 0 and len(pieces) > 1
    values = sum(piece or 0 for piece in pieces) if is_joined else 0
    return bool(zeros + values <= room)


def is_filled(variant: tf.Tensor, indices: tf.Tensor) -> bool:
    """Whether elements with these indices leave no gap behind the list of a variant."""
    length = tf.raw_ops.TensorListLength(input_handle=variant).numpy()
    new = {index for index in contents_of(indices) if index >= length}
    return not new or max(new) - length < len(new)


def _sizes(variants: tf.Tensor) -> Iterator[int | None]:
    """The number of values of each variant; None if it holds no ragged tensor."""
    message = TensorProto.FromString(
        tf.raw_ops.SerializeTensor(tensor=variants).numpy()
    )
    content, at = message.tensor_content, 0
    lengths = []
    for _ in range(math.prod(one.size for one in message.tensor_shape.dim)):
        length, at = _varint(content, at)
        lengths.append(length)
    for length in lengths:
        held = VariantTensorDataProto.FromString(content[at : at + length])
        at += length
        if held.type_name != _RAGGED or not held.tensors:
            yield None
        else:
            dims = held.tensors[-1].tensor_shape.dim
            yield math.prod(one.size for one in dims)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """An integer in the form of protocol buffers, and where it ends."""
    found = shift = 0
    while True:
        byte = content[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found, at
