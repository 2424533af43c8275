"""Keras's recurrent layers and the packed parameters of the CudnnRNN ops.

`params_from_keras` packs the weights of layers, `params_to_keras` sets the weights of
layers from packed parameters. Nothing here imports Keras: a layer is known by the class
that it derives from, of Keras 3 or of tf_keras.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opwright_runtime.errors import OpError, OpInputError, refused

Array: TypeAlias = NDArray[np.floating]
RnnMode: TypeAlias = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
Direction: TypeAlias = Literal["unidirectional", "bidirectional"]

_OP = "CudnnRNNV3"


@dataclass(frozen=True, eq=False)
class PackedParams:
    """Parameters of layers as one vector, and what a CudnnRNN op must know of them.

    Attributes:
        params: [params_size], laid out as CudnnRNNParamsSize describes, in the dtype of
            the layers' weights.
        rnn_mode: the option of that name.
        direction: the option of that name.
        num_layers: layers of the stack; a bidirectional layer counts once.
        num_units: size of a state.
        input_size: size of the input of the first layer.
    """

    params: Array
    rnn_mode: RnnMode
    direction: Direction
    num_layers: int
    num_units: int
    input_size: int


def params_from_keras(layers: object) -> PackedParams:
    """Packs the weights of Keras layers for a CudnnRNN op.

    With these params and options and initial states of zeros, the op gives what the
    layers give at inference. A mask that is padded on the right is, summed over time,
    the op's `sequence_lengths`; past them the op's output is zero, as is that of a
    layer with `zero_output_for_mask`.

    What a layer has besides its weights is not converted: dropout, regularizers, the
    states of a stateful layer.

    Args:
        layers: a layer, or a sequence of layers each of which reads what the one before
            puts out: LSTM, GRU or SimpleRNN, each on its own or in a Bidirectional, or
            CuDNNLSTM and CuDNNGRU of tf_keras. All are of one kind, with as many units,
            and all are bidirectional or none is. Activations are the op's: tanh and
            sigmoid, for SimpleRNN tanh or relu. A GRU has `reset_after=True`, a
            Bidirectional `merge_mode="concat"`, a layer alone `go_backwards=False`. All
            but the last have `return_sequences=True`. All are built.

    Returns:
        The vector and the options that go with it. A cell's only bias becomes its
        recurrent bias, beside an input bias of zeros; for a cell without biases both
        are zeros.

    Raises:
        OpInputError: the layers are not such; the error names the layer and what is
            wrong with it.
    """
    stack = _Stack(layers)
    for cell in stack.cells():
        if not cell.built:
            raise _refused(cell.place, _Words("not built"), "built")
    input_size = stack.layers[0][0].input_size
    stack.check_inputs(input_size)
    values = [cell.read() for cell in stack.cells()]
    dtypes = {str(array.dtype) for value in values for array in value}
    if len(dtypes) > 1:
        given = _Words(" and ".join(sorted(dtypes)))
        raise _refused("layers", given, "of one dtype")
    matrices = [
        part.ravel() for kernel, recurrent, _ in values for part in (kernel, recurrent)
    ]
    biases = [bias.ravel() for _, _, bias in values]
    return PackedParams(
        np.concatenate([*matrices, *biases]),
        stack.mode,
        stack.direction,
        len(stack.layers),
        stack.units,
        input_size,
    )


def params_to_keras(params: ArrayLike, layers: object) -> None:
    """Sets the weights of Keras layers from the params of a CudnnRNN op.

    The opposite of `params_from_keras`. A layer that is not built yet is built; the
    length of `params` says for which size of input.

    Args:
        params: [params_size], laid out as CudnnRNNParamsSize describes: an array, a
            tensor, a variable.
        layers: as `params_from_keras` takes them, built or not. Their weights have the
            dtype of `params`, or one that holds all its values. A cell with one bias
            gets the sum of the two.

    Raises:
        OpInputError: the layers are not such; or `params` is of another length than
            they ask for, of a dtype that theirs cannot hold, or has biases where a
            layer has none. No weight has changed then.
    """
    stack = _Stack(layers)
    packed: Array = np.asarray(params)
    if packed.ndim != 1:
        given = _Words(f"of shape {list(packed.shape)}")
        raise _refused("params", given, "a vector")
    first = stack.layers[0][0]
    input_size = first.input_size if first.built else stack.input_size_of(packed.size)
    size = stack.params_size(input_size)
    if packed.size != size:
        given = _Words(f"of length {packed.size}")
        allowed = f"of length {size} for these layers"
        raise _refused("params", given, allowed)
    for layer, cells in enumerate(stack.layers):
        for cell in cells:
            cell.build(stack.width if layer else input_size)
    stack.check_inputs(input_size)

    at = 0

    def take(*shape: int) -> Array:
        nonlocal at
        begin, at = at, at + math.prod(shape)
        return packed[begin:at].reshape(shape)

    gates, units = len(_GATES[stack.kind]), stack.units
    matrices = [
        (take(gates, units, cell.input_size), take(gates, units, units))
        for cell in stack.cells()
    ]
    assignments = [
        pair
        for cell, (kernel, recurrent) in zip(stack.cells(), matrices, strict=True)
        for pair in cell.assignments(kernel, recurrent, take(2, gates, units))
    ]
    for variable, value in assignments:
        variable.assign(value)


# Where Keras has each gate of the op: a GRU's r, z, n are Keras's z, r, h.
_GATES = {"LSTM": [0, 1, 2, 3], "GRU": [1, 0, 2], "SimpleRNN": [0]}
_CLASSES = {**{name: name for name in _GATES}, "CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"}
_PACKAGES = ("keras", "tf_keras", "tensorflow")
_DIRECTIONS: tuple[Direction, Direction] = ("unidirectional", "bidirectional")
_LAYER = "an LSTM, GRU or SimpleRNN of Keras, alone or in a Bidirectional"


class _Words:
    """A phrase that an error shows as it is."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


