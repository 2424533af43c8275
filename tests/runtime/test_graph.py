"""Graphs that opwright builds are TensorFlow's own builder's, node for node."""

import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, graph_pb2
from tensorflow.python.framework import op_def_library

from opwright import OpInputError, Scope, op_class
from opwright.math import AddV2

# A graph made by a TensorFlow that had not yet removed any op.
OLD_GRAPH = graph_pb2.GraphDef()
OLD_GRAPH.versions.producer = 1


CONCRETE = tf.function(lambda a, b: a + b).get_concrete_function(
    tf.TensorSpec([]), tf.TensorSpec([])
)


def tensorflow(op_name, *inputs, name=None, **attrs):
    """Adds an op with TensorFlow's own builder; returns its outputs."""
    op_def = op_class(op_name).op_def
    keywords = {
        arg.name: value for arg, value in zip(op_def.inputs, inputs, strict=True)
    }
    keywords |= {attr.name: None for attr in op_def.options}
    result = op_def_library.apply_op(op_name, name=name, **(keywords | attrs))
    return result if isinstance(result, (list, tuple)) else [result]


def opwright(op_name, *inputs, name=None, **attrs):
    """Adds the same op with its class; returns its outputs."""
    cls = op_class(op_name)
    required, options = cls.op_def.required, cls.op_def.options
    arguments = [*inputs, *(attrs.pop(a.name) for a in required if a.default is None)]
    given = {a.python_name: attrs.pop(a.name) for a in options if a.name in attrs}
    if given:
        arguments.append(cls.Options(**given))
    op = cls.create(Scope.current(name), *arguments, **attrs)
    return [getattr(op, slot) for slot in cls.__slots__] or [op.op]


def placeholder(dtype=tf.float32, shape=(2, 2)):
    return tf.compat.v1.placeholder(dtype, shape)


def variable(make, dtype=tf.float32):
    """A ref."""
    return make("VariableV2", shape=[2, 2], dtype=dtype)[0]


def ops_with_values(make):
    x = placeholder()
    make("AddV2", x, x)
    make("AddV2", x, 1)
    make("AddV2", 1.0, x)
    make("AddV2", [1, 2], [[3], [4]])
    make("AddV2", np.float64(1), 2)
    make("AddV2", x, tf.compat.v1.get_variable("v", [2, 2]))


def ops_with_lists(make):
    x, y = placeholder(), placeholder()
    make("ConcatV2", [x, y], 0)
    make("ConcatV2", (x, y), tf.constant(1, tf.int64))
    make("ConcatV2", [x, [[1, 2]]], 0)
    make("ConcatV2", [[1], [2]], 0)
    make("IdentityN", [x, placeholder(tf.string)])
    make("IdentityN", [x, "a", 1, 2.0, np.array([1])])
    make("Split", 0, x, num_split=2)
    make("ConcatOffset", 0, [np.array([1, 2]), [3, 4]])
    make("TopKV2", x, 1)
    nested = placeholder(tf.int64, [None])
    make("RaggedGather", [nested], x, nested, OUTPUT_RAGGED_RANK=1)
    make("XlaVariadicReduceV2", [x], [x], dimensions_to_reduce=[0], reducer=CONCRETE)


def ops_with_default_dtypes(make):
    x = placeholder()
    make("Sum", x, [])
    make("Sum", x, [0])
    make("Sum", x, np.array([0]))
    make("Reshape", x, [4])
    make("Reshape", x, np.array([4], np.int64))


