"""Images, boxes and sound."""

import numpy as np
import tensorflow as tf

from support.equivalence.samples.kit import Samples, integers, positive, real

SAMPLES = Samples()

IMAGE = np.random.RandomState(3).uniform(0, 1, (2, 6, 8, 3)).astype(np.float32)
PIXELS = integers(6, 8, 3, high=256, dtype=np.uint8)

# Colours.
SAMPLES.add("AdjustContrastv2", IMAGE, 1.5)
SAMPLES.add("AdjustContrast", IMAGE, 1.5, 0.0, 1.0)
SAMPLES.add("AdjustHue", IMAGE, 0.2)
SAMPLES.add("AdjustSaturation", IMAGE, 0.5)
SAMPLES.each("RGBToHSV HSVToRGB", IMAGE)

# Sizes.
ALIGNED = {"align_corners": True}
CENTERED = {"half_pixel_centers": True}
SIZE = [4, 5]
RESIZED = real(2, 4, 5, 3)
SAMPLES.add("ResizeArea", IMAGE, SIZE, **ALIGNED)
for settings in (ALIGNED, CENTERED):
    SAMPLES.each(
        "ResizeBicubic ResizeBilinear ResizeNearestNeighbor", IMAGE, SIZE, **settings
    )
    SAMPLES.each("ResizeBicubicGrad ResizeBilinearGrad", RESIZED, IMAGE, **settings)
    SAMPLES.add("ResizeNearestNeighborGrad", RESIZED, [6, 8], **settings)
SCALES = (np.float32([0.5, 0.6]), np.float32([1, -1]))
SAMPLES.add(
    "ScaleAndTranslate", IMAGE, SIZE, *SCALES, kernel_type="triangle", antialias=False
)
SAMPLES.add(
    "ScaleAndTranslateGrad",
    RESIZED,
    IMAGE,
    *SCALES,
    kernel_type="triangle",
    antialias=False,
)
TRANSFORM = np.float32([[1, 0.1, -1, 0, 0.9, 1, 0, 0]])
SAMPLES.add(
    "ImageProjectiveTransformV2",
    IMAGE,
    TRANSFORM,
    [6, 8],
    interpolation="BILINEAR",
    fill_mode="REFLECT",
)
SAMPLES.add(
    "ImageProjectiveTransformV3",
    IMAGE,
    TRANSFORM,
    [6, 8],
    0.5,
    interpolation="NEAREST",
    fill_mode="NEAREST",
)
BOXES = np.float32([[0.1, 0.1, 0.8, 0.9], [0, 0.3, 0.5, 1]])
CROP = {"method": "nearest", "extrapolation_value": 0.5}
SAMPLES.add("CropAndResize", IMAGE, BOXES, [0, 1], [3, 3], **CROP)
SAMPLES.add("CropAndResize", IMAGE, BOXES, [0, 1], [3, 3])
SAMPLES.add(
    "CropAndResizeGradImage",
    real(2, 3, 3, 3),
    BOXES,
    [0, 1],
    [2, 6, 8, 3],
    T=tf.float32,
    method="nearest",
)
SAMPLES.add("CropAndResizeGradBoxes", real(2, 3, 3, 3), IMAGE, BOXES, [0, 1])
SAMPLES.add("RandomCrop", PIXELS, np.int64([3, 4]), seed=3, seed2=4)
GLIMPSE = {
    "centered": False,
    "normalized": False,
    "uniform_noise": False,
    "noise": "zero",
}
SAMPLES.each(
    "ExtractGlimpse ExtractGlimpseV2",
    IMAGE,
    [3, 3],
    np.float32([[1, 1], [2, 3]]),
    **GLIMPSE,
)
PATCHES = {"strides": [1, 2, 2, 1], "padding": "VALID"}
SAMPLES.add(
    "ExtractImagePatches", IMAGE, ksizes=[1, 3, 3, 1], rates=[1, 1, 2, 1], **PATCHES
)
SAMPLES.add(
    "ExtractVolumePatches",
    real(1, 4, 4, 4, 2),
    ksizes=[1, 2, 2, 2, 1],
    strides=[1, 2, 2, 2, 1],
    padding="SAME",
)

