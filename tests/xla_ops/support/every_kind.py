"""The draws of all ops."""

from __future__ import annotations

from xla_ops.support import arrays, ragged, segments, sparse
from xla_ops.support.draws import Kinds

KINDS: Kinds = {
    **arrays.KINDS,
    **ragged.KINDS,
    **segments.KINDS,
    **sparse.KINDS,
}
