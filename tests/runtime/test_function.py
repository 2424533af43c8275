"""Ops within tf.function, jit_compile, tf.data, Keras, SavedModels and threads."""

import logging
import pickle
import threading

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpInputError, OpOptionError, Scope, op_class
from opwright.linalg import MatMul, mat_mul
from opwright.math import AddV2, add_v2

X = tf.constant([[1.0, 2.0], [3.0, 4.0]])
SCOPE = Scope.current()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_ops_in_tf_function_build_and_compute(jit_compile):
    names = []

    @tf.function(jit_compile=jit_compile)
    def body(x):
        product = mat_mul(x, X, transpose_a=True)
        names.append(product.op.name)
        return MatMul.create(Scope.current(), product, add_v2(x, 1))

    expected = tf.matmul(tf.matmul(X, X, transpose_a=True), X + 1)
    np.testing.assert_allclose(body(X), expected)
    assert names == ["MatMul"]


def test_scope_eager_in_tf_function_adds_to_its_graph():
    @tf.function
    def body(x):
        return AddV2.create(SCOPE, x, 1).op.graph is tf.compat.v1.get_default_graph()

    assert body(X)


def test_autograph_leaves_opwright_as_it_is(caplog):
    @tf.function
    def body(x):
        if tf.reduce_sum(x) > 0:
            y = AddV2.create(Scope.current(), x, 1).z
        else:
            y = mat_mul(x, x, transpose_a=True)
        return y

    with caplog.at_level(logging.WARNING, logger="tensorflow"):
        np.testing.assert_array_equal(body(X), X + 1)
    assert not caplog.records
    # What AutoGraph rewrites lies in files of its own.
    frames = _traceback_of(body, "AddV2")
    (create,) = (frame for frame in frames if frame.name == "create")
    assert create.filename.endswith("add_v2.py")


def _traceback_of(function, op_type):
    """The frames in which a function's tracing made its op of that type."""
    graph = function.get_concrete_function(X).graph
    bodies = [graph, *(f.graph for f in graph._functions.values() if f.graph)]
    for body in bodies:
        for operation in body.get_operations():
            if operation.type == op_type:
                return list(operation.traceback)
    raise AssertionError(f"no {op_type}")


def test_ops_in_autograph_loop_compute():
    @tf.function
    def power(x, n):
        y = tf.ones_like(x)
        for _ in tf.range(n):
            y = op_class("Mul").create(SCOPE, x, y).z
        return y

    np.testing.assert_array_equal(power(X, 3), X**3)


def test_ops_in_dataset_map_compute():
    dataset = tf.data.Dataset.range(4).map(lambda i: AddV2.create(SCOPE, i, 1).z)
    assert [int(i) for i in dataset] == [1, 2, 3, 4]
    outputs = tf.data.Dataset.range(4).map(lambda i: AddV2.create(SCOPE, i, 1))
    assert [int(i) for i in outputs] == [1, 2, 3, 4]


def test_range_dataset_op_makes_dataset():
    ranges = op_class("RangeDataset").create(
        SCOPE,
        0,
        3,
        1,
        [tf.int64],
        [[]],
    )
    double = tf.function(lambda i: 2 * i).get_concrete_function(
        tf.TensorSpec([], tf.int64)
    )
    mapped = op_class("MapDataset").create(SCOPE, ranges, [], double, [tf.int64], [[]])
    found = tf.data.experimental.from_variant(
        mapped.handle, tf.TensorSpec([], tf.int64)
    )
    assert [int(i) for i in found] == [0, 2, 4]


class Affine(tf.keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3), name="kernel")
        self.bias = self.add_weight(shape=(3,), name="bias")

    def call(self, x):
        scope = Scope.current()
        product = MatMul.create(scope, x, self.kernel.value)
        return AddV2.create(scope, product, self.bias.value).z


def test_ops_in_keras_layer_train():
    model = tf.keras.Sequential([tf.keras.Input((2,)), Affine()])
    model.compile("sgd", "mse")
    before = model.predict(X, verbose=0)
    history = model.fit(X, np.ones([2, 3]), epochs=3, verbose=0).history["loss"]
    assert history == sorted(history, reverse=True)
    assert history[0] > history[-1]
    assert before.shape == (2, 3)
    assert not np.array_equal(before, model.predict(X, verbose=0))


class Misfit(tf.keras.layers.Layer):
    def __init__(self, other):
        super().__init__()
        self.other = other

    def call(self, x):
        return mat_mul(x, self.other)


@pytest.mark.parametrize("other", [[[1.0]], [[1], [2]]], ids=["shape", "dtype"])
def test_error_in_keras_layer_keeps_text_and_attributes(other):
    with pytest.raises(OpInputError) as alone:
        mat_mul(X, tf.constant(other))
    with pytest.raises(type(alone.value)) as within:
        Misfit(tf.constant(other))(X)
    error = within.value
    assert alone.value.message and alone.value.message in str(error)
    assert "Misfit" in error.message
    assert (error.op, error.argument) == ("MatMul", "b")
    assert (error.given, error.allowed) == (alone.value.given, alone.value.allowed)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_create_keras_tensor_is_refused():
    with pytest.raises(OpInputError, match="x must be a tensor, not a KerasTensor, "):
        AddV2.create(SCOPE, tf.keras.Input((2,)), 1)


@pytest.mark.parametrize("in_function", [False, True])
def test_mat_mul_of_a_variable_with_wrong_sizes_names_the_sizes(in_function):
    variable, other = tf.Variable(tf.ones([2, 3])), tf.ones([4, 2])

    def call():
        return mat_mul(variable, other)

    with pytest.raises(OpInputError, match=r"b has 4 rows, a has 3 columns \(k\)"):
        (tf.function(call) if in_function else call)()


def test_ops_in_saved_model_load_and_compute(tmp_path):
    module = tf.Module()
    module.body = tf.function(
        lambda x: MatMul.create(Scope.current("mine"), x, X).product,
        input_signature=[tf.TensorSpec([2, 2])],
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded.body(X), tf.matmul(X, X))

    graph = loaded.body.get_concrete_function().graph
    functions = graph._functions.values()
    operations = [o for f in functions for o in f.graph.get_operations()]
    operations += graph.get_operations()
    (operation,) = (o for o in operations if o.type == "MatMul")
    found = MatMul.from_operation(operation)
    assert found.op.name == "mine"
    assert found.inputs.a is operation.inputs[0]
    assert found.inputs.T is tf.float32
    assert found.inputs.transpose_a is False


@pytest.mark.parametrize("graph", [False, True])
def test_option_bool_refuses_equal_numbers(graph):
    def transposed(value):
        def call():
            return mat_mul(X, X, transpose_a=value)

        return tf.function(call)() if graph else call()

    np.testing.assert_array_equal(transposed(np.True_), transposed(True))
    # A dtype equals its number, which for float32 is 1.
    for value in (1, 0, 1.0, np.int64(1), tf.float32, "yes", []):
        with pytest.raises(OpOptionError, match="transpose_a must be a bool"):
            transposed(value)


def test_threads_share_classes_and_scopes():
    failures, results = [], []
    start = threading.Barrier(8)

    def work(number):
        try:
            start.wait()
            for _ in range(20):
                results.append(AddV2.create(SCOPE, X, number).z.shape)
                with tf.Graph().as_default() as graph:
                    op = AddV2.create(Scope.current(), 1, number)
                    assert op.op.graph is graph
                    assert MatMul.op_def is MatMul.op_def
                    assert op_class("Tanh").create(SCOPE, 1.0).env() is graph
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(results) == 160
