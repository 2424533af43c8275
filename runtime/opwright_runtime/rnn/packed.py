"""The packed parameters of the CudnnRNN ops, and the options that go with them.

`CudnnRNNParamsSize` describes the vector: all matrices, layer by layer and direction by
direction, then all biases in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, DTypeLike, NDArray
from typing_extensions import NotRequired, TypedDict

from opwright_runtime.errors import OpError, OpInputError, bad_argument, make

Array: TypeAlias = NDArray[np.floating]
RnnMode: TypeAlias = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
Direction: TypeAlias = Literal["unidirectional", "bidirectional"]

GATES: dict[RnnMode, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
DIRECTIONS: tuple[Direction, Direction] = ("unidirectional", "bidirectional")

_OP = "CudnnRNNV3"


# This TypedDict is closed. Pyright assumes that an open one has unknown keys, which
# would go to an op's `**_unknown`.
class RnnOptions(TypedDict, closed=True):
    """The options of a CudnnRNN op that follow from its params."""

    rnn_mode: RnnMode
    direction: Direction
    num_proj: NotRequired[int]


@dataclass(frozen=True)
class Sizes:
    """The part of the configuration of layers that decides the sizes of their params.

    Attributes:
        rnn_mode: the option of that name.
        direction: the option of that name.
        num_layers: layers of the stack; a bidirectional layer counts once.
        num_units: units of a cell; the size of its states, except a projected one.
        input_size: size of the input of the first layer.
        num_proj: size of an LSTM's projected hidden state; 0 without a projection.
        skip_input: whether the first layer adds its input as it is, and has input
            weights without columns.
    """

    rnn_mode: RnnMode
    direction: Direction
    num_layers: int
    num_units: int
    input_size: int
    num_proj: int = 0
    skip_input: bool = False

    @property
    def gates(self) -> int:
        return GATES[self.rnn_mode]

    @property
    def dirs(self) -> int:
        return 1 + DIRECTIONS.index(self.direction)

    @property
    def hidden(self) -> int:
        """Size of the output of a cell."""
        return self.num_proj or self.num_units

    @property
    def width(self) -> int:
        """Size of the output of a layer."""
        return self.dirs * self.hidden

    def matrices(self) -> Iterator[list[tuple[int, int]]]:
        """The shapes for each cell: input and recurrent weights, and any projection."""
        rows = self.gates * self.num_units
        projection = [(self.num_proj, self.num_units)] if self.num_proj else []
        for layer in range(self.num_layers):
            first = 0 if self.skip_input else self.input_size
            inputs = self.width if layer else first
            yield from [[(rows, inputs), (rows, self.hidden), *projection]] * self.dirs

    @property
    def params_size(self) -> int:
        matrices = sum(math.prod(shape) for cell in self.matrices() for shape in cell)
        cells = self.num_layers * self.dirs
        return matrices + 2 * cells * self.gates * self.num_units

    def pack(self, cells: list[tuple[list[Array], Array]]) -> PackedParams:
        """Packs the matrices and the two biases, [2, gates * units], of each cell."""
        parts = [matrix for matrices, _ in cells for matrix in matrices]
        parts += [biases for _, biases in cells]
        params = np.concatenate([part.ravel() for part in parts])
        return PackedParams(
            params,
            self.rnn_mode,
            self.direction,
            self.num_layers,
            self.num_units,
            self.input_size,
            self.num_proj,
        )

    def unpack(self, params: Array) -> Iterator[tuple[list[Array], Array]]:
        """The inverse of `pack`. The arrays are views of `params`."""
        at = 0

        def take(*shape: int) -> Array:
            nonlocal at
            begin, at = at, at + math.prod(shape)
            return params[begin:at].reshape(shape)

        matrices = [[take(*shape) for shape in cell] for cell in self.matrices()]
        rows = self.gates * self.num_units
        return ((cell, take(2, rows)) for cell in matrices)


@dataclass(frozen=True, eq=False)
class PackedParams:
    """Parameters of layers as one vector, with the options that a CudnnRNN op needs.

    An op takes it as `params`, together with its options::

        cudnn_rnn_v3(x, h, c, packed, lengths, **packed.options)
        CudnnRNNV3.Options(**packed.options, is_training=False)

    Attributes:
        params: [params_size], laid out as CudnnRNNParamsSize describes, in the dtype of
            the layers' weights.
        rnn_mode: the option of that name.
        direction: the option of that name.
        num_layers: layers of the stack; a bidirectional layer counts once.
        num_units: units of a cell; the size of its states, except a projected one.
        input_size: size of the input of the first layer.
        num_proj: the option of that name; 0 without a projection.
    """

    params: Array
    rnn_mode: RnnMode
    direction: Direction
    num_layers: int
    num_units: int
    input_size: int
    num_proj: int = 0

    @property
    def options(self) -> RnnOptions:
        """The options of every CudnnRNN op that these params decide, as keywords.

        `num_proj` is among them if there is a projection, which V1 and V2 of the op
        do not have.
        """
        options: RnnOptions = {"rnn_mode": self.rnn_mode, "direction": self.direction}
        if self.num_proj:
            options["num_proj"] = self.num_proj
        return options

    @property
    def sizes(self) -> Sizes:
        return Sizes(
            self.rnn_mode,
            self.direction,
            self.num_layers,
            self.num_units,
            self.input_size,
            self.num_proj,
        )

    # With these methods, type checkers accept the object as an operand.

    def __dlpack__(self, **how: Any) -> Any:
        return self.params.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.params.__dlpack_device__()

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> Array:
        array: Array = np.asarray(self.params, dtype)
        return array.copy() if copy and array is self.params else array

    def __tf_tensor__(
        self, dtype: tf.DType | None = None, name: str | None = None
    ) -> tf.Tensor:
        return tf.convert_to_tensor(self.params, dtype=dtype, name=name)


class Phrase:
    """Text that an error shows without quotes."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


