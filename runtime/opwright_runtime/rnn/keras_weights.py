"""Keras's recurrent layers and the packed parameters of the CudnnRNN ops.

`params_from_keras` packs the weights of layers, and `params_to_keras` sets the weights
of layers from packed parameters. This module does not import Keras. It recognizes a
layer by its base classes in Keras 3, tf_keras or TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from opwright_runtime.errors import OpError
from opwright_runtime.rnn.packed import (
    DIRECTIONS,
    Array,
    PackedParams,
    Phrase,
    RnnMode,
    Sizes,
    check_sizes,
    input_error,
    not_built_error,
    vector,
)


def params_from_keras(layers: object) -> PackedParams:
    """Packs the weights of Keras layers for a CudnnRNN op.

    With these params and options and initial states of zeros, the op computes the
    outputs of the layers at inference. A mask that is padded on the right, summed over
    time, is the op's `sequence_lengths`. Past these lengths the op's output is zero,
    like that of a layer with `zero_output_for_mask`.

    Only weights are converted, not dropout, regularizers, or the states of a stateful
    layer.

    Args:
        layers: a layer, or a sequence of layers, each of which reads the output of the
            one before. They are LSTM, GRU or SimpleRNN, alone or in a Bidirectional, or
            CuDNNLSTM and CuDNNGRU of tf_keras. All are of one kind, with the same
            number of units, and all are bidirectional or none is. Activations are the
            op's: tanh and sigmoid, for SimpleRNN tanh or relu. A GRU has
            `reset_after=True`, a Bidirectional `merge_mode="concat"`, a layer alone
            `go_backwards=False`. All but the last have `return_sequences=True`. All are
            built.

    Returns:
        The vector and the options that go with it. If a cell has one bias, this becomes
        the recurrent bias, and the input bias is zeros. A cell without biases gets
        zeros for both.

    Raises:
        OpInputError: the layers do not meet these conditions. The error names the layer
            and the condition.
    """
    stack = _Stack(layers)
    for cell in stack.cells():
        if not cell.built:
            raise cell.not_built()
    sizes = stack.sizes(stack.layers[0][0].input_size)
    stack.check_inputs(sizes)
    cells = [cell.read() for cell in stack.cells()]
    dtypes = {
        str(array.dtype) for matrices, biases in cells for array in (*matrices, biases)
    }
    if len(dtypes) > 1:
        raise input_error(
            "layers", Phrase(" and ".join(sorted(dtypes))), "of one dtype"
        )
    return sizes.pack(cells)


def params_to_keras(
    params: ArrayLike | PackedParams, layers: object, *, input_size: int | None = None
) -> None:
    """Sets the weights of Keras layers from the params of a CudnnRNN op.

    The inverse of `params_from_keras`. It builds layers that are not built, except
    CuDNNLSTM and CuDNNGRU: their wrappers would build them again.

    Args:
        params: PackedParams; or [params_size], laid out as CudnnRNNParamsSize
            describes: an array, a tensor, a variable.
        layers: as `params_from_keras` takes them, built or not. Their weights have the
            dtype of `params`, or one that holds all its values. A cell with one bias
            gets the sum of the two.
        input_size: size of the input of the first layer. Required if that layer is not
            built and `params` are a bare vector, which does not contain it.

    Raises:
        OpInputError: the layers do not meet these conditions; or `params` were packed
            from other layers, or have the wrong length, a dtype that the weights cannot
            hold, or biases where a layer has none. No weight changes in these cases.
    """
    stack = _Stack(layers)
    packed = vector(params)
    is_size = isinstance(input_size, (int, np.integer)) and input_size > 0
    if input_size is not None and (isinstance(input_size, bool) or not is_size):
        raise input_error("input_size", input_size, "a positive integer, or None")
    first = stack.layers[0][0]
    if input_size is None and isinstance(params, PackedParams):
        input_size = params.input_size
    if first.built:
        input_size = first.input_size
    elif input_size is None:
        remedy = ", or input_size given, for params that are a bare vector"
        raise not_built_error(first.place, remedy)
    sizes = stack.sizes(input_size)
    check_sizes(params, packed.size, sizes)
    for cell in stack.cells():
        cell.check_buildable()
    for layer, cells in enumerate(stack.layers):
        for cell in cells:
            cell.build(sizes.width if layer else input_size)
    stack.check_inputs(sizes)
    assignments = [
        pair
        for cell, (matrices, biases) in zip(
            stack.cells(), sizes.unpack(packed), strict=True
        )
        for pair in cell.assignments(matrices, biases)
    ]
    for variable, value in assignments:
        variable.assign(value)


# The position in Keras of each gate of the op: a GRU's r, z, n against Keras's z, r, h.
_GATES = {"LSTM": [0, 1, 2, 3], "GRU": [1, 0, 2], "SimpleRNN": [0]}
_CLASSES = {**{name: name for name in _GATES}, "CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"}
_PACKAGES = ("keras", "tf_keras", "tensorflow")
_LAYER = "an LSTM, GRU or SimpleRNN of Keras, alone or in a Bidirectional"
_ONE_BY_ONE = (
    "one op runs layers of one kind with equal units; convert each layer in a call of "
    "its own"
)


def _class_of(layer: object) -> str:
    """The name of the layer's class in Keras; "" if this module does not know it."""
    for cls in type(layer).__mro__:
        known = cls.__name__ in _CLASSES or cls.__name__ == "Bidirectional"
        if known and cls.__module__.split(".")[0] in _PACKAGES:
            return cls.__name__
    return ""


