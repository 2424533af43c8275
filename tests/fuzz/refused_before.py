"""Calls that TensorFlow takes, and opwright refuses because the results are garbage."""

from __future__ import annotations

import re

#: Ops that opwright refuses to call with arguments that TensorFlow sometimes takes, and
#: what TensorFlow does with them.
REFUSED_BEFORE = {
    "AvgPoolGrad": "adds a gradient of more channels to other pixels, or writes past "
    "the image",
    **dict.fromkeys(
        ("BlockLSTMGrad", "BlockLSTMGradV2"),
        "reads past the end of smaller inputs, and writes past its buffers for larger "
        "ones",
    ),
    "AvgPool3DGrad": "reads past the end of a smaller gradient, or ends",
    "Conv": "takes a filter of another rank where the result is empty, or ends",
    "FractionalAvgPoolGrad": "writes past the end of a smaller image",
    "FractionalMaxPoolGrad": "reads before the image, or writes past its own buffers",
    **dict.fromkeys(
        (
            "QuantizedConv2DWithBiasSignedSumAndReluAndRequantize",
            "QuantizedConv2DWithBiasSumAndRelu",
            "QuantizedConv2DWithBiasSumAndReluAndRequantize",
            "QuantizedMatMulWithBias",
            "QuantizedMatMulWithBiasAndDequantize",
            "QuantizedMatMulWithBiasAndRelu",
            "QuantizedMatMulWithBiasAndReluAndRequantize",
            "QuantizedMatMulWithBiasAndRequantize",
        ),
        "has a kernel without oneDNN that reads nothing and computes nothing",
    ),
    **dict.fromkeys(
        ("LSTMBlockCell", "LSTMBlockCellGrad"),
        "reads past the end of shorter peephole weights, and takes those of another "
        "unit from longer ones",
    ),
    **dict.fromkeys(
        (
            "ExperimentalParseExampleDataset",
            "ParseExampleDataset",
            "ParseExampleDatasetV2",
        ),
        "reads past the end of lists that are shorter than those of keys",
    ),
    "RaggedGather": "gives values for splits where both have one dtype, or ends",
    "RaggedTensorToTensor": "reads past values that end before the last split",
    "RaggedTensorToVariantGradient": "reads past the end of fewer splits",
    "RandomIndexShuffle": "reads past its keys for fewer than 4 rounds or an odd "
    "number, or hangs; takes minutes for thousands of rounds",
    "RebatchDatasetV2": "makes a data set that ends the process when it is read",
    "RequantizePerChannel": "reads past the end of fewer ranges than channels",
    "ResourceApplyAdamWithAmsgrad": "reads and writes past the end of smaller slots",
    **dict.fromkeys(
        (
            "ResourceScatterAdd",
            "ResourceScatterDiv",
            "ResourceScatterMax",
            "ResourceScatterMin",
            "ResourceScatterMul",
            "ResourceScatterNdAdd",
            "ResourceScatterNdMax",
            "ResourceScatterNdMin",
            "ResourceScatterNdSub",
            "ResourceScatterNdUpdate",
            "ResourceScatterSub",
            "ResourceScatterUpdate",
        ),
        "reads past the end of fewer updates than rows have elements, or ends",
    ),
    **dict.fromkeys(
        ("SdcaOptimizer", "SdcaOptimizerV2"),
        "reads and writes past the end of smaller features and weights",
    ),
    "SetSize": "writes before its result for a negative index",
    "SparseMatrixSparseCholesky": "writes outside the permuted matrix",
    "Unbatch": "reads three numbers for each row of an index that is no matrix",
}

