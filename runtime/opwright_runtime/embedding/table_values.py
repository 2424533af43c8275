"""Tables outside an embedding: arrays of rows, and of slots by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TableValues:
    """The values of a table, as arrays.

    Attributes:
        rows: the weights, [vocabulary_size, dimension], float32.
        slots: the optimizer's state by name, such as `accumulators` of Adagrad, or
            `momenta` and `velocities` of Adam. Each has the shape of `rows`, or
            [vocabulary_size, 1] of a row-wise optimizer.
    """

    rows: Array
    slots: Mapping[str, Array] = field(default_factory=dict)