# Boxes.
SAMPLES.add("DrawBoundingBoxes", IMAGE, BOXES[None].repeat(2, 0))
SAMPLES.add(
    "DrawBoundingBoxesV2", IMAGE, BOXES[None].repeat(2, 0), np.float32([[1, 0, 0]])
)
CANDIDATES = np.float32(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 0.9, 1, 1.9]]
)
SCORES = np.float32([0.9, 0.75, 0.6, 0.95])
SAMPLES.add("NonMaxSuppression", CANDIDATES, SCORES, 3, iou_threshold=0.3)
SAMPLES.add("NonMaxSuppressionV2", CANDIDATES, SCORES, 3, 0.4)
SAMPLES.add("NonMaxSuppressionV3", CANDIDATES, SCORES, 3, 0.4, 0.5)
SAMPLES.add(
    "NonMaxSuppressionV4", CANDIDATES, SCORES, 3, 0.4, 0.5, pad_to_max_output_size=True
)
SAMPLES.add(
    "NonMaxSuppressionV5",
    CANDIDATES,
    SCORES,
    3,
    0.4,
    0.5,
    0.5,
    pad_to_max_output_size=True,
)
SAMPLES.add("NonMaxSuppressionWithOverlaps", positive(4, 4), SCORES, 3, 0.9, 0.5)
SAMPLES.add(
    "CombinedNonMaxSuppression",
    CANDIDATES[None, :, None],
    SCORES[None, :, None],
    2,
    3,
    0.4,
    0.5,
    pad_per_class=True,
    clip_boxes=False,
)
DISTORTED = {
    "aspect_ratio_range": [0.5, 2.0],
    "area_range": [0.2, 0.9],
    "max_attempts": 5,
    "use_image_if_no_bounding_boxes": True,
}
SAMPLES.add(
    "SampleDistortedBoundingBox",
    [6, 8, 3],
    BOXES[None],
    **DISTORTED,
    seed=3,
    seed2=4,
    min_object_covered=0.2,
)
SAMPLES.add(
    "SampleDistortedBoundingBoxV2",
    [6, 8, 3],
    BOXES[None],
    0.2,
    **DISTORTED,
    seed=3,
    seed2=4,
)
SAMPLES.add(
    "StatelessSampleDistortedBoundingBox",
    [6, 8, 3],
    BOXES[None],
    0.2,
    [3, 4],
    **DISTORTED,
)

# Files of images.
JPEG = {
    "ratio": 2,
    "fancy_upscaling": False,
    "try_recover_truncated": True,
    "acceptable_fraction": 0.5,
    "dct_method": "INTEGER_ACCURATE",
}
WEBP = (
    b"RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11"
    b"\x11\x88\x88\xfe\x07\x00"
)
BMP = (
    b"BM"
    + np.uint32([54 + 16, 0, 54, 40, 2, 2]).tobytes()
    + np.uint16([1, 24]).tobytes()
    + np.uint32([0, 16, 0, 0, 0, 0]).tobytes()
    + bytes(range(16))
)
GIF = (
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x10\x20\x30\xff\xff\xff"
    b"\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00\x3b"
)


@SAMPLES.program()
def jpeg(run):
    data = run.EncodeJpeg(
        PIXELS,
        quality=90,
        progressive=True,
        optimize_size=True,
        chroma_downsampling=False,
        density_unit="cm",
        x_density=200,
        y_density=100,
        xmp_metadata="metadata",
    )
    run.EncodeJpeg(PIXELS, format="rgb")
    run.EncodeJpegVariableQuality(PIXELS, 50)
    run.DecodeJpeg(data, channels=1, **JPEG)
    run.DecodeJpeg(data)
    run.DecodeAndCropJpeg(data, [1, 1, 3, 4], channels=3, **{**JPEG, "ratio": 1})
    run.ExtractJpegShape(data, output_type=tf.int64)
    run.DecodeImage(data, channels=3, dtype=tf.float32, expand_animations=False)


@SAMPLES.program()
def png(run):
    data = run.EncodePng(PIXELS, compression=3)
    run.DecodePng(data, channels=4, dtype=tf.uint16)
    run.DecodePng(data)
    run.DecodeImage(data)


SAMPLES.add("DecodeBmp", BMP, channels=3)
SAMPLES.add("DecodeGif", GIF)
SAMPLES.add("DecodeWebP", WEBP, channels=4)

# Sound.
WAVES = (0.3 * np.sin(np.arange(1600) / 20)).astype(np.float32)
SAMPLES.add(
    "AudioSpectrogram",
    WAVES[:, None],
    window_size=400,
    stride=200,
    magnitude_squared=True,
)
SAMPLES.add(
    "Mfcc",
    positive(1, 3, 257),
    16000,
    upper_frequency_limit=3000.0,
    lower_frequency_limit=50.0,
    filterbank_channel_count=20,
    dct_coefficient_count=8,
)
SAMPLES.add(
    "AudioMicrofrontend",
    (WAVES * 9000).astype(np.int16),
    sample_rate=8000,
    num_channels=16,
    upper_band_limit=3500.0,
    enable_pcan=True,
    left_context=1,
    right_context=1,
    frame_stride=2,
    zero_padding=True,
    out_scale=2,
    out_type=tf.float32,
)


@SAMPLES.program()
def wav(run):
    data = run.EncodeWav(WAVES[:400].reshape(200, 2), 8000)
    run.DecodeWav(data, desired_channels=1, desired_samples=150)
    run.DecodeWav(data)
