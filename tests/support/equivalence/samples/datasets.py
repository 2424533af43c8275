"""Datasets, their iterators and what can be asked of them."""

import contextlib
import sqlite3
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import dataset_metadata_pb2, dataset_options_pb2

from support.equivalence.modes import Run
from support.equivalence.samples.kit import Sample, Samples, function, real
from support.equivalence.samples.strings import EXAMPLE

SAMPLES = Samples()

NUMBERS = {"output_types": [tf.int64], "output_shapes": [[]]}
BATCHES = {"output_types": [tf.int64], "output_shapes": [[None]]}
WORDS = {"output_types": [tf.string], "output_shapes": [[]]}
NESTED = {"output_types": [tf.variant], "output_shapes": [[]]}
int64 = np.int64
AS_IT_STANDS = dataset_options_pb2.Options(
    optimization_options={"apply_default_optimizations": False},
    autotune_options={"enabled": False},
).SerializeToString()


def numbers(run: Run) -> tf.Tensor:
    limits = (int64(0), int64(10), int64(1))
    return run.RangeDataset(*limits, **NUMBERS, metadata="", replicate_on_split=True)


def consume(run: Run, dataset: tf.Tensor, count: int, **typed: Any) -> None:
    """Reads elements of a dataset as it stands: it is not rewritten to be faster."""
    dataset = run.OptionsDataset(dataset, serialized_options=AS_IT_STANDS, **typed)
    iterator = run.AnonymousIteratorV3(**typed)
    run.MakeIterator(dataset, iterator)
    for _ in range(count):
        run.IteratorGetNext(iterator, **typed)


def transformation(
    op: str,
    *inputs: Any,
    typed: dict[str, Any] = NUMBERS,
    count: int = 3,
    **settings: Any,
) -> None:
    """Adds a program that applies `op` to the numbers and reads what comes out."""

    def program(run: Run) -> None:
        given = [x(run) if callable(x) else x for x in inputs]
        consume(run, run(op, numbers(run), *given, **typed, **settings), count, **typed)

    SAMPLES.rows.append(Sample(op, program))


@function(tf.int64, tf.int64)
def offset(x, y):
    return x + y


@function(tf.int64)
def is_even(x):
    return tf.equal(x % 2, 0)  # Below a graph, == is about identity.


@function(tf.int64)
def is_low(x):
    return x < 2


@function(tf.int64)
def three_more(x):
    return tf.data.Dataset.range(x, x + 3)._variant_tensor


@function(tf.int64)
def parity(x):
    return x % 2


@function(tf.int64)
def three(x):
    return tf.constant(3, tf.int64)


@function(tf.int64)
def zero(x):
    return tf.constant(0, tf.int64)


@function(tf.int64)
def same(x):
    return x


@function(tf.int64, tf.TensorSpec([], tf.variant))
def whole_window(key, window):
    return tf.raw_ops.BatchDatasetV2(
        input_dataset=window, batch_size=3, drop_remainder=False, **BATCHES
    )


@function(tf.int64)
def half(x):
    return x // 2, x % 2


@function(tf.int64)
def one_batch(x):
    return tf.data.Dataset.range(x).batch(9)._variant_tensor


@function(tf.TensorSpec([], tf.variant), tf.int64)
def take_some(dataset, n):
    return tf.raw_ops.TakeDataset(input_dataset=dataset, count=int64(-1), **NUMBERS)


@function(tf.TensorSpec([], tf.variant))
def itself(dataset):
    return dataset


@function(tf.TensorSpec([], tf.variant))
def flat_readers(datasets):
    return tf.raw_ops.FlatMapDataset(
        input_dataset=datasets, other_arguments=[], f=itself(), **NUMBERS
    )


@function()
def factory():
    return tf.raw_ops.RangeDataset(
        start=int64(0), stop=int64(5), step=int64(1), **NUMBERS
    )


@function(tf.int64, tf.int64)
def running_total(state, x):
    return state + x, state * 10


