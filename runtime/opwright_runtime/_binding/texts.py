"""Properties of texts: the names and slices of tensors, and serialized tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, wraps

import numpy as np
import tensorflow as tf

from opwright_notation.rows import extent
from opwright_runtime._binding.fast_path import EagerTensor
from opwright_runtime._binding.properties import MOST_AXES, array_of
from opwright_runtime._internals import TensorProto

# The longest text whose result is kept.
_MOST_KEPT = 256


def _kept(function: Callable[..., bool]) -> Callable[..., bool]:
    """Keeps the results for short texts.

    A checkpoint has the same slices at each step, and the tensors of a batch often have
    the same sizes.
    """
    kept = lru_cache(function)

    @wraps(function)
    def call(text: bytes, *more: int) -> bool:
        if len(text) > _MOST_KEPT:
            return function(text, *more)
        return kept(text, *more)

    return call


def are_named(value: object) -> bool:
    """Whether no text is empty."""
    return all(_texts(value))


def are_slices(value: object) -> bool:
    """Whether TensorFlow can read descriptions of slices without ending the process.

    Texts that are no description hold: TensorFlow refuses them.
    """
    texts = _texts(value)
    # An empty text stands for a whole tensor, and is the usual one.
    return not any(texts) or all(map(_is_slice, texts))


@_kept
def _is_slice(text: bytes) -> bool:
    *sizes, _ = text.split(b" ")
    try:
        row = tuple(map(int, sizes))
    except ValueError:
        return True
    return _are_sizes(row)


def are_drawable(value: object) -> bool:
    """Whether no text is an animated WebP image without an alpha channel.

    Its pixels have four channels nonetheless. https://developers.google.com/speed/webp
    documents the header: its 21st byte has a flag for animation, and one for alpha.
    """
    return not any(map(_is_opaque_animation, _texts(value)))


def _is_opaque_animation(image: bytes) -> bool:
    is_extended = image[:4] == b"RIFF" and image[8:16] == b"WEBPVP8X"
    return is_extended and image[20:21] in _OPAQUE_ANIMATIONS


#: Bytes of flags with animation (2) and without alpha (16).
_OPAQUE_ANIMATIONS = [bytes([flags]) for flags in range(256) if flags & 18 == 2]


def are_uncut(value: object) -> bool:
    """Whether no text ends with the first byte of a JPEG marker."""
    return not any(text.endswith(b"\xff") for text in _texts(value))


def are_stackable(value: object) -> bool:
    """Whether serialized sparse tensors have sizes that their stack can have.

    Texts that are no serialized tensor hold: TensorFlow refuses them.

    Args:
        value: of each tensor the coordinates, the values and the sizes, in this order.
    """
    all_sizes = _texts(value)[2::3]
    count = len(all_sizes)
    return all(_is_shape(one, count) for one in all_sizes)


@_kept
def _is_shape(serialized: bytes, count: int) -> bool:
    """Whether serialized sizes are those of one of `count` tensors."""
    try:
        proto = TensorProto.FromString(serialized)
        if math.prod(dim.size for dim in proto.tensor_shape.dim) > MOST_AXES:
            return False
        sizes = tf.make_ndarray(proto)
    except Exception:  # Of protobuf, or for what is no array.
        return True
    return sizes.dtype != np.int64 or _are_sizes((count, *sizes.ravel().tolist()))


def _are_sizes(row: tuple[int, ...]) -> bool:
    """Whether a tensor can have these sizes."""
    few = len(row) <= MOST_AXES
    return few and min(row, default=0) >= 0 and extent(row) < 2**63


def _texts(value: object) -> list[bytes]:
    """The texts in a value."""
    found = value
    if type(value) is EagerTensor:
        found = array_of(value)
        if type(found) is np.ndarray:
            texts: list[bytes] = found.ravel().tolist()
            return texts
    if type(found) is bytes:
        return [found]
    if isinstance(found, (str, bytes)):
        found = [found]
    flat = np.asarray(found, object).ravel().tolist()
    return [one.encode() if isinstance(one, str) else bytes(one) for one in flat]


def are_named_in_graph(texts: tf.Tensor) -> tf.Tensor:
    """`are_named` when the graph runs."""
    return tf.reduce_all(tf.strings.length(texts) > 0)


def are_drawable_in_graph(texts: tf.Tensor) -> tf.Tensor:
    """`are_drawable` when the graph runs."""
    flat = tf.reshape(texts, [-1])
    # A part of a text that is too short is an error.
    padded = tf.strings.join([flat, tf.fill(tf.shape(flat), "\0" * 21)])
    is_extended = tf.equal(tf.strings.substr(padded, 0, 4), "RIFF")
    is_extended &= tf.equal(tf.strings.substr(padded, 8, 8), "WEBPVP8X")
    flags = tf.strings.substr(padded, 20, 1)[:, tf.newaxis]
    is_opaque = tf.reduce_any(tf.equal(flags, _OPAQUE_ANIMATIONS), axis=1)
    return tf.logical_not(tf.reduce_any(is_extended & is_opaque))


def are_uncut_in_graph(texts: tf.Tensor) -> tf.Tensor:
    """`are_uncut` when the graph runs."""
    padded = tf.strings.join(["\0", tf.reshape(texts, [-1])])
    return tf.reduce_all(tf.not_equal(tf.strings.substr(padded, -1, 1), b"\xff"))


def are_slices_in_graph(texts: tf.Tensor) -> tf.Tensor:
    """`are_slices` when the graph runs. An extent is a number of float64."""
    flat = tf.reshape(texts, [-1])
    negative = tf.strings.regex_full_match(flat, "(.* )?-[0-9]+ .*")
    spaces = tf.strings.length(tf.strings.regex_replace(flat, "[^ ]", ""))
    words = tf.strings.split(flat, " ")
    is_size = tf.strings.regex_full_match(words.flat_values, "[0-9]+")
    sizes = tf.strings.to_number(tf.where(is_size, words.flat_values, "1"), tf.float64)
    extents = tf.reduce_prod(words.with_flat_values(tf.maximum(sizes, 1.0)), axis=1)
    return tf.reduce_all(
        tf.logical_not(negative) & (spaces <= MOST_AXES) & (extents < 2.0**63)
    )
