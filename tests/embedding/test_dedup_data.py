"""The layout of deduplication data, and its conversion from and to two vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

from opwright import tpu

Array = np.ndarray[Any, Any]
INTEGERS = [tf.int32, tf.int64, tf.uint32, tf.uint64]
FLOATS = [tf.half, tf.bfloat16, tf.float32]


def with_tables(*features: int, **settings: Any) -> TPUEmbeddingConfiguration:
    """A configuration with a table for each of `features`, its num_features."""
    config = TPUEmbeddingConfiguration(num_hosts=1, num_tensor_cores=1, **settings)
    for i, count in enumerate(features):
        table = config.table_descriptor.add(
            name=f"t{i}", vocabulary_size=10, dimension=4, num_features=count
        )
        table.optimization_parameters.stochastic_gradient_descent.SetInParent()
    return config


def configuration(cores: int = 0) -> TPUEmbeddingConfiguration:
    """Two tables; the second one has two features. `cores` share a replica's data."""
    config = with_tables(0, 0)
    for name, table, shape in (("x", 1, [4, 3]), ("y", 0, [4]), ("z", 1, [4])):
        config.feature_descriptor.add(name=name, table_id=table, input_shape=shape)
    if cores:
        config.spmd_sharding.enabled = True
        config.spmd_sharding.num_cores_per_replica = cores
    return config


def num_features() -> TPUEmbeddingConfiguration:
    return with_tables(1, 3, batch_size_per_tensor_core=8)


def layout(config: TPUEmbeddingConfiguration, version: int = 1) -> Array:
    size: tf.Tensor
    mask: Array
    if version == 1:
        size = tpu.compute_dedup_data_size(config)
        mask = tpu.compute_dedup_data_tuple_mask(config).numpy()
    else:
        results = (b"partitions", b"buffers", b"topology")
        size = tpu.compute_dedup_data_size_v2(config, *results)
        mask = tpu.compute_dedup_data_tuple_mask_v2(config, *results).numpy()
    assert size.dtype == mask.dtype == np.int32
    assert mask.shape == (int(size), 2)
    return mask


def serialized(mask: Any) -> bytes:
    """A mask as SplitDedupData's shape function wants it: element by element."""
    mask = np.asarray(mask, np.int32)
    proto = tf.make_tensor_proto(mask)
    proto.ClearField("tensor_content")
    proto.int_val[:] = mask.ravel().tolist()
    return bytes(proto.SerializeToString())


@pytest.mark.parametrize("version", [1, 2])
def test_dedup_layout_lists_lengths(version: int) -> None:
    assert layout(configuration(), version).tolist() == [
        [0, 4],
        [1, 4],
        [0, 16],
        [1, 16],
    ]
    assert layout(num_features(), version)[:, 1].tolist() == [8, 8, 24, 24]
    # Every length is divided among the cores of a replica.
    assert layout(configuration(3), version)[:, 1].tolist() == [6, 6, 18, 18]


def merged_and_split(
    mask: Any, integers: tf.Tensor, floats: tf.Tensor, **more: Any
) -> Any:
    mask = mask if isinstance(mask, bytes) else serialized(mask)
    merged = tpu.merge_dedup_data(integers, floats, mask, **more)
    assert merged.dtype == tf.variant
    assert merged.shape == []
    split = tpu.split_dedup_data(merged, integers.dtype, floats.dtype, mask, **more)
    return split.integer_tensor, split.float_tensor


@pytest.mark.rotating
@pytest.mark.parametrize("floating", FLOATS)
@pytest.mark.parametrize("integer", INTEGERS)
def test_split_of_merged_dedup_data_is_equal(
    integer: tf.DType, floating: tf.DType
) -> None:
    """Whatever the configuration, and in graphs, where the tuple is a loop's state."""
    nothing = np.empty((0, 2), np.int64)
    for mask in (layout(configuration()), layout(num_features()), nothing):
        rng = np.random.default_rng(1)
        counts = [int(mask[mask[:, 0] == kind, 1].sum()) for kind in (0, 1)]
        integers = tf.cast(rng.integers(0, 2**31, counts[0]), integer)
        floats = tf.cast(rng.standard_normal(counts[1]), floating)
        for run in (merged_and_split, tf.function(merged_and_split, autograph=False)):
            got = run(serialized(mask), integers, floats)
            assert got[0].numpy().tolist() == integers.numpy().tolist()
            assert got[1].numpy().tolist() == floats.numpy().tolist()


def test_parts_lie_as_the_mask_lists_them() -> None:
    """Masks with other parts are refused by the tuple that has these."""
    # TensorFlow's own example: the tuple ([1, 2], [0.1], [3]).
    mask = [[0, 2], [1, 1], [0, 1]]
    merged = tpu.merge_dedup_data([1, 2, 3], [0.1], serialized(mask))

    def split(mask: bytes, integer: Any = tf.int32, floating: Any = tf.float32) -> Any:
        return tpu.split_dedup_data(merged, integer, floating, mask)

    # A mask in bytes means the same as one of elements.
    packed = tf.make_tensor_proto(np.array(mask, np.int32)).SerializeToString()
    for form in (serialized(mask), packed):
        assert split(form).integer_tensor.numpy().tolist() == [1, 2, 3]
        assert split(form).float_tensor.numpy().tolist() == [np.float32(0.1)]
    for other in ([[0, 1], [1, 1], [0, 2]], [[1, 1], [0, 2], [0, 1]], [[0, 2], [1, 1]]):
        refused("tuple_mask", lambda other=other: split(serialized(other)))
    refused("tuple_mask", lambda: split(packed, integer=tf.int64))
    refused("tuple_mask", lambda: split(packed, floating=tf.half))


