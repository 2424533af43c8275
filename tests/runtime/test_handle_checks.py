"""Conditions on what handles stand for: eagerly, and in graphs that take them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import OpInputError
from opwright_runtime._binding import handles, resources, threads, variants
from support.processes import run_code

INT, FLOAT = tf.int64, tf.float32
# What checks say in eager calls, and in graphs when they run.
REFUSALS = (OpInputError, tf.errors.InvalidArgumentError)


def eagerly(call: Callable[..., Any], *given: tf.Tensor) -> None:
    call(*given)


def in_graph(call: Callable[..., Any], *given: tf.Tensor) -> None:
    """Makes a call whose arguments the graph does not know before it runs."""

    def traced(*inputs: tf.Tensor) -> tf.Tensor:
        with opwright.checked():
            call(*inputs)
        return tf.constant(0)

    tf.function(traced, autograph=False)(*given)


WAYS = pytest.mark.parametrize("way", [eagerly, in_graph])


def dense_table(key: Any = 0, value_shape: Any = ()) -> tf.Tensor:
    return tf.raw_ops.AnonymousMutableDenseHashTable(
        empty_key=tf.constant(key, INT),
        deleted_key=tf.constant(key, INT) - 1,
        value_dtype=FLOAT,
        value_shape=value_shape,
    )


def hash_table() -> tf.Tensor:
    return tf.raw_ops.AnonymousMutableHashTable(key_dtype=INT, value_dtype=FLOAT)


@pytest.mark.parametrize(
    ("key", "value_shape", "keys", "values", "is_taken"),
    [
        (0, [], [4, 1], [4, 1], True),
        (0, [], [1], [1], False),
        (0, [2], [2], [2], False),
        (0, [], [0, 1], [0, 1], False),
        (0, [], [4, 3], [4, 1], False),
        (0, [], [2, 2, 1], [2, 2, 1], False),
        ([0, 0, 0], [2], [4, 3], [4, 2], True),
        ([0, 0, 0], [2], [4, 1], [4, 2], False),
    ],
)
def test_dense_table_imports_matrices(
    key: Any, value_shape: Any, keys: Any, values: Any, is_taken: bool
) -> None:
    table = dense_table(key, value_shape)
    given = tf.ones(keys, INT), tf.ones(values)
    assert resources.are_importable(table, *given) == is_taken
    if is_taken:
        opwright.lookup.lookup_table_import_v2(table, *given)
        exported = tf.raw_ops.LookupTableExportV2(
            table_handle=table, Tkeys=INT, Tvalues=FLOAT
        )
        np.testing.assert_array_equal(exported.keys, given[0])
        return
    with pytest.raises(OpInputError, match="is a dense table"):
        opwright.lookup.lookup_table_import_v2(table, *given)


@WAYS
def test_vector_of_keys_is_for_tables_that_are_not_dense(way: Any) -> None:
    def fill(table: tf.Tensor) -> None:
        opwright.lookup.lookup_table_import_v2(table, tf.ones([1], INT), tf.ones([1]))

    table = hash_table()
    way(fill, table)
    assert tf.raw_ops.LookupTableSizeV2(table_handle=table).numpy() == 1
    with pytest.raises(REFUSALS, match=r"dense table|importable"):
        way(fill, dense_table())


def test_graph_knows_which_of_its_tables_are_dense() -> None:
    with tf.Graph().as_default():
        keys, values = tf.ones([3], INT), tf.ones([3])
        matrix = tf.ones([3, 1], INT)
        dense = dense_table()
        other = hash_table()
        unknown = tf.compat.v1.placeholder(INT)
        assert handles.is_importable(dense, keys, values) is False
        assert handles.is_importable(dense, matrix, values) is True
        assert handles.is_importable(dense, unknown, values) is None
        assert handles.is_importable(other, keys, values) is True
        with pytest.raises(OpInputError, match="is a dense table"):
            opwright.lookup.lookup_table_import_v2(dense, keys, values)


@pytest.mark.parametrize(
    ("key", "shape", "is_taken"),
    [
        (0, [2, 1], True),
        (0, [2, 3], False),
        (0, [2], False),
        (0, [], False),
        (0, [0, 1], False),
        (0, [2, 1, 1], False),
        ([0, 0], [2, 2], True),
        ([0, 0], [2, 1], False),
    ],
)
def test_session_checks_keys_of_a_dense_table(
    key: Any, shape: list[int], is_taken: bool
) -> None:
    """Python has no access to the tables of a session."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = dense_table(key)
        keys, values = map(tf.compat.v1.placeholder, (INT, FLOAT))
        with opwright.checked():
            filled = opwright.lookup.lookup_table_import_v2(table, keys, values)
        given = {keys: np.ones(shape, np.int64), values: np.ones([*shape[:1], 1])}
        with tf.control_dependencies([filled]):
            size = opwright.lookup.lookup_table_size_v2(table)
        if is_taken:
            assert session.run(size, given) == 2
            return
        with pytest.raises(tf.errors.InvalidArgumentError, match="importable"):
            session.run(size, given)


