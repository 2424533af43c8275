"""Calls of ops that move a window over images or volumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from xla_ops.support.draws import Arguments, Draw, Kind, Kinds, Values


def _windows(size: int, window: int, stride: int, rate: int, padding: str) -> int:
    """How many windows there are."""
    if padding == "SAME":
        return -(-size // stride)
    return (size - (window - 1) * rate - 1 + stride) // stride


def _sides(draw: Draw) -> tuple[int, int, int, int, str]:
    """A size that has at least one window, the window, its stride, rate and padding."""
    window, stride, rate = draw.size(1, 4), draw.size(1, 3), draw.size(1, 2)
    return draw.size((window - 1) * rate + 1, 9), window, stride, rate, ""


def _dilation(draw: Draw) -> tuple[list[int], list[int], list[int], dict[str, Any]]:
    padding = draw.choice("SAME", "VALID")
    rows, columns = (_sides(draw) for _ in range(2))
    batch, channels = draw.size(1, 3), draw.size(1, 3)
    made = [_windows(*side[:4], padding) for side in (rows, columns)]
    return (
        [batch, rows[0], columns[0], channels],
        [rows[1], columns[1], channels],
        [batch, *made, channels],
        {
            "strides": [1, rows[2], columns[2], 1],
            "rates": [1, rows[3], columns[3], 1],
            "padding": padding,
        },
    )


def dilation2d(draw: Draw) -> Values:
    images, kernel, _, rest = _dilation(draw)
    return lambda: {
        "input": draw.numbers(images),
        "filter": draw.numbers(kernel),
        **rest,
    }


def dilation2d_backprop(draw: Draw) -> Values:
    images, kernel, made, rest = _dilation(draw)
    return lambda: {
        "input": draw.numbers(images),
        "filter": draw.numbers(kernel),
        "out_backprop": draw.numbers(made),
        **rest,
    }


def _pool(draw: Draw) -> tuple[list[int], list[int], dict[str, Any]]:
    images, kernel, made, rest = _dilation(draw)
    rows, columns = images[1:3]
    padding = rest.pop("padding")
    strides = rest.pop("strides")
    made[1] = _windows(rows, kernel[0], strides[1], 1, padding)
    made[2] = _windows(columns, kernel[1], strides[2], 1, padding)
    return (
        images,
        made,
        {
            "ksize": [1, *kernel[:2], 1],
            "strides": strides,
            "padding": padding,
            "include_batch_in_index": draw.flag(),
        },
    )


def max_pool_with_argmax(draw: Draw) -> Values:
    images, _, rest = _pool(draw)
    rest["Targmax"] = draw.choice(tf.int32, tf.int64)

    def values() -> Arguments:
        given = draw.numbers(images)
        if given.dtype.is_floating:
            wrong = draw.rng.random(images) < 0.1
            other = draw.choice(np.nan, np.inf, -np.inf)
            given = tf.where(wrong, tf.cast(other, given.dtype), given)
        return {"input": given, **rest}

    return values


def max_pool_grad_with_argmax(draw: Draw) -> Values:
    images, made, rest = _pool(draw)
    of_image = int(np.prod(images[1:]))

    def values() -> Arguments:
        places = draw.rng.integers(0, of_image, made)
        if rest["include_batch_in_index"]:
            places += np.arange(images[0]).reshape(-1, 1, 1, 1) * of_image
        return {
            "input": draw.numbers(images),
            "grad": draw.numbers(made),
            "argmax": places,
            **rest,
        }

    return values


def extract_image_patches(draw: Draw) -> Values:
    rows, columns = (_sides(draw) for _ in range(2))
    # TensorFlow's own kernel for floats ends the process where there are no channels.
    shape = [draw.size(0, 2), rows[0], columns[0], draw.size(1, 3)]
    rest = {
        "ksizes": [1, rows[1], columns[1], 1],
        "strides": [1, rows[2], columns[2], 1],
        "rates": [1, rows[3], columns[3], 1],
        "padding": draw.choice("SAME", "VALID"),
    }
    return lambda: {"images": draw.numbers(shape), **rest}


def extract_volume_patches(draw: Draw) -> Values:
    sides = [_sides(draw) for _ in range(3)]
    shape = [draw.size(0, 2), *(side[0] for side in sides), draw.size(0, 3)]
    rest = {
        "ksizes": [1, *(side[1] for side in sides), 1],
        "strides": [1, *(side[2] for side in sides), 1],
        "padding": draw.choice("SAME", "VALID"),
    }
    return lambda: {"input": draw.numbers(shape), **rest}


KINDS: Kinds = {
    "Dilation2D": Kind(dilation2d, tolerance=0.0, narrow=True),
    "Dilation2DBackpropFilter": Kind(dilation2d_backprop, tolerance=30.0, narrow=True),
    "Dilation2DBackpropInput": Kind(dilation2d_backprop, tolerance=8.0, narrow=True),
    "ExtractImagePatches": Kind(extract_image_patches, tolerance=0.0, narrow=True),
    "ExtractVolumePatches": Kind(extract_volume_patches, tolerance=0.0, narrow=True),
    "MaxPoolGradWithArgmax": Kind(
        max_pool_grad_with_argmax, tolerance=8.0, narrow=True
    ),
    "MaxPoolWithArgmax": Kind(max_pool_with_argmax, tolerance=0.0, narrow=True),
}