def ops_with_attrs(make):
    x = placeholder()
    make("MatMul", x, x)
    make("MatMul", x, x, transpose_a=True, transpose_b=False)
    make("Cast", x, DstT=tf.int64)
    make("LeakyRelu", x, alpha=0.5)
    make("LeakyRelu", x, alpha=0.2)
    make("LeakyRelu", x, alpha=-0.0)
    make("LeakyRelu", x, alpha=0.0)
    make("EnsureShape", x, shape=[None, 2])
    make("Placeholder", dtype=tf.int32, shape=[])
    make("Placeholder", dtype=tf.int32, shape=tf.TensorShape(None))
    make("Placeholder", dtype=tf.int32)
    image = placeholder(shape=[1, 4, 4, 1])
    kernel = placeholder(shape=[2, 2, 1, 1])
    make("Conv2D", image, kernel, strides=[1, 1, 1, 1], padding="VALID")
    make(
        "Conv2D",
        image,
        kernel,
        strides=(1, 2, 2, 1),
        padding=b"EXPLICIT",
        explicit_paddings=[0, 0, 1, 1, 1, 1, 0, 0],
        dilations=[1, 1, 1, 1],
    )
    make("Const", value=tf.make_tensor_proto([1, 2]), dtype=tf.int32)
    make("ImageSummary", "a", image)
    make("ImageSummary", "a", image, bad_color=tf.make_tensor_proto([0], tf.uint8))
    make("StringFormat", [x, "a"], template="{}{}", placeholder="{}", summarize=4)
    make("RandomUniform", [2], dtype=tf.float32, seed=2**40)
    make("NoOp")
    make("FIFOQueueV2", component_types=[tf.float32, tf.int32], shapes=[[], [2]])
    make("FIFOQueueV2", component_types=[tf.float32])


def ops_with_functions(make):
    x = tf.constant(1.0)
    make("StatefulPartitionedCall", [x, x], Tout=[tf.float32], f=CONCRETE)
    make("PartitionedCall", [x, x], Tout=[tf.float32], f=CONCRETE)
    name = CONCRETE.name.decode()
    make("PartitionedCall", [x, x], Tout=[tf.float32], f=name)
    proto = attr_value_pb2.NameAttrList(name=name)
    proto.attr["T"].type = tf.float32.as_datatype_enum
    make("RemoteCall", "/cpu:0", [x, x], Tout=[tf.float32], f=proto)
    make("Case", 0, [x, x], Tout=[tf.float32], branches=[CONCRETE, CONCRETE])


def ops_with_refs(make):
    ref, other = variable(make), variable(make)
    x = placeholder()
    make("Assign", ref, x)
    make("Assign", other, [[1, 2], [3, 4]])
    make("Assign", ref, ref, use_locking=False)
    make("AddV2", ref, x)
    with tf.device("/cpu:1"):
        make("ScatterUpdate", ref, [0], [[1, 2]])
    make("RefSelect", 0, [ref, other])
    make("RefMerge", [ref, other])


def ops_in_scopes(make):
    x = placeholder()
    with tf.name_scope("outer"):
        make("AddV2", x, 1)
        make("AddV2", x, 1, name="named")
        with tf.name_scope("inner") as inner:
            make("AddV2", x, 1, name=inner)
    before = make("NoOp")[0]
    with tf.control_dependencies([before, x]):
        make("AddV2", x, 1)
        make("ConcatV2", [x, x], 0)
    with tf.device("/job:worker"), tf.device("/gpu:3"):
        make("AddV2", x, x)
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"AddV2": "Other"}):
        make("AddV2", x, x)
    with graph._attr_scope({"_mine": attr_value_pb2.AttrValue(i=3)}):
        make("AddV2", x, x)
    with graph.colocate_with(x):
        make("AddV2", x, x)


def ops_in_control_flow(make):
    x = placeholder()
    previous = tf.compat.v1.control_flow_v2_enabled()
    tf.compat.v1.disable_control_flow_v2()
    try:
        tf.compat.v1.while_loop(
            lambda i: make("Less", i, 3)[0],
            lambda i: make("AddV2", i, make("Size", x)[0])[0],
            [tf.constant(0)],
        )
        tf.compat.v1.cond(
            make("Any", placeholder(tf.bool), [0, 1])[0],
            lambda: make("AddV2", x, 1)[0],
            lambda: make("Square", x)[0],
        )
    finally:
        if previous:
            tf.compat.v1.enable_control_flow_v2()


def graph_def(program, make):
    with tf.Graph().as_default() as graph:
        program(make)
    return graph.as_graph_def()


