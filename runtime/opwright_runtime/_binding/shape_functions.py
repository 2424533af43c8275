"""Ops whose shape functions refuse shapes that their kernels take.

Opdefs state what shape functions check. In eager mode only the kernel checks, so that
the shapes in the opdef do not explain why it refused one of these ops. The error is
then TensorFlow's own. `make fuzz-diagnosis` finds ops that are missing here.
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
