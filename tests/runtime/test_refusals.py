"""A refused op: which argument, what it was, what it may be, in which mode."""

import pickle
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2

import opwright
from opwright import (
    OpAttrError,
    OpError,
    OpExecutionError,
    OpInputError,
    OpKernelError,
    OpModeError,
    OpRemovedError,
    OpUnknownError,
    Scope,
    array,
    bitwise,
    linalg,
    math,
    nn,
    op_class,
)
from opwright_runtime._binding import diagnosis
from opwright_runtime.gencode import Op

FLOATS = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
INTS = np.array([[1, 2], [3, 4]], np.int32)

CONFIG = "tensorflow.tpu.TPUEmbeddingConfiguration"
RATE = optimization_parameters_pb2.LearningRate(constant=0.5)

MATMUL_DTYPES = (
    tf.bfloat16,
    tf.float16,
    tf.float32,
    tf.float64,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.complex64,
    tf.complex128,
)


def eagerly(call):
    return call(Scope.current(), tf.constant(FLOATS), tf.constant(INTS))


def in_a_graph(call):
    with tf.Graph().as_default():
        return call(Scope.current(), tf.constant(FLOATS), tf.constant(INTS))


def in_a_function(call):
    @tf.function
    def body(x, i):
        call(Scope.current(), x, i)

    body(FLOATS, INTS)


MODES = pytest.mark.parametrize("run", [eagerly, in_a_graph, in_a_function])


def create(name):
    return op_class(name).create


