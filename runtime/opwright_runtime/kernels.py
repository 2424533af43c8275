"""The kernels of an op, from TensorFlow's live registry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from opwright_runtime import libraries, native
from opwright_runtime._internals import kernel_registry
from opwright_runtime._tpu_dtypes import missing_on_tpus

__all__ = ["Kernel", "kernels", "served"]

# XLA can compile an op that has a kernel for one of XLA's compilation devices. Kernels
# for TensorFlow's retired XLA devices (XLA_CPU, XLA_GPU) do not count.
_DEVICES: Mapping[str, tuple[str, ...]] = {
    "CPU": ("CPU",),
    "GPU": ("GPU",),
    "DEFAULT": ("CPU", "GPU"),
    "XLA_CPU_JIT": ("XLA",),
    "XLA_GPU_JIT": ("XLA",),
    "TPU": ("TPU",),
    "TPU_SYSTEM": ("TPU_SYSTEM",),
}


@dataclass(frozen=True, repr=False)
class Kernel:
    """A kernel of an op.

    Attributes:
        device: "CPU", "GPU", or "XLA", which stands for jit_compile and TPU. TPUs lack
            some of its dtypes, such as complex128.
        dtypes: the dtypes that it accepts, by type attr. An attr that is missing here
            may be any dtype.
        provider: "TensorFlow", "opwright", or the file of the library that has the op,
            "libmy_ops.so".
        available: whether this machine has such a device.
        label: the value of the attr `_kernel` that selects it; "" for a kernel without.
        priority: TensorFlow runs the matching kernel with the highest priority.
        host_memory: inputs and outputs that are in the host's memory.
    """

    device: str
    dtypes: Mapping[str, tuple[tf.DType, ...]]
    provider: str
    available: bool
    label: str = ""
    priority: int = 0
    host_memory: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.device, tuple(self.dtypes.items()), self.provider))

    def __repr__(self) -> str:
        parts = [self.device]
        for attr, dtypes in self.dtypes.items():
            parts.append(f"{attr}={'|'.join(dtype.name for dtype in dtypes)}")
        names = (one.name for dtypes in self.dtypes.values() for one in dtypes)
        if self.device == "XLA" and (missing := missing_on_tpus(names)):
            parts.append(f"no {'|'.join(missing)} on TPUs")
        parts.append(self.provider)
        if self.label:
            parts.append(f"label {self.label}")
        if not self.available:
            parts.append("no such device here")
        return f"<Kernel {', '.join(parts)}>"


def kernels(op_name: str) -> tuple[Kernel, ...]:
    """The kernels registered for an op, those of CPU, GPU and XLA first."""
    _register_compilers()
    present = {device.device_type for device in tf.config.list_physical_devices()}
    present |= {"XLA", *(("TPU_SYSTEM",) if "TPU" in present else ())}
    rows: dict[Kernel, None] = {}
    # Kernels for one device come before kernels for any device.
    found = kernel_registry.get_registered_kernels_for_op(op_name).kernel
    for row in sorted(found, key=lambda row: row.device_type == "DEFAULT"):
        for device in _DEVICES.get(row.device_type, ()):
            kernel = _kernel(row, device, device in present)
            if row.device_type != "DEFAULT" or not _served(kernel, rows):
                rows.setdefault(kernel)
    order = list(dict.fromkeys(d for devices in _DEVICES.values() for d in devices))
    return tuple(sorted(rows, key=lambda kernel: order.index(kernel.device)))


def _kernel(row: Any, device: str, available: bool) -> Kernel:
    dtypes = {
        constraint.name: tuple(map(tf.as_dtype, constraint.allowed_values.list.type))
        for constraint in row.constraint
    }
    return Kernel(
        device=device,
        dtypes=MappingProxyType(dtypes),
        provider=_provider(row),
        available=available,
        label=row.label,
        priority=row.priority,
        host_memory=tuple(row.host_memory_arg),
    )


def _provider(row: Any) -> str:
    """The library that a row of the registry comes from.

    opwright's library registers its kernels with a priority that no other library has.
    """
    ours = native.loaded() and row.priority == native.KERNEL_PRIORITY
    return "opwright" if ours else libraries.provider(row.op)


def _served(kernel: Kernel, rows: Mapping[Kernel, None]) -> bool:
    return any(
        row.device == kernel.device
        and row.label == kernel.label
        and row.dtypes in ({}, kernel.dtypes)
        for row in rows
    )


@cache
def _register_compilers() -> None:
    """Compiles a function with XLA, so that TensorFlow registers XLA's kernels."""
    with tf.init_scope():
        tf.function(lambda x: x + 1, jit_compile=True, autograph=False)(tf.constant(0))


def served(rows: Iterable[Kernel]) -> Iterator[tuple[str, str]]:
    """For each device of `rows`: its name, and a text with its kernels' dtypes."""
    by_device: dict[str, list[Kernel]] = {}
    for row in rows:
        by_device.setdefault(row.device, []).append(row)
    for device, found in by_device.items():
        names: dict[str, dict[str, None]] = {}
        for row in found:
            for attr, dtypes in row.dtypes.items():
                names.setdefault(attr, {}).update((d.name, None) for d in dtypes)
        words = [f"{attr} {', '.join(dtypes)}" for attr, dtypes in names.items()]
        if any(not row.dtypes for row in found):
            words = ["any dtype"]
        if not found[0].available:
            words.append("no such device here")
        yield device, "; ".join(words)
