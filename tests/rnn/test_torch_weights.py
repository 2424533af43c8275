"""params_from_torch and params_to_torch: the op matches torch with equal weights."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opwright import (
    OpError,
    params_from_keras,
    params_from_torch,
    params_to_keras,
    params_to_torch,
)
from opwright.nn import cudnn_rnn_params_size, cudnn_rnn_v3
from support.processes import run_code

KINDS = {
    "lstm": (torch.nn.LSTM, {}),
    "gru": (torch.nn.GRU, {}),
    "rnn_tanh": (torch.nn.RNN, {}),
    "rnn_relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}


def module(mode: str, *sizes: int, **more: Any) -> Any:
    kind, settings = KINDS[mode]
    return kind(*sizes, **settings, **more)


@st.composite
def modules(draw: st.DrawFn, mode: str) -> Any:
    units = draw(st.integers(2, 12))
    projected = mode == "lstm" and draw(st.booleans())
    return module(
        mode,
        draw(st.integers(1, 9)),
        units,
        draw(st.integers(1, 3)),
        bidirectional=draw(st.booleans()),
        bias=draw(st.booleans()),
        dtype=torch.float64,
        **({"proj_size": draw(st.integers(1, units - 1))} if projected else {}),
    )


@pytest.mark.rotating
@pytest.mark.parametrize("mode", KINDS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_params_from_torch_match_outputs_of_torch(
    mode: str, data: st.DataObject
) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    made = data.draw(modules(mode))
    time, batch = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    packed = params_from_torch(made)
    dirs = 1 + made.bidirectional
    assert packed.params.dtype == np.float64
    assert packed.options.get("num_proj", 0) == made.proj_size
    sizes = (made.num_layers, made.hidden_size, made.input_size)
    assert (packed.num_layers, packed.num_units, packed.input_size) == sizes
    counted = cudnn_rnn_params_size(*sizes, tf.double, tf.int32, **packed.options)
    assert counted.numpy() == np.size(packed)

    x = torch.randn(time, batch, made.input_size, dtype=torch.float64)
    stacked = dirs * made.num_layers
    h = torch.randn(stacked, batch, made.proj_size or made.hidden_size).double()
    c = torch.randn(stacked, batch, made.hidden_size).double()
    lstm = mode == "lstm"
    y, final = made(x, (h, c) if lstm else h)
    rnn = cudnn_rnn_v3(
        x.numpy(), h.numpy(), c.numpy(), packed, [time] * batch, **packed.options
    )
    np.testing.assert_allclose(rnn.output, y.detach(), atol=1e-12)
    states = (rnn.output_h, rnn.output_c) if lstm else (rnn.output_h,)
    for got, wanted in zip(states, final if lstm else (final,), strict=True):
        np.testing.assert_allclose(got, wanted.detach(), atol=1e-12)

    new = type(made)(**{name: getattr(made, name) for name in _arguments(made)})
    new = new.double()
    for params in (packed, tf.constant(packed.params)):
        with torch.no_grad():
            for parameter in new.parameters():
                parameter.zero_()
        params_to_torch(params, new)
        for got, wanted in zip(new.parameters(), made.parameters(), strict=True):
            assert torch.equal(got, wanted)
    assert torch.equal(new(x)[0], made(x)[0])


def _arguments(made: Any) -> list[str]:
    names = ["input_size", "hidden_size", "num_layers", "bias", "bidirectional"]
    more = "nonlinearity" if isinstance(made, torch.nn.RNN) else "proj_size"
    return names if isinstance(made, torch.nn.GRU) else [*names, more]


def test_params_from_torch_state_dict_matches_module() -> None:
    """State dicts of a complete model, of NumPy arrays and of parameters."""
    model = torch.nn.ModuleDict(
        {"rnn": torch.nn.RNN(3, 4, nonlinearity="relu"), "head": torch.nn.Linear(4, 2)}
    )
    wanted = params_from_torch(model["rnn"])
    assert wanted.rnn_mode == "rnn_relu"
    arrays = {name: value.numpy() for name, value in model.state_dict().items()}
    for state in (model, model.state_dict(), arrays, dict(model.named_parameters())):
        packed = params_from_torch(state, prefix="rnn.", rnn_mode="rnn_relu")
        assert packed.options == wanted.options
        np.testing.assert_array_equal(packed, wanted)
        params_to_torch(np.asarray(packed) + 1, state, prefix="rnn.")
        np.testing.assert_array_equal(
            params_from_torch(model["rnn"]), wanted.params + 1
        )
        params_to_torch(packed, state, prefix="rnn.")
    assert model["rnn"].weight_ih_l0.requires_grad


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_params_to_torch_small_floats_are_widened(dtype: torch.dtype) -> None:
    small, large = torch.nn.GRU(2, 3, dtype=dtype), torch.nn.GRU(2, 3)
    packed = params_from_torch(small)
    assert packed.params.dtype == tf.as_dtype(str(dtype).removeprefix("torch."))
    params_to_torch(packed, large)
    for got, wanted in zip(large.parameters(), small.parameters(), strict=True):
        assert torch.equal(got, wanted.float())
    again = torch.nn.GRU(2, 3, dtype=dtype)
    params_to_torch(packed, again)
    np.testing.assert_array_equal(params_from_torch(again), packed)
    with pytest.raises(OpError, match=r"weight_ih_l0 has, not float32") as raised:
        params_to_torch(params_from_torch(large), small)
    assert raised.value.argument == "params"


def test_params_from_torch_to_keras_and_back_match() -> None:
    lstm = torch.nn.LSTM(3, 5, batch_first=True)
    x = torch.randn(2, 7, 3)
    layer = keras.layers.LSTM(5, return_sequences=True)
    params_to_keras(params_from_torch(lstm), layer)
    wanted = lstm(x)[0].detach()
    np.testing.assert_allclose(layer(x.numpy()), wanted, atol=1e-6)
    other = torch.nn.LSTM(3, 5, batch_first=True)
    params_to_torch(params_from_keras(layer), other)
    np.testing.assert_allclose(other(x)[0].detach(), wanted, atol=1e-6)


def lacking(made: Any, name: str) -> dict[str, Any]:
    return {key: value for key, value in made.state_dict().items() if key != name}


lstm = torch.nn.LSTM(2, 3, 2)
MODULE = "a torch.nn.LSTM, GRU or RNN, or the state_dict of one"
REFUSED: list[tuple[Any, str]] = [
    (3, f"module must be {MODULE}, not 3"),
    (torch.nn.LSTM, f"{MODULE}, not <class"),
    (torch.nn.LSTMCell(2, 3), "not one with 'weight_ih'"),
    (torch.nn.Linear(2, 3), "not one with 'weight'"),
    ({}, "not one without 'weight_ih_l0'"),
    (lacking(lstm, "weight_hh_l0"), "not one without 'weight_hh_l0'"),
    (lacking(lstm, "weight_hh_l1"), "not one without 'weight_hh_l1'"),
    (lacking(lstm, "bias_ih_l1"), "not one without 'bias_ih_l1'"),
    (
        torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GRU(2, 3)),
        r"of which prefix tells: '1\.', not one with '0\.weight'",
    ),
    (
        torch.nn.utils.parametrizations.weight_norm(torch.nn.GRU(2, 3), "weight_hh_l0"),
        "not one with 'parametrizations",
    ),
    (
        {**lstm.state_dict(), "weight_ih_l1": torch.zeros(12, 2)},
        r"weight_ih_l1 must be of shape \[12, 3\], not of shape \[12, 2\]",
    ),
    (
        {**lstm.state_dict(), "weight_ih_l0": torch.zeros(12)},
        r"weight_ih_l0 must be of rank 2, not of shape \[12\]",
    ),
    (
        {"weight_ih_l0": np.zeros((5, 2)), "weight_hh_l0": np.zeros((5, 3))},
        r"not one with weights of shape \[5, 2\] and \[5, 3\]",
    ),
    ({**lstm.state_dict(), "weight_hr_l1": torch.zeros(1, 3)}, "with 'weight_hr_l1'"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_params_from_and_to_torch_bad_modules_are_refused(
    given: Any, words: str
) -> None:
    for call in (
        lambda: params_from_torch(given),
        lambda: params_to_torch(np.zeros(84, np.float32), given),
    ):
        with pytest.raises(OpError, match=words) as raised:
            call()
        assert isinstance(raised.value, ValueError)


def test_params_from_torch_rnn_mode_is_checked() -> None:
    state = torch.nn.RNN(2, 3).state_dict()
    with pytest.raises(OpError, match="rnn_mode must be one of 'rnn_tanh', 'rnn_relu'"):
        params_from_torch(state)
    with pytest.raises(OpError, match="rnn_mode must be one of"):
        params_from_torch(state, rnn_mode="gru")
    with pytest.raises(OpError, match="rnn_mode must be 'lstm', not 'gru'"):
        params_from_torch(lstm, rnn_mode="gru")
    with pytest.raises(OpError, match="rnn_mode must be 'rnn_tanh', not 'rnn_relu'"):
        params_from_torch(torch.nn.RNN(2, 3), rnn_mode="rnn_relu")


def test_params_to_torch_params_of_other_module_are_refused() -> None:
    packed = params_from_torch(torch.nn.LSTM(2, 3, bidirectional=True))
    before = params_from_torch(lstm)
    with pytest.raises(OpError, match="params must be those of layers with direction"):
        params_to_torch(packed, lstm)
    with pytest.raises(
        OpError, match="of length 180 for these layers, not of length 83"
    ):
        params_to_torch(np.zeros(83), lstm)
    with pytest.raises(OpError, match=r"a vector, not of shape \[180, 1\]"):
        params_to_torch(np.zeros((180, 1)), lstm)
    with pytest.raises(OpError, match=r"rnn_relu, not packed from .* rnn_tanh"):
        params_to_torch(
            params_from_torch(torch.nn.RNN(2, 3)),
            torch.nn.RNN(2, 3, nonlinearity="relu"),
        )
    bare = torch.nn.LSTM(2, 3, 2, bias=False)
    with pytest.raises(OpError, match="without biases: the module has none"):
        params_to_torch(before, bare)
    fixed = {name: value.numpy().copy() for name, value in lstm.state_dict().items()}
    fixed["bias_hh_l1"].flags.writeable = False
    with pytest.raises(OpError, match=r"bias_hh_l1 must be .* a NumPy array that can"):
        params_to_torch(np.asarray(before) + 1, fixed)
    np.testing.assert_array_equal(params_from_torch(fixed), before)
    np.testing.assert_array_equal(params_from_torch(lstm), before)


def test_params_from_torch_of_arrays_imports_no_torch() -> None:
    program = """
import sys
import numpy as np
from opwright import params_from_torch, params_to_torch
state = {"weight_ih_l0": np.ones((4, 2)), "weight_hh_l0": np.ones((4, 1))}
params_to_torch(params_from_torch(state), state)
assert "torch" not in sys.modules
"""
    done = run_code(program)
    assert done.returncode == 0, done.stderr
