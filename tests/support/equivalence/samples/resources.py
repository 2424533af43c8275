"""Queues, tables, stacks, stages, accumulators and other state behind a handle."""

import numpy as np
import tensorflow as tf

from support.equivalence.modes import GRAPH
from support.equivalence.samples.kit import Samples, real

SAMPLES = Samples()

IN_GRAPH = {"modes": (GRAPH,)}
PAIR = {"component_types": [tf.float32, tf.string]}
PAIRS = {**PAIR, "shapes": [[2], []]}


def use_queue(run, queue, v=""):
    """Fills, empties and closes a queue; `v` is the ending of its version's ops."""
    run("QueueEnqueue" + v, queue, [real(2), "a"], timeout_ms=-1)
    run("QueueEnqueueMany" + v, queue, [real(5, 2), list("bcdef")])
    run("QueueSize" + v, queue)
    run("QueueDequeue" + v, queue, **PAIR, timeout_ms=-1)
    run("QueueDequeueMany" + v, queue, 2, **PAIR)
    run("QueueClose" + v, queue, cancel_pending_enqueues=False)
    run("QueueIsClosed" + v, queue)
    run("QueueDequeueUpTo" + v, queue, 9, **PAIR)


def queues(run, v=""):
    named = {"capacity": 10, "container": "shelf"}
    use_queue(
        run, run("FIFOQueue" + v, **PAIRS, **named, shared_name=run.unique("q")), v
    )
    use_queue(
        run,
        run("PaddingFIFOQueue" + v, **PAIRS, **named, shared_name=run.unique("q")),
        v,
    )
    shuffled = {**PAIRS, **named, "min_after_dequeue": 1, "seed": 3, "seed2": 4}
    use_queue(
        run, run("RandomShuffleQueue" + v, **shuffled, shared_name=run.unique("q")), v
    )
    queue = run(
        "PriorityQueue" + v,
        component_types=[tf.string],
        shapes=[[]],
        shared_name=run.unique("q"),
    )
    run("QueueEnqueueMany" + v, queue, [np.int64([2, 1]), ["late", "early"]])
    run("QueueDequeue" + v, queue, component_types=[tf.int64, tf.string])


@SAMPLES.program()
def resource_queues(run):
    queues(run, "V2")


@SAMPLES.program(**IN_GRAPH)
def reference_queues(run):
    queues(run)


@SAMPLES.program(**IN_GRAPH)
def fake_queue(run):
    queue = run.FIFOQueueV2(component_types=[tf.float32])
    fake = run.FakeQueue(queue)
    run.QueueSize(fake)


@SAMPLES.program(**IN_GRAPH)
def barrier(run):
    handle = run.Barrier(
        component_types=[tf.float32, tf.int32], shapes=[[], []], capacity=-1
    )
    run.BarrierInsertMany(handle, ["a", "b"], real(2), component_index=0)
    run.BarrierInsertMany(handle, ["b"], [7], component_index=1)
    run.BarrierReadySize(handle)
    run.BarrierIncompleteSize(handle)
    run.BarrierTakeMany(
        handle,
        1,
        component_types=[tf.float32, tf.int32],
        allow_small_batch=True,
        wait_for_incomplete=True,
    )
    run.BarrierClose(handle, cancel_pending_enqueues=True)


# Tables.
KEYS, VALUES = np.array(["a", "b"]), np.int64([1, 2])
TYPES = {"key_dtype": tf.string, "value_dtype": tf.int64}
DENSE = {
    "value_dtype": tf.int64,
    "value_shape": [],
    "initial_num_buckets": 8,
    "max_load_factor": 0.5,
}


def use_table(run, table, v="V2"):
    run("LookupTableInsert" + v, table, KEYS, VALUES)
    read_table(run, table, v)


def reuse_table(run, table, v="V2"):
    use_table(run, table, v)
    # A dense table of scalars would end the process here.
    run("LookupTableImport" + v, table, KEYS[:1], VALUES[1:])
    run("LookupTableExport" + v, table, Tkeys=tf.string, Tvalues=tf.int64)


