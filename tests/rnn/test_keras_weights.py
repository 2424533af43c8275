"""params_from_keras and params_to_keras: the op matches Keras with equal weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opwright import OpError, Scope, params_from_keras, params_to_keras
from opwright.nn import CudnnRNNV3, cudnn_rnn_params_size, cudnn_rnn_v3
from rnn.support.cases import TOLERANCE, error
from support.processes import run_code

MODES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
LIBRARIES = {"keras": keras, "tf_keras": tf_keras}


@dataclass(frozen=True)
class Stack:
    mode: str = "lstm"
    layers: int = 1
    units: int = 3
    input_size: int = 2
    bidirectional: bool = False
    bias: bool = True
    dtype: str = "float64"
    library: str = "keras"

    @property
    def dirs(self) -> int:
        return 1 + self.bidirectional

    @property
    def options(self) -> dict[str, Any]:
        direction = "bidirectional" if self.bidirectional else "unidirectional"
        return {"rnn_mode": self.mode, "direction": direction}

    def make(self, build: bool = True) -> list[Any]:
        library = LIBRARIES[self.library]
        kind = {"lstm": "LSTM", "gru": "GRU"}.get(self.mode, "SimpleRNN")
        more = {} if self.mode != "rnn_relu" else {"activation": "relu"}
        layers = []
        for i in range(self.layers):
            width = self.dirs * self.units if i else self.input_size
            layer = getattr(library.layers, kind)(
                self.units,
                return_sequences=True,
                return_state=i == self.layers - 1,
                use_bias=self.bias,
                dtype=self.dtype,
                **more,
            )
            if self.bidirectional:
                layer = library.layers.Bidirectional(layer, dtype=self.dtype)
            if build:
                layer.build((None, None, width))
            layers.append(layer)
        return layers


def randomize(layers: list[Any], rng: np.random.Generator) -> None:
    for layer in layers:
        drawn = [rng.standard_normal(w.shape) * 0.4 for w in layer.get_weights()]
        layer.set_weights(drawn)


def weights(layers: list[Any]) -> list[Any]:
    return [w for layer in layers for w in layer.get_weights()]


@st.composite
def stacks(draw: st.DrawFn, mode: str, library: str) -> Stack:
    return Stack(
        mode,
        layers=draw(st.integers(1, 3)),
        units=draw(st.integers(1, 20)),
        input_size=draw(st.integers(1, 20)),
        bidirectional=draw(st.booleans()),
        bias=draw(st.booleans()),
        dtype=draw(st.sampled_from(["float32", "float64"])),
        library=library,
    )


def trained_by_keras(
    layers: list[Any], x: Any, mask: Any, back: Callable[[Any], Any]
) -> tuple[Any, list[Any], Any, list[Any]]:
    """Output, final states, gradient of the input, gradients of the weights."""
    variables = [v for layer in layers for v in layer.trainable_variables]
    variables = [v if isinstance(v, tf.Variable) else v.value for v in variables]
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for layer in layers[:-1]:
            y = layer(y, mask=mask)
        y, *states = layers[-1](y, mask=mask)
        y *= tf.cast(mask[:, :, None], y.dtype)
        loss = tf.reduce_sum(y * back(y))
    dx, *dweights = tape.gradient(loss, [x, *variables])
    return y, states, dx, dweights


def run_op(
    stack: Stack, params: Any, x: Any, lengths: Any, back: Callable[[Any], Any]
) -> tuple[Any, list[Any], Any, Any]:
    """The same from the op, states of the last layer alone, gradient of params."""
    batch = x.shape[0]
    states = tf.zeros([stack.layers * stack.dirs, batch, stack.units], x.dtype)
    params = tf.constant(params)
    with tf.GradientTape() as tape:
        tape.watch([x, params])
        rnn = cudnn_rnn_v3(
            tf.transpose(x, [1, 0, 2]),
            states,
            states if stack.mode == "lstm" else tf.zeros([], x.dtype),
            params,
            lengths,
            **stack.options,
        )
        y = tf.transpose(rnn.output, [1, 0, 2])
        loss = tf.reduce_sum(y * back(y))
    final = [
        state[at]
        for at in range(-stack.dirs, 0)
        for state in (rnn.output_h, rnn.output_c)[: 1 + (stack.mode == "lstm")]
    ]
    return y, final, *tape.gradient(loss, [x, params])


def compare(stack: Stack, seed: int, ragged: bool) -> None:
    rng = np.random.default_rng(seed)
    batch, time = rng.integers(1, 6, 2)
    layers = stack.make()
    randomize(layers, rng)
    x = tf.constant(
        rng.standard_normal([batch, time, stack.input_size]), dtype=stack.dtype
    )
    lengths = rng.integers(0, time + 1, batch) if ragged else np.full(batch, time)
    mask = tf.sequence_mask(lengths, time)
    weight = rng.standard_normal([batch, time, stack.dirs * stack.units])

    def back(y: Any) -> Any:
        return tf.constant(weight, y.dtype)

    packed = params_from_keras(layers)
    assert {"rnn_mode": packed.rnn_mode, "direction": packed.direction} == stack.options
    assert packed.num_layers == stack.layers
    assert packed.num_units == stack.units
    assert packed.input_size == stack.input_size
    assert packed.params.dtype == stack.dtype
    sizes = (packed.num_layers, packed.num_units, packed.input_size)
    counted = cudnn_rnn_params_size(*sizes, tf.float32, tf.int32, **stack.options)
    assert counted.numpy().tolist() == list(packed.params.shape)

    y, states, dx, dweights = trained_by_keras(layers, x, mask, back)
    found = run_op(stack, packed.params, x, lengths.astype("int32"), back)
    tolerance = TOLERANCE[tf.as_dtype(stack.dtype)]
    assert error(found[0], y.numpy()) <= tolerance
    for got, wanted in zip(found[1], states, strict=True):
        assert error(got, np.asarray(wanted)) <= tolerance
    assert error(found[2], np.asarray(dx)) <= tolerance

    # Keras's gradients, packed as if they were weights. The one bias of Keras has the
    # gradient of each of the op's two. Without a bias, Keras has no such gradient.
    values = [np.array(w) for w in weights(layers)]
    for layer in layers:
        count = len(layer.get_weights())
        layer.set_weights([np.asarray(g) for g in dweights[:count]])
        del dweights[:count]
    gradient = params_from_keras(layers).params
    gates = {"lstm": 4, "gru": 3}.get(stack.mode, 1)
    pairs = stack.layers * stack.dirs
    biases = gradient[-pairs * 2 * gates * stack.units :].reshape(pairs, 2, -1)
    if stack.mode != "gru":
        biases[:, 0] = biases[:, 1]
    if not stack.bias:
        biases[:] = found[3].numpy()[-biases.size :].reshape(biases.shape)
    assert error(found[3], gradient) <= tolerance

    # Back into these layers, and into new ones that have not seen an input.
    new = stack.make(build=False)
    for params, target in ((packed.params, layers), (packed, new)):
        params_to_keras(params, target)
        for got, wanted in zip(weights(target), values, strict=True):
            np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(params_from_keras(new).params, packed.params)


@pytest.mark.rotating
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.data())
def test_params_from_keras_match_outputs_and_gradients_of_keras(
    mode: str, library: str, data: st.DataObject
) -> None:
    stack = data.draw(stacks(mode, library))
    compare(stack, data.draw(st.integers(0, 2**31)), data.draw(st.booleans()))


@pytest.mark.rotating
@pytest.mark.parametrize("mode", MODES)
def test_params_to_keras_with_two_biases_match_the_op(mode: str) -> None:
    """The params have two different biases in each cell, unlike those of Keras."""
    rng = np.random.default_rng(0)
    stack = Stack(mode, layers=2, units=4, input_size=3, bidirectional=True)
    sizes = cudnn_rnn_params_size(2, 4, 3, tf.float64, tf.int32, **stack.options)
    params = rng.standard_normal(int(sizes[0])) * 0.4
    layers = stack.make(build=False)
    params_to_keras(tf.Variable(params), layers, input_size=3)
    x = tf.constant(rng.standard_normal([2, 5, 3]))

    def back(y: Any) -> Any:
        return tf.ones_like(y)

    wanted = trained_by_keras(layers, x, tf.ones([2, 5], bool), back)
    found = run_op(stack, params, x, [5, 5], back)
    assert error(found[0], wanted[0].numpy()) <= 1e-12
    assert error(found[2], wanted[2].numpy()) <= 1e-12


def test_params_from_keras_single_layer_is_accepted() -> None:
    layer = keras.layers.LSTM(3)
    layer.build((None, None, 2))
    packed = params_from_keras(layer)
    assert packed.params.dtype == np.float32
    params_to_keras(packed.params + 1, layer)
    np.testing.assert_array_equal(
        layer.cell.recurrent_kernel.numpy(),
        params_from_keras([layer]).params[24:60].reshape(12, 3).T,
    )


def test_params_to_keras_small_floats_are_widened() -> None:
    layer = keras.layers.GRU(3)
    layer.build((None, None, 2))
    packed = params_from_keras(layer).params
    for dtype in (tf.half, tf.bfloat16):
        params_to_keras(tf.cast(packed, dtype), layer)
        rounded = tf.cast(tf.cast(packed, dtype), tf.float32)
        np.testing.assert_array_equal(params_from_keras(layer).params, rounded)


def test_opwright_import_adds_no_module_of_keras() -> None:
    """TensorFlow imports some of Keras; opwright imports no more of it."""
    program = """
