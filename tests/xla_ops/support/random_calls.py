"""Compares random calls of a compiled op with those of TensorFlow's CPU kernel.

TensorFlow keeps each program that XLA has compiled in mappings of memory, and Linux
limits their number in a process. So each op has a process of its own:

    python -m xla_ops.support.random_calls UnravelIndex 20 10
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

import opwright  # noqa: F401
from xla_ops.support.calls import assert_close, dtypes, reference, run, split
from xla_ops.support.draws import Draw
from xla_ops.support.every_kind import KINDS


def compare(name: str, draw: Draw, count: int) -> None:
    """Compares `count` calls of one drawn shape."""
    kind = KINDS[name]
    values = kind.draw(draw)

    @tf.function(jit_compile=True, autograph=False)
    def compiled(given: dict[str, tf.Tensor], rest: dict[str, Any]) -> Any:
        return run(name, {**given, **rest})

    for _ in range(count):
        given, rest = split(name, values())
        wanted = reference(name, {**given, **rest})
        for one, other in zip(compiled(given, rest), wanted, strict=True):
            assert_close(one, other, kind.tolerance)


def main(name: str, shapes: int, values: int) -> None:
    compared = 0
    for dtype in dtypes(name):
        for seed in range(shapes):
            rng = np.random.default_rng([seed, dtype.as_datatype_enum])
            try:
                compare(name, Draw(rng, dtype), values)
            except Exception as error:
                error.args = (f"{dtype.name}, seed {seed}: {error}",)
                raise
            compared += values
    print(compared)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