def read_table(run, table, v="V2"):
    run("LookupTableFind" + v, table, ["b", "c"], np.int64(-1))
    run("LookupTableSize" + v, table)
    run.opaque("LookupTableExport" + v, table, Tkeys=tf.string, Tvalues=tf.int64)


def named(run):
    return {
        "container": "shelf",
        "shared_name": run.unique("table"),
        "use_node_name_sharing": True,
    }


def tables(run, v=""):
    run(
        "InitializeTable" + v,
        table := run("HashTable" + v, **TYPES, **named(run)),
        KEYS,
        VALUES,
    )
    read_table(run, table, v)
    reuse_table(run, run("MutableHashTable" + v, **TYPES, **named(run)), v)
    vectors = run(
        "MutableHashTableOfTensors" + v, **TYPES, value_shape=[2], **named(run)
    )
    run("LookupTableInsert" + v, vectors, KEYS, np.int64([[1, 2], [3, 4]]))
    run("LookupTableFind" + v, vectors, ["b"], np.int64([0, 0]))
    path = run.directory / "vocabulary"
    path.write_text("a:10\nb:20\n")
    lines = run("HashTable" + v, **TYPES, **named(run))
    run(
        "InitializeTableFromTextFile" + v,
        lines,
        str(path),
        key_index=0,
        value_index=1,
        vocab_size=2,
        delimiter=":",
        offset=0,
    )
    run("LookupTableFind" + v, lines, ["b", "c"], np.int64(-1))


@SAMPLES.program()
def resource_tables(run):
    tables(run, "V2")
    table = run.MutableDenseHashTableV2("", "-", **DENSE, **named(run))
    use_table(run, table)
    run.LookupTableRemoveV2(table, KEYS[:1])
    run.LookupTableSizeV2(table)


@SAMPLES.program(**IN_GRAPH)
def reference_tables(run):
    tables(run)


@SAMPLES.program()
def anonymous_tables(run):
    run.InitializeTableV2(table := run.AnonymousHashTable(**TYPES), KEYS, VALUES)
    read_table(run, table)
    reuse_table(run, run.AnonymousMutableHashTable(**TYPES))
    vectors = run.AnonymousMutableHashTableOfTensors(**TYPES, value_shape=[2])
    run.LookupTableInsertV2(vectors, KEYS, np.int64([[1, 2], [3, 4]]))
    run.LookupTableFindV2(vectors, ["b"], np.int64([0, 0]))
    use_table(run, run.AnonymousMutableDenseHashTable("", "-", **DENSE))


# Stacks and stages.
@SAMPLES.program()
def stack(run):
    stack = run.StackV2(5, elem_type=tf.float32, stack_name=run.unique("stack"))
    run.StackPushV2(stack, real(2), swap_memory=True)
    run.StackPushV2(stack, real(3))
    run.StackPopV2(stack, elem_type=tf.float32)
    run.StackCloseV2(stack)


@SAMPLES.program(**IN_GRAPH)
def reference_stack(run):
    stack = run.Stack(elem_type=tf.float32, stack_name="stack")
    run.StackPush(stack, real(2), swap_memory=True)
    run.StackPop(stack, elem_type=tf.float32)
    run.StackClose(stack)


@SAMPLES.program()
def stage(run):
    area = {
        "capacity": 4,
        "memory_limit": 1000,
        "container": "shelf",
        "shared_name": run.unique("stage"),
    }
    typed = {**area, "dtypes": [tf.float32, tf.string]}
    run.Stage([real(2), "a"], **area)
    run.Stage([real(3), "b"], **area)
    run.StageSize(**typed)
    run.StagePeek(0, **typed)
    run.Unstage(**typed)
    run.StageClear(**typed)
    run.StageSize(**typed)


