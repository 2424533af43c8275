"""Strings, encodings, parsing and summaries as protocol buffers."""

import numpy as np
import tensorflow as tf

from support.equivalence.samples.kit import Samples, integers, real

SAMPLES = Samples()

WORDS = np.array(["Left ", "rIght", "", "Élan vital"])
BYTES = np.array([word.encode() for word in WORDS])
RECORDS = np.array(["1,a,0.5", "2,b,", "3,,1.5"])

SAMPLES.each("StringLower StringUpper", BYTES, encoding="utf-8")
SAMPLES.each("StringLower StringUpper StringStrip", WORDS)
SAMPLES.add("StringLength", WORDS, unit="UTF8_CHAR")
SAMPLES.add("StringLength", WORDS)
SAMPLES.add("StringJoin", [WORDS, "-", WORDS], separator="+")
SAMPLES.add(
    "StringFormat",
    [real(2), WORDS],
    template="a {} b {}",
    placeholder="{}",
    summarize=1,
)
SAMPLES.add(
    "StringNGrams",
    WORDS,
    np.int64([0, 1, 4]),
    separator="|",
    ngram_widths=[1, 2],
    left_pad="<",
    right_pad=">",
    pad_width=1,
    preserve_short_sequences=True,
)
SAMPLES.add("StringSplit", WORDS, "i", skip_empty=False)
SAMPLES.add("StringSplitV2", WORDS, "i", maxsplit=1)
SAMPLES.add("StringToHashBucket", WORDS, num_buckets=100)
SAMPLES.add("StringToHashBucketFast", WORDS, num_buckets=100)
SAMPLES.add("StringToHashBucketStrong", WORDS, num_buckets=100, key=[3, 4])
SAMPLES.add("StringToNumber", ["1.5", "-2"], out_type=tf.float64)
SAMPLES.add("StringToNumber", ["15", "-2"], out_type=tf.int64)
SAMPLES.add("Substr", BYTES[:2], [1, 0], [2, 3], unit="UTF8_CHAR")
SAMPLES.add("Substr", BYTES[:2], 1, 2)
SAMPLES.add("RegexFullMatch", WORDS, ".*i.*")
SAMPLES.add("RegexReplace", WORDS, "[aeiI]", "<\\0>", replace_global=False)
SAMPLES.add("StaticRegexFullMatch", WORDS, pattern=".*i.*")
SAMPLES.add(
    "StaticRegexReplace", WORDS, pattern="[aei]", rewrite="*", replace_global=False
)
SAMPLES.add("ReduceJoin", WORDS.reshape(2, 2), [1], keep_dims=True, separator=".")
SAMPLES.add("EncodeBase64", BYTES, pad=True)
SAMPLES.add("DecodeBase64", ["TGVmdA"])
SAMPLES.add(
    "UnicodeEncode",
    [72, 233, 0x1F600],
    [0, 1, 3],
    output_encoding="UTF-16-BE",
    errors="ignore",
    replacement_char=63,
)
UNICODE = {
    "input_encoding": "UTF-8",
    "errors": "replace",
    "replacement_char": 63,
    "replace_control_characters": True,
}
MIXED = [b"a\x01\xff", "é".encode()]
SAMPLES.add("UnicodeDecode", MIXED, **UNICODE, Tsplits=tf.int32)
# With splits of int32 this one ends the process.
SAMPLES.add("UnicodeDecodeWithOffsets", MIXED, **UNICODE)
SAMPLES.add(
    "UnicodeTranscode",
    [b"a\x01\xff", "é".encode()],
    **UNICODE,
    output_encoding="UTF-32-BE",
)
SAMPLES.add("UnicodeScript", [97, 0x3B1, 0x5D0])
SAMPLES.add("ShardedFilename", "part", 3, 10)
SAMPLES.add("ShardedFilespec", "part", 10)

# Numbers from bytes.
RAW = np.array([b"\x01\x02\x03\x04", b"\x05\x06\x07\x08"])
SAMPLES.add("DecodeRaw", RAW, out_type=tf.int16, little_endian=False)
SAMPLES.add("DecodeRaw", RAW, out_type=tf.float32)
SAMPLES.add(
    "DecodePaddedRaw",
    [b"\x01\x02", b"\x03"],
    4,
    out_type=tf.uint16,
    little_endian=False,
)
SAMPLES.add("DecodeCompressed", [b"plain"], compression_type="")
SAMPLES.add(
    "DecodeCSV",
    RECORDS,
    [np.int32([]), ["none"], np.float32([9])],
    field_delim=",",
    use_quote_delim=False,
    na_value="x",
)
SAMPLES.add(
    "DecodeCSV",
    ["1;2;NA"],
    [np.int32([]), np.float32([9])],
    field_delim=";",
    na_value="NA",
    select_cols=[0, 2],
)
SAMPLES.add(
    "DecodeJSONExample",
    ['{"features": {"feature": {"a": {"int64List": {"value": [1]}}}}}'],
)

