"""typed: checks the dtype of a plain tensor, which is then an `Output`."""

from __future__ import annotations

from typing import cast

import tensorflow as tf
from typing_extensions import TypeVar

from opwright_runtime.errors import OpInputError, bad_argument
from opwright_runtime.types.dtypes import TType
from opwright_runtime.types.tensors import Output

T = TypeVar("T", bound=TType)


def typed(tensor: object, dtype: type[T]) -> Output[T]:
    """`tensor` as a plain tensor whose dtype type checkers know.

    Args:
        tensor: a tensor, a variable, an op with one output, or an array. A number has
            no dtype: `cast` converts it to a tensor.
        dtype: the class of its dtype.

    Returns:
        A tensor unchanged; another value converted to a tensor.

    Raises:
        OpInputError: it has another dtype or none, or is not a tensor.
    """
    try:
        wanted = dtype.dtype.name
    except AttributeError as error:
        allowed = "the class of a dtype, such as TFloat32"
        if isinstance(dtype, type) and issubclass(dtype, TType):
            allowed = f"a dtype that there is ({error})"
        raise bad_argument(OpInputError, "typed", "dtype", dtype, allowed) from None
    allowed = f"a tensor of {wanted}"
    if not hasattr(tensor, "dtype") or isinstance(tensor, (type, tf.TypeSpec)):
        is_plain = isinstance(tensor, (bool, int, float, complex, str, bytes, list))
        remedy = f"write tf.constant(..., tf.{wanted}) or cast" if is_plain else ""
        raise bad_argument(
            OpInputError, "typed", "tensor", tensor, allowed, remedy=remedy
        )
    try:
        found = cast("Output[T]", tf.convert_to_tensor(cast(tf.Tensor, tensor)))
    except (TypeError, ValueError) as error:
        raise bad_argument(
            OpInputError, "typed", "tensor", tensor, allowed, error
        ) from error
    if found.dtype.base_dtype != dtype.dtype:
        raise bad_argument(OpInputError, "typed", "tensor", found, allowed)
    return found
