"""Ops and what functions return, in the habits that people have with tensors.

Each habit is a program over `Value`s, two tensors that an op made; what it gives with
an op of a class, and with what a function returns, is what it gives with the tensor
that `tf.raw_ops` returns: eagerly, in a `tf.Graph` and in a `tf.function`.
"""

from __future__ import annotations

import copy
import operator
import pickle
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import OpInputError, Output, Scope
from opwright.linalg import MatMul, mat_mul
from opwright.math import AddV2, Square, add_v2, square
from opwright.nn import TopKV2, top_k_v2
from opwright_runtime.types import as_shape
from support.places import ROOT

X = [[1.0, 2.0], [3.0, 4.0]]


class Value(NamedTuple):
    """A way to make a square and a sum: a tensor each, or what is to pass for one."""

    square: Callable[[Any], Any]
    add: Callable[[Any, Any], Any]


RAW = Value(lambda x: tf.raw_ops.Square(x=x), lambda x, y: tf.raw_ops.AddV2(x=x, y=y))
KINDS = {
    "op": Value(
        lambda x: Square.create(Scope.current(), x),
        lambda x, y: AddV2.create(Scope.current(), x, y),
    ),
    "function": Value(square, add_v2),
}

Habit = Callable[[Value, Any], Any]


def autograph(make: Value, x: Any) -> Any:
    def body(x: Any) -> Any:
        i = make.square(tf.constant(1))
        while make.square(i) < 20:
            i = make.add(i, 1)
        if make.square(x)[0, 0] > 0:
            i = i + 100
        for row in make.square(x):
            i = i + tf.cast(row[0], tf.int32)
        return i

    return tf.function(body)(x)


