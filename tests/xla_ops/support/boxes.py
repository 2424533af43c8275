"""Calls of ops that pick boxes by score."""

from __future__ import annotations

import numpy as np

from xla_ops.support.draws import Arguments, Draw, Kind, Kinds, Values


def _boxes(draw: Draw, shape: list[int]) -> np.ndarray:
    """Boxes that overlap, of corners in any order, some of them without an area."""
    centers = draw.rng.uniform(0, 1, [*shape, 2])
    sizes = draw.rng.uniform(-0.6, 0.6, [*shape, 2])
    sizes[draw.rng.random([*shape, 2]) < 0.05] = 0
    return np.concatenate([centers - sizes / 2, centers + sizes / 2], -1)


def non_max_suppression_v5(draw: Draw) -> Values:
    count, most = draw.size(0, 12), draw.size(0, 14)
    dtype = draw.dtype.as_numpy_dtype

    def values() -> Arguments:
        scores = draw.rng.normal(0.2, 0.5, [count])
        scores = np.where(draw.rng.random([count]) < 0.3, np.round(scores, 1), scores)
        return {
            "boxes": _boxes(draw, [count]).astype(dtype),
            "scores": scores.astype(dtype),
            "max_output_size": most,
            "iou_threshold": dtype(draw.choice(0, 0.2, 0.5, 1)),
            "score_threshold": dtype(draw.choice(-np.inf, -0.2, 0, 0.3)),
            "soft_nms_sigma": dtype(draw.choice(0, 0.1, 0.5)),
            "pad_to_max_output_size": True,
        }

    return values


def combined_non_max_suppression(draw: Draw) -> Values:
    batch, count, classes = draw.size(0, 3), draw.size(0, 10), draw.size(0, 4)
    shared = draw.choice(1, classes)
    rest = {
        "max_output_size_per_class": draw.size(1, 12),
        "max_total_size": draw.size(1, 20),
        "pad_per_class": draw.flag(),
        "clip_boxes": draw.flag(),
    }

    def values() -> Arguments:
        boxes = _boxes(draw, [batch, count, shared]).astype(np.float32)
        # TensorFlow does not say which of equal scores comes first.
        scores = draw.rng.permutation(batch * count * classes) / 60 - 0.4
        return {
            "boxes": boxes,
            "scores": scores.reshape(batch, count, classes).astype(np.float32),
            "iou_threshold": np.float32(draw.choice(0, 0.2, 0.5, 1)),
            "score_threshold": np.float32(draw.choice(-np.inf, 0, 0.3)),
            **rest,
        }

    return values


KINDS: Kinds = {
    "NonMaxSuppressionV5": Kind(non_max_suppression_v5, known=("max_output_size",)),
    "CombinedNonMaxSuppression": Kind(
        combined_non_max_suppression,
        attr="",
        known=("max_output_size_per_class", "max_total_size"),
    ),
}
