"""The comparisons of gpu_check.py with cuDNN, here with TensorFlow's ops and torch."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu.support.building import BUILD, build
from gpu.support.rnn_core import Core, Layers, Layout, Part, Place, States

torch = pytest.importorskip("torch")

from gpu.support.layout import (
    asked,
    disagreements,
    module,
    stacks,
    torch_layout,
    torch_tensors,
)
from gpu.support.libcudnn import Cudnn, CudnnError
from gpu.support.rnn_numbers import Draw, compare, draws, error, flattened, packed


@pytest.fixture(scope="module")
def core() -> Core:
    build("rnn_c")
    return Core(BUILD / "librnn_c.so")


def options(layers: Layers) -> dict[str, Any]:
    return {
        "rnn_mode": layers.mode,
        "direction": "bidirectional" if layers.bidirectional else "unidirectional",
        "input_mode": "skip_input" if layers.skip_input else "linear_input",
        "num_proj": layers.projection,
    }


def test_core_layout_matches_params_to_canonical(core: Core) -> None:
    """The C interface gives each element the same place as TensorFlow's ops."""
    import tensorflow as tf

    from opwright.nn import cudnn_rnn_params_size, cudnn_rnn_params_to_canonical_v2

    # float64 counts as far as there are elements.
    chosen = [s for s in stacks(skip_input=True) if s.units <= 64][::13]
    assert len(chosen) > 20
    for layers in chosen:
        sizes = (layers.layers, layers.units, layers.input_size)
        layout, stacked = core.layout(layers), layers.layers * layers.dirs
        of_ops = cudnn_rnn_params_size(*sizes, tf.float64, tf.int64, **options(layers))
        assert of_ops.numpy().tolist() == [layout.size], layers
        biases = stacked * 2 * layers.gates
        weights = biases + stacked * bool(layers.projection)
        parts = cudnn_rnn_params_to_canonical_v2(
            *sizes,
            tf.range(layout.size, dtype=tf.float64),
            weights,
            biases,
            **options(layers),
        )
        places: dict[Part, Place] = {}
        for bias, tensors in enumerate((parts.weights, parts.biases)):
            for i, tensor in enumerate(tensors):
                values = tensor.numpy()
                if not values.size:
                    continue
                part = Part(*divmod(i, len(tensors) // stacked), bool(bias))
                rows, columns = (*values.shape, 1)[:2]
                places[part] = Place(int(values.flat[0]), rows, columns)
                assert np.array_equal(
                    values.ravel(), values.flat[0] + np.arange(values.size)
                )
        assert layout.places == places, layers


def test_compare_with_torch_finds_no_difference(core: Core) -> None:
    """The comparison that runs with cuDNN, with torch on the CPU."""
    for draw in draws(12, largest=60):
        compared = compare(core, draw, "cpu")
        assert not compared.wrong, "\n".join(compared.wrong)
        names = {"output", "h", "d input", "d h", "d params", "output in inference"}
        assert names <= compared.ours.keys()
        assert compared.theirs.keys() < compared.ours.keys()
        assert ("d c" in compared.ours) == (draw.layers.mode == "lstm")


@pytest.mark.parametrize("mode", ["rnn_tanh", "lstm", "gru"])
def test_draw_limit_is_below_the_error_of_tf32(core: Core, mode: str) -> None:
    """Params rounded to TF32 give errors far beyond the limit."""
    draw = Draw(Layers(mode, 200, 200, 2, True), 20, 16)
    of = flattened(draw.layers, module(draw.layers), core)
    random = np.random.default_rng(0)
    given = States(
        *(random.standard_normal((n, 16, 200)).astype(np.float32) for n in (20, 4, 4))
    )
    params = packed(of, draw.layers)
    rounded = (params.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    exact = core.run(draw.layers, given, params)
    off = core.run(draw.layers, given, rounded)
    assert error(off["output"], exact["output"]) > 5 * draw.limit


class OtherGates(Core):
    """A core that swaps the gates r and z, as Keras orders them."""

    def run(self, layers: Layers, given: States, params: Any, *rest: Any) -> Any:
        size = layers.units * layers.input_size
        mixed = np.concatenate(
            [params[size : 2 * size], params[:size], params[2 * size :]]
        )
        return super().run(layers, given, mixed, *rest)


def test_compare_of_swapped_gates_reports_params(core: Core) -> None:
    """The report has the wrong values, and those of both sides."""
    draw = Draw(Layers("gru", 11, 5), 6, 4)
    other = OtherGates(BUILD / "librnn_c.so")
    wrong = compare(other, draw, "cpu").wrong
    assert wrong and all(": ours, " in words for words in wrong)
    assert any("d params" in words for words in wrong)


def flat(
    layers: Layers, of: Any, order: list[tuple[int, int, bool]], gap: int = 0
) -> None:
    """Lays a module's tensors into one buffer, in an order, some elements apart."""
    tensors = torch_tensors(layers, of)
    size = sum(t.numel() + gap for t in tensors.values())
    buffer, at = torch.zeros(size), 0
    for key in order:
        tensor = tensors[key]
        tensor.data = buffer[at : at + tensor.numel()].view(tensor.shape)
        at += tensor.numel() + gap


def in_order(keys: Any) -> list[tuple[int, int, bool]]:
    """Weights by pseudo-layer and linear layer, and then biases."""
    return sorted(keys, key=lambda key: (key[2], key[0], key[1]))


@pytest.mark.parametrize(
    "layers",
    [
        Layers("lstm", 5, 3, 2, True, 2),
        Layers("gru", 4, 7, 3),
        Layers("rnn_relu", 3, 2, 1, True),
    ],
    ids=str,
)
def test_disagreements_name_each_mistake_in_a_buffer(
    core: Core, layers: Layers
) -> None:
    """A buffer in the right order agrees; each mistake is reported with its place."""
    of = module(layers)
    keys = in_order(torch_tensors(layers, of))
    ours = core.layout(layers)

    def disagreements_after(
        order: list[tuple[int, int, bool]], gap: int = 0
    ) -> list[str]:
        flat(layers, of, order, gap)
        return disagreements(layers, ours, torch_layout(layers, of))

    assert disagreements_after(keys) == []
    recurrent_first = [keys[1], keys[0], *keys[2:]]
    found = disagreements_after(recurrent_first)
    names = [Part(0, i, False).name(layers) for i in range(2 * layers.gates)]
    assert [words.split(": ")[1] for words in found] == names
    assert all(" here, " in words and "in cuDNN" in words for words in found)
    biases = [key for key in keys if key[2]]
    weights = [key for key in keys if not key[2]]
    swapped = [*weights, biases[1], biases[0], *biases[2:]]
    assert all(", bW_" in w or ", bR_" in w for w in disagreements_after(swapped))
    assert len(disagreements_after(swapped)) == 2 * layers.gates
    padded = disagreements_after(keys, gap=1)
    assert f"{ours.size} elements here, {ours.size + len(keys)} in cuDNN" in padded[0]
    # All but the first matrix lie elsewhere.
    assert len(padded) == 1 + len(ours.places) - layers.gates
    if layers.projection:
        first = [keys[2], *keys[:2], *keys[3:]]
        assert any("projection" in words for words in disagreements_after(first))
    # A tensor outside the buffer is refused.
    of.bias_hh_l0.data = of.bias_hh_l0.data.clone()
    with pytest.raises(ValueError, match="2 buffers"):
        torch_layout(layers, of)


def test_disagreements_name_a_missing_part() -> None:
    layers = Layers("lstm", 2, 2)
    part = Part(0, 5, True)
    ours, theirs = Layout(4, {part: Place(2, 2, 1)}), Layout(4, {})
    (words,) = disagreements(layers, ours, theirs)
    assert words.endswith("layer 0, bR_f: [2, 1] at 2 here, nothing in cuDNN")


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"projection": 9}, "num_proj: must lie between 0 and num_units = 4, is 9"),
        ({"mode": "gru", "projection": 2}, "num_proj: only an lstm has a projection"),
        ({"layers": 0}, "num_layers: must be positive, is 0"),
        ({"skip_input": True}, "input_mode: skip_input needs input_size = num_units"),
        ({"units": 1 << 60}, "num_units: the number of parameters"),
    ],
)
def test_core_bad_layers_are_refused(
    core: Core, changes: dict[str, Any], words: str
) -> None:
    layers = replace(Layers("lstm", 4, 3), **changes)
    for ask in (core.params_size, core.layout):
        with pytest.raises(ValueError, match=words):
            ask(layers)


