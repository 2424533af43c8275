"""XLA's ops, collective ops over a group of one, and calls to other processes."""

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2

from support.equivalence.modes import EAGER, FUNCTION, GRAPH
from support.equivalence.samples.control import double, is_small, square
from support.equivalence.samples.kit import Samples, function, integers, real

SAMPLES = Samples()

X = real(3, 4)


@function(tf.float32, tf.float32)
def plus(x, y):
    return x + y


@function(tf.float32, tf.float32)
def at_least(x, y):
    return x >= y


@function(tf.float32, tf.float32)
def below(x, y):
    return x < y


SAMPLES.add("XlaBroadcastHelper", X, real(4), np.int64([1]))
SAMPLES.add("XlaDynamicSlice", X, [1, 0], [2, 2])
SAMPLES.add("XlaDynamicUpdateSlice", X, real(2, 2), [1, 0])
SAMPLES.add("XlaPad", X, 0.5, [1, 0], [0, 2], [1, 0])
SAMPLES.add("XlaSort", X)
SAMPLES.add("XlaKeyValueSort", real(4), integers(4))
SAMPLES.add("XlaReduce", X, np.float32(0), dimensions_to_reduce=[1], reducer=plus)
SAMPLES.add(
    "XlaVariadicReduceV2", [X], [np.float32(0)], dimensions_to_reduce=[1], reducer=plus
)
SAMPLES.add(
    "XlaVariadicReduce", [X], [np.float32(0)], dimensions_to_reduce=[1], reducer=plus
)
SAMPLES.add(
    "XlaReduceWindow",
    X,
    np.float32(0),
    [1, 2],
    [1, 1],
    [1, 1],
    [1, 1],
    [[0, 0], [0, 0]],
    computation=plus,
)
SAMPLES.add(
    "XlaSelectAndScatter",
    X,
    [1, 2],
    [1, 2],
    [[0, 0], [0, 0]],
    real(3, 2),
    np.float32(0),
    select=at_least,
    scatter=plus,
)
SAMPLES.add("XlaVariadicSort", [X], 1, comparator=below, is_stable=True)
SAMPLES.add("XlaReducePrecision", X, exponent_bits=5, mantissa_bits=3)
SAMPLES.add("XlaSharding", X, sharding="", unspecified_dims=[])
SAMPLES.add("XlaOptimizationBarrier", [X, real(2)])
SAMPLES.add(
    "XlaSelfAdjointEig", X[:, :3] + X[:, :3].T, lower=True, max_iter=20, epsilon=1e-4
)
SAMPLES.add("XlaSvd", real(2, 2), max_iter=1, epsilon=1e-4, precision_config="")
SAMPLES.add("XlaRngBitGenerator", 1, np.uint64([1, 2]), [2, 3], dtype=tf.uint32)
SAMPLES.add(
    "XlaDequantize",
    np.uint32([[1, 2]]),
    min_range=0.0,
    max_range=1.0,
    mode="MIN_COMBINED",
    transpose_output=False,
)
DOT = xla_data_pb2.DotDimensionNumbers(
    lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]
).SerializeToString()
CONVOLUTION = xla_data_pb2.ConvolutionDimensionNumbers(
    input_batch_dimension=0,
    input_feature_dimension=3,
    input_spatial_dimensions=[1, 2],
    kernel_input_feature_dimension=2,
    kernel_output_feature_dimension=3,
    kernel_spatial_dimensions=[0, 1],
    output_batch_dimension=0,
    output_feature_dimension=3,
    output_spatial_dimensions=[1, 2],
).SerializeToString()
GATHER = xla_data_pb2.GatherDimensionNumbers(
    offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1
).SerializeToString()
SCATTER = xla_data_pb2.ScatterDimensionNumbers(
    update_window_dims=[1],
    inserted_window_dims=[0],
    scatter_dims_to_operand_dims=[0],
    index_vector_dim=1,
).SerializeToString()
PLAIN = {"precision_config": ""}
SAMPLES.add("XlaDot", X, real(4, 2), dimension_numbers=DOT, **PLAIN)
SAMPLES.add(
    "XlaDotV2",
    X,
    real(4, 2),
    dimension_numbers=DOT,
    **PLAIN,
    preferred_element_type=tf.float32,
)
WINDOW = (
    real(1, 4, 4, 2),
    real(3, 3, 2, 2),
    [1, 1],
    [[1, 1], [0, 1]],
    [1, 1],
    [1, 1],
    1,
)
SAMPLES.add("XlaConv", *WINDOW, dimension_numbers=CONVOLUTION, **PLAIN)
SAMPLES.add(
    "XlaConvV2",
    *WINDOW,
    dimension_numbers=CONVOLUTION,
    **PLAIN,
    preferred_element_type=tf.float32,
    batch_group_count=1,
)
SAMPLES.add(
    "XlaGather", X, [2, 0], [1, 4], dimension_numbers=GATHER, indices_are_sorted=False
)
SAMPLES.add(
    "XlaScatter",
    X,
    [2, 0],
    real(2, 4),
    update_computation=plus,
    dimension_numbers=SCATTER,
    indices_are_sorted=False,
)
SAMPLES.add(
    "XlaSpmdShardToFullShape",
    X,
    manual_sharding="",
    full_shape=[3, 4],
    dim=0,
    unspecified_dims=[1],
)
SAMPLES.add("XlaWhile", [real(3)], cond=is_small, body=double)
SAMPLES.add("XlaLaunch", [], [real(3)], [], Tresults=[tf.float32], function=square)
MODULE = """
module @shifted {
  func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %y = stablehlo.add %x, %x : tensor<3xf32>
    return %y : tensor<3xf32>
  }
}
"""
SAMPLES.add(
    "XlaCallModule",
    [real(3)],
    version=9,
    module=MODULE,
    Sout=[[3]],
    Tout=[tf.float32],
    platforms=["CPU"],
    function_list=[],
    has_token_input_output=False,
    disabled_checks=[],
)