HALF_TO_DOUBLE = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
REFUSALS = {
    "mixed dtypes": (
        lambda s, x, i: create("AddV2")(s, x, i),
        (OpInputError, "y", tf.int32, (tf.float32,)),
        "AddV2: y must be float32 as x is, not int32",
    ),
    "mixed dtypes in a list": (
        lambda s, x, i: create("ConcatV2")(s, [x, x, i], 0),
        (OpInputError, "values[2]", tf.int32, (tf.float32,)),
        "ConcatV2: values[2] must be float32 as values[0] is, not int32",
    ),
    "a value that does not follow": (
        lambda s, x, i: create("AddV2")(s, "text", x),
        (OpInputError, "x", "text", (tf.float32,)),
        "AddV2: x must be float32 as y is, not 'text'",
    ),
    "a dtype that T does not allow": (
        lambda s, x, i: create("MatMul")(s, [["a"]], [["b"]]),
        (OpInputError, "a", [["a"]], MATMUL_DTYPES),
        "MatMul: a must be one of bfloat16, float16, float32, float64, int32, int64, "
        "uint8, uint16, uint32, uint64, complex64, complex128, not [['a']]",
    ),
    "integers where T allows floats": (
        lambda s, x, i: create("Softmax")(s, [[1, 2]]),
        (OpInputError, "logits", [[1, 2]], HALF_TO_DOUBLE),
        "Softmax: logits must be one of float16, bfloat16, float32, float64, "
        "not [[1, 2]], which is int32: write 1.0 instead of 1",
    ),
    "a tensor of a dtype that T does not allow": (
        lambda s, x, i: create("Reshape")(s, x, x),
        (OpInputError, "shape", tf.float32, (tf.int32, tf.int64)),
        "Reshape: shape must be one of int32, int64, not float32",
    ),
    "a value of a dtype that T does not allow": (
        lambda s, x, i: create("Reshape")(s, x, [1.5]),
        (OpInputError, "shape", [1.5], (tf.int32, tf.int64)),
        "Reshape: shape must be one of int32, int64, not [1.5]",
    ),
    "another dtype than the input's": (
        lambda s, x, i: create("LogicalAnd")(s, [True], x),
        (OpInputError, "y", tf.float32, (tf.bool,)),
        "LogicalAnd: y must be bool, not float32",
    ),
    "a value of another dtype than the input's": (
        lambda s, x, i: create("Split")(s, "zero", x, 2),
        (OpInputError, "split_dim", "zero", (tf.int32,)),
        "Split: split_dim must be int32, not 'zero'",
    ),
    "no input": (
        lambda s, x, i: create("AddV2")(s, x, None),
        (OpInputError, "y", None, "a tensor"),
        "AddV2: y is missing: None is no tensor",
    ),
    "no input in a list": (
        lambda s, x, i: create("ConcatV2")(s, [x, None], 0),
        (OpInputError, "values", None, "a tensor"),
        "ConcatV2: values is missing: None is no tensor",
    ),
    "no list": (
        lambda s, x, i: create("ConcatV2")(s, 3, 0),
        (OpInputError, "values", 3, "a list of tensors"),
        "ConcatV2: values must be a list of tensors, not 3",
    ),
    "a short list": (
        lambda s, x, i: create("ConcatV2")(s, [x], 0),
        (OpInputError, "values", 1, "at least 2 elements"),
        "ConcatV2: values must have at least 2 elements, not 1",
    ),
    "lists of two lengths": (
        lambda s, x, i: create("DynamicStitch")(s, [[0], [1]], [[1.0]]),
        (OpInputError, "data", 1, "2 elements as indices has"),
        "DynamicStitch: data must have 2 elements as indices has, not 1",
    ),
    "no tensor": (
        lambda s, x, i: create("AddV2")(s, {"a": 1}, x),
        (OpInputError, "x", {"a": 1}, "a tensor, or a value that makes one"),
        "AddV2: x must be a tensor, or a value that makes one, not {'a': 1}",
    ),
    "an attr of another kind": (
        lambda s, x, i: create("Split")(s, 0, x, "2"),
        (OpAttrError, "num_split", "2", "an int"),
        "Split: num_split must be an int, not '2'",
    ),
    "an attr below the minimum": (
        lambda s, x, i: create("Split")(s, 0, x, 0),
        (OpAttrError, "num_split", 0, "at least 1"),
        "Split: num_split must be at least 1, not 0",
    ),
    "an attr outside its enum": (
        lambda s, x, i: create("Conv2D")(s, [[x]], [[x]], [1] * 4, "Same"),
        (OpAttrError, "padding", "Same", ("SAME", "VALID", "EXPLICIT")),
        "Conv2D: padding must be one of 'SAME', 'VALID', 'EXPLICIT', not 'Same'",
    ),
    "a dtype that is none": (
        lambda s, x, i: create("Cast")(s, x, "float33"),
        (OpAttrError, "DstT", "float33", "a dtype, such as TFloat32 or tf.float32"),
        "Cast: DstT must be a dtype, such as TFloat32 or tf.float32, not 'float33'",
    ),
    "a dtype that the attr does not allow": (
        lambda s, x, i: create("ArgMax")(s, x, 0, output_type=tf.float32),
        (
            OpAttrError,
            "output_type",
            tf.float32,
            (tf.int16, tf.uint16, tf.int32, tf.int64),
        ),
        "ArgMax: output_type must be one of int16, uint16, int32, int64, not float32",
    ),
    "a list attr of another kind": (
        lambda s, x, i: create("Conv2D")(s, [[x]], [[x]], "1111", "SAME"),
        (OpAttrError, "strides", "1111", "a sequence, each element an int"),
        "Conv2D: strides must be a sequence, each element an int, not '1111'",
    ),
    "a message of another type": (
        lambda s, x, i: create("ConfigureTPUEmbedding")(s, RATE),
        (
            OpAttrError,
            "config",
            RATE,
            f"a {CONFIG} or its bytes (this is a tensorflow.tpu.LearningRate)",
        ),
        f"ConfigureTPUEmbedding: config must be a {CONFIG} or its bytes (this is a "
        "tensorflow.tpu.LearningRate), not constant: 0.5",
    ),
    "no message": (
        lambda s, x, i: create("ConfigureTPUEmbedding")(s, 3),
        (OpAttrError, "config", 3, f"a {CONFIG} or its bytes"),
        f"ConfigureTPUEmbedding: config must be a {CONFIG} or its bytes, not 3",
    ),
    "a removed op": (
        lambda s, x, i: create("BatchSvd")(s, x),
        (
            OpRemovedError,
            None,
            tf.version.GRAPH_DEF_VERSION,
            "GraphDef versions before 13",
        ),
        "BatchSvd: removed in GraphDef version 13; this is "
        f"{tf.version.GRAPH_DEF_VERSION}. Use Svd instead. A graph imported from an "
        "older version still takes it",
    ),
}