NAMED = {"metadata": dataset_metadata_pb2.Metadata(name=b"m").SerializeToString()}
for kind in ("", "Experimental"):
    # The Experimental versions lack what came later.
    transformation(kind + "AssertNextDataset", ["Root"])
    transformation(kind + "BytesProducedStatsDataset", "tag")
    transformation(kind + "LatencyStatsDataset", "tag")
    transformation(kind + "IgnoreErrorsDataset", log_warning=True)
    transformation(kind + "MaxIntraOpParallelismDataset", int64(1))
    transformation(kind + "PrivateThreadPoolDataset", int64(1))
    transformation(kind + "NonSerializableDataset")
    transformation(kind + "SleepDataset", int64(1))
    transformation(kind + "UniqueDataset")
    transformation(
        kind + "MapAndBatchDataset",
        [int64(3)],
        int64(2),
        int64(1),
        True,
        typed=BATCHES,
        f=offset,
        preserve_cardinality=True,
    )
    transformation(
        kind + "ParallelInterleaveDataset",
        [],
        int64(2),
        int64(1),
        False,
        int64(1),
        int64(1),
        f=three_more,
    )
    transformation(
        kind + "ScanDataset", [int64(0)], [], f=running_total, preserve_cardinality=True
    )
    transformation(kind + "TakeWhileDataset", [], predicate=is_low, count=2)
    transformation(
        kind + "GroupByReducerDataset",
        [],
        [],
        [],
        [],
        typed=NUMBERS,
        key_func=parity,
        init_func=zero,
        reduce_func=offset,
        finalize_func=same,
        count=2,
    )
    transformation(
        kind + "GroupByWindowDataset",
        [],
        [],
        [],
        typed=BATCHES,
        key_func=parity,
        reduce_func=whole_window,
        window_size_func=three,
    )
    window = {} if kind else {"drop_remainder": False}
    transformation(
        kind + "SlidingWindowDataset",
        int64(3),
        int64(2),
        int64(1),
        typed=BATCHES,
        **window,
    )
transformation(
    "AutoShardDataset", int64(2), int64(1), auto_shard_policy=2, num_replicas=0
)
transformation("AssertCardinalityDataset", int64(10), count=10)
transformation("AssertPrevDataset", ['name: "RangeDataset"'])
transformation("BatchDataset", int64(3), typed=BATCHES, **NAMED)
transformation(
    "BatchDatasetV2", int64(3), True, typed=BATCHES, **NAMED, parallel_copy=True
)
transformation(
    "ParallelBatchDataset",
    int64(3),
    int64(1),
    True,
    typed=BATCHES,
    **NAMED,
    parallel_copy=True,
    deterministic="true",
)
transformation("CacheDataset", "", **NAMED)
transformation("CacheDatasetV2", "", lambda run: run.AnonymousMemoryCache()[0], **NAMED)
transformation("ConcatenateDataset", numbers, count=12, **NAMED)
transformation("FilterDataset", [], predicate=is_even, **NAMED)
transformation(
    "ParallelFilterDataset",
    [],
    int64(1),
    predicate=is_even,
    deterministic="true",
    **NAMED,
)
transformation("FinalizeDataset", has_captured_ref=False)
transformation("FlatMapDataset", [], f=three_more, count=5, **NAMED)
transformation(
    "IndexFlatMapDataset",
    [],
    [],
    int64(20),
    map_func=same,
    index_map_func=half,
    count=1,
    **NAMED,
)
transformation(
    "InterleaveDataset", [], int64(2), int64(1), f=three_more, count=5, **NAMED
)
transformation(
    "LegacyParallelInterleaveDatasetV2",
    [],
    int64(2),
    int64(1),
    int64(1),
    int64(1),
    f=three_more,
    deterministic="true",
    **NAMED,
)
transformation(
    "ParallelInterleaveDatasetV2",
    [],
    int64(2),
    int64(1),
    int64(1),
    f=three_more,
    sloppy=False,
    **NAMED,
)
transformation(
    "ParallelInterleaveDatasetV3",
    [],
    int64(2),
    int64(1),
    int64(1),
    f=three_more,
    deterministic="true",
    **NAMED,
)
transformation(
    "ParallelInterleaveDatasetV4",
    [],
    int64(2),
    int64(1),
    int64(1),
    int64(1),
    int64(1),
    f=three_more,
    deterministic="true",
    **NAMED,
)
transformation(
    "MapDataset",
    [int64(4)],
    f=offset,
    use_inter_op_parallelism=False,
    preserve_cardinality=True,
    force_synchronous=True,
    **NAMED,
)
transformation(
    "ParallelMapDataset",
    [int64(4)],
    1,
    f=offset,
    use_inter_op_parallelism=False,
    preserve_cardinality=True,
    **NAMED,
)
transformation(
    "ParallelMapDatasetV2",
    [int64(4)],
    int64(1),
    f=offset,
    deterministic="true",
    use_unbounded_threadpool=True,
    **NAMED,
)
transformation("ModelDataset", algorithm=1, cpu_budget=1, ram_budget=100)
transformation("OptimizeDataset", ["noop_elimination"], optimization_configs=[])
transformation(
    "OptimizeDatasetV2",
    ["noop_elimination"],
    ["map_fusion"],
    [],
    optimization_configs=[],
)
OPTIONS = dataset_options_pb2.Options(deterministic=True).SerializeToString()
CARDINALITY = dataset_options_pb2.CardinalityOptions(
    compute_level="CARDINALITY_COMPUTE_LOW"
).SerializeToString()
transformation("OptionsDataset", serialized_options=OPTIONS, **NAMED)
transformation(
    "PrefetchDataset",
    int64(2),
    slack_period=1,
    legacy_autotune=False,
    buffer_size_min=1,
    **NAMED,
)
transformation("RepeatDataset", int64(2), count=12, **NAMED)
transformation("RewriteDataset", "replicate_on_split")
transformation("SamplingDataset", 0.5, int64(3), int64(4))
transformation("ShardDataset", int64(3), int64(1), require_non_empty=True, **NAMED)
SEED = (int64(3), int64(4))
transformation(
    "ShuffleDataset", int64(5), *SEED, reshuffle_each_iteration=False, **NAMED
)
transformation(
    "ShuffleAndRepeatDataset",
    int64(5),
    *SEED,
    int64(2),
    reshuffle_each_iteration=False,
    count=12,
    **NAMED,
)


