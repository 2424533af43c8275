"""Recurrent layers: what they are, where their parameters lie, and ours by ctypes.

Needs NumPy and librnn_c.so (tests/gpu/c/rnn_c.h).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# In the order of cuDNN's numbers.
MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
GATE_NAMES = {"rnn_relu": "h", "rnn_tanh": "h", "lstm": "ifgo", "gru": "rzn"}
_P, _L, _I = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32


@dataclass(frozen=True)
class Layers:
    """A stack of layers of one kind."""

    mode: str
    units: int
    input_size: int
    layers: int = 1
    bidirectional: bool = False
    projection: int = 0
    skip_input: bool = False

    @property
    def gates(self) -> int:
        return GATES[self.mode]

    @property
    def dirs(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def hidden(self) -> int:
        return self.projection or self.units

    def __str__(self) -> str:
        layers = f"{self.layers} layer{'s' * (self.layers > 1)}"
        words = [f"{self.mode} {self.input_size}-{self.units}", layers]
        words += ["bidirectional"] * self.bidirectional
        words += [f"projection {self.projection}"] * bool(self.projection)
        words += ["skip_input"] * self.skip_input
        return ", ".join(words)


class Part(NamedTuple):
    """One gate's matrix or bias: `linear` is what cuDNN calls linLayerID.

    Input weights of the gates come first, then the recurrent ones, then the projection.
    """

    pseudo_layer: int
    linear: int
    bias: bool

    def name(self, layers: Layers) -> str:
        gates, letter = GATE_NAMES[layers.mode], "b" if self.bias else ""
        layer, direction = divmod(self.pseudo_layer, layers.dirs)
        where = f"layer {layer}{' reverse' * direction}"
        if self.linear == 2 * len(gates):
            return f"{where}, projection"
        kind = "R" if self.linear >= len(gates) else "W"
        return f"{where}, {letter}{kind}_{gates[self.linear % len(gates)]}"


class Place(NamedTuple):
    """Where a part begins, in elements, and its shape; a bias has one column."""

    at: int
    rows: int
    columns: int


@dataclass(frozen=True)
class Layout:
    """A packed vector: its length, and the parts that have elements."""

    size: int
    places: dict[Part, Place]


class _Config(ctypes.Structure):
    _fields_ = [
        ("cell", _I),
        ("skip_input", _I),
        ("bidirectional", _I),
        ("layers", _L),
        ("units", _L),
        ("input_size", _L),
        ("projection", _L),
        ("time", _L),
        ("batch", _L),
    ]


class _CanonicalParam(ctypes.Structure):
    _fields_ = [("at", _L), ("rows", _L), ("columns", _L)]


class _Forward(ctypes.Structure):
    _fields_ = [
        *((name, _P) for name in ("input", "h", "c", "params")),
        ("params_size", _L),
        *((name, _P) for name in ("output", "output_h", "output_c")),
    ]


class _Backward(ctypes.Structure):
    _fields_ = [
        (name, _P)
        for name in ("output", "output_h", "output_c", "input", "h", "c", "params")
    ]


@dataclass(frozen=True)
class States:
    """A sequence [time, batch, size] and states; `c` counts for LSTMs only."""

    sequence: Floats
    h: Floats
    c: Floats


def _pointer(array: Floats) -> int:
    if array.dtype != np.float32 or not array.flags.c_contiguous:
        raise ValueError(f"must be dense float32, is {array.dtype}, {array.strides}")
    return array.ctypes.data


class Core:
    """librnn_c.so; bad arguments are a ValueError in its words."""

    def __init__(self, path: Path) -> None:
        self.native = ctypes.CDLL(str(path))
        self.native.rnn_c_error.restype = ctypes.c_char_p
        self.native.rnn_c_params_size.restype = _L
        self.native.rnn_c_params_size.argtypes = [_P]
        self.native.rnn_c_canonical_params.restype = _L
        self.native.rnn_c_canonical_params.argtypes = [_P, _I, _L, _P]
        self.native.rnn_c_run.restype = _I
        self.native.rnn_c_run.argtypes = [_P, _P, _P]

    def _checked(self, returned: int) -> int:
        if returned < 0:
            raise ValueError(self.native.rnn_c_error().decode())
        return returned

    @staticmethod
    def _config(layers: Layers, time: int = 0, batch: int = 0) -> _Config:
        return _Config(
            MODES.index(layers.mode),
            layers.skip_input,
            layers.bidirectional,
            layers.layers,
            layers.units,
            layers.input_size,
            layers.projection,
            time,
            batch,
        )

    def params_size(self, layers: Layers) -> int:
        config = ctypes.byref(self._config(layers))
        return self._checked(self.native.rnn_c_params_size(config))

    def layout(self, layers: Layers) -> Layout:
        """What the CudnnRNN ops take for the packed vector's."""
        config, places = ctypes.byref(self._config(layers)), {}
        for bias in (False, True):
            count = self._checked(
                self.native.rnn_c_canonical_params(config, bias, 0, None)
            )
            params = (_CanonicalParam * count)()
            self.native.rnn_c_canonical_params(config, bias, count, params)
            stacked = layers.layers * layers.dirs
            for i, param in enumerate(params):
                part = Part(*divmod(i, count // stacked), bias)
                columns = 1 if bias else param.columns
                if columns:
                    places[part] = Place(param.at, param.rows, columns)
        return Layout(self.params_size(layers), places)

    def run(
        self,
        layers: Layers,
        given: States,
        params: Floats,
        gradients: States | None = None,
    ) -> dict[str, Floats]:
        """Outputs by name; given gradients of them, also those of the inputs.

        `given` has the input and initial states, `gradients` those of output and final
        states.
        """
        time, batch, _ = given.sequence.shape
        stacked = layers.layers * layers.dirs
        shapes: dict[str, tuple[int, ...]] = {
            "output": (time, batch, layers.dirs * layers.hidden),
            "h": (stacked, batch, layers.hidden),
            "c": (stacked, batch, layers.units),
        }
        wanted: dict[str, tuple[int, ...]] = {
            "input": (time, batch, layers.input_size),
            "params": params.shape,
            **{name: shapes[name] for name in ("h", "c")},
        }
        for states, sequence in (
            (given, wanted["input"]),
            (gradients, shapes["output"]),
        ):
            if states is None:
                continue
            found = (states.sequence.shape, states.h.shape, states.c.shape)
            if found != (sequence, shapes["h"], shapes["c"]):
                raise ValueError(f"{layers}: {found} are no shapes of a run")
        made = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        back = {name: np.zeros(shape, np.float32) for name, shape in wanted.items()}
        forward = _Forward(
            *map(_pointer, (given.sequence, given.h, given.c, params)),
            len(params),
            *map(_pointer, made.values()),
        )
        backward: Any = None
        if gradients:
            backward = _Backward(
                *map(_pointer, (gradients.sequence, gradients.h, gradients.c)),
                *(_pointer(back[name]) for name in ("input", "h", "c", "params")),
            )
        config = self._config(layers, time, batch)
        self._checked(
            self.native.rnn_c_run(
                ctypes.byref(config),
                ctypes.byref(forward),
                backward and ctypes.byref(backward),
            )
        )
        if gradients:
            made.update({f"d {name}": values for name, values in back.items()})
        if layers.mode != "lstm":
            made = {name: v for name, v in made.items() if name not in ("c", "d c")}
        return made