def packages_of(given: object) -> set[str]:
    """The packages that an object's class and its base classes are of."""
    return {cls.__module__.split(".")[0] for cls in type(given).__mro__}


def _shown(layer: object) -> str:
    """A layer in an error: its class and its name."""
    return f"{type(layer).__name__} {getattr(layer, 'name', '')!r}"


def _not_a_layer(place: str, given: object, allowed: str) -> OpError:
    """The error of what is no layer, or a layer of a kind that no op computes."""
    known = packages_of(given).intersection(_PACKAGES) and hasattr(given, "name")
    shown = Phrase(_shown(given)) if known and not hasattr(given, "shape") else given
    remedy = ""
    if isinstance(given, type):
        remedy = "make a layer of the class, as LSTM(units)"
    elif "torch" in packages_of(given):
        remedy = "params_from_torch packs modules of torch"
    elif hasattr(given, "shape"):
        remedy = "pass the layer, not its weights"
    elif known and hasattr(given, "layers"):
        remedy = "pass its recurrent layers, each in a call of its own"
    elif known and hasattr(given, "layer"):
        remedy = "pass the layer that it wraps"
    elif known and (hasattr(given, "cell") or hasattr(given, "state_size")):
        remedy = (
            "make the LSTM, GRU or SimpleRNN that computes the same, and copy the "
            "weights with set_weights"
        )
    return input_error(place, shown, allowed, remedy)


class _Variable(Protocol):
    """The common interface of variables in Keras 3 and TensorFlow."""

    @property
    def shape(self) -> Sequence[int]: ...
    def numpy(self) -> Array: ...
    def assign(self, value: Array) -> object: ...


class _Layer(Protocol):
    """The attributes that are read of a layer. A Bidirectional lacks some."""

    units: int
    built: bool
    go_backwards: bool
    return_sequences: bool
    merge_mode: str | None
    forward_layer: object
    backward_layer: object
    kernel: _Variable
    recurrent_kernel: _Variable
    bias: _Variable | None
    cell: _Layer

    def build(self, input_shape: tuple[int | None, ...]) -> None: ...


