"""Calls whose sizes lie: each must be refused, by an error that names what is wrong.

    python size_attacks.py [name...]

makes all of them or those named, eagerly and out of a SavedModel. It prints "> name"
before each, and then what became of it: "refused", or what should not have been. It is
a program of its own because such a call may end the process.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from embedding.support.cases import Feature, System, Table
from opwright import Scope, tpu
from opwright.tpu import configure_tpu_embedding

raw = tf.raw_ops
Call = Callable[[], Any]
TWO_62 = 2**62


@dataclass(frozen=True)
class Attack:
    call: Call
    # Of the refusal; none: the call is good, but must stay small.
    words: tuple[str, ...]
    # TensorFlow's shape functions may refuse a graph, or have flaws of their own.
    saved: bool = True


ATTACKS: dict[str, Attack] = {}


def attack(name: str, call: Call, *words: str, saved: bool = True) -> None:
    assert name not in ATTACKS
    ATTACKS[name] = Attack(call, words, saved)


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def floats(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


# ---- Inputs that name their tables, in a system of one table with four features.


def legacy(batch: int = 1, features: int = 4) -> Any:
    config = System([Table(8, 1)], [Feature(0, (1,))]).config
    del config.feature_descriptor[:]
    config.batch_size_per_tensor_core = batch
    config.table_descriptor[0].num_features = features
    return config


def configured(config: Any, call: Call) -> Any:
    first = raw.ConfigureTPUEmbedding(config=config)
    with tf.control_dependencies([first] if first else []):
        return call()


def enqueue(ragged: bool, where: Any, inputs: int, **attrs: Any) -> Any:
    """Ids 0 ... of the first input, none of the others."""
    name = "sample_splits" if ragged else "sample_indices"
    op = (
        raw.EnqueueTPUEmbeddingRaggedTensorBatch
        if ragged
        else raw.EnqueueTPUEmbeddingSparseTensorBatch
    )
    none = ints(*[0] * 2) if ragged else ints()
    ids = int(where[-1]) if ragged else len(where)
    return op(
        **{name: [where, *[none] * (inputs - 1)]},
        embedding_indices=[ints(*range(ids)), *[ints()] * (inputs - 1)],
        aggregation_weights=[floats(0)] * inputs,
        mode_override="train",
        table_ids=[0] * inputs,
        **attrs,
    )


def by_table(name: str, *words: str, ragged: bool, where: Any, **attrs: Any) -> None:
    config = legacy().SerializeToString()
    inputs = len(next(iter(attrs.values())))
    call = lambda: enqueue(ragged, where, inputs, **attrs)  # noqa: E731
    attack(name, lambda: configured(config, call), *words, "table0", "4")


WRAPS = [TWO_62, TWO_62, TWO_62, TWO_62 + 4]  # Adds up to 4 in 64 bits.
SPLITS = ints(0, 1)
by_table(
    "sparse features that wrap",
    "num_features",
    str(TWO_62),
    ragged=False,
    where=ints(2**30, 2**30 + 1),
    num_features=WRAPS,
)
by_table(
    "ragged sequences that wrap",
    "max_sequence_lengths",
    str(TWO_62),
    ragged=True,
    where=SPLITS,
    max_sequence_lengths=WRAPS,
)
by_table(
    "a ragged sequence far behind",
    "max_sequence_lengths",
    str(TWO_62),
    ragged=True,
    where=ints(0, 3),
    max_sequence_lengths=[3, TWO_62, TWO_62, TWO_62, TWO_62 + 1],
)
by_table(
    "one feature too many",
    "num_features",
    "5",
    ragged=False,
    where=ints(0),
    num_features=[5],
)


def serialized(message: bytes) -> Any:
    configure_tpu_embedding(system(1).proto)
    op = tpu.EnqueueTPUEmbeddingBatch
    return op.create(Scope.current(), [tf.constant([message])], "train")


# A list of ids, by its length and what there is of it.
for name, message in (
    ("a list of 100 bytes with one", b"\x0a\x64\x01"),
    ("a list of 2^32 - 1 bytes", b"\x0a\xff\xff\xff\xff\x0f"),
    ("a list of 2^31 bytes", b"\x0a\x80\x80\x80\x80\x08"),
):
    attack(
        name,
        lambda message=message: serialized(message),
        "batch[0]",
        "SparseFeatures",
        saved=False,
    )


# ---- Configurations.


def system(*shape: int) -> Any:
    return System([Table(8, 1)], [Feature(0, shape)])


def configuration(name: str, config: Any, *words: str) -> None:
    given = config.SerializeToString()
    attack(name, lambda: raw.ConfigureTPUEmbedding(config=given), *words)


def receive(config: Any) -> Any:
    given = config.SerializeToString()
    return configured(
        given, lambda: raw.RecvTPUEmbeddingActivations(num_outputs=1, config=given)
    )


LONG = (system(*[1] * 254).config, "feature0", "input_shape", "253", "254")
configuration("254 dimensions", *LONG)
# In a graph TensorFlow's shape function refuses it.
attack("an output of 255", lambda: receive(LONG[0]), *LONG[1:], saved=False)
configuration("2^40 samples", system(2**20, 2**20).config, "feature0", "input_shape")
configuration("2^63 samples", system(2**21, 2**21, 2**21).config, "feature0")
configuration(
    "many features of many samples",
    System([Table(8, 1)], [Feature(0, (2**27,))] * 3).config,
    "feature 2",
    "samples",
)
configuration("many legacy samples", legacy(2**30, 2**30), "table0", "num_features")


# ---- Deduplication data.


def mask(*dims: int, unknown: bool = False) -> bytes:
    """A mask in a few bytes: one value stands for all elements."""
    proto = TensorProto(dtype=tf.int32.as_datatype_enum, int_val=[0])
    for dim in dims:
        proto.tensor_shape.dim.add(size=dim)
    proto.tensor_shape.unknown_rank = unknown
    return bytes(proto.SerializeToString())


def merge(tuple_mask: bytes) -> Any:
    return tpu.merge_dedup_data(ints(), floats(0), tuple_mask)


for name, dims, words in (
    ("2^25 parts", (2**25, 2), ("tuple_mask", "parts")),
    ("2^40 parts", (2**40, 2), ("tuple_mask", "parts")),
    ("2^61 parts", (2**61, 2), ("tuple_mask", "parts")),
    ("2^62 parts", (2**62, 2), ("tuple_mask",)),
    ("2^40 columns", (2, 2**40), ("tuple_mask",)),
    ("a mask of 300 dimensions", (1,) * 300, ("tuple_mask",)),
    ("a mask of -1 parts", (-1, 2), ("tuple_mask",)),
):
    given = mask(*dims)
    attack(name, lambda given=given: merge(given), *words)
unknown_mask = mask(unknown=True)
attack("a mask of no rank", lambda: merge(unknown_mask), "tuple_mask")


# ---- SparseCores.


def rows(width: int) -> Any:
    return raw.XlaSparseCoreSgd(
        indices=ints(0, 0, 0, 0),
        gradient=floats(4, 1),
        learning_rate=np.float32(1),
        embedding_table=tf.zeros([0, width]),
        feature_width=width,
    )


# In a graph TensorFlow folds the table to one of another shape.
attack("2^64 gradients", lambda: rows(TWO_62), "gradient", str(TWO_62), saved=False)


def coo(samples: int) -> Any:
    return raw.ConvertToCooTensor(
        indices_or_row_splits=np.zeros((0, 2), np.int32),
        values=ints(),
        weights=np.float32(1),
        sample_count=samples,
        combiner="mean",
    )


attack("2^31 samples", lambda: coo(2**31), "sample_count", str(2**31))
attack("2^63 - 1 samples", lambda: coo(2**63 - 1), "sample_count", str(2**63 - 1))
attack("2^29 samples without ids", lambda: coo(2**29))


def listed(**changes: int) -> Any:
    arguments: dict[str, Any] = {
        "indices_or_row_splits": ints(0, 1, 2, 3, 3),
        "values": ints(1, 2, 3),
        "weights": np.float32(1),
        "sample_count": 4,
        "num_sc_per_chip": 2,
        "row_offset": 0,
        "col_offset": 0,
        "col_shift": 0,
        "num_sc_shards": 4,
        "stacked_table_sample_count": 4,
        "combiner": "sum",
    }
    return raw.ConvertToListOfSparseCoreCooTensors(**(arguments | changes))


for name, values in (
    ("row_offset", (2**63 - 1, 2**31, -1, -(2**63))),
    ("col_offset", (2**63 - 1, 2**31, -1, -(2**63))),
    ("col_shift", (2**63 - 1, 2**31, -(2**63))),
    ("num_sc_shards", (-(2**63), 2**62)),
    ("stacked_table_sample_count", (2**63 - 1, 2**31, -8, -(2**63))),
    ("sample_count", (2**63 - 2,)),
):
    for value in values:
        attack(
            f"{name} {value}",
            lambda change={name: value}: listed(**change),
            name,
            str(value),
        )


def sort(replicas: int = 1, cores: int = 1, samples: int = 4) -> Any:
    return raw.GetStatsFromListOfSparseCoreCooTensors(
        row_ids_list=[ints(0)] * 2,
        col_ids_list=[ints(0)] * 2,
        gains_list=[floats(1)] * 2,
        sample_count_list=[samples] * 2,
        col_offset_list=[0] * 2,
        num_replica=replicas,
        table_vocab_size=8,
        feature_width=1,
        num_sc_per_chip=cores,
        table_name="t",
    )


attack("2^62 shards", lambda: sort(2**31, 2**31), "num_replica", str(2**31))
attack("2^64 shards", lambda: sort(2**32, 2**32), "num_replica", str(2**32))
attack("2^24 shards", lambda: sort(2**12, 2**12), "num_replica", str(2**12))
attack("2^32 samples", lambda: sort(samples=2**31 - 1), "sample_count_list")


# ---- Making them.


def memory(what: str) -> int:
    """VmRSS, or VmHWM, the most there was, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) >> 10