def ragged(*lengths: int, width: int = 1) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows of ones as variants, and their row_splits."""
    splits = np.cumsum([0, *lengths])
    packed = tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[splits],
        rt_dense_values=tf.ones([splits[-1], width]),
        batched_input=True,
    )
    return packed, tf.constant(splits)


@WAYS
@pytest.mark.parametrize(
    ("shape", "dtype", "is_taken"),
    [
        ([5, 3], FLOAT, True),
        ([6, 3], FLOAT, True),
        ([0, 3], FLOAT, True),
        ([4, 3], FLOAT, False),
        ([1], FLOAT, False),
        ([5, 3], tf.int32, False),
    ],
)
def test_values_of_ragged_variants_need_room(
    way: Any, shape: list[int], dtype: tf.DType, is_taken: bool
) -> None:
    packed, splits = ragged(2, 3, width=3)

    def join(packed: tf.Tensor) -> None:
        opwright.ragged.ragged_tensor_to_variant_gradient(packed, splits, shape, dtype)

    if is_taken:
        way(join, packed)
        return
    with pytest.raises(REFUSALS, match=r"has more values|joins|hold"):
        way(join, packed)


def test_variants_that_hold_nothing_count_as_zeros() -> None:
    packed, splits = ragged(2, 3)
    empty = tf.raw_ops.EmptyTensorList(
        element_shape=-1, max_num_elements=-1, element_dtype=FLOAT
    )
    mixed = tf.stack([packed[0], empty])
    for size, expected in ((5, True), (4, False)):
        assert variants.are_joined(mixed, splits, [size]) is expected
    # The kernel would make the zeros of a row before it looks at the shape.
    assert not variants.are_joined(tf.stack([empty]), [0, 2**40], [1])
    # Long values, whose length takes more than one byte in the message.
    packed, splits = ragged(1, 300)
    assert variants.are_joined(packed, splits, [301])
    assert not variants.are_joined(packed, splits, [300])


def accumulator() -> tf.Tensor:
    return tf.raw_ops.ResourceConditionalAccumulator(
        dtype=FLOAT, shape=[2], shared_name="accumulator"
    )


@WAYS
def test_accumulator_is_not_destroyed(way: Any) -> None:
    destroy = opwright.variables.destroy_resource_op
    handle = accumulator()
    with pytest.raises(REFUSALS, match=r"of an accumulator|removable"):
        way(destroy, handle)
    count = tf.raw_ops.ResourceAccumulatorNumAccumulated(handle=handle)
    assert count.numpy() == 0
    variable = tf.raw_ops.VarHandleOp(dtype=FLOAT, shape=[], shared_name="destroyed")
    tf.raw_ops.AssignVariableOp(resource=variable, value=1.0)
    way(destroy, variable)
    assert not tf.raw_ops.VarIsInitializedOp(resource=variable).numpy()


@WAYS
def test_table_takes_a_data_set_of_its_dtypes(way: Any) -> None:
    fill = opwright.lookup.initialize_table_from_dataset
    for keys, is_taken in ((np.int64([1, 2]), True), (["a", "b"], False)):
        table = tf.raw_ops.AnonymousHashTable(key_dtype=INT, value_dtype=FLOAT)
        data = tf.data.Dataset.from_tensor_slices((keys, [1.0, 2.0]))
        if is_taken:
            way(fill, table, data._variant_tensor)
            assert tf.raw_ops.LookupTableSizeV2(table_handle=table).numpy() == 2
            continue
        with pytest.raises(REFUSALS, match=r"do not go together|pairs"):
            way(fill, table, data._variant_tensor)


@WAYS
def test_records_are_of_a_data_set_that_states_scalars(
    way: Any, tmp_path: Path
) -> None:
    file = str(tmp_path / "records")

    def write(data: tf.Tensor) -> None:
        opwright.data.dataset_to_tf_record(data, file, "")

    words = tf.data.Dataset.from_tensor_slices(["one", "two"])
    unknown = words.map(lambda x: tf.numpy_function(lambda y: y, [x], tf.string))
    way(write, unknown.map(lambda x: tf.reshape(x, []))._variant_tensor)
    written = tf.data.TFRecordDataset(file).as_numpy_iterator()
    assert [*written] == [b"one", b"two"]
    for data in (unknown, words.batch(2), words.batch(2, drop_remainder=True)):
        with pytest.raises(REFUSALS, match=r"does not state|single"):
            way(write, data._variant_tensor)


def iterator(has_name: bool) -> tf.Tensor:
    """A multi-device iterator with two shards."""
    spec: dict[str, Any] = {"output_types": [INT], "output_shapes": [[]]}
    devices = ["/cpu:0"] * 2
    if has_name:
        return tf.raw_ops.MultiDeviceIterator(
            devices=devices, shared_name="two", container="", **spec
        )
    return tf.raw_ops.AnonymousMultiDeviceIteratorV3(devices=devices, **spec)


@WAYS
@pytest.mark.parametrize("has_name", [True, False])
def test_shard_is_one_that_the_iterator_has(way: Any, has_name: bool) -> None:
    found = iterator(has_name)
    assert resources.shards_of(found) == 2
    run = tf.raw_ops.MultiDeviceIteratorInit(
        dataset=tf.data.Dataset.range(9)._variant_tensor,
        multi_device_iterator=found,
        max_buffer_size=4,
    )

    def read(found: tf.Tensor, shard: tf.Tensor) -> None:
        opwright.data.multi_device_iterator_get_next_from_shard(
            found, shard, run, output_types=[INT], output_shapes=[[]]
        )

    way(read, found, tf.constant(1))
    for shard in (2, 3, -1):
        with pytest.raises(REFUSALS, match=r"less than 2|at least 0|must hold"):
            way(read, found, tf.constant(shard))


def test_shards_are_of_multi_device_iterators() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="no multi-device"):
        resources.shards_of(tf.Variable(1.0).handle)
    with pytest.raises(tf.errors.InvalidArgumentError, match="1 element"):
        resources.shards_of(tf.stack([iterator(False)] * 2))


def test_graph_knows_the_shards_of_an_iterator_without_a_name() -> None:
    with tf.Graph().as_default():
        # Another op may have made the one with the name.
        assert handles.shards_of(iterator(True)) is None
        assert handles.shards_of(iterator(False)) == 2
        assert handles.shards_of(tf.compat.v1.placeholder(tf.resource)) is None


def test_op_that_cannot_run_is_part_of_a_graph() -> None:
    def make() -> tf.Tensor:
        shard = opwright.data.range_dataset(0, 2, 1, [INT], [[]])
        return opwright.data.snapshot_nested_dataset_reader([shard], [INT], [[]])

    with pytest.raises(OpInputError, match="cannot run"):
        make()
    with tf.Graph().as_default():
        assert make().op.type == "SnapshotNestedDatasetReader"
        with opwright.checked(), pytest.raises(OpInputError, match="cannot run"):
            make()


def test_unread_condition_holds_in_a_graph_that_xla_compiles() -> None:
    """XLA has no op that calls Python; and none of what these handles stand for."""
    from opwright_runtime._binding import assertions

    info = opwright.op_class("DestroyResourceOp").op_def
    spec = tf.TensorSpec([], tf.resource)
    assert assertions.checker(info, [spec], {}) is not None
    assert assertions.checker(info, [spec], {}, compiled=True) is None


def test_saved_model_checks_what_its_handles_stand_for(tmp_path: Path) -> None:
    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.resource)])
        def destroy(self, handle: tf.Tensor) -> tf.Tensor:
            tf.raw_ops.DestroyResourceOp(resource=handle)
            return tf.constant(0)

    tf.saved_model.save(Model(), str(tmp_path))
    loaded = opwright.load_checked(tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="removable"):
        loaded.destroy(accumulator())


@pytest.mark.parametrize("mode", ["eager", "argument", "constant"])
def test_sizes_of_int8_split_only_eagerly(mode: str) -> None:
    value, sizes = tf.range(6), tf.constant([2, 4], tf.int8)

    def split(sizes: tf.Tensor) -> Any:
        return opwright.array.split_v(value, sizes, 0, 2)

    if mode == "eager":
        assert [part.shape[0] for part in split(sizes)] == [2, 4]
        return
    given = [sizes] if mode == "argument" else []
    call = tf.function(split if given else lambda: split(sizes), autograph=False)
    with pytest.raises(OpInputError, match="other than int8 in a graph"):
        call(*given)


def test_reference_variable_is_not_divided_beyond_its_dtype() -> None:
    lowest = tf.int32.min
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = opwright.variables.variable_v2([2], tf.int32)
        session.run(opwright.variables.assign(variable, [lowest, 7]))
        indices, by = (tf.compat.v1.placeholder(tf.int32, [None]) for _ in range(2))
        with opwright.checked():
            divided = opwright.variables.scatter_div(variable, indices, by)
        for bad in ({indices: [0], by: [-1]}, {indices: [1], by: [0]}):
            with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
                session.run(divided, bad)
        assert session.run(divided, {indices: [1, 0], by: [-1, 2]}).tolist() == [
            lowest // 2,
            -7,
        ]


def test_threads_are_limited_by_what_the_process_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert threads.can_start(1)
    (tmp_path / "pids.max").write_text("100\n")
    (tmp_path / "pids.current").write_text("90\n")
    monkeypatch.setattr(threads, "_GROUP", tmp_path)
    assert threads.can_start(10)
    assert not threads.can_start(11)
    (tmp_path / "pids.max").write_text("max\n")
    assert threads.can_start(11)


FEW_THREADS = """
import resource, sys
import tensorflow as tf
import opwright