import sys, tensorflow
before = {name for name in sys.modules if "keras" in name}
import opwright
assert callable(opwright.params_from_keras)
more = {name for name in sys.modules if "keras" in name} - before
assert more == {"opwright_runtime.rnn.keras_weights"}, more
assert "torch" not in sys.modules
"""
    done = run_code(program)
    assert done.returncode == 0, done.stderr


layers = keras.layers
REFUSED: list[tuple[str, Any, str]] = [
    ("layers", layers.Dense(3, name="d"), r"an LSTM, GRU or .* of Keras.* Dense 'd'$"),
    ("layers", layers.RNN(layers.LSTMCell(3)), "make the LSTM, .* set_weights"),
    ("layers", layers.GRUCell(3, name="cell"), "GRUCell 'cell': make the LSTM"),
    ("layers", layers.TimeDistributed(layers.LSTM(3)), "pass the layer that it wraps"),
    ("layers", layers.LSTM, "make a layer of the class"),
    ("layers", [], "sequence"),
    ("layers", "lstm", "a sequence of such, not 'lstm'$"),
    ("layers", {"lstm": layers.LSTM(3)}, "a sequence of such, not {'lstm'"),
    ("layers", np.ones(3, "f"), r"float32\[3\]: pass the layer, not its weights"),
    ("layers", tf.ones(3), r"float32\[3\]: pass the layer, not its weights"),
    ("layers[0]", [np.ones(3, "f")], "pass the layer, not its weights"),
    ("layers", tf_keras.Sequential([], "net"), "not Sequential 'net': .* in a call of"),
    ("layers", torch.nn.LSTM(2, 3), "params_from_torch packs modules of torch"),
    ("layers[1]", [layers.LSTM(3, return_sequences=True), layers.Dense(3)], "LSTM"),
    ("layers.activation", layers.LSTM(3, activation="relu"), "'tanh', not 'relu'"),
    ("layers.activation", layers.SimpleRNN(3, activation="sigmoid"), "'relu'"),
    (
        "layers.recurrent_activation",
        layers.GRU(3, recurrent_activation="hard_sigmoid"),
        "'sigmoid', not 'hard_sigmoid'",
    ),
    ("layers.reset_after", layers.GRU(3, reset_after=False), "True, not False"),
    ("layers.go_backwards", layers.LSTM(3, go_backwards=True), "False, not True"),
    (
        "layers.merge_mode",
        layers.Bidirectional(layers.LSTM(3), merge_mode="sum"),
        "'concat', not 'sum'",
    ),
    (
        "layers.merge_mode",
        layers.Bidirectional(layers.LSTM(3), merge_mode=None),
        "'concat', not None",
    ),
    (
        "layers[0].return_sequences",
        [layers.LSTM(3), layers.LSTM(3)],
        "True, for a layer follows, not False",
    ),
    (
        "layers[1].units",
        [layers.LSTM(3, return_sequences=True), layers.LSTM(4)],
        r"3 as layers\[0\] has, not 4: one op .* convert each layer in a call of its",
    ),
    (
        "layers[1]",
        [layers.LSTM(3, return_sequences=True), layers.GRU(3)],
        r"lstm as layers\[0\] is, not gru: one op .* convert each layer in a call",
    ),
    (
        "layers[1]",
        [
            layers.LSTM(3, return_sequences=True),
            layers.Bidirectional(layers.LSTM(3)),
        ],
        "unidirectional as the first layer is, not bidirectional: .* each layer in a",
    ),
    ("layers", tf_keras.layers.LSTM(3, recurrent_activation="hard_sigmoid"), "sig"),
]


@pytest.mark.parametrize(("argument", "given", "words"), REFUSED)
def test_params_from_and_to_keras_unsupported_layers_are_refused(
    argument: str, given: Any, words: str
) -> None:
    for call in (
        lambda: params_from_keras(given),
        lambda: params_to_keras(np.zeros(84, np.float32), given),
    ):
        with pytest.raises(OpError, match=words) as raised:
            call()
        assert isinstance(raised.value, ValueError)
        assert raised.value.argument.startswith(argument)
        assert argument in str(raised.value)


def built(layer: Any, input_size: int = 2) -> Any:
    layer.build((None, None, input_size))
    return layer


def test_params_from_keras_not_built_says_what_to_call() -> None:
    words = (
        r"layers must be built, not LSTM 'memory', which has no weights yet: call its "
        r"build\(\[None, None, input_size\]\), or the model, first$"
    )
    with pytest.raises(OpError, match=words) as raised:
        params_from_keras(layers.LSTM(3, name="memory"))
    assert raised.value.argument == "layers"


@pytest.mark.parametrize("library", LIBRARIES)
def test_params_from_keras_of_an_unbuilt_wrapper_is_refused(library: str) -> None:
    """When it is built, the wrapper may replace the weights of its layers."""
    both = Stack(bidirectional=True, library=library).make(build=False)[0]
    for layer in (both.forward_layer, both.backward_layer):
        built(layer)
    words = r"layers\.forward_layer must be built, not .* the Bidirectional's build"
    with pytest.raises(OpError, match=words):
        params_from_keras(both)


@pytest.mark.rotating
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("mode", MODES)
def test_params_to_keras_of_an_unbuilt_wrapper_builds_it(
    mode: str, library: str
) -> None:
    stack = Stack(mode, bidirectional=True, library=library)
    first, second = stack.make(), stack.make(build=False)
    randomize(first, np.random.default_rng(0))
    params_to_keras(params_from_keras(first), second)
    assert second[0].built
    x = np.ones((2, 4, 2))
    for found, wanted in zip(second[0](x), first[0](x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_params_from_and_to_keras_other_input_size_is_refused() -> None:
    pair = [built(layers.GRU(3, return_sequences=True)), built(layers.GRU(3))]
    words = r"layers\[1\] must be built for size 3, not built for inputs of size 2"
    with pytest.raises(OpError, match=words):
        params_from_keras(pair)
    with pytest.raises(OpError, match=words):
        params_to_keras(np.zeros(63 + 72, np.float32), pair)


def test_params_from_keras_mixed_dtypes_are_refused() -> None:
    pair = [
        built(layers.LSTM(3, return_sequences=True, dtype="float64")),
        built(layers.LSTM(3), 3),
    ]
    with pytest.raises(OpError, match="one dtype, not float32 and float64"):
        params_from_keras(pair)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (np.zeros(83, np.float32), "of length 84 for these layers, not of length 83"),
        ("params", "a vector of numbers, not 'params'"),
        (None, "a vector of numbers, not None"),
        (np.array(["1"] * 84), r"a vector of numbers, not an array of <U1\[84\]"),
        (np.zeros((84, 1), np.float32), r"a vector, not of shape \[84, 1\]"),
        (np.zeros(84, np.float64), "float32, which layers has, not float64"),
        (np.zeros(84, np.int64), "float32, which layers has, not int64"),
    ],
)
def test_params_to_keras_bad_params_are_refused(params: Any, words: str) -> None:
    layer = built(layers.LSTM(3))
    before = layer.get_weights()
    with pytest.raises(OpError, match=words) as raised:
        params_to_keras(params, layer)
    assert raised.value.argument == "params"
    for now, then in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("size", ["2", 0, -2, 2.0, True])
def test_params_to_keras_bad_input_size_is_refused(size: Any) -> None:
    words = "input_size must be a positive integer, or None, not "
    with pytest.raises(OpError, match=words + re.escape(repr(size))):
        params_to_keras(np.zeros(84, np.float32), layers.LSTM(3), input_size=size)


def test_params_to_keras_params_of_other_sizes_are_refused() -> None:
    """A vector's length alone may fit layers that it was not packed from."""
    packed = params_from_keras(built(layers.LSTM(16), 4))
    same_length = layers.LSTM(8)  # 4 * 16 * (4 + 18) == 4 * 8 * (34 + 10)
    words = r"num_units 8, not packed from layers with num_units 16"
    with pytest.raises(OpError, match=words):
        params_to_keras(packed, same_length)
    words = "must be built, or input_size given, for params that are a bare vector$"
    with pytest.raises(OpError, match=words):
        params_to_keras(packed.params, same_length)
    with pytest.raises(OpError, match="of length 448 for these layers, not of"):
        params_to_keras(packed.params, same_length, input_size=4)
    assert not same_length.built
    with pytest.raises(OpError, match=r"input_size 34, not .* input_size 4"):
        params_to_keras(packed, built(layers.LSTM(16), 34))
    for other in (layers.SimpleRNN(16), layers.Bidirectional(layers.LSTM(16))):
        with pytest.raises(OpError, match="params must be those of layers with"):
            params_to_keras(packed, other)