@MODES
@pytest.mark.parametrize(
    ("call", "fields", "message"), REFUSALS.values(), ids=list(REFUSALS)
)
def test_create_bad_argument_error_names_argument(call, fields, message, run):
    with pytest.raises(OpError) as caught:
        run(call)
    error = caught.value
    family, argument, given, allowed = fields
    assert isinstance(error, family)
    assert str(error) == message
    assert error.op == message.partition(":")[0]
    assert error.argument == argument
    if isinstance(given, dict):
        given = dict(error.given)  # A tf.function wraps what it is given.
    assert error.given == given
    assert error.allowed == allowed


def test_create_function_attr_not_concrete_is_refused():
    dataset = tf.data.Dataset.range(3)._variant_tensor
    function = tf.function(lambda i: i)
    with pytest.raises(OpAttrError) as caught:
        create("MapDataset")(Scope.current(), dataset, [], function, [tf.int64], [[]])
    assert caught.value.argument == "f"
    assert caught.value.given is function
    assert caught.value.allowed == (
        "the name of a function, a NameAttrList, or a concrete function, which "
        "get_concrete_function() of a tf.function returns"
    )


@MODES
def test_create_input_op_with_several_outputs_is_refused(run):
    def call(scope, x, i):
        create("AddV2")(scope, create("TopKV2")(scope, x, 1), x)

    with pytest.raises(OpInputError) as caught:
        run(call)
    assert str(caught.value) == (
        "AddV2: x must be a tensor, or a value that makes one, not a TopKV2, which has "
        "2 outputs; give one of .values, .indices"
    )


def test_create_ref_in_eager_mode_is_refused():
    with pytest.raises(OpModeError) as caught:
        create("VariableV2")(Scope.current(), [2], tf.float32)
    assert str(caught.value) == (
        "VariableV2: exists in graphs only, for ref_ is a ref; make it in a tf.Graph"
    )
    for inputs in ([tf.constant(1.0), 2.0], [1.0, 2.0]):
        with pytest.raises(OpModeError) as caught:
            create("Assign")(Scope.current(), *inputs)
        assert caught.value.argument == "ref"


def test_no_ref_in_a_graph():
    with pytest.raises(OpInputError) as caught:
        in_a_graph(lambda s, x, i: create("Assign")(s, x, x))
    assert str(caught.value) == (
        "Assign: ref must be a ref, such as VariableV2 makes, not float32"
    )


def test_no_kernel_for_the_dtype():
    x = tf.constant([[1, 2], [3, 4]], tf.uint8)
    with pytest.raises(OpKernelError) as caught:
        create("MatMul")(Scope.current(), x, x)
    error = caught.value
    assert str(error).startswith(
        "MatMul: no kernel can run it here with T=uint8; there are some for CPU (T "
    )
    assert error.given == "T=uint8"
    cpu = error.allowed[0]
    assert "float32" in cpu
    assert "uint8" not in cpu
    assert isinstance(error, (tf.errors.NotFoundError, tf.errors.InvalidArgumentError))


def test_no_kernel_at_all():
    with pytest.raises(
        OpKernelError, match=r"no kernel can run it here with .*; it has none"
    ):
        create("RiscImag")(Scope.current(), tf.constant([1j], tf.complex64))


