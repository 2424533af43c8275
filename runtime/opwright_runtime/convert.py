"""Inputs of an op to tensors, with the dtypes that TensorFlow's own builder picks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from opwright_runtime.internals import TensorType, ops
from opwright_runtime.opdef import ArgInfo, OpInfo


def inferred(
    info: OpInfo, inputs: Sequence[Any], *, eager: bool
) -> tuple[list[tf.Tensor], dict[str, Any]]:
    """The inputs as one flat list of tensors, and the attrs that they settle.

    A dtype that several inputs share is that of the first tensor among them: plain
    values follow it wherever they stand.
    """
    flat: list[tf.Tensor] = []
    settled: dict[str, Any] = {}
    dtypes = _dtypes_of_tensors(info, inputs)
    for arg, value in zip(info.inputs, inputs, strict=True):
        if not arg.is_list:
            tensor = _tensor(info, arg, value, dtypes, eager, arg.name)
            if arg.type_attr is not None:
                dtypes.setdefault(arg.type_attr, tensor.dtype.base_dtype)
            flat.append(tensor)
            continue
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"Expected list for {arg.name!r}, not {value!r}")
        if arg.type_list_attr is not None:
            tensors = _mixed(arg, value, settled.get(arg.type_list_attr))
            settled[arg.type_list_attr] = tuple(t.dtype.base_dtype for t in tensors)
        else:
            tensors = []
            for index, one in enumerate(value):
                name = f"{arg.name}_{index}"
                tensor = _tensor(info, arg, one, dtypes, eager, name)
                if arg.type_attr is not None:
                    dtypes.setdefault(arg.type_attr, tensor.dtype.base_dtype)
                tensors.append(tensor)
            if settled.setdefault(arg.count or "", len(tensors)) != len(tensors):
                raise ValueError(
                    f"{arg.name!r} has {len(tensors)} elements, where "
                    f"{settled[arg.count or '']} were given before"
                )
        flat += tensors
    for name, dtype in dtypes.items():
        settled[name] = dtype
    return flat, settled


def _dtypes_of_tensors(info: OpInfo, inputs: Sequence[Any]) -> dict[str, tf.DType]:
    dtypes: dict[str, tf.DType] = {}
    for arg, value in zip(info.inputs, inputs, strict=True):
        if arg.type_attr is None or arg.type_attr in dtypes:
            continue
        for one in (
            value if arg.is_list and isinstance(value, (list, tuple)) else [value]
        ):
            dtype = _dtype(one)
            if dtype is not None:
                dtypes[arg.type_attr] = dtype
                break
    return dtypes


def _dtype(value: Any) -> tf.DType | None:
    """The dtype of what is a tensor already: no value's, whose dtype can change."""
    if isinstance(value, TensorType):
        return value.dtype.base_dtype
    as_output = getattr(value, "as_output", None)
    return None if as_output is None else as_output().dtype.base_dtype


def _mixed(
    arg: ArgInfo, values: Sequence[Any], dtypes: Sequence[tf.DType] | None
) -> list[tf.Tensor]:
    if dtypes is not None and len(dtypes) != len(values):
        raise ValueError(
            f"{arg.name!r} has {len(values)} elements, where {len(dtypes)} were given "
            "before"
        )
    return [
        ops.convert_to_tensor(
            value,
            dtype=None if dtypes is None else dtypes[index],
            name=f"{arg.name}_{index}",
            as_ref=arg.is_ref,
        )
        for index, value in enumerate(values)
    ]


def _tensor(
    info: OpInfo,
    arg: ArgInfo,
    value: Any,
    dtypes: dict[str, tf.DType],
    eager: bool,
    name: str,
) -> tf.Tensor:
    dtype = arg.dtype if arg.type_attr is None else dtypes.get(arg.type_attr)
    preferred = None
    if dtype is None and arg.type_attr is not None:
        attr = info.attr[arg.type_attr]
        preferred = attr.default
        # Where the attr has a default, the value's own dtype wins if it is allowed. In
        # a graph TensorFlow does not look at that for the elements of a list.
        if preferred is not None and attr.allowed and (eager or not arg.is_list):
            try:
                tensor = ops.convert_to_tensor(value, name=name, as_ref=arg.is_ref)
            except TypeError:
                pass
            else:
                if tensor.dtype.base_dtype in attr.allowed:
                    return tensor
    return ops.convert_to_tensor(
        value,
        dtype=dtype,
        name=name,
        as_ref=arg.is_ref,
        preferred_dtype=preferred,
    )
