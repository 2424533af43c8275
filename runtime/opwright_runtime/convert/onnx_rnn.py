"""The recurrent operators of ONNX in place of CudnnRNN nodes, for tf2onnx.

One `LSTM`, `GRU` or `RNN` node takes a layer with both directions. Its gates come in
another order: i, o, f, c for LSTM, and z, r, h for GRU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from opwright_runtime.convert import packages
from opwright_runtime.convert.layers import Layers
from opwright_runtime.rnn.packed import RnnMode, Sizes

# A graph or node of tf2onnx, which has no types.
_Graph: TypeAlias = Any
_Node: TypeAlias = Any
_Array: TypeAlias = Any
Handler: TypeAlias = Callable[[_Graph, _Node, str, object], None]

_ORDER: dict[RnnMode, list[int]] = {
    "lstm": [0, 3, 1, 2],
    "gru": [1, 0, 2],
    "rnn_tanh": [0],
    "rnn_relu": [0],
}
_OPERATORS: dict[RnnMode, str] = {"lstm": "LSTM", "gru": "GRU"}
_FLOAT, _INT64 = 1, 7


def handler(known: dict[str, Layers]) -> Handler:
    """Converts the forward nodes of these names. Inlining puts prefixes before them."""

    def convert(graph: _Graph, node: _Node, name: str, args: object) -> None:
        _Converter(graph, node, known[name.rpartition("/")[2]]).convert()

    return convert


class _Converter:
    def __init__(self, graph: _Graph, node: _Node, layers: Layers) -> None:
        self._graph = graph
        self._node = node
        self._layers = layers
        self._sizes = layers.sizes
        self._dtype = graph.get_dtype(node.input[0])

    def convert(self) -> None:
        node, layers = self._node, self._layers
        outputs = [*node.output]
        x, h, c = (self._float(name) for name in node.input[:3])
        lengths = node.input[4] if layers.has_lengths else ""
        weights = self._weights(node)
        self._graph.remove_node(node.name)
        if not layers.time_major:
            x = self._make("Transpose", [x], perm=[1, 0, 2])
        h = self._stacked(h, self._sizes.hidden)
        c = self._stacked(c, self._sizes.num_units) if layers.lstm else ""
        finals = []
        for layer in range(self._sizes.num_layers):
            before = [self._part(one, layer) if one else "" for one in (h, c)]
            x, *after = self._layer(layer, x, weights, lengths, before)
            finals.append(after)
        self._finish(outputs, x, finals)

    def _layer(
        self,
        layer: int,
        x: str,
        weights: _Weights,
        lengths: str,
        states: list[str],
    ) -> list[str]:
        """Makes the node of one layer; returns its output and final states."""
        sizes, mode = self._sizes, self._sizes.rnn_mode
        attr: dict[str, Any] = {
            "hidden_size": sizes.num_units,
            "direction": "bidirectional" if sizes.dirs == 2 else "forward",
        }
        if mode == "gru":
            attr["linear_before_reset"] = 1
        elif mode != "lstm":
            attr["activations"] = [{"rnn_tanh": "Tanh"}.get(mode, "Relu")] * sizes.dirs
        inputs = [x, *weights.of(layer), lengths, states[0]]
        if mode == "lstm":
            inputs.append(states[1])
        count = 3 if mode == "lstm" else 2
        made = self._graph.make_node(
            _OPERATORS.get(mode, "RNN"),
            inputs,
            attr=attr,
            output_count=count,
            dtypes=[_FLOAT] * count,
            shapes=[[-1, sizes.dirs, -1, sizes.num_units]]
            + [[sizes.dirs, -1, sizes.num_units]] * (count - 1),
        )
        y, *finals = made.output
        # [time, dirs, batch, size], of which each direction is a part.
        parts = [
            self._make("Gather", [y, self._constant(np.array(i, np.int64))], axis=1)
            for i in range(sizes.dirs)
        ]
        y = self._joined(parts, axis=2)
        if lengths:
            finals = self._kept(lengths, states, finals)
        return [y, *finals]

    def _kept(self, lengths: str, states: list[str], finals: list[str]) -> list[str]:
        """The final states, where a sequence of length 0 keeps its initial ones."""
        zero = self._constant(np.zeros([], np.int32))
        empty = self._make("Equal", [lengths, zero], dtype=9)
        empty = self._reshape(empty, [1, -1, 1])
        return [
            self._make("Where", [empty, before, after])
            for before, after in zip(states, finals, strict=False)
        ]

    def _finish(self, outputs: list[str], y: str, finals: list[list[str]]) -> None:
        """Gives the results the names of the node's outputs."""
        if not self._layers.time_major:
            y = self._make("Transpose", [y], perm=[1, 0, 2])
        results = [y]
        for i, size in enumerate((self._sizes.hidden, self._sizes.num_units)):
            if i < len(finals[0]):
                state = self._joined([final[i] for final in finals], axis=0)
                if not self._layers.time_major:
                    state = self._reshape(state, [-1, self._layers.cells, size])
                results.append(state)
            else:
                results.append(self._constant(np.zeros([], np.float32)))
        for name, result in zip(outputs, results, strict=False):
            same = self._dtype == _FLOAT
            self._graph.make_node(
                "Identity" if same else "Cast",
                [result],
                attr={} if same else {"to": self._dtype},
                outputs=[name],
                dtypes=[self._dtype],
                shapes=[self._graph.get_shape(result)],
            )

    def _stacked(self, state: str, size: int) -> str:
        """A state as [layers * directions, batch, size]: the elements stay in order."""
        if self._layers.time_major:
            return state
        return self._reshape(state, [self._layers.cells, -1, size])

    def _part(self, state: str, layer: int) -> str:
        """The states of one layer."""
        dirs = self._sizes.dirs
        if self._layers.cells == dirs:
            return state
        begin, end = (
            self._constant(np.array([at], np.int64))
            for at in (layer * dirs, (layer + 1) * dirs)
        )
        axis = self._constant(np.array([0], np.int64))
        return self._make("Slice", [state, begin, end, axis])

    def _weights(self, node: _Node) -> _Weights:
        source = node.inputs[3]
        if source.is_const():
            values = np.asarray(source.get_tensor_value(as_list=False), np.float32)
            return _Constants(self._sizes, values, self._constant)
        return _Slices(self._sizes, self._float(node.input[3]), self)

    def _float(self, name: str) -> str:
        """In float32, which the operators of all runtimes take."""
        if not name or self._dtype == _FLOAT:
            return name
        return self._make("Cast", [name], to=_FLOAT)

    def _make(
        self, op: str, inputs: list[str], dtype: int = _FLOAT, **attr: Any
    ) -> str:
        made = self._graph.make_node(op, inputs, attr=attr, dtypes=[dtype])
        name: str = made.output[0]
        return name

    def _reshape(self, tensor: str, shape: Sequence[int]) -> str:
        wanted = self._constant(np.array(shape, np.int64))
        dtype = self._graph.get_dtype(tensor) or _FLOAT
        return self._make("Reshape", [tensor, wanted], dtype=dtype)

    def _joined(self, tensors: list[str], axis: int) -> str:
        if len(tensors) == 1:
            return tensors[0]
        return self._make("Concat", tensors, axis=axis)

    def _constant(self, value: _Array) -> str:
        make_name = packages.load("tf2onnx.utils", "to_onnx").make_name
        made = self._graph.make_const(make_name("opwright"), value)
        name: str = made.output[0]
        return name