def gradient(make: Value, x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = make.square(x)
    return tape.gradient(y, x)


def gradients(make: Value, x: Any) -> Any:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = make.square(x)
        z = make.square(y)
    given = tape.gradient(z, x, output_gradients=make.square(x))
    return [given, *tape.gradient([y, z], [x, y])]


def nested(make: Value, x: Any) -> Any:
    structure = {"a": make.square(x), "b": [make.square(x), x]}
    flat = tf.nest.flatten(structure, expand_composites=True)
    assert len(flat) == 3
    return tf.nest.map_structure(lambda one: one * 2, structure)


# Values alone say nothing of a tf.Graph's, which run later.
HABITS: dict[str, Habit] = {
    "add": lambda make, x: make.square(x) + 1,
    "add to": lambda make, x: 1 + make.square(x),
    "add to a tensor": lambda make, x: x + make.square(x),
    "add two": lambda make, x: make.square(x) + make.square(x),
    "subtract": lambda make, x: 1 - make.square(x) - x,
    "multiply": lambda make, x: make.square(x) * make.square(x),
    "divide": lambda make, x: 2 / make.square(x) / x,
    "divide to floors": lambda make, x: 7 // make.square(x) // 2,
    "remainder": lambda make, x: make.square(x) % 3,
    "power": lambda make, x: make.square(x) ** 2,
    "matmul": lambda make, x: make.square(x) @ make.square(x),
    "negate": lambda make, x: -make.square(x),
    "absolute": lambda make, x: abs(make.square(x)),
    "less": lambda make, x: make.square(x) < make.square(3.0),
    "greater or equal": lambda make, x: make.square(x) >= 9,
    "equal": lambda make, x: make.square(x) == 4,
    "not equal": lambda make, x: make.square(x) != make.square(x),
    "and, or, not": lambda make, x: ~((make.square(x) < 5) & (x > 1)) | (x > 9),
    "index": lambda make, x: make.square(x)[0],
    "slice": lambda make, x: make.square(x)[:, 1:],
    "index by": lambda make, x: x[make.square(tf.constant(1))],
    "unpack": lambda make, x: [row + 1 for row in tf.unstack(make.square(x))],
    "shape": lambda make, x: make.square(x).shape,
    "rank": lambda make, x: make.square(x).shape.rank,
    "dtype": lambda make, x: make.square(x).dtype,
    "ndim": lambda make, x: make.square(x).ndim,
    "tf function": lambda make, x: tf.reduce_sum(make.square(x), axis=0),
    "stack": lambda make, x: tf.stack([make.square(x), x]),
    "convert": lambda make, x: tf.convert_to_tensor(make.square(x)),
    "identity": lambda make, x: tf.identity(make.square(x)),
    "cast": lambda make, x: tf.cast(make.square(x), tf.int32),
    "raw op": lambda make, x: tf.raw_ops.AddV2(x=make.square(x), y=x),
    "is tensor": lambda make, x: tf.is_tensor(make.square(x)),
    "nest": nested,
    "cond": lambda make, x: tf.cond(
        make.square(x)[0, 0] > 5, lambda: make.square(x), lambda: make.add(x, 7.0)
    ),
    "where": lambda make, x: tf.where(make.square(x) > 5, make.square(x), x),
    "while loop": lambda make, x: tf.while_loop(
        lambda i: make.square(i) < 20, lambda i: (make.add(i, 1),), (tf.constant(1),)
    ),
    "map_fn": lambda make, x: tf.map_fn(make.square, make.square(x)),
    "scan": lambda make, x: tf.scan(make.add, make.square(x)),
    "numpy_function": lambda make, x: tf.numpy_function(
        lambda a: a + 1, [make.square(x)], tf.float32
    ),
    "argument of a tf.function": lambda make, x: tf.function(lambda y: y + 1)(
        make.square(x)
    ),
    "returned by a tf.function": lambda make, x: tf.function(
        lambda x: {"a": make.square(x), "b": [make.square(x)]}
    )(x),
    "autograph": autograph,
    "custom gradient": lambda make, x: tf.custom_gradient(
        lambda y: (make.square(y), lambda up: up * 7)
    )(x),
}
EAGER: dict[str, Habit] = {
    "truth": lambda make, x: [bool(make.square(0.0)), not make.square(2.0)],
    "while": lambda make, x: [i for i in range(9) if make.square(float(i)) < 20],
    "numbers": lambda make, x: [
        float(make.square(1.5)),
        int(make.square(3)),
        complex(make.square(1.0)),
        operator.index(make.square(2)),
        round(float(make.square(1.1)), 2),
    ],
    "format": lambda make, x: f"{make.square(1.5):.3f}",
    "numpy": lambda make, x: make.square(x).numpy(),
    "asarray": lambda make, x: np.asarray(make.square(x), np.float64),
    "numpy function": lambda make, x: np.sum(make.square(x)) + np.mean(make.square(x)),
    "numpy operand": lambda make, x: np.ones((2, 2), np.float32) + make.square(x),
    "dlpack": lambda make, x: np.from_dlpack(make.square(x)),
    "len": lambda make, x: len(make.square(x)),
    "iterate": lambda make, x: [row.numpy() for row in make.square(x)],
    "device": lambda make, x: make.square(x).device,
    "copy": lambda make, x: [
        copy.copy(make.square(x)) + 1,
        copy.deepcopy(make.square(x)) + 1,
    ],
    "pickle": lambda make, x: pickle.loads(pickle.dumps(make.square(x))) + 1,
    "hash": lambda make, x: _refused(lambda: hash(make.square(x))),
    "gradient": gradient,
    "gradients": gradients,
    "assign": lambda make, x: tf.Variable(x).assign(make.square(x)).numpy(),
    "variable": lambda make, x: tf.Variable(make.square(x)).numpy(),
    "spec": lambda make, x: tf.type_spec_from_value(make.square(x)),
    "assert": lambda make, x: tf.debugging.assert_equal(make.square(x), x * x),
    "data of": lambda make, x: [
        element.numpy()
        for element in tf.data.Dataset.from_tensor_slices(make.square(x))
    ],
    "data map": lambda make, x: [
        {name: value.numpy() for name, value in element.items()}
        for element in tf.data.Dataset.from_tensor_slices(x)
        .map(lambda row: {"a": make.square(row), "b": row})
        .batch(2)
    ],
    "data filter": lambda make, x: [
        row.numpy()
        for row in tf.data.Dataset.from_tensor_slices(x).filter(
            lambda row: make.square(row)[0] > 5
        )
    ],
    "keras ops": lambda make, x: keras.ops.add(make.square(x), 1),
    "jacobian": lambda make, x: _jacobian(make, x),
    "ragged": lambda make, x: tf.RaggedTensor.from_row_splits(
        make.square(x), [0, *make.square(tf.constant([1, 2]))[:0], 1, 2]
    ).to_tensor(),
    "vectorized_map": lambda make, x: tf.vectorized_map(make.square, make.square(x)),
    "compiled": lambda make, x: tf.function(make.square, jit_compile=True)(x),
}


def _jacobian(make: Value, x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = make.square(x)
    return tape.jacobian(y, x)


def _refused(call: Callable[[], object]) -> str:
    with pytest.raises(TypeError) as caught:
        call()
    return str(caught.value)


def plain(found: Any) -> Any:
    """What was found, with arrays for tensors and for what is to pass for one."""
    if isinstance(found, dict):
        return {key: plain(one) for key, one in found.items()}
    if isinstance(found, (list, tuple)) and not isinstance(found, tf.TensorShape):
        return [plain(one) for one in found]
    if isinstance(found, np.ndarray) or tf.is_tensor(found):
        array = np.asarray(found)
        return array.dtype, array.tolist()
    return type(found), str(found)


def eagerly(habit: Habit, make: Value) -> Any:
    return habit(make, tf.constant(X))


def in_a_graph(habit: Habit, make: Value) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        found = habit(make, tf.constant(X))

        def run(one: Any) -> Any:
            return session.run(one) if tf.is_tensor(one) else one

        return tf.nest.map_structure(run, found)


def in_a_function(habit: Habit, make: Value) -> Any:
    kept: list[Any] = []

    @tf.function
    def body(x: tf.Tensor) -> Any:
        found = habit(make, x)
        leaves = tf.nest.flatten(found)
        if not all(map(tf.is_tensor, leaves)):
            kept.append(found)
            return None
        return found

    done = body(tf.constant(X))
    return kept[0] if kept else done


WAYS = {"eagerly": eagerly, "in_a_graph": in_a_graph, "in_a_function": in_a_function}


@pytest.mark.rotating
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("habit", HABITS)
def test_op_and_function_habits_equal_raw_ops(habit: str, way: str, kind: str) -> None:
    run = WAYS[way]
    expected = plain(run(HABITS[habit], RAW))
    assert plain(run(HABITS[habit], KINDS[kind])) == expected


@pytest.mark.rotating
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("habit", EAGER)
def test_op_and_function_eager_habits_equal_raw_ops(habit: str, kind: str) -> None:
    expected = plain(eagerly(EAGER[habit], RAW))
    assert plain(eagerly(EAGER[habit], KINDS[kind])) == expected


def test_op_gradients_in_graph_equal_raw_ops() -> None:
    def inside(make: Value) -> Any:
        @tf.function
        def body(x: tf.Tensor) -> Any:
            y = make.square(x)
            return tf.gradients(make.square(y), [x, y])

        return plain(body(tf.constant(X)))

    expected = inside(RAW)
    assert [inside(make) for make in KINDS.values()] == [expected] * 2


def test_op_in_session_is_run_and_fed() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        op = Square.create(Scope.current(), 3.0)
        with tf.control_dependencies([op]):
            after = op + 1
        assert session.run([op, after]) == [9.0, 10.0]
        assert session.run(after, {op: 1.0}) == 2.0


@pytest.mark.rotating
@pytest.mark.parametrize("kind", KINDS)
def test_op_from_keras_layer_is_output(kind: str) -> None:
    make = KINDS[kind]

    class Layer(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return make.square(x)

    for last in (True, False):
        inputs = keras.Input((2,))
        outputs = Layer()(keras.layers.Dense(3)(inputs))
        outputs = outputs if last else keras.layers.Dense(1)(outputs)
        model = keras.Model(inputs, outputs)
        model.compile("sgd", "mse")
        y = np.ones((2, 3 if last else 1))
        first, second = model.fit(np.array(X), y, epochs=2, verbose=0).history["loss"]
        assert second != first
        assert model.predict(np.array(X), verbose=0).shape == y.shape


def test_op_repr_and_str_show_outputs() -> None:
    op = MatMul.create(Scope.current(), X, X)
    assert repr(op) == repr(mat_mul(X, X)).replace("tf.Tensor", "MatMul")
    assert str(op) == str(mat_mul(X, X)).replace("tf.Tensor", "MatMul")
    top = TopKV2.create(Scope.current(), X, 1)
    assert repr(top) == (
        f"<TopKV2 eager, values={top.values!r}, indices={top.indices!r}>"
    )
    with tf.Graph().as_default():
        made = MatMul.create(Scope.current("m"), X, X)
        assert repr(made) == "<MatMul 'm:0' shape=(2, 2) dtype=float32>"


def test_op_and_function_several_outputs_unpack() -> None:
    values, indices = TopKV2.create(Scope.current(), X, 1)
    found = top_k_v2(X, 1)
    assert type(found).__name__ == "TopKV2"
    assert found._fields == ("values", "indices")
    np.testing.assert_array_equal(values, found.values)
    np.testing.assert_array_equal(indices, found.indices)
    raw = tf.raw_ops.TopKV2(input=X, k=1)
    tf.nest.assert_same_structure(raw, found)
    parts = tf.function(lambda x: top_k_v2(x, 1))(tf.constant(X))
    tf.nest.assert_same_structure(raw, parts)
    op = TopKV2.create(Scope.current(), X, 1)
    for misuse in (bool, np.asarray, tf.convert_to_tensor, lambda op: mat_mul(op, X)):
        with pytest.raises(OpInputError, match=r"TopKV2.*2 outputs.*values.*indices"):
            misuse(op)


def test_functions_and_layers_return_several_outputs() -> None:
    class Highest(keras.layers.Layer):
        def call(self, x: tf.Tensor) -> Any:
            return tuple(TopKV2.create(Scope.current(), x, 1))

    for returned in (
        tf.function(lambda x: tuple(TopKV2.create(Scope.current(), x, 1)))(X),
        Highest()(tf.constant(X)),
        tf.function(lambda x: top_k_v2(x, 1))(tf.constant(X)),
    ):
        values, indices = returned
        assert values.numpy().tolist() == [[2], [4]]
        assert indices.numpy().tolist() == [[1], [1]]


def test_op_scalar_converts_to_array() -> None:
    op = Square.create(Scope.current(), 3.0)
    assert tf.constant(op).numpy() == 9
    assert op.__array__().shape == ()
    assert np.array(op, np.float64).dtype == np.float64


def test_op_for_tensor_class_alone_needs_as_output() -> None:
    """It asks whether these are its own class: `as_output()` is one."""
    op = Square.create(Scope.current(), X)
    with tf.GradientTape() as tape:
        tape.watch(op.as_output())
        y = op * op
    np.testing.assert_array_equal(tape.gradient(y, op), 2 * np.square(X))
    index = Square.create(Scope.current(), 1)
    branches = [lambda: 1, lambda: 2]
    assert tf.switch_case(index.as_output(), branches) == 2
    assert not isinstance(op, tf.Tensor)
    assert isinstance(square(X), tf.Tensor)
    assert isinstance(square(X), Output)


def test_page_of_calls_quotes_tensorflow_errors() -> None:
    page = (ROOT / "docs/reference/calls.md").read_text("utf-8")
    rows = re.findall(r"^\| `(t[af].*\bop\b.*)` \| `(.+)` \|$", page, re.MULTILINE)
    assert len(rows) == 5
    known = {"tf": tf, "tape": tf.GradientTape(), "function": int, "functions": [int]}
    for call, said in rows:
        with pytest.raises((TypeError, ValueError, tf.errors.OpError)) as raised:
            eval(call, known | {"op": MatMul.create(Scope.current(), X, X)})
        assert said in str(raised.value)
    assert tf.get_static_value(Square.create(Scope.current(), X)) is None


@pytest.mark.parametrize("size", [2**63, 2**64, 10**400])
def test_op_size_over_64_bits_is_refused_again_and_again(size: int) -> None:
    for _ in range(2):
        with pytest.raises(opwright.OpAttrError, match="dimensions of 64 bits"):
            opwright.raw_ops.EnsureShape(input=1.0, shape=[size])
        with pytest.raises(opwright.OpAttrError, match="dimensions of 64 bits"):
            opwright.raw_ops.VarHandleOp(dtype=tf.float32, shape=[None, size])
    assert as_shape([2**63 - 1, None]).as_list() == [2**63 - 1, None]
