"""Programs of the kinds that public reports describe, which do not compile for TPUs.

Reports of TensorFlow have these ops and settings, among them #30235, #52905, #59474,
#122057 and tf-keras #418. The code is our own. A comment marks the line that stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tpu.support.reports import helpers, layers


@dataclass(frozen=True)
class Program:
    """A program that does not compile.

    Attributes:
        op: the op that stops it.
        row: the id of the remedy.
        function: the program.
        given: its arguments.
    """

    op: str
    row: str
    function: Callable[..., Any]
    given: Sequence[tf.TensorSpec]


def counted(count: tf.Tensor) -> tf.Tensor:
    steps = tf.range(count)  # stops
    return tf.reduce_sum(steps * steps)


def generated(first: tf.Tensor) -> tf.Tensor:
    """Tokens one after the other, each appended."""
    tokens = first[None]
    for _ in tf.range(5):  # stops
        tf.autograph.experimental.set_loop_options(
            shape_invariants=[(tokens, tf.TensorShape([None, 4]))]
        )
        tokens = tf.concat([tokens, tokens[-1:] + 1.0], axis=0)
    return tokens


def logged(x: tf.Tensor) -> tf.Tensor:
    for step in tf.range(3):
        x = x * 0.5
        tf.print("step", step)  # stops
    return x


def augmented(x: tf.Tensor) -> tf.Tensor:
    @tf.function  # type: ignore[untyped-decorator]
    def flip(image: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda one: one[::-1], [image], tf.float32)  # stops

    return tf.ensure_shape(flip(x), x.shape)


def detected(boxes: tf.Tensor, scores: tf.Tensor) -> Any:
    chosen, _ = tf.image.non_max_suppression_with_scores(boxes, scores, 8)  # stops
    return tf.gather(boxes, chosen)


def densified(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    ragged = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
    return ragged.to_tensor()  # stops


def volumes(covariance: tf.Tensor) -> tf.Tensor:
    def negative_log(x: tf.Tensor) -> tf.Tensor:
        return -tf.math.log(tf.linalg.det(x))  # stops

    return tf.map_fn(negative_log, covariance)


def sampled(concentration: tf.Tensor) -> tf.Tensor:
    """A draw from a Dirichlet distribution."""
    gammas = tf.random.gamma([], concentration)  # stops
    return gammas / tf.reduce_sum(gammas)


def decoded(logits: tf.Tensor) -> tf.Tensor:
    found, _ = tf.nn.ctc_greedy_decoder(logits, [8, 8])  # stops
    return tf.sparse.to_dense(found[0], default_value=-1)


def gradient_of_steps(x: tf.Tensor, count: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in tf.range(count):
            y = tf.tanh(y)
    return tape.gradient(y, x)  # stops


def positions(mask: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    return tf.one_hot(tf.cast(mask, tf.int32), count + 1)  # stops


def sums_of_small(x: tf.Tensor) -> tf.Tensor:
    return tf.cumsum(x, axis=1)  # stops


attention, vocabulary, pooled = layers.Attention(), layers.Vocabulary(), layers.Pooled()
ids = keras.Input([4], dtype="int32", batch_size=2)
hashed = keras.Model(ids, layers.Hashed()(ids))
pictures = keras.Input([8, 8, 3], batch_size=2)
enlarged = keras.Sequential([pictures, keras.layers.Rescaling(2.0), layers.Enlarged()])

FLOATS = tf.TensorSpec([4, 4])
COUNT = tf.TensorSpec([], tf.int32)
INTS = tf.TensorSpec([4], tf.int32)

PROGRAMS = (
    Program("Range", "range", counted, [COUNT]),
    Program("Range", "repeat", helpers.expanded, [FLOATS, INTS]),
    Program("Pad", "pad", helpers.padded_to, [FLOATS, COUNT]),
    Program(
        "ExtractGlimpseV2",
        "glimpse",
        helpers.glimpses,
        [tf.TensorSpec([4, 16, 16, 3]), FLOATS],
    ),
    Program("DenseToDenseSetOperation", "sets", helpers.shared, [INTS]),
    Program("Range", "sequence_mask", attention, [tf.TensorSpec([4, 4, 4]), INTS]),
    Program("LookupTableFindV2", "lookup", vocabulary, [INTS]),
    Program(
        "SparseSegmentMean",
        "embedding_sparse",
        pooled,
        [tf.TensorSpec([16, 8]), tf.TensorSpec([4, 3], tf.int32)],
    ),
    Program("ScaleAndTranslate", "resize_weights", enlarged, []),
    Program("StringToHashBucketFast", "hash_bucket", hashed, []),
    Program("StatelessWhile", "grown_loop", generated, [tf.TensorSpec([4])]),
    Program("PrintV2", "print", logged, [FLOATS]),
    Program("PyFunc", "py_function", augmented, [FLOATS]),
    Program(
        "NonMaxSuppressionV5",
        "non_max_suppression",
        detected,
        [tf.TensorSpec([16, 4]), tf.TensorSpec([16])],
    ),
    Program("RaggedTensorToTensor", "ragged_to_tensor", densified, [INTS, INTS]),
    Program("MatrixDeterminant", "determinant", volumes, [tf.TensorSpec([4, 3, 3])]),
    Program("RandomGamma", "random_gamma", sampled, [tf.TensorSpec([4])]),
    Program("CTCGreedyDecoder", "ctc_greedy", decoded, [tf.TensorSpec([8, 2, 4])]),
    Program("EmptyTensorList", "loop_gradient", gradient_of_steps, [FLOATS, COUNT]),
    Program("OneHot", "one_hot", positions, [tf.TensorSpec([4], tf.bool), COUNT]),
    Program("Cumsum", "small_ints", sums_of_small, [tf.TensorSpec([4, 4], tf.uint8)]),
)