def _refused(argument: str, given: object, allowed: object) -> OpError:
    return refused(OpInputError, _OP, argument, given, allowed)


def _class_of(layer: object) -> str:
    """Which class of Keras a layer is of; "" if it is of none known here."""
    for cls in type(layer).__mro__:
        known = cls.__name__ in _CLASSES or cls.__name__ == "Bidirectional"
        if known and cls.__module__.split(".")[0] in _PACKAGES:
            return cls.__name__
    return ""


class _Variable(Protocol):
    """What the variables of Keras 3 and of TensorFlow have in common."""

    @property
    def shape(self) -> Sequence[int]: ...
    def numpy(self) -> Array: ...
    def assign(self, value: Array) -> object: ...


class _Layer(Protocol):
    """What is read of a recurrent layer; a Bidirectional has not all of it."""

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
    """A layer that runs in one direction."""

    def __init__(self, layer: object, place: str, backwards: bool = False) -> None:
        name = _class_of(layer)
        if name not in _CLASSES:
            raise _refused(place, layer, _LAYER)
        self.place = place
        self.kind = _CLASSES[name]
        self._layer = cast(_Layer, layer)
        self.units = int(self._layer.units)
        # A layer that is made for cuDNN has the weights itself, and nothing to choose.
        self._made_for_cudnn = name != self.kind
        self._owner = self._layer if self._made_for_cudnn else self._layer.cell
        self.mode: RnnMode = "lstm" if self.kind == "LSTM" else "gru"
        if not self._made_for_cudnn:
            self._check_choices()
        if self._layer.go_backwards != backwards:
            given = self._layer.go_backwards
            raise _refused(f"{place}.go_backwards", given, backwards)

    def _check_choices(self) -> None:
        def name(attribute: str) -> str:
            function = getattr(self._layer, attribute)
            return str(getattr(function, "__name__", function))

        activation = name("activation")
        if self.kind == "SimpleRNN":
            if activation not in ("tanh", "relu"):
                raise _refused(f"{self.place}.activation", activation, ("tanh", "relu"))
            self.mode = "rnn_tanh" if activation == "tanh" else "rnn_relu"
            return
        if activation != "tanh":
            raise _refused(f"{self.place}.activation", activation, ("tanh",))
        if (recurrent := name("recurrent_activation")) != "sigmoid":
            raise _refused(
                f"{self.place}.recurrent_activation", recurrent, ("sigmoid",)
            )
        if self.kind == "GRU" and not getattr(self._layer, "reset_after", False):
            raise _refused(f"{self.place}.reset_after", False, (True,))

    @property
    def built(self) -> bool:
        return bool(self._layer.built)

    def build(self, input_size: int) -> None:
        if not self.built:
            self._layer.build((None, None, input_size))

    @property
    def input_size(self) -> int:
        return int(self._owner.kernel.shape[0])

    @property
    def order(self) -> list[int]:
        return _GATES[self.kind]

    def read(self) -> tuple[Array, Array, Array]:
        """Weights as the op has them: twice [gates, units, inputs], then biases."""

        def matrix(variable: _Variable) -> Array:
            values = np.asarray(variable.numpy())
            gates = values.reshape(len(values), len(self.order), self.units)
            shape = (len(self.order), self.units, len(values))
            # A layer made for cuDNN has each gate's elements in cuDNN's order, in
            # spite of the shape.
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
        return kernel, recurrent, both[:, self.order]

    def assignments(
        self, kernel: Array, recurrent: Array, biases: Array
    ) -> Iterator[tuple[_Variable, Array]]:
        """Each variable, and what is to be assigned to it; the opposite of `read`."""
        # The order that swaps two gates swaps them back.
        for variable, values in (
            (self._owner.kernel, kernel),
            (self._owner.recurrent_kernel, recurrent),
        ):
            gates, units, inputs = values.shape
            ordered = values[self.order]
            if self._made_for_cudnn:
                made = ordered.reshape(gates, inputs, units).transpose(1, 0, 2)
            else:
                made = ordered.transpose(2, 0, 1)
            kernel = made.reshape(inputs, gates * units)
            yield variable, self._fitting(variable, kernel)
        bias = self._owner.bias
        if bias is not None:
            biases = biases[:, self.order]
            if math.prod(bias.shape) != biases.size:
                biases = biases.sum(axis=0)
            yield bias, self._fitting(bias, biases.reshape(tuple(bias.shape)))
        elif biases.any():
            given = _Words("with biases that are not zero")
            raise _refused("params", given, f"without biases: {self.place} has none")

    def _fitting(self, variable: _Variable, values: Array) -> Array:
        dtype = np.asarray(variable.numpy()).dtype
        if not np.can_cast(values.dtype, dtype, "safe"):
            given = _Words(str(values.dtype))
            raise _refused("params", given, f"{dtype}, which {self.place} has")
        return values.astype(dtype)


