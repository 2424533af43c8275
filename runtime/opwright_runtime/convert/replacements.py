"""What takes the place of each recurrent op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from opwright_runtime.convert import graphs, layers, params, plain
from opwright_runtime.convert.layers import KERAS, PARAMS, Layers, Shape
from opwright_runtime.convert.rewrite import Replacement, signature_of
from opwright_runtime.rnn.plain_loops import LOOPS


@dataclass(frozen=True)
class Plain:
    """Replaces every op by plain ops.

    Attributes:
        loop: a key of `LOOPS`.
        checked: whether to refuse the lengths that the ops refuse.
        single: whether to compute float64 in float32.
    """

    loop: str = "list"
    checked: bool = True
    single: bool = False

    def __call__(
        self, node: Any, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
    ) -> Replacement:
        if node.op in PARAMS:
            return params.replacement(node, dtypes, shapes)
        read = layers.read(node, graphs.defaults(node.op), shapes)
        read = replace(read, single=self.single)
        signature = specs(read, dtypes, shapes)
        function = plain.function(read, LOOPS[self.loop], checked=self.checked)
        return Replacement(
            (self, read),
            function,
            signature,
            str(read),
            "a loop of plain ops",
            read.dtype.name,
        )


@dataclass(frozen=True)
class ProjectedOnly:
    """Replaces forward nodes with a projection, which few runtimes have."""

    plain: Plain

    def __call__(
        self, node: Any, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
    ) -> Replacement | None:
        num_proj = node.attr.get("num_proj")
        if num_proj is None or not num_proj.i:
            return None
        return self.plain(node, dtypes, shapes)


def specs(
    read: Layers, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
) -> list[tf.TensorSpec]:
    """The signature of the function for a node: all sizes that are known."""
    known = [*shapes]
    sizes, keras = read.sizes, read.op == KERAS
    # The positions of the batch in sequences and in states.
    in_x = 1 if read.time_major else 0
    in_h = 0 if keras else in_x
    lengths = 6 if keras else 4
    batches = [_dim(known[0], in_x), _dim(known[1], in_h)]
    if read.has_lengths:
        batches.append(_dim(known[lengths], 0))
    batch = next((size for size in batches if size is not None), None)

    def sized(index: int, shape: tuple[int | None, ...]) -> None:
        before = known[index]
        if before is None or len(before) != len(shape):
            known[index] = shape
        else:
            known[index] = tuple(
                a if b is None else b for a, b in zip(before, shape, strict=True)
            )

    sequence = (None, batch) if read.time_major else (batch, None)
    sized(0, (*sequence, sizes.input_size))
    states: tuple[int | None, ...] = (batch,)
    if not keras:
        states = (read.cells, batch) if read.time_major else (batch, read.cells)
    sized(1, (*states, sizes.hidden))
    if read.lstm:
        sized(2, (*states, sizes.num_units))
    if read.has_lengths:
        sized(lengths, (batch,))
    return signature_of(known, dtypes)


def _dim(shape: Shape, index: int) -> int | None:
    return shape[index] if shape is not None and len(shape) > index else None
