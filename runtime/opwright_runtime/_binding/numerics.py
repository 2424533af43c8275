"""Properties of numbers on which the length of a kernel's loops depends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import tensorflow as tf

from opwright_runtime._binding.fast_path import EagerTensor
from opwright_runtime._binding.properties import array_of, elements_of, last_of


def terms_of(order: tf.Tensor, q: tf.Tensor) -> float:
    """How many terms the series of Zeta, or of Polygamma, adds for all elements.

    From a negative number that is no integer, it goes up in steps of 1 to a positive
    one. There is no series for an order that is no integer.
    """
    orders, numbers = array_of(order), array_of(q)
    if not (numbers < 0).any():
        return 0
    orders, numbers = np.broadcast_arrays(orders, numbers)
    is_added = (orders >= 1) & (numbers < 0) & (numbers != np.floor(numbers))
    is_added &= orders == np.floor(orders)
    return -float(np.sum(numbers[is_added], dtype=np.float64))


def are_nested(splits: Sequence[tf.Tensor]) -> bool:
    """Whether each row splits of a list end at a row that the next ones have."""
    return all(last_of(outer) < elements_of(inner) for outer, inner in pairwise(splits))


def is_invertible(matrices: object) -> bool:
    """Whether the loop of MatrixLogarithm ends, which takes roots until they are 1.

    A matrix of fewer than 3 rows needs no loop. Roots of 0 stay 0, as inf and nan do.
    Eigenvalues near 0 count as 0, because rounding decides which they are; those of a
    triangular matrix are exact. Roots overflow if the elements are too large for the
    eigenvalues.
    """
    if type(matrices) is not EagerTensor:
        raise TypeError
    given = array_of(matrices)
    rows = given.shape[-1]
    if rows < 3 or not given.size:
        return True
    stack = given.reshape(-1, rows, rows)
    if not np.isfinite(stack).all():
        return False
    sizes = np.abs(np.linalg.eigvals(stack)).astype(np.float64)
    least, most = sizes.min(1, initial=np.inf), sizes.max(1, initial=0)
    largest = np.abs(stack).max((1, 2), initial=0).astype(np.float64)
    limits = np.finfo(given.dtype)
    is_triangular = (np.tril(stack, -1) == 0).all((1, 2))
    is_singular = least <= np.where(is_triangular, 0, rows * limits.eps * most)
    with np.errstate(all="ignore"):
        growth = (rows - 1) * np.log(largest / least)
    return not (is_singular | (growth > np.log(limits.max))).any()
