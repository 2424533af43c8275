"""Reductions, scans, segments, sorting and counting."""

import numpy as np
import tensorflow as tf

from support.equivalence.samples.kit import (
    Samples,
    complexes,
    integers,
    positive,
    real,
    tensor,
)

SAMPLES = Samples()

X = real(2, 3, 4)
REDUCTIONS = "Sum Prod Mean Max Min EuclideanNorm"

SAMPLES.each(REDUCTIONS, X, [0, 2], keep_dims=True)
SAMPLES.each(REDUCTIONS, X, 1)
SAMPLES.each("All Any", X > -0.5, [1], keep_dims=True)
SAMPLES.each("Sum Prod Mean", complexes(3, 2), 0)
SAMPLES.add("Sum", integers(3, 2, dtype=np.int64), np.int64(1))
SAMPLES.add("L2Loss", X)
SAMPLES.each("ArgMax", X, 2, output_type=tf.int32)
SAMPLES.add("ArgMin", X, 2, output_type=tf.int32)
SAMPLES.each("ArgMax ArgMin", X, np.int64(0))
SAMPLES.each("Cumsum Cumprod CumulativeLogsumexp", X, 1, exclusive=True, reverse=True)
SAMPLES.each("Cumsum Cumprod CumulativeLogsumexp", X, np.int64(2))
SAMPLES.add("Roll", X, [1, -2], [0, 2])

# Segments.
ROWS = real(5, 2)
IDS = np.array([0, 0, 1, 3, 3], np.int32)
SAMPLES.each("SegmentSum SegmentMean SegmentProd SegmentMax SegmentMin", ROWS, IDS)
SAMPLES.each(
    "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin",
    ROWS,
    np.array([2, 0, 2, 1, -1], np.int32),
    4,
)
SAMPLES.add("UnsortedSegmentJoin", ["a", "b", "c"], [1, 0, 1], 2, separator="+")
PICKED = (ROWS, np.array([0, 2, 2, 4], np.int32), np.array([0, 0, 1, 2], np.int32))
SPARSE_SEGMENTS = "SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN"
SAMPLES.each(SPARSE_SEGMENTS, *PICKED)
SAMPLES.each(SPARSE_SEGMENTS, *PICKED, sparse_gradient=True)
for sparse_gradient in (False, True):
    SAMPLES.each(
        "SparseSegmentSumWithNumSegments SparseSegmentMeanWithNumSegments"
        " SparseSegmentSqrtNWithNumSegments",
        *PICKED,
        5,
        sparse_gradient=sparse_gradient,
    )
SAMPLES.each(
    "SparseSegmentSumGrad SparseSegmentMeanGrad SparseSegmentSqrtNGrad"
    " SparseSegmentSumGradV2 SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2",
    real(3, 2),
    *PICKED[1:],
    5,
)

# Order.
SAMPLES.add("TopKV2", X, 2, sorted=False)
SAMPLES.add("TopKV2", X, np.int64(2), index_type=tf.int64)
SAMPLES.add("ApproxTopK", X, k=2, recall_target=0.5, aggregate_to_topk=False)
SAMPLES.add("ApproxTopK", real(2, 6), k=2, recall_target=0.5)
SAMPLES.add("NthElement", X, 1, reverse=True)
SAMPLES.add("InTopK", real(3, 4), [0, 2, 1], k=2)
SAMPLES.add("InTopKV2", real(3, 4), [0, 2, 1], 2)
SORTED = np.sort(real(2, 6), axis=1)
SAMPLES.each("LowerBound UpperBound", SORTED, real(2, 3, low=-1), out_type=tf.int64)
SAMPLES.add("IsotonicRegression", real(2, 6))
SAMPLES.add(
    "IsotonicRegression", tensor(real(2, 6, dtype=np.float64)), output_dtype=tf.float64
)
WORDS = np.array(["b", "a", "b", "c"])
REPEATED = integers(6, high=3)
SAMPLES.each("Unique UniqueWithCounts", WORDS, out_idx=tf.int64)
SAMPLES.each(
    "UniqueV2 UniqueWithCountsV2", [[1, 1], [2, 3], [1, 1]], [0], out_idx=tf.int64
)
SAMPLES.add("ListDiff", REPEATED, [1], out_idx=tf.int64)
SAMPLES.add("Where", X > 0)

# Counts.
SAMPLES.add("Bincount", REPEATED, 4, np.array([], np.float32))
SAMPLES.add("DenseBincount", REPEATED.reshape(2, 3), 4, real(2, 3), binary_output=False)
SAMPLES.add("DenseBincount", REPEATED, 4, np.array([], np.int32), binary_output=True)
SAMPLES.add("RaggedBincount", [0, 2, 6], REPEATED, 4, real(6))
SAMPLES.add(
    "SparseBincount",
    [[0, 0], [1, 1]],
    [2, 1],
    [2, 2],
    4,
    np.array([0.5, 0.25], np.float32),
)
COUNTED = {"minlength": 5, "maxlength": 7, "binary_output": False}
SAMPLES.add("DenseCountSparseOutput", integers(2, 4), real(2, 4), **COUNTED)
SAMPLES.add("RaggedCountSparseOutput", [0, 2, 6], REPEATED, real(6), **COUNTED)
SAMPLES.add(
    "SparseCountSparseOutput",
    [[0, 0], [1, 1]],
    [2, 1],
    [2, 2],
    np.array([0.5, 0.25], np.float32),
    **COUNTED,
)
SAMPLES.add("HistogramFixedWidth", X, np.float32([-1, 1]), 4, dtype=tf.int64)
SAMPLES.add("SobolSample", 3, 4, 1, dtype=tf.float64)
SAMPLES.add("SobolSample", 3, 4, 1)

# Nearest rows.
POINTS = positive(6, 2)
SAMPLES.add("NearestNeighbors", POINTS, POINTS[:3], 2)
SAMPLES.add("KMC2ChainInitialization", positive(4), 3)
SAMPLES.add("KmeansPlusPlusInitialization", POINTS, 2, 3, 2)
