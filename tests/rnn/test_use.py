"""The kernels in graphs, SavedModels and sessions, by older ops and many callers."""

from __future__ import annotations

import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import Scope
from opwright.nn import CudnnRNN, CudnnRNNV2, CudnnRNNV3, cudnn_rnn_v3
from rnn.support.cases import (
    DTYPES,
    MODES,
    Case,
    draw_values,
    error,
    expect,
    with_lengths,
)
from support.processes import run_code, run_program

CASE = Case("lstm", tf.float32, layers=2, units=9, input_size=5, time=6, batch=4)


@pytest.mark.parametrize("op", [CudnnRNN, CudnnRNNV2, CudnnRNNV3])
def test_cudnn_rnn_versions_in_eager_mode_and_graph_match_reference(op: type) -> None:
    inputs, gradients = draw_values(CASE)
    expected = expect(CASE, inputs, gradients)

    def step(*given: tf.Tensor) -> list[tf.Tensor]:
        more = [[CASE.time] * CASE.batch] if op is CudnnRNNV3 else []
        with tf.GradientTape() as tape:
            tape.watch(given)
            rnn = op.create(Scope.current(), *given, *more, op.Options(rnn_mode="lstm"))
            outputs = [rnn.output, rnn.output_h, rnn.output_c]
        if op is CudnnRNNV2:
            assert rnn.host_reserved.shape.is_compatible_with([2])
        back = [gradients.input, gradients.input_h, gradients.input_c]
        return [*outputs, *tape.gradient(outputs, given, back)]

    given = [inputs.input, inputs.input_h, inputs.input_c, inputs.params]
    names = ["output", "output_h", "output_c"]
    names += [
        "input_backprop",
        "input_h_backprop",
        "input_c_backprop",
        "params_backprop",
    ]
    for run in (step, tf.function(step, autograph=False)):
        for name, found in zip(names, run(*given), strict=True):
            assert error(found, expected[name]) <= 1e-5, name


def test_cudnn_rnn_v3_in_session_matches_reference() -> None:
    inputs, gradients = draw_values(CASE)
    expected = expect(CASE, inputs, gradients)
    with tf.Graph().as_default():
        given = [tf.constant(t.numpy()) for t in vars(inputs).values()]
        rnn = cudnn_rnn_v3(*given, [CASE.time] * CASE.batch)
        outputs = [rnn.output, rnn.output_h, rnn.output_c]
        back = [
            tf.constant(t.numpy())
            for t in (gradients.input, gradients.input_h, gradients.input_c)
        ]
        made = tf.gradients(outputs, given, back)
        with tf.compat.v1.Session() as session:
            found = session.run([rnn.output, *made])
    names = ["output", "input_backprop", "input_h_backprop", "input_c_backprop"]
    for name, value in zip([*names, "params_backprop"], found, strict=True):
        assert error(value, expected[name]) <= 1e-5, name


def test_cudnn_rnn_v3_saved_model_runs_after_the_import(tmp_path: Path) -> None:
    inputs, gradients = draw_values(CASE)
    module = tf.Module()
    module.params = tf.Variable(inputs.params)

    @tf.function(input_signature=[tf.TensorSpec([None, None, CASE.input_size])])
    def serve(x: tf.Tensor) -> tf.Tensor:
        states = tf.zeros([CASE.layers, tf.shape(x)[1], CASE.units])
        lengths = tf.fill([tf.shape(x)[1]], tf.shape(x)[0])
        return tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=states,
            input_c=states,
            params=module.params,
            sequence_lengths=lengths,
            is_training=False,
        )[0]

    module.serve = serve
    tf.saved_model.save(module, str(tmp_path / "model"))
    np.save(tmp_path / "x.npy", inputs.input.numpy())
    program = """
        import sys
        import numpy as np
        import tensorflow as tf
        import opwright

        model = tf.saved_model.load(sys.argv[1] + "/model")
        x = tf.constant(np.load(sys.argv[1] + "/x.npy"))
        np.save(sys.argv[1] + "/y.npy", model.serve(x))
    """
    done = run_code(textwrap.dedent(program), tmp_path)
    assert done.returncode == 0, done.stderr
    zeros = type(inputs)(
        inputs.input, 0 * inputs.input_h, 0 * inputs.input_c, inputs.params
    )
    expected = expect(CASE, zeros, gradients)["output"]
    assert error(np.load(tmp_path / "y.npy"), expected) <= 1e-5


