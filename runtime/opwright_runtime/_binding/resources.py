"""What a handle stands for: a variable, an accumulator, a lookup table or a data set.

Conditions of `requires` depend on it. Generated code calls these functions, as those of
properties.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_runtime._binding.fast_path import EagerTensor
from opwright_runtime._binding.properties import DTYPE_NAMES, array_of, elements_of

#: The dtypes of integers whose division can end the process.
DIVIDED = (tf.int32, tf.int64)


def are_held(dtype: object, *handles: Any) -> bool:
    """Whether the variables of handles have a dtype, as far as the handles say."""
    for handle in handles:
        data = handle._handle_data
        if data is not None:
            held = data.shape_and_type
            if held and DTYPE_NAMES[held[0].dtype] != dtype:
                return False
        elif not _is_held(dtype, handle):
            return False
    return True


def _is_held(dtype: object, handle: tf.Tensor) -> bool:
    """`are_held` for one handle without data."""
    text = _text_of(handle)
    if ACCUMULATOR in text and elements_of(handle) == 1:
        # To ask for its dtype takes twice as long.
        return _takes(handle, dtype)
    held, _ = _held_in_text(handle, text)
    return held is None or held == dtype


def held_by(handle: Any) -> str | None:
    """The dtype of the variable of a handle; None if the handle does not say it."""
    return held_in(handle._handle_data) or _held_in_text(handle, _text_of(handle))[0]


def held_of(handle: Any) -> tuple[int, ...] | None:
    """The shape of the variable of a handle; None if the handle does not say it."""
    data = handle._handle_data
    if data is None:
        return _held_in_text(handle, _text_of(handle))[1]
    return held_shape_in(data)


def known_held_of(handle: Any) -> tuple[int, ...]:
    """`held_of`, for conditions that cannot do without the shape."""
    sizes = held_of(handle)
    if sizes is None:
        raise TypeError
    return sizes


#: What the text of a variant says of the sparse matrix in it.
_MATRIX = re.compile(r"<Tensor<type: int64 shape: \[\d\] values: ([\d ]+)>>")


def matrix_of(handle: object) -> tuple[int, ...]:
    """The shape of the sparse matrix, or of the batch of them, in a variant."""
    found = _MATRIX.fullmatch(_text_of(handle))
    if found is None:
        raise TypeError
    return tuple(map(int, found[1].split()))


#: What the text of a variant says of the ragged tensor in it.
_RAGGED = re.compile(r"RaggedTensorVariant\(dtype=(\w+)")
#: What the text of a resource's handle says of an accumulator.
ACCUMULATOR = 'type="tensorflow::ConditionalAccumulatorBase"'
#: What the text of a resource's handle says of the variable.
_HELD = re.compile(r"\[ DType enum: (\d+), Shape: (\[[\d,]*\])? ?")


def _text_of(handle: Any) -> str:
    """What a handle says of itself; "" in a graph."""
    return str(handle._summarize_value()) if type(handle) is EagerTensor else ""


def _held_in_text(
    handle: tf.Tensor, text: str
) -> tuple[str | None, tuple[int, ...] | None]:
    """The dtype and the shape of a variable or accumulator, by the text of its handle.

    A handle that an op made has no other data, but a text that says both.
    """
    if not text:
        return None, None
    if ragged := {*_RAGGED.findall(text)}:
        # Variants of several dtypes have none that they could hold.
        return ", ".join(tf.as_dtype(one).name for one in sorted(ragged)), None
    if handle.dtype == tf.variant:
        # Of another kind, such as a list of tensors. Without elements, there is none.
        return text if elements_of(handle) else None, None
    if ACCUMULATOR in text:
        return _held_by_accumulator(handle), None
    held = _HELD.search(text)
    if held is None:
        return None, None
    sizes = None
    if held[2] is not None:
        sizes = tuple(int(size) for size in held[2][1:-1].split(",") if size)
    return DTYPE_NAMES[int(held[1])] or None, sizes


#: The first step of all.
_EARLIEST = -(2**63)


def apply_stale_gradient(accumulator: tf.Tensor, dtype: object) -> tf.Operation:
    """Applies a gradient that changes nothing, and that fails for another dtype.

    The accumulator leaves out a gradient of the earliest step, which is stale. In a
    graph, it returns the operation.
    """
    return tf.raw_ops.ResourceAccumulatorApplyGradient(
        handle=accumulator, local_step=_EARLIEST, gradient=_zeros(dtype)
    )


def _takes(accumulator: tf.Tensor, dtype: object) -> bool:
    """Whether an accumulator has a dtype."""
    try:
        apply_stale_gradient(accumulator, dtype)
    except tf.errors.InvalidArgumentError:
        return False
    return True


@lru_cache
def _zeros(dtype: Any, *shape: int) -> object:
    """Zeros, or empty texts. The array turns into a tensor sooner than `tf.zeros`."""
    known = tf.as_dtype(dtype)
    return np.zeros(shape, "S" if known == tf.string else known.as_numpy_dtype)


def _held_by_accumulator(handle: tf.Tensor) -> str | None:
    """The dtype of an accumulator, which the refusal of a gradient names."""
    if elements_of(handle) != 1:
        # The kernel would end the process.
        return None
    try:
        apply_stale_gradient(handle, tf.int8)
    except tf.errors.InvalidArgumentError as error:
        found = re.search(r"expected: [^>]*?(\w+)->", str(error))
        return found and tf.as_dtype(found[1]).name
    return None


def held_in(data: Any) -> str | None:
    """`held_by` for the data of a handle, which may be None."""
    if data is None:
        return None
    held = data.shape_and_type
    return DTYPE_NAMES[held[0].dtype] if held else None


def held_shape_in(data: Any) -> tuple[int, ...] | None:
    """`held_of` for the data of a handle, which may be None."""
    if data is None:
        return None
    return _held_shape(type(data).FromString, data.SerializeToString())


@lru_cache
def _held_shape(read: Callable[[bytes], Any], data: bytes) -> tuple[int, ...] | None:
    """The shape in serialized data of a handle. A message takes longer to read."""
    held = read(data).shape_and_type
    if not held or held[0].shape.unknown_rank:
        return None
    sizes = tuple(one.size for one in held[0].shape.dim)
    return sizes if min(sizes, default=0) >= 0 else None


#: The dtypes that have no zeros. No table has them but one of int64 and variant.
_WITHOUT_ZEROS = frozenset({"resource", "variant"})


def have_zeros(*dtypes: str) -> bool:
    """Whether there are zeros of each dtype, with which a table can be tried."""
    return _WITHOUT_ZEROS.isdisjoint(dtypes)


def is_table(handle: Any, keys: str, values: str) -> bool:
    """Whether a table has keys and values of these dtypes, as far as it says.

    A handle does not say it. A lookup of no key does nothing but compare the dtypes.
    """
    if not have_zeros(keys, values):
        return _dtypes_of_table(handle) == (keys, values)
    try:
        _find_nothing(handle, keys, values)
    except tf.errors.OpError as error:
        return "Signature mismatch" not in str(error)
    return True


def _find_nothing(table: tf.Tensor, keys: str, values: str) -> None:
    """Looks no key up in a table, which compares the dtypes."""
    tf.raw_ops.LookupTableFindV2(
        table_handle=table, keys=_zeros(keys, 0), default_value=_zeros(values)
    )


def are_pairs(table: Any, dataset: Any) -> bool:
    """Whether elements of a data set are a key and a value of a table's dtypes.

    A lookup of no key says the dtypes of the table. An iterator compares those of its
    data set when it is made.
    """
    if elements_of(table) > 1:
        # A lookup takes one handle only. The table is filled by the first of several.
        table = tf.reshape(table, [-1])[0]
    key, value = _dtypes_of_table(table)
    iterator = tf.raw_ops.AnonymousIteratorV3(
        output_types=[key, value], output_shapes=[[], []]
    )
    try:
        tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def is_single(dataset: tf.Tensor) -> bool:
    """Whether a data set states that its elements have one value each.

    The refusal of an iterator of another shape names the shape that the elements have.
    If iterators of both ranks are taken, the rank is unknown.
    """
    for shape in ([1], []):
        iterator = tf.raw_ops.AnonymousIteratorV3(
            output_types=["string"], output_shapes=[shape]
        )
        try:
            tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)
        except tf.errors.InvalidArgumentError as error:
            stated = re.search(r"but got \[([\d,?]*)\]", str(error))
            # TensorFlow refuses elements of other dtypes.
            return stated is None or {*stated[1].split(",")} <= {"1", ""}
    return False


#: A size that no key of a table has.
_NO_SIZE = 2**30 + 1


def are_importable(table: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> bool:
    """Whether an import can fill a table with keys of this shape.

    A handle does not say whether a table is dense. The refusal of an import without
    keys does: it names the shape that the values must have.
    """
    if type(keys) is not EagerTensor or type(values) is not EagerTensor:
        raise TypeError
    try:
        tf.raw_ops.LookupTableImportV2(
            table_handle=table,
            keys=_zeros(keys.dtype, 0, 1, _NO_SIZE),
            values=_zeros(values.dtype, 0),
        )
    except tf.errors.InvalidArgumentError as error:
        text = str(error)
    else:
        return True
    of_key = re.search(r"end with the table's key shape \[(\d+)\]", text)
    if of_key is None:
        expected = re.search(r"Expected shape \[0,1,(\d+)", text)
        if expected is None or int(expected[1]) == _NO_SIZE:
            return True  # The table is not dense, or has other dtypes.
    key = tf.TensorShape([] if of_key is None else [int(of_key[1])])
    return fits_dense_table(keys.shape, key) is not False


def fits_dense_table(keys: tf.TensorShape, key: tf.TensorShape) -> bool | None:
    """Whether a dense table takes an import of keys; None if it is unknown.

    Args:
        keys: the shape of all keys.
        key: the shape of one key of the table.
    """
    if keys.rank is None or keys.rank != 2:
        return None if keys.rank is None else False
    rows, columns = keys
    if rows == 0:
        return False  # Lookups in a table without buckets end the process.
    wanted = key.num_elements()
    if columns is not None and wanted is not None and columns != wanted:
        return False
    return None if None in (rows, columns, wanted) else True


def _dtypes_of_table(table: Any) -> tuple[str, str]:
    """The dtypes of keys and values, which the refusal of a lookup names."""
    try:
        _find_nothing(table, "int8", "int8")
    except tf.errors.InvalidArgumentError as error:
        found = re.search(r"expected: \w+, ?(\w+), ?(\w+)->", str(error))
        if found is None:
            raise TypeError from None
        return found[1], found[2]
    return "int8", "int8"


def shards_of(iterator: tf.Tensor) -> int:
    """How many shards a multi-device iterator has.

    Its handle does not say it, so an op of the native library looks it up.

    Raises:
        ImportError: there is no library for this TensorFlow.
        OpError: the handle is that of something else.
    """
    return int(shards_in_graph(iterator))


def shards_in_graph(iterator: tf.Tensor) -> tf.Tensor:
    """`shards_of`, as the result of an op."""
    # It is imported here because few programs need it.
    from opwright_runtime import native

    with tf.device("CPU:0"):
        shards: tf.Tensor = native.ops().opwright_shards(iterator=iterator)
    return shards


def is_divided(resource: tf.Tensor, indices: tf.Tensor, divisors: tf.Tensor) -> bool:
    """Whether rows of a variable of integers can be divided.

    The lowest integer divided by -1 is no integer of its dtype.
    """
    if type(divisors) is not EagerTensor:
        raise TypeError
    if divisors.dtype not in DIVIDED:
        return True
    by = np.asarray(array_of(divisors))
    if -1 not in by:
        return True
    try:
        variable = tf.raw_ops.ReadVariableOp(resource=resource, dtype=divisors.dtype)
        rows = np.asarray(array_of(tf.gather(variable, indices)))
        return not ((rows == divisors.dtype.min) & (by == -1)).any()
    except (tf.errors.OpError, ValueError):
        return True  # TensorFlow refuses the call.
