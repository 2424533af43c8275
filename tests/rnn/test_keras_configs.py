"""opwright.keras: every argument of a layer survives its configuration and files."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import opwright.keras

KINDS = ("LSTM", "GRU", "SimpleRNN")
#: A value of each argument that is not its default.
GIVEN: dict[str, Any] = {
    "units": 5,
    "activation": "relu",
    "recurrent_activation": "hard_sigmoid",
    "use_bias": False,
    "kernel_initializer": "ones",
    "recurrent_initializer": "ones",
    "bias_initializer": "ones",
    "unit_forget_bias": False,
    "kernel_regularizer": "L1",
    "recurrent_regularizer": "L1",
    "bias_regularizer": "L1",
    "activity_regularizer": "L1",
    "kernel_constraint": "NonNeg",
    "recurrent_constraint": "NonNeg",
    "bias_constraint": "NonNeg",
    "dropout": 0.25,
    "recurrent_dropout": 0.25,
    "seed": 7,
    "return_sequences": True,
    "return_state": True,
    "go_backwards": True,
    "stateful": True,
    "unroll": True,
    "reset_after": False,
    "use_cudnn": False,
    # Keras takes these in `**kwargs`.
    "implementation": 1,
    "zero_output_for_mask": True,
    "name": "mine",
    "trainable": False,
    "dtype": "float64",
}
#: Attributes of the cell; the others are attributes of the layer.
OF_CELL = {"seed", "implementation"}


def arguments(kind: str) -> set[str]:
    """The names that the constructor of a layer takes."""
    named = set(inspect.signature(getattr(keras.layers, kind)).parameters) - {"kwargs"}
    more = {"zero_output_for_mask", "name", "trainable", "dtype", "use_cudnn"}
    return named | more | (set() if kind == "SimpleRNN" else {"implementation"})


CASES = [(kind, name) for kind in KINDS for name in GIVEN if name in arguments(kind)]


def test_given_arguments_are_those_of_the_layers() -> None:
    assert set().union(*map(arguments, KINDS)) == GIVEN.keys()


def made(kind: str, name: str) -> Any:
    given = {"units": 3, "seed": 1, name: GIVEN[name]}
    return getattr(opwright.keras, kind)(**given)


def value(layer: Any, name: str) -> Any:
    if name == "dtype":
        return layer.dtype_policy.name
    found = getattr(layer.cell if name in OF_CELL else layer, name)
    return type(found) if "regularizer" in name or "constraint" in name else found


@pytest.mark.rotating
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_get_config_of_any_argument_makes_the_same_layer(kind: str, name: str) -> None:
    layer = made(kind, name)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    found, wanted = value(again, name), value(layer, name)
    if "initializer" in name:
        assert type(found) is type(wanted)
        return
    assert found == wanted
    # Keras's SimpleRNN does nothing with its `activity_regularizer`.
    if (kind, name) != ("SimpleRNN", "activity_regularizer"):
        default = getattr(opwright.keras, kind)(3)
        assert value(default, name) != wanted


@pytest.mark.parametrize("kind", KINDS)
def test_get_config_of_defaults_is_that_of_keras(kind: str) -> None:
    ours, theirs = (
        getattr(of, kind)(3, name="a") for of in (opwright.keras, keras.layers)
    )
    assert ours.get_config() == theirs.get_config()


def opted_out(kind: str, use_cudnn: Any) -> Any:
    layer = getattr(opwright.keras, kind)(3, return_sequences=True, use_cudnn=use_cudnn)
    other = getattr(opwright.keras, kind)(3, use_cudnn=use_cudnn)
    both = keras.layers.Bidirectional(layer)
    return keras.Sequential([keras.Input([9, 2]), both, other])


def choices(model: Any) -> list[Any]:
    both, other = model.layers
    three = (both.forward_layer, both.backward_layer, other)
    return [layer.use_cudnn for layer in three]


@pytest.mark.rotating
@pytest.mark.parametrize("use_cudnn", [False, True, "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_use_cudnn_survives_clones_and_files(
    kind: str, use_cudnn: Any, tmp_path: Path
) -> None:
    model = opted_out(kind, use_cudnn)
    assert choices(model) == [use_cudnn] * 3
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = np.ones((2, 9, 2), "float32")
    np.testing.assert_array_equal(loaded(x), model(x))
    for again in (
        loaded,
        keras.models.clone_model(model),
        keras.Sequential.from_config(model.get_config()),
        keras.models.model_from_json(model.to_json()),
    ):
        assert choices(again) == [use_cudnn] * 3


def test_simple_rnn_with_another_use_cudnn_is_refused() -> None:
    with pytest.raises(ValueError, match="use_cudnn must be 'auto', True or False"):
        opwright.keras.SimpleRNN(3, use_cudnn="no")
