"""Converts inputs to tensors, with the dtypes that TensorFlow's own builder picks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._binding import narrowing
from opwright_runtime._binding.op_info import ArgInfo, OpInfo
from opwright_runtime._internals import TensorType, ops

_EAGER_TENSOR = ops.EagerTensor
# Values are recognized by their exact types, because attributes of tensors are slow.
_TENSORS = frozenset({_EAGER_TENSOR, ops.SymbolicTensor})
_PLAIN = frozenset({bool, int, float, complex, str, bytes, list, tuple})


def tensors(info: OpInfo, inputs: Sequence[Any], *, eager: bool) -> list[Any]:
    """The inputs as tensors; a list input as a list of tensors.

    Inputs that share a dtype get the dtype of the first tensor among them. Plain values
    before and after it are converted to that dtype.

    Raises:
        OpInputError: a number does not fit its dtype.
    """
    dtypes: dict[str, Any] = {}
    for arg, value in zip(info.inputs, inputs, strict=True):
        if arg.type_attr is not None and arg.type_attr not in dtypes:
            _infer(dtypes, arg.type_attr, value if arg.is_list else (value,))
    found: list[Any] = []
    for arg, value in zip(info.inputs, inputs, strict=True):
        if not arg.is_list:
            found.append(_tensor(info, arg, value, dtypes, eager))
            continue
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"Expected list for {arg.name!r}, not {value!r}")
        if arg.type_list_attr is not None:
            found.append(_mixed(info, arg, value, dtypes))
            continue
        found.append(
            [
                _tensor(info, arg, one, dtypes, eager, index)
                for index, one in enumerate(value)
            ]
        )
    return found


def flattened(
    info: OpInfo, values: Sequence[Any]
) -> tuple[list[tf.Tensor], dict[str, Any]]:
    """Tensors by argument as one flat list, and the attrs that the lists determine."""
    flat: list[tf.Tensor] = []
    inferred: dict[str, object] = {}
    for arg, value in zip(info.inputs, values, strict=True):
        if not arg.is_list:
            flat.append(value)
            continue
        flat += value
        if arg.type_list_attr is not None:
            inferred[arg.type_list_attr] = tuple(t.dtype.base_dtype for t in value)
        elif inferred.setdefault(arg.count or "", len(value)) != len(value):
            raise ValueError(f"{arg.name!r} has another length than a list before it")
    return flat, inferred


def dtypes(info: OpInfo, values: Sequence[Any]) -> dict[str, tf.DType]:
    """The dtype attrs that tensors by argument determine."""
    found: dict[str, tf.DType] = {}
    for arg, value in zip(info.inputs, values, strict=True):
        tensors = value if arg.is_list else [value]
        if arg.type_attr is not None and tensors:
            found.setdefault(arg.type_attr, tensors[0].dtype.base_dtype)
    return found


def _infer(dtypes: dict[str, Any], type_attr: str, values: Any) -> None:
    """Sets the dtype to that of the first tensor; plain values do not decide it."""
    for value in values if isinstance(values, (list, tuple)) else ():
        if type(value) in _PLAIN:
            continue
        if type(value) is _EAGER_TENSOR:
            dtypes[type_attr] = value.dtype
            return
        tensor = _unwrapped(value)
        if isinstance(tensor, TensorType):
            # The dtype of a Keras variable is a name.
            dtypes[type_attr] = tf.as_dtype(tensor.dtype).base_dtype
            return


def _unwrapped(value: Any) -> Any:
    """A tensor for a value that TensorFlow itself does not convert."""
    if type(value) in _TENSORS or type(value) in _PLAIN:
        return value
    as_output = getattr(value, "as_output", None)
    if as_output is not None:
        return as_output()
    if hasattr(value, "OP_NAME"):
        # The op's own conversion error would not name the argument.
        raise TypeError("an op is a tensor only if that is its one output")
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return tf.experimental.dlpack.from_dlpack(value.__dlpack__())
    return value


def _mixed(
    info: OpInfo, arg: ArgInfo, values: Sequence[Any], dtypes: dict[str, Any]
) -> list[tf.Tensor]:
    """Converts a list whose elements may have different dtypes.

    If an earlier list input has the same attr, that list decides the dtypes.
    """
    before = dtypes.get(arg.type_list_attr or "", (None,) * len(values))
    if len(before) != len(values):
        raise ValueError(f"{arg.name!r} has another length than a list before it")
    found = []
    for index, (value, dtype) in enumerate(zip(values, before, strict=True)):
        value = _unwrapped(value)
        _check_fits(info, arg, value, dtype, index)
        tensor = ops.convert_to_tensor(
            value, dtype=dtype, name=f"{arg.name}_{index}", as_ref=arg.is_ref
        )
        found.append(tensor)
    dtypes[arg.type_list_attr or ""] = [tensor.dtype.base_dtype for tensor in found]
    return found


def _tensor(
    info: OpInfo,
    arg: ArgInfo,
    value: Any,
    dtypes: dict[str, Any],
    eager: bool,
    index: int | None = None,
) -> tf.Tensor:
    """An input as a tensor; `index` is its position in a list input."""
    value = _unwrapped(value)
    if eager and type(value) is _EAGER_TENSOR:
        return value
    _check_fits(info, arg, value, arg.truncated, index)
    name = arg.name if index is None else f"{arg.name}_{index}"
    type_attr = arg.type_attr
    dtype = arg.dtype if type_attr is None else dtypes.get(type_attr)
    preferred = None
    if dtype is None and type_attr is not None:
        attr = info.attr[type_attr]
        preferred = attr.default
        # If the attr has a default, TensorFlow uses the value's own dtype if that is
        # allowed. For elements of a list in a graph, it uses the default instead, and
        # truncates numbers that do not fit. This code then uses the value's own dtype.
        looks = eager or not arg.is_list
        if preferred is not None and attr.allowed and not looks:
            looks = narrowing.unrepresentable(value, preferred) is not None
        if preferred is not None and attr.allowed and looks:
            try:
                tensor = ops.convert_to_tensor(value, name=name, as_ref=arg.is_ref)
            except TypeError:
                pass
            else:
                dtype = tensor.dtype.base_dtype
                if dtype in attr.allowed:
                    dtypes[type_attr] = dtype
                    return tensor
                dtype = None
    _check_fits(info, arg, value, dtype or preferred, index)
    tensor = ops.convert_to_tensor(
        value,
        dtype=dtype,
        name=name,
        as_ref=arg.is_ref,
        preferred_dtype=preferred,
    )
    if dtype is None and type_attr is not None:
        dtypes[type_attr] = tensor.dtype.base_dtype
    return tensor


def _check_fits(
    info: OpInfo, arg: ArgInfo, value: Any, dtype: tf.DType | None, index: int | None
) -> None:
    if dtype is None or type(value) in _TENSORS:
        return
    one = narrowing.unrepresentable(value, dtype)
    if one is None:
        return
    label = arg.python_name if index is None else f"{arg.python_name}[{index}]"
    raise errors.make(
        errors.OpInputError,
        info.name,
        f"{info.name}: {label} must be {dtype.name}; "
        f"{errors.repr_short(one)} does not fit",
        argument=label,
        given=one,
        allowed=(dtype,),
    )