class _Weights:
    """The weights of the layers, as ONNX has them."""

    def of(self, layer: int) -> list[str]:
        """W [dirs, rows, inputs], R [dirs, rows, units] and B [dirs, 2 * rows]."""
        raise NotImplementedError


class _Constants(_Weights):
    """Weights that are known: they become initializers."""

    def __init__(
        self, sizes: Sizes, params: _Array, constant: Callable[[_Array], str]
    ) -> None:
        self._sizes = sizes
        self._constant = constant
        self._cells = [*sizes.unpack(params)]

    def of(self, layer: int) -> list[str]:
        sizes = self._sizes
        cells = self._cells[layer * sizes.dirs : (layer + 1) * sizes.dirs]
        kernels = [self._kernel(matrices[0]) for matrices, _ in cells]
        recurrents = [self._ordered(matrices[1]) for matrices, _ in cells]
        biases = [
            np.concatenate([self._ordered(one[:, None])[:, 0] for one in both])
            for _, both in cells
        ]
        return [self._constant(np.stack(one)) for one in (kernels, recurrents, biases)]

    def _kernel(self, matrix: _Array) -> _Array:
        if not matrix.shape[1]:
            units = self._sizes.num_units
            matrix = np.tile(np.eye(units, dtype=matrix.dtype), [self._sizes.gates, 1])
        return self._ordered(matrix)

    def _ordered(self, matrix: _Array) -> _Array:
        """The rows of a matrix, gate by gate in the order of ONNX."""
        gates = np.split(matrix, self._sizes.gates)
        return np.concatenate([gates[i] for i in _ORDER[self._sizes.rnn_mode]])


class _Slices(_Weights):
    """Weights that the model computes or reads: they become slices."""

    def __init__(self, sizes: Sizes, params: str, converter: _Converter) -> None:
        self._sizes = sizes
        self._params = params
        self._converter = converter
        places: _Array = np.arange(sizes.params_size, dtype=np.int64)
        self._cells = [*sizes.unpack(places)]

    def of(self, layer: int) -> list[str]:
        sizes = self._sizes
        cells = self._cells[layer * sizes.dirs : (layer + 1) * sizes.dirs]
        kernels = [self._kernel(matrices[0]) for matrices, _ in cells]
        recurrents = [self._rows(matrices[1]) for matrices, _ in cells]
        biases = [self._biases(both) for _, both in cells]
        return [
            self._converter._joined(one, axis=0)
            for one in (kernels, recurrents, biases)
        ]

    def _kernel(self, places: _Array) -> str:
        if places.shape[1]:
            return self._rows(places)
        units = self._sizes.num_units
        identity = np.tile(np.eye(units, dtype=np.float32), [self._sizes.gates, 1])
        return self._converter._constant(identity[None])

    def _rows(self, places: _Array) -> str:
        return self._converter._reshape(self._gathered(places), [1, *places.shape])

    def _biases(self, places: _Array) -> str:
        parts = [self._gathered(one[:, None]) for one in places]
        joined = self._converter._joined(parts, axis=0)
        return self._converter._reshape(joined, [1, -1])

    def _gathered(self, places: _Array) -> str:
        """The rows at these places, gate by gate in the order of ONNX."""
        sizes = self._sizes
        flat = places.reshape(-1)
        begin, end = (
            self._converter._constant(np.array([at], np.int64))
            for at in (flat[0], flat[-1] + 1)
        )
        part = self._converter._make("Slice", [self._params, begin, end])
        part = self._converter._reshape(part, [sizes.gates, -1])
        order = self._converter._constant(np.array(_ORDER[sizes.rnn_mode], np.int64))
        part = self._converter._make("Gather", [part, order], axis=0)
        return self._converter._reshape(part, [-1])
