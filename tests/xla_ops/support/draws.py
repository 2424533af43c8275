"""Random calls of the ops that opwright compiles with XLA.

A function for each op draws a shape, and returns a function that draws arguments of
that shape. Whatever XLA must know when it compiles belongs to the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

Arguments = dict[str, Any]
Values = Callable[[], Arguments]


@dataclass(frozen=True)
class Draw:
    """The source of random arguments of one dtype.

    Attributes:
        rng: the generator.
        dtype: of the type attr that the test varies.
    """

    rng: np.random.Generator
    dtype: tf.DType

    def size(self, least: int = 0, most: int = 6) -> int:
        return int(self.rng.integers(least, most + 1))

    def sizes(self, count: int, least: int = 0, most: int = 6) -> list[int]:
        return [self.size(least, most) for _ in range(count)]

    def flag(self) -> bool:
        return bool(self.rng.integers(2))

    def choice(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def integers(
        self, low: int, high: int, shape: Any = (), dtype: tf.DType = tf.int32
    ) -> tf.Tensor:
        """Integers from `low` to `high`, without the latter."""
        return tf.constant(self.rng.integers(low, high, shape), dtype)

    def numbers(self, shape: Any, dtype: tf.DType | None = None) -> tf.Tensor:
        """Numbers of both signs, some of them equal, some of them zero."""
        dtype = dtype or self.dtype
        if dtype.is_integer:
            low = 0 if dtype.is_unsigned else -9
            return tf.cast(self.integers(low, 10, shape), dtype)
        made = self.rng.standard_normal(shape) * 3
        whole = self.rng.random(shape) < 0.3
        made = np.where(whole, np.round(made), made)
        if dtype.is_complex:
            return tf.complex(
                tf.constant(made, dtype.real_dtype),
                tf.constant(self.rng.standard_normal(shape), dtype.real_dtype),
            )
        return tf.cast(tf.constant(made, tf.float64), dtype)


@dataclass(frozen=True)
class Kind:
    """How calls of an op are drawn.

    Attributes:
        draw: makes the function of arguments for a drawn shape.
        attr: the type attr whose dtypes the test goes through; "" if there is none.
        known: the inputs that XLA must know when it compiles.
        tolerance: a factor of the tolerance of each dtype.
        narrow: whether 16 bits are compared with the CPU kernel's 16 bits, not with 32.
    """

    draw: Callable[[Draw], Values]
    attr: str = "T"
    known: tuple[str, ...] = ()
    tolerance: float = 1.0
    narrow: bool = False


Kinds = Mapping[str, Kind]
