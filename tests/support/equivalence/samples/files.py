"""Files, readers, checkpoints and summary writers."""

import numpy as np
import tensorflow as tf

from support.equivalence.modes import FUNCTION, GRAPH, Run
from support.equivalence.samples.kit import Samples, positive, real

SAMPLES = Samples()

# Eager mode takes no attr that is a tensor.
NOT_EAGER = (GRAPH, FUNCTION)
IN_GRAPH = {"modes": (GRAPH,)}
IN_OLD_GRAPH = {"modes": (GRAPH,), "old": True}


@SAMPLES.program()
def files(run):
    path = str(run.directory / "words")
    run.WriteFile(path, "some words")
    run.ReadFile(path)
    run.MatchingFiles(str(run.directory / "w*"))


# Readers.
def use_reader(run: Run, reader: tf.Tensor, files: list[str], v: str = "") -> None:
    """Reads from a queue of file names; `v` is the ending of its version's ops."""
    queue = run(
        "FIFOQueue" + v,
        component_types=[tf.string],
        shapes=[[]],
        shared_name=run.unique("q"),
    )
    run("QueueEnqueueMany" + v, queue, [files])
    run("QueueClose" + v, queue)
    run("ReaderRead" + v, reader, queue)
    run("ReaderNumRecordsProduced" + v, reader)
    run("ReaderNumWorkUnitsCompleted" + v, reader)
    run("ReaderReadUpTo" + v, reader, queue, np.int64(2))
    run("ReaderReset" + v, reader)


def write_records(run: Run) -> tuple[list[str], list[str]]:
    with tf.io.TFRecordWriter(str(run.directory / "records")) as writer:
        for record in (b"one", b"two", b"three"):
            writer.write(record)
    (run.directory / "lines").write_text("header\nabc\ndef\nghi\n")
    return [str(run.directory / "records")], [str(run.directory / "lines")]


@SAMPLES.program()
def resource_readers(run):
    records, lines = write_records(run)
    text = run.TextLineReaderV2(skip_header_lines=1, shared_name=run.unique("text"))
    use_reader(run, text, lines, "V2")
    reader = run.TFRecordReaderV2(compression_type="", shared_name=run.unique("reader"))
    use_reader(run, reader, records, "V2")
    fixed = run.FixedLengthRecordReaderV2(
        header_bytes=7,
        record_bytes=4,
        footer_bytes=0,
        hop_bytes=4,
        container="shelf",
        shared_name=run.unique("fixed"),
        encoding="",
    )
    use_reader(run, fixed, lines, "V2")
    whole = run.WholeFileReaderV2(shared_name=run.unique("whole"))
    use_reader(run, whole, lines * 3, "V2")
    identity = run.IdentityReaderV2(shared_name=run.unique("identity"))
    use_reader(run, identity, ["a", "b", "c"], "V2")
    run.ReaderRestoreStateV2(identity, run.ReaderSerializeStateV2(identity))


@SAMPLES.program(**IN_GRAPH)
def reference_readers(run):
    _, lines = write_records(run)
    use_reader(run, run.WholeFileReader(), lines * 3)


@SAMPLES.program(**IN_OLD_GRAPH)
def removed_readers(run):
    records, lines = write_records(run)
    use_reader(run, run.TextLineReader(skip_header_lines=1), lines)
    use_reader(run, run.TFRecordReader(), records)
    identity = run.IdentityReader()
    use_reader(run, identity, ["a", "b", "c"])
    run.ReaderRestoreState(identity, run.ReaderSerializeState(identity))


@SAMPLES.program()
def record_input(run):
    write_records(run)
    run.RecordInput(
        file_pattern=str(run.directory / "records"),
        file_random_seed=3,
        file_shuffle_shift_ratio=0.5,
        file_buffer_size=1,
        file_parallelism=1,
        batch_size=3,
        compression_type="",
    )


# Checkpoints.
@SAMPLES.program()
def checkpoints(run):
    first, second = (str(run.directory / name) for name in ("first", "second"))
    names, slices = ["a", "b"], ["", "2 0,1"]
    run.SaveV2(first, names[:1], [""], [real(2, 3)])
    run.SaveV2(second, names[1:], [""], [np.arange(2)])
    merged = str(run.directory / "merged")
    run.MergeV2Checkpoints(
        [first, second], merged, delete_old_dirs=False, allow_missing_files=True
    )
    run.RestoreV2(merged, names, slices, dtypes=[tf.float32, tf.int64])


