"""What the shape functions of some ops require of arguments, beyond the OpDef."""

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2

from support.equivalence.registry import op_defs

# By op: attrs as values, inputs as functions that make them.
HINTS: dict[str, dict[str, Any]] = {}

# Options that an op cannot do without, though they have defaults.
NEEDED: dict[str, set[str]] = {}


def hint(ops: str, /, needed: str = "", **values: Any) -> None:
    for op in ops.split():
        HINTS.setdefault(op, {}).update(values)
        NEEDED.setdefault(op, set()).update(needed.split())


def matching(pattern: str) -> str:
    """The ops whose full name matches."""
    return " ".join(name for name in op_defs() if re.fullmatch(pattern, name))


def shaped(dtype: tf.DType, *shape: int | None) -> Callable[[], tf.Tensor]:
    return lambda: tf.compat.v1.placeholder(dtype, shape)


# Windows over images and volumes.
FOUR = [1, 2, 2, 1]
hint(
    matching("Quantized.*Conv2D.*"),
    strides=FOUR,
    dilations=FOUR,
    padding_list=[0, 0, 1, 1, 1, 1, 0, 0],
)
hint(
    "Conv2D DepthwiseConv2dNative",
    strides=[1, 1, 2, 2],
    dilations=[1, 1, 2, 2],
    data_format="NCHW",
    padding="EXPLICIT",
    explicit_paddings=[0, 0, 0, 0, 1, 2, 1, 2],
    needed="data_format explicit_paddings",
)
hint(
    "FusedPadConv2D FusedResizeAndPadConv2D",
    paddings=shaped(tf.int32, 4, 2),
    strides=FOUR,
)
hint("Conv3D", strides=[1, 1, 2, 2, 2], dilations=[1, 1, 2, 2, 2])
hint("QuantizedAvgPool QuantizedMaxPool", ksize=FOUR, strides=FOUR)
hint("MaxPoolV2", data_format="NCHW")
hint(
    "MaxPool",
    data_format="NCHW",
    padding="EXPLICIT",
    explicit_paddings=[0, 0, 0, 0, 1, 2, 1, 2],
    needed="data_format explicit_paddings",
)
hint("FractionalAvgPool FractionalMaxPool", pooling_ratio=[1.0, 1.5, 1.25, 1.0])
hint(
    "BatchToSpaceND SpaceToBatchND",
    block_shape=shaped(tf.int32, 2),
    Tblock_shape=tf.int32,
)
hint("ApproxTopK", input=shaped(tf.float32, 2, 9), k=2, reduction_dimension=0)
hint("Dequantize", input=shaped(tf.qint8, 2, 3), axis=1)
hint("ParallelConcat", shape=[2, 3], values=lambda: [shaped(tf.float32, 1, 3)()] * 2)
hint("TPUDummyInput XlaCustomCall XlaRecv", shape=[2, 3])
hint("XlaSpmdShardToFullShape", full_shape=[2, 3])
hint("XlaCustomCallV2", result_shapes=[[2], [3]])
hint("OutfeedDequeueTupleV2", device_ordinal=shaped(tf.int32), shapes=[[2], [3]])

# Strings with a grammar.
hint(
    "Einsum",
    equation="ij,jk->ik",
    inputs=lambda: [shaped(tf.float32, 2, 2)() for _ in range(2)],
)
hint("XlaEinsum", equation="ij,jk->ik")
hint("StringFormat", template="%s, %s", placeholder="%s", needed="template")
hint(
    "RaggedTensorToTensor",
    row_partition_types=["ROW_SPLITS", "ROW_SPLITS"],
    num_row_partition_tensors=2,
)
hint(
    "RaggedCross",
    ragged_values_types=[tf.int64, tf.string],
    ragged_splits_types=[tf.int64, tf.int32],
    Nsparse=2,
)