def test_cudnn_rnn_v3_packed_params_are_accepted() -> None:
    layer = built(layers.Bidirectional(layers.GRU(3)))
    packed = params_from_keras(layer)
    assert packed.options == {"rnn_mode": "gru", "direction": "bidirectional"}
    x, zeros = tf.random.normal([4, 5, 2]), tf.zeros([2, 5, 3])
    lengths = [4, 1, 3, 0, 2]
    wanted = cudnn_rnn_v3(x, zeros, 0.0, packed.params, lengths, **packed.options)

    def run() -> Any:
        return cudnn_rnn_v3(x, zeros, 0.0, packed, lengths, **packed.options).output

    def build() -> Any:
        options = CudnnRNNV3.Options(**packed.options)
        scope = Scope.current()
        made = CudnnRNNV3.create(scope, x, zeros, 0.0, packed, lengths, options)
        return made.output

    for call in (run, build, tf.function(run), tf.function(build)):
        np.testing.assert_array_equal(call(), wanted.output)
    sizes = (packed.num_layers, packed.num_units, packed.input_size)
    size = cudnn_rnn_params_size(*sizes, tf.float32, tf.int32, **packed.options)
    assert size.numpy() == np.size(packed)
    np.testing.assert_array_equal(np.asarray(packed, np.float64), packed.params)


def test_params_to_keras_biases_without_use_bias_are_refused() -> None:
    pair = [
        built(layers.LSTM(3, return_sequences=True)),
        built(layers.LSTM(3, use_bias=False), 3),
    ]
    before = weights(pair)
    with pytest.raises(OpError, match=r"without biases: layers\[1\] has none"):
        params_to_keras(np.ones(84 + 96, np.float32), pair)
    for now, then in zip(weights(pair), before, strict=True):
        np.testing.assert_array_equal(now, then)
