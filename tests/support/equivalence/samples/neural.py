"""Convolutions, pooling, normalization, losses, recurrent cells and embeddings."""

import numpy as np
import tensorflow as tf

from support.equivalence.samples.kit import Samples, integers, positive, real

SAMPLES = Samples()

IMAGE = real(2, 6, 6, 3)
FILTER = real(3, 3, 3, 2)
VOLUME = real(1, 4, 4, 4, 2)
FILTER3 = real(2, 2, 2, 2, 3)

# Convolutions.
UNIT = {"strides": [1, 1, 1, 1], "padding": "SAME"}
EXPLICIT = {
    "strides": [1, 2, 1, 1],
    "padding": "EXPLICIT",
    "explicit_paddings": [0, 0, 1, 1, 0, 1, 0, 0],
}
DILATED = {
    "strides": [1, 1, 1, 1],
    "padding": "VALID",
    "dilations": [1, 2, 2, 1],
    "use_cudnn_on_gpu": False,
}
for settings, height, width in ((UNIT, 6, 6), (EXPLICIT, 3, 5), (DILATED, 2, 2)):
    SAMPLES.add("Conv2D", IMAGE, FILTER, **settings)
    OUT = real(2, height, width, 2)
    SAMPLES.add("Conv2DBackpropInput", [2, 6, 6, 3], FILTER, OUT, **settings)
    SAMPLES.add("Conv2DBackpropFilter", IMAGE, [3, 3, 3, 2], OUT, **settings)
SAMPLES.add(
    "Conv",
    IMAGE,
    FILTER,
    strides=[1, 1, 1, 1],
    padding="SAME",
    batch_dims=1,
    groups=1,
    dilations=[1, 1, 1, 1],
)
SAMPLES.add("Conv", VOLUME, FILTER3, strides=[1, 1, 1, 1, 1], padding="VALID")
DEPTHWISE = real(3, 3, 3, 2)
SAMPLES.add("DepthwiseConv2dNative", IMAGE, DEPTHWISE, **UNIT)
SAMPLES.add(
    "DepthwiseConv2dNative",
    IMAGE,
    DEPTHWISE,
    strides=[1, 1, 1, 1],
    padding="EXPLICIT",
    explicit_paddings=[0, 0, 1, 1, 0, 1, 0, 0],
)
SAMPLES.add(
    "DepthwiseConv2dNativeBackpropInput",
    [2, 6, 6, 3],
    DEPTHWISE,
    real(2, 6, 6, 6),
    **UNIT,
)
SAMPLES.add(
    "DepthwiseConv2dNativeBackpropFilter", IMAGE, [3, 3, 3, 2], real(2, 6, 6, 6), **UNIT
)
UNIT3 = {"strides": [1, 1, 1, 1, 1], "padding": "SAME"}
SAMPLES.add("Conv3D", VOLUME, FILTER3, **UNIT3)
SAMPLES.add(
    "Conv3D", VOLUME, FILTER3, **UNIT3, data_format="NDHWC", dilations=[1, 1, 1, 1, 1]
)
SAMPLES.add(
    "Conv3DBackpropInputV2", [1, 4, 4, 4, 2], FILTER3, real(1, 4, 4, 4, 3), **UNIT3
)
SAMPLES.add(
    "Conv3DBackpropFilterV2", VOLUME, [2, 2, 2, 2, 3], real(1, 4, 4, 4, 3), **UNIT3
)
SAMPLES.add("Conv3DBackpropInput", VOLUME, FILTER3, real(1, 4, 4, 4, 3), **UNIT3)
SAMPLES.add("Conv3DBackpropFilter", VOLUME, FILTER3, real(1, 4, 4, 4, 3), **UNIT3)
SAMPLES.add(
    "FusedPadConv2D",
    IMAGE,
    [[0, 0], [1, 1], [1, 0], [0, 0]],
    FILTER,
    mode="REFLECT",
    strides=[1, 1, 1, 1],
    padding="VALID",
)
SAMPLES.add(
    "FusedResizeAndPadConv2D",
    IMAGE,
    [8, 8],
    [[0, 0], [1, 1], [1, 0], [0, 0]],
    FILTER,
    mode="SYMMETRIC",
    resize_align_corners=True,
    strides=[1, 1, 1, 1],
    padding="VALID",
)
MORPHOLOGY = {"strides": [1, 1, 1, 1], "rates": [1, 2, 1, 1], "padding": "SAME"}
SAMPLES.add("Dilation2D", IMAGE, FILTER[..., 0], **MORPHOLOGY)
SAMPLES.each(
    "Dilation2DBackpropInput Dilation2DBackpropFilter",
    IMAGE,
    FILTER[..., 0],
    IMAGE + 1,
    **MORPHOLOGY,
)

