"""Where the packed parameters lie: by cuDNN itself, by torch's flat buffers, by ours.

torch sets each of its tensors to the address that cuDNN gives for the first gate of the
input weights, the recurrent weights, their biases and the projection; it asserts that
the other gates follow, in the order of cuDNN's linear layers. So its buffers say where
the gates of cuDNN's order lie. That this order means i, f, g, o and r, z, n is not in
them: the comparison of numbers (rnn_numbers.py) says that, since our kernels read the
very buffers that cuDNN does.

python -m gpu.support.layout LIBRNN_C LIBCUDNN compares with a cuDNN without a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from gpu.support.libcudnn import ALGORITHMS, TYPES, Cudnn, NotSupportedError
from gpu.support.rnn_core import MODES, Core, Layers, Layout, Part, Place

SIZES = ((1, 1), (3, 5), (7, 4), (64, 64), (100, 37), (143, 143), (256, 200), (1024, 1))


def stacks(skip_input: bool = False) -> Iterator[Layers]:
    """Every mode, one to four layers, one or both directions, projections."""
    for mode in MODES:
        for layers in (1, 2, 3, 4):
            for bidirectional in (False, True):
                for units, inputs in SIZES:
                    one = Layers(mode, units, inputs, layers, bidirectional)
                    yield one
                    if skip_input:
                        yield Layers(mode, units, units, layers, bidirectional, 0, True)
                    if mode != "lstm":
                        continue
                    for projection in sorted({1, units // 3, units - 1} - {0, units}):
                        yield Layers(
                            mode, units, inputs, layers, bidirectional, projection
                        )


def module(layers: Layers, **to: Any) -> Any:
    """torch's layers, which have no skip_input."""
    import torch

    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(layers.mode, torch.nn.RNN)
    more: dict[str, Any] = {"proj_size": layers.projection} if layers.projection else {}
    if kind is torch.nn.RNN:
        more["nonlinearity"] = layers.mode.removeprefix("rnn_")
    return kind(
        layers.input_size,
        layers.units,
        layers.layers,
        bidirectional=layers.bidirectional,
        **more,
        **to,
    )


def torch_tensors(layers: Layers, of: Any) -> dict[tuple[int, int, bool], Any]:
    """torch's tensors by (pseudo-layer, first linear layer, bias)."""
    names = {"weight_ih": (0, False), "weight_hh": (layers.gates, False)}
    names |= {"bias_ih": (0, True), "bias_hh": (layers.gates, True)}
    if layers.projection:
        names["weight_hr"] = (2 * layers.gates, False)
    return {
        (layer * layers.dirs + direction, *key): getattr(of, f"{name}_l{layer}{suffix}")
        for layer in range(layers.layers)
        for direction, suffix in enumerate(("", "_reverse")[: layers.dirs])
        for name, key in names.items()
    }


def torch_layout(layers: Layers, of: Any) -> Layout:
    """Of a module whose tensors are views into one buffer."""
    places: dict[Part, Place] = {}
    storages, lengths = set(), set()
    for (pseudo, first, bias), tensor in torch_tensors(layers, of).items():
        storage = tensor.untyped_storage()
        storages.add(storage.data_ptr())
        lengths.add(storage.nbytes() // tensor.element_size())
        projection = first == 2 * layers.gates
        rows = layers.projection if projection else layers.units
        columns = 1 if bias else tensor.shape[1]
        for gate in range(1 if projection else layers.gates):
            at = tensor.storage_offset() + gate * rows * columns
            places[Part(pseudo, first + gate, bias)] = Place(at, rows, columns)
    if len(storages) != 1:
        raise ValueError(f"{layers}: torch's weights lie in {len(storages)} buffers")
    return Layout(lengths.pop(), places)


def disagreements(layers: Layers, ours: Layout, theirs: Layout) -> list[str]:
    """Every part that lies elsewhere or has another shape, readable."""
    found = []
    if ours.size != theirs.size:
        found.append(f"{layers}: {ours.size} elements here, {theirs.size} in cuDNN")
    for part in sorted(ours.places.keys() | theirs.places.keys()):
        here, there = ours.places.get(part), theirs.places.get(part)
        if here != there:
            words = [
                f"[{place.rows}, {place.columns}] at {place.at}" if place else "nothing"
                for place in (here, there)
            ]
            name = part.name(layers)
            found.append(f"{layers}: {name}: {words[0]} here, {words[1]} in cuDNN")
    return found


def asked(core: Core, cudnn: Cudnn) -> tuple[int, list[str]]:
    """How many layouts cuDNN gave, and all disagreements.

    Its other algorithms, and bfloat16, count as far as they are supported.
    """
    count, wrong = 0, list[str]()
    for layers in stacks(skip_input=True):
        ours = core.layout(layers)
        for dtype, algorithm in product(TYPES, ALGORITHMS):
            try:
                theirs = cudnn.layout(layers, dtype, algorithm)
            except NotSupportedError:
                if algorithm == ALGORITHMS[0] and dtype != "bfloat16":
                    raise
                continue
            count += 1
            wrong += [
                f"{dtype}, {algorithm}: {words}"
                for words in disagreements(layers, ours, theirs)
            ]
    return count, wrong


def main() -> int:
    core, cudnn = Core(Path(sys.argv[1])), Cudnn(sys.argv[2])
    count, wrong = asked(core, cudnn)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    where = "on a GPU's handle" if cudnn.has_device else "without a GPU"
    print(
        f"cuDNN {cudnn.version}, {where}: {count} layouts, {len(wrong)} disagreements"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