def seeds(run: Run) -> tf.Tensor:
    return run.AnonymousSeedGenerator(*SEED, True)[0]


transformation("ShuffleDatasetV2", int64(5), seeds, **NAMED)
transformation(
    "ShuffleDatasetV3", int64(5), *SEED, seeds, reshuffle_each_iteration=False, **NAMED
)
transformation(
    "ShuffleAndRepeatDatasetV2",
    int64(5),
    *SEED,
    int64(2),
    seeds,
    reshuffle_each_iteration=False,
    **NAMED,
)
transformation(
    "GlobalShuffleDataset", *SEED, seeds, reshuffle_each_iteration=False, **NAMED
)
transformation("SkipDataset", int64(4), **NAMED)
transformation("TakeDataset", int64(4), **NAMED)
transformation(
    "ThreadPoolDataset",
    lambda run: run.ThreadPoolHandle(
        num_threads=1,
        max_intra_op_parallelism=1,
        display_name="pool",
        shared_name=run.unique("pool"),
    ),
)
transformation(
    "ExperimentalThreadPoolDataset",
    lambda run: run.ExperimentalThreadPoolHandle(
        num_threads=1,
        max_intra_op_parallelism=1,
        display_name="pool",
        shared_name=run.unique("pool"),
    ),
)
transformation(
    "SetStatsAggregatorDataset",
    lambda run: run.StatsAggregatorHandleV2(shared_name=run.unique("s")),
    "tag",
    "prefix",
)
transformation(
    "ExperimentalSetStatsAggregatorDataset",
    lambda run: run.ExperimentalStatsAggregatorHandle(shared_name=run.unique("s")),
    "tag",
    "prefix",
)


@SAMPLES.program()
def sparse_batches(run):
    batches = run.BatchDatasetV2(numbers(run), int64(3), False, **BATCHES)
    typed = {"output_types": [tf.variant], "output_shapes": [None]}
    for op in ("DenseToSparseBatchDataset", "ExperimentalDenseToSparseBatchDataset"):
        iterator = run.AnonymousIteratorV3(**typed)
        run.MakeIterator(run(op, batches, int64(2), int64([4]), **typed), iterator)
        (element,) = run.IteratorGetNext(iterator, **typed)
        run.DeserializeSparse(element, dtype=tf.int64)


