"""CudnnRNN in NumPy and float64, forward and backward, written from the formulas.

Nothing here knows the kernels: parameters are named matrices, one step is one line of
the formulas, a sequence is a loop over its own steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


@dataclass(frozen=True)
class Shape:
    """What the layers are, and what they run over."""

    mode: str
    layers: int
    units: int
    input_size: int
    time: int
    batch: int
    bidirectional: bool = False
    skip: bool = False
    projection: int = 0

    @property
    def dirs(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def hidden(self) -> int:
        return self.projection or self.units

    def inputs(self, layer: int) -> int:
        return self.dirs * self.hidden if layer else self.input_size


def pieces(shape: Shape) -> list[tuple[int, str, tuple[int, ...]]]:
    """The packed vector in order: (layer and direction, name, shape)."""
    gates, units = GATES[shape.mode], shape.units
    weights: list[tuple[int, str, tuple[int, ...]]] = []
    biases: list[tuple[int, str, tuple[int, ...]]] = []
    for pseudo in range(shape.layers * shape.dirs):
        layer = pseudo // shape.dirs
        if layer or not shape.skip:
            weights.append((pseudo, "W", (gates, units, shape.inputs(layer))))
        weights.append((pseudo, "R", (gates, units, shape.hidden)))
        if shape.projection:
            weights.append((pseudo, "P", (shape.projection, units)))
        biases.append((pseudo, "bW", (gates, units)))
        biases.append((pseudo, "bR", (gates, units)))
    return weights + biases


def params_size(shape: Shape) -> int:
    return sum(int(np.prod(size)) for _, _, size in pieces(shape))


def unpack(shape: Shape, params: Array) -> list[dict[str, Array]]:
    """One dictionary of matrices for each layer and direction."""
    cells: list[dict[str, Array]] = [{} for _ in range(shape.layers * shape.dirs)]
    at = 0
    for pseudo, name, size in pieces(shape):
        count = int(np.prod(size))
        cells[pseudo][name] = params[at : at + count].reshape(size)
        at += count
    return cells


def pack(shape: Shape, cells: list[dict[str, Array]]) -> Array:
    return np.concatenate([cells[i][name].ravel() for i, name, _ in pieces(shape)])


def sigmoid(x: Array) -> Array:
    return 0.5 * (np.tanh(0.5 * x) + 1.0)


def step(
    mode: str, w: dict[str, Array], x: Array, h: Array, c: Array
) -> dict[str, Any]:
    """One step of one cell for one sequence, with all that its gradient needs."""
    gates, _ = w["bW"].shape
    of_input = (w["W"] @ x if "W" in w else np.tile(x, (gates, 1))) + w["bW"]
    of_hidden = w["R"] @ h + w["bR"]
    s: dict[str, Any] = {"x": x, "h": h, "c": c, "of_hidden": of_hidden}
    if mode == "lstm":
        i, f, g, o = of_input + of_hidden
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        c_new = f * c + i * g
        full = o * np.tanh(c_new)
        h_new = w["P"] @ full if "P" in w else full
        s.update(i=i, f=f, g=g, o=o, full=full, c_new=c_new, h_new=h_new)
    elif mode == "gru":
        r = sigmoid(of_input[0] + of_hidden[0])
        z = sigmoid(of_input[1] + of_hidden[1])
        n = np.tanh(of_input[2] + r * of_hidden[2])
        s.update(r=r, z=z, n=n, h_new=(1 - z) * n + z * h, c_new=c)
    else:
        total = of_input[0] + of_hidden[0]
        h_new = np.tanh(total) if mode == "rnn_tanh" else np.maximum(total, 0)
        s.update(h_new=h_new, c_new=c)
    return s


def step_back(
    mode: str,
    w: dict[str, Array],
    s: dict[str, Any],
    dh: Array,
    dc: Array,
    dw: dict[str, Array],
) -> tuple[Array, Array, Array]:
    """Gradients of a step's x, h and c; those of its weights are added to dw."""
    h = s["h"]
    direct = np.zeros_like(h)
    if mode == "lstm":
        if "P" in w:
            dw["P"] += np.outer(dh, s["full"])
            dh = w["P"].T @ dh
        i, f, g, o = s["i"], s["f"], s["g"], s["o"]
        tanh_c = np.tanh(s["c_new"])
        dc = dc + dh * o * (1 - tanh_c**2)
        d_input = np.stack(
            [
                dc * g * i * (1 - i),
                dc * s["c"] * f * (1 - f),
                dc * i * (1 - g**2),
                dh * tanh_c * o * (1 - o),
            ]
        )
        d_hidden = d_input
        dc = dc * f
    elif mode == "gru":
        r, z, n = s["r"], s["z"], s["n"]
        dn = dh * (1 - z) * (1 - n**2)
        dz = dh * (h - n) * z * (1 - z)
        dr = dn * s["of_hidden"][2] * r * (1 - r)
        d_input = np.stack([dr, dz, dn])
        d_hidden = np.stack([dr, dz, dn * r])
        direct = dh * z
    else:
        slope = 1 - s["h_new"] ** 2 if mode == "rnn_tanh" else (s["h_new"] > 0) * 1.0
        d_input = d_hidden = (dh * slope)[None]
    dw["bW"] += d_input
    dw["bR"] += d_hidden
    dw["R"] += np.einsum("gu,k->guk", d_hidden, h)
    dh_before = direct + np.einsum("gu,guk->k", d_hidden, w["R"])
    if "W" in w:
        dw["W"] += np.einsum("gu,k->guk", d_input, s["x"])
        dx = np.einsum("gu,guk->k", d_input, w["W"])
    else:
        dx = d_input.sum(axis=0)
    return dx, dh_before, dc


