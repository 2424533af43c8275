"""What runs on the host only: Python, strings, files, tables, some random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tpu.support.remedies.case import COUNTS, FLOATS, IMAGE, LOGITS, Case


def _printed(x: tf.Tensor) -> tf.Tensor:
    y = x * 2.0
    tf.print(y)
    return y


PIXELS = tf.cast(IMAGE[0] * 255, tf.uint8)
PNG = tf.io.encode_png(PIXELS).numpy()
WAV = tf.audio.encode_wav(FLOATS[:, None] / 4, 8000).numpy()


def _dataset(x: tf.Tensor) -> tf.Tensor:
    for one in tf.data.Dataset.range(3):
        x += tf.cast(one, tf.float32)
    return x


def _steps(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    for one in rows:
        x += tf.cast(one, tf.float32)
    return x


def _lookup(x: tf.Tensor) -> tf.Tensor:
    keys, values = tf.constant([1, 2]), tf.constant([10, 20])
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
    return tf.lookup.StaticHashTable(initializer, -1).lookup(x)


def _compared(x: tf.Tensor) -> tf.Tensor:
    keys, values = tf.constant([1, 2]), tf.constant([10, 20])
    found = x[:, None] == keys
    place = tf.argmax(tf.cast(found, tf.int32), axis=1)
    return tf.where(tf.reduce_any(found, axis=1), tf.gather(values, place), -1)


def _mutable(x: tf.Tensor) -> tf.Tensor:
    table = tf.raw_ops.MutableDenseHashTableV2(
        empty_key=-1, deleted_key=-2, value_dtype=tf.float32
    )
    tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=tf.range(8), values=x)
    return tf.raw_ops.LookupTableFindV2(
        table_handle=table, keys=[3, 1], default_value=0.0
    )


def _length(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(tf.strings.as_string(x))


def _buckets(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(tf.strings.as_string(x), 16)


def _numbers(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_number(tf.strings.as_string(x))


def _raw(x: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_raw(tf.strings.as_string(x), tf.uint8, little_endian=True)


EXAMPLE = tf.train.Example(
    features=tf.train.Features(
        feature={"x": tf.train.Feature(float_list=tf.train.FloatList(value=[1, 2]))}
    )
).SerializeToString()


def _parsed(which: tf.Tensor) -> tf.Tensor:
    feature = tf.io.FixedLenFeature([2], tf.float32)
    examples = tf.gather([[EXAMPLE]], which)
    return tf.io.parse_example(examples, {"x": feature})["x"]


SERIALIZED = tf.io.serialize_tensor(FLOATS).numpy()


def _file(x: tf.Tensor) -> tf.Tensor:
    tf.io.write_file("/dev/null", "done")
    return x + 1.0


def _summarized(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.length(tf.raw_ops.ScalarSummary(tags="mean", values=x[0])) + 1


def _queued(x: tf.Tensor) -> tf.Tensor:
    queue = tf.queue.FIFOQueue(1, [tf.float32], [[8]])
    queue.enqueue(x)
    return queue.dequeue() + 1.0


def _gamma(x: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_gamma([8], [1, 2], alpha=2.0)


def _poisson(x: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_poisson([8], [1, 2], tf.abs(x))


def _binomial(x: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_binomial([8], [1, 2], tf.abs(x), 0.5, tf.float32)


def _any_gamma(x: tf.Tensor) -> tf.Tensor:
    return x + 0.0 * tf.random.gamma([8], 2.0)


def _any_poisson(x: tf.Tensor) -> tf.Tensor:
    return x + 0.0 * tf.random.poisson([8], 2.0)


def _candidates(x: tf.Tensor, classes: tf.Tensor) -> tf.Tensor:
    ids = tf.random.log_uniform_candidate_sampler(classes, 1, 8, True, 8)[0]
    return tf.reduce_sum(tf.gather(x, ids))


def _drawn(x: tf.Tensor, classes: tf.Tensor) -> Any:
    return [x, tf.random.log_uniform_candidate_sampler(classes, 1, 8, True, 8)[0]]


def _beams(logits: tf.Tensor) -> tf.Tensor:
    found, _ = tf.nn.ctc_beam_search_decoder(logits, [4], beam_width=4, top_paths=1)
    return tf.sparse.to_dense(found[0])


def _distance(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    one, other = tf.sparse.from_dense(a[None]), tf.sparse.from_dense(b[None])
    return tf.edit_distance(one, other, normalize=False)


def _box_of(image: tf.Tensor) -> Any:
    whole = [[[0.0 * image[0, 0, 0], 0.0, 1.0, 1.0]]]
    return tf.image.stateless_sample_distorted_bounding_box([8, 8, 3], whole, [1, 2])[
        :2
    ]


def _distorted(image: tf.Tensor) -> tf.Tensor:
    begin, size = _box_of(image)
    return tf.reduce_sum(tf.slice(image, begin, size))


def _between(image: tf.Tensor, begin: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    y, x = tf.range(8)[:, None, None], tf.range(8)[:, None]
    inside = (y >= begin[0]) & (y < begin[0] + size[0])
    inside &= (x >= begin[1]) & (x < begin[1] + size[1])
    return tf.reduce_sum(tf.where(inside, image, 0.0))


def _box(image: tf.Tensor) -> Any:
    return [image, *_box_of(image)]


SECTION = tf.CriticalSection()


def _guarded(x: tf.Tensor) -> tf.Tensor:
    return SECTION.execute(lambda: x + 1.0)


COUNTER = tf.Variable(0)


@tf.nondifferentiable_batch_function(1, 8, 10)
def _batched(x: tf.Tensor) -> tf.Tensor:
    return x + 1.0


def _jpeg(x: tf.Tensor) -> tf.Tensor:
    return tf.image.adjust_jpeg_quality(x, 90)


def _cepstrum(spectra: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.Mfcc(spectrogram=spectra, sample_rate=16000)


CASES = (
    Case(
        "hash_bucket",
        "StringToHashBucketFast",
        _buckets,
        lambda x: x,
        [COUNTS],
        lambda x: [_buckets(x)],
    ),
    Case(
        "strings",
        "StringLength",
        lambda x: _length(x) + 1,
        lambda lengths: lengths + 1,
        [FLOATS],
        lambda x: [_length(x)],
    ),
    Case("to_number", "StringToNumber", _numbers, lambda x: x, [FLOATS]),
    Case("parse", "DecodeRaw", _raw, lambda x: x, [COUNTS], lambda x: [_raw(x)]),
    Case(
        "lookup", "LookupTableFindV2", _lookup, _compared, [np.array([2, 3], np.int32)]
    ),
    Case(
        "mutable_table",
        "MutableDenseHashTableV2",
        _mutable,
        lambda x: tf.gather(x, [3, 1]),
        [FLOATS],
    ),
    Case(
        "py_function",
        "EagerPyFunc",
        lambda x: tf.py_function(lambda y: y + 1.0, [x], tf.float32),
        lambda x: x + 1.0,
        [FLOATS],
    ),
    Case(
        "py_function",
        "PyFunc",
        lambda x: tf.numpy_function(lambda y: y + np.float32(1), [x], tf.float32) * 2.0,
        lambda y: y * 2.0,
        [FLOATS],
        lambda x: [x + np.float32(1)],
    ),
    Case("print", "PrintV2", _printed, lambda x: x * 2.0, [FLOATS]),
    Case(
        "summary",
        "ScalarSummary",
        _summarized,
        lambda x: x,
        [FLOATS],
        lambda x: [_summarized(x)],
    ),
    Case(
        "images",
        "DecodePng",
        lambda: tf.cast(tf.io.decode_png(PNG), tf.float32) / 255.0,
        lambda image: tf.cast(image, tf.float32) / 255.0,
        [],
        lambda: [tf.io.decode_png(PNG)],
    ),
    Case(
        "images",
        "EncodeJpegVariableQuality",
        _jpeg,
        lambda x: x,
        [IMAGE[0]],
        lambda x: [_jpeg(x)],
    ),
    Case(
        "images",
        "DecodeWav",
        lambda: tf.audio.decode_wav(WAV).audio * 2.0,
        lambda x: x * 2.0,
        [],
        lambda: [tf.audio.decode_wav(WAV).audio],
    ),
    Case(
        "parse",
        "ParseExampleV2",
        _parsed,
        lambda x: x,
        [np.int32(0)],
        lambda x: [_parsed(x)],
    ),
    Case(
        "parse",
        "ParseTensor",
        lambda: tf.io.parse_tensor(SERIALIZED, tf.float32),
        lambda x: x,
        [],
        lambda: [FLOATS],
    ),
    Case("files", "WriteFile", _file, lambda x: x + 1.0, [FLOATS]),
    Case(
        "tf_data",
        "RangeDataset",
        _dataset,
        _steps,
        [FLOATS],
        lambda x: [x, np.arange(3)],
    ),
    Case("queue", "QueueDequeueV2", _queued, lambda x: x + 1.0, [FLOATS]),
    Case(
        "timestamp",
        "Timestamp",
        lambda x: x + tf.cast(tf.timestamp() > 0, tf.float32),
        lambda x, now: x + tf.cast(now > 0, tf.float32),
        [FLOATS],
        lambda x: [x, tf.timestamp()],
    ),
    Case(
        "random_gamma",
        "StatelessRandomGammaV3",
        _gamma,
        lambda x: x,
        [FLOATS],
        lambda x: [_gamma(x)],
    ),
    Case("random_gamma", "RandomGamma", _any_gamma, lambda x: x, [FLOATS]),
    Case(
        "random_counts",
        "StatelessRandomPoisson",
        _poisson,
        lambda x: x,
        [FLOATS],
        lambda x: [_poisson(x)],
    ),
    Case(
        "random_counts",
        "StatelessRandomBinomial",
        _binomial,
        lambda x: x,
        [FLOATS],
        lambda x: [_binomial(x)],
    ),
    Case("random_counts", "RandomPoissonV2", _any_poisson, lambda x: x, [FLOATS]),
    Case(
        "candidates",
        "LogUniformCandidateSampler",
        _candidates,
        lambda x, ids: tf.reduce_sum(tf.gather(x, ids)),
        [FLOATS, np.array([[1]])],
        _drawn,
    ),
    Case(
        "ctc_beams",
        "CTCBeamSearchDecoder",
        _beams,
        lambda x: x,
        [LOGITS],
        lambda x: [_beams(x)],
    ),
    Case(
        "edit_distance",
        "EditDistance",
        _distance,
        lambda x: x,
        [COUNTS, COUNTS[::-1]],
        lambda a, b: [_distance(a, b)],
    ),
    Case(
        "distorted_box",
        "StatelessSampleDistortedBoundingBox",
        _distorted,
        _between,
        [IMAGE[0]],
        _box,
    ),
    Case("critical_section", "MutexLock", _guarded, lambda x: x + 1.0, [FLOATS]),
    Case(
        "batch_function",
        "BatchFunction",
        lambda x: _batched(x),
        lambda x: x + 1.0,
        [FLOATS],
    ),
    Case(
        "op",
        "Mfcc",
        lambda spectra: _cepstrum(spectra) * 2.0,
        lambda y: y * 2.0,
        [np.linspace(1, 2, 65, dtype=np.float32).reshape(1, 1, 65)],
        lambda spectra: [_cepstrum(spectra)],
    ),
    Case(
        "count_up_to",
        "ResourceCountUpTo",
        lambda x: x
        + tf.cast(
            tf.raw_ops.ResourceCountUpTo(resource=COUNTER.handle, limit=100, T=tf.int32)
            >= 0,
            tf.float32,
        ),
        lambda x: x + 1.0,
        [FLOATS],
    ),
)