@SAMPLES.program()
def padded_batches(run):
    windows = run.FlatMapDataset(numbers(run), [], f=one_batch, **BATCHES)
    padding = [int64(2), [int64([-1])], [int64(-7)]]
    typed = {"output_shapes": [[None, None]]}
    consume(
        run,
        run.PaddedBatchDataset(windows, *padding, **typed, **NAMED),
        2,
        output_types=[tf.int64],
        **typed,
    )
    padded = run.PaddedBatchDatasetV2(
        windows, *padding, True, parallel_copy=True, **typed, **NAMED
    )
    consume(run, padded, 2, output_types=[tf.int64], **typed)


@SAMPLES.program()
def rebatched(run):
    batches = run.BatchDatasetV2(numbers(run), int64(4), False, **BATCHES)
    for op in ("RebatchDataset", "ExperimentalRebatchDataset"):
        consume(
            run, run(op, batches, int64(2), use_fallback=False, **BATCHES), 3, **BATCHES
        )
    consume(
        run, run.RebatchDatasetV2(batches, int64([2, 1]), True, **BATCHES), 3, **BATCHES
    )
    for op in ("UnbatchDataset", "ExperimentalUnbatchDataset"):
        settings = NAMED if op == "UnbatchDataset" else {}
        consume(run, run(op, batches, **NUMBERS, **settings), 3, **NUMBERS)
    run.ComputeBatchSize(batches)


@SAMPLES.program()
def windows(run):
    nested = run.WindowDataset(
        numbers(run), int64(3), int64(2), int64(1), True, **NESTED, **NAMED
    )
    iterator = run.AnonymousIteratorV3(**NESTED)
    run.MakeIterator(nested, iterator)
    (window,) = run.IteratorGetNext(iterator, **NESTED)
    consume(run, window, 3, **NUMBERS)
    # Of constants, it would be folded into one that no graph can hold.
    elements = [run.DatasetCardinality(window), run.DatasetCardinality(nested)]
    consume(run, run.WindowOp(elements, **NUMBERS), 2, **NUMBERS)


@SAMPLES.program()
def several_datasets(run):
    first, second = numbers(run), run.RangeDataset(
        int64(20), int64(30), int64(2), **NUMBERS
    )
    pair = {"output_types": [tf.int64, tf.int64], "output_shapes": [[], []]}
    consume(run, run.ZipDataset([first, second], **pair, **NAMED), 3, **pair)
    selector = run.RangeDataset(int64(0), int64(2), int64(1), **NUMBERS)
    settings = {"stop_on_empty_dataset": True}
    consume(
        run,
        run.DirectedInterleaveDataset(selector, [first, second], **NUMBERS, **settings),
        2,
        **NUMBERS,
    )
    consume(
        run,
        run.ExperimentalDirectedInterleaveDataset(selector, [first, second], **NUMBERS),
        2,
        **NUMBERS,
    )
    for op in ("ChooseFastestDataset", "ExperimentalChooseFastestDataset"):
        consume(
            run, run(op, [first, first], num_experiments=1, **NUMBERS), 3, **NUMBERS
        )
    consume(
        run,
        run.WeightedFlatMapDataset([first, second], [0.5, 0.5], **NUMBERS, **NAMED),
        1,
        **NUMBERS,
    )


transformation(
    "ChooseFastestBranchDataset",
    int64(1),
    int64(1),
    [int64(2)],
    num_elements_per_branch=1,
    branches=[take_some, take_some],
    other_arguments_lengths=[1, 0],
)