@SAMPLES.program()
def stage_maps(run):
    for kind in ("Map", "OrderedMap"):
        area = {
            "capacity": 4,
            "memory_limit": 1000,
            "container": "shelf",
            "shared_name": run.unique("stage"),
            "dtypes": [tf.float32, tf.string],
        }
        for key in (3, 1, 2):
            run(kind + "Stage", np.int64(key), [0, 1], [real(2) + key, "a"], **area)
        run(kind + "Stage", np.int64(9), [0], [real(2)], **area)
        run(kind + "Size", **area)
        run(kind + "IncompleteSize", **area)
        run(kind + "Peek", np.int64(1), [0, 1], **area)
        run(kind + "Unstage", np.int64(2), [0, 1], **area)
        if kind == "OrderedMap":
            run(kind + "UnstageNoKey", [0, 1], **area)
        run(kind + "Clear", **area)
        run(kind + "Size", **area)


@SAMPLES.program()
def map_unstage_without_key(run):
    area = {"shared_name": run.unique("stage"), "dtypes": [tf.float32]}
    run.MapStage(np.int64(1), [0], [real(2)], **area)
    run.MapUnstageNoKey([0], **area)


# Accumulators.
ACCUMULATOR = {"dtype": tf.float32, "shape": [2], "reduction_type": "SUM"}


def accumulate(run, accumulator, v=""):
    run(v + "AccumulatorSetGlobalStep", accumulator, np.int64(1))
    for k in (1, 2, 3):
        run(
            v + "AccumulatorApplyGradient",
            accumulator,
            np.int64(k - 1),
            np.float32([k, 1]),
        )
    run(v + "AccumulatorNumAccumulated", accumulator)
    run(v + "AccumulatorTakeGradient", accumulator, 2, dtype=tf.float32)


@SAMPLES.program()
def resource_accumulator(run):
    accumulate(
        run,
        run.ResourceConditionalAccumulator(
            **ACCUMULATOR, shared_name=run.unique("sum")
        ),
        "Resource",
    )
    mean = {**ACCUMULATOR, "reduction_type": "MEAN"}
    accumulate(
        run,
        run.ResourceConditionalAccumulator(**mean, shared_name=run.unique("mean")),
        "Resource",
    )


@SAMPLES.program(**IN_GRAPH)
def accumulator(run):
    accumulate(run, run.ConditionalAccumulator(**ACCUMULATOR))


@SAMPLES.program(**IN_GRAPH)
def sparse_accumulator(run):
    accumulator = run.SparseConditionalAccumulator(
        dtype=tf.float32, shape=[3, 2], reduction_type="SUM"
    )
    run.SparseAccumulatorApplyGradient(
        accumulator,
        np.int64(0),
        np.int64([0, 2]),
        real(2, 2),
        np.int64([3, 2]),
        has_known_shape=True,
    )
    run.SparseAccumulatorApplyGradient(
        accumulator,
        np.int64(0),
        np.int64([1]),
        real(1, 2),
        np.int64([3, 2]),
        has_known_shape=True,
    )
    run.SparseAccumulatorTakeGradient(accumulator, 2, dtype=tf.float32)


# Others.
@SAMPLES.program()
def mutex(run):
    lock = run.MutexLock(
        run.MutexV2(container="shelf", shared_name=run.unique("mutex"))
    )
    run.ConsumeMutexLock(lock)


@SAMPLES.program()
def dummies(run):
    run.DummyMemoryCache()
    run.DummySeedGenerator()
    run.DummyIterationCounter()


@SAMPLES.program(**IN_GRAPH)
def session_tensors(run):
    run.opaque.GetSessionHandle(real(2))
    run.GetSessionHandleV2(real(2))


@SAMPLES.program()
def batched(run):
    batch = {
        "num_batch_threads": 1,
        "max_batch_size": 2,
        "batch_timeout_micros": 1,
        "grad_timeout_micros": 1000,
        "max_enqueued_batches": 3,
        "allowed_batch_sizes": [2],
        "container": "shelf",
        "shared_name": run.unique("batch"),
    }
    (values,), index, number = run.opaque.Batch([real(2, 3)], **batch)
    run.Unbatch(
        values,
        index,
        number,
        timeout_micros=100_000,
        container="shelf",
        shared_name=run.unique("unbatch"),
    )
    original = real(2, 3)
    run.UnbatchGrad(
        original,
        index,
        original,
        number,
        container="shelf",
        shared_name=run.unique("unbatch"),
    )
