"""Ops that make, cut, join and rearrange tensors."""

import numpy as np
import tensorflow as tf

from support.equivalence.modes import FUNCTION, GRAPH
from support.equivalence.samples.kit import Samples, complexes, real

SAMPLES = Samples()

X = real(2, 3, 4)
M = real(3, 3)
IMAGE = real(1, 4, 4, 2)
WORDS = np.array([["a", "b"], ["c", "d"]])

# Shapes.
SAMPLES.add("Shape", X, out_type=tf.int64)
SAMPLES.add("ShapeN", [X, M], out_type=tf.int64)
SAMPLES.add("ShapeN", [X, M])
SAMPLES.add("Size", X, out_type=tf.int64)
SAMPLES.add("Rank", X)
SAMPLES.add("Reshape", X, [4, -1])
SAMPLES.add("ExpandDims", X, 1)
SAMPLES.add("Squeeze", X[:, :1, :1], squeeze_dims=[1])
SAMPLES.add("Squeeze", X[:, :1, :1])
SAMPLES.add("EnsureShape", X, shape=[None, 3, 4])
SAMPLES.add("PlaceholderWithDefault", X, shape=[2, None, 4])
SAMPLES.add("BroadcastArgs", [2, 1], [3])
SAMPLES.add("BroadcastGradientArgs", [2, 1], [3])
SAMPLES.add("UnravelIndex", [5, 7], [3, 4])
SAMPLES.add("InvertPermutation", [2, 0, 1])

# Constants and ranges. Eager mode takes no attr that is a tensor.
NOT_EAGER = (GRAPH, FUNCTION)
SAMPLES.add(
    "Const", value=tf.make_tensor_proto([[1.5, 2.5]]), dtype=tf.float32, modes=NOT_EAGER
)
SAMPLES.add(
    "Const", value=tf.make_tensor_proto(["a", "b"]), dtype=tf.string, modes=NOT_EAGER
)
SAMPLES.add(
    "HostConst", value=tf.make_tensor_proto([1, 2]), dtype=tf.int32, modes=NOT_EAGER
)
SAMPLES.add("Fill", [2, 3], np.float32(1.5))
SAMPLES.add("Fill", [2], "word")
SAMPLES.add("Empty", [2, 3], dtype=tf.float32, init=True)
SAMPLES.add("Range", 1, 9, 3)
SAMPLES.add("LinSpace", 0.5, 2.0, 5)
SAMPLES.add("OneHot", [0, 2, -1], 3, 5.0, -1.0, axis=0)
SAMPLES.add("OneHot", [0, 2, -1], 3, "on", "off")
SAMPLES.add("ParallelConcat", [X[:1], X[1:]], shape=[2, 3, 4])
SAMPLES.add("GuaranteeConst", X)

# Parts.
SAMPLES.add("Slice", X, [0, 1, 0], [2, 2, -1])
MASKS = {"begin_mask": 1, "end_mask": 2, "new_axis_mask": 4, "shrink_axis_mask": 8}
SAMPLES.add("StridedSlice", X, [0, 1, 0, 1], [2, 2, 0, 2], [1, 1, 1, 1], **MASKS)
SAMPLES.add("StridedSlice", X, [0, 1], [1, 3], [1, 1], ellipsis_mask=1)
SAMPLES.add("StridedSlice", X, [0, 2], [2, 0], [1, -1])
SAMPLES.add(
    "StridedSliceGrad",
    [2, 3, 4],
    [0, 1],
    [1, 3],
    [1, 1],
    real(2, 4),
    shrink_axis_mask=2,
    end_mask=1,
    begin_mask=1,
)
SAMPLES.add("StridedSliceGrad", [3], [0], [2], [1], real(2))
SAMPLES.add("TensorStridedSliceUpdate", X, [0, 1], [1, 3], [1, 1], real(1, 2, 4))
SAMPLES.add(
    "TensorStridedSliceUpdate",
    X,
    [0, 1],
    [1, 3],
    [1, 1],
    real(3, 4),
    shrink_axis_mask=1,
    ellipsis_mask=2,
)
SAMPLES.add("Split", 2, X, num_split=2)
SAMPLES.add("SplitV", X, [1, 3], 2, num_split=2)
SAMPLES.add("Unpack", X, num=3, axis=1)
SAMPLES.add("Gather", X, [1, 0, 1], validate_indices=False)
SAMPLES.add("GatherV2", X, [[1, 0], [0, 2]], 1, batch_dims=1)
SAMPLES.add("GatherV2", WORDS, np.int64([1]), np.int64(0))
SAMPLES.add("GatherNd", X, [[0, 1], [1, 2]], bad_indices_policy="IGNORE")
SAMPLES.add("GatherNd", X, [[0, 1], [1, 2]])
SAMPLES.add("DynamicPartition", X, [1, 0], num_partitions=2)
SAMPLES.each(
    "DynamicStitch ParallelDynamicStitch", [[0, 2], [1]], [real(2, 2), real(1, 2)]
)
SAMPLES.add("BroadcastTo", real(3, 1), [2, 3, 4])
SAMPLES.add("Tile", real(2, 2), [1, 3])