@MODES
def test_create_tensorflow_refusal_keeps_its_message(run):
    def call(scope, x, i):
        create("Einsum")(scope, [x], "ij,jk->ik")

    with pytest.raises(OpExecutionError) as caught:
        run(call)
    error = caught.value
    assert str(error).startswith("Einsum: Expected 2 inputs")
    given = "inputs[0]: float32[2,2], equation: 'ij,jk->ik'"
    assert str(error).endswith(f" (given {given})")
    assert "function_node" not in str(error)
    assert "[Op:" not in str(error)
    if run is eagerly:
        assert isinstance(error, tf.errors.InvalidArgumentError)
        assert error.error_code == tf.errors.INVALID_ARGUMENT
        assert type(error.__cause__) is tf.errors.InvalidArgumentError
    else:
        assert isinstance(error, ValueError)


def test_iterator_get_next_at_end_raises_out_of_range():
    iterator = iter(tf.data.Dataset.range(1))
    next(iterator)
    with pytest.raises(tf.errors.OutOfRangeError):
        create("IteratorGetNext")(
            Scope.current(), iterator._iterator_resource, [tf.int64], [[]]
        )


class OwnError(Exception):
    """An error of the user's."""


class Failing:
    def __tf_tensor__(self, dtype=None, name=None):
        raise OwnError


@MODES
def test_create_error_of_user_object_passes(run):
    with pytest.raises(OwnError):
        run(lambda s, x, i: create("AddV2")(s, x, Failing()))


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (OpInputError, (OpError, ValueError, TypeError)),
        (OpAttrError, (OpError, ValueError, TypeError)),
        (opwright.OpOptionError, (OpAttrError,)),
        (OpModeError, (OpError, RuntimeError)),
        (OpRemovedError, (OpError, NotImplementedError)),
        (OpKernelError, (OpError, NotImplementedError)),
        (opwright.OpMemoryError, (OpError, RuntimeError)),
        (OpUnknownError, (OpError, LookupError)),
        (OpExecutionError, (OpError, RuntimeError)),
    ],
)
def test_op_error_classes_derive_from_python_errors(error, bases):
    assert all(issubclass(error, base) for base in bases)


def test_create_eager_refusal_is_tensorflow_error():
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        eagerly(lambda s, x, i: create("AddV2")(s, x, i))
    assert type(caught.value).__name__ == "OpInputError"
    assert caught.value.message == str(caught.value)
    assert caught.value.op == "AddV2"
    assert isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)


def test_errors_reach_other_processes():
    for call in (
        lambda s, x, i: create("AddV2")(s, x, i),
        lambda s, x, i: create("MatMul")(s, x, tf.zeros([3, 5])),
        lambda s, x, i: create("Split")(s, 0, x, "2"),
    ):
        with pytest.raises(OpError) as caught:
            eagerly(call)
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value)
        assert str(again) == str(caught.value)
        assert again.argument == caught.value.argument


def test_op_class_unknown_name_suggests_close_one():
    with pytest.raises(OpUnknownError) as caught:
        op_class("MatMull")
    assert str(caught.value).startswith(
        "no op is called 'MatMull'; close to it: MatMul"
    )
    assert caught.value.allowed[0] == "MatMul"
    with pytest.raises(OpUnknownError) as caught:
        op_class("Frobnicate")
    assert str(caught.value) == (
        "no op is called 'Frobnicate'; opwright.search('Frobnicate') looks ops up by "
        "what they do"
    )
    with pytest.raises(OpUnknownError, match=r"close to it: MatMul.*Mul$"):
        op_class("mat_mul")
    for name in ("SequenceMask", "sequence_mask"):
        with pytest.raises(OpUnknownError, match=r"for_tf\('tf\.sequence_mask'\)"):
            op_class(name)
    with pytest.raises(OpUnknownError, match=r"Relu.*; opwright\.for_tf\('tf\.nn"):
        op_class("tf.nn.relu")
    with pytest.raises(OpUnknownError, match=r"name must be the OP_NAME .*, not 1"):
        op_class(1)