@SAMPLES.program()
def sources(run):
    pairs = {"output_types": [tf.float32, tf.string], "output_shapes": [[2], []]}
    shapes = {"output_shapes": pairs["output_shapes"]}
    consume(run, run.TensorDataset([real(2), "a"], **shapes, **NAMED), 1, **pairs)
    sliced = run.TensorSliceDataset(
        [real(3, 2), list("abc")],
        **shapes,
        **NAMED,
        is_files=True,
        replicate_on_split=True,
    )
    consume(run, sliced, 3, **pairs)
    consume(
        run, run.ListDataset([int64(1), int64(2)], **NUMBERS, **NAMED), 2, **NUMBERS
    )
    sparse = run.SparseTensorSliceDataset(
        int64([[0, 1], [1, 0]]), real(2), int64([2, 2])
    )
    parts = {
        "output_types": [tf.int64, tf.float32, tf.int64],
        "output_shapes": [[None, 1], [None], [1]],
    }
    consume(run, sparse, 2, **parts)
    consume(run, run.RandomDataset(*SEED, **NUMBERS, **NAMED), 3, **NUMBERS)
    consume(
        run,
        run.RandomDatasetV2(
            *SEED, seeds(run), rerandomize_each_iteration=False, **NUMBERS, **NAMED
        ),
        3,
        **NUMBERS,
    )
    generated = run.GeneratorDataset(
        [int64(5)],
        [],
        [],
        init_func=same,
        next_func=same,
        finalize_func=same,
        **NUMBERS,
        **NAMED,
    )
    consume(run, generated, 2, **NUMBERS)


@SAMPLES.program()
def file_sources(run):
    lines, records, table = (
        run.directory / name for name in ("lines", "records", "table")
    )
    lines.write_text("abc\ndef\nghi\n")
    table.write_text("a,b,c\n1,x,0.5\n2,,1.5\n")
    with tf.io.TFRecordWriter(str(records)) as writer:
        for record in (b"one", b"two", b"three"):
            writer.write(record)
    uncompressed = ("", int64(100))
    consume(run, run.TextLineDataset([str(lines)], *uncompressed, **NAMED), 3, **WORDS)
    consume(
        run, run.TFRecordDataset([str(records)], *uncompressed, **NAMED), 3, **WORDS
    )
    consume(
        run,
        run.TFRecordDatasetV2([str(records)], *uncompressed, int64([0]), **NAMED),
        3,
        **WORDS,
    )
    consume(
        run,
        run.FixedLengthRecordDataset(
            [str(lines)], int64(0), int64(4), int64(0), int64(100), **NAMED
        ),
        3,
        **WORDS,
    )
    consume(
        run,
        run.FixedLengthRecordDatasetV2(
            [str(lines)], int64(0), int64(4), int64(0), int64(100), "", **NAMED
        ),
        3,
        **WORDS,
    )
    columns = {"output_types": [tf.int32, tf.float32], "output_shapes": [[], []]}
    parsing = [True, ",", True, "", int64([0, 2]), [np.int32([]), np.float32([7])]]
    shapes = {"output_shapes": columns["output_shapes"]}
    for op in ("CSVDataset", "ExperimentalCSVDataset"):
        consume(
            run, run(op, [str(table)], *uncompressed, *parsing, **shapes), 2, **columns
        )
    parsing[4] = int64([])
    consume(
        run,
        run.CSVDatasetV2([str(table)], *uncompressed, *parsing, int64([1]), **shapes),
        2,
        **columns,
    )
    for op in ("MatchingFilesDataset", "ExperimentalMatchingFilesDataset"):
        consume(run, run(op, [str(run.directory / "*e*")]), 2, **WORDS)


@SAMPLES.program()
def databases(run):
    path = run.directory / "database"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("create table t (n integer, w text)")
        database.execute("insert into t values (1, 'a'), (2, 'b')")
    rows = {"output_types": [tf.int64, tf.string], "output_shapes": [[], []]}
    for op in ("SqlDataset", "ExperimentalSqlDataset"):
        consume(
            run,
            run(op, "sqlite", str(path), "select n, w from t order by n", **rows),
            2,
            **rows,
        )


