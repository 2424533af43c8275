"""The dtypes in which tables on the CPU store the weights of their rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import tensorflow as tf

from opwright_runtime.errors import format_allowed
from opwright_runtime.types import AnyDTypeLike, as_dtype

ROW_DTYPES = (tf.float32, tf.float16, tf.bfloat16, tf.int8)
_ALLOWED = format_allowed(ROW_DTYPES)

# TensorFlow's TableDescriptor has no dtype. The engine reads it from this field, a
# DataType. Protobuf keeps fields that it does not know, and a TPU ignores this one.
_FIELD = 1000


def row_dtype_wanted(dtype: AnyDTypeLike) -> str | None:
    """What is allowed, as text, if `dtype` is no dtype of rows."""
    try:
        # A number of the DataType enum would count as a dtype, and True as float32.
        known = not isinstance(dtype, int) and as_dtype(dtype) in ROW_DTYPES
    except TypeError:
        known = False
    return None if known else _ALLOWED


def serialized_row_dtype(dtype: AnyDTypeLike) -> bytes:
    """The part of a serialized TableDescriptor that is the dtype of the rows."""
    found = as_dtype(dtype)
    if found == tf.float32:
        return b""
    key = _FIELD << 3  # The number of the field, and the wire type of a varint.
    return bytes([key & 127 | 128, key >> 7, found.as_datatype_enum])


def check_row_dtypes(
    row_dtypes: Mapping[str, AnyDTypeLike] | None, device: str, feature: str
) -> Mapping[str, AnyDTypeLike]:
    """The argument of software_strategy, checked; its tables are not known yet."""
    if row_dtypes is None:
        return {}
    if not isinstance(row_dtypes, Mapping):
        raise TypeError(
            "software_strategy: row_dtypes must be a dict of the names of tables and "
            f'their dtypes, such as {{"films": "int8"}}, not {row_dtypes!r}'
        )
    given = dict(row_dtypes)
    for table, dtype in given.items():
        if row_dtype_wanted(dtype):
            raise ValueError(
                f"software_strategy: row_dtypes[{table!r}] must be {_ALLOWED}, not "
                f"{dtype!r}"
            )
    for argument, refused in (
        (f"device={device!r}", device != "/cpu:0"),
        (f"embedding_feature={feature!r}", feature != "v1"),
    ):
        if given and refused:
            raise ValueError(
                "software_strategy: row_dtypes is for the tables of TPUEmbedding on "
                f"the CPU; remove {argument} or row_dtypes"
            )
    return given


def check_tables(
    row_dtypes: Mapping[str, AnyDTypeLike], tables: Collection[str]
) -> None:
    """Raises a ValueError if `row_dtypes` has a table that is none of `tables`."""
    for name in row_dtypes:
        if name not in tables:
            raise ValueError(
                f"software_strategy: row_dtypes names a table {name!r}, and the tables "
                f"of this TPUEmbedding are {', '.join(map(repr, tables))}; name one "
                "of these, or remove it"
            )
