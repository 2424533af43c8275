"""A bad call is an InvalidArgument that names the argument, eagerly and in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rnn.support.bad_calls import BACKWARD, FORWARD, backward, call, floats, forward
from support.processes import run_code


@pytest.mark.parametrize(("argument", "changes"), FORWARD)
def test_cudnn_rnn_v3_bad_argument_is_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(forward(**changes))
    assert f"{argument}: " in raised.value.message or "rank" in raised.value.message
    arrays = {k: v for k, v in forward(**changes).items() if isinstance(v, np.ndarray)}
    rest = {k: v for k, v in changes.items() if k not in arrays}
    unknown = [tf.TensorSpec(None, tf.as_dtype(v.dtype)) for v in arrays.values()]

    @tf.function(input_signature=unknown, autograph=False)
    def graph(*given: tf.Tensor) -> Any:
        return call({**dict(zip(arrays, given, strict=True)), **rest})

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        graph(*arrays.values())
    assert f"{argument}: " in raised.value.message


def test_cudnn_rnn_v3_states_of_another_layout_are_refused_with_theirs() -> None:
    states = np.zeros([2, 6, 5], np.float32)  # As with time_major=True.
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"input_h: .*time_major=False.*\[batch, layers \* directions, units\]",
    ):
        tf.raw_ops.CudnnRNNV3(
            input=np.zeros([6, 12, 3], np.float32),
            input_h=states,
            input_c=states,
            params=np.zeros([1000], np.float32),
            sequence_lengths=[12] * 6,
            direction="bidirectional",
            time_major=False,
        )


HUGE = """
import sys
import numpy as np
import tensorflow as tf
import opwright

version, major, way = sys.argv[1], sys.argv[2] == "major", sys.argv[3]
state = [2**62, 0, 4] if major else [0, 2**62, 4]
for h, c in ((state, state), (state, [1, 2, 4]), ([1, 2, 4], state)):
    given = {
        "input": tf.ones([3, 2, 4]), "input_h": tf.zeros(h), "input_c": tf.zeros(c),
        "params": tf.zeros([10000]),
    }
    more = {}
    if version == "V3":
        given["sequence_lengths"] = tf.constant([3, 3])
        more = {"time_major": major, "num_proj": 0 if h == c else 4}
    op = getattr(tf.raw_ops, "CudnnRNN" + version.replace("V1", ""))
    call = lambda **given: op(**given, **more)
    if way != "eager":
        call = tf.function(call, jit_compile=way == "compiled", autograph=False)
        if way == "graph":
            call = call.get_concrete_function(
                **{k: tf.TensorSpec(None, v.dtype) for k, v in given.items()}
            )
    try:
        call(**given)
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        print(str(error)[:200])
    except tf.errors.InternalError as error:
        # XLA's own arithmetic on shapes, before the kernel sees them.
        assert way == "compiled" and "overflow in static extent" in error.message
    else:
        sys.exit("taken")
"""


@pytest.mark.rotating
@pytest.mark.parametrize("way", ["eager", "graph", "compiled"])
@pytest.mark.parametrize(
    ("version", "layout"),
    [("V1", "major"), ("V2", "major"), ("V3", "major"), ("V3", "batch")],
)
def test_cudnn_rnn_empty_state_with_huge_dimension_is_refused(
    version: str, layout: str, way: str
) -> None:
    """No shape is made of such dimensions: TensorFlow would end the process."""
    done = run_code(HUGE, version, layout, way)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(("argument", "changes"), BACKWARD)
def test_cudnn_rnn_backprop_v3_bad_argument_is_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    arguments = backward()
    reserve = arguments["reserve_space"]
    for name, change in changes.items():
        arguments[name] = change(reserve) if callable(change) else change
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        tf.raw_ops.CudnnRNNBackpropV3(**arguments)
    assert f"{argument}: " in raised.value.message


BIG = 2**31 - 1


@pytest.mark.parametrize(
    ("argument", "sizes"),
    [
        ("num_layers", (0, 1, 1)),
        ("num_layers", (-1, 1, 1)),
        ("num_units", (1, 0, 1)),
        ("input_size", (1, 1, -5)),
        ("num_units", (1, BIG, BIG)),
        ("num_units", (BIG, BIG, BIG)),
        ("num_units", (BIG, 1, 1)),
        ("num_units", (1, 60000, 1)),
        ("num_layers", ([1], 1, 1)),
        ("input_size", (1, 1, [[1]])),
    ],
)
def test_cudnn_rnn_params_size_bad_sizes_are_refused(
    argument: str, sizes: tuple[Any, Any, Any]
) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        tf.raw_ops.CudnnRNNParamsSize(
            num_layers=sizes[0],
            num_units=sizes[1],
            input_size=sizes[2],
            T=tf.float32,
            S=tf.int32,
        )
    assert f"{argument}: " in raised.value.message or "rank" in raised.value.message


@pytest.mark.parametrize(
    ("argument", "sizes", "count", "size"),
    [
        ("num_params", (1, 2, 3), 7, 64),
        ("num_params", (BIG, 2, 3), 8, 64),
        ("num_layers", (0, 2, 3), 8, 64),
        ("params", (1, 2, 3), 8, 55),
    ],
)
def test_cudnn_rnn_params_to_canonical_bad_argument_is_refused(
    argument: str, sizes: tuple[int, int, int], count: int, size: int
) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        tf.raw_ops.CudnnRNNParamsToCanonical(
            num_layers=sizes[0],
            num_units=sizes[1],
            input_size=sizes[2],
            params=floats(size),
            num_params=count,
        )
    assert f"{argument}: " in raised.value.message


def test_cudnn_rnn_canonical_to_params_bad_weights_are_refused() -> None:
    weights = [floats(2, 3)] * 4 + [floats(2, 2)] * 3 + [floats(3, 2)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"weights\[7\]: "):
        tf.raw_ops.CudnnRNNCanonicalToParams(
            num_layers=1,
            num_units=2,
            input_size=3,
            weights=weights,
            biases=[floats(2)] * 8,
        )