#: Inputs of data sets that are counts.
_COUNTS = (
    r"(batch|buffer|window)_size|cycle_length|num_parallel_calls|prefetch_input"
    r"|parameters\("
)
_DEEP = (
    "has 254 (dimensions|elements); it must have less than 254"
    "|sizes of .* that are not 0 is"
)
_LISTS = "makes a list that ends the process when it is stacked"
_SIZES = r"sizes of .* that are not 0 is|extents\(|ranks\(shapes\)"
_QUEUES = tuple(
    f"{kind}{version}"
    for kind in ("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue")
    for version in ("", "V2")
)
#: Of other ops, what the refusal says, and what TensorFlow does.
REFUSED_FOR = {
    **dict.fromkeys(
        ("Barrier", *_QUEUES),
        (_SIZES, "makes a queue that ends the process when several elements leave it"),
    ),
    **dict.fromkeys(
        (
            "LookupTableFind",
            "LookupTableFindV2",
            "LookupTableImport",
            "LookupTableInsert",
            "LookupTableInsertV2",
        ),
        (
            f"{_SIZES}|has 254 dimensions",
            "takes these keys of a table of scalars, and ends for one of vectors",
        ),
    ),
    **dict.fromkeys(
        (
            "AnonymousMutableDenseHashTable",
            "AnonymousMutableHashTableOfTensors",
            "MutableDenseHashTable",
            "MutableDenseHashTableV2",
            "MutableHashTableOfTensors",
            "MutableHashTableOfTensorsV2",
        ),
        (
            "max_load_factor|value_shape",
            "makes a table that ends the process, or hangs, when it is used",
        ),
    ),
    **dict.fromkeys(
        (
            "CSVDataset",
            "CSVDatasetV2",
            "ChooseFastestDataset",
            "ExperimentalCSVDataset",
            "ExperimentalChooseFastestDataset",
            "ExperimentalPrivateThreadPoolDataset",
            "ExperimentalThreadPoolHandle",
            "PrivateThreadPoolDataset",
            "SnapshotDataset",
            "ThreadPoolHandle",
        ),
        (
            "num_experiments|threads|buffer_size",
            "starts threads, or divides the data set, only when it is read, and ends",
        ),
    ),
    "DecodeJpeg": (
        "first byte of a marker",
        "reads the same byte for ever, or makes up pixels",
    ),
    "MatrixLogarithm": (
        "singular",
        "has no logarithm: it makes nan, or numbers of the rounding, or hangs",
    ),
    **dict.fromkeys(
        (
            "ParseExampleV2",
            "ParseSequenceExample",
            "ParseSequenceExampleV2",
            "ParseSingleExample",
        ),
        (r"products\(", "takes a feature that has no elements, or divides by their 0"),
    ),
    "ScaleAndTranslate": (
        "scale contains",
        "makes a window of one pixel where its size overflows",
    ),
    "SparseCountSparseOutput": (
        "dense_shape",
        "counts the values of batches whose numbers it cuts to 32 bits",
    ),
    "AdjustHue": (
        "nan_free",
        "makes numbers that are not finite of infinite colours, or never ends",
    ),
    "AudioMicrofrontend": (
        "band_limit|frame_stride|left_context|out_scale|right_context|sample_rate",
        "keeps 16 bits of the places in a spectrum and 32 of the contexts, makes "
        "filters outside of it, steps back in the frames, divides by 0 in the first "
        "frame, or ends",
    ),
    **dict.fromkeys(
        (
            "AvgPool",
            "AvgPool3D",
            "MaxPool",
            "MaxPool3D",
            "QuantizedAvgPool",
            "QuantizedMaxPool",
        ),
        (
            r"most\(shape|prod\(ksize\)",
            "keeps 32 bits of the sizes of images without elements, walks over windows "
            "for years, or ends",
        ),
    ),
    **dict.fromkeys(
        (
            "BatchDatasetV2",
            "ExperimentalMapAndBatchDataset",
            "ExperimentalParallelInterleaveDataset",
            "ExperimentalSlidingWindowDataset",
            "InterleaveDataset",
            "LegacyParallelInterleaveDatasetV2",
            "MapAndBatchDataset",
            "PaddedBatchDataset",
            "PaddedBatchDatasetV2",
            "ParallelBatchDataset",
            "ParallelInterleaveDataset",
            "ParallelInterleaveDatasetV2",
            "ParallelInterleaveDatasetV3",
            "ParallelInterleaveDatasetV4",
            "ShuffleAndRepeatDataset",
            "ShuffleAndRepeatDatasetV2",
            "ShuffleDataset",
            "ShuffleDatasetV2",
            "ShuffleDatasetV3",
            "SlidingWindowDataset",
        ),
        (_COUNTS, "makes a data set that ends the process, or hangs, when it is read"),
    ),
    **dict.fromkeys(
        (
            "ExperimentalScanDataset",
            "ExperimentalTakeWhileDataset",
            "FilterDataset",
            "FlatMapDataset",
            "ExperimentalGroupByReducerDataset",
            "ExperimentalGroupByWindowDataset",
            "GeneratorDataset",
            "GroupByReducerDataset",
            "GroupByWindowDataset",
            "IndexFlatMapDataset",
            "LoadDataset",
            "MapDataset",
            "ParallelFilterDataset",
            "ParallelMapDataset",
            "ParallelMapDatasetV2",
            "ReduceDataset",
            "SaveDataset",
            "SaveDatasetV2",
            "ScanDataset",
            "SnapshotDatasetV2",
            "TakeWhileDataset",
        ),
        (r"parameters\(", "makes a data set that ends the process when it is read"),
    ),
    "BatchToSpace": (
        r"shape\(input\)",
        "keeps 32 bits of the number of pixels without elements, or ends",
    ),
    "Bitcast": (
        "has .* dimensions",
        "takes 254 axes for a dtype of the same size, and ends for a smaller one",
    ),
    **dict.fromkeys(
        ("CropAndResize", "CropAndResizeGradBoxes", "CropAndResizeGradImage"),
        (
            "boxes contains .* at (least|most)",
            "leaves out a place outside the image, or ends where its index overflows",
        ),
    ),
    "CTCLoss": (
        "labels_values contains",
        "leaves out labels that are no class, and writes past its buffers without any",
    ),
    **dict.fromkeys(
        ("DatasetToTFRecord", "ExperimentalDatasetToTFRecord"),
        (
            "does not state",
            "writes strings of a data set that states no shapes, or ends at the first "
            "element of several",
        ),
    ),
    "DecodeAndCropJpeg": (
        r"contents\(crop_window\)|first byte of a marker",
        "keeps 32 bits of the end of a window, reads the same byte for ever, or ends",
    ),
    "DenseCountSparseOutput": (
        r"prod\(shape\(values\)",
        "keeps 32 bits of the number of rows without elements, or counts for minutes",
    ),
    **dict.fromkeys(
        ("Dequantize", "QuantizeV2"),
        (
            r"most\(shape\(input\)|input has 0 elements",
            "takes sizes beyond 32 bits and empty inputs without oneDNN, and ends with "
            "it",
        ),
    ),
    "DepthToSpace": (
        r"shape\(input\)",
        "keeps 32 bits of the sizes of images without elements, or ends",
    ),
    **dict.fromkeys(
        (
            "DepthwiseConv2dNativeBackpropFilter",
            "DepthwiseConv2dNativeBackpropInput",
        ),
        ("dilations (has|contains)", "leaves out dilations, or keeps 32 bits of them"),
    ),
    "DestroyResourceOp": (
        "handle of an accumulator",
        "removes an accumulator that its kernel still uses, and ends the process later",
    ),
    "Dilation2D": (
        r"shape\(filter\)",
        "counts the rows of an empty filter, of which it keeps 32 bits, for minutes",
    ),
    "DumpTensor": (
        "must name a file",
        "ends where it cannot write, such as where an earlier call made a folder",
    ),
    "Einsum": (
        r"extent\(einsum",
        "takes sizes that overflow where the result is empty, or ends",
    ),
    "EmptyTensorList": (_DEEP, _LISTS),
    "Enter": (
        "parallel_iterations is",
        "takes any number where the loop does not run, or ends",
    ),
    "ExtractImagePatches": (
        r"most\(shape\(images\)\)",
        "keeps 32 bits of the sizes of images without elements, or ends",
    ),
    "FixedUnigramCandidateSampler": (
        r"positives\(unigrams\)|distortion is|unigrams contains",
        "draws from weights below 0 or beyond a float, or never ends",
    ),
    **dict.fromkeys(
        ("FusedPadConv2D", "FusedResizeAndPadConv2D"),
        (r"strides\[[12]\] \+", "keeps 32 bits of a stride and a size, or ends"),
    ),
    **dict.fromkeys(
        ("Conv2D", "Conv2DBackpropInput", "Conv3D", "Conv3DBackpropInputV2"),
        (
            r"most\(strides\) (\*|<)",
            "reads pixels beyond an image that is smaller than a stride, or ends",
        ),
    ),
    "InitializeTableFromTextFileV2": (
        "(key|value)_index is",
        "leaves a table alone that is filled, or ends",
    ),
    "KmeansPlusPlusInitialization": (
        "num_retries_per_sample is|points (contains|has too few)",
        "draws without end, or past the end of the points, where it finds no other row",
    ),
    "LookupTableImportV2": (
        f"is a dense table|{_SIZES}|has 254 dimensions",
        "leaves a table without buckets, in which a lookup ends, reads past the end of "
        "its keys, or ends for keys of vectors",
    ),
    "LRN": (
        r"most\(shape\(input\)",
        "keeps 32 bits of the sizes of images without elements, or ends",
    ),
    "MapDefun": (
        "captured_inputs.* has 254",
        "takes captured tensors of 254 axes in some functions, and ends in others",
    ),
    "MatrixDiag": (
        r"prod\(shape\(diagonal\)",
        "walks over matrices without elements, for seconds or hours",
    ),
    **dict.fromkeys(
        ("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3"),
        (
            r"(max|prod)\(shape\(input\)",
            "takes an empty matrix if 32 bits of its size are few rows, walks over "
            "matrices without elements for seconds or hours, or ends",
        ),
    ),
    **dict.fromkeys(
        (
            "MatrixSetDiag",
            "MatrixSetDiagV2",
            "MatrixSetDiagV3",
            "Qr",
        ),
        (
            r"max\(shape\(input\)",
            "takes an empty matrix if 32 bits of its size are few rows, or ends",
        ),
    ),
    **dict.fromkeys(
        ("MaxPool3DGrad", "MaxPoolGradGrad", "MaxPoolGradGradV2"),
        (
            "ksize contains",
            "gives zeros for windows of no size where the sizes seem to fit, or ends",
        ),
    ),
    "Mfcc": (
        r"lower_frequency_limit has|most\(shape",
        "makes coefficients of channels that no frequency has, keeps 32 bits of the "
        "sizes of empty spectrograms, or ends",
    ),
    "ParseExample": (
        r"_keys.* has .* elements|(ranks|products)\(dense_shapes\)",
        "leaves out a key without a default, reads a text that is not there, makes a "
        "batch of 255 axes, or divides by 0",
    ),
    "ParseSingleSequenceExample": (
        "feature_list_dense_types has .* elements?; it must have",
        "leaves out shapes or keys, and never ends in a graph",
    ),
    "QuantizedConcat": (
        r"len\(values\)",
        "joins sizes without elements if their sum has 32 bits, or ends",
    ),
    "QuantizedInstanceNorm": (
        "x has size .* at axis 2",
        "keeps 32 bits of the size of an image without elements, or ends",
    ),
    "RandomPoissonV2": (
        "rate contains",
        "gives inf, or integers of 0, for means beyond the dtype, and never ends for "
        "others",
    ),
    **dict.fromkeys(
        ("ResizeBilinearGrad", "ResizeNearestNeighborGrad"),
        (
            r"sizes of shape\(grads\)|prod\(shape\(grads\)",
            "walks over pixels without elements, for seconds or hours",
        ),
    ),
    "ResourceApplyAdadelta": (
        r"held\(accum_update\)",
        "updates a slot of other sizes in part, or past its end",
    ),
    **dict.fromkeys(
        ("ResourceGather", "ResourceGatherNd"),
        (
            r"resource holds|held\(resource\)|at most 0 \(rank\(indices\)\)",
            "gives an empty tensor of another dtype, or for other rows, where there "
            "are no indices, or numbers that it never wrote, or ends",
        ),
    ),
    **dict.fromkeys(
        (
            "SampleDistortedBoundingBox",
            "SampleDistortedBoundingBoxV2",
            "StatelessSampleDistortedBoundingBox",
        ),
        ("max_attempts is", "tries for minutes, unless an early window fits"),
    ),
    "ScaleAndTranslateGrad": (
        "grads has size .* at axis 0|scale contains",
        "keeps 32 bits of the number of images without elements, counts for minutes, "
        "or makes a window of one pixel where its size overflows",
    ),
    "RecordInput": (
        "file_parallelism",
        "reads nothing for a batch of no records, waits without end, or starts threads "
        "until none is left",
    ),
    "SnapshotNestedDatasetReader": (
        "cannot run",
        "makes a data set that ends the process when it is read",
    ),
    "SplitV": (
        "in a graph",
        "takes sizes of int8 that are no constant, or ends",
    ),
    **dict.fromkeys(
        ("SpaceToBatch", "SpaceToDepth"),
        (
            r"shape\(input\)",
            "walks over pixels without elements, for seconds or hours",
        ),
    ),
    **dict.fromkeys(
        ("BatchToSpaceND", "SpaceToBatchND"),
        (
            r"shape\(input\)",
            "walks over pixels without elements, or keeps 32 bits of their number",
        ),
    ),
    "StatelessIf": (
        "Tcond is",
        "leaves out branches that have no results, or ends",
    ),
    **dict.fromkeys(
        ("StatefulRandomBinomial", "StatelessRandomBinomial"),
        (
            "counts has nan",
            "draws the lowest integer for a count of nan, or never ends",
        ),
    ),
    "StatelessRandomPoisson": (
        "lam contains inf",
        "gives integers of 0 for an infinite mean, and never ends for a large one",
    ),
    "StringNGrams": (
        "data_splits contains",
        "makes nothing of splits that go back where no text is read, or ends",
    ),
    "TensorListConcatV2": (
        "leading_dims",
        "does not read the lengths of elements that are there, and ends for others",
    ),
    "TensorListFromTensor": (_DEEP, _LISTS),
    "TensorListGather": (
        r"rank\(indices\) \+",
        "takes indices of 254 axes as a row, and ends in a graph",
    ),
    "TensorListGetItem": (
        "element_shape has",
        "reads no shape for an element that is set, or ends",
    ),
    **dict.fromkeys(
        ("UniformQuantizedConvolution", "UniformQuantizedConvolutionHybrid"),
        (
            r"dimension_numbers is|prod\(lhs_dilation\)",
            "reads no numbers where the filter is empty, or ends; spreads one column "
            "by any distance, and takes minutes for two",
        ),
    ),
    "TensorListPushBack": (_DEEP, _LISTS),
    "TensorListPushBackBatch": (_DEEP, _LISTS),
    "TensorListReserve": (_DEEP, _LISTS),
    "TensorListSetItem": (_DEEP, _LISTS),
    "TensorListScatter": (_DEEP, _LISTS),
    "TensorListScatterIntoExistingList": (f"{_DEEP}|too short", _LISTS),
    "TensorListScatterV2": (_DEEP, _LISTS),
    "TensorListSplit": (_DEEP, _LISTS),
    "TensorMapInsert": (_DEEP, "makes a map whose keys cannot be stacked"),
}


def is_named(op: str, words: str) -> bool:
    """Whether a refusal is one of those above.

    Args:
        words: what opwright says.
    """
    pattern, _ = REFUSED_FOR.get(op, (None, ""))
    return op in REFUSED_BEFORE or (
        pattern is not None and re.search(pattern, words) is not None
    )
