"""Shapes that TensorFlow's shape functions refuse, and its kernels do not.

Opdefs say what shape functions hold. An op that runs eagerly has a kernel alone: there
the shapes of these inputs are no reason for a refusal. `make fuzz-diagnosis` finds
those that are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: By op the inputs whose shapes are checked by its shape function alone.
ALONE: Final[Mapping[str, tuple[str, ...]]] = {
    "BiasAdd": ("value",),
    "BlockLSTMGrad": ("co", "cs", "h_prev", "wcf", "wco"),
    "BlockLSTMGradV2": ("ci", "o", "wci", "wco"),
    "DeserializeManySparse": ("serialized_sparse",),
    "Fill": ("dims",),
    "FractionalMaxPoolGrad": ("col_pooling_sequence", "orig_output"),
    "LSTMBlockCell": ("wco",),
    "LookupTableRemoveV2": ("keys",),
    "LoopCond": ("input",),
    "MapStage": ("indices",),
    "MatchingFilesDataset": ("patterns",),
    "MaxPoolV2": ("ksize",),
    "MutableDenseHashTableV2": ("deleted_key",),
    "OrderedMapStage": ("indices",),
    "ParseExampleV2": ("dense_keys", "ragged_keys"),
    "ParseSequenceExampleV2": ("debug_name", "feature_list_sparse_keys"),
    "QuantizedMatMulWithBias": ("bias", "max_a", "max_b", "min_a", "min_b"),
    "QuantizedMatMulWithBiasAndRelu": ("bias", "max_b", "min_a", "min_b"),
    "QuantizedMatMulWithBiasAndReluAndRequantize": (
        "bias",
        "max_a",
        "max_b",
        "min_a",
        "min_b",
    ),
    "RaggedTensorToVariantGradient": ("row_splits",),
    "ReduceJoin": ("reduction_indices",),
    "RequantizationRange": ("input_max", "input_min"),
    "ResizeBicubicGrad": ("original_image",),
    "ResizeBilinearGrad": ("original_image",),
    "ResourceScatterMin": ("updates",),
    "ResourceScatterMul": ("updates",),
    "ResourceScatterSub": ("updates",),
    "ResourceScatterUpdate": ("updates",),
    "RsqrtGrad": ("dy",),
    "SaveSlices": ("shapes_and_slices", "tensor_names"),
    "SdcaOptimizer": ("dense_weights", "example_weights"),
    "SerializeSparse": ("sparse_shape", "sparse_values"),
    "SparseBincount": ("weights",),
    "StringNGrams": ("data", "data_splits"),
    "TensorListPopBack": ("element_shape",),
    "UnbatchGrad": ("grad",),
}
