"""Ops whose shape functions refuse shapes that their kernels take.

Opdefs say what shape functions hold. An op that runs eagerly has a kernel alone: there
the shapes in the opdef are not why one of these was refused. What TensorFlow itself
says comes out. `make fuzz-diagnosis` finds those that are missing.
"""

from __future__ import annotations

from typing import Final

STRICTER: Final = frozenset(
    {
        "BiasAdd",
        "BlockLSTMGrad",
        "BlockLSTMGradV2",
        "DenseCountSparseOutput",
        "DeserializeManySparse",
        "Fill",
        "FractionalMaxPoolGrad",
        "LSTMBlockCell",
        "LookupTableRemoveV2",
        "LoopCond",
        "MapStage",
        "MatchingFilesDataset",
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
        "RaggedTensorToVariantGradient",
        "ReduceJoin",
        "RequantizationRange",
        "ResizeBicubicGrad",
        "ResizeBilinearGrad",
        "ResourceScatterMin",
        "ResourceScatterMul",
        "ResourceScatterSub",
        "ResourceScatterUpdate",
        "RsqrtGrad",
        "SaveSlices",
        "SdcaOptimizer",
        "SerializeSparse",
        "SparseBincount",
        "StringNGrams",
        "TensorListPopBack",
        "UnbatchGrad",
        "XlaDynamicSlice",
    }
)
