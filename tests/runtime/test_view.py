"""Typed views of operations, in whatever graph they are."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from opwright import OpInputError, OpModeError, Scope, op_class
from opwright.linalg import MatMul
from opwright.math import AddV2
from opwright.nn import CudnnRNNV3


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def rnn():
    x = tf.compat.v1.placeholder(tf.float32, [3, 1, 2])
    state = tf.zeros([1, 1, 2])
    options = CudnnRNNV3.Options(rnn_mode="gru", dropout=0.1, seed=7)
    return x, CudnnRNNV3.create(
        Scope.current(), x, state, state, tf.zeros([24]), [3], options
    )


def test_from_operation_has_inputs_and_attrs(graph):
    x, made = rnn()
    found = CudnnRNNV3.from_operation(graph.get_operation_by_name("CudnnRNNV3"))
    assert found == made
    assert found.output_h is made.output_h
    inputs = found.inputs
    assert inputs.op is made.op
    assert inputs.input is x
    assert inputs.sequence_lengths.dtype == tf.int32
    assert inputs.rnn_mode == "gru"
    assert inputs.dropout == 0.1
    assert inputs.seed == 7
    assert inputs.time_major is True
    assert inputs.T is tf.float32
    assert inputs.attribute_names() == tuple(
        attr.name for attr in CudnnRNNV3.op_def.attrs
    )
    assert inputs.attribute_value("rnn_mode") == "gru"
    assert list(inputs.as_dict()) == [
        "input",
        "input_h",
        "input_c",
        "params",
        "sequence_lengths",
        *inputs.attribute_names(),
    ]
    assert "rnn_mode='gru'" in repr(inputs)
    has = "no input or attr 'foo'; it has input, input_h, input_c, params, seq.*, T"
    with pytest.raises(AttributeError, match=f"CudnnRNNV3 has {has}"):
        _ = inputs.foo
    with pytest.raises(AttributeError, match=r"did you mean dropout\?$"):
        _ = inputs.dropuot
    with pytest.raises(AttributeError, match=r"; output_h is an output of the op$"):
        _ = inputs.output_h
    with pytest.raises(ValueError, match="foo"):
        inputs.attribute_value("foo")


def test_inputs_view_lists_are_grouped(graph):
    x, y = (tf.compat.v1.placeholder(tf.float32, [2, 2]) for _ in range(2))
    scope = Scope.current()
    concat = op_class("ConcatV2").create(scope, [x, y, x], 0)
    assert concat.inputs.values == [x, y, x]
    assert concat.inputs.axis.dtype == tf.int32
    assert concat.inputs.N == 3
    split = op_class("Split").create(scope, 0, x, 2)
    again = op_class("Split").from_operation(split.op)
    assert again.output == split.output
    assert again.inputs.num_split == 2
    many = op_class("IdentityN").create(scope, [x, "a"])
    dtypes = many.inputs.T
    assert dtypes == (tf.float32, tf.string)
    assert many.inputs.input[0] is x
    nested = tf.compat.v1.placeholder(tf.int64, [None])
    gather = op_class("RaggedGather").create(scope, [nested], x, nested, 1)
    again = op_class("RaggedGather").from_operation(gather.op)
    assert again.output_nested_splits == gather.output_nested_splits
    assert again.output_dense_values is gather.output_dense_values
    assert again.inputs.params_nested_splits == [nested]
    assert again.inputs.indices is nested
    none = op_class("StringFormat")
    none = none.create(scope, [], none.Options(template="", placeholder="%s"))
    assert none.inputs.inputs == []
    assert none.inputs.T == ()


def test_attrs_are_python_values(graph):
    scope = Scope.current()
    queue = op_class("FIFOQueueV2")
    made = queue.create(
        scope, [tf.float32, tf.string], queue.Options(shapes=[[2, None], []])
    ).inputs
    assert made.component_types == (tf.float32, tf.string)
    assert made.shapes == (tf.TensorShape([2, None]), tf.TensorShape([]))
    assert made.container == ""
    assert op_class("Placeholder").create(scope, tf.int32).inputs.shape.rank is None

    proto = tf.make_tensor_proto([1, 2])
    constant = op_class("Const").create(scope, proto, tf.int32).inputs
    assert np.array_equal(tf.make_ndarray(constant.value), [1, 2])

    decode = op_class("DecodeProtoV2")
    source = b"bytes://\xff\xfe"
    options = decode.Options(descriptor_source=source)
    made = decode.create(scope, [b""], "Message", ["a"], [tf.int32], options).inputs
    assert made.descriptor_source == source
    assert made.message_type == "Message"
    assert made.field_names == ("a",)

    function = attr_value_pb2.NameAttrList(name="f")
    call = op_class("RemoteCall").create(scope, "", [1], [tf.int32], function)
    assert call.inputs.f.name == "f"


def test_from_operation_imported_graph_gives_view(graph):
    rnn()
    definition = graph.as_graph_def()
    with tf.Graph().as_default() as other:
        tf.graph_util.import_graph_def(definition, name="imported")
    operation = other.get_operation_by_name("imported/CudnnRNNV3")
    found = CudnnRNNV3.from_operation(operation)
    assert found.inputs.rnn_mode == "gru"
    assert found.inputs.input.name == "imported/Placeholder:0"
    assert repr(found).startswith("<CudnnRNNV3 'imported/CudnnRNNV3', output=<tf.Tens")


def test_from_operation_missing_attr_has_default(graph):
    x, made = rnn()
    del x
    made.op._clear_attr("num_proj")
    assert CudnnRNNV3.from_operation(made.op).inputs.num_proj == 0


def test_functions_and_their_inner_graphs():
    @tf.function
    def body(x):
        return tf.cond(x > 0, lambda: x + 1, lambda: x)

    graph = body.get_concrete_function(tf.TensorSpec([])).graph
    inner = [function.graph for function in graph._functions.values()]
    (operation,) = (
        operation
        for each in inner
        for operation in each.get_operations()
        if operation.type == "AddV2"
    )
    found = AddV2.from_operation(operation)
    assert found.z is operation.outputs[0]
    assert found.inputs.x.shape == []


def test_inputs_view_python_keyword_has_underscore(graph):
    cls = op_class("Bitcast")
    made = cls.create(Scope.current(), [1.0], tf.int32)
    assert made.inputs.type_ is tf.int32
    assert made.inputs.attribute_value("type") is tf.int32
    assert "type_" in made.inputs.as_dict()
    assert made.rebuild(Scope.current(), type_=tf.uint8).output.dtype == tf.uint8


def test_another_type_of_operation_is_refused(graph):
    _, made = rnn()
    with pytest.raises(OpInputError) as caught:
        MatMul.from_operation(made.op)
    assert str(caught.value) == (
        "MatMul.from_operation: takes an operation of type MatMul, not a CudnnRNNV3"
    )
    with pytest.raises(OpInputError, match="not 3"):
        MatMul.from_operation(3)


def test_from_operation_of_node_says_to_import_its_graph(graph):
    rnn()
    node = graph.get_operation_by_name("CudnnRNNV3").node_def
    with pytest.raises(OpInputError) as caught:
        CudnnRNNV3.from_operation(node)
    assert str(caught.value) == (
        "CudnnRNNV3.from_operation: takes an operation of type CudnnRNNV3, not a "
        "NodeDef of CudnnRNNV3; import its GraphDef with "
        "tf.import_graph_def(graph_def, name=''), and give "
        "graph.get_operation_by_name('CudnnRNNV3')"
    )


def test_from_operation_of_tensor_says_to_give_its_operation(graph):
    _, made = rnn()
    with pytest.raises(OpInputError, match=r"not float32\[.*; give the \.op of the"):
        CudnnRNNV3.from_operation(made.output)


def test_eager_ops_have_no_view():
    with pytest.raises(OpModeError, match=r"ran eagerly.*; create it in a tf\.Graph"):
        _ = AddV2.create(Scope.current(), 1, 2).inputs


def test_rebuild_changes_given_arguments(graph):
    x, y = (tf.compat.v1.placeholder(tf.float32, [2, 2]) for _ in range(2))
    scope = Scope.current()
    made = MatMul.create(scope, x, y, MatMul.Options(transpose_a=True))
    again = made.rebuild(scope.with_name("again"), a=y, transpose_b=True)
    assert again.op.name == "again"
    assert again.inputs.a is y
    assert again.inputs.b is y
    assert again.inputs.transpose_a is True
    assert again.inputs.transpose_b is True
    assert made.inputs.transpose_b is False
    with pytest.raises(OpInputError) as caught:
        made.rebuild(scope, c=x)
    has = "a, b, transpose_a, transpose_b, grad_a, grad_b"
    assert str(caught.value) == f"MatMul.rebuild: has no argument 'c'; it has {has}"

    cast = op_class("Cast").create(scope, x, tf.int32)
    with pytest.raises(OpInputError, match=r"did you mean DstT\?$"):
        cast.rebuild(scope, dtyp=tf.int64)

    lists = op_class("ConcatV2").create(scope, [x, y], 0)
    assert lists.rebuild(scope, values=[x, y, x]).inputs.N == 3


def test_rebuild_runs_what_a_graph_says():
    with tf.Graph().as_default():
        made = op_class("Cast").create(Scope.current(), [1.5, 2.5], tf.int64)
    found = made.rebuild(Scope.current(), x=[3.5])
    assert found.y.numpy().tolist() == [3]
    assert found.y.dtype == tf.int64


def test_op_def_has_facts():
    info = CudnnRNNV3.op_def
    assert info is CudnnRNNV3.op_def
    assert info.name == "CudnnRNNV3"
    assert info.stateful
    assert not MatMul.op_def.stateful
    assert [arg.name for arg in info.outputs] == [
        "output",
        "output_h",
        "output_c",
        "reserve_space",
        "host_reserved",
    ]
    assert info.outputs[-1].dtype is tf.int8
    assert info.attr["T"].inferred
    assert info.attr["T"].allowed == (tf.bfloat16, tf.half, tf.float32, tf.float64)
    assert [attr.name for attr in op_class("Cast").op_def.required] == ["DstT"]
    assert op_class("ConcatV2").op_def.attr["N"].minimum == 2
    assert op_class("BatchSvd").op_def.deprecated.version == 13
    with pytest.raises(AttributeError):
        info.name = "Other"


def test_tensorflow_s_own_words():
    assert "Multiply the matrix" in MatMul.tensorflow_doc()
    # One that tf.raw_ops lacks, and one of which TensorFlow says nothing.
    assert "XLA" in op_class("XlaConvV2").tensorflow_doc()
    assert op_class("RiscAbs").tensorflow_doc() is None
