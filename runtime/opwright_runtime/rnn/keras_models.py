"""Keras 3's models on opwright's kernels: `opwright.keras`."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np

from opwright_runtime import errors
from opwright_runtime.rnn.keras_layers import (
    GRU,
    LSTM,
    REPLACEMENTS,
    KerasObject,
    SimpleRNN,
    why_keras_loop,
)
from opwright_runtime.rnn.keras_weights import packages_of
from opwright_runtime.rnn.packed import Phrase

__all__ = ["GRU", "LSTM", "SimpleRNN", "kernel_report", "on_kernels"]

_IN_CODE = "replace keras.layers with opwright.keras in its code"
_FROM_KERAS_2 = (
    "build it with opwright.keras, and copy its weights with params_from_keras and "
    "params_to_keras (docs/how-to/cudnn_lstm.md)"
)


def on_kernels(model: KerasObject) -> KerasObject:
    """A copy of a model whose LSTM, GRU and SimpleRNN layers are those of opwright.

    Layers in wrappers such as `Bidirectional`, and in models within the model, are
    replaced too. The copy has the model's weights and is compiled with the same
    arguments. Its optimizer starts without state, and stateful layers start from zeros.

    Args:
        model: a `keras.Sequential` or a functional model.

    Raises:
        OpInputError: it is another kind of model. Replace the layers in its code, or
            call `on_kernels` for the models that it is made of.
    """
    if not isinstance(model, keras.Model):
        raise _refused(model)
    try:
        copy = keras.models.clone_model(model, clone_function=_replaced)
    except ValueError as error:
        if "clone_function" not in str(error):
            raise
        raise _refused(model) from error
    if model.built and not copy.built:
        copy.build_from_config(model.get_build_config())
    copy.set_weights(model.get_weights())
    for old, new in _pairs(model, copy):
        # Keras's configurations do not contain these two arguments.
        new.use_cudnn = getattr(old, "use_cudnn", "auto")
        if hasattr(old.cell, "implementation"):
            new.cell.implementation = old.cell.implementation
    if model.compiled:
        copy.compile_from_config(model.get_compile_config())
    return copy


def with_states(model: KerasObject) -> KerasObject:
    """Like `on_kernels`, but stateful layers of the copy have the model's states."""
    copy = on_kernels(model)
    for old, new in _pairs(model, copy):
        for given, kept in zip(old.states or (), new.states or (), strict=True):
            kept.assign(given)
    return copy


def _pairs(
    model: KerasObject, copy: KerasObject
) -> Iterator[tuple[KerasObject, KerasObject]]:
    """The recurrent layers of a model, each with that of its copy."""
    both = zip(_recurrent(model, ""), _recurrent(copy, ""), strict=True)
    return ((old, new) for (_, old), (_, new) in both)


def kernel_report(
    model: KerasObject, steps: int | None = None, training: bool = False
) -> dict[str, str]:
    """For each recurrent layer of a model: "kernels", or why Keras's loop runs it.

    Args:
        model: a model, or a layer.
        steps: the length of the sequences. Keras's loop runs short sequences, because
            it is faster for these. None stands for a length that a graph does not
            know: the kernels run such a call.
        training: whether the call trains. The kernels need longer sequences for it.

    Returns:
        A text for each recurrent layer, by its path in the model, such as
        `bidirectional/forward_lstm`.

    Raises:
        OpInputError: `model` is of another library, or `steps` is no positive integer.
    """
    if not isinstance(model, keras.layers.Layer):
        raise _refused(model, "kernel_report", "a model or a layer of Keras 3")
    is_count = isinstance(steps, (int, np.integer)) and not isinstance(steps, bool)
    if steps is not None and not (is_count and steps > 0):
        raise errors.bad_argument(
            errors.OpInputError,
            "kernel_report",
            "steps",
            steps,
            "a positive integer, or None for sequences of unknown length",
        )
    prefix = "" if isinstance(model, keras.Model) else None
    return {
        path: why_keras_loop(layer, steps, training) or "kernels"
        for path, layer in _recurrent(model, prefix, keras.layers.RNN)
    }


def _refused(
    model: object,
    function: str = "on_kernels",
    allowed: str = "a keras.Sequential or a functional keras.Model",
) -> errors.OpError:
    given, remedy = model, ""
    if "tf_keras" in packages_of(model):
        kind = "model" if hasattr(model, "layers") else "layer"
        given, remedy = Phrase(f"a {kind} of tf_keras"), _FROM_KERAS_2
    elif isinstance(model, keras.Model):
        remedy = _IN_CODE
    return errors.bad_argument(
        errors.OpInputError, function, "model", given, allowed, remedy=remedy
    )


def _replaced(layer: KerasObject) -> KerasObject:
    """The layer that replaces `layer` in the copy."""
    if isinstance(layer, keras.Model):
        return on_kernels(layer)
    if type(layer) is keras.layers.Lambda:
        # The functions themselves: Keras refuses to read serialized ones.
        return keras.layers.Lambda(
            layer.function,
            getattr(layer, "_output_shape", None),
            layer.mask,
            layer.arguments,
            **keras.layers.Layer.get_config(layer),
        )
    kind = REPLACEMENTS.get(type(layer), type(layer))
    return kind.from_config(_with_kernels(layer.get_config()))


def _with_kernels(config: KerasObject) -> KerasObject:
    """A layer's configuration with the layers in it replaced."""
    if isinstance(config, list):
        return [_with_kernels(one) for one in config]
    if not isinstance(config, dict):
        return config
    changed = {name: _with_kernels(one) for name, one in config.items()}
    name = changed.get("class_name")
    if changed.get("module") == "keras.layers" and name in {
        kind.__name__ for kind in REPLACEMENTS
    }:
        changed |= {"module": "opwright.keras", "registered_name": f"opwright>{name}"}
    return changed


def _recurrent(
    layer: KerasObject,
    prefix: str | None,
    kinds: KerasObject = tuple(REPLACEMENTS),
) -> Iterator[tuple[str, KerasObject]]:
    """The recurrent layers in a layer, with their paths.

    Args:
        layer: where to look.
        prefix: the prefix of the paths of layers inside `layer`; None stands for the
            name of `layer`.
        kinds: the classes of the layers to find.
    """
    if isinstance(layer, kinds):
        yield layer.name, layer
        return
    inside = f"{layer.name}/" if prefix is None else prefix
    seen = set()
    for one in layer._flatten_layers(recursive=False, include_self=False):
        if id(one) not in seen:
            seen.add(id(one))
            for path, found in _recurrent(one, None, kinds):
                yield f"{inside}{path}", found
