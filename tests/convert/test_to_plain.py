"""to_plain: SavedModels, functions and graphs without ops of cuDNN or opwright."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright.keras
from convert.support.models import (
    BODIES,
    barred,
    ops_of,
    recurrent,
    saved_on_a_gpu,
    text_model,
    write_frozen,
)
from opwright.convert import ConvertError, to_plain
from opwright.nn import (
    cudnn_rnn_canonical_to_params,
    cudnn_rnn_params_to_canonical,
    cudnn_rnn_v3,
)
from support.processes import run_code
from support.tiers import part_of

UNITS, INPUTS, SIZE = 3, 2, 84
X = np.random.default_rng(0).standard_normal((5, 2, INPUTS)).astype("float32")


def model(function: Any, *, compiled: bool = False) -> Any:
    """A module that serves `function(x, params)`."""
    module: Any = tf.Module()
    module.params = tf.Variable(tf.random.stateless_normal([SIZE], [1, 2]))
    module.serve = tf.function(
        lambda x: function(x, module.params),
        input_signature=[tf.TensorSpec([None, None, INPUTS], name="x")],
        jit_compile=compiled or None,
        autograph=False,
    )
    return module


def save(module: Any, folder: Path) -> Path:
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return folder


def check_same(module: Any, tmp_path: Path) -> Any:
    """Converts and loads a model, and holds its numbers against the source."""
    to_plain(save(module, tmp_path / "source"), tmp_path / "plain")
    assert not barred(ops_of(tmp_path / "plain"))
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    wanted, found = module.serve(X), loaded.serve(X)
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, atol=5e-6), wanted, found
    )
    return loaded


def test_to_plain_twice_writes_equal_graphs(tmp_path: Path) -> None:
    source = save(model(lambda x, params: recurrent(x, params)[0]), tmp_path / "source")
    graphs = []
    for name in ("first", "second"):
        to_plain(source, tmp_path / name, check=False)
        graphs.append((tmp_path / name / "saved_model.pb").read_bytes())
    assert graphs[0] == graphs[1]


def saved_with_opwright(folder: Path) -> None:
    text_model(opwright.keras).export(str(folder), verbose=False)


@pytest.mark.rotating
@pytest.mark.parametrize("write", [saved_on_a_gpu, saved_with_opwright])
def test_to_plain_result_serves_and_trains_without_opwright(
    write: Callable[[Path], Any], tmp_path: Path
) -> None:
    write(tmp_path / "source")
    to_plain(tmp_path / "source", tmp_path / "plain")
    words = np.array([[3, 1, 2, 0], [4, 5, 0, 0]], "int32")
    before = tf.saved_model.load(str(tmp_path / "source"))
    np.savez(tmp_path / "wanted.npz", words=words, y=before.serve(words))
    program = """
        import sys
        import numpy as np
        import tensorflow as tf

        # An import of them fails, as where they are not installed.
        sys.modules["opwright"] = sys.modules["opwright_runtime"] = None
        model = tf.saved_model.load(sys.argv[1] + "/plain")
        given = np.load(sys.argv[1] + "/wanted.npz")
        words = tf.constant(given["words"])
        np.testing.assert_allclose(model.serve(words), given["y"], atol=5e-6)
        (served,) = model.signatures["serving_default"](words=words).values()
        np.testing.assert_allclose(served, given["y"], atol=5e-6)
        losses = []
        for _ in range(8):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model.serve(words) - 1.0) ** 2)
            losses.append(float(loss))
            variables = model.trainable_variables
            for variable, gradient in zip(variables, tape.gradient(loss, variables)):
                assert gradient is not None, variable.name
                variable.assign_sub(0.3 * tf.convert_to_tensor(gradient))
        assert losses[-1] < 0.7 * losses[0], losses
        found = [name for name in sys.modules if name.startswith("opwright")]
        assert sorted(found) == ["opwright", "opwright_runtime"], found
    """
    done = run_code(textwrap.dedent(program), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.equivalence
@pytest.mark.parametrize("mask", [False, True])
def test_to_plain_of_opwright_keras_layers_keeps_their_gradient(
    mask: bool, tmp_path: Path
) -> None:
    made = text_model(opwright.keras, mask=mask)
    report = to_plain(made, tmp_path / "plain")
    assert {"OpwrightKerasRNN", "CudnnRNNBackpropV3"} <= {
        one.op for one in report.found
    }
    assert not barred(ops_of(tmp_path / "plain"))
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    words = tf.constant([[3, 1, 2, 0, 0, 0, 0], [4, 5, 0, 0, 0, 0, 0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(made(words) ** 2)
    wanted = tape.gradient(loss, made.trainable_variables)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loaded.serve(words) ** 2)
    found = tape.gradient(loss, loaded.trainable_variables)
    assert len(found) == len(wanted)
    for a, b in zip(wanted, found, strict=True):
        a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.rotating
@pytest.mark.parametrize("function", BODIES)
def test_to_plain_of_a_node_in_another_body_gives_equal_numbers(
    function: Any, tmp_path: Path
) -> None:
    check_same(model(function), tmp_path)


@pytest.mark.rotating
def test_to_plain_of_a_compiled_function_gives_equal_numbers(tmp_path: Path) -> None:
    check_same(model(lambda x, p: recurrent(x, p)[0], compiled=True), tmp_path)


@pytest.mark.rotating
def test_to_plain_of_a_training_step_gives_equal_gradients(tmp_path: Path) -> None:
    def step(x: Any, params: Any) -> Any:
        with tf.GradientTape() as tape:
            y, h, c, _, _ = recurrent(x, params)
            loss = tf.reduce_sum(y**2) + tf.reduce_sum(h * c)
        return {"loss": loss, "gradient": tape.gradient(loss, params)}

    check_same(model(step), tmp_path)


@pytest.mark.rotating
@pytest.mark.parametrize("mode", ["gru", "rnn_tanh"])
def test_to_plain_of_a_training_step_without_cell_states_gives_equal_gradients(
    mode: str, tmp_path: Path
) -> None:
    def step(x: Any, params: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(recurrent(x, params, rnn_mode=mode)[0] ** 2)
        return tape.gradient(loss, x)

    check_same(model(step), tmp_path)


@pytest.mark.rotating
@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_to_plain_of_a_large_fixed_batch_gives_equal_gradients(
    mode: str, tmp_path: Path
) -> None:
    """Such a batch has another loop."""
    batch, units, size = 33, 5, 4 if mode == "lstm" else 5
    lengths = tf.constant([number % 6 for number in range(batch)])
    module: Any = tf.Module()
    module.params = tf.Variable(tf.random.stateless_normal([360], [1, 2], stddev=0.4))

    def step(x: Any) -> Any:
        states = [tf.fill([2, batch, each], 0.3) for each in (size, units)]
        with tf.GradientTape() as tape:
            given = [x, *(states if mode == "lstm" else states[:1]), module.params]
            tape.watch(given)
            y, h, c, _, _ = cudnn_rnn_v3(
                x,
                states[0],
                states[1] if mode == "lstm" else tf.zeros([]),
                given[-1],
                lengths,
                rnn_mode=mode,
                direction="bidirectional",
                num_proj=size % units,
            )
            loss = tf.reduce_sum(y**2) + tf.reduce_sum(h) + 2 * tf.reduce_sum(c)
        return [y, h, c, *tape.gradient(loss, given)]

    spec = tf.TensorSpec([5, batch, INPUTS], name="x")
    module.serve = tf.function(step, input_signature=[spec], autograph=False)
    x = np.random.default_rng(1).standard_normal(spec.shape).astype("float32")
    tf.saved_model.save(module, str(tmp_path / "source"))
    to_plain(tmp_path / "source", tmp_path / "plain", check=False)
    assert not barred(ops_of(tmp_path / "plain"))
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    for wanted, found in zip(module.serve(x), loaded.serve(x), strict=True):
        scale = max(1.0, float(tf.reduce_max(tf.abs(wanted))))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-6 * scale)


def parameter_ops(layers: int, inputs: int, counts: Any, options: Any) -> Any:
    """A function that counts, unpacks and packs parameters."""
    sizes: dict[str, Any] = {"num_layers": layers, "input_size": inputs, **options}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], name="params"),
            tf.TensorSpec([], tf.int32),
        ]
    )
    def serve(params: Any, units: Any) -> Any:
        size = tf.raw_ops.CudnnRNNParamsSize(
            num_units=units, T=tf.float32, S=tf.int32, **sizes
        )
        parts = tf.raw_ops.CudnnRNNParamsToCanonicalV2(
            num_units=units,
            params=params,
            num_params_weights=counts[0],
            num_params_biases=counts[1],
            **sizes,
        )
        packed = tf.raw_ops.CudnnRNNCanonicalToParamsV2(
            num_units=units, weights=parts.weights, biases=parts.biases, **sizes
        )
        return {
            "size": size,
            "packed": packed,
            "matrix": parts.weights[-1],
            "bias": parts.biases[-1],
        }

    return serve


PACKED = itertools.product(
    ["linear_input", "skip_input", "auto_select"],
    ["unidirectional", "bidirectional"],
    [0, 2],
)


@pytest.mark.partial
@pytest.mark.parametrize(
    ("input_mode", "direction", "num_proj"), part_of(list(PACKED), 12)
)
def test_to_plain_of_parameter_ops_gives_equal_numbers(
    input_mode: str, direction: str, num_proj: int, tmp_path: Path
) -> None:
    layers, units, inputs = 2, 4, 4
    options = {
        "rnn_mode": "lstm",
        "input_mode": input_mode,
        "direction": direction,
        "num_proj": num_proj,
    }
    cells = layers * (2 if direction == "bidirectional" else 1)
    weights, biases = cells * (8 + (num_proj > 0)), cells * 8

    serve = parameter_ops(layers, inputs, (weights, biases), options)
    module: Any = tf.Module()
    module.serve = serve
    save(module, tmp_path / "source")
    size = int(serve(tf.range(1000, dtype=tf.float32), units)["size"][0])
    params = np.arange(size, dtype="float32")
    to_plain(
        tmp_path / "source",
        tmp_path / "plain",
        samples={"params": params, "units": np.int32(units)},
    )
    assert not barred(ops_of(tmp_path / "plain"))
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    wanted, found = serve(params, units), loaded.serve(params, units)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, name)
    np.testing.assert_array_equal(found["packed"], params)


def test_to_plain_keeps_assets_signatures_and_trainability(tmp_path: Path) -> None:
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("a\nb\n")
    module = model(lambda x, p: recurrent(x, p)[0])
    module.frozen = tf.Variable(1.0, trainable=False)
    module.words = tf.saved_model.Asset(str(vocabulary))
    names = {"one": module.serve, "two": module.serve.get_concrete_function()}
    tf.saved_model.save(module, str(tmp_path / "source"), signatures=names)
    to_plain(tmp_path / "source", tmp_path / "plain")
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    assert {*loaded.signatures} == {"one", "two"}
    assert loaded.params.trainable and not loaded.frozen.trainable
    assert Path(loaded.words.asset_path.numpy().decode()).read_text() == "a\nb\n"


def test_to_plain_of_a_function_writes_a_saved_model(tmp_path: Path) -> None:
    module = model(lambda x, p: recurrent(x, p)[0])
    to_plain(module.serve, tmp_path / "plain")
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    (found,) = loaded.signatures["serving_default"](x=tf.constant(X)).values()
    np.testing.assert_allclose(found, module.serve(X), atol=5e-6)


@pytest.mark.rotating
@pytest.mark.parametrize("as_file", [False, True])
def test_to_plain_of_a_frozen_graph_writes_a_graph(
    as_file: bool, tmp_path: Path
) -> None:
    graph = write_frozen(tmp_path / "frozen.pb")
    given = tmp_path / "frozen.pb" if as_file else graph
    to_plain(given, tmp_path / "plain.pb")
    written = tf.compat.v1.GraphDef()
    written.ParseFromString((tmp_path / "plain.pb").read_bytes())
    assert not barred({node.op for node in written.node})
    found = []
    for each in (graph, written):
        with tf.Graph().as_default() as made:
            tf.import_graph_def(each, name="")
            config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
            with tf.compat.v1.Session(graph=made, config=config) as session:
                found.append(session.run("y:0", {"x:0": X}))
    np.testing.assert_allclose(*found, atol=5e-6)


@pytest.mark.rotating
@pytest.mark.parametrize("as_text", [False, True])
def test_to_plain_of_a_checkpoint_and_meta_graph_reads_its_variables(
    as_text: bool, tmp_path: Path
) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, None, INPUTS], "x")
        values = np.linspace(-1, 1, SIZE, dtype="float32")
        params = tf.compat.v1.get_variable("p", initializer=values, use_resource=False)
        tf.identity(recurrent(x, params)[0], "y")
        saver = tf.compat.v1.train.Saver()
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            saver.save(session, str(tmp_path / "old"))
            wanted = session.run("y:0", {"x:0": X})
            if as_text:
                saver.export_meta_graph(str(tmp_path / "old.meta"), as_text=True)
    to_plain(tmp_path / "old.meta", tmp_path / "plain", outputs=["y"])
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    (found,) = loaded.signatures["serving_default"](x=tf.constant(X)).values()
    np.testing.assert_allclose(found, wanted, atol=5e-6)


@pytest.mark.rotating
def test_to_plain_lengths_past_the_steps_are_refused_when_it_runs(
    tmp_path: Path,
) -> None:
    def with_lengths(x: Any, params: Any) -> Any:
        states = tf.zeros([1, tf.shape(x)[1], UNITS])
        lengths = tf.cast(x[0, :, 0], tf.int32)
        return cudnn_rnn_v3(x, states, states, params, lengths, is_training=False)[0]

    to_plain(
        save(model(with_lengths), tmp_path / "source"),
        tmp_path / "plain",
        samples={"x": np.zeros((5, 2, INPUTS), "float32")},
    )
    loaded = tf.saved_model.load(str(tmp_path / "plain"))
    assert loaded.serve(tf.zeros([5, 2, INPUTS])).shape == (5, 2, UNITS)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must_lie_between_0"):
        loaded.serve(tf.fill([5, 2, INPUTS], 9.0))


def test_to_plain_of_a_model_that_is_plain_copies_it(tmp_path: Path) -> None:
    report = to_plain(
        save(model(lambda x, p: tf.reduce_sum(p) * x), tmp_path / "source"),
        tmp_path / "plain",
    )
    assert report.found == () and report.difference == 0
    assert "has no recurrent node" in report.notes[0]


def test_canonical_ops_are_those_that_the_models_use() -> None:
    """The reference of the parameter ops: packing is the inverse of unpacking."""
    params = tf.range(56, dtype=tf.float32)
    weights, biases = cudnn_rnn_params_to_canonical(1, 2, 3, params, 8)
    found = cudnn_rnn_canonical_to_params(1, 2, 3, weights, biases)
    np.testing.assert_array_equal(found, params)


def test_to_plain_onto_the_source_is_refused_and_keeps_it(
    tmp_path: Path,
) -> None:
    source = save(model(lambda x, p: recurrent(x, p)[0]), tmp_path / "source")
    before = {p: p.read_bytes() for p in source.rglob("*") if p.is_file()}
    to_plain(source, tmp_path / "plain")
    assert {p: p.read_bytes() for p in source.rglob("*") if p.is_file()} == before
    with pytest.raises(ConvertError, match="exists"):
        to_plain(source, source)
    assert {p: p.read_bytes() for p in source.rglob("*") if p.is_file()} == before
