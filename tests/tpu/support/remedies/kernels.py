"""Ops for which XLA has no kernel, and which other ops express."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tpu.support.remedies.case import (
    FLOATS,
    IMAGE,
    LOGITS,
    MATRIX,
    Case,
)

BOXES = np.array(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 0.9, 1, 1.9]], np.float32
)
SCORES = np.array([0.9, 0.8, 0.7, 0.6], np.float32)


def _soft(boxes: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.image.non_max_suppression_with_scores(boxes, scores, 2)[1]


def _padded(boxes: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.NonMaxSuppressionV5(
        boxes=boxes,
        scores=scores,
        max_output_size=2,
        iou_threshold=0.5,
        score_threshold=-np.inf,
        soft_nms_sigma=0.0,
        pad_to_max_output_size=True,
    ).selected_scores


SETS = (
    np.array([[1, 2, 3], [4, 5, 6]], np.int32),
    np.array([[3, 1], [7, 5]], np.int32),
)


def _shared(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.sets.size(tf.sets.intersection(a, b))


def _equal_pairs(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    among = tf.reduce_any(a[:, :, None] == b[:, None, :], axis=2)
    return tf.reduce_sum(tf.cast(among, tf.int32), axis=1)


RIGHT = np.array([[1], [2], [3]], np.float32)


def _of_eigenvalues(x: tf.Tensor, change: Any) -> tf.Tensor:
    values, vectors = tf.linalg.eigh(x)
    return (vectors * change(values)) @ tf.transpose(vectors)


def _determinant(x: tf.Tensor) -> tf.Tensor:
    diagonal = tf.linalg.diag_part(tf.linalg.cholesky(x))
    return tf.reduce_prod(diagonal) ** 2


BANDS = np.array([[4, 3, 2], [0, 1, 1]], np.float32)


def _banded(bands: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    return tf.linalg.banded_triangular_solve(bands, right, lower=True)


def _triangular(bands: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    matrix = tf.linalg.diag(bands, k=(-1, 0), align="LEFT_RIGHT")
    return tf.linalg.triangular_solve(matrix, right)


def _ctc_of_sparse(logits: tf.Tensor) -> tf.Tensor:
    labels = tf.SparseTensor([[0, 0], [0, 1]], [1, 2], [1, 2])
    return tf.nn.ctc_loss(labels, logits, None, [4], blank_index=0)


def _ctc_of_dense(logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.ctc_loss([[1, 2]], logits, [2], [4], blank_index=0)


def _ctc_greedy(logits: tf.Tensor) -> tf.Tensor:
    found, _ = tf.nn.ctc_greedy_decoder(logits, [4], blank_index=0)
    return tf.reduce_sum(tf.sparse.to_dense(found[0]))


def _ctc_best(logits: tf.Tensor) -> tf.Tensor:
    best = tf.argmax(logits, axis=2)
    before = tf.concat([tf.zeros_like(best[:1]), best[:-1]], axis=0)
    return tf.reduce_sum(tf.where((best != 0) & (best != before), best, 0))


def _glimpses(image: tf.Tensor) -> tf.Tensor:
    corners = tf.constant([[2.0, 3.0], [4.0, 2.0]])
    return tf.image.extract_glimpse(
        image, [4, 4], corners, centered=False, normalized=False
    )


def _sliced(image: tf.Tensor) -> tf.Tensor:
    rows = tf.constant([[2], [4]]) + tf.range(4)
    columns = tf.constant([[3], [2]]) + tf.range(4)
    return tf.gather(
        tf.gather(image, rows, batch_dims=1), columns, axis=2, batch_dims=1
    )


def _antialiased(image: tf.Tensor) -> tf.Tensor:
    return tf.image.resize(image, [5, 5], antialias=True)


def _weights(method: str, **options: Any) -> Any:
    """Made on the host: what each pixel of the result takes from each of the image."""
    ones = tf.eye(8)[None, :, :, None]
    made = tf.image.resize(ones, [5, 8], method=method, **options)
    return made[0, :, :, 0].numpy()


SMOOTH = _weights("bilinear", antialias=True)


def _weighted(weights: Any) -> Any:
    return lambda image: tf.einsum("yh,nhwc,xw->nyxc", weights, image, weights)


def _rotated(image: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=image,
        transforms=[[0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]],
        output_shape=[8, 8],
        fill_value=0.0,
        interpolation="NEAREST",
    )


def _gathered_pixels(image: tf.Tensor) -> tf.Tensor:
    y, x = tf.meshgrid(tf.range(8), tf.range(8), indexing="ij")
    return tf.gather_nd(tf.transpose(image, [1, 2, 0, 3]), tf.stack([x, y], -1))


def _rotated_pixels(image: tf.Tensor) -> tf.Tensor:
    return tf.transpose(_gathered_pixels(image), [2, 0, 1, 3])


def _quantized(x: tf.Tensor) -> tf.Tensor:
    made = tf.quantization.quantize(x, -4.0, 4.0, tf.qint8, mode="SCALED").output
    return tf.cast(tf.bitcast(made, tf.int8), tf.float32)


def _rounded(x: tf.Tensor) -> tf.Tensor:
    scaled = tf.round(x * (127.0 / 4.0))
    return tf.cast(
        tf.cast(tf.clip_by_value(scaled, -127.0, 127.0), tf.int8), tf.float32
    )


def _spectrogram(x: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.AudioSpectrogram(
        input=x[:, None], window_size=8, stride=4, magnitude_squared=True
    )[0]


def _short_time(x: tf.Tensor) -> tf.Tensor:
    return tf.abs(tf.signal.stft(x, 8, 4)) ** 2


WAVE = np.sin(np.arange(32, dtype=np.float32))

CELL = {
    "x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "h": np.linspace(0, 1, 4, dtype=np.float32).reshape(2, 2),
    "w": np.linspace(-1, 1, 40, dtype=np.float32).reshape(5, 8),
}


def _block_cell(x: tf.Tensor, h: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    zeros = tf.zeros([2])
    return tf.raw_ops.LSTMBlockCell(
        x=x, cs_prev=h, h_prev=h, w=w, wci=zeros, wcf=zeros, wco=zeros, b=tf.zeros([8])
    ).h


def _lstm_cell(x: tf.Tensor, h: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    i, c, f, o = tf.split(tf.concat([x, h], 1) @ w, 4, axis=1)
    state = tf.sigmoid(f + 1.0) * h + tf.sigmoid(i) * tf.tanh(c)
    return tf.sigmoid(o) * tf.tanh(state)


def _boxed(image: tf.Tensor) -> tf.Tensor:
    boxes = tf.constant([[[0.0, 0.0, 1.0, 1.0]]] * 2)
    return tf.image.draw_bounding_boxes(image, boxes, [[1.0, 0.0, 0.0]])


def _edges(image: tf.Tensor) -> tf.Tensor:
    inner = tf.pad(tf.ones([6, 6, 1]), [[1, 1], [1, 1], [0, 0]])
    return tf.where(inner == 1.0, image, [1.0, 0.0, 0.0])


def _scattered_into(x: tf.Tensor) -> tf.Tensor:
    array = tf.TensorArray(tf.float32, 8, element_shape=[])
    return array.scatter([3, 1, 4, 7, 5, 2, 6, 0], x).stack()


def _fractional(image: tf.Tensor) -> tf.Tensor:
    return tf.nn.fractional_max_pool(image, 2.0)[0]


OVERLAPS = np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]], np.float32)


def _of_overlaps(overlaps: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    chosen = tf.image.non_max_suppression_overlaps(overlaps, scores, 3)
    return tf.math.reduce_sum(tf.one_hot(chosen, 3), axis=0)


def _kept(overlaps: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    order = tf.argsort(scores, direction="DESCENDING")
    kept = tf.zeros([3])
    for i in range(3):
        free = tf.reduce_max(kept * overlaps[order[i]]) <= 0.5
        kept = tf.where(tf.range(3) == order[i], tf.cast(free, tf.float32), kept)
    return kept


CASES = (
    Case("non_max_suppression", "NonMaxSuppressionV5", _soft, _padded, [BOXES, SCORES]),
    Case(
        "overlaps",
        "NonMaxSuppressionWithOverlaps",
        _of_overlaps,
        _kept,
        [OVERLAPS, SCORES[:3]],
    ),
    Case("sets", "DenseToDenseSetOperation", _shared, _equal_pairs, SETS),
    Case(
        "eig",
        "Eig",
        lambda x: tf.math.reduce_sum(tf.math.real(tf.linalg.eigvals(x))),
        lambda x: tf.math.reduce_sum(tf.linalg.eigvalsh(x)),
        [MATRIX],
    ),
    Case(
        "lu",
        "Lu",
        lambda a, b: tf.linalg.lu_solve(*tf.linalg.lu(a), b),
        lambda a, b: tf.linalg.solve(a, b),
        [MATRIX, RIGHT],
    ),
    Case(
        "sqrtm",
        "MatrixSquareRoot",
        lambda x: tf.linalg.sqrtm(x),
        lambda x: _of_eigenvalues(x, tf.sqrt),
        [MATRIX],
    ),
    Case(
        "logm",
        "MatrixLogarithm",
        lambda x: tf.math.real(tf.linalg.logm(tf.cast(x, tf.complex64))),
        lambda x: _of_eigenvalues(x, tf.math.log),
        [MATRIX],
    ),
    Case(
        "determinant",
        "MatrixDeterminant",
        lambda x: tf.linalg.det(x),
        _determinant,
        [MATRIX],
        until="2.22",
    ),
    Case(
        "determinant",
        "LogMatrixDeterminant",
        lambda x: tf.exp(tf.linalg.slogdet(x).log_abs_determinant),
        _determinant,
        [MATRIX],
        until="2.22",
    ),
    Case("banded", "BandedTriangularSolve", _banded, _triangular, [BANDS, RIGHT]),
    Case("ctc_loss", "CTCLoss", _ctc_of_sparse, _ctc_of_dense, [LOGITS]),
    Case("ctc_greedy", "CTCGreedyDecoder", _ctc_greedy, _ctc_best, [LOGITS]),
    Case("glimpse", "ExtractGlimpseV2", _glimpses, _sliced, [IMAGE]),
    Case(
        "resize_weights", "ScaleAndTranslate", _antialiased, _weighted(SMOOTH), [IMAGE]
    ),
    Case("transform", "ImageProjectiveTransformV3", _rotated, _rotated_pixels, [IMAGE]),
    Case("draw_boxes", "DrawBoundingBoxesV2", _boxed, _edges, [IMAGE]),
    Case("quantize", "QuantizeV2", _quantized, _rounded, [FLOATS]),
    Case("spectrogram", "AudioSpectrogram", _spectrogram, _short_time, [WAVE]),
    Case("lstm_block", "LSTMBlockCell", _block_cell, _lstm_cell, [*CELL.values()]),
    Case(
        "bessel",
        "BesselI0",
        lambda x: tf.math.special.bessel_i0(x),
        lambda x: tf.math.special.bessel_i0e(x) * tf.exp(tf.abs(x)),
        [FLOATS],
        until="2.22",
    ),
    Case(
        "bessel",
        "BesselI1",
        lambda x: tf.math.special.bessel_i1(x),
        lambda x: tf.math.special.bessel_i1e(x) * tf.exp(tf.abs(x)),
        [FLOATS],
        until="2.22",
    ),
    Case(
        "array_scatter",
        "TensorListScatterIntoExistingList",
        _scattered_into,
        lambda x: tf.scatter_nd([[3], [1], [4], [7], [5], [2], [6], [0]], x, [8]),
        [FLOATS],
    ),
    Case(
        "fractional_pool",
        "FractionalMaxPool",
        _fractional,
        lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"),
        [IMAGE],
    ),
    Case(
        "special",
        "Expint",
        lambda x: tf.math.special.expint(x) + 1.0,
        lambda y: y + 1.0,
        [FLOATS[5:]],
        lambda x: [tf.math.special.expint(x)],
    ),
    Case(
        "setdiff1d",
        "ListDiff x",
        lambda x: tf.reduce_sum(tf.raw_ops.ListDiff(x=x, y=[1.0, 2.0]).out),
        lambda x: tf.reduce_sum(
            tf.where(tf.reduce_all(x[:, None] != [1.0, 2.0], axis=1), x, 0.0)
        ),
        [FLOATS],
    ),
)
