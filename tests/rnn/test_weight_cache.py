"""Inference keeps packed weights between calls, and packs changed weights again."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from opwright.nn import cudnn_rnn_v3
from opwright_runtime import native
from rnn.support.cases import DTYPES, MODES, Case, draw_values
from support.processes import Done, run_code

CASE = Case("lstm", tf.float32, layers=2, units=20, input_size=9, time=4, batch=3)


def forward(
    case: Case, params: object, training: bool, seed: int = 0
) -> list[np.ndarray]:
    """A seed that no other test has makes a kernel with an empty cache."""
    inputs, _ = draw_values(case)
    lengths = [case.time] * case.batch
    rnn = cudnn_rnn_v3(
        inputs.input,
        inputs.input_h,
        inputs.input_c if case.mode == "lstm" else 0.0,
        params,
        lengths,
        is_training=training,
        rnn_mode=case.mode,
        seed=seed,
    )
    return [output.numpy() for output in (rnn.output, rnn.output_h, rnn.output_c)]


def agree(case: Case, params: object) -> None:
    """Inference matches training, which packs the weights in each call."""
    for kept, packed in zip(
        forward(case, params, False), forward(case, params, True), strict=True
    ):
        np.testing.assert_array_equal(kept, packed)


@pytest.mark.rotating
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
def test_weight_cache_changed_variable_is_packed_again(
    isa: str, mode: str, dtype: tf.DType
) -> None:
    case = Case(mode, dtype, layers=2, units=20, input_size=9, time=4, batch=3)
    params = tf.Variable(draw_values(case)[0].params)
    rng = np.random.default_rng(0)
    agree(case, params)
    before = forward(case, params, False)
    params.assign_add(tf.ones_like(params))
    agree(case, params)
    assert np.any(forward(case, params, False)[0] != before[0])
    # One value; its sign; two signs at distances at which lanes of vectors meet again.
    for distance in (None, 1, 8, 16, 32, 64, 128):
        values = params.numpy()
        at = int(rng.integers(values.size - 128))
        values[at] = -values[at]
        if distance:
            values[at + distance] = -values[at + distance]
        params.assign(values)
        agree(case, params)


@pytest.mark.parametrize("stride", [64, 128, 256])
def test_weight_cache_changes_that_cancel_in_a_lane_are_found(
    isa: str, stride: int
) -> None:
    """Two floats, as far apart as a loop over vectors steps in bytes.

    A word with another sign, times an odd number, differs in its sign alone; shifted by
    29 bits and added, in bit 34 too. The next word of the lane can take both back.
    """
    params = tf.Variable(draw_values(CASE)[0].params)
    before = forward(CASE, params, False)
    raw = params.numpy()
    bits = raw.view(np.uint32)
    at = 2 * 40 + 1  # The upper half of a word.
    bits[at] ^= 1 << 31
    bits[at + stride // 4] ^= 1 << 31 | 1 << 2
    params.assign(raw)
    agree(CASE, params)
    assert np.any(forward(CASE, params, False)[0] != before[0])


def test_weight_cache_memory_changed_outside_tensorflow_is_found() -> None:
    values = draw_values(CASE)[0].params.numpy().copy()
    params = tf.experimental.dlpack.from_dlpack(values.__dlpack__())
    agree(CASE, params)
    before = forward(CASE, params, False)
    values *= 2
    agree(CASE, params)
    assert np.any(forward(CASE, params, False)[0] != before[0])


def test_weight_cache_layers_sharing_a_kernel_keep_their_weights() -> None:
    params = [draw_values(CASE)[0].params * scale for scale in np.linspace(0.5, 1, 7)]
    expected = [forward(CASE, one, True) for one in params]

    def call(i: int) -> None:
        for found, right in zip(
            forward(CASE, params[i % 7], False), expected[i % 7], strict=True
        ):
            np.testing.assert_array_equal(found, right)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(280)))


@pytest.fixture
def limit() -> Iterator[int]:
    """A small limit, with an empty cache."""
    before = native.weight_cache_usage().limit
    native.set_weight_cache_limit(0)
    native.set_weight_cache_limit(LIMIT)
    yield LIMIT
    native.set_weight_cache_limit(before)


LIMIT = 8 << 20


@pytest.mark.rotating
def test_weight_cache_limit_holds_for_all_kernels(limit: int) -> None:
    """Each seed makes a kernel of its own, with its own parameters."""
    most = 0
    size = draw_values(CASE)[0].params.shape
    for seed in range(1200):
        inputs, _ = draw_values(CASE)
        cudnn_rnn_v3(
            inputs.input,
            inputs.input_h,
            inputs.input_c,
            tf.random.normal(size),
            [CASE.time] * CASE.batch,
            is_training=False,
            seed=seed,
        )
        kept = native.weight_cache_usage()
        assert kept.bytes <= limit
        most = max(most, kept.entries)
    assert 10 < most < 1200  # Some were kept, some had to go.
    native.set_weight_cache_limit(0)
    assert native.weight_cache_usage() == (0, 0, 0)
    agree(CASE, draw_values(CASE)[0].params)


def test_weight_cache_limit_out_of_range_is_refused() -> None:
    for wrong in (-1, 2**63):
        with pytest.raises(ValueError, match="a limit must lie between"):
            native.set_weight_cache_limit(wrong)


def memory_of(variable: tf.Variable) -> int:
    """The address of its values, whose memory a read value shares."""
    return int(np.asarray(memoryview(variable.read_value())).ctypes.data)


def test_weight_cache_changed_weights_leave_one_entry(limit: int) -> None:
    """The work of a call does not grow with the changes of a variable."""
    params = tf.Variable(draw_values(CASE)[0].params)
    params.assign_add(tf.ones_like(params))  # Into memory of its own.
    forward(CASE, params, False, seed=166)
    assert native.weight_cache_usage().entries == 1
    places = {memory_of(params)}
    for _ in range(400):
        params.assign_add(tf.fill(params.shape, 1e-4))
        forward(CASE, params, False, seed=166)
        # TensorFlow sometimes moves a variable to new memory.
        places.add(memory_of(params))
        assert native.weight_cache_usage().entries <= min(16, len(places))
    # Tensors with memory of their own fill the cache of a kernel, which has 16 entries.
    many = [params + i for i in range(40)]
    for one in many:
        forward(CASE, one, False, seed=166)
        assert native.weight_cache_usage().entries <= 16
    params.assign(many[-1] * 2)
    agree(CASE, params)


def test_weight_cache_closed_session_frees_entries(limit: int) -> None:
    inputs, _ = draw_values(CASE)
    with tf.Graph().as_default():
        for seed in range(5):
            cudnn_rnn_v3(
                inputs.input.numpy(),
                inputs.input_h.numpy(),
                inputs.input_c.numpy(),
                inputs.params.numpy(),
                [CASE.time] * CASE.batch,
                is_training=False,
                seed=seed,
            )
        fetched = tf.compat.v1.get_default_graph().get_operations()
        outputs = [one.outputs[0] for one in fetched if one.type == "CudnnRNNV3"]
        options = tf.compat.v1.ConfigProto()
        options.graph_options.optimizer_options.opt_level = -1
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.compat.v1.Session(config=options) as session:
            session.run(outputs)
            assert native.weight_cache_usage().entries == 5
        del session
    gc.collect()
    assert native.weight_cache_usage().entries == 0


RESIDENT = """
import json
import os
import tensorflow as tf
from opwright.nn import cudnn_rnn_params_size, cudnn_rnn_v3
from opwright_runtime import native