def test_core_run_with_bad_shapes_is_refused(core: Core) -> None:
    layers = Layers("lstm", 4, 3)
    zeros = [np.zeros(size, np.float32) for size in ((2, 5, 3), (1, 5, 4), (1, 5, 4))]
    with pytest.raises(ValueError, match="params_size: must be 144, is 143"):
        core.run(layers, States(*zeros), np.zeros(143, np.float32))
    with pytest.raises(ValueError, match="are no shapes of a run"):
        core.run(
            layers, States(zeros[1], zeros[2], zeros[0]), np.zeros(144, np.float32)
        )
    empty = [np.zeros(size, np.float32) for size in ((0, 5, 3), (1, 5, 4), (1, 5, 4))]
    with pytest.raises(ValueError, match="input: needs at least one step"):
        core.run(layers, States(*empty), np.zeros(144, np.float32))


def cudnn_library() -> str | None:
    """Named by OPWRIGHT_LIBCUDNN, or of the package nvidia-cudnn."""
    if named := os.environ.get("OPWRIGHT_LIBCUDNN"):
        return named
    try:
        spec = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        return None
    for folder in spec.submodule_search_locations or [] if spec else []:
        for found in Path(folder).glob("lib/libcudnn.so.*"):
            return str(found)
    return None


@pytest.mark.skipif(cudnn_library() is None, reason="there is no libcudnn")
def test_core_layout_matches_cudnn(core: Core) -> None:
    """Covers every stack, dtype and algorithm; cuDNN needs no GPU for layouts."""
    cudnn = Cudnn(str(cudnn_library()))
    count, wrong = asked(core, cudnn)
    assert count > 5000 and wrong == []
    with pytest.raises(CudnnError, match=r"cudnnSetRNNDescriptor_v8: .*BAD_PARAM"):
        cudnn.layout(Layers("lstm", 0, 1))


def test_cudnn_missing_library_raises() -> None:
    with pytest.raises(OSError, match=r"libcudnn\.so\.0"):
        Cudnn("libcudnn.so.0")
    with pytest.raises(AttributeError, match="cudnnGetVersion"):
        Cudnn(ctypes.util.find_library("c") or "libc.so.6")
