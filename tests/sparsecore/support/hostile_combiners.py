"""Drawn damage of the ops with custom combiners: all calls are refused or computed.

Run as a program, with the number of calls and the seed, it makes them in this process:

    PYTHONPATH=tests python -m sparsecore.support.hostile_combiners 20000 0
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

from sparsecore.support.combiners import (
    COMBINERS,
    Shape,
    combined_lookup,
    combined_update,
    forward_function,
    preserved,
    vjp_functions,
)
from sparsecore.support.lookups import PAD, Array
from sparsecore.support.ordered import ordered_csr
from sparsecore.support.updates import CASES

SHAPES = (Shape(4, 3, 2, 3), Shape(8, 2, 5, 0))
ROWS = 8
INTEGERS = (-1, 0, 1, 2, 7, 8, 9, 100, PAD, 2**31 - 1, -(2**31))
FLOATS = (np.nan, np.inf, -np.inf, 0.0, 0.5, 1.0, 3e38, -3e38)
SIZES = (-1, 0, 1, 2, 3, 4, 8, 2**28, 2**31 - 1, 2**31, 2**62)
ATTRS = ("input_size", "max_valency", "num_weights", "num_sparsecores_per_device")
# What a call may do. All other errors, and ends of the process, are findings.
REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnimplementedError,
)


def damaged(rng: np.random.Generator, value: Array) -> Array:
    """Some elements, or the shape, of a tensor changed."""
    kind = rng.integers(8)
    if kind == 0:
        return value[: rng.integers(len(value) + 1)] if value.ndim else value[None]
    if kind == 1:
        return value[None]
    if kind == 2:
        return value.reshape(-1)
    value = value.copy()
    if value.size:
        values = INTEGERS if value.dtype.kind == "i" else FLOATS
        at = rng.integers(value.size, size=rng.integers(1, 4))
        value.reshape(-1)[at] = rng.choice(np.array(values), len(at))
    return value


class Caller:
    """Calls with the functions of one shape, which are traced once."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        combiner = COMBINERS["weighted" if shape.weights else "sum"]
        self.forward = forward_function(combiner, shape)
        self.backward = vjp_functions(combiner, shape)

    def call(self, rng: np.random.Generator, name: str) -> None:
        """A lookup, and an update with what it returns. One of them is damaged."""
        shape, cores = self.shape, int(rng.choice([1, 2, 4]))
        bags = [
            list(rng.integers(ROWS, size=rng.integers(shape.max_valency + 1)))
            for _ in range(shape.samples)
        ]
        csr = ordered_csr(bags, cores)
        table = rng.standard_normal((ROWS, shape.width)).astype(np.float32)
        weights = np.ones(shape.weights, np.float32)
        buffers = csr | {"embedding_table": table, "weights": weights}
        lookup = rng.random() < 0.5
        changes = self.changes(rng, buffers) if lookup else {}
        looked_up = {"embedding_table": table, "weights": weights} | changes
        found = combined_lookup(
            csr,
            looked_up.pop("embedding_table"),
            looked_up.pop("weights"),
            self.forward,
            shape,
            cores,
            **looked_up,
        )
        case = CASES[name]
        saved = preserved(found, weights)
        saved = {key: np.asarray(value) for key, value in saved.items()}
        gradients = np.ones((shape.samples, shape.width), np.float32)
        state = [table, *(np.ones_like(table) for _ in case.slots)]
        buffers = csr | saved | {"activation_gradients": gradients}
        buffers |= dict(zip(["embedding_table", *case.slots], state, strict=True))
        changes = {} if lookup else self.changes(rng, buffers)
        changes.pop("input_size", None)
        updated = combined_update(
            case, csr, saved, self.backward, gradients, state, shape, cores, **changes
        )
        if not lookup and not changes:
            assert all(np.isfinite(one).all() for one in updated)

    @staticmethod
    def changes(rng: np.random.Generator, buffers: dict[str, Array]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(rng.integers(1, 3)):
            if rng.random() < 0.2:
                found[str(rng.choice(ATTRS))] = int(rng.choice(np.array(SIZES, object)))
            else:
                key = str(rng.choice(list(buffers)))
                found[key] = damaged(rng, buffers[key])
        return found


def run(calls: int, seed: int) -> int:
    """Makes calls, and returns how many were refused."""
    callers = [Caller(shape) for shape in SHAPES]
    refused = 0
    for number in range(calls):
        rng = np.random.default_rng([seed, number])
        caller = callers[number % len(callers)]
        try:
            caller.call(rng, str(rng.choice(list(CASES))))
        except REFUSALS:
            refused += 1
    return refused


if __name__ == "__main__":
    COUNT, SEED = int(sys.argv[1]), int(sys.argv[2])
    print(f"{run(COUNT, SEED)} of {COUNT} calls were refused")