# Pooling.
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
POOL3 = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
SMALL = real(2, 3, 3, 3)
SAMPLES.each("AvgPool MaxPool", IMAGE, **POOL)
SAMPLES.add(
    "MaxPool",
    IMAGE,
    ksize=[1, 2, 2, 1],
    strides=[1, 2, 2, 1],
    padding="EXPLICIT",
    explicit_paddings=[0, 0, 1, 1, 0, 0, 0, 0],
)
SAMPLES.add("AvgPoolGrad", [2, 6, 6, 3], SMALL, **POOL)
SAMPLES.each("AvgPool3D MaxPool3D", VOLUME, **POOL3)
SAMPLES.add("AvgPool3DGrad", [1, 4, 4, 4, 2], real(1, 2, 2, 2, 2), **POOL3)
SAMPLES.add(
    "MaxPool3DGrad", VOLUME, VOLUME[:, ::2, ::2, ::2], real(1, 2, 2, 2, 2), **POOL3
)
SAMPLES.add("MaxPool3DGradGrad", VOLUME, VOLUME[:, ::2, ::2, ::2], VOLUME, **POOL3)
SAMPLES.add("MaxPoolV2", IMAGE, [1, 2, 2, 1], [1, 2, 2, 1], padding="VALID")
SAMPLES.add("MaxPoolWithArgmax", IMAGE, **POOL, include_batch_in_index=True)
SAMPLES.add("MaxPoolWithArgmax", IMAGE, **POOL, Targmax=tf.int32)
POOLED = IMAGE.reshape(2, 3, 2, 3, 2, 3).max(axis=(2, 4))
SAMPLES.add("MaxPoolGrad", IMAGE, POOLED, SMALL, **POOL)
SAMPLES.add("MaxPoolGradGrad", IMAGE, POOLED, IMAGE, **POOL)
SAMPLES.add(
    "MaxPoolGradV2", IMAGE, POOLED, SMALL, [1, 2, 2, 1], [1, 2, 2, 1], padding="VALID"
)
SAMPLES.add(
    "MaxPoolGradGradV2",
    IMAGE,
    POOLED,
    IMAGE,
    [1, 2, 2, 1],
    [1, 2, 2, 1],
    padding="VALID",
)
SAMPLES.add(
    "MaxPoolGradWithArgmax",
    IMAGE,
    SMALL,
    # Each image has indices of its own.
    integers(2, 3, 3, 3, high=36, dtype=np.int64)
    + np.int64([0, 6 * 6 * 3]).reshape(2, 1, 1, 1),
    **POOL,
    include_batch_in_index=True,
)
FRACTIONAL = {
    "pooling_ratio": [1.0, 1.5, 1.5, 1.0],
    "pseudo_random": True,
    "overlapping": True,
    "deterministic": True,
    "seed": 3,
    "seed2": 4,
}
SAMPLES.each("FractionalAvgPool FractionalMaxPool", IMAGE, **FRACTIONAL)
ROWS = np.int64([0, 2, 4, 6])
SAMPLES.add(
    "FractionalAvgPoolGrad",
    np.int64([2, 6, 6, 3]),
    SMALL,
    ROWS,
    ROWS,
    overlapping=False,
)
SAMPLES.add(
    "FractionalMaxPoolGrad", IMAGE, POOLED, SMALL, ROWS, ROWS, overlapping=False
)