@SAMPLES.program()
def saved_datasets(run):
    path = str(run.directory / "saved")
    saving = {"compression": "GZIP", "shard_func": zero, "use_shard_func": True}
    run.SaveDataset(numbers(run), path, [], **saving)
    loaded = run.LoadDataset(
        path, [], reader_func=flat_readers, compression="GZIP", **NUMBERS
    )
    consume(run, loaded, 3, **NUMBERS)
    again = run.SaveDatasetV2(numbers(run), path + "2", [], **saving, **NUMBERS)
    consume(run, again, 3, **NUMBERS)
    records = str(run.directory / "records")
    words = run.TensorSliceDataset([list("abc")], output_shapes=[[]])
    for op in ("DatasetToTFRecord", "ExperimentalDatasetToTFRecord"):
        run(op, words, records, "")
        consume(run, run.TFRecordDataset([records], "", int64(100)), 3, **WORDS)


@SAMPLES.program()
def snapshots(run):
    settings = {
        "compression": "",
        "reader_path_prefix": "",
        "writer_path_prefix": "",
        "num_reader_threads": 1,
        "num_writer_threads": 1,
        "mode": "passthrough",
        "snapshot_name": "s",
        "seed": 3,
        "seed2": 4,
    }
    first = run.SnapshotDataset(
        numbers(run), str(run.directory / "1"), **NUMBERS, **settings
    )
    consume(run, first, 3, **NUMBERS)
    second = run.SnapshotDatasetV2(
        numbers(run),
        str(run.directory / "2"),
        [],
        [],
        **NUMBERS,
        **NAMED,
        compression="",
        reader_func=flat_readers,
        shard_func=zero,
    )
    consume(run, second, 3, **NUMBERS)
    chunks = run.directory / "3"
    chunks.mkdir()
    consume(run, run.ListSnapshotChunksDataset(str(chunks), **WORDS), 0, **WORDS)


# What can be asked of a dataset.
@SAMPLES.program()
def facts_about_datasets(run):
    dataset = run.OptionsDataset(numbers(run), serialized_options=OPTIONS, **NUMBERS)
    run.DatasetCardinality(dataset, cardinality_options=CARDINALITY)
    run.ExperimentalDatasetCardinality(dataset)
    run.DatasetFingerprint(numbers(run))
    run.GetOptions(dataset)
    run.GetElementAtIndex(dataset, int64(2), **NUMBERS)
    run.DatasetToSingleElement(
        run.TakeDataset(dataset, int64(1), **NUMBERS), **NUMBERS, **NAMED
    )
    run.ReduceDataset(
        dataset,
        [int64(0)],
        [],
        f=offset,
        **NUMBERS,
        **NAMED,
        use_inter_op_parallelism=False,
    )
    wrapped = run.WrapDatasetVariant(dataset)
    consume(run, run.UnwrapDatasetVariant(wrapped), 2, **NUMBERS)


@SAMPLES.program()
def datasets_as_graphs(run):
    # The graph's nodes are numbered on from run to run; the dataset is what matters.
    for graph in (
        run.opaque.DatasetToGraph(
            numbers(run), allow_stateful=True, strip_device_assignment=True
        ),
        run.opaque.DatasetToGraphV2(
            numbers(run), external_state_policy=1, strip_device_assignment=True
        ),
    ):
        consume(run, run.DatasetFromGraph(graph), 3, **NUMBERS)


# Iterators.
@SAMPLES.program()
def iterators(run):
    for op in ("Iterator", "IteratorV2"):
        iterator = run(
            op, shared_name=run.unique("iterator"), container="shelf", **NUMBERS
        )
        run.MakeIterator(numbers(run), iterator)
        run.IteratorGetNextSync(iterator, **NUMBERS)
        handle = run.opaque.IteratorToStringHandle(iterator)
        again = run(
            "IteratorFromStringHandle" + op.removeprefix("Iterator"), handle, **NUMBERS
        )
        run.IteratorGetNext(again, **NUMBERS)
        some = run.IteratorGetNextAsOptional(again, **NUMBERS)
        run.OptionalGetValue(some, **NUMBERS)
        run.IteratorGetDevice(iterator)
        run.ExperimentalIteratorGetDevice(iterator)
        state = run.SerializeIterator(iterator, external_state_policy=1)
        run.IteratorGetNext(iterator, **NUMBERS)
        run.DeserializeIterator(iterator, state)
        run.IteratorGetNext(iterator, **NUMBERS)


