"""Calls of reductions over segments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from xla_ops.support.draws import Arguments, Draw, Kind, Kinds, Values


def _ids(draw: Draw, count: int, segments: int) -> np.ndarray:
    return np.sort(draw.rng.integers(0, segments, count))


def segment(draw: Draw) -> Values:
    shape = [draw.size(0, 9), *draw.sizes(draw.size(0, 2), 0, 4)]
    index = draw.choice(tf.int32, tf.int64)
    ids = tf.constant(_ids(draw, shape[0], draw.size(1)), index)
    return lambda: {"data": draw.numbers(shape), "segment_ids": ids}


def _sparse(with_segments: bool) -> Callable[[Draw], Values]:
    def drawn(draw: Draw) -> Values:
        rows, count, segments = draw.size(1), draw.size(0, 9), draw.size(1)
        shape = [rows, *draw.sizes(draw.size(0, 2), 1, 4)]
        index, of_ids = draw.choice(tf.int32, tf.int64), draw.choice(tf.int32, tf.int64)
        fixed = _ids(draw, count, segments)

        def values() -> Arguments:
            ids = _ids(draw, count, segments) if with_segments else fixed
            made = {
                "data": draw.numbers(shape),
                "indices": draw.integers(0, rows, [count], index),
                "segment_ids": tf.constant(ids, of_ids),
            }
            if with_segments:
                made["num_segments"] = tf.constant(segments)
            return made

        return values

    return drawn


def gradient(draw: Draw) -> Values:
    rows, count, segments = draw.size(1), draw.size(1, 9), draw.size(1)
    shape = [segments, *draw.sizes(draw.size(0, 2), 1, 4)]
    index, of_ids = draw.choice(tf.int32, tf.int64), draw.choice(tf.int32, tf.int64)
    return lambda: {
        "grad": draw.numbers(shape),
        "indices": draw.integers(0, rows, [count], index),
        "segment_ids": tf.constant(_ids(draw, count, segments), of_ids),
        "output_dim0": rows,
    }


IDS, COUNT = ("segment_ids",), ("num_segments",)

KINDS: Kinds = {
    **{f"Segment{name}": Kind(segment, known=IDS) for name in ("Sum", "Max", "Min")},
    "SegmentMean": Kind(segment, known=IDS),
    "SegmentProd": Kind(segment, known=IDS),
    **{
        f"SparseSegment{name}{suffix}": kind
        for name in ("Sum", "Mean", "SqrtN")
        for suffix, kind in {
            "": Kind(_sparse(False), known=IDS),
            "WithNumSegments": Kind(_sparse(True), known=COUNT),
            "Grad": Kind(gradient, known=("output_dim0",)),
        }.items()
    },
}