# Normalization.
SCALE, OFFSET, MEAN, VARIANCE = positive(3), real(3), real(3), positive(3)
FUSED = "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"
SAMPLES.each(FUSED, IMAGE, SCALE, OFFSET, np.float32([]), np.float32([]), epsilon=0.01)
SAMPLES.each(
    FUSED, IMAGE, SCALE, OFFSET, MEAN, VARIANCE, is_training=False, epsilon=0.01
)
SAMPLES.each(FUSED, IMAGE, SCALE, OFFSET, MEAN, VARIANCE, exponential_avg_factor=0.5)
SAMPLES.each(
    "FusedBatchNormGrad FusedBatchNormGradV2",
    real(2, 6, 6, 3),
    IMAGE,
    SCALE,
    MEAN,
    VARIANCE,
    epsilon=0.01,
)
SAMPLES.add(
    "FusedBatchNormGradV3",
    real(2, 6, 6, 3),
    IMAGE,
    SCALE,
    MEAN,
    VARIANCE,
    VARIANCE,
    epsilon=0.01,
)
SAMPLES.add(
    "BatchNormWithGlobalNormalization",
    IMAGE,
    MEAN,
    VARIANCE,
    OFFSET,
    SCALE,
    variance_epsilon=0.01,
    scale_after_normalization=True,
)
SAMPLES.add(
    "BatchNormWithGlobalNormalizationGrad",
    IMAGE,
    MEAN,
    VARIANCE,
    SCALE,
    real(2, 6, 6, 3),
    variance_epsilon=0.01,
    scale_after_normalization=True,
)
LRN = {"depth_radius": 1, "bias": 2.0, "alpha": 0.5, "beta": 0.75}
SAMPLES.add("LRN", IMAGE, **LRN)
SAMPLES.add("LRNGrad", IMAGE, IMAGE, IMAGE + 1, **LRN)
SAMPLES.add("BiasAdd", IMAGE.transpose(0, 3, 1, 2).copy(), OFFSET, data_format="NCHW")
SAMPLES.add("BiasAdd", IMAGE, OFFSET)
SAMPLES.add("BiasAddGrad", IMAGE.transpose(0, 3, 1, 2).copy(), data_format="NCHW")
SAMPLES.add("BiasAddV1", IMAGE, OFFSET)

# Activations over rows, losses.
LOGITS = real(3, 4)
SAMPLES.each("Softmax LogSoftmax", LOGITS)
SAMPLES.add("SoftmaxCrossEntropyWithLogits", LOGITS, positive(3, 4))
SAMPLES.add("SparseSoftmaxCrossEntropyWithLogits", LOGITS, [0, 3, 1])
TIMES = real(4, 2, 5)
LABELS = (np.int64([[0, 0], [0, 1], [1, 0]]), np.int32([1, 2, 0]))
SAMPLES.add(
    "CTCLoss",
    TIMES,
    *LABELS,
    [4, 3],
    preprocess_collapse_repeated=True,
    ctc_merge_repeated=False,
    ignore_longer_outputs_than_inputs=True,
)
SAMPLES.add("CTCLoss", TIMES, *LABELS, [4, 3])
SAMPLES.add("CTCGreedyDecoder", TIMES, [4, 3], merge_repeated=True, blank_index=0)
SAMPLES.add(
    "CTCBeamSearchDecoder",
    TIMES,
    [4, 3],
    beam_width=3,
    top_paths=2,
    merge_repeated=False,
)

# Recurrent cells: batch 2, inputs 3, cells 4.
CELL = (real(2, 3), real(2, 4), positive(2, 4), real(7, 16), *([real(4)] * 3), real(16))
SEQUENCE = (real(5, 2, 3), *CELL[1:])
GATES = [positive(2, 4) * k for k in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
STEPS = [positive(5, 2, 4) * k for k in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)]
LENGTH = np.int64(5)
SAMPLES.add("LSTMBlockCell", *CELL, forget_bias=0.5, cell_clip=2.0, use_peephole=True)
SAMPLES.add(
    "LSTMBlockCellGrad", *CELL, *GATES, real(2, 4), real(2, 4), use_peephole=True
)
SAMPLES.each(
    "BlockLSTM", LENGTH, *SEQUENCE, forget_bias=0.5, cell_clip=2.0, use_peephole=True
)
SAMPLES.add("BlockLSTMV2", LENGTH, *SEQUENCE, cell_clip=2.0, use_peephole=True)
SAMPLES.each(
    "BlockLSTMGrad BlockLSTMGradV2",
    LENGTH,
    *SEQUENCE,
    *STEPS,
    real(5, 2, 4),
    real(5, 2, 4),
    use_peephole=True,
)
GRU = (real(2, 3), real(2, 4), real(7, 8), real(7, 4), real(8), real(4))
SAMPLES.add("GRUBlockCell", *GRU)
SAMPLES.add("GRUBlockCellGrad", *GRU, *GATES[:3], real(2, 4))