def test_execution_error_shows_attrs_that_are_no_defaults():
    image, filter = tf.ones([1, 4, 4, 3]), tf.ones([2, 2, 3, 1])
    with pytest.raises(OpError) as caught:
        nn.conv2d(image, filter, [2, 2], "SAME")
    assert str(caught.value).endswith(
        "(given input: float32[1,4,4,3], filter: float32[2,2,3,1], strides: [2, 2], "
        "padding: 'SAME')"
    )


def test_execution_error_says_what_to_do():
    strides = [1, 1, 1, 1]
    with pytest.raises(OpError, match=r"; the axis of filter before its last one has"):
        nn.conv2d(tf.ones([1, 4, 4, 3]), tf.ones([2, 2, 1, 1]), strides, "SAME")
    # oneDNN, which not every CPU has, takes NCHW.
    image = tf.ones([1, 3, 4, 4])
    text = "Default MaxPoolingOp only supports NHWC on device type CPU"
    refused = tf.errors.InvalidArgumentError(None, None, text)
    found = diagnosis.explain(refused, nn.MaxPool.op_def, (image,), {}, None)
    assert str(found).endswith("; transpose the input to NHWC, or run the op on a GPU")


def test_execution_error_states_rule_of_shape():
    with pytest.raises(OpError) as caught:
        array.where(True)
    assert str(caught.value).endswith(
        "(given input: True); shape of input: *x where 1 <= len(x) <= 8"
    )


def test_eager_placeholder_needs_graph():
    with pytest.raises(OpModeError, match=r"in graphs only.*make it in a tf\.Graph"):
        op_class("Placeholder").create(Scope.current(), tf.float32)
    with tf.Graph().as_default():
        made = op_class("Placeholder").create(Scope.current(), tf.float32)
        assert made.output.dtype == tf.float32


def test_list_input_that_is_empty_is_refused():
    with pytest.raises(OpError, match="must have at least 1 element, not 0"):
        op_class("AddN").create(Scope.current(), [])


def test_create_op_of_unloaded_library_is_refused():
    class Absent(Op):
        OP_NAME = "Absent"
        __slots__ = ("output",)

    with pytest.raises(OpUnknownError) as caught:
        Absent()._build(Scope.current(), (), {}, None)
    assert str(caught.value) == (
        f"TensorFlow {tf.__version__} has no op Absent: if a custom-op library has it, "
        "load that first with tf.load_op_library, or pass --load to opwright-codegen "
        "generate"
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: math.add_v2(ints(2), ints(3)), "Incompatible shapes: [2] vs. [3]"),
        (lambda: math.add_v2(ints(1, 2), ints(1, 3)), "Incompatible shapes: [1,2]"),
        (lambda: math.floor_div(ints(1) + 4, ints(1)), "Integer division by zero"),
        (lambda: math.cumsum(ints(2), 7), "ScanOp: Expected scan axis in the range"),
        (lambda: bitwise.bitwise_and(ints(2, 2), ints(3)), "Incompatible shapes"),
    ],
)
def test_refused_integers_leave_what_tensorflow_says(call, words):
    with pytest.raises(OpExecutionError) as refused:
        call()
    assert words in str(refused.value)


def ints(*shape):
    return tf.zeros(shape, tf.int32)


def test_refused_value_of_many_empty_rows_takes_no_time():
    rows = np.zeros([2**24, 0], np.int32)
    began = time.monotonic()
    with pytest.raises(OpError):
        math.bincount(rows, [1, 2], np.float32([1]))
    assert time.monotonic() - began < 5


class Unshowable:
    """An argument that fails however it is looked at."""

    def __init__(self, error):
        self.error = error

    @property
    def shape(self):
        raise self.error

    def __repr__(self):
        raise self.error


