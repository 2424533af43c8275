"""The gradients of our ops, registered once: when `my_audio.ops` is imported."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .ops.audio import fade


@tf.RegisterGradient("Fade")  # type: ignore[untyped-decorator]
def _fade(op: Any, gradient: Any) -> tuple[Any, Any]:
    """With respect to `signal` and `gains`."""
    signal, gains = op.inputs
    options = {name: op.get_attr(name) for name in ("length", "both")}
    faded = fade(signal, tf.ones_like(gains), **options)
    return fade(gradient, gains, **options), tf.reduce_sum(gradient * faded, axis=1)
