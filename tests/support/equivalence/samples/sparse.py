"""Sparse and ragged tensors."""

import numpy as np
import tensorflow as tf

from support.equivalence.samples.kit import Samples, positive, real

SAMPLES = Samples()

INDICES = np.int64([[0, 1], [1, 0], [1, 2], [3, 1]])
VALUES = real(4)
SHAPE = np.int64([4, 3])
A = (INDICES, VALUES, SHAPE)
B = (np.int64([[0, 1], [2, 2]]), real(2), SHAPE)
DENSE = positive(4, 3)
WORDS = np.array(["a", "b", "c", "d"])

SAMPLES.add("SparseAdd", *A, *B, np.float32(0.1))
SAMPLES.add(
    "SparseAddGrad",
    real(5),
    INDICES,
    B[0],
    np.int64([[0, 1], [1, 0], [1, 2], [2, 2], [3, 1]]),
)
SAMPLES.each("SparseDenseCwiseAdd SparseDenseCwiseMul SparseDenseCwiseDiv", *A, DENSE)
SAMPLES.each("SparseSparseMaximum SparseSparseMinimum", *A, *B)
SAMPLES.each(
    "SparseReduceSum SparseReduceMax SparseReduceSumSparse SparseReduceMaxSparse",
    *A,
    [1],
    keep_dims=True,
)
SAMPLES.each(
    "SparseReduceSum SparseReduceMax SparseReduceSumSparse SparseReduceMaxSparse",
    *A,
    [0],
)
SAMPLES.add("SparseReorder", INDICES[::-1].copy(), VALUES, SHAPE)
SAMPLES.add("SparseReshape", INDICES, SHAPE, np.int64([2, -1]))
SAMPLES.add(
    "SparseConcat", [INDICES, B[0]], [VALUES, B[1]], [SHAPE, SHAPE], concat_dim=1
)
SAMPLES.add("SparseSplit", np.int64(0), *A, num_split=2)
SAMPLES.add("SparseSlice", *A, np.int64([1, 0]), np.int64([2, 2]))
SAMPLES.add("SparseSliceGrad", real(1), INDICES, np.int64([1, 0]), np.int64([[0, 0]]))
SAMPLES.add("SparseSoftmax", *A)
SAMPLES.add("SparseTensorDenseAdd", *A, DENSE)
SAMPLES.add("SparseTensorDenseMatMul", *A, real(4, 2), adjoint_a=True)
SAMPLES.add("SparseTensorDenseMatMul", *A, real(2, 3), adjoint_b=True)
SAMPLES.add("SparseToDense", INDICES, SHAPE, VALUES, 0.5, validate_indices=False)
SAMPLES.add("SparseFillEmptyRows", *A, np.float32(9))
SAMPLES.add("SparseFillEmptyRowsGrad", np.int64([0, 1, 2, 4]), real(5))
CROSSED = (
    [INDICES],
    [np.int64([5, 6, 7, 8])],
    [SHAPE],
    [np.int64([[1], [2], [3], [4]])],
)
SAMPLES.add(
    "SparseCross",
    *CROSSED,
    hashed_output=True,
    num_buckets=10,
    hash_key=3,
    out_type=tf.int64,
    internal_type=tf.int64,
)
SAMPLES.add("SparseCrossV2", [INDICES], [WORDS], [SHAPE], [WORDS[:, None]], "_")
SAMPLES.add(
    "SparseCrossHashed",
    [INDICES],
    [WORDS],
    [SHAPE],
    [WORDS[:, None]],
    10,
    True,
    np.int64([3, 4]),
)

# Sets.
SETS = (np.int64([[1, 2], [3, 4]]), np.int64([[2, 5], [3, 3]]))
FLAT = (np.int64([[0, 0], [1, 0]]), np.int64([2, 3]), np.int64([2, 1]))
SAMPLES.add(
    "DenseToDenseSetOperation",
    *SETS,
    set_operation="intersection",
    validate_indices=False,
)
SAMPLES.add(
    "DenseToSparseSetOperation",
    SETS[0],
    *FLAT,
    set_operation="a-b",
    validate_indices=False,
)
SAMPLES.add(
    "SparseToSparseSetOperation",
    *FLAT,
    *FLAT,
    set_operation="union",
    validate_indices=False,
)
SAMPLES.add("SetSize", *FLAT, validate_indices=False)
SAMPLES.add(
    "EditDistance",
    INDICES,
    WORDS,
    SHAPE,
    INDICES,
    WORDS[::-1].copy(),
    SHAPE,
    normalize=False,
)

# Ragged.
SPLITS = np.int64([0, 2, 2, 5])
SAMPLES.add("RaggedRange", [0, 5], [3, 9], [1, 2], Tsplits=tf.int32)
SAMPLES.add("RaggedTensorToSparse", [SPLITS], real(5))
SAMPLES.add(
    "RaggedTensorToTensor",
    np.int64([3, 4]),
    real(5),
    np.float32(0.5),
    [SPLITS],
    row_partition_types=["ROW_SPLITS"],
)
SAMPLES.add("RaggedGather", [SPLITS], real(5), np.int64([2, 0]), OUTPUT_RAGGED_RANK=1)
SAMPLES.add(
    "RaggedFillEmptyRows", np.int64([0, 2]), real(2), np.int64(3), np.float32(7)
)
SAMPLES.add("RaggedFillEmptyRowsGrad", np.int64([0, 2]), real(3))
SAMPLES.add(
    "RaggedCross",
    [np.int64([1, 2, 3])],
    [np.int64([0, 1, 3])],
    [],
    [],
    [],
    [np.int64([[4], [5]])],
    input_order="RD",
    hashed_output=True,
    num_buckets=10,
    hash_key=956888297470,
    out_values_type=tf.int64,
    out_row_splits_type=tf.int64,
)


@SAMPLES.program()
def ragged_variants(run):
    encoded = run.RaggedTensorToVariant([SPLITS], real(5), batched_input=True)
    run.RaggedTensorFromVariant(
        encoded, input_ragged_rank=0, output_ragged_rank=1, Tvalues=tf.float32
    )


@SAMPLES.program()
def ragged_variant_gradient(run):
    encoded = run.RaggedTensorToVariant([SPLITS], real(5), batched_input=True)
    run.RaggedTensorToVariantGradient(encoded, SPLITS, [5], Tvalues=tf.float32)


@SAMPLES.program()
def serialized_sparse(run):
    one = run.SerializeSparse(*A)
    run.DeserializeSparse(one, dtype=tf.float32)
    many = run.SerializeManySparse(*A)
    run.DeserializeManySparse(many, dtype=tf.float32)
    kept = run.SerializeManySparse(*A, out_type=tf.variant)
    run.DeserializeSparse(kept, dtype=tf.float32)
    kept = run.SerializeSparse(*A, out_type=tf.variant)
    run.DeserializeSparse(kept, dtype=tf.float32)


@SAMPLES.program()
def sparse_tensors_map(run):
    shared = {"container": "", "shared_name": run.unique("map")}
    one = run.AddSparseToTensorsMap(*A, **shared)
    many = run.AddManySparseToTensorsMap(*A, **shared)
    run.TakeManySparseFromTensorsMap(tf.reshape(one, [1]), dtype=tf.float32, **shared)
    run.TakeManySparseFromTensorsMap(many, dtype=tf.float32, **shared)
