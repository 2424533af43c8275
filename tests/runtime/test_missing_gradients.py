"""An op without a gradient: the error says what to do, and one may come later."""

from __future__ import annotations

import pytest
import tensorflow as tf

import opwright
from opwright import Scope, op_class
from opwright.math import segment_sum_v2
from opwright.nn import gru_block_cell
from support.processes import run_code

X = tf.constant([[0.5, 1.0]])
OTHERS = (
    tf.zeros([1, 3]),
    tf.ones([5, 6]),
    tf.ones([5, 3]),
    tf.zeros([6]),
    tf.zeros([3]),
)
WORDS = (
    r"GRUBlockCell: TensorFlow registers no gradient of it; GRUBlockCellGrad computes"
    r" it\. .*tf\.custom_gradient, .*tf\.RegisterGradient\('GRUBlockCell'\)"
)


def cell(x: tf.Tensor) -> tf.Tensor:
    return gru_block_cell(x, *OTHERS).h


def created(x: tf.Tensor) -> tf.Tensor:
    return op_class("GRUBlockCell").create(Scope.current(), x, *OTHERS).h


def on_tape(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


CALLS = {
    "eager": lambda: on_tape(cell, X),
    "create": lambda: on_tape(created, X),
    "converted": lambda: on_tape(lambda x: cell([x[0]]), X),
    "function": lambda: on_tape(tf.function(cell), X),
    "tape in a function": lambda: tf.function(lambda x: on_tape(cell, x))(X),
    "loop in a function": lambda: on_tape(
        tf.function(lambda x: tf.while_loop(lambda i, _: i < 2, looped, [0, x])[1]), X
    ),
}


def looped(i, x):
    return i + 1, x + tf.reduce_sum(cell(x))


@pytest.mark.parametrize("call", CALLS)
def test_gradient_of_an_op_without_one_says_what_to_do(call):
    with pytest.raises(opwright.OpError, match=WORDS) as raised:
        CALLS[call]()
    assert isinstance(raised.value, LookupError)
    assert raised.value.op == "GRUBlockCell"


def test_gradient_in_a_graph_of_an_op_without_one_says_what_to_do():
    with tf.Graph().as_default():
        x = tf.constant([[0.5, 1.0]])
        others = [tf.constant(one.numpy()) for one in OTHERS]
        y = gru_block_cell(x, *others).h
        with pytest.raises(opwright.OpGradientError, match=WORDS):
            tf.gradients(y, x)
        with pytest.raises(opwright.OpGradientError, match=WORDS):
            tf.gradients(y, x)


def test_gradient_of_an_op_names_the_version_that_has_one():
    data = tf.constant([[1.0], [2.0]])
    with pytest.raises(opwright.OpGradientError, match="; SegmentSum has one") as one:
        on_tape(tf.function(lambda x: segment_sum_v2(x, [0, 1], 2)), data)
    assert one.value.allowed == ("SegmentSum",)


def test_gradient_that_raises_a_lookup_error_of_its_own_passes_it_on():
    @tf.custom_gradient
    def double(x):
        def gradient(_):
            return {}["missing"]

        return 2 * x, gradient

    with pytest.raises(KeyError, match="missing") as raised:
        on_tape(double, X)
    assert not isinstance(raised.value, opwright.OpError)


@pytest.mark.slow  # In a process with TensorFlow.
def test_gradient_registered_after_the_call_is_used():
    code = """
import tensorflow as tf
from opwright.nn import gru_block_cell
x = tf.constant([[0.5, 1.0]])
kernels = tf.ones([5, 6]), tf.ones([5, 3])
others = (tf.zeros([1, 3]), *kernels, tf.zeros([6]), tf.zeros([3]))
with tf.GradientTape() as tape:
    tape.watch(x)
    y = gru_block_cell(x, *others).h
graph = tf.Graph()
with graph.as_default():
    u = tf.constant([[0.5, 1.0]])
    v = gru_block_cell(u, *[tf.constant(one.numpy()) for one in others]).h
    w = tf.constant([[0.5, 1.0]])
    with graph.gradient_override_map({"GRUBlockCell": "Triple"}):
        z = gru_block_cell(w, *[tf.constant(one.numpy()) for one in others]).h
@tf.RegisterGradient("GRUBlockCell")
def gradient(op, *gradients):
    return [7 * tf.ones_like(op.inputs[0])] + [None] * 5
@tf.RegisterGradient("Triple")
def triple(op, *gradients):
    return [3 * tf.ones_like(op.inputs[0])] + [None] * 5
print(tape.gradient(y, x).numpy().tolist())
with graph.as_default(), tf.compat.v1.Session() as session:
    print(session.run(tf.gradients(v, u) + tf.gradients(z, w)))
"""
    done = run_code(code)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert rows[0] == "[[7.0, 7.0]]"
    assert "[[7., 7.]]" in rows[1] and "[[3., 3.]]" in rows[1]