class _Stack:
    """Layers that the op can run as one, checked."""

    def __init__(self, layers: object) -> None:
        one_by_one = list(layers) if isinstance(layers, Iterable) else [layers]
        if not one_by_one:
            raise _refused("layers", layers, _LAYER + ", or a sequence of such")
        #: By layer, its directions.
        self.layers: list[list[_Cell]] = []
        for i, layer in enumerate(one_by_one):
            place = f"layers[{i}]" if isinstance(layers, Iterable) else "layers"
            last = i == len(one_by_one) - 1
            self.layers.append(_directions(cast(_Layer, layer), place, last))
        first = self.layers[0][0]
        self.kind, self.units = first.kind, first.units
        self.mode: RnnMode = first.mode
        self.dirs = len(self.layers[0])
        self.direction: Direction = _DIRECTIONS[self.dirs - 1]
        for cells in self.layers:
            if len(cells) != self.dirs:
                given = _Words(_DIRECTIONS[len(cells) - 1])
                allowed = f"{self.direction} as the first layer is"
                raise _refused(cells[0].place, given, allowed)
        for cell in self.cells():
            if cell.mode != self.mode:
                given = _Words(cell.mode)
                raise _refused(cell.place, given, f"{self.mode} as {first.place} is")
            if cell.units != self.units:
                allowed = f"{self.units} as {first.place} has"
                raise _refused(f"{cell.place}.units", cell.units, allowed)

    def cells(self) -> Iterator[_Cell]:
        """In the op's order: by layer, then by direction."""
        return (cell for cells in self.layers for cell in cells)

    @property
    def width(self) -> int:
        """Of what a layer puts out."""
        return self.dirs * self.units

    def params_size(self, input_size: int) -> int:
        inputs = input_size + (len(self.layers) - 1) * self.width
        rest = len(self.layers) * (self.units + 2)
        return self.dirs * len(_GATES[self.kind]) * self.units * (inputs + rest)

    def input_size_of(self, params_size: int) -> int:
        """The size of input with which there are so many parameters."""
        none, a_column = self.params_size(0), self.params_size(1) - self.params_size(0)
        input_size, rest = divmod(params_size - none, a_column)
        if rest or input_size < 1:
            given = _Words(f"of length {params_size}")
            allowed = f"of length {none} + {a_column} * input_size for these layers"
            raise _refused("params", given, allowed)
        return input_size

    def check_inputs(self, input_size: int) -> None:
        """Each layer must read what the one before puts out."""
        for layer, cells in enumerate(self.layers):
            for cell in cells:
                wanted = self.width if layer else input_size
                if cell.input_size != wanted:
                    given = _Words(f"built for inputs of size {cell.input_size}")
                    raise _refused(cell.place, given, f"built for size {wanted}")


def _directions(layer: _Layer, place: str, last: bool) -> list[_Cell]:
    """The cells of a layer: one, or in a Bidirectional two."""
    if _class_of(layer) != "Bidirectional":
        cells = [_Cell(layer, place)]
        sequences = last or layer.return_sequences
    else:
        if layer.merge_mode != "concat":
            raise _refused(f"{place}.merge_mode", layer.merge_mode, ("concat",))
        cells = [
            _Cell(layer.forward_layer, f"{place}.forward_layer"),
            _Cell(layer.backward_layer, f"{place}.backward_layer", backwards=True),
        ]
        forward = cast(_Layer, layer.forward_layer)
        sequences = last or forward.return_sequences
    if not sequences:
        allowed = "True, for a layer follows"
        raise _refused(f"{place}.return_sequences", False, allowed)
    return cells