@SAMPLES.program()
def old_checkpoints(run):
    path = str(run.directory / "tensors")
    run.Save(path, ["a", "b"], [real(2, 3), np.arange(2)])
    run.Restore(path, "a", dt=tf.float32, preferred_shard=0)
    path = str(run.directory / "slices")
    run.SaveSlices(path, ["c"], ["4 3 0,2:-"], [real(2, 3)])
    run.RestoreSlice(path, "c", "4 3 0,1:-", dt=tf.float32, preferred_shard=0)


@SAMPLES.program()
def remapping(run):
    old, new = run.directory / "old", run.directory / "new"
    old.write_text("a\nb\nc\n")
    new.write_text("c\nd\na\n")
    run.GenerateVocabRemapping(
        str(new), str(old), new_vocab_offset=0, num_new_vocab=3, old_vocab_size=3
    )
    path = str(run.directory / "checkpoint")
    run.SaveV2(path, ["m"], [""], [real(3, 2)])
    run.LoadAndRemapMatrix(
        path,
        "m",
        np.int64([2, -1, 0]),
        np.int64([1, 0]),
        np.float32([7, 8]),
        num_rows=3,
        num_cols=2,
        max_rows_in_memory=1,
    )


# Summaries.
TAG, STEP = "tag", np.int64(5)
COLOUR = np.uint8([255, 0, 0, 255])
SAMPLES.add("ImageSummary", TAG, positive(1, 4, 4, 1), max_images=1, modes=NOT_EAGER)


@SAMPLES.program()
def summary_file(run):
    # The events hold the time, so they are only seen to be written.
    writer = run.SummaryWriter(shared_name=run.unique("writer"))
    run.CreateSummaryFileWriter(writer, str(run.directory), 10, 100, ".events")
    run.WriteScalarSummary(writer, STEP, TAG, np.float32(1.5))
    run.WriteHistogramSummary(writer, STEP, TAG, real(5))
    run.WriteImageSummary(writer, STEP, TAG, positive(1, 4, 4, 1), COLOUR, max_images=1)
    run.WriteAudioSummary(writer, STEP, TAG, real(1, 20), 8000.0, max_outputs=1)
    run.WriteSummary(writer, STEP, real(2), TAG, b"")
    run.WriteRawProtoSummary(writer, STEP, tf.compat.v1.Summary().SerializeToString())
    run.WriteGraphSummary(writer, STEP, tf.compat.v1.GraphDef().SerializeToString())
    run.ImportEvent(writer, tf.compat.v1.Event(wall_time=1, step=5).SerializeToString())
    run.FlushSummaryWriter(writer)
    run.CloseSummaryWriter(writer)


@SAMPLES.program()
def summary_database(run):
    writer = run.SummaryWriter(shared_name=run.unique("writer"))
    run.CreateSummaryDbWriter(writer, str(run.directory / "database"), "e", "r", "u")
    run.CloseSummaryWriter(writer)


@SAMPLES.program()
def mapped_file(run):
    path = run.directory / "region"
    path.write_bytes(real(2).tobytes())
    run.ImmutableConst(dtype=tf.float32, shape=[2], memory_region_name=str(path))


@SAMPLES.program(**IN_OLD_GRAPH)
def word_pairs(run):
    path = run.directory / "words"
    path.write_text("a b a b a b c " * 20)
    run.opaque.Skipgram(
        filename=str(path), batch_size=2, window_size=1, min_count=1, subsample=0.0
    )


@SAMPLES.program()
def dumped_tensor(run):
    run.DumpTensor(
        real(2),
        log_dir_path=str(run.directory),
        file_name="tensor",
        enabled=True,
        func_name="f",
        node_name="n",
    )


@SAMPLES.program()
def calibration(run):
    run.CustomAggregator(
        real(2, 3),
        id="a",
        calibration_method=5,
        num_bins=4,
        min_percentile=0.1,
        max_percentile=99.9,
    )
    run.CustomAggregator(real(2, 3), id="a", calibration_method=1)
    statistics = [np.float32(-1), np.float32(1), np.int64([1, 2])]
    run.CalibrationStatisticsSaver(
        statistics,
        ids=["a"],
        calibration_methods=[1],
        output_file_path=str(run.directory / "statistics"),
    )