def read(parallelism):
    return opwright.random.record_input(
        sys.argv[1], batch_size=1, file_buffer_size=1, file_parallelism=parallelism)

with tf.io.TFRecordWriter(sys.argv[1]) as writer:
    writer.write(b"vote")
print(read(1).numpy())
used = next(line for line in open("/proc/self/status") if line.startswith("VmSize"))
most = (int(used.split()[1]) << 10) + (2 << 30)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(read(2).numpy())
try:
    read(100)
except opwright.OpOptionError as error:
    print(error)
"""


def test_threads_that_find_no_address_space_are_not_started(tmp_path: Path) -> None:
    done = run_code(FEW_THREADS, tmp_path / "votes")
    first, second, refusal = done.stdout.splitlines()[-3:]
    assert first == second == "[b'vote']", done.stderr
    assert refusal.startswith("RecordInput: file_parallelism requests 102 threads")


@pytest.mark.parametrize("is_captured", [True, False])
def test_accumulator_is_read_after_its_handles_are_counted(is_captured: bool) -> None:
    """To read an accumulator by two handles would end the process."""
    handles = tf.stack([accumulator()] * 2)

    def add(handle: tf.Tensor) -> None:
        opwright.train.resource_accumulator_apply_gradient(handle, 1, tf.ones([2]))

    with pytest.raises(REFUSALS, match="handle"):
        if is_captured:
            in_graph(lambda: add(handles))
        else:
            in_graph(add, handles)


@WAYS
def test_gradient_is_taken_in_the_dtype_of_its_accumulator(way: Any) -> None:
    """After another dtype, the accumulator would be one that ends the process."""
    accumulator = opwright.raw_ops.ResourceConditionalAccumulator(
        dtype=FLOAT, shape=[2], shared_name=f"taken {way.__name__}"
    )
    gradient = tf.constant([1.0, 2.0])
    opwright.raw_ops.ResourceAccumulatorApplyGradient(
        handle=accumulator, local_step=np.int64(1), gradient=gradient
    )

    def take(handle: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return opwright.raw_ops.ResourceAccumulatorTakeGradient(
            handle=handle, num_required=1, dtype=dtype
        )

    with pytest.raises(REFUSALS):
        way(lambda handle: take(handle, tf.float64), accumulator)
    np.testing.assert_array_equal(take(accumulator, FLOAT), gradient)


def test_graph_counts_handles_before_it_asks_what_they_stand_for() -> None:
    tables = tf.stack([hash_table(), hash_table()])

    @tf.function(input_signature=[tf.TensorSpec(None, tf.resource)], autograph=False)
    def fill(handle: tf.Tensor) -> tf.Tensor:
        with opwright.checked():
            opwright.raw_ops.LookupTableImportV2(
                table_handle=handle, keys=np.int64([5]), values=np.float32([2])
            )
        return tf.constant(0)

    fill(tables[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="elements"):
        fill(tables)


def test_table_of_variants_is_told_from_others() -> None:
    variants = tf.raw_ops.MutableHashTableV2(key_dtype="int64", value_dtype="variant")
    floats = tf.raw_ops.MutableHashTableV2(key_dtype="int64", value_dtype="float32")
    assert resources.is_table(variants, "int64", "variant")
    assert not resources.is_table(variants, "int64", "float32")
    assert not resources.is_table(variants, "string", "variant")
    for dtypes in (("int64", "variant"), ("resource", "float32")):
        assert not resources.is_table(floats, *dtypes)


def test_graph_tells_a_table_of_variants_from_others() -> None:
    variants = tf.raw_ops.MutableHashTableV2(key_dtype="int64", value_dtype="variant")
    floats = tf.raw_ops.MutableHashTableV2(key_dtype="int64", value_dtype="float32")

    @tf.function(input_signature=[tf.TensorSpec([], tf.resource)], autograph=False)
    def export(handle: tf.Tensor) -> tf.Tensor:
        with opwright.checked():
            return opwright.raw_ops.LookupTableExportV2(
                table_handle=handle, Tkeys="int64", Tvalues="variant"
            ).keys

    assert not export(variants).numpy().size
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"table\(table_handle"):
        export(floats)