PROGRAMS = [
    ops_with_values,
    ops_with_lists,
    ops_with_default_dtypes,
    ops_with_attrs,
    ops_with_functions,
    ops_with_refs,
    ops_in_scopes,
    ops_in_control_flow,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_graph_nodes_equal_tensorflow(program):
    expected = graph_def(program, tensorflow)
    assert len(expected.node) > 5
    assert graph_def(program, opwright) == expected


EAGER = tf.constant([[1.0, 2.0], [3.0, 4.0]])
OFFSET = tf.constant([1.0, 2.0])
VARIABLE = tf.Variable(EAGER)


def function_with_captures(make):
    def body(x):
        with tf.name_scope("scope"):
            y = make("MatMul", x, EAGER)[0]
        y = make("ConcatV2", [y, EAGER, VARIABLE], 0)[0]

        def branch():
            return make("AddV2", y, OFFSET)[0]

        z = tf.cond(tf.reduce_sum(x) > 0, branch, lambda: make("Square", y)[0])
        tf.while_loop(lambda i: i < 3, lambda i: make("AddV2", i, 1), [tf.constant(0)])
        return make("MatMul", z, x, transpose_b=True)[0]

    return body


def in_parts(graph_def):
    """A graph and its functions as texts that two tracings have in common."""
    functions = list(graph_def.library.function)
    texts = [str(graph_def.node), *map(str, functions)]
    for function in functions:
        # A counter of the process numbers them.
        name = function.signature.name
        texts = [text.replace(name, re.sub(r"\d+", "", name)) for text in texts]
    return sorted(texts)


def test_function_nodes_equal_tensorflow():
    parts = []
    for make in (tensorflow, opwright):
        body = function_with_captures(make)
        traced = tf.function(body, autograph=False).get_concrete_function(EAGER)
        parts.append(in_parts(traced.graph.as_graph_def()))
    assert len(parts[0]) > 4
    assert parts[0] == parts[1]


def test_create_removed_op_builds_in_old_graph():
    def program(make):
        tf.graph_util.import_graph_def(OLD_GRAPH)
        make("BatchSvd", placeholder(), compute_uv=False)
        make("BatchSelfAdjointEig", placeholder())

    assert graph_def(program, opwright) == graph_def(program, tensorflow)


def test_create_in_graph_plain_value_takes_dtype_of_later_tensor():
    with tf.Graph().as_default():
        z = AddV2.create(Scope.current(), 1, placeholder()).z
    assert z.dtype == tf.float32


def test_op_in_graph_is_input_and_graph_element():
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        scope = Scope.current()
        one = AddV2.create(scope, 1, 2)
        two = AddV2.create(scope, one, one)
        with tf.control_dependencies([two]):
            last = op_class("NoOp").create(scope)
        assert last.op.control_inputs == [two.op]
        assert two.op.inputs[0] is one.z
        assert session.run(two) == 6
        assert session.run([one, last]) == [3, None]
        assert graph.as_graph_element(last) is last.op


def test_equality_is_by_operation():
    with tf.Graph().as_default():
        one = op_class("TopKV2").create(Scope.current(), [1, 2], 1)
        other = op_class("TopKV2").create(Scope.current(), [1, 2], 1)
    again = op_class("TopKV2").from_operation(one.op)
    assert again == one
    assert hash(again) == hash(one)
    assert one != other
    assert one != op_class("Unique").create(Scope.current(), [1])
    assert one.env() is one.op.graph


def test_read_variable_op_takes_shape_of_handle():
    with tf.Graph().as_default():
        scope = Scope.current()
        handle = op_class("VarHandleOp").create(scope, tf.float32, [2, 3]).resource
        value = op_class("ReadVariableOp").create(scope, handle, tf.float32).value
    assert value.shape == [2, 3]


def test_tensorflow_s_debugger_sees_opwright_s_ops():
    def checks(logarithm):
        traced = tf.function(logarithm, autograph=False)
        graph = traced.get_concrete_function(tf.TensorSpec([])).graph
        (log,) = (o for o in graph.get_operations() if o.type == "Log")
        return [operation.type for operation in log.outputs[0].consumers()]

    tf.debugging.enable_check_numerics()
    try:
        expected = checks(lambda x: tf.raw_ops.Log(x=x))
        found = checks(lambda x: op_class("Log").create(Scope.current(), x).y)
    finally:
        tf.debugging.disable_check_numerics()
    assert len(expected) > 1
    assert found == expected


def test_scope_current_with_input_of_other_graph_is_refused():
    graph = tf.Graph()
    with graph.as_default():
        x = placeholder()
    with tf.Graph().as_default():
        op = AddV2.create(Scope.current().with_name("a"), 1, 2)
        with pytest.raises(OpInputError, match="x is a tensor of another graph"):
            AddV2.create(Scope.current(), x, x)
        assert op.op.name == "a"
    eager = Scope.current()
    with tf.Graph().as_default():
        assert AddV2.create(eager, x, 1).env() is graph
