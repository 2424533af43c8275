"""What a recurrent node computes, read from its attrs and the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import tensorflow as tf

from opwright_runtime.convert.errors import refusal
from opwright_runtime.rnn.packed import DIRECTIONS, GATES, Sizes

FORWARD: Final = ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")
BACKWARD: Final = ("CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3")
KERAS: Final = "OpwrightKerasRNN"
PARAMS: Final = (
    "CudnnRNNCanonicalToParams",
    "CudnnRNNCanonicalToParamsV2",
    "CudnnRNNParamsSize",
    "CudnnRNNParamsToCanonical",
    "CudnnRNNParamsToCanonicalV2",
)
OPS: Final = frozenset((*FORWARD, *BACKWARD, KERAS, *PARAMS))
"""Every op that `to_plain` replaces."""

# A graph has one loop for each layer and direction, so that their number is bounded.
_MAX_CELLS = 1024

_STATES = " (with time_major=False, states are [batch, layers * directions, units])"

Shape: TypeAlias = "tuple[int | None, ...] | None"
"""A shape, with None for a size or rank that is not known."""


@dataclass(frozen=True)
class Layers:
    """A stack of layers, and how a node calls it.

    Attributes:
        op: the op of the node.
        sizes: the configuration of the layers.
        dtype: of sequences, states and parameters.
        time_major: whether the first dimension of sequences is time.
        has_lengths: whether the op takes `sequence_lengths`.
        single: whether to compute float64 in float32.
    """

    op: str
    sizes: Sizes
    dtype: tf.DType
    time_major: bool = True
    has_lengths: bool = False
    single: bool = False

    @property
    def wide(self) -> tf.DType:
        """The dtype to compute in."""
        double = self.dtype == tf.float64 and not self.single
        return tf.float64 if double else tf.float32

    @property
    def lstm(self) -> bool:
        return self.sizes.rnn_mode == "lstm"

    @property
    def cells(self) -> int:
        return self.sizes.num_layers * self.sizes.dirs

    def __str__(self) -> str:
        sizes = self.sizes
        text = f"{sizes.rnn_mode}, {sizes.num_layers} x {sizes.num_units} units"
        if sizes.dirs == 2:
            text += ", bidirectional"
        if sizes.num_proj:
            text += f", projected to {sizes.num_proj}"
        return text


def read(
    node: Any,
    defaults: Mapping[str, Any],
    shapes: Sequence[Shape],
) -> Layers:
    """Reads a forward, backward or Keras node.

    Args:
        node: the NodeDef.
        defaults: the default AttrValues of its op.
        shapes: of its inputs.

    Raises:
        ConvertError: an attr is bad, a size is not known, or the node applies dropout.
    """
    reader = _Reader(node, defaults, shapes)
    if node.op == KERAS:
        return reader.keras_layers()
    reader.check_dropout()
    return reader.layers()


class _Reader:
    def __init__(
        self, node: Any, defaults: Mapping[str, Any], shapes: Sequence[Shape]
    ) -> None:
        self._node = node
        self._defaults = defaults
        self._shapes = shapes

    def refuse(self, why: str, remedy: str) -> Exception:
        return refusal(self._node.op, self._node.name, why, remedy)

    def layers(self) -> Layers:
        time_major = bool(self._attr("time_major", "b", True))
        mode = self._choice("rnn_mode", tuple(GATES))
        direction = self._choice("direction", DIRECTIONS)
        states = self._shape(1, "input_h", 3)
        inputs = self._shape(0, "input", 3)
        cells = self._size(
            states[0 if time_major else 1],
            "input_h",
            "layers",
            "" if time_major else _STATES,
        )
        hidden = self._size(states[2], "input_h", "units")
        input_size = self._size(inputs[2], "input", "inputs")
        num_proj = int(self._attr("num_proj", "i", 0))
        units = hidden
        if num_proj:
            units = self._size(self._shape(2, "input_c", 3)[2], "input_c", "units")
            self._check_projection(mode, num_proj, hidden, units)
        dirs = 1 + DIRECTIONS.index(direction)
        if cells % dirs or cells > _MAX_CELLS:
            raise self.refuse(
                f"input_h has {cells} layers times directions; allowed are multiples "
                f"of {dirs} up to {_MAX_CELLS}{'' if time_major else _STATES}",
                "correct the model",
            )
        skip = self._choice("input_mode", ("linear_input", "skip_input", "auto_select"))
        if skip == "skip_input" and input_size != units:
            raise self.refuse(
                f"skip_input needs inputs of num_units = {units}, "
                f"they have {input_size}",
                "correct the model",
            )
        skips = skip == "skip_input" or (skip == "auto_select" and input_size == units)
        sizes = Sizes(
            mode, direction, cells // dirs, units, input_size, num_proj, skips
        )
        self._check_params(sizes)
        return Layers(
            self._node.op,
            sizes,
            tf.as_dtype(self._attr("T", "type", tf.float32.as_datatype_enum)),
            time_major,
            has_lengths=self._node.op in (FORWARD[2], BACKWARD[2]),
        )

    def keras_layers(self) -> Layers:
        mode = self._choice("rnn_mode", tuple(GATES))
        units = self._size(
            self._shape(4, "recurrent_kernel", 2)[0], "recurrent_kernel", "units"
        )
        inputs = self._size(self._shape(3, "kernel", 2)[0], "kernel", "inputs")
        biases = self._shape(5, "bias", 2)[0]
        if biases not in (0, 1, 2):
            raise self.refuse(
                f"bias has {biases} rows; allowed are 0, 1 and 2", "correct the model"
            )
        dtype = tf.as_dtype(self._attr("T", "type", tf.float32.as_datatype_enum))
        sizes = Sizes(mode, "unidirectional", 1, units, inputs)
        return Layers(KERAS, sizes, dtype, time_major=False, has_lengths=True)

    def check_dropout(self) -> None:
        dropout = float(self._attr("dropout", "f", 0.0))
        training = self._node.op in BACKWARD or self._attr("is_training", "b", True)
        if dropout and training:
            raise self.refuse(
                f"it applies dropout of {dropout:g}, because is_training is true",
                'pass dropout="off" (--dropout off) to convert it as for inference',
            )

    def _check_params(self, sizes: Sizes) -> None:
        """A longer vector is allowed, as on a GPU: the rest is not read."""
        length = self._shape(3, "params", 1)[0]
        if length is not None and length < sizes.params_size:
            raise self.refuse(
                f"params has {length} elements; these layers have {sizes.params_size}",
                "correct the model",
            )

    def _check_projection(
        self, mode: str, num_proj: int, hidden: int, units: int
    ) -> None:
        if mode != "lstm" or not 0 < num_proj == hidden <= units:
            raise self.refuse(
                f"num_proj is {num_proj} for {mode} with states of {hidden} and "
                f"{units} units; it must be the size of input_h of an lstm",
                "correct the model",
            )

    def _attr(self, name: str, field: str, missing: Any) -> Any:
        value = self._node.attr.get(name) or self._defaults.get(name)
        if value is None:
            return missing
        if value.WhichOneof("value") != field:
            raise self.refuse(f"attr {name} is no {field}", "correct the model")
        return getattr(value, field)

    def _choice(self, name: str, allowed: Sequence[Any]) -> Any:
        given = self._attr(name, "s", allowed[0].encode())
        text = given.decode("utf-8", "replace")
        if text not in allowed:
            raise self.refuse(
                f"attr {name} is {text!r}; allowed are {', '.join(allowed)}",
                "correct the model",
            )
        return text

    def _shape(self, index: int, name: str, rank: int) -> tuple[int | None, ...]:
        shape = self._shapes[index] if index < len(self._shapes) else None
        if shape is None:
            return (None,) * rank
        if len(shape) != rank:
            raise self.refuse(
                f"{name} has the shape {list(shape)}; it must be of rank {rank}",
                "correct the model",
            )
        return shape

    def _size(self, size: int | None, name: str, what: str, hint: str = "") -> int:
        if not size:
            known = "not known before the model runs" if size is None else "0"
            raise self.refuse(
                f"the number of {what} in {name} is {known}{hint}",
                "give the function's inputs a shape with this size, and save it again",
            )
        return size