# One worker is a group.
COLLECTIVE = {"communication_hint": "ring", "timeout_seconds": 5.0}
GROUP = {"group_size": 1, "group_key": 1, "instance_key": 1}
MERGE = {"merge_op": "Add", "final_op": "Id"}
SAMPLES.add(
    "CollectiveReduce",
    X,
    **GROUP,
    **MERGE,
    subdiv_offsets=[0],
    wait_for=[],
    **COLLECTIVE,
)
SAMPLES.add(
    "CollectiveGather",
    X,
    group_size=1,
    group_key=2,
    instance_key=2,
    shape=[3, 4],
    **COLLECTIVE,
)
SAMPLES.add(
    "CollectiveReduceV2",
    X,
    1,
    3,
    3,
    [],
    **MERGE,
    **COLLECTIVE,
    max_subdivs_per_device=2,
)
SAMPLES.add("CollectiveGatherV2", X, 1, 4, 4, [], **COLLECTIVE)
SAMPLES.add(
    "CollectiveAllToAllV2", X[:1], 1, 5, 5, [], **COLLECTIVE, modes=(EAGER, FUNCTION)
)
SAMPLES.add(
    "CollectiveBcastSend",
    X,
    group_size=1,
    group_key=6,
    instance_key=6,
    shape=[3, 4],
    **COLLECTIVE,
)
SAMPLES.add("CollectiveBcastSendV2", X, 1, 7, 7, **COLLECTIVE)
SAMPLES.add("CollectiveAssignGroupV2", [[0]], 0, 1)


@SAMPLES.program(modes=(GRAPH,))
def send_and_receive(run):
    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    ends = {
        "tensor_name": "x",
        "send_device": device,
        "recv_device": device,
        "send_device_incarnation": 1,
        "client_terminated": True,
    }
    run.Send(X, **ends)
    run.Recv(tensor_type=tf.float32, **ends)