def refused(call: Call, words: tuple[str, ...]) -> str:
    """What became of it; "refused" is good."""
    Path("/proc/self/clear_refs").write_text("5")  # The most from now on.
    before = memory("VmRSS")
    try:
        call()
    except (tf.errors.OpError, ValueError) as error:
        missing = [word for word in words if word not in str(error)]
        if missing or not words:
            return f"refused in other words, {missing} are missing: {error}"
    else:
        if words:
            return "taken"
    grown = memory("VmHWM") - before
    return "refused" if grown < 256 else f"took {grown} MiB"


def out_of_saved_model(call: Call) -> Any:
    """The call as the signature of a model that was saved and loaded."""

    @tf.function(input_signature=[], autograph=False)
    def serve() -> dict[str, tf.Tensor]:
        made = tf.nest.flatten(call())
        if isinstance(made[0], tf.Operation):
            with tf.control_dependencies(made):
                made = [tf.constant(0)]
        return {str(i): tensor for i, tensor in enumerate(made)}

    module = tf.Module()
    module.serve = serve
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=serve)
        return tf.saved_model.load(folder).signatures["serving_default"]()


def main() -> None:
    names = sys.argv[1:] or list(ATTACKS)
    for name in names:
        one = ATTACKS[name]
        ways = {"eagerly": one.call}
        if one.saved:
            ways["saved"] = lambda one=one: out_of_saved_model(one.call)
        print(f"> {name}", flush=True)
        for way, call in ways.items():
            raw.ShutdownDistributedTPU()
            found = refused(call, one.words)
            if found != "refused":
                found = f"{way}: {found}"[:2000].replace("\n", " ")
                break
        print(found, flush=True)


if __name__ == "__main__":
    main()
