"""The draws of all ops."""

from __future__ import annotations

from xla_ops.support import arrays, boxes, images, ragged, segments, sparse, windows
from xla_ops.support.draws import Kinds

KINDS: Kinds = {
    **arrays.KINDS,
    **boxes.KINDS,
    **images.KINDS,
    **ragged.KINDS,
    **segments.KINDS,
    **sparse.KINDS,
    **windows.KINDS,
}