@dataclass
class Run:
    """A forward pass; `back` is its gradient. Everything is time-major."""

    shape: Shape
    cells: list[dict[str, Array]]
    lengths: list[int]
    y: Array
    h: Array
    c: Array
    # By (layer and direction, sequence): the steps in order of processing.
    steps: dict[tuple[int, int], list[tuple[int, dict[str, Any]]]] = field(repr=False)

    def back(
        self, dy: Array, dh: Array, dc: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Gradients of input, input_h, input_c and params."""
        shape = self.shape
        dcells = [{k: np.zeros_like(v) for k, v in cell.items()} for cell in self.cells]
        dh0, dc0 = dh.copy(), dc.copy()
        for layer in reversed(range(shape.layers)):
            dx = np.zeros((shape.time, shape.batch, shape.inputs(layer)))
            for d in range(shape.dirs):
                pseudo = layer * shape.dirs + d
                columns = slice(d * shape.hidden, (d + 1) * shape.hidden)
                for b in range(shape.batch):
                    for t, s in reversed(self.steps[pseudo, b]):
                        grad, dh0[pseudo, b], dc0[pseudo, b] = step_back(
                            shape.mode,
                            self.cells[pseudo],
                            s,
                            dy[t, b, columns] + dh0[pseudo, b],
                            dc0[pseudo, b],
                            dcells[pseudo],
                        )
                        dx[t, b] += grad
            dy = dx
        return dy, dh0, dc0, pack(shape, dcells)


def forward(
    shape: Shape,
    x: Array,
    h0: Array,
    c0: Array,
    params: Array,
    lengths: list[int] | None = None,
    stored: Callable[[Array], Array] = np.asarray,
) -> Run:
    """x [time, batch, input]; h0 and c0 [layers * dirs, batch, size].

    `stored` rounds what one layer hands to the next to the type that holds it.
    """
    lengths = [shape.time] * shape.batch if lengths is None else lengths
    cells = unpack(shape, params)
    h, c = h0.copy(), c0.copy()
    steps: dict[tuple[int, int], list[tuple[int, dict[str, Any]]]] = {}
    for layer in range(shape.layers):
        y = np.zeros((shape.time, shape.batch, shape.dirs * shape.hidden))
        for d in range(shape.dirs):
            pseudo = layer * shape.dirs + d
            for b, length in enumerate(lengths):
                done = steps[pseudo, b] = []
                for t in range(length) if d == 0 else reversed(range(length)):
                    before = h[pseudo, b].copy(), c[pseudo, b].copy()
                    s = step(shape.mode, cells[pseudo], x[t, b], *before)
                    h[pseudo, b], c[pseudo, b] = s["h_new"], s["c_new"]
                    y[t, b, d * shape.hidden : (d + 1) * shape.hidden] = s["h_new"]
                    done.append((t, s))
        x = stored(y)
    return Run(shape, cells, lengths, y, h, c, steps)