# Examples.
FEATURE = tf.train.Feature
FEATURES = {
    "age": FEATURE(int64_list=tf.train.Int64List(value=[5])),
    "tags": FEATURE(bytes_list=tf.train.BytesList(value=[b"x", b"y"])),
    "sizes": FEATURE(float_list=tf.train.FloatList(value=[0.5, 1.5])),
}
EXAMPLE = tf.train.Example(
    features=tf.train.Features(feature=FEATURES)
).SerializeToString(deterministic=True)
SEQUENCE = tf.train.SequenceExample(
    context=tf.train.Features(feature={"age": FEATURES["age"]}),
    feature_lists=tf.train.FeatureLists(
        feature_list={"sizes": tf.train.FeatureList(feature=[FEATURES["sizes"]] * 3)}
    ),
).SerializeToString(deterministic=True)
AGE = [np.int64([-1])]
DENSE = {"dense_shapes": [[1]]}
SAMPLES.add(
    "ParseExample",
    [EXAMPLE, EXAMPLE],
    ["", ""],
    ["tags"],
    ["age"],
    AGE,
    sparse_types=[tf.string],
    **DENSE,
)
SAMPLES.add(
    "ParseExampleV2",
    [EXAMPLE],
    [""],
    ["tags"],
    ["age"],
    ["sizes"],
    AGE,
    num_sparse=1,
    sparse_types=[tf.string],
    ragged_value_types=[tf.float32],
    ragged_split_types=[tf.int32],
    **DENSE,
)
SAMPLES.add(
    "ParseSingleExample",
    EXAMPLE,
    AGE,
    num_sparse=1,
    sparse_keys=["tags"],
    dense_keys=["age"],
    sparse_types=[tf.string],
    **DENSE,
)
SAMPLES.add(
    "ParseSequenceExample",
    [SEQUENCE],
    [""],
    AGE,
    feature_list_dense_missing_assumed_empty=[],
    context_sparse_keys=[],
    context_dense_keys=["age"],
    feature_list_sparse_keys=[],
    feature_list_dense_keys=["sizes"],
    Ncontext_dense=1,
    Nfeature_list_dense=1,
    context_dense_shapes=[[1]],
    feature_list_dense_types=[tf.float32],
    feature_list_dense_shapes=[[2]],
)
NOTHING = np.array([], str)
SAMPLES.add(
    "ParseSequenceExampleV2",
    [SEQUENCE],
    [""],
    NOTHING,
    ["age"],
    NOTHING,
    ["sizes"],
    NOTHING,
    NOTHING,
    np.array([], bool),
    AGE,
    context_dense_shapes=[[1]],
    Nfeature_list_sparse=1,
    feature_list_sparse_types=[tf.float32],
)
SAMPLES.add(
    "ParseSingleSequenceExample",
    SEQUENCE,
    NOTHING,
    [],
    ["age"],
    ["sizes"],
    [],
    AGE,
    "",
    context_dense_shapes=[[1]],
    feature_list_sparse_types=[tf.float32],
)
PROTO = {
    "message_type": "tensorflow.Example",
    "field_names": ["features"],
    "descriptor_source": "local://",
}


@SAMPLES.program()
def protocol_buffers(run):
    sizes, (features,) = run.DecodeProtoV2(
        [EXAMPLE],
        **PROTO,
        output_types=[tf.string],
        message_format="binary",
        sanitize=True,
    )
    run.EncodeProto(sizes, [features], **PROTO)


@SAMPLES.program()
def tensors_as_strings(run):
    for value in (real(2, 3), integers(2), WORDS):
        run.SerializeTensor(value)


# Summaries.
TAG = "tag"
SAMPLES.add("ScalarSummary", ["a", "b"], real(2))
SAMPLES.add("HistogramSummary", TAG, real(5))
SAMPLES.add(
    "TensorSummary", real(2), description="text", labels=["one"], display_name="name"
)
SAMPLES.add("TensorSummaryV2", TAG, real(2), b"")
SAMPLES.add("AudioSummaryV2", TAG, real(2, 20), 8000.0, max_outputs=1)
SAMPLES.add("AudioSummary", TAG, real(2, 20), sample_rate=8000.0, max_outputs=1)


@SAMPLES.program()
def merged_summaries(run):
    run.MergeSummary([run.ScalarSummary("a", 1.5), run.ScalarSummary("b", 2.5)])
