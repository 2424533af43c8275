"""Ops whose shape functions refuse shapes that their kernels take.

Opdefs say what shape functions hold. An op that runs eagerly has a kernel alone: there
the shapes in the opdef are not why one of these was refused. What TensorFlow itself
says comes out. `make fuzz-diagnosis` finds those that are missing.
"""

from __future__ import annotations

from typing import Final

STRICTER: Final = frozenset(
    {
        "AvgPool3DGrad",
        "AvgPoolGrad",
        "BiasAdd",
        "BlockLSTMGrad",
        "BlockLSTMGradV2",
        "CollectiveAllToAllV3",
        "CollectiveReduceV3",
        "DenseCountSparseOutput",
        "DeserializeManySparse",
        "Fill",
        "For",
        "FractionalMaxPoolGrad",
        "FusedBatchNormV3",
        "LSTMBlockCell",
        "LookupTableRemoveV2",
        "LoopCond",
        "MapPeek",
        "MapStage",
        "MatchingFilesDataset",
        "Max",
        "MaxPoolGradGradV2",
        "MaxPoolGradV2",
        "MaxPoolV2",
        "MutableDenseHashTableV2",
        "OrderedMapStage",
        "ParseExampleV2",
        "ParseSequenceExampleV2",
        "PlaceholderWithDefault",
        "QuantizedMatMulWithBias",
        "QuantizedMatMulWithBiasAndRelu",
        "QuantizedMatMulWithBiasAndReluAndRequantize",
        "RaggedTensorToSparse",
        "RaggedTensorToTensor",
        "RaggedTensorToVariantGradient",
        "ReduceJoin",
        "RequantizationRange",
        "RequantizationRangePerChannel",
        "ResizeBicubicGrad",
        "ResizeBilinearGrad",
        "ResourceScatterMax",
        "ResourceScatterMin",
        "ResourceScatterMul",
        "ResourceScatterSub",
        "ResourceScatterUpdate",
        "RsqrtGrad",
        "Save",
        "SaveSlices",
        "SdcaOptimizer",
        "SerializeSparse",
        "SparseBincount",
        "SparseCountSparseOutput",
        "SqrtGrad",
        "StringNGrams",
        "TFRecordDatasetV2",
        "TensorListConcatV2",
        "TensorListGather",
        "TensorListPopBack",
        "TensorListScatter",
        "UnbatchGrad",
        "XlaConvV2",
        "XlaDynamicSlice",
    }
)
