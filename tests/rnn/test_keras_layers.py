"""opwright.keras computes the same as Keras's layers with the same arguments."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import opwright.keras
from opwright import params_from_keras
from opwright_runtime.rnn import keras_layers
from support.places import environment
from support.processes import run_code

KINDS = ("LSTM", "GRU", "SimpleRNN")
# Rows without, with some, and with only masked steps.
MASK = np.array(
    [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]], bool
)


# By `training`: the op of a call.
KERNELS = {False: "OpwrightKerasRNN", True: "CudnnRNNV3"}

FIXED_STEPS = keras_layers._FIXED_STEPS


@pytest.fixture(autouse=True, scope="module")
def kernels_for_any_steps() -> Iterator[None]:
    """Uses the kernels also for few steps, where Keras's loop is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras_layers, "_FIXED_STEPS", -(10**9))
        yield


def pair(kind: str, input_size: int, **arguments: Any) -> list[Any]:
    """A layer of Keras's and one of opwright's with the same weights."""
    # Keras's SimpleRNN has no `use_cudnn`.
    lacked = {"use_cudnn"} if kind == "SimpleRNN" else set()
    plain = {name: arguments[name] for name in arguments.keys() - lacked}
    made = [
        getattr(keras.layers, kind)(**plain),
        getattr(opwright.keras, kind)(**arguments),
    ]
    rng = np.random.default_rng(input_size)
    for layer in made:
        layer.build((len(MASK), None, input_size))
    weights = [rng.standard_normal(w.shape) * 0.5 for w in made[0].get_weights()]
    for layer in made:
        layer.set_weights(weights)
    return made


def differentiated(layer: Any, x: Any, **call: Any) -> list[Any]:
    """Outputs, states and all gradients of a loss that reads each of them."""
    weights = [variable.value for variable in layer.trainable_variables]
    states = call.get("initial_state") or []
    with tf.GradientTape() as tape:
        tape.watch([x, *states])
        outputs = tf.nest.flatten(layer(x, **call))
        loss = sum(tf.reduce_sum(tf.sin(tf.cast(y, x.dtype))) for y in outputs)
    return [*outputs, *tape.gradient(loss, [x, *states, *weights])]


