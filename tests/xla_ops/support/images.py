"""Calls of ops that cut and resize images."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from xla_ops.support.draws import Arguments, Draw, Kind, Kinds, Values


def _crops(draw: Draw) -> tuple[dict[str, int], Values]:
    """Sizes of a call, and what draws boxes, some of whose ends are those of images."""
    size = {
        "batch": draw.size(1, 3),
        "height": draw.size(1, 7),
        "width": draw.size(1, 7),
    }
    size |= {"boxes": draw.size(), "rows": draw.size(1), "columns": draw.size(1)}
    size["channels"] = draw.size(0, 4)

    def values() -> Arguments:
        boxes = draw.rng.uniform(-0.2, 1.2, [size["boxes"], 4])
        ends = draw.rng.integers(0, 2, boxes.shape)
        boxes = np.where(draw.rng.random(boxes.shape) < 0.4, ends, boxes)
        which = draw.integers(0, size["batch"], [size["boxes"]])
        return {"boxes": boxes.astype(np.float32), "box_ind": which}

    return size, values


def _image(size: dict[str, int]) -> list[int]:
    return [size[name] for name in ("batch", "height", "width", "channels")]


def _made(size: dict[str, int]) -> list[int]:
    return [size[name] for name in ("boxes", "rows", "columns", "channels")]


def crop_and_resize(draw: Draw) -> Values:
    size, boxes = _crops(draw)
    rest: dict[str, Any] = {
        "crop_size": np.array([size["rows"], size["columns"]], np.int32),
        "method": draw.choice("bilinear", "nearest"),
        "extrapolation_value": draw.choice(0.0, -2.5),
    }
    return lambda: {"image": draw.numbers(_image(size)), **boxes(), **rest}


def crop_and_resize_grad_image(draw: Draw) -> Values:
    size, boxes = _crops(draw)
    method = draw.choice("bilinear", "nearest")
    return lambda: {
        "grads": draw.numbers(_made(size), tf.float32),
        **boxes(),
        "image_size": np.array(_image(size), np.int32),
        "method": method,
        "T": draw.dtype,
    }


def crop_and_resize_grad_boxes(draw: Draw) -> Values:
    size, boxes = _crops(draw)
    return lambda: {
        "grads": draw.numbers(_made(size), tf.float32),
        "image": draw.numbers(_image(size)),
        **boxes(),
    }


def _resized(draw: Draw) -> tuple[list[int], list[int]]:
    """The shape of images, and their new size."""
    shape = [draw.size(0, 2), *draw.sizes(2, 1, 9), draw.size(1, 4)]
    return shape, draw.sizes(2, 1, 12)


def _centers(draw: Draw) -> dict[str, bool]:
    align = draw.flag()
    return {"align_corners": align, "half_pixel_centers": not align and draw.flag()}


def resize_area(draw: Draw) -> Values:
    shape, size = _resized(draw)
    align = draw.flag()
    return lambda: {
        "images": draw.numbers(shape),
        "size": np.array(size, np.int32),
        "align_corners": align,
    }


def resize_bicubic(draw: Draw) -> Values:
    shape, size = _resized(draw)
    centers = _centers(draw)
    return lambda: {
        "images": draw.numbers(shape),
        "size": np.array(size, np.int32),
        **centers,
    }


def resize_bicubic_grad(draw: Draw) -> Values:
    shape, size = _resized(draw)
    centers = _centers(draw)
    return lambda: {
        "grads": draw.numbers([shape[0], *size, shape[3]], tf.float32),
        "original_image": draw.numbers(shape),
        **centers,
    }


KINDS: Kinds = {
    "CropAndResize": Kind(crop_and_resize, known=("crop_size",), narrow=True),
    "CropAndResizeGradImage": Kind(
        crop_and_resize_grad_image, known=("image_size",), tolerance=8.0, narrow=True
    ),
    "CropAndResizeGradBoxes": Kind(
        crop_and_resize_grad_boxes, tolerance=4.0, narrow=True
    ),
    "ResizeArea": Kind(resize_area, known=("size",), narrow=True),
    "ResizeBicubic": Kind(resize_bicubic, known=("size",), narrow=True),
    "ResizeBicubicGrad": Kind(resize_bicubic_grad, narrow=True),
}
