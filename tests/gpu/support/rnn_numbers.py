"""Numbers of the CPU kernels against those of torch's layers: on a GPU, cuDNN's.

Both run in float32 from the same packed vector: on a GPU the very buffer that cuDNN
reads is what our kernels get. Both are held against torch's layers in float64 on the
CPU, so that a disagreement says who is off.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpu.support.layout import disagreements, module, torch_layout, torch_tensors
from gpu.support.rnn_core import MODES, Core, Floats, Layers, Layout, Part, States

# An error is the largest one, over the largest value. Rounding errors of float32 are at
# most 2^-24 each and add up like a random walk: those of a sum of n terms to about
# 2^-24 * sqrt(n), and a value has passed several such sums, and layers. The factor is
# for activations that are less exact than the CPU's: both our kernels and torch's stay
# below a tenth of the limit there. TF32 rounds to 2^-11: 6 to 60 times the limit.
ROUNDING, FACTOR = 2.0**-24, 16.0


@dataclass(frozen=True)
class Draw:
    layers: Layers
    time: int
    batch: int
    seed: int = 0

    @property
    def limit(self) -> float:
        """Sums run over inputs and units; gradients of parameters over all steps."""
        terms = max(self.layers.input_size, self.layers.dirs * self.layers.units)
        terms = max(terms, self.time * self.batch)
        return ROUNDING * FACTOR * math.sqrt(terms * self.layers.layers)

    def __str__(self) -> str:
        return f"{self.layers}, {self.time} steps of {self.batch}"


def draws(count: int, seed: int = 0, largest: int = 300) -> Iterator[Draw]:
    """Random stacks and sizes, each mode in turn, every second one bidirectional.

    A relu's slope jumps at 0, where a rounding error makes any gradient another one:
    its layers are small, so that no sum comes that near.
    """
    random = np.random.default_rng(seed)
    for i in range(count):
        mode = MODES[i % len(MODES)]
        small = 24 if mode == "rnn_relu" else largest
        units = int(random.integers(1, small))
        projection = 0
        if mode == "lstm" and units > 1 and i // len(MODES) % 2:
            projection = int(random.integers(1, units))
        layers = Layers(
            mode,
            units,
            int(random.integers(1, small)),
            layers=1 + i // len(MODES) % 3,
            bidirectional=bool((i // len(MODES) + i) % 2),
            projection=projection,
        )
        steps = int(random.integers(1, 8 if mode == "rnn_relu" else 40))
        yield Draw(layers, steps, int(random.integers(1, 24)), i)


def flattened(layers: Layers, of: Any, core: Core) -> Any:
    """The module; on the CPU its tensors are made views into one buffer, by our layout.

    On a GPU torch has done that, by cuDNN's.
    """
    if of.weight_hh_l0.is_cuda:
        return of
    tensors = torch_tensors(layers, of)
    layout = core.layout(layers)
    buffer = torch.zeros(layout.size, dtype=of.weight_hh_l0.dtype)
    for (pseudo, first, bias), tensor in tensors.items():
        at = layout.places[Part(pseudo, first, bias)].at
        view = buffer[at : at + tensor.numel()].view(tensor.shape)
        view.copy_(tensor.data)
        tensor.data = view
    return of


def packed(of: Any, layers: Layers) -> Floats:
    """The one buffer of a module's tensors, all of it."""
    tensor = next(iter(torch_tensors(layers, of).values())).data
    whole = tensor.new_empty(0).set_(tensor.untyped_storage())
    return np.array(whole.cpu().numpy(), np.float32)


def torch_run(
    layers: Layers, of: Any, given: States, gradients: States, places: Layout
) -> dict[str, NDArray[Any]]:
    """What Core.run returns, from torch; `places`: the module's layout."""
    weight = of.weight_hh_l0

    def put(values: Floats) -> torch.Tensor:
        return torch.tensor(values, dtype=weight.dtype, device=weight.device)

    inputs = [put(a).requires_grad_() for a in (given.sequence, given.h, given.c)]
    x, h, c = inputs
    lstm = layers.mode == "lstm"
    of.zero_grad(set_to_none=True)
    y, states = of(x, (h, c) if lstm else h)
    outputs = [y, *states] if lstm else [y, states]
    back = [put(a) for a in (gradients.sequence, gradients.h, gradients.c)]
    torch.autograd.backward(outputs, back[: len(outputs)])
    dparams = np.zeros(places.size, np.float64)
    for (pseudo, first, bias), tensor in torch_tensors(layers, of).items():
        at = places.places[Part(pseudo, first, bias)].at
        dparams[at : at + tensor.numel()] = tensor.grad.cpu().numpy().ravel()
    names = ("output", "h", "c")[: len(outputs)]
    found = dict(zip(names, outputs, strict=True))
    slopes = {"d input": x, "d h": h} | ({"d c": c} if lstm else {})
    found |= {name: tensor.grad for name, tensor in slopes.items()}
    arrays = {name: t.detach().cpu().numpy() for name, t in found.items()}
    return {**arrays, "d params": dparams}


def error(found: NDArray[Any], exact: NDArray[Any]) -> float:
    """The largest error over the largest value; infinite for what is no number."""
    if found.shape != exact.shape or not np.isfinite(found).all():
        return float("inf")
    scale = np.abs(exact).max(initial=0.0) or 1.0
    return float(np.abs(found - exact).max(initial=0.0) / scale)


@dataclass(frozen=True)
class Compared:
    """Errors by name of what came out, of ours and of theirs; `wrong` readable."""

    ours: dict[str, float]
    theirs: dict[str, float]
    wrong: list[str]


def compare(core: Core, draw: Draw, device: str) -> Compared:
    """One draw on a device; where that is a GPU, theirs is cuDNN."""
    torch.manual_seed(draw.seed)
    layers = draw.layers
    of = flattened(layers, module(layers).to(device), core)
    places = torch_layout(layers, of)
    random = np.random.default_rng(draw.seed)
    stacked = layers.layers * layers.dirs

    def states(width: int) -> States:
        sizes = (draw.time, draw.batch, width), *(
            (stacked, draw.batch, size) for size in (layers.hidden, layers.units)
        )
        return States(*(random.standard_normal(s).astype(np.float32) for s in sizes))

    given, gradients = (
        states(layers.input_size),
        states(layers.dirs * layers.hidden),
    )
    params = packed(of, layers)
    wrong = disagreements(layers, core.layout(layers), places)
    exact_module = copy.deepcopy(of).double().cpu()
    exact = torch_run(layers, exact_module, given, gradients, places)
    theirs = torch_run(layers, of, given, gradients, places)
    if len(params) != core.params_size(layers):
        return Compared({}, {}, wrong)
    ours = core.run(layers, given, params, gradients)
    inference = core.run(layers, given, params)
    ours |= {f"{name} in inference": values for name, values in inference.items()}
    exact |= {f"{name} in inference": exact[name] for name in inference}
    errors = {
        side: {name: error(found, exact[name]) for name, found in values.items()}
        for side, values in (("ours", ours), ("theirs", theirs))
    }
    for side, of_side in errors.items():
        wrong += [
            f"{draw}: {side}, {name}: off by {off:.2g}, the limit is {draw.limit:.2g}"
            for name, off in of_side.items()
            if not off <= draw.limit
        ]
    return Compared(errors["ours"], errors["theirs"], wrong)