def assert_same(found: list[Any], wanted: list[Any], tolerance: float = 1e-5) -> None:
    assert len(found) == len(wanted)
    for got, expected in zip(found, wanted, strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(
            np.asarray(got, np.float64), np.asarray(expected, np.float64), 0, tolerance
        )


def ops_of(layer: Any, *, training: bool = False, mask: Any = None) -> set[str]:
    """The types of the ops that a call of the layer adds, loops' bodies included."""
    spec = tf.TensorSpec([None, None, 2], layer.compute_dtype)
    call = tf.function(lambda x: layer(x, training=training, mask=mask))
    graph = call.get_concrete_function(spec).graph.as_graph_def()
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    return {node.op for node in nodes}


@st.composite
def calls(draw: st.DrawFn, kind: str) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Arguments of a layer, its input, arguments of its call."""
    units, batch, time = (draw(st.integers(1, 5)) for _ in range(3))
    arguments = {
        "units": units,
        "dtype": draw(st.sampled_from(["float32", "float64"])),
        "return_state": True,
        **{
            name: draw(st.booleans())
            for name in (
                "return_sequences",
                "go_backwards",
                "use_bias",
                "unroll",
                "zero_output_for_mask",
            )
        },
    }
    if kind == "SimpleRNN":
        arguments["activation"] = draw(st.sampled_from(["tanh", "relu"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))

    def tensor(*shape: int) -> Any:
        return tf.constant(rng.standard_normal(shape), arguments["dtype"])

    call: dict[str, Any] = {"training": draw(st.booleans())}
    if draw(st.booleans()):
        call["mask"] = tf.constant(rng.random((batch, time)) < rng.random())
    if draw(st.booleans()):
        count = 2 if kind == "LSTM" else 1
        call["initial_state"] = [tensor(batch, units) for _ in range(count)]
    return arguments, tensor(batch, time, draw(st.integers(1, 5))), call


@pytest.mark.rotating
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_same_numbers(kind: str, data: st.DataObject) -> None:
    arguments, x, call = data.draw(calls(kind))
    theirs, ours = pair(kind, x.shape[2], **arguments)
    tolerance = 1e-5 if arguments["dtype"] == "float32" else 1e-12
    wanted = differentiated(theirs, x, **call)
    assert_same(differentiated(ours, x, **call), wanted, tolerance)


@pytest.mark.rotating
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_keras_layers_in_tf_function_match_keras(kind: str, jit_compile: bool) -> None:
    made = pair(
        kind, 2, units=3, return_sequences=True, return_state=True, go_backwards=True
    )
    x = tf.random.normal([len(MASK), MASK.shape[1], 2])
    found = [
        tf.function(
            lambda x, layer=layer: differentiated(layer, x, mask=tf.constant(MASK)),
            jit_compile=jit_compile,
            input_signature=[tf.TensorSpec([None, *x.shape[1:]])],
        )(x)
        for layer in made
    ]
    assert_same(found[1], found[0])


MODES = {
    "LSTM": [{}, {"use_bias": False}, {"unit_forget_bias": False}, {"dropout": 0.5}],
    "GRU": [{}, {"use_bias": False}, {"activation": tf.tanh}, {"dtype": "float64"}],
    "SimpleRNN": [{}, {"activation": "relu"}, {"dtype": "mixed_bfloat16"}],
}


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("kind", "arguments"), [(kind, one) for kind in KINDS for one in MODES[kind]]
)
def test_keras_layers_run_on_the_kernels(kind: str, arguments: dict[str, Any]) -> None:
    layer = getattr(opwright.keras, kind)(3, **arguments)
    for training in (False, True):
        ops = ops_of(layer, training=training)
        assert KERNELS[training] in ops and "While" not in ops


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("units", "steps", "ways"),
    [
        (3, 4, []),
        (3, 5, [False, True]),
        (3, None, [False, True]),
        (512, 6, [False]),
        (512, 8, [False, True]),
        (1024, 11, []),
        (1024, 16, [False]),
    ],
)
def test_keras_lstm_few_steps_run_in_the_loop_of_keras(
    units: int, steps: int | None, ways: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras_layers, "_FIXED_STEPS", FIXED_STEPS)
    layer = opwright.keras.LSTM(units)
    spec = tf.TensorSpec([2, steps, units])
    found = []
    for training in (False, True):
        call = tf.function(lambda x, way=training: layer(x, training=way))
        graph = call.get_concrete_function(spec).graph
        if any(op.type == KERNELS[training] for op in graph.get_operations()):
            found.append(training)
    assert found == ways


LACKING = {
    "LSTM": [
        {"activation": "relu"},
        {"activation": None},
        {"recurrent_activation": "hard_sigmoid"},
        {"recurrent_dropout": 0.5},
        {"dropout": 0.5, "implementation": 1},
        {"dropout": 1.0},
        {"use_cudnn": False},
    ],
    "GRU": [
        {"reset_after": False},
        {"activation": lambda x: x},
        {"recurrent_dropout": 0.5},
        {"use_cudnn": False},
    ],
    "SimpleRNN": [
        {"activation": "sigmoid"},
        {"recurrent_dropout": 0.5},
        {"use_cudnn": False},
    ],
}


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("kind", "arguments"), [(kind, one) for kind in KINDS for one in LACKING[kind]]
)
def test_keras_layers_unsupported_arguments_run_in_the_loop_of_keras(
    kind: str, arguments: dict[str, Any]
) -> None:
    theirs, ours = pair(kind, 2, units=3, seed=1, **arguments)
    assert KERNELS[False] not in ops_of(ours)
    x = tf.random.normal([len(MASK), MASK.shape[1], 2])
    training = arguments.get("implementation") != 1
    wanted, found = (layer(x, mask=MASK, training=training) for layer in (theirs, ours))
    np.testing.assert_array_equal(found, wanted)


def test_keras_lstm_custom_cell_runs_in_the_loop_of_keras() -> None:
    class Doubled(keras.layers.LSTMCell):
        def call(self, *given: Any, **named: Any) -> Any:
            output, states = super().call(*given, **named)
            return 2 * output, states

    layer = opwright.keras.LSTM(3)
    layer.cell = Doubled(3)
    assert KERNELS[False] not in ops_of(layer)


@pytest.mark.rotating
@pytest.mark.parametrize("kind", KINDS)
def test_keras_layers_unusual_calls_match_keras(kind: str) -> None:
    """Outputs and refusals are the same as Keras's."""
    theirs, ours = pair(kind, 2, units=3)
    x = tf.random.normal([len(MASK), MASK.shape[1], 2])
    one = tf.random.normal([1, 3])
    states = [one] * (2 if kind == "LSTM" else 1)
    for inputs, call in (
        (x, {"initial_state": states}),
        (x, {"mask": MASK[:, :, None]}),
        (x, {"mask": MASK[:1]}),
        (x, {"mask": MASK.astype("int64")}),
        (x, {"mask": MASK.astype("float32")}),
        (tf.cast(x * 3, tf.int32), {}),
        (x.numpy().astype("float64"), {}),
    ):
        wanted = theirs(inputs, **call)
        np.testing.assert_allclose(ours(inputs, **call), wanted, 0, 1e-5)
    assert ours(x[:0]).shape == ours(x[:0], mask=MASK[:0]).shape == (0, 3)
    dynamic = tf.function(ours, input_signature=[tf.TensorSpec([None, None, 2])])
    assert dynamic(x[:0]).shape == (0, 3)
    np.testing.assert_allclose(dynamic(x), theirs(x), 0, 1e-5)
    for inputs, call in (
        (x[0], {}),
        (x[:, :, :1], {}),
        (x, {"mask": MASK[:, :3]}),
        (x, {"mask": np.ones((len(MASK), 5), bool)}),
        (x, {"mask": MASK[:2]}),
        (x, {"initial_state": [one[:, :2]] * len(states)}),
    ):
        for layer in (theirs, ours):
            with pytest.raises(Exception, match=r"."):
                layer(inputs, **call)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(2, 1), (2, 5), (3, 4)])
