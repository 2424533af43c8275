"""The ops that bring a batch to the device: filled parts of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sparsecore.support.lookups import raw


def copied(tensors: list[Any], sizes: list[Any]) -> list[Any]:
    made: list[Any] = raw.TPUCopyWithDynamicShape(
        tensors=tensors, unpadded_sizes=[tf.constant(one, tf.int32) for one in sizes]
    )
    return made


@pytest.mark.parametrize("in_function", [False, True])
def test_copy_sizes_return_filled_parts(in_function: bool) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    names = np.array([b"a", b"b"])
    call = tf.function(copied) if in_function else copied
    got = call([[4, 7, 0, 0], rows, names, rows], [2, 1, 2, 0])
    assert got[0].numpy().tolist() == [4, 7]
    assert got[1].numpy().tolist() == [[0, 1]]
    assert got[2].numpy().tolist() == [b"a", b"b"]
    assert got[3].shape == (0, 2)


def test_copy_result_survives_its_input() -> None:
    x = tf.random.stateless_uniform([1 << 16], [1, 2])
    expected = x.numpy()[:1000].copy()
    (part,) = copied([x], [1000])
    del x
    tf.random.stateless_uniform([1 << 16], [3, 4])
    np.testing.assert_array_equal(part.numpy(), expected)


def test_annotate_tensors_are_unchanged() -> None:
    x = tf.constant([1.5, 2.5])
    got = raw.TPUAnnotateTensorsWithDynamicShape(tensors=[x, [[1, 2]], b"text"])
    np.testing.assert_array_equal(got[0], x)
    assert got[1].numpy().tolist() == [[1, 2]]
    assert got[2].numpy() == b"text"


@pytest.mark.parametrize(
    ("argument", "tensors", "sizes"),
    [
        ("unpadded_sizes", [[1, 2], [3, 4]], [1]),
        ("unpadded_sizes", [[1, 2]], [1, 1]),
        ("unpadded_sizes", [[1, 2]], []),
        ("unpadded_sizes[1]", [[1, 2], [3]], [1, 2]),
        ("unpadded_sizes[0]", [[1, 2]], [-1]),
        ("unpadded_sizes[0]", [[1, 2]], [2**31 - 1]),
        ("unpadded_sizes[0]", [[1, 2]], [-(2**31)]),
        ("unpadded_sizes[0]", [[1, 2]], [[1, 1]]),
        ("unpadded_sizes[0]", [[1, 2]], [np.zeros(0, np.int32)]),
        ("tensors[0]", [3], [1]),
    ],
)
def test_copy_bad_sizes_are_refused(
    argument: str, tensors: list[Any], sizes: list[Any]
) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        copied(tensors, sizes)
    assert f"{argument}: " in raised.value.message
