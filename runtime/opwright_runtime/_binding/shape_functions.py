"""Shapes that TensorFlow's shape functions refuse, and its kernels do not.

Opdefs say what shape functions hold. An op that runs eagerly has a kernel alone: there
the shapes of these inputs are no reason for a refusal. `make fuzz-diagnosis` finds
those that are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: By op the inputs whose shapes are checked by its shape function alone.
ALONE: Final[Mapping[str, tuple[str, ...]]] = {
    "BiasAdd": ("value",),
}
