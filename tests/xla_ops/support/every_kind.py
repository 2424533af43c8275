"""The draws of all ops."""

from __future__ import annotations

from xla_ops.support import arrays
from xla_ops.support.draws import Kinds

KINDS: Kinds = {**arrays.KINDS}