def test_keras_layers_initial_state_of_another_shape_is_named(
    kind: str, shape: tuple[int, int]
) -> None:
    states = [tf.ones([2, 4])] * (kind == "LSTM") + [tf.ones(shape)]
    wanted = rf"initial_state\[{len(states) - 1}\] must have the shape \(2, 4\)"
    with pytest.raises(ValueError, match=wanted):
        getattr(opwright.keras, kind)(4)(tf.ones([2, 6, 3]), initial_state=states)


def test_keras_lstm_masked_steps_are_not_read() -> None:
    layer = opwright.keras.LSTM(3, return_sequences=True)
    x = tf.random.normal([len(MASK), MASK.shape[1], 2])
    layer(x)
    nothing = tf.where(MASK[:, :, None], x, np.nan)
    for found, wanted in zip(
        differentiated(layer, nothing, mask=MASK),
        differentiated(layer, x, mask=MASK),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, 0, 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_keras_layers_dropout_matches_keras(kind: str) -> None:
    x = tf.ones([4, 6, 8])

    def run(layer: Any) -> Any:
        return layer(x, training=True).numpy()

    theirs, ours = pair(kind, 8, units=3, dropout=0.5, seed=3)
    first = run(ours)
    np.testing.assert_allclose(first, run(theirs), 0, 1e-5)
    assert np.abs(run(ours) - first).max() > 1e-3  # Masks change from call to call.
    assert_same([ours(x)], [theirs(x)])
    # Layers without a seed have masks of their own.
    same = [getattr(opwright.keras, kind)(3, dropout=0.5) for _ in range(2)]
    for layer in same:
        layer.build(x.shape)
        layer.set_weights(ours.get_weights()[: len(layer.get_weights())])
    assert np.abs(run(same[0]) - run(same[1])).max() > 1e-3


@pytest.mark.rotating
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_keras_layers_small_floats_match_keras(kind: str, policy: str) -> None:
    arguments = {"units": 3, "return_sequences": True, "return_state": True}
    theirs, ours = pair(kind, 2, dtype=policy, **arguments)
    assert KERNELS[False] in ops_of(ours)
    # Gradients of other inputs can be larger, and their rounding errors with them.
    x = tf.random.stateless_normal([len(MASK), MASK.shape[1], 2], [0, 1])
    call = {"mask": MASK}
    assert_same(differentiated(ours, x, **call), differentiated(theirs, x, **call), 0.1)
    exact = pair(kind, 2, **arguments)[0](x, mask=MASK)
    for got, wanted in zip(ours(x, mask=MASK), exact, strict=True):
        np.testing.assert_allclose(np.asarray(got, np.float32), wanted, 0, 2e-2)


@pytest.mark.rotating
@pytest.mark.parametrize("merge_mode", ["concat", "sum", None])
@pytest.mark.parametrize("kind", KINDS)
def test_keras_layers_bidirectional_match_keras(
    kind: str, merge_mode: str | None
) -> None:
    made = [
        keras.layers.Bidirectional(layer, merge_mode=merge_mode)
        for layer in pair(kind, 2, units=3, return_sequences=True)
    ]
    x = tf.random.normal([len(MASK), MASK.shape[1], 2])
    for layer in made:
        layer(x)
    made[1].set_weights(made[0].get_weights())
    assert type(made[1].backward_layer) is getattr(opwright.keras, kind)
    wanted, found = (differentiated(layer, x, mask=tf.constant(MASK)) for layer in made)
    assert_same(found, wanted)


def test_keras_gru_stateful_matches_keras() -> None:
    x = tf.random.normal([len(MASK), 4, 2])
    theirs, ours = pair("GRU", 2, units=3, stateful=True)
    for _ in range(3):
        np.testing.assert_allclose(ours(x), theirs(x), 0, 1e-5)
    assert_same(ours.states, theirs.states)
    first = theirs(x)
    for layer in (theirs, ours):
        layer.reset_state()
    assert np.abs(ours(x) - first).max() > 1e-3
    with pytest.raises(ValueError, match="stateful"):
        ours(x[:2])


def classifier(of: Any, *, dropout: float = 0.0, both: bool = True) -> Any:
    """A text classifier with a mask, both directions and dropout."""
    keras.utils.set_random_seed(0)
    lstm = keras.layers.Bidirectional(of.LSTM(5, return_sequences=True))
    return keras.Sequential(
        [
            keras.layers.Embedding(20, 6, mask_zero=True),
            *([lstm] if both else []),
            of.GRU(4, dropout=dropout, seed=1),
            keras.layers.Dense(3),
        ]
    )


def words(rng: np.random.Generator) -> tuple[Any, Any]:
    x = rng.integers(1, 20, [12, 4])
    x[np.arange(4) >= rng.integers(1, 5, 12)[:, None]] = 0
    return x, rng.integers(0, 3, 12)


@pytest.mark.equivalence
@pytest.mark.parametrize("compiled", ["run_eagerly", "jit_compile", ""])
def test_keras_layers_fit_matches_keras(compiled: str) -> None:
    x, labels = words(np.random.default_rng(0))
    # XLA compiles for each shape, and takes long.
    jit_compile = compiled == "jit_compile"
    x, labels = (x[:10], labels[:10]) if jit_compile else (x, labels)
    results = []
    for of in (keras.layers, opwright.keras):
        model = classifier(of, dropout=0.3, both=not jit_compile)
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            **({compiled: True} if compiled else {}),
        )
        assert model.jit_compile == jit_compile
        history = model.fit(x, labels, 5, epochs=2, shuffle=False, verbose=0)
        predicted = model.predict(x, verbose=0)
        results.append([*history.history["loss"], predicted, *model.get_weights()])
    for found, wanted in zip(*results[::-1], strict=True):
        np.testing.assert_allclose(found, wanted, 0, 1e-4)