LAYERS, UNITS, STEPS = 6, 256, 3
size = cudnn_rnn_params_size(1, UNITS, UNITS, tf.float32, tf.int32)
x, h = tf.ones([STEPS, 2, UNITS]), tf.zeros([1, 2, UNITS])

def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20

def layer(y, params, seed=0, training=False):
    return cudnn_rnn_v3(
        y, h, h, params, [STEPS, STEPS], is_training=training, seed=seed
    ).output

def sets(count):
    for seed in range(count):
        layer(x, tf.random.normal(size), seed=seed)

variables = [tf.Variable(tf.random.normal(size) * 0.05) for _ in range(LAYERS)]

def model(training, scale=1.0):
    y = x * scale
    for params in variables:
        y = layer(y, params, training=training)
    return y

evaluate = tf.function(lambda: tf.reduce_sum(model(False)))
predict = tf.function(lambda: model(False, 0.5))

@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(True))
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(gradient * 1e-4)

def epochs(count):
    for _ in range(count):
        train(), evaluate(), predict()

weights = [tf.random.normal(size) for _ in range(40)]
nodes = tf.function(lambda: [layer(x, one, seed=i) for i, one in enumerate(weights)])

found = {}
native.set_weight_cache_limit(64 << 20)
for name, work, first, rest in (
    ("sets of weights", sets, 100, 900),
    ("epochs", epochs, 3, 30),
    ("nodes", lambda count: [nodes() for _ in range(count)], 1, 5),
):
    work(first)
    before = resident()
    work(rest)
    found[name] = [before, resident(), native.weight_cache_usage().bytes >> 20]
print(json.dumps(found))
"""


@pytest.mark.endurance
def test_weight_cache_resident_memory_stays_level() -> None:
    """After 1,000 sets of weights of 2 MiB, 30 epochs of 6 layers and 40 nodes."""
    done = run_code(RESIDENT)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, (before, after, kept) in json.loads(done.stdout).items():
        print(f"{name}: {before} MiB, then {after} MiB; {kept} MiB of packed weights")
        assert kept <= 64
        assert after - before < 64, name


@pytest.mark.rotating
def test_weight_cache_limit_from_environment_is_checked() -> None:
    def run(value: str) -> Done:
        program = (
            "from opwright_runtime import native; print(native.weight_cache_usage())"
        )
        return run_code(program, OPWRIGHT_WEIGHT_CACHE_BYTES=value)

    assert "limit=12345)" in run("12345").stdout
    wrong = run("64 MiB")
    assert wrong.returncode != 0
    assert "OPWRIGHT_WEIGHT_CACHE_BYTES must be a number of bytes" in wrong.stderr