# Lists that must be as long as others.
hint("TPUPartitionedInputV2", partition_dims=[1, 2], N=2, is_packed=False)
hint("TPUPartitionedOutputV2", partition_dims=[1, 2], num_splits=2)
hint(
    "EnqueueTPUEmbeddingBatch EnqueueTPUEmbeddingSparseBatch"
    " SortListOfSparseCoreCooTensors",
    N=2,
)
hint("XlaSparseActivationsUnstack", num_tables=2)
hint(
    "ParseExample ParseExampleV2 ParseSingleExample",
    dense_shapes=[[2], [3]],
    num_sparse=2,
    Nsparse=2,
    Ndense=2,
)
hint(
    "ParseSequenceExample ParseSequenceExampleV2 ParseSingleSequenceExample",
    context_dense_shapes=[[2], [3]],
    feature_list_dense_shapes=[[2], [3]],
    Ncontext_sparse=2,
    Ncontext_dense=2,
    Nfeature_list_sparse=2,
    Nfeature_list_dense=2,
    needed="Ncontext_sparse Ncontext_dense Nfeature_list_sparse Nfeature_list_dense"
    " context_sparse_types context_dense_shapes feature_list_sparse_types"
    " feature_list_dense_types feature_list_dense_shapes",
)

# Handles with data about what they stand for.
hint(
    "ResourceCountUpTo",
    resource=lambda: tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[]),
    T=tf.int64,
)


def csr_matrix() -> tf.Tensor:
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=shaped(tf.int64, None, 2)(),
        values=shaped(tf.float32, None)(),
        dense_shape=shaped(tf.int64, 2)(),
    )


for name in matching("(CSR)?SparseMatrix.*").split():
    matrices = [arg.name for arg in op_defs()[name].input_arg if arg.type == tf.variant]
    hint(name, type=tf.float32, **dict.fromkeys(matrices, csr_matrix))
hint("SparseMatrixMatMul SparseMatrixSparseMatMul", adjoint_a=False, adjoint_b=False)
hint("SparseMatrixZeros", dense_shape=shaped(tf.int64, 2))
hint("SparseMatrixMul", b=shaped(tf.float32))
hint("SparseMatrixSparseCholesky", permutation=shaped(tf.int32, 3))
hint("CSRSparseMatrixComponents", index=shaped(tf.int32))
hint(
    "DenseToCSRSparseMatrix",
    dense_input=shaped(tf.float32, 3, 3),
    indices=shaped(tf.int64, None, 2),
)
hint(
    "SparseTensorToCSRSparseMatrix",
    indices=shaped(tf.int64, None, 2),
    values=shaped(tf.float32, None),
    dense_shape=shaped(tf.int64, 2),
)

# Serialized messages.
hint(
    "XlaGather",
    dimension_numbers=xla_data_pb2.GatherDimensionNumbers().SerializeToString(),
)
TUPLE_MASK = tensor_pb2.TensorProto(
    dtype=tf.int32.as_datatype_enum,
    tensor_shape={"dim": [{"size": 2}, {"size": 2}]},
    int_val=[0, 2, 1, 2],
)
ADAM = {"adam": {}, "learning_rate": {"constant": 0.1}}
CONFIG = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration(
    mode="TRAINING",
    batch_size_per_tensor_core=2,
    num_hosts=1,
    num_tensor_cores=1,
    table_descriptor=[
        {
            "name": name,
            "vocabulary_size": 8,
            "dimension": 4,
            "num_features": 1,
            "optimization_parameters": ADAM,
        }
        for name in ("one", "two")
    ],
).SerializeToString()
hint("SplitDedupData", tuple_mask=TUPLE_MASK.SerializeToString(), config=CONFIG)
hint(
    "ConfigureTPUEmbeddingHost ExecuteTPUEmbeddingPartitioner"
    " RecvTPUEmbeddingActivations XlaRecvTPUEmbeddingActivations"
    " XlaRecvTPUEmbeddingActivationsV2 LoadAllTPUEmbeddingParameters"
    " RetrieveAllTPUEmbeddingParameters",
    config=CONFIG,
    num_tables=2,
    num_outputs=2,
    NumTables=2,
    num_shards=1,
    shard_id=0,
)
hint(
    matching("(Load|Retrieve)TPUEmbedding.*Parameters.*"),
    table_name="one",
    table_id=-1,
    config=CONFIG,
    num_shards=1,
    shard_id=0,
    needed="table_name",
)