# Joins.
SAMPLES.add("Concat", 1, [X, X + 1])
SAMPLES.add("ConcatV2", [X, X + 1], -1)
SAMPLES.add("ConcatV2", [WORDS, WORDS], np.int64(0))
SAMPLES.add("ConcatOffset", 1, [[2, 3], [2, 5]])
SAMPLES.add("Pack", [M, M + 1], axis=1)
SAMPLES.add("IdentityN", [X, WORDS, 3])

# Order of elements.
SAMPLES.each("Transpose ConjugateTranspose", complexes(2, 3), [1, 0])
SAMPLES.each("Transpose ConjugateTranspose", X, [2, 0, 1])
SAMPLES.add("Reverse", X, [True, False, True])
SAMPLES.add("ReverseV2", X, [0, 2])
SAMPLES.add("ReverseSequence", X, [3, 1, 2, 1], seq_dim=1, batch_dim=2)
SAMPLES.add("ReverseSequence", X, [3, 1], seq_dim=1)
SAMPLES.each("DataFormatDimMap", [0, 3], src_format="NHWC", dst_format="NCWH")
SAMPLES.each("DataFormatVecPermute", [1, 5, 6, 2], src_format="NCHW", dst_format="NHWC")
SAMPLES.add("DepthToSpace", real(1, 2, 2, 8), block_size=2)
SAMPLES.add("SpaceToDepth", IMAGE, block_size=2)
SAMPLES.add("BatchToSpace", real(4, 2, 2, 1), [[0, 1], [1, 0]], block_size=2)
SAMPLES.add("SpaceToBatch", IMAGE, [[1, 1], [0, 0]], block_size=2)
SAMPLES.add("BatchToSpaceND", real(4, 2, 2, 1), [2, 2], [[0, 1], [1, 0]])
SAMPLES.add("SpaceToBatchND", IMAGE, [2, 2], [[1, 1], [0, 0]])

# Padding.
SAMPLES.add("Pad", M, [[1, 0], [0, 2]])
SAMPLES.add("PadV2", M, [[1, 0], [0, 2]], np.float32(9))
SAMPLES.add("MirrorPad", M, [[1, 0], [0, 2]], mode="REFLECT")
SAMPLES.add("MirrorPadGrad", real(4, 5), [[1, 0], [0, 2]], mode="SYMMETRIC")

# Scattering.
SCATTERED = (real(4, 2), [[1], [3], [1]], real(3, 2))
SAMPLES.each(
    "TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin"
    " ScatterNdNonAliasingAdd",
    *SCATTERED,
)
SAMPLES.add("TensorScatterUpdate", real(4, 2), [[1], [3]], real(2, 2))
SAMPLES.each(
    "TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin"
    " TensorScatterUpdate",
    real(4, 2),
    [[1], [7]],
    real(2, 2),
    bad_indices_policy="IGNORE",
)
SAMPLES.add("ScatterNd", [[0], [2]], real(2, 3), [4, 3], bad_indices_policy="IGNORE")
SAMPLES.add("ScatterNd", [[0], [2]], real(2, 3), [4, 3])
SAMPLES.each("InplaceAdd InplaceSub InplaceUpdate", real(3, 2), [1], real(1, 2))