@pytest.mark.rotating
def test_keras_layers_encoder_and_decoder_match_keras() -> None:
    """The functional API: states and masks are symbolic."""

    def make(of: Any) -> Any:
        keras.utils.set_random_seed(0)
        source, target = keras.Input([None]), keras.Input([5, 3])
        embedded = keras.layers.Embedding(20, 6, mask_zero=True)(source)
        _, h, c = of.LSTM(4, return_state=True)(embedded)
        y = of.LSTM(4, return_sequences=True)(target, initial_state=[h, c])
        return keras.Model([source, target], of.GRU(2)(y))

    x, _ = words(np.random.default_rng(1))
    target = np.random.default_rng(2).standard_normal([12, 5, 3]).astype("float32")
    theirs, ours = make(keras.layers), make(opwright.keras)
    assert ours.output.shape == theirs.output.shape
    wanted = theirs.predict([x, target], verbose=0)
    np.testing.assert_allclose(ours.predict([x, target], verbose=0), wanted, 0, 1e-5)
    copy = keras.models.clone_model(ours)
    copy.set_weights(ours.get_weights())
    assert [type(layer) for layer in copy.layers] == [type(la) for la in ours.layers]
    np.testing.assert_allclose(copy([x, target]), wanted, 0, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_keras_layers_get_config_matches_keras(kind: str) -> None:
    arguments = {"units": 3, "dropout": 0.2, "return_sequences": True, "name": "rnn"}
    made = [getattr(of, kind)(**arguments) for of in (keras.layers, opwright.keras)]
    assert made[1].get_config() == made[0].get_config()
    assert type(made[1]).from_config(made[1].get_config()).cell.dropout == 0.2
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(made[1])
    )
    assert type(again) is type(made[1])
    assert params_from_keras(pair(kind, 2, units=3)[1]).num_units == 3