class _Cell:
    """A layer that runs in one direction, alone or in a wrapper."""

    def __init__(
        self,
        layer: object,
        place: str,
        wrapper: _Layer | None = None,
        backwards: bool = False,
    ) -> None:
        name = _class_of(layer)
        if name not in _CLASSES:
            raise _not_a_layer(place, layer, _LAYER)
        self.place = place
        self.kind = _CLASSES[name]
        self._layer = cast(_Layer, layer)
        # The layer whose `build` is called. A wrapper builds its inner layers.
        self._outer = self._layer if wrapper is None else wrapper
        self.units = int(self._layer.units)
        # A layer for cuDNN has no cell: it holds the weights itself, and its
        # activations are fixed.
        self._made_for_cudnn = name != self.kind
        self._owner = self._layer if self._made_for_cudnn else self._layer.cell
        self.mode: RnnMode = "lstm" if self.kind == "LSTM" else "gru"
        if not self._made_for_cudnn:
            self._check_choices()
        if self._layer.go_backwards != backwards:
            given = self._layer.go_backwards
            raise input_error(f"{place}.go_backwards", given, backwards)

    def _check_choices(self) -> None:
        def name(attribute: str) -> str:
            function = getattr(self._layer, attribute)
            return str(getattr(function, "__name__", function))

        activation = name("activation")
        if self.kind == "SimpleRNN":
            if activation not in ("tanh", "relu"):
                raise input_error(
                    f"{self.place}.activation", activation, ("tanh", "relu")
                )
            self.mode = "rnn_tanh" if activation == "tanh" else "rnn_relu"
            return
        if activation != "tanh":
            raise input_error(f"{self.place}.activation", activation, ("tanh",))
        if (recurrent := name("recurrent_activation")) != "sigmoid":
            raise input_error(
                f"{self.place}.recurrent_activation", recurrent, ("sigmoid",)
            )
        if self.kind == "GRU" and not getattr(self._layer, "reset_after", False):
            raise input_error(f"{self.place}.reset_after", False, (True,))

    @property
    def built(self) -> bool:
        return bool(self._outer.built)

    def not_built(self) -> OpError:
        given = Phrase(f"{_shown(self._layer)}, which has no weights yet")
        whose = "its" if self._outer is self._layer else "the Bidirectional's"
        remedy = f"call {whose} build([None, None, input_size]), or the model, first"
        return input_error(self.place, given, "built", remedy)

    def check_buildable(self) -> None:
        """Refuses layers for cuDNN that are not built.

        Keras's wrappers build such layers again, with new weights, and a layer does not
        know its wrappers.

        Raises:
            OpInputError: it is such a layer, and not built.
        """
        if self._made_for_cudnn and not self.built:
            name = _class_of(self._layer)
            raise not_built_error(
                self.place,
                ": call the model first, for a wrapper that is built later makes the "
                f"weights of a {name} anew",
            )

    def build(self, input_size: int) -> None:
        if not self.built:
            self._outer.build((None, None, input_size))

    @property
    def input_size(self) -> int:
        return int(self._owner.kernel.shape[0])

    @property
    def order(self) -> list[int]:
        return _GATES[self.kind]

    def read(self) -> tuple[list[Array], Array]:
        """The weights in the op's order: two of [gates, units, inputs], and biases."""

        def matrix(variable: _Variable) -> Array:
            values = np.asarray(variable.numpy())
            gates = values.reshape(len(values), len(self.order), self.units)
            shape = (len(self.order), self.units, len(values))
            # A layer for cuDNN stores the elements of each gate in cuDNN's order, while
            # the shape of the variable is Keras's.
            axes = (1, 0, 2) if self._made_for_cudnn else (1, 2, 0)
            return gates.transpose(axes).reshape(shape)[self.order]

        kernel = matrix(self._owner.kernel)
        recurrent = matrix(self._owner.recurrent_kernel)
        both: Array = np.zeros((2, len(self.order), self.units), kernel.dtype)
        if self._owner.bias is not None:
            bias = np.asarray(self._owner.bias.numpy())
            both = both.astype(bias.dtype)
            if bias.size == both.size:
                both[:] = bias.reshape(both.shape)
            else:
                both[1] = bias.reshape(both.shape[1:])
        return [kernel, recurrent], both[:, self.order]

    def assignments(
        self, matrices: list[Array], biases: Array
    ) -> Iterator[tuple[_Variable, Array]]:
        """Each variable with its new value: the inverse of `read`."""
        # Keras's order of the gates is the op's order with at most two gates swapped.
        # The permutation `self.order` is therefore its own inverse, and `read` and this
        # method both use it.
        variables = (self._owner.kernel, self._owner.recurrent_kernel)
        for variable, values in zip(variables, matrices, strict=True):
            inputs, gates = values.shape[1], len(self.order)
            ordered = values.reshape(gates, self.units, inputs)[self.order]
            if self._made_for_cudnn:
                made = ordered.reshape(gates, inputs, self.units).transpose(1, 0, 2)
            else:
                made = ordered.transpose(2, 0, 1)
            flat = made.reshape(inputs, gates * self.units)
            yield variable, self._fitting(variable, flat)
        bias = self._owner.bias
        if bias is not None:
            biases = biases.reshape(2, len(self.order), self.units)[:, self.order]
            if math.prod(bias.shape) != biases.size:
                biases = biases.sum(axis=0)
            yield bias, self._fitting(bias, biases.reshape(tuple(bias.shape)))
        elif biases.any():
            given = Phrase("with biases that are not zero")
            raise input_error("params", given, f"without biases: {self.place} has none")

    def _fitting(self, variable: _Variable, values: Array) -> Array:
        dtype = np.asarray(variable.numpy()).dtype
        if not np.can_cast(values.dtype, dtype, "safe"):
            given = Phrase(str(values.dtype))
            raise input_error("params", given, f"{dtype}, which {self.place} has")
        return values.astype(dtype)