def test_sharded_data_is_whole_on_one_device() -> None:
    config = configuration(2)
    mask = layout(config)
    count = int(mask[:, 1].sum()) // 2
    got = merged_and_split(
        mask,
        tf.range(count),
        tf.range(count, dtype=tf.float32),
        config=config,
    )
    for vector in got:
        assert vector.numpy().tolist() == list(range(count))


def test_dedup_variant_in_dataset_and_bytes_keeps_data() -> None:
    """It is an element of a data set, and goes through bytes."""
    mask = serialized([[0, 2], [1, 2]])
    merged = tpu.merge_dedup_data([5, 6], [7.0, 8.0], mask)
    read = tf.io.parse_tensor(tf.io.serialize_tensor(merged), tf.variant)
    for element in [*tf.data.Dataset.from_tensors(merged).repeat(2), read]:
        got = tpu.split_dedup_data(element, tf.int32, tf.float32, mask)
        assert got.integer_tensor.numpy().tolist() == [5, 6]
        assert got.float_tensor.numpy().tolist() == [7, 8]


# ---- Bad calls.


def refused(argument: str, run: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        run()
    assert f"{argument}: " in raised.value.message, raised.value.message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"table_id": 2}, "'x'"),
        ({"input_shape": [4, 0]}, "'x'"),
        ({"input_shape": [2**31 - 1]}, "'x'"),
        ({"cores": 2**31 - 1}, "config: table 1 .'t1'.: with 2147483647 cores"),
        ({"cores": -1}, "config: spmd_sharding.num_cores_per_replica"),
        ({"cores": 2**31 - 9, "input_shape": [9]}, "config: table 1"),
    ],
)
def test_dedup_op_bad_configuration_is_refused(
    change: dict[str, Any], says: str
) -> None:
    """Every rule of a configuration holds here too; some are these ops' own."""
    config = configuration(change.get("cores", 0))
    feature = config.feature_descriptor[0]
    feature.table_id = change.get("table_id", feature.table_id)
    if "input_shape" in change:
        feature.input_shape[:] = change["input_shape"]
    for op in (tpu.compute_dedup_data_size, tpu.compute_dedup_data_tuple_mask):
        with pytest.raises(tf.errors.InvalidArgumentError, match=says):
            op(config)


def test_dedup_op_bad_bytes_are_refused() -> None:
    for op in (tpu.compute_dedup_data_size, tpu.compute_dedup_data_tuple_mask):
        for config in (b"\xff", b""):
            with pytest.raises(tf.errors.InvalidArgumentError, match="config is "):
                op(config)


@pytest.mark.parametrize(
    "mask",
    [
        b"\xff\xff",
        b"",
        tf.make_tensor_proto(np.zeros((1, 2), np.int64)).SerializeToString(),
        serialized([[2, 1]]),
        serialized([[-1, 1]]),
        serialized([[0, -1]]),
        serialized([[0, 1, 1]]),
        serialized([0, 1]),
        serialized(0),
    ],
)
def test_merge_dedup_data_bad_mask_is_refused(mask: bytes) -> None:
    ints, floats = tf.constant([1]), tf.constant([], tf.float32)
    refused("tuple_mask", lambda: merged_and_split(mask, ints, floats))


@pytest.mark.parametrize(
    ("argument", "integers", "floats"),
    [
        ("integer_tensor", tf.zeros([1], tf.int32), tf.zeros([1])),
        ("integer_tensor", tf.zeros([3], tf.int32), tf.zeros([1])),
        ("integer_tensor", tf.zeros([2, 1], tf.int32), tf.zeros([1])),
        ("float_tensor", tf.zeros([2], tf.int32), tf.zeros([0])),
        ("float_tensor", tf.zeros([2], tf.int32), tf.zeros([])),
    ],
)
def test_merge_dedup_data_bad_vectors_are_refused(
    argument: str, integers: tf.Tensor, floats: tf.Tensor
) -> None:
    mask = [[0, 2], [1, 1]]
    refused(argument, lambda: merged_and_split(mask, integers, floats))


def test_lengths_that_the_cores_do_not_divide() -> None:
    config = configuration(2)
    ints, floats = tf.zeros([3], tf.int32), tf.zeros([0])
    refused(
        "tuple_mask", lambda: merged_and_split([[0, 3]], ints, floats, config=config)
    )
    refused(
        "config", lambda: merged_and_split([[0, 3]], ints, floats, config=b"\xff\xff")
    )


def test_split_dedup_data_foreign_variant_is_refused() -> None:
    other = tf.raw_ops.EmptyTensorList(
        element_shape=-1, max_num_elements=1, element_dtype=tf.int32
    )
    mask = serialized([[0, 1]])
    for value in (other, tf.stack([other, other])):
        refused(
            "input",
            lambda value=value: tpu.split_dedup_data(value, tf.int32, tf.float32, mask),
        )