@pytest.mark.rotating
def test_keras_layers_saved_files_load_with_keras(tmp_path: Path) -> None:
    x, _ = words(np.random.default_rng(0))
    theirs, ours = classifier(keras.layers), classifier(opwright.keras)
    wanted = theirs.predict(x, verbose=0)
    ours.predict(x, verbose=0)
    for model, name in ((theirs, "theirs"), (ours, "ours")):
        model.save(tmp_path / f"{name}.keras")
        model.save_weights(tmp_path / f"{name}.weights.h5")

    loaded = keras.models.load_model(tmp_path / "ours.keras")
    assert [type(la) for la in loaded.layers] == [type(la) for la in ours.layers]
    np.testing.assert_allclose(loaded.predict(x, verbose=0), wanted, 0, 1e-5)

    for end in ("keras", "weights.h5"):
        for model, other in ((theirs, "ours"), (ours, "theirs")):
            model.set_weights([np.zeros_like(w) for w in model.get_weights()])
            model.load_weights(tmp_path / f"{other}.{end}")
            np.testing.assert_allclose(model.predict(x, verbose=0), wanted, 0, 1e-5)

    # With Keras's layers, in a process without opwright.
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "wanted.npy", wanted)
    done = run_code(f"""
import keras, numpy as np, sys
known = {{"opwright>LSTM": keras.layers.LSTM, "opwright>GRU": keras.layers.GRU}}
file = {str(tmp_path / "ours.keras")!r}
model = keras.models.load_model(file, custom_objects=known)
found = model.predict(np.load({str(tmp_path / "x.npy")!r}), verbose=0)
np.testing.assert_allclose(found, np.load({str(tmp_path / "wanted.npy")!r}), 0, 1e-5)
assert not any(name.startswith("opwright") for name in sys.modules)
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.rotating
def test_keras_layers_export_matches_predict(tmp_path: Path) -> None:
    x, _ = words(np.random.default_rng(0))
    model = classifier(opwright.keras)
    wanted = model.predict(x, verbose=0)
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_allclose(
        served.serve(tf.constant(x, tf.float32)), wanted, 0, 1e-5
    )


WITHOUT = """
import warnings
import keras, numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from opwright.keras import GRU, LSTM
    model = keras.Sequential([LSTM(3, return_sequences=True), GRU(2)])
    assert model(np.ones((2, 4, 3), "float32")).shape == (2, 2)
said = [str(one.message) for one in caught if "opwright.keras" in str(one.message)]
assert len(said) == 1, said
print(said[0])
"""


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"OPWRIGHT_LIBRARY": "/nowhere.so"},
            "at /nowhere.so; install opwright's wheel",
        ),
        (
            {"KERAS_BACKEND": "torch"},
            "backend is torch; set KERAS_BACKEND to tensorflow",
        ),
    ],
)
def test_keras_layers_without_kernels_warn_and_run_those_of_keras(
    changes: dict[str, str], words: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the layers of opwright.keras run Keras's own implementation" in done.stdout
    assert re.search(words, done.stdout), done.stdout


def of_gradients(layer: Any, training: bool) -> Any:
    x = tf.random.normal([2, 5, 3])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(layer(x, training=training) ** 2)
        z = tf.reduce_sum(inner.gradient(y, x) ** 2)
    return outer.gradient(z, x)


@pytest.mark.rotating
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [False, True])
def test_gradient_of_a_gradient_needs_use_cudnn_false_as_its_error_says(
    training: bool, kind: str
) -> None:
    layer = getattr(opwright.keras, kind)(4)
    words = "CudnnRNNBackpropV3: .* no gradient itself.* use_cudnn=False.*to_plain"
    with pytest.raises(opwright.OpGradientError, match=words):
        of_gradients(layer, training)
    plain = getattr(opwright.keras, kind)(4, use_cudnn=False)
    assert np.any(of_gradients(plain, training))


def test_gradient_of_a_gradient_in_a_graph_says_what_to_do() -> None:
    layer = opwright.keras.GRU(4)

    def twice(x: tf.Tensor) -> tf.Tensor:
        first = tf.gradients(layer(x, training=True), x)[0]
        return tf.gradients(first, x)[0]

    words = "CudnnRNNBackpropV3: .* no gradient itself.* use_cudnn=False.*to_plain"
    with pytest.raises(opwright.OpGradientError, match=words):
        tf.function(twice, autograph=False)(tf.ones([2, 5, 3]))


@pytest.mark.rotating
def test_forward_mode_of_a_layer_needs_use_cudnn_false_as_its_error_says() -> None:
    x = tf.random.normal([2, 5, 3])
    layer, plain = opwright.keras.LSTM(4), opwright.keras.LSTM(4, use_cudnn=False)
    words = "(?s)LSTM.call.*forward-mode differentiation.* use_cudnn=False"
    with (
        tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)),
        pytest.raises(opwright.OpGradientError, match=words),
    ):
        layer(x, training=True)
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
        y = plain(x, training=True)
    assert np.any(accumulator.jvp(y))


def test_opwright_keras_is_imported_at_first_use() -> None:
    program = """
import sys
import opwright
assert "keras" in dir(opwright)
assert "opwright_runtime.rnn.keras_layers" not in sys.modules
assert opwright.keras.LSTM.__module__ == "opwright.keras"
import keras
assert issubclass(opwright.keras.LSTM, keras.layers.LSTM)
assert {"GRU", "LSTM", "SimpleRNN"} < set(opwright.keras.__all__)
"""
    done = run_code(program)
    assert done.returncode == 0, done.stderr