# Candidates of sampled losses.
CLASSES = np.int64([[1], [3]])
SAMPLER = {"num_true": 1, "num_sampled": 3, "unique": True, "seed": 3, "seed2": 4}
SAMPLES.add("AllCandidateSampler", CLASSES, **{**SAMPLER, "num_sampled": 5})
SAMPLES.each(
    "UniformCandidateSampler LogUniformCandidateSampler LearnedUnigramCandidateSampler"
    " ThreadUnsafeUnigramCandidateSampler",
    CLASSES,
    **SAMPLER,
    range_max=8,
)
SAMPLES.add(
    "FixedUnigramCandidateSampler",
    CLASSES,
    **SAMPLER,
    range_max=5,
    unigrams=[0.1, 0.2, 0.3, 0.2, 0.2],
    distortion=0.8,
    num_reserved_ids=0,
)
SAMPLES.add(
    "ComputeAccidentalHits", CLASSES, np.int64([3, 1, 4]), num_true=1, seed=3, seed2=4
)

# Linear models.
SDCA = (
    [np.int64([0, 0])],
    [np.int64([0, 1])],
    [np.float32([1, 2])],
    [real(1, 2)],
    np.float32([1]),
    np.float32([1]),
    [np.int64([0, 1])],
    [np.float32([0, 0])],
    [real(1, 2)],
    np.zeros([1, 4], np.float32),
)
SOLVER = {
    "loss_type": "squared_loss",
    "l1": 0.1,
    "l2": 1.0,
    "num_loss_partitions": 1,
    "num_inner_iterations": 1,
}
SAMPLES.add("SdcaFprint", ["left", "right"])


@SAMPLES.program()
def coordinate_ascent(run):
    # Its threads race for the weights.
    run.opaque.SdcaOptimizer(*SDCA, **SOLVER, adaptative=False)
    run.opaque.SdcaOptimizerV2(*SDCA, **SOLVER, adaptive=False)


# Simulated quantization.
QUANTIZED = real(3, 4)
SAMPLES.add(
    "FakeQuantWithMinMaxArgs",
    QUANTIZED,
    min=-1.0,
    max=1.5,
    num_bits=4,
    narrow_range=True,
)
SAMPLES.add(
    "FakeQuantWithMinMaxArgsGradient",
    QUANTIZED,
    QUANTIZED,
    min=-1.0,
    max=1.5,
    num_bits=4,
    narrow_range=True,
)
SAMPLES.add(
    "FakeQuantWithMinMaxVars", QUANTIZED, -1.0, 1.5, num_bits=4, narrow_range=True
)
SAMPLES.add(
    "FakeQuantWithMinMaxVarsGradient",
    QUANTIZED,
    QUANTIZED,
    -1.0,
    1.5,
    num_bits=4,
    narrow_range=True,
)
BOUNDS = (np.float32([-1, -2, -1, -0.5]), np.float32([1, 1.5, 2, 1]))
SAMPLES.add(
    "FakeQuantWithMinMaxVarsPerChannel",
    QUANTIZED,
    *BOUNDS,
    num_bits=4,
    narrow_range=True,
)
SAMPLES.add(
    "FakeQuantWithMinMaxVarsPerChannelGradient",
    QUANTIZED,
    QUANTIZED,
    *BOUNDS,
    num_bits=4,
    narrow_range=True,
)
STEPPED = {
    "num_bits": 5,
    "range_given": True,
    "round_mode": "HALF_UP",
    "narrow_range": True,
}
SAMPLES.each(
    "QuantizeAndDequantizeV2 QuantizeAndDequantizeV4", QUANTIZED, -1.0, 1.5, **STEPPED
)
SAMPLES.each(
    "QuantizeAndDequantizeV2 QuantizeAndDequantizeV4",
    QUANTIZED,
    *BOUNDS,
    axis=1,
    signed_input=False,
)
SAMPLES.add(
    "QuantizeAndDequantizeV3",
    QUANTIZED,
    -1.0,
    1.5,
    5,
    narrow_range=True,
    range_given=False,
)
SAMPLES.add("QuantizeAndDequantizeV4Grad", QUANTIZED, QUANTIZED, *BOUNDS, axis=1)
SAMPLES.add(
    "QuantizeAndDequantize",
    QUANTIZED,
    num_bits=5,
    range_given=True,
    input_min=-1.0,
    input_max=1.0,
)