class _Stack:
    """Layers that one op can run, after checks."""

    def __init__(self, layers: object) -> None:
        # Tensors and arrays are iterable too.
        single = isinstance(layers, (str, bytes, Mapping)) or hasattr(layers, "shape")
        several = isinstance(layers, Iterable) and not single
        one_by_one = list(cast("Iterable[object]", layers)) if several else [layers]
        if not one_by_one or single:
            allowed = f"{_LAYER}, or a sequence of such"
            raise _not_a_layer("layers", layers, allowed)
        #: For each layer, its cells: one for each direction.
        self.layers: list[list[_Cell]] = []
        for i, layer in enumerate(one_by_one):
            place = f"layers[{i}]" if several else "layers"
            last = i == len(one_by_one) - 1
            self.layers.append(_directions(cast(_Layer, layer), place, last))
        first = self.layers[0][0]
        direction = DIRECTIONS[len(self.layers[0]) - 1]
        for cells in self.layers:
            if len(cells) != len(self.layers[0]):
                given = Phrase(DIRECTIONS[len(cells) - 1])
                allowed = f"{direction} as the first layer is"
                raise input_error(cells[0].place, given, allowed, _ONE_BY_ONE)
        for cell in self.cells():
            if cell.mode != first.mode:
                given = Phrase(cell.mode)
                allowed = f"{first.mode} as {first.place} is"
                raise input_error(cell.place, given, allowed, _ONE_BY_ONE)
            if cell.units != first.units:
                allowed = f"{first.units} as {first.place} has"
                place = f"{cell.place}.units"
                raise input_error(place, cell.units, allowed, _ONE_BY_ONE)

    def cells(self) -> Iterator[_Cell]:
        """All cells in the op's order: by layer, then by direction."""
        return (cell for cells in self.layers for cell in cells)

    def sizes(self, input_size: int) -> Sizes:
        first, dirs = self.layers[0][0], len(self.layers[0])
        return Sizes(
            first.mode,
            DIRECTIONS[dirs - 1],
            len(self.layers),
            first.units,
            input_size,
        )

    def check_inputs(self, sizes: Sizes) -> None:
        """Checks that each layer reads the output of the one before."""
        for layer, cells in enumerate(self.layers):
            for cell in cells:
                wanted = sizes.width if layer else sizes.input_size
                if cell.input_size != wanted:
                    given = Phrase(f"built for inputs of size {cell.input_size}")
                    raise input_error(cell.place, given, f"built for size {wanted}")


def _directions(layer: _Layer, place: str, last: bool) -> list[_Cell]:
    """The cells of a layer: one, or in a Bidirectional two."""
    if _class_of(layer) != "Bidirectional":
        cells = [_Cell(layer, place)]
        sequences = last or layer.return_sequences
    else:
        if layer.merge_mode != "concat":
            raise input_error(f"{place}.merge_mode", layer.merge_mode, ("concat",))
        cells = [
            _Cell(layer.forward_layer, f"{place}.forward_layer", layer),
            _Cell(layer.backward_layer, f"{place}.backward_layer", layer, True),
        ]
        forward = cast(_Layer, layer.forward_layer)
        sequences = last or forward.return_sequences
    if not sequences:
        allowed = "True, for a layer follows"
        raise input_error(f"{place}.return_sequences", False, allowed)
    return cells
