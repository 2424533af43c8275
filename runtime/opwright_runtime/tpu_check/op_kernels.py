"""Which dtypes of an op XLA and TPUs have no kernel for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._tpu_dtypes import missing_on_tpus
from opwright_runtime.kernels import Kernel, kernels

# A tf.Operation.
_Op: TypeAlias = Any

#: Dtypes that XLA does not have.
FOREIGN = (tf.string, tf.variant, tf.resource)


def no_kernel(op: _Op) -> str | None:
    """Why XLA has no kernel that fits an op; None if it has one."""
    rows = _xla_kernels(op)
    if op.type == "Placeholder" or any(_fits(op, row.dtypes) for row in rows):
        return None
    if not rows:
        return "XLA has no kernel for it"
    return f"XLA has no kernel for {', '.join(_named(_refused_by_xla(op)))}"


def no_tpu_kernel(op: _Op) -> str | None:
    """Why TensorFlow has no kernel of an op for TPUs, where XLA has one for others."""
    refused = _refused_by_tpus(op)
    return f"TPUs have no kernel for {', '.join(_named(refused))}" if refused else None


def input_names(op: _Op) -> list[str]:
    """The argument of the OpDef that each input belongs to."""
    names: list[str] = []
    for arg in op.op_def.input_arg:
        if arg.number_attr:
            count = op.get_attr(arg.number_attr)
        else:
            count = len(op.get_attr(arg.type_list_attr)) if arg.type_list_attr else 1
        names += [arg.name] * count
    return names


def arguments_of_dtypes(op: _Op) -> tuple[str, ...]:
    """The arguments of an op, by name, whose dtypes have no kernel."""
    attrs = {attr for attr, _ in (*_refused_by_xla(op), *_refused_by_tpus(op))}
    args = op.op_def.input_arg
    return tuple(
        arg.name for arg in args if {arg.type_attr, arg.type_list_attr} & attrs
    )


def supported_dtypes(op: _Op) -> tuple[str, ...]:
    """The dtypes of numbers that an op may have on TPUs in place of a refused one."""
    refused = (*_refused_by_xla(op), *_refused_by_tpus(op))
    if not refused or any(dtype in FOREIGN for _, dtype in refused):
        return ()
    attr, _ = refused[0]
    names = {
        dtype.name
        for row in _xla_kernels(op)
        for dtype in row.dtypes.get(attr, ())
        if dtype not in FOREIGN and not missing_on_tpus([dtype.name])
    }
    return tuple(sorted(names))


def _xla_kernels(op: _Op) -> list[Kernel]:
    return [row for row in kernels(op.type) if row.device == "XLA"]


_Refused: TypeAlias = list[tuple[str, tf.DType]]


def _named(refused: _Refused) -> dict[str, None]:
    return {f"{attr}={dtype.name}": None for attr, dtype in refused}


def _refused_by_xla(op: _Op) -> _Refused:
    rows = _xla_kernels(op)
    if any(_fits(op, row.dtypes) for row in rows):
        return []
    return [
        (attr, dtype)
        for row in rows
        for attr, allowed in row.dtypes.items()
        for dtype in _dtypes(op, attr)
        if dtype not in allowed
    ]


def _refused_by_tpus(op: _Op) -> _Refused:
    attrs = [a.name for a in op.op_def.attr if a.type in ("type", "list(type)")]
    # What a function does with its arguments, its own ops say.
    calls = any(attr.type in ("func", "list(func)") for attr in op.op_def.attr)
    if op.type == "Placeholder" or calls:
        return []
    return [
        (attr, dtype)
        for attr in attrs
        for dtype in _dtypes(op, attr)
        if missing_on_tpus([dtype.name])
    ]


def _fits(op: _Op, dtypes: Mapping[str, tuple[tf.DType, ...]]) -> bool:
    return all(
        dtype in allowed
        for attr, allowed in dtypes.items()
        for dtype in _dtypes(op, attr)
    )


def _dtypes(op: _Op, attr: str) -> list[tf.DType]:
    """The dtypes of a type attr. A list of types may be empty."""
    value = op.get_attr(attr)
    return list(map(tf.as_dtype, value if isinstance(value, list) else [value]))
