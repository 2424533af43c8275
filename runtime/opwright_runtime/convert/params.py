"""The ops on packed parameters in plain ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from opwright_runtime.convert import graphs
from opwright_runtime.convert.errors import refusal
from opwright_runtime.convert.layers import Shape
from opwright_runtime.convert.rewrite import Replacement, signature_of
from opwright_runtime.rnn.packed import GATES
from opwright_runtime.rnn.plain_cells import Tensor

# Each is a slice of its own in the graph.
_MAX_TENSORS = 10_000


def replacement(
    node: Any, dtypes: Sequence[tf.DType], shapes: Sequence[Shape]
) -> Replacement:
    """The function for ParamsSize, CanonicalToParams or ParamsToCanonical."""
    options = _Options(node)
    signature = signature_of(shapes, dtypes)
    function: Callable[..., list[Tensor]]
    if node.op == "CudnnRNNParamsSize":
        function, became = options.size, "arithmetic"
    elif "ParamsToCanonical" in node.op:
        function, became = options.unpack, "slices"
    else:
        function, became = options.pack, "a concatenation"
    return Replacement(options.key, function, signature, options.mode, became)


class _Options:
    def __init__(self, node: Any) -> None:
        self._node = node
        given = {**graphs.defaults(node.op), **node.attr}
        self.mode = given["rnn_mode"].s.decode("utf-8", "replace")
        if self.mode not in GATES:
            raise refusal(
                node.op,
                node.name,
                f"attr rnn_mode is {self.mode!r}; allowed are {', '.join(GATES)}",
                "correct the model",
            )
        self._gates = GATES[self.mode]
        self._input_mode = given["input_mode"].s
        self._dirs = 2 if given["direction"].s == b"bidirectional" else 1
        self._proj = given["num_proj"].i if "num_proj" in given else 0
        self._int = tf.as_dtype(given["S"].type) if "S" in given else tf.int32
        matrices = given.get("num_params_weights") or given.get("num_params")
        self._matrices = matrices.i if matrices is not None else 0
        if self._matrices > _MAX_TENSORS:
            raise refusal(
                node.op,
                node.name,
                f"it has {self._matrices} matrices; at most {_MAX_TENSORS} are allowed",
                "correct the model",
            )
        self.key = (node.op, str(sorted((k, str(v)) for k, v in given.items())))

    def size(self, layers: Tensor, units: Tensor, inputs: Tensor) -> list[Tensor]:
        """The number of parameters."""
        count, units, inputs = (
            tf.cast(tf.reshape(one, []), tf.int64) for one in (layers, units, inputs)
        )
        hidden = units if not self._proj else tf.constant(self._proj, tf.int64)
        rows = self._gates * units
        first = rows * self._columns(units, inputs)
        others = (count - 1) * rows * self._dirs * hidden
        each = rows * (hidden + 2) + self._proj * units
        total = self._dirs * (first + others + count * each)
        return [tf.reshape(tf.cast(total, self._int), [1])]

    def pack(
        self, layers: Tensor, units: Tensor, inputs: Tensor, *parts: Tensor
    ) -> list[Tensor]:
        """All matrices, then all biases, as one vector."""
        return [tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)]

    def unpack(
        self, layers: Tensor, units: Tensor, inputs: Tensor, params: Tensor
    ) -> list[Tensor]:
        """The matrices and the biases as tensors of their own."""
        units = tf.reshape(units, [])
        columns = self._columns(units, tf.reshape(inputs, []))
        hidden = self._proj or units
        per_cell = 2 * self._gates + (1 if self._proj else 0)
        cells = self._matrices // per_cell
        shapes = []
        for cell in range(cells):
            width = columns if cell < self._dirs else self._dirs * hidden
            shapes += [[units, width]] * self._gates + [[units, hidden]] * self._gates
            shapes += [[self._proj, units]] if self._proj else []
        shapes += [[units]] * (2 * self._gates * cells)
        outputs, at = [], tf.constant(0)
        for shape in shapes:
            count = tf.reduce_prod(tf.stack(shape))
            outputs.append(tf.reshape(params[at : at + count], tf.stack(shape)))
            at += count
        return outputs

    def _columns(self, units: Tensor, inputs: Tensor) -> Tensor:
        """The number of columns of the first layer's input weights."""
        nothing = tf.zeros([], inputs.dtype)
        if self._input_mode == b"skip_input":
            return nothing
        if self._input_mode == b"auto_select":
            return tf.where(tf.equal(units, inputs), nothing, inputs)
        return inputs