@SAMPLES.program()
def anonymous_iterators(run):
    run.AnonymousIterator(**NUMBERS)
    iterator, deleter = run.AnonymousIteratorV2(**NUMBERS)
    run.MakeIterator(numbers(run), iterator)
    run.IteratorGetNext(iterator, **NUMBERS)
    run.DeleteIterator(iterator, deleter)
    several, deleter = run.AnonymousMultiDeviceIterator(devices=["/cpu:0"], **NUMBERS)
    run.DeleteMultiDeviceIterator(several, [], deleter)


@SAMPLES.program()
def modelled_iterator(run):
    iterator = run.AnonymousIteratorV3(**NUMBERS)
    prefetched = run.PrefetchDataset(numbers(run), int64(1), **NUMBERS)
    run.MakeIterator(run.ModelDataset(prefetched, **NUMBERS), iterator)
    run.IteratorGetNext(iterator, **NUMBERS)
    run.opaque.IteratorGetModelProto(iterator)


@SAMPLES.program()
def one_shot_iterator(run):
    iterator = run.OneShotIterator(dataset_factory=factory, container="", **NUMBERS)
    run.IteratorGetNext(iterator, **NUMBERS)


@SAMPLES.program()
def multi_device_iterators(run):
    devices = {"devices": ["/cpu:0"], **NUMBERS}
    for iterator in (
        run.MultiDeviceIterator(
            shared_name=run.unique("iterator"), container="shelf", **devices
        ),
        run.AnonymousMultiDeviceIterator(**devices)[0],
        run.AnonymousMultiDeviceIteratorV3(**devices),
    ):
        incarnation = run.MultiDeviceIteratorInit(numbers(run), iterator, int64(1))
        run.MultiDeviceIteratorGetNextFromShard(iterator, 0, incarnation, **NUMBERS)


@SAMPLES.program()
def multi_device_iterator_by_name(run):
    iterator = run.MultiDeviceIterator(
        devices=["/cpu:0"], shared_name=run.unique("iterator"), container="", **NUMBERS
    )
    handle = run.opaque.MultiDeviceIteratorToStringHandle(iterator)
    again = run.MultiDeviceIteratorFromStringHandle(handle, **NUMBERS)
    incarnation = run.MultiDeviceIteratorInit(numbers(run), again, int64(1))
    run.MultiDeviceIteratorGetNextFromShard(again, 0, incarnation, **NUMBERS)


@SAMPLES.program()
def table_from_dataset(run):
    table = run.AnonymousHashTable(key_dtype=tf.string, value_dtype=tf.int64)
    pairs = run.TensorSliceDataset([["a", "b"], int64([1, 2])], output_shapes=[[], []])
    run.InitializeTableFromDataset(table, pairs)
    run.LookupTableFindV2(table, ["b"], int64(-1))


@SAMPLES.program()
def parsed_examples(run):
    examples = run.TensorDataset([[EXAMPLE, EXAMPLE]], output_shapes=[[2]])
    dense = {
        "dense_keys": ["age"],
        "dense_shapes": [[1]],
        "sparse_keys": [],
        "sparse_types": [],
    }
    typed = {"output_types": [tf.int64], "output_shapes": [[2, 1]]}
    for op in (
        "ParseExampleDataset",
        "ParseExampleDatasetV2",
        "ExperimentalParseExampleDataset",
    ):
        consume(
            run,
            run(op, examples, int64(1), [int64([-1])], **dense, **typed),
            1,
            **typed,
        )


@SAMPLES.program()
def statistics(run):
    writer = run.SummaryWriter(shared_name=run.unique("writer"))
    run.CreateSummaryFileWriter(writer, str(run.directory), 10, 100, ".events")
    aggregator = run.StatsAggregatorHandleV2(shared_name=run.unique("stats"))
    run.StatsAggregatorSetSummaryWriter(aggregator, writer)
    for kind in ("", "Experimental"):
        named = {"container": "shelf", "shared_name": run.unique("stats")}
        handle = run(kind + "StatsAggregatorHandle", **named)
        run.opaque(kind + "StatsAggregatorSummary", handle)