def input_error(
    argument: str, given: object, allowed: object, remedy: str = ""
) -> OpError:
    """The error of a bad argument; `remedy` says what to do, after a colon."""
    return bad_argument(OpInputError, _OP, argument, given, allowed, remedy=remedy)


def not_built_error(layer: str, remedy: str) -> OpError:
    """The error of a layer that has no weights yet."""
    given, allowed = Phrase("not built"), f"built{remedy}"
    message = f"{_OP}: {layer} must be {allowed}"
    return make(
        OpInputError, _OP, message, argument=layer, given=given, allowed=allowed
    )


def vector(params: ArrayLike | PackedParams) -> Array:
    """The values of `params`.

    Raises:
        OpInputError: they are no numbers, or not of rank 1.
    """
    packed: Array = np.asarray(params)
    if packed.dtype.kind in "OSUMm":
        raise input_error("params", params, "a vector of numbers")
    if packed.ndim != 1:
        raise input_error(
            "params", Phrase(f"of shape {list(packed.shape)}"), "a vector"
        )
    return packed


def check_sizes(params: ArrayLike | PackedParams, length: int, sizes: Sizes) -> None:
    """Checks that params of `length` are those of layers that have `sizes`.

    Raises:
        OpInputError: they were packed from other layers, or have another length.
    """
    if isinstance(params, PackedParams) and params.sizes != sizes:
        of_params, of_layers = vars(params.sizes), vars(sizes)
        differing = [name for name in of_layers if of_params[name] != of_layers[name]]

        def describe(of: dict[str, object]) -> str:
            return ", ".join(f"{name} {of[name]}" for name in differing)

        given = Phrase(f"packed from layers with {describe(of_params)}")
        raise input_error(
            "params", given, f"those of layers with {describe(of_layers)}"
        )
    if length != sizes.params_size:
        given = Phrase(f"of length {length}")
        raise input_error(
            "params", given, f"of length {sizes.params_size} for these layers"
        )