@pytest.mark.parametrize("op", [CudnnRNN, CudnnRNNV2, CudnnRNNV3])
def test_cudnn_rnn_frozen_gpu_graph_runs_on_cpu(op: type) -> None:
    """Nodes in training mode, pinned to a GPU, with their weights in the graph."""
    inputs, gradients = draw_values(CASE)
    expected = expect(CASE, inputs, gradients)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, None, CASE.input_size], "x")
        with tf.device("/job:localhost/replica:0/task:0/device:GPU:0"):
            given = [tf.constant(t.numpy()) for t in list(vars(inputs).values())[1:]]
            more = [[CASE.time] * CASE.batch] if op is CudnnRNNV3 else []
            rnn = op.create(Scope.current(), x, *given, *more)
            tf.identity(rnn.output, "y")
    frozen = graph.as_graph_def().SerializeToString()

    def load() -> tf.compat.v1.GraphDef:
        return tf.compat.v1.GraphDef.FromString(frozen)

    def serve(graph_def: tf.compat.v1.GraphDef, soft: bool) -> list[Any]:
        with tf.Graph().as_default():
            x, y = tf.import_graph_def(graph_def, return_elements=["x:0", "y:0"])
            dx = tf.gradients(y, x, gradients.input.numpy())
            config = tf.compat.v1.ConfigProto(allow_soft_placement=soft)
            with tf.compat.v1.Session(config=config) as session:
                return session.run([y, *dx], {x: inputs.input.numpy()})

    assert all("GPU:0" in n.device for n in load().node if n.op.startswith("Cudnn"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="GPU:0"):
        serve(load(), soft=False)
    anywhere = load()
    for node in anywhere.node:
        node.device = ""
    first = serve(load(), soft=True)
    assert error(first[0], expected["output"]) <= 1e-5
    for again, wanted in zip(serve(anywhere, soft=False), first, strict=True):
        np.testing.assert_array_equal(again, wanted)


def test_cudnn_rnn_v3_concurrent_calls_match_reference() -> None:
    """More threads than cores, each with its own case; and the workers of tf.data."""
    made = [
        Case("gru", tf.float32, units=40 + i, input_size=32, time=25, batch=20, seed=i)
        for i in range(8)
    ]
    drawn = [draw_values(case) for case in made]
    expected = [expect(case, *values) for case, values in zip(made, drawn, strict=True)]

    def call(i: int) -> None:
        case, (inputs, gradients) = made[i % 8], drawn[i % 8]
        given = [inputs.input, inputs.input_h, inputs.params]
        with tf.GradientTape() as tape:
            tape.watch(given)
            y = cudnn_rnn_v3(
                given[0],
                given[1],
                0.0,
                given[2],
                [case.time] * case.batch,
                rnn_mode="gru",
            ).output
        tape.gradient(y, given, gradients.input)
        assert error(y, expected[i % 8]["output"]) <= 1e-5

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(call, range(96)))

    case, (inputs, _) = made[0], drawn[0]

    def forward(scale: tf.Tensor) -> tf.Tensor:
        return cudnn_rnn_v3(
            inputs.input * scale,
            inputs.input_h,
            0.0,
            inputs.params,
            [case.time] * case.batch,
            rnn_mode="gru",
        ).output

    data = tf.data.Dataset.from_tensors(1.0).repeat(64)
    for y in data.map(forward, num_parallel_calls=16):
        assert error(y, expected[0]["output"]) <= 1e-5


@pytest.mark.rotating
@pytest.mark.parametrize(("intra", "inter"), [(1, 16), (4, 1), (16, 16)])
def test_cudnn_rnn_concurrent_sessions_finish(intra: int, inter: int) -> None:
    """Sessions, independent nodes and tf.data give right results without deadlock."""
    done = run_program("rnn.support.crowd", str(intra), str(inter), timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_cudnn_rnn_v3_reserve_space_is_finite(mode: str, dtype: tf.DType) -> None:
    """enable_check_numerics finds no NaN or infinity in the reserve."""
    reserves: list[tf.Tensor] = []

    def step(seed: int, compiled: bool) -> None:
        case = Case(mode, dtype, layers=2, units=2 + seed % 3, bidirectional=True)
        inputs, _ = draw_values(with_lengths(case))
        given = [inputs.input, inputs.input_h, inputs.input_c, inputs.params]
        if mode != "lstm":
            given[2] = tf.zeros([], dtype)

        def forward() -> tf.Tensor:
            return cudnn_rnn_v3(
                *given,
                case.lengths or [case.time] * case.batch,
                dropout=0.5,
                seed=seed,
                rnn_mode=mode,
                direction="bidirectional",
            ).reserve_space

        if compiled:
            forward = tf.function(forward, jit_compile=True, autograph=False)
        reserves.append(forward())

    # It fails on every bfloat16 scalar in eager mode.
    if dtype != tf.bfloat16:
        tf.debugging.enable_check_numerics()
    try:
        for seed in range(12):
            step(seed, compiled=False)
    finally:
        tf.debugging.disable_check_numerics()
    step(0, compiled=True)
    for reserve in reserves:
        assert np.isfinite(tf.cast(reserve, tf.float64)).all()