@pytest.mark.parametrize("error", [ValueError, RecursionError, MemoryError])
def test_refused_argument_that_cannot_be_shown_leaves_what_tensorflow_says(error):
    with pytest.raises(OpExecutionError, match="Attempt to convert a value") as refused:
        math.add_v2([Unshowable(error())], 1)
    assert isinstance(refused.value.__cause__, ValueError)


def test_refused_method_in_place_of_an_output_names_the_output():
    counted = array.unique_with_counts(tf.constant([1, 1, 2]))
    with pytest.raises(
        OpInputError, match=r"'count' of a tuple; the output is .count_"
    ):
        math.abs(counted.count)
    assert math.abs(counted.count_).numpy().tolist() == [2, 1]


def test_refused_bias_leaves_a_matrix_that_kernels_take():
    """Graphs refuse the matrix in NCHW; eagerly it is the bias that does not fit."""
    matrix, bias = tf.ones([8, 2]), tf.ones([5])
    assert nn.bias_add(matrix, tf.ones([2]), data_format="NCHW").shape == (8, 2)
    with pytest.raises(OpExecutionError, match="Must provide as many biases"):
        nn.bias_add(matrix, bias, data_format="NCHW")
    words = "value has 2 dimensions, not 3 or more"
    with tf.Graph().as_default(), pytest.raises(OpInputError, match=words):
        nn.bias_add(matrix.numpy(), bias.numpy(), data_format="NCHW")


@pytest.mark.parametrize(
    "reduce",
    [
        math.all,
        math.any,
        math.sum,
        math.prod,
        math.min,
        math.max,
        math.mean,
        linalg.euclidean_norm,
    ],
)
def test_refused_axis_that_is_there_twice_leaves_a_matrix_that_kernels_take(reduce):
    x = tf.ones([2, 3], tf.bool if reduce in (math.all, math.any) else tf.float32)
    assert reduce(x, [[0]]).shape == (3,)
    with pytest.raises(OpExecutionError, match="duplicate dimension: 0"):
        reduce(x, [[0, 0]])


@pytest.mark.parametrize(
    "gradient",
    [
        math.sigmoid_grad,
        math.tanh_grad,
        math.inv_grad,
        math.reciprocal_grad,
        math.sqrt_grad,
        math.rsqrt_grad,
    ],
)
def test_refused_count_of_elements_leaves_a_rank_that_kernels_take(gradient):
    y = tf.ones([2, 1])
    assert gradient(y, tf.ones([2])).shape == (2, 1)
    with pytest.raises(OpExecutionError, match="must have same number of elements"):
        gradient(y, tf.ones([3]))


def test_refused_range_of_a_quantized_product_leaves_a_bias_of_any_size():
    given = {name: np.zeros([], np.float32) for name in ("min_b", "max_b")}
    with tf.Graph().as_default():
        given["a"] = tf.compat.v1.placeholder(tf.quint8, [1, 2])
        given["b"] = tf.compat.v1.placeholder(tf.qint8, [2, 2])
        given |= {"bias": tf.zeros([3]), "max_a": tf.zeros([])}
        linalg.quantized_mat_mul_with_bias(**given, min_a=tf.zeros([]))
        with pytest.raises(OpExecutionError, match="must be rank 0 but is rank 1"):
            linalg.quantized_mat_mul_with_bias(**given, min_a=tf.zeros([1]))


def test_refused_axis_of_one_element_is_no_reason():
    # Some kernels take it for a scalar; of others TensorFlow says it.
    with pytest.raises(OpExecutionError, match="ScanOp: axis must be a scalar"):
        math.cumsum([1, 2], [0])


def test_explain_kernel_text_that_begins_with_the_op_names_the_op_once() -> None:
    refused = tf.errors.InvalidArgumentError(None, None, "MatMul: product is too large")
    found = diagnosis.explain(
        refused, linalg.MatMul.op_def, (FLOATS, FLOATS), {"transpose_a": False}, None
    )
    assert isinstance(found, OpExecutionError)
    assert str(found).startswith("MatMul: product is too large (given a: ")