# Diagonals and bands.
SAMPLES.add("Diag", real(3))
SAMPLES.add("DiagPart", M)
SAMPLES.add("MatrixDiag", real(2, 3))
SAMPLES.each("MatrixDiagPart", X)
SAMPLES.add("MatrixSetDiag", X, real(2, 3))
SAMPLES.add("MatrixBandPart", X, 1, 0)
SAMPLES.add("MatrixDiagV2", real(2, 3), [0, 1], 3, 3, 0.5)
SAMPLES.add("MatrixDiagV3", real(2, 3), [0, 1], 3, 3, 0.5, align="LEFT_LEFT")
SAMPLES.add("MatrixDiagPartV2", X, [0, 1], 0.5)
SAMPLES.add("MatrixDiagPartV3", X, [-1, 1], 0.5, align="LEFT_RIGHT")
SAMPLES.add("MatrixSetDiagV2", M, real(2, 3), [0, 1])
SAMPLES.add("MatrixSetDiagV3", M, real(2, 3), [0, 1], align="RIGHT_RIGHT")
SAMPLES.each("BatchMatrixDiag", real(2, 3))
SAMPLES.each("BatchMatrixDiagPart", M)
SAMPLES.add("BatchMatrixSetDiag", M, real(3))
SAMPLES.add("BatchMatrixBandPart", M, np.int64(1), np.int64(0))

# Watching.
SAMPLES.each("Copy CopyHost", X, tensor_name="x", debug_ops_spec=[])
SAMPLES.add("DebugIdentity", X, device_name="cpu", tensor_name="x:0")
SAMPLES.add(
    "DebugIdentityV2",
    X,
    op_name="x",
    output_slot=0,
    tensor_debug_mode=1,
    circular_buffer_size=4,
)
SAMPLES.add(
    "DebugIdentityV3",
    X,
    device_name="cpu",
    tensor_name="x:0",
    io_of_node="x",
    is_input=True,
    io_index=0,
)
SAMPLES.add("DebugNanCount", X, tensor_name="x:0")
SAMPLES.add(
    "DebugNumericSummary",
    X,
    tensor_name="x:0",
    lower_bound=-1.0,
    upper_bound=1.5,
    mute_if_healthy=False,
)
SAMPLES.add(
    "DebugNumericSummaryV2",
    X,
    output_dtype=tf.float64,
    tensor_debug_mode=2,
    tensor_id=3,
)
SAMPLES.add("DebugGradientIdentity", X)
SAMPLES.add("SerializeTensor", X)
SAMPLES.add("Fingerprint", WORDS, "farmhash64")
SAMPLES.add("Assert", True, ["never", X], summarize=2)
SAMPLES.add("NoOp")
SAMPLES.add("ControlTrigger")
SAMPLES.add("NextIteration", X)
SAMPLES.add("SyncDevice")
SAMPLES.add("Fact")
SAMPLES.add("DeviceIndex", device_names=["GPU", "CPU"])


@SAMPLES.program()
def unset_values(run):
    run.opaque.Timestamp()
    run.opaque.FakeParam(dtype=tf.float32, shape=[2])


@SAMPLES.program()
def serialized_tensor(run):
    run.ParseTensor(run.SerializeTensor(X), out_type=tf.float32)


@SAMPLES.program()
def print_v1(run):
    run.Print(X, [X, 1], message="", first_n=0, summarize=1)


@SAMPLES.program()
def print_v2(run):
    path = run.directory / "printed"
    run.PrintV2("some words", output_stream=f"file://{path}", end="!")
    run.ReadFile(str(path))
